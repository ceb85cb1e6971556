"""What the account really holds, asked of the cloud before anything is registered.

A launch that fails for a missing key pair or a reservation in another zone fails after networks and gateways
were made. All of it can be asked first; every answer that does not fit is one problem with its fix.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, replace

import pulumi
import pulumi_aws as aws
from pulumi_aws import ec2, lb, s3, ssm

from infra.catalog.instance_types import InstanceType
from infra.errors import ProblemsFound
from infra.provision.asking import Asking, last_line
from infra.provision.aws.account import Account, Demand
from infra.provision.aws.block_notice import find_topic
from infra.provision.aws.found import (
    FoundImage,
    FoundLoadBalancer,
    FoundReservation,
    FoundSubnet,
    address_shortage,
    arn_problem,
    gateway_problems,
    image_problem,
    ingress_problem,
    load_balancer_problems,
    offering_problem,
    subnet_problems,
)
from infra.provision.aws.keys import bucket_key, find_key
from infra.provision.aws.quotas import quota_problems
from infra.provision.aws.reservations import find_reservation, read_reservation, zone_id_of
from infra.provision.aws.zone import Zone, unseen_zone_problem, zone_example
from infra.provision.config_problems import account_problem
from infra.provision.naming import STACK_TAG

ARM = "arm64"  # AWS's word for aarch64
# States of a machine in which it keeps its addresses; EC2 API, InstanceState.
HOLDING_ADDRESSES = ("pending", "running", "stopping", "stopped", "shutting-down")


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """What was found.

    Args:
        reservation: None without one, or where nobody may look at it.
        images: by instance type.
        subnet: the operator's own, None when a network is made.
        gateway_subnet: the operator's own for load balancers, None when they stand beside hosts.
        load_balancer: the one that `ingress: {existing: …}` names.
        bucket_key: ARN of the key that a bucket of the operator's is encrypted with; None for none that is known.
    """

    zone: Zone
    reservation: FoundReservation | None
    images: dict[str, FoundImage]
    subnet: FoundSubnet | None
    gateway_subnet: FoundSubnet | None
    load_balancer: FoundLoadBalancer | None
    bucket_key: str | None

    @property
    def num_reserved(self) -> int | None:
        """Machines in the reservation; None without one, or where nobody may look at it."""
        return self.reservation.num_instances if self.reservation is not None else None


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
    _find_account(asking, account)
    zone = _find_zone(asking, account, demand, instance_types)
    if zone is None:  # without it nothing else can be judged
        raise ProblemsFound(
            tuple(asking.problems) or (unseen_zone_problem(account.zone_id, demand.stack),)
        )
    images = {
        each.id: _find_image(asking, account, each) for each in instance_types if demand.has_login
    }
    if not zone.is_local:
        for each in instance_types:
            _find_offering(asking, account, each)
    reservation = find_reservation(asking, account, demand, zone, instance_types)
    asking.note(*quota_problems(account, demand))
    find_topic(asking, account, demand)
    if demand.has_login:
        asking.ask(
            "moe-infra:key_name",
            f"key pair {account.key_name} in {account.region}",
            "my-key",
            lambda: ec2.get_key_pair(key_name=account.key_name),
        )
    has_bucket = _find_bucket(asking, account, bucket)
    find_key(asking, account)
    subnet = _find_hosts_subnet(asking, account, zone, demand)
    gateway = find_subnet(asking, "gateway_subnet_id", account.gateway_subnet_id)
    asking.note(*gateway_problems(subnet, gateway, zone, demand))
    found = _find_load_balancer(asking, account, load_balancer, subnet, demand)
    if asking.problems:
        raise ProblemsFound(tuple(asking.problems))
    return Survey(
        zone=zone,
        reservation=reservation,
        images={name: image for name, image in images.items() if image is not None},
        subnet=subnet,
        gateway_subnet=gateway,
        load_balancer=found,
        bucket_key=bucket_key(bucket) if has_bucket else None,
    )


def _find_account(asking: Asking, account: Account) -> None:
    """Whether the credentials are those of the account that the stack is kept in."""
    if account.account_id is None:
        return
    found = asking.ask(
        "moe-infra:account_id",
        "answer on which account this is",
        account.account_id,
        lambda: str(aws.get_caller_identity().account_id),
    )
    if found is not None and found != account.account_id:
        problem = account_problem("moe-infra:account_id", "", account.account_id, asking.stack)
        what = f"Your credentials are those of account {found}; the stack is kept in {account.account_id}."
        fix = "Choose the right profile (AWS_PROFILE, or `pulumi config set aws:profile PROFILE`)."
        # of another account every further answer would mislead
        raise ProblemsFound((replace(problem, what=what, fix=fix),))


def _find_zone(
    asking: Asking, account: Account, demand: Demand, instance_types: tuple[InstanceType, ...]
) -> Zone | None:
    """The zone of the capacity; a Local Zone need not be opted into yet."""
    key = "moe-infra:zone_id"
    found = asking.ask(
        key,
        f"zone {account.zone_id} in {account.region}",
        zone_example(account.region),
        lambda: aws.get_availability_zone(zone_id=account.zone_id, all_availability_zones=True),
    )
    if found is None and asking.problems:
        meant = _meant_zone(account, demand, instance_types[0])
        fix = account_problem(key, "", meant, asking.stack).fix
        asking.problems = [replace(problem, fix=fix) for problem in asking.problems]
    if found is None:
        return None
    is_local = found.zone_type == "local-zone"
    return Zone(
        zone_id=account.zone_id,
        name=found.name,
        group=found.group_name,
        parent_zone_id=found.parent_zone_id if is_local else None,
    )


def _meant_zone(account: Account, demand: Demand, instance_type: InstanceType) -> str:
    """The zone id that was meant where the one that is set is none: the reservation's, else one with such machines."""
    if account.reservation_id is not None:
        with contextlib.suppress(
            Exception
        ):  # what is wrong with the reservation is told with a right zone
            return zone_id_of(read_reservation(account.reservation_id, demand).zone_name)
    with contextlib.suppress(Exception):
        return min(_offering_zones(instance_type.id))
    return zone_example(account.region)


def _offering_zones(instance_type: str) -> tuple[str, ...]:
    wanted = [{"name": "instance-type", "values": [instance_type]}]
    found = ec2.get_instance_type_offerings(filters=wanted, location_type="availability-zone-id")
    return tuple(sorted(found.locations))


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
    found = asking.ask(
        "moe-infra:zone_id",
        f"answer on where {instance_type.id} is offered",
        zone_example(account.region),
        lambda: _offering_zones(instance_type.id),
    )
    if found is not None:
        asking.note(offering_problem(instance_type.id, found, account, asking.stack))


def _find_bucket(asking: Asking, account: Account, bucket: str | None) -> bool:
    """Whether the bucket with the weights is there, whichever file names it."""
    if bucket is None:
        return False
    problem = account_problem("moe-infra:weights_bucket", "", "my-weights", asking.stack)
    if bucket != account.weights_bucket:
        file, fix = f"stacks/{asking.stack}.yaml", "Name one that exists: s3://BUCKET/PREFIX."
        problem = replace(problem, file=file, field="weights.source", fix=fix)
    found = asking.ask_of(problem, f"bucket {bucket}", lambda: s3.get_bucket(bucket=bucket))
    return found is not None


def _find_hosts_subnet(
    asking: Asking, account: Account, zone: Zone, demand: Demand
) -> FoundSubnet | None:
    """The operator's own subnet for hosts, held against what they take of it."""
    subnet = find_subnet(asking, "subnet_id", account.subnet_id)
    if subnet is not None:
        asking.note(*subnet_problems(subnet, zone, demand))
        if subnet.num_standing is None and (shortage := address_shortage(subnet, demand)):
            pulumi.log.warn(f"{shortage} Which of them stand already, you may not ask.")
    return subnet


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
        lambda: ec2.get_instances(filters=wanted, instance_state_names=list(HOLDING_ADDRESSES)),
    )
    return None if found is None else len(found.ids)


def _find_load_balancer(
    asking: Asking, account: Account, arn: str | None, subnet: FoundSubnet | None, demand: Demand
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
    asking.note(*load_balancer_problems(known, subnet, demand))
    return known
