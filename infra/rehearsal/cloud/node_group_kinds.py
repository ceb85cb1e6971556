"""Managed node groups of the emulated cloud: what a launch template may not say, and which capacity they enter.

Refusals follow the EKS User Guide: "Customize managed nodes with launch templates", "Create a managed node group with
Capacity Blocks for ML", checked 2026-11-22.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping

from infra.rehearsal.cloud.cluster_kinds import (
    BAD,
    IN_CLUSTER,
    NODE_GROUP,
    cluster_of,
    eks_arn,
    map_of,
)
from infra.rehearsal.cloud.identity_kinds import ROLE, trusted_actions
from infra.rehearsal.cloud.interface_rules import layout_refusals, read_interfaces
from infra.rehearsal.cloud.kind import Kind, Link, Made, RefusedError, Request, values_at
from infra.rehearsal.cloud.machine_facts import MachineFacts, machine_facts
from infra.rehearsal.cloud.machine_kinds import TEMPLATE, check_volume_keys
from infra.rehearsal.cloud.network_kinds import SUBNET
from infra.rehearsal.cloud.running_machines import (
    Machine,
    free_addresses,
    hidden_machines,
    machines_of,
    running_machines,
)
from infra.rehearsal.cloud.store import Resource, digits
from infra.rehearsal.cloud.world import ORDINARY_MACHINES, ZONES, is_offered

_BLOCK = "CAPACITY_BLOCK"
_ACCELERATED = {"x86_64": "AL2023_x86_64_NVIDIA", "aarch64": "AL2023_ARM_64_NVIDIA"}


def _make_node_group(request: Request) -> Made:
    cluster = cluster_of(request)
    template = _template(request)
    name = request.text("nodeGroupName")
    for sentence in (
        *_group_refusals(request, cluster),
        *_role_refusals(request),
        *_template_refusals(template),
        *_machine_refusals(request, template),
    ):
        raise RefusedError(BAD, sentence)
    _check_capacity(request, template)
    check_volume_keys(request.store, template)
    machines = _nodes(request, template)
    scaling = f"eks-{name}-{request.digits[:8]}"
    computed = {
        "arn": eks_arn(request, "nodegroup", f"{request.text('clusterName')}/{name}"),
        "instanceTypes": request.inputs.get("instanceTypes") or [],  # the template's
        "version": request.text("version") or cluster.inputs.get("version"),
        "resources": [{"autoscalingGroups": [{"name": scaling}]}],
    }
    if not request.text("releaseVersion"):
        computed["releaseVersion"] = f"{cluster.inputs.get('version')}.0-20260101"
    identity = f"{request.text('clusterName')}:{name}"
    return Made(id=identity, computed=computed, hidden=hidden_machines(machines))


def _template(request: Request) -> Mapping[str, object]:
    """The launch template's version that a group names."""
    template = request.linked(TEMPLATE, "launchTemplate.id")
    versions = template.hidden["versions"] if template is not None else {}
    version = request.text("launchTemplate.version")
    if not isinstance(versions, dict) or version not in versions:
        raise RefusedError(BAD, f"There is no version {version} of the launch template.")
    return map_of(versions[version])


def _role_refusals(request: Request) -> Iterator[str]:
    arn = request.text("nodeRoleArn")
    if "sts:AssumeRole" not in trusted_actions(request.store, arn).get("ec2.amazonaws.com", ()):
        yield (
            "Following required service principals [ec2.amazonaws.com] were not found in the trust relationships of "
            f"nodeRole arn: {arn}"
        )


def _group_refusals(request: Request, cluster: Resource) -> Iterator[str]:
    capacity = request.text("capacityType") or "ON_DEMAND"
    sizes = map_of(request.inputs.get("scalingConfig"))
    least, wanted, most = (
        int(str(sizes.get(key))) for key in ("minSize", "desiredSize", "maxSize")
    )
    if not least <= wanted <= most:
        yield f"Desired capacity {wanted} must be between {least} and {most}."
    if request.text("version") not in {"", cluster.inputs.get("version")}:
        yield f"The cluster runs {cluster.inputs.get('version')}, the nodes would run {request.text('version')}."
    zones = {str(each.outputs["availabilityZoneId"]) for each in _subnets(request)}
    if capacity == _BLOCK and len(zones) != 1:
        yield "A node group on a capacity block has subnets of its zone alone."
    if capacity == _BLOCK and _is_upgrade_of_running(request):
        yield "The desired size of a node group on a capacity block must be 0 for an upgrade."


def _is_upgrade_of_running(request: Request) -> bool:
    """Whether nodes that run would change: the provider upgrades them before it sets another size."""
    old = request.old
    if old is None or not map_of(old.inputs.get("scalingConfig")).get("desiredSize"):
        return False
    return _has_other_nodes(request, old)


def _has_other_nodes(request: Request, old: Resource) -> bool:
    """Whether a group's nodes are made from something else than before."""
    paths = ("version", "releaseVersion", "launchTemplate.id", "launchTemplate.version")
    return any(
        request.text(path) != next((str(each) for each in values_at(old.inputs, path)), "")
        for path in paths
    )


def _template_refusals(template: Mapping[str, object]) -> Iterator[str]:
    if template.get("iamInstanceProfile"):
        yield "Launch template should not specify an instance profile. The noderole in your request will be used."
    if any(values_at(template, "networkInterfaces[].subnetId")):
        yield "Launch template should not specify subnets in its network interfaces."
    groups = any(values_at(template, "networkInterfaces[].securityGroups[]"))
    if groups and template.get("vpcSecurityGroupIds"):
        yield "Security groups are given to the instance or to its interfaces, not to both."
    if template.get("networkInterfaces") and not groups:
        yield "Interfaces without security groups do not reach the control plane."
    text = base64.b64decode(str(template.get("userData") or "")).decode()
    if text and not text.startswith("MIME-Version: 1.0"):
        yield "User data was not in the MIME multipart format."


def _machine_refusals(request: Request, template: Mapping[str, object]) -> Iterator[str]:
    name, image = str(template.get("instanceType") or ""), request.text("amiType")
    machine = machine_facts(name)
    if machine is None:
        if name not in ORDINARY_MACHINES:
            yield f"The instance type {name} does not exist."
        elif image != ORDINARY_MACHINES[name]:
            yield f"{name} does not start {image}."
        return
    if image != _ACCELERATED[machine.architecture]:
        yield f"{name} does not start {image}."
    yield from _zone_refusals(request, machine)
    yield from layout_refusals(machine, read_interfaces(template.get("networkInterfaces")))


def _zone_refusals(request: Request, machine: MachineFacts) -> Iterator[str]:
    for subnet in _subnets(request):
        zone = ZONES[str(subnet.outputs["availabilityZoneId"])]
        if not is_offered(machine.name, zone):
            yield f"Your requested instance type ({machine.name}) is not supported in {zone.name}."


def _subnets(request: Request) -> list[Resource]:
    """The group's subnets; links have seen that they are there."""
    found = (
        request.store.get(SUBNET, str(each)) for each in values_at(request.inputs, "subnetIds[]")
    )
    return [each for each in found if each is not None]


def _num_wanted(request: Request) -> int:
    return int(str(map_of(request.inputs.get("scalingConfig")).get("desiredSize")))


def _reservation_id(template: Mapping[str, object]) -> str:
    path = "capacityReservationSpecification.capacityReservationTarget.capacityReservationId"
    return str(next(values_at(template, path), ""))


def _check_capacity(request: Request, template: Mapping[str, object]) -> None:
    """Whether the template enters the reservation as the group says, and the reservation has room."""
    is_block = request.text("capacityType") == _BLOCK
    market = str(next(values_at(template, "instanceMarketOptions.marketType"), ""))
    identity = _reservation_id(template)
    if is_block != (market == "capacity-block"):
        raise RefusedError(BAD, f"capacityType and marketType '{market}' contradict each other.")
    if is_block and any(values_at(template, "placement.groupName")):
        raise RefusedError(BAD, "Capacity Blocks do not support placement groups.")
    machine = machine_facts(str(template.get("instanceType") or ""))
    if is_block and not identity:
        raise RefusedError(BAD, "A capacity block needs a capacity reservation target.")
    if not identity:
        if machine is not None and "on-demand" not in machine.capacity_kinds:
            raise RefusedError("Unsupported", f"{machine.name} can be launched into a block only.")
        return
    reservation = request.store.account.reservations.get(identity)
    if reservation is None:
        what = f"The capacity reservation '{identity}' does not exist."
        raise RefusedError("InvalidCapacityReservationId.NotFound", what)
    zone_id = next((str(each.outputs["availabilityZoneId"]) for each in _subnets(request)), "")
    running = running_machines(request.store, without=request.old)
    used = sum(each.reservation == identity for each in running)
    for is_wrong, sentence in (
        (reservation.state != "active", f"The reservation is {reservation.state}"),
        (
            reservation.instance_type != template.get("instanceType"),
            f"It holds {reservation.instance_type}",
        ),
        (
            reservation.zone_id != zone_id,
            f"It is in {reservation.zone_id}, the subnet in {zone_id}",
        ),
        (
            reservation.num_instances < used + _num_wanted(request),
            f"It holds {reservation.num_instances} instances; {used} are in use by others",
        ),
    ):
        if is_wrong:
            raise RefusedError("AsgInstanceLaunchFailures", f"{sentence} ({identity}).")


def _nodes(request: Request, template: Mapping[str, object]) -> list[Machine]:
    """The machines of a group: those that stay as they are, and new ones in its subnets by turns.

    What a change replaces is given back first, one machine after the other (`MINIMAL`).
    """
    wanted, subnets, old = _num_wanted(request), _subnets(request), request.old
    stay = machines_of(old)[:wanted] if old and not _has_other_nodes(request, old) else []
    others = running_machines(request.store, without=old)
    interfaces = read_interfaces(template.get("networkInterfaces"))
    num_addresses = (
        sum(each.has_address for each in interfaces) or 1
    )  # none told: the one of every machine
    version = request.text("launchTemplate.version")
    nodes = [*stay]
    for number in range(len(stay), wanted):
        subnet, seed = subnets[number % len(subnets)], digits(f"{request.urn}#{version}/{number}")
        addresses = free_addresses(subnet, [*others, *nodes], num_addresses, seed)
        if len(addresses) < num_addresses:
            what = f"Subnet '{subnet.id}' does not have enough free addresses for {wanted} nodes."
            raise RefusedError("InsufficientFreeAddresses", what)
        node = Machine(
            id=f"i-{seed}",
            subnet_id=subnet.id,
            reservation=_reservation_id(template),
            addresses=addresses,
            tags=_node_tags(template),
        )
        nodes.append(node)
    return nodes


def _node_tags(template: Mapping[str, object]) -> dict[str, str]:
    """What a template's specification of tags gives to instances."""
    rows = template.get("tagSpecifications")
    return {
        name: str(value)
        for row in (rows if isinstance(rows, list) else [])
        if row.get("resourceType") == "instance"
        for name, value in map_of(row.get("tags")).items()
    }


KINDS: Mapping[str, Kind] = {
    NODE_GROUP: Kind(
        noun="EKS Node Group",
        make=_make_node_group,
        auto_name="nodeGroupName",
        links=(
            IN_CLUSTER,
            Link(path="subnetIds[]", token=SUBNET, code=BAD),
            Link(path="nodeRoleArn", token=ROLE, handle="arn", code=BAD),
            Link(path="launchTemplate.id", token=TEMPLATE, code=BAD),
        ),
    ),
}
