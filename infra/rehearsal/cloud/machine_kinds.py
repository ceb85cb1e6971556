"""Machines of the emulated cloud: placement groups, launch templates, instances."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from infra.rehearsal.cloud.encryption_keys import encrypts
from infra.rehearsal.cloud.identity_kinds import PROFILE
from infra.rehearsal.cloud.interface_rules import LaunchInterface, layout_refusals, read_interfaces
from infra.rehearsal.cloud.kind import (
    Inputs,
    Kind,
    Link,
    Made,
    RefusedError,
    Request,
    values_at,
)
from infra.rehearsal.cloud.machine_facts import MachineFacts, machine_facts
from infra.rehearsal.cloud.network_kinds import SECURITY_GROUP, SUBNET, ec2_arn
from infra.rehearsal.cloud.running_machines import (
    Machine,
    free_addresses,
    hidden_machines,
    machines_of,
    running_machines,
)
from infra.rehearsal.cloud.store import Reservation, Resource, Store, digits
from infra.rehearsal.cloud.world import IMAGES, ZONES, CloudZone, is_offered

PLACEMENT_GROUP = "aws:ec2/placementGroup:PlacementGroup"
TEMPLATE = "aws:ec2/launchTemplate:LaunchTemplate"
INSTANCE = "aws:ec2/instance:Instance"

# Properties of a launch template that are in none of its versions: the provider makes no new one for them
# (ec2_launch_template.go, CustomizeDiff).
_OF_THE_TEMPLATE = frozenset(
    {"name", "namePrefix", "tags", "defaultVersion", "updateDefaultVersion"}
)
_USER_DATA_BYTES = (
    16384  # EC2 User Guide, "Run commands when you launch an EC2 instance": before it is base64
)
_BLOCK_KINDS = ("capacity-block", "ultraserver")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Launch:
    """A launch request: what template and instance together ask for."""

    request: Request
    template: Mapping[str, object]
    machine: MachineFacts
    subnet: Resource
    interfaces: tuple[LaunchInterface, ...]

    @property
    def zone(self) -> CloudZone:
        """The zone of the primary interface's subnet."""
        return ZONES[str(self.subnet.outputs["availabilityZoneId"])]

    def text(self, path: str) -> str:
        """The text at a property path of the template, empty when it is not set."""
        return next((str(value) for value in values_at(self.template, path)), "")


def _make_placement_group(request: Request) -> Made:
    name = request.text("name")
    if any(other.inputs.get("name") == name for other in request.others(PLACEMENT_GROUP)):
        raise RefusedError(
            "InvalidPlacementGroup.Duplicate", f"The placement group '{name}' already exists."
        )
    identity = f"pg-{request.digits}"
    arn = ec2_arn(request, "placement-group", name)
    return Made(id=name, computed={"arn": arn, "placementGroupId": identity})


def _make_template(request: Request) -> Made:
    try:
        user_data = base64.b64decode(request.text("userData"), validate=True)
    except binascii.Error as error:
        raise RefusedError("InvalidUserData.Malformed", "User data must be base64.") from error
    if len(user_data) > _USER_DATA_BYTES:
        what = f"User data is limited to {_USER_DATA_BYTES} bytes"
        raise RefusedError("InvalidParameterValue", what)
    name = request.text("name")
    if any(other.inputs.get("name") == name for other in request.others(TEMPLATE)):
        what = f"Launch template name already in use: {name}."
        raise RefusedError("InvalidLaunchTemplateName.AlreadyExistsException", what)
    old = request.old
    version = int(str(old.outputs["latestVersion"])) if old else 0
    if old is None or _is_new_version(old.inputs, request.inputs):
        version += 1
    earlier = old.hidden["versions"] if old else {}
    versions = {**earlier, str(version): dict(request.inputs)} if isinstance(earlier, dict) else {}
    identity = old.id if old else f"lt-{request.digits}"
    computed = {
        "arn": ec2_arn(request, "launch-template", identity),
        "latestVersion": version,
        "defaultVersion": version if request.inputs.get("updateDefaultVersion") else 1,
    }
    return Made(id=identity, computed=computed, hidden={"versions": versions})


def _is_new_version(old: Inputs, new: Inputs) -> bool:
    """Whether a change is of what machines are made from; the template's own tags are not."""
    return any(old.get(name) != new.get(name) for name in {*old, *new} - _OF_THE_TEMPLATE)


def _make_instance(request: Request) -> Made:
    if request.old is not None:
        return _made_again(request.old, _tags(request))
    launch = _read_launch(request)
    _check_image(launch)
    refusals = list(layout_refusals(launch.machine, launch.interfaces))
    if refusals:
        raise RefusedError("InvalidParameterCombination", f"{'; '.join(refusals)}.")
    _check_groups(launch)
    _check_capacity(launch)
    check_volume_keys(request.store, launch.template)
    addresses = _take_addresses(launch)
    identity = f"i-{request.digits}"
    private = addresses[0]
    computed = {
        "arn": ec2_arn(request, "instance", identity),
        "instanceState": "running",
        "instanceType": launch.machine.name,
        "ami": launch.text("imageId"),
        "keyName": launch.text("keyName") or None,
        "privateIp": private,
        "privateDns": f"ip-{private.replace('.', '-')}.{request.region}.compute.internal",
        "publicIp": "",
        "subnetId": launch.subnet.id,
        "availabilityZone": launch.zone.name,
        "primaryNetworkInterfaceId": f"eni-{digits(identity)}",
        "vpcSecurityGroupIds": list(
            values_at(launch.template, "networkInterfaces[].securityGroups[]")
        )[:1],
        "placementGroup": launch.text("placement.groupName"),
    }
    machine = Machine(
        id=identity,
        subnet_id=launch.subnet.id,
        reservation=_reservation_id(launch),
        addresses=addresses,
        tags=_tags(request),
    )
    return Made(id=identity, computed=computed, hidden=hidden_machines([machine]))


def _made_again(old: Resource, tags: Mapping[str, str]) -> Made:
    """A changed instance: it keeps all that the cloud has given it."""
    computed = {name: value for name, value in old.outputs.items() if name not in old.inputs}
    machines = [replace(each, tags=tags) for each in machines_of(old)]
    return Made(id=old.id, computed=computed, hidden={**old.hidden, **hidden_machines(machines)})


def _tags(request: Request) -> dict[str, str]:
    tags = request.inputs.get("tags")
    return {name: str(value) for name, value in tags.items()} if isinstance(tags, dict) else {}


def _read_launch(request: Request) -> _Launch:
    template = request.linked(TEMPLATE, "launchTemplate.id")
    if template is None:
        raise RefusedError("MissingParameter", "The request must contain a launch template.")
    wanted = request.text("launchTemplate.version") or "$Default"
    aliases = {
        "$Default": template.outputs["defaultVersion"],
        "$Latest": template.outputs["latestVersion"],
    }
    versions = template.hidden["versions"]
    version = str(aliases.get(wanted, wanted))
    if not isinstance(versions, dict) or version not in versions:
        what = f"Could not find launch template version {wanted} of {template.id}."
        raise RefusedError("InvalidLaunchTemplateId.VersionNotFound", what)
    data = versions[version]
    machine = machine_facts(str(data.get("instanceType")))
    if machine is None:
        raise RefusedError(
            "InvalidParameterValue", f"Invalid value '{data.get('instanceType')}' for InstanceType."
        )
    primary = next(values_at(data, "networkInterfaces[].subnetId"), None)
    subnet = request.store.get(SUBNET, str(primary))
    if subnet is None:
        raise RefusedError("InvalidSubnetID.NotFound", f"The subnet ID '{primary}' does not exist.")
    interfaces = read_interfaces(data.get("networkInterfaces"))
    return _Launch(
        request=request, template=data, machine=machine, subnet=subnet, interfaces=interfaces
    )


def check_volume_keys(store: Store, template: Inputs) -> None:
    """A machine whose disk cannot be encrypted with its key ends as it starts.

    EC2 User Guide, "Troubleshoot instance launch issues", checked 2026-11-27.

    Raises:
        RefusedError: there is no such key, it is off, or it is of another kind.
    """
    for arn in values_at(template, "blockDeviceMappings[].ebs.kmsKeyId"):
        if not encrypts(store, str(arn)):
            what = "The KMS key provided is in an incorrect state"
            raise RefusedError("Client.InvalidKMSKey.InvalidState", what)


def _check_image(launch: _Launch) -> None:
    image, account = launch.text("imageId"), launch.request.store.account
    architecture = IMAGES.get(image) or account.images.get(image)
    if architecture is None:
        raise RefusedError("InvalidAMIID.NotFound", f"The image id '[{image}]' does not exist.")
    if architecture != launch.machine.architecture:
        what = f"The architecture '{architecture}' of the image does not match that of {launch.machine.name}"
        raise RefusedError("InvalidParameterValue", f"{what} ('{launch.machine.architecture}').")
    key = launch.text("keyName")
    if key and key not in account.key_pairs:
        raise RefusedError("InvalidKeyPair.NotFound", f"The key pair '{key}' does not exist.")


def _check_groups(launch: _Launch) -> None:
    """Every subnet and group of every interface is in one VPC and one zone, and named at all."""
    vpc = launch.subnet.inputs.get("vpcId")
    rows = launch.template.get("networkInterfaces")
    for row in rows if isinstance(rows, list) else []:
        subnet = launch.request.store.get(SUBNET, str(row.get("subnetId")))
        if subnet is None:
            raise RefusedError(
                "InvalidSubnetID.NotFound", f"The subnet ID '{row.get('subnetId')}' does not exist."
            )
        if subnet.outputs["availabilityZoneId"] != launch.zone.zone_id:
            raise RefusedError("InvalidParameterCombination", "All interfaces must be in one zone.")
        for group in row.get("securityGroups") or []:
            found = launch.request.store.get(SECURITY_GROUP, str(group))
            if found is None or found.inputs.get("vpcId") != vpc:
                raise RefusedError(
                    "InvalidGroup.NotFound",
                    f"The security group '{group}' does not exist in {vpc}.",
                )


def _reservation_id(launch: _Launch) -> str:
    return launch.text(
        "capacityReservationSpecification.capacityReservationTarget.capacityReservationId"
    )


def _check_capacity(launch: _Launch) -> None:
    store, zone = launch.request.store, launch.zone
    if not is_offered(launch.machine.name, zone):
        what = (
            f"Your requested instance type ({launch.machine.name}) is not supported in {zone.name}."
        )
        raise RefusedError("Unsupported", what)
    market, identity = launch.text("instanceMarketOptions.marketType"), _reservation_id(launch)
    if market == "capacity-block" and not identity:
        raise RefusedError(
            "InvalidParameterCombination", "A capacity block needs a capacity reservation target."
        )
    if not identity and "on-demand" not in launch.machine.capacity_kinds:
        raise RefusedError(
            "Unsupported", f"{launch.machine.name} can be launched into a capacity block only."
        )
    if identity:
        _check_reservation(launch, identity, market)
    if launch.text("placement.groupName"):
        _check_placement(launch, market)
    limit = store.account.instances_before_capacity_runs_out
    if limit is not None and len(store.of_type(INSTANCE)) >= limit:
        what = f"We currently do not have sufficient {launch.machine.name} capacity in {zone.name}."
        raise RefusedError("InsufficientInstanceCapacity", what)


def _check_reservation(launch: _Launch, identity: str, market: str) -> None:
    reservation = launch.request.store.account.reservations.get(identity)
    if reservation is None:
        what = f"The capacity reservation '{identity}' does not exist."
        raise RefusedError("InvalidCapacityReservationId.NotFound", what)
    for sentence in _reservation_refusals(launch, reservation, market):
        raise RefusedError("InvalidParameterCombination", f"{sentence} ({identity}).")
    used = sum(each.reservation == identity for each in running_machines(launch.request.store))
    if used >= reservation.num_instances:
        what = f"{identity} holds {reservation.num_instances} instances; all are in use."
        raise RefusedError("ReservationCapacityExceeded", what)


def _reservation_refusals(launch: _Launch, reservation: Reservation, market: str) -> Iterator[str]:
    if reservation.state != "active":
        yield f"The reservation is {reservation.state}"
    if reservation.instance_type != launch.machine.name:
        yield f"The reservation is for {reservation.instance_type}, not {launch.machine.name}"
    if reservation.zone_id != launch.zone.zone_id:
        yield f"The reservation is in zone {reservation.zone_id}, the subnet in {launch.zone.zone_id}"
    if (reservation.kind in _BLOCK_KINDS) != (market == "capacity-block"):
        yield f"marketType '{market}' does not fit a reservation of kind {reservation.kind}"


def _check_placement(launch: _Launch, market: str) -> None:
    name = launch.text("placement.groupName")
    if market == "capacity-block":
        raise RefusedError(
            "InvalidParameterCombination", "Capacity Blocks do not support placement groups."
        )
    if launch.request.store.get(PLACEMENT_GROUP, name) is None:
        raise RefusedError(
            "InvalidPlacementGroup.Unknown", f"The placement group '{name}' is unknown."
        )


def _take_addresses(launch: _Launch) -> list[str]:
    """An address for each interface that takes one, the primary's first."""
    wanted = sum(each.has_address for each in launch.interfaces)
    running = running_machines(launch.request.store)
    free = free_addresses(launch.subnet, running, wanted, launch.request.digits)
    if len(free) < wanted:
        what = f"There are not enough free addresses in subnet '{launch.subnet.id}' to satisfy the requested number"
        raise RefusedError("InsufficientFreeAddressesInSubnet", f"{what} of instances.")
    return free


KINDS: Mapping[str, Kind] = {
    PLACEMENT_GROUP: Kind(
        noun="EC2 Placement Group",
        make=_make_placement_group,
        auto_name="name",
    ),
    TEMPLATE: Kind(
        noun="EC2 Launch Template",
        make=_make_template,
        auto_name="name",
        links=(
            Link(
                path="networkInterfaces[].subnetId", token=SUBNET, code="InvalidSubnetID.NotFound"
            ),
            Link(
                path="networkInterfaces[].securityGroups[]",
                token=SECURITY_GROUP,
                code="InvalidGroup.NotFound",
            ),
            Link(
                path="placement.groupName",
                token=PLACEMENT_GROUP,
                code="InvalidPlacementGroup.Unknown",
            ),
            Link(
                path="iamInstanceProfile.arn",
                token=PROFILE,
                handle="arn",
                code="InvalidIamInstanceProfileArn.Malformed",
            ),
        ),
    ),
    INSTANCE: Kind(
        noun="EC2 Instance",
        make=_make_instance,
        links=(
            Link(path="launchTemplate.id", token=TEMPLATE, code="InvalidLaunchTemplateId.NotFound"),
        ),
    ),
}
