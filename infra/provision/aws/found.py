"""What the cloud told of things that exist, and whether a stack can use them. Pure: `survey` asks."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Literal

from infra.catalog.instance_types import InstanceType, notice_minutes
from infra.errors import Problem
from infra.provision.aws.account import Account, Demand
from infra.provision.aws.naming import give_back_nodes
from infra.provision.aws.zone import Zone
from infra.provision.config_problems import account_problem, stack_problem
from infra.provision.naming import give_back_machines

LoadBalancerType = Literal["network", "application"]
LOAD_BALANCER_ARN = re.compile(
    r"arn:aws[a-z-]*:elasticloadbalancing:(?P<region>[a-z0-9-]+):\d{12}:loadbalancer/(?P<type>net|app)/[^/\s]+/[0-9a-f]+"
)
# States of a reservation that launches into it will never see (again); EC2 API, CapacityReservation.
_OVER = ("expired", "cancelled", "failed", "payment-failed", "unavailable")


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundImage:
    """A machine image; `root_device` is None when nobody could be asked."""

    id: str
    root_device: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundReservation:
    """A capacity reservation or block.

    Args:
        zone_name: with the letter of this account.
        zone_id: of that zone; None where nobody has asked.
        num_instances: how many machines it holds in all.
        state: as EC2 words it.
        start: RFC 3339; empty when it is not told.
        end: RFC 3339; empty for one without an end.
    """

    id: str
    instance_type: str
    zone_name: str
    zone_id: str | None
    num_instances: int
    state: str
    start: str
    end: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundSubnet:
    """A subnet that the operator has made.

    Args:
        num_free: addresses that are not taken.
        num_standing: machines of the stack itself that have taken theirs; None when nobody may ask.
    """

    id: str
    vpc_id: str
    zone_id: str
    cidr_block: str
    num_free: int
    num_standing: int | None
    gives_public_addresses: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundLoadBalancer:
    """A load balancer that the operator has made."""

    arn: str
    type: LoadBalancerType
    dns_name: str
    vpc_id: str
    security_groups: tuple[str, ...]
    is_internal: bool


def image_problem(
    image_id: str, architecture: str, instance_type: InstanceType, stack: str
) -> Problem | None:
    """An image that the machines cannot start; architecture as the catalogue words it."""
    if architecture == instance_type.architecture:
        return None
    what = f"{image_id} is for {architecture}; {instance_type.id} is {instance_type.architecture}."
    return account_problem("moe-infra:ami", what, "ami-0123456789abcdef0", stack)


def offering_problem(
    instance_type: str, zone_ids: tuple[str, ...], account: Account, stack: str
) -> Problem | None:
    """A zone that does not offer the machines; `zone_ids` are those of the region that do."""
    if account.zone_id in zone_ids:
        return None
    if not zone_ids:
        what = f"{account.region} offers no {instance_type} to this account."
        return account_problem("aws:region", what, "us-east-2", stack)
    what = f"{account.zone_id} offers no {instance_type}; in {account.region} these do: {', '.join(zone_ids)}."
    return account_problem("moe-infra:zone_id", what, zone_ids[0], stack)


def reservation_problems(
    found: FoundReservation,
    demand: Demand,
    zone: Zone,
    instance_type: InstanceType,
) -> Iterator[Problem]:
    """Why the machines of a stack cannot be launched into a reservation."""
    if found.instance_type != instance_type.id:
        what = f"{found.id} holds {found.instance_type}; {demand.stack} needs {instance_type.id}."
        yield _reservation_problem(what, demand)
    if found.zone_name != zone.name:
        what = f"{found.id} is in {found.zone_name}; zone {zone.zone_id} is {zone.name} in this account."
        named = found.zone_id or f"ID-OF-{found.zone_name}"
        yield account_problem("moe-infra:zone_id", what, named, demand.stack)
    if found.num_instances < demand.num_hosts:
        what = f"{found.id} holds {found.num_instances} machines; {demand.stack} needs {demand.num_hosts}."
        yield _reservation_problem(what, demand)
    if found.state in _OVER:
        yield _reservation_problem(f"{found.id} is {found.state}.", demand)


def not_begun_problem(found: FoundReservation, demand: Demand) -> Problem | None:
    """A reservation that has not begun: nothing can be launched into it yet."""
    if found.state == "active" or found.state in _OVER:
        return None
    what = f"{found.id} is {found.state}" + (
        f" and begins at {found.start}." if found.start else "."
    )
    return Problem(
        rule="account-fact",
        severity="error",
        file=f"stacks/Pulumi.{demand.stack}.yaml",
        field="moe-infra:reservation_id",
        what=what,
        fix=f"Wait for it, then: pulumi up --stack {demand.stack}. Until then pulumi preview works.",
    )


def past_notice_problem(found: FoundReservation, demand: Demand, now: datetime) -> Problem | None:
    """A block that is about to end: whatever is launched from it by now is ended within the hour.

    Args:
        found: the block.
        demand: with the kind of capacity.
        now: with its time zone.
    """
    notice = notice_minutes(demand.capacity, are_managed_nodes=not demand.has_login)
    end = moment(found.end)
    if notice is None or end is None or found.state in _OVER:
        return None
    if now < end - timedelta(minutes=notice):
        return None
    what = (
        f"{found.id} ends at {found.end}, and its machines have to be idle {notice} minutes before: "
        "nothing is launched into it any more."
    )
    problem = _reservation_problem(what, demand)
    give_back = give_back_machines if demand.has_login else give_back_nodes
    following = problem.fix.removeprefix("Type: ")
    return replace(
        problem, fix=f"Type: {give_back(demand.stack)}. For the next reservation: {following}"
    )


def moment(text: str) -> datetime | None:
    """RFC 3339 as a moment; None for anything else, and for a time without its zone."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    return found if found.tzinfo is not None else None


def end_notice(found: FoundReservation, demand: Demand) -> str:
    """A sentence about the end of a reservation: what happens then, and by when to stop serving."""
    notice = notice_minutes(demand.capacity, are_managed_nodes=not demand.has_login)
    if (
        notice is None
    ):  # AWS, EC2 User Guide, "Capacity Reservations": instances go on, outside of it
        return f"{found.id} ends at {found.end}; its machines go on, on demand and without a claim."
    give_back = give_back_machines if demand.has_login else give_back_nodes
    ends_them = "AWS ends them then" if demand.has_login else "EKS scales their group to zero then"
    who = "give them back yourself" if demand.capacity == "ultraserver" else ends_them
    return (
        f"{found.id} ends at {found.end}; stop serving on its machines {notice} minutes before: {who} "
        f"({give_back(demand.stack)})."
    )


def subnet_problems(found: FoundSubnet, zone: Zone, demand: Demand) -> Iterator[Problem]:
    """Why hosts cannot be put into a subnet that exists."""
    key, example = "moe-infra:subnet_id", "subnet-0123456789abcdef0"
    if found.zone_id != zone.zone_id:
        what = f"{found.id} is in {found.zone_id}; the capacity is in {zone.zone_id}."
        yield account_problem(key, what, example, demand.stack)
    shortage = address_shortage(found, demand)
    if shortage is not None and found.num_standing is not None:
        yield account_problem(key, shortage, example, demand.stack)
    if found.gives_public_addresses:
        what = f"{found.id} gives its machines public addresses; hosts with several interfaces cannot have one."
        yield account_problem(key, what, example, demand.stack)


def address_shortage(found: FoundSubnet, demand: Demand) -> str | None:
    """A sentence when hosts will yet take more addresses than are free; those that stand have theirs."""
    wanted = demand.num_new_addresses(found.num_standing or 0)
    if found.num_free >= wanted:
        return None
    hosts = f"{found.num_standing} hosts stand, the others" if found.num_standing else "hosts"
    return f"{found.id} ({found.cidr_block}) has {found.num_free} free addresses; {hosts} take {wanted}."


def gateway_problems(
    subnet: FoundSubnet | None, gateway: FoundSubnet | None, zone: Zone, demand: Demand
) -> Iterator[Problem]:
    """Why the stack's own load balancer has no place in a network that exists."""
    if subnet is None or not demand.wants_load_balancer:
        return
    key, example = "moe-infra:gateway_subnet_id", "subnet-0123456789abcdef0"
    if gateway is None and zone.is_local:
        what = f"{zone.zone_id} is a Local Zone, without load balancers; name a subnet of {zone.gateway_zone_id}."
        yield account_problem(key, what, example, demand.stack)
    if gateway is not None and gateway.vpc_id != subnet.vpc_id:
        what = f"{gateway.id} is in {gateway.vpc_id}, hosts are in {subnet.vpc_id}."
        yield account_problem(key, what, example, demand.stack)


def load_balancer_problems(
    found: FoundLoadBalancer, subnet: FoundSubnet | None, demand: Demand
) -> Iterator[Problem]:
    """Why a load balancer that exists cannot stand in front of the router."""
    stack = demand.stack
    if subnet is None or subnet.vpc_id != found.vpc_id:
        hosts = "a network made for them" if subnet is None else subnet.vpc_id
        what = f"The load balancer is in {found.vpc_id}, hosts are in {hosts}."
        fix = f"Put hosts into its network: pulumi config set subnet_id SUBNET --stack {stack}"
        yield ingress_problem(what, fix, stack)
    if not found.is_internal:
        what = (
            "The load balancer faces the internet; engines and routers answer whoever reaches them."
        )
        yield ingress_problem(what, "Name an internal one.", stack)
    if not found.security_groups:
        what = "The load balancer has no security group, by which hosts would know it."
        yield ingress_problem(what, "Name one that has.", stack)
    if found.type == "application" and demand.speaks_tls:
        what = "An application load balancer ends TLS itself, and has no certificate: keys would travel in the clear."
        fix = "Name a network load balancer, which passes the edge's own TLS on."
        yield ingress_problem(what, fix, stack)


def certificate_problems(
    account: Account, *, has_ingress: bool, speaks_tls: bool, stack: str
) -> Iterator[Problem]:
    """Why a load balancer cannot end TLS with a certificate, or nobody could call it by its name.

    Args:
        account: the configuration.
        has_ingress: whether the stack has a load balancer before its router.
        speaks_tls: whether the edge on a host ends TLS itself.
        stack: its name.
    """
    arn, name = account.certificate_arn, account.clients_name
    key = "moe-infra:certificate_arn"
    rest = f"Type: pulumi config rm certificate_arn --stack {stack}"
    if arn is None and name is None:
        return
    if arn is None or name is None:
        lacking = ("clients_name", "kimi.example.com") if arn else ("certificate_arn", "ARN")
        what = "A certificate goes with the name that clients call: one of the two is not set."
        yield account_problem(f"moe-infra:{lacking[0]}", what, lacking[1], stack)
    elif not has_ingress:
        what = "The stack has no load balancer (ingress) that would end TLS with it."
        yield replace(account_problem(key, what, "", stack), fix=rest)
    elif speaks_tls:
        what = (
            "The edge ends TLS itself, with a certificate of its own: a load balancer passes it on."
        )
        yield replace(account_problem(key, what, "", stack), fix=rest)
    elif arn.split(":")[3] != account.region:
        what = f"The certificate is in {arn.split(':')[3]}; the stack is in {account.region}."
        yield account_problem(key, what, f"ARN-IN-{account.region}", stack)


def arn_problem(arn: str, account: Account, stack: str) -> Problem | None:
    """An ARN that names no load balancer of the region."""
    match = LOAD_BALANCER_ARN.fullmatch(arn)
    fix = (
        "Write the ARN of a network or application load balancer: aws elbv2 describe-load-balancers"
    )
    if match is None:
        return ingress_problem(f"{arn} is not the ARN of a load balancer.", fix, stack)
    if match["region"] != account.region:
        what = f"{arn} is in {match['region']}; the stack is in {account.region}."
        return ingress_problem(what, fix, stack)
    return None


def ingress_problem(what: str, fix: str, stack: str) -> Problem:
    """A problem of the stack file's `ingress.existing`."""
    return stack_problem("account-fact", "ingress.existing", what, fix, stack)


def _reservation_problem(what: str, demand: Demand) -> Problem:
    return account_problem("moe-infra:reservation_id", what, "cr-0123456789abcdef0", demand.stack)
