"""What the account really holds, asked of the cloud before anything is registered.

A launch that fails for a missing key pair or a reservation in another zone fails after networks and gateways
were made. All of it can be asked first; every answer that does not fit is one problem with its fix.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeVar

import pulumi
import pulumi_aws as aws
from pulumi_aws import cloudcontrol, ec2, lb, s3, ssm

from infra.catalog.instance_types import InstanceType
from infra.errors import Problem, ProblemsFound
from infra.provision.account import Account, Demand
from infra.provision.config_problems import account_problem
from infra.provision.found import (
    FoundImage,
    FoundLoadBalancer,
    FoundReservation,
    FoundSubnet,
    address_shortage,
    arn_problem,
    end_notice,
    gateway_problems,
    image_problem,
    ingress_problem,
    load_balancer_problems,
    not_begun_problem,
    offering_problem,
    reservation_problems,
    subnet_problems,
)
from infra.provision.naming import STACK_TAG
from infra.provision.zone import Zone

_T = TypeVar("_T")
# What IAM says: EC2 "UnauthorizedOperation", most others "AccessDenied… is not authorized to perform".
_FORBIDDEN = re.compile(r"UnauthorizedOperation|AccessDenied|not authorized to perform")
ARM = "arm64"  # AWS's word for aarch64
# States of a machine in which it keeps its addresses; EC2 API, InstanceState.
_HOLDING_ADDRESSES = ("pending", "running", "stopping", "stopped", "shutting-down")


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """What was found.

    Args:
        images: by instance type.
        subnet: the operator's own, None when a network is made.
        gateway_subnet: the operator's own for load balancers, None when they stand beside hosts.
        load_balancer: the one that `ingress: {existing: …}` names.
    """

    zone: Zone
    images: dict[str, FoundImage]
    subnet: FoundSubnet | None
    gateway_subnet: FoundSubnet | None
    load_balancer: FoundLoadBalancer | None


class Asking:
    """Questions to the cloud, and the problems that their answers are."""

    def __init__(self, stack: str) -> None:
        self.stack = stack
        self.problems: list[Problem] = []

    def ask(self, key: str, meaning: str, example: str, question: Callable[[], _T]) -> _T | None:
        """The answer; None when there is no such thing, or when the operator may not ask."""
        problem = account_problem(key, "", example, self.stack)
        return self.ask_of(problem, meaning, question)

    def ask_of(self, problem: Problem, meaning: str, question: Callable[[], _T]) -> _T | None:
        """The same for what another file names: the problem says where, and how it is mended."""
        try:
            return question()
        except Exception as error:  # noqa: BLE001 - the SDK raises a bare Exception with the provider's message
            said = last_line(error)
            if _FORBIDDEN.search(said):
                where = problem.field
                pulumi.log.warn(f"{where}: {meaning} was not looked at, you may not ask: {said}")
            else:
                what = f"There is no {meaning}, or the cloud did not answer: {said}."
                self.problems.append(replace(problem, what=what))
            return None

    def note(self, *problems: Problem | None) -> None:
        """Keep what is a problem."""
        self.problems += [problem for problem in problems if problem is not None]


def survey_account(
    account: Account,
    demand: Demand,
    instance_types: tuple[InstanceType, ...],
    *,
    bucket: str | None,
    load_balancer: str | None,
) -> Survey:
    """Everything of the account that a stack names, looked at.

    Args:
        account: the configuration.
        demand: what the stack asks.
        instance_types: of all hosts, each once.
        bucket: that holds the weights; None where the stack makes one.
        load_balancer: ARN of an existing one, None for none.

    Raises:
        ProblemsFound: everything that is not there or does not fit; nothing was registered.
    """
    asking = Asking(demand.stack)
    zone = _find_zone(asking, account)
    if zone is None:  # without it nothing else can be judged
        raise ProblemsFound(tuple(asking.problems))
    images = {
        each.id: _find_image(asking, account, each) for each in instance_types if demand.has_login
    }
    if not zone.is_local:
        for each in instance_types:
            _find_offering(asking, account, each)
    _find_reservation(asking, account, demand, zone, instance_types)
    if demand.has_login:
        asking.ask(
            "moe-infra:key_name",
            f"key pair {account.key_name} in {account.region}",
            "my-key",
            lambda: ec2.get_key_pair(key_name=account.key_name),
        )
    _find_bucket(asking, account, bucket)
    subnet = find_subnet(asking, "subnet_id", account.subnet_id)
    if subnet is not None:
        asking.note(*subnet_problems(subnet, zone, demand))
        if subnet.num_standing is None and (shortage := address_shortage(subnet, demand)):
            pulumi.log.warn(f"{shortage} Which of them stand already, you may not ask.")
    gateway = find_subnet(asking, "gateway_subnet_id", account.gateway_subnet_id)
    asking.note(*gateway_problems(subnet, gateway, zone, demand))
    found = _find_load_balancer(asking, account, load_balancer, subnet)
    if asking.problems:
        raise ProblemsFound(tuple(asking.problems))
    return Survey(
        zone=zone,
        images={name: image for name, image in images.items() if image is not None},
        subnet=subnet,
        gateway_subnet=gateway,
        load_balancer=found,
    )


def _find_zone(asking: Asking, account: Account) -> Zone | None:
    """The zone of the capacity; a Local Zone need not be opted into yet."""
    found = asking.ask(
        "moe-infra:zone_id",
        f"zone {account.zone_id} in {account.region}",
        "use1-az4",
        lambda: aws.get_availability_zone(zone_id=account.zone_id, all_availability_zones=True),
    )
    if found is None:
        return None
    is_local = found.zone_type == "local-zone"
    return Zone(
        zone_id=account.zone_id,
        name=found.name,
        group=found.group_name,
        parent_zone_id=found.parent_zone_id if is_local else None,
    )


def _find_image(asking: Asking, account: Account, instance_type: InstanceType) -> FoundImage | None:
    """The pinned image, else the one that the instance type's public parameter names today."""
    image_id = account.ami
    if image_id is None:
        parameter = instance_type.image.ssm_parameter
        image_id = asking.ask(
            "moe-infra:ami",
            f"public parameter {parameter}",
            "ami-0123456789abcdef0",
            lambda: str(ssm.get_parameter(name=parameter).value),
        )
    if image_id is None:
        return None
    wanted = [{"name": "image-id", "values": [image_id]}]
    found = asking.ask(
        "moe-infra:ami",
        f"image {image_id} in {account.region}",
        "ami-0123456789abcdef0",
        lambda: ec2.get_ami(filters=wanted, include_deprecated=True),
    )
    if found is None:
        return FoundImage(id=image_id, root_device=None)
    architecture = "aarch64" if found.architecture == ARM else str(found.architecture)
    asking.note(image_problem(image_id, architecture, instance_type, asking.stack))
    return FoundImage(id=image_id, root_device=str(found.root_device_name))


def _find_offering(asking: Asking, account: Account, instance_type: InstanceType) -> None:
    wanted = [{"name": "instance-type", "values": [instance_type.id]}]
    found = asking.ask(
        "moe-infra:zone_id",
        f"answer on where {instance_type.id} is offered",
        "use1-az4",
        lambda: ec2.get_instance_type_offerings(
            filters=wanted, location_type="availability-zone-id"
        ),
    )
    if found is not None:
        asking.note(
            offering_problem(
                instance_type.id, tuple(sorted(found.locations)), account, asking.stack
            )
        )


def _find_reservation(
    asking: Asking,
    account: Account,
    demand: Demand,
    zone: Zone,
    instance_types: tuple[InstanceType, ...],
) -> None:
    identity = account.reservation_id
    if identity is None:
        return
    read = _read_plain_reservation if demand.capacity == "odcr" else _read_block
    found = asking.ask(
        "moe-infra:reservation_id",
        f"{demand.capacity} reservation {identity} in {account.region}",
        "cr-0123456789abcdef0",
        lambda: read(identity),
    )
    if found is None:
        return
    asking.note(*reservation_problems(found, demand, zone, instance_types[0]))
    early = not_begun_problem(found, demand)
    if early is not None and pulumi.runtime.is_dry_run():
        pulumi.log.warn(f"{early.field}: {early.what} {early.fix}")
    else:
        asking.note(early)
    if found.end:
        pulumi.log.info(end_notice(found, demand))


def _read_block(identity: str) -> FoundReservation:
    found = ec2.get_capacity_block_reservation(id=identity)
    return FoundReservation(
        id=identity,
        instance_type=found.instance_type,
        zone_name=found.availability_zone,
        num_instances=int(found.instance_count),
        state=found.state,
        start=found.start_date,
        end=found.end_date,
    )


def _read_plain_reservation(identity: str) -> FoundReservation:
    """An on-demand reservation; the provider's own look-up knows blocks alone, Cloud Control knows these."""
    answer = cloudcontrol.get_resource(
        type_name="AWS::EC2::CapacityReservation", identifier=identity
    )
    found = json.loads(answer.properties)
    return FoundReservation(
        id=identity,
        instance_type=found["InstanceType"],
        zone_name=found["AvailabilityZone"],
        num_instances=int(found.get("TotalInstanceCount") or found["InstanceCount"]),
        state=found.get("State", "active"),
        start=found.get("StartDate", ""),
        end=found.get("EndDate", ""),
    )


def _find_bucket(asking: Asking, account: Account, bucket: str | None) -> None:
    """The bucket with the weights, whichever file names it."""
    if bucket is None:
        return
    problem = account_problem("moe-infra:weights_bucket", "", "my-weights", asking.stack)
    if bucket != account.weights_bucket:
        file, fix = f"stacks/{asking.stack}.yaml", "Name one that exists: s3://BUCKET/PREFIX."
        problem = replace(problem, file=file, field="weights.source", fix=fix)
    asking.ask_of(problem, f"bucket {bucket}", lambda: s3.get_bucket(bucket=bucket))


def find_subnet(asking: Asking, key: str, identity: str | None) -> FoundSubnet | None:
    """A subnet that the operator has made; None where none is named or it was not found."""
    if identity is None:
        return None
    found = asking.ask(
        f"moe-infra:{key}",
        f"subnet {identity}",
        "subnet-0123456789abcdef0",
        lambda: ec2.get_subnet(id=identity),
    )
    if found is None:
        return None
    return FoundSubnet(
        id=identity,
        num_standing=_count_standing(asking, key, identity),
        vpc_id=found.vpc_id,
        zone_id=found.availability_zone_id,
        cidr_block=found.cidr_block,
        num_free=int(found.available_ip_address_count),
        gives_public_addresses=bool(found.map_public_ip_on_launch),
    )


def _count_standing(asking: Asking, key: str, subnet_id: str) -> int | None:
    """Machines of the stack that hold addresses of a subnet: after a launch that failed in the middle, some do."""
    wanted = [
        {"name": "subnet-id", "values": [subnet_id]},
        {"name": f"tag:{STACK_TAG}", "values": [asking.stack]},
    ]
    found = asking.ask(
        f"moe-infra:{key}",
        f"answer on which hosts stand in {subnet_id}",
        "subnet-0123456789abcdef0",
        lambda: ec2.get_instances(filters=wanted, instance_state_names=list(_HOLDING_ADDRESSES)),
    )
    return None if found is None else len(found.ids)


def _find_load_balancer(
    asking: Asking, account: Account, arn: str | None, subnet: FoundSubnet | None
) -> FoundLoadBalancer | None:
    if arn is None:
        return None
    problem = arn_problem(arn, account, asking.stack)
    if problem is not None:
        asking.note(problem)
        return None
    try:
        found = lb.get_load_balancer(arn=arn)
    except Exception as error:  # noqa: BLE001 - as above
        what = f"There is none, or the cloud did not answer: {last_line(error)}."
        asking.note(ingress_problem(what, "Type: aws elbv2 describe-load-balancers", asking.stack))
        return None
    known = FoundLoadBalancer(
        arn=arn,
        type="application" if found.load_balancer_type == "application" else "network",
        dns_name=found.dns_name,
        vpc_id=found.vpc_id,
        security_groups=tuple(found.security_groups),
        is_internal=bool(found.internal),
    )
    asking.note(*load_balancer_problems(known, subnet, asking.stack))
    return known


def last_line(error: Exception) -> str:
    """What the provider said, without the frames that the SDK puts around it."""
    line = (str(error).strip().splitlines() or ["nothing"])[-1]
    return line.rpartition("returned an error: ")[2].rstrip(".")
