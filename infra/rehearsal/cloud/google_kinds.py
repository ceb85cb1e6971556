"""Networks and machines of the emulated Google project.

What is refused rests on Google's pages: "RDMA network profiles" (interfaces, zone, no firewall rules), "Create a VM
that uses the reservation-bound model", "Networking and GPU machines", RFC 1035 for names, "Subnets" for ranges. What
Compute Engine's errors say word by word was not read; `assumed` lists that.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator, Mapping

from infra.rehearsal.cloud.google_world import OFFERED_IN
from infra.rehearsal.cloud.kind import Kind, Link, Made, RefusedError, Request, values_at
from infra.rehearsal.cloud.machine_facts import GoogleFacts, google_facts, gpu_topologies
from infra.rehearsal.cloud.store import Resource

NETWORK = "gcp:compute/network:Network"
SUBNETWORK = "gcp:compute/subnetwork:Subnetwork"
FIREWALL = "gcp:compute/firewall:Firewall"
ROUTER = "gcp:compute/router:Router"
NAT = "gcp:compute/routerNat:RouterNat"
POLICY = "gcp:compute/resourcePolicy:ResourcePolicy"
MACHINE = "gcp:compute/instance:Instance"

_NAME = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")
_LABEL = re.compile(r"[-_a-z0-9]{0,63}")
_PROFILE = re.compile(r"(.*/)?projects/[^/]+/global/networkProfiles/([-a-z0-9]+)-vpc-roce")
_MTU = range(1300, 8897)
_SMALLEST_SUBNET = 29
_RESERVED_IN_FRONT, _RESERVED_AT_END = 2, 2  # network and gateway; the last two
_SIZE = "bootDisk.initializeParams.size"
_API = "https://www.googleapis.com/compute/v1/"
_BALANCED = {"hyperdisk-balanced": (3000, 140)}


def _invalid(field: str, what: str) -> RefusedError:
    return RefusedError("invalid", f"Error 400: Invalid value for field 'resource.{field}': {what}")


def _place(request: Request, scope: str, collection: str) -> Made:
    """Id and self link of a resource with a name of its own within its place."""
    name, project = request.text("name"), request.text("project")
    if not _NAME.fullmatch(name):
        raise _invalid("name", f"'{name}'. Must be a match of regex '{_NAME.pattern}'")
    if not project:
        raise RefusedError("invalid", "project: required field is not set")
    identity = f"projects/{project}/{scope}/{collection}/{name}"
    token = request.urn.split("::")[2].rpartition("$")[2]
    if any(other.id == identity for other in request.others(token)):
        raise RefusedError(
            "alreadyExists", f"Error 409: The resource '{identity}' already exists, alreadyExists"
        )
    return Made(id=identity, computed={"selfLink": _API + identity})


def _make_network(request: Request) -> Made:
    made = _place(request, "global", "networks")
    mtu = request.inputs.get("mtu", 1460)
    if mtu not in _MTU:
        raise _invalid("mtu", f"'{mtu}'. Must be between 1300 and 8896")
    profile = request.text("networkProfile")
    if profile and not _PROFILE.fullmatch(profile):
        raise _invalid("networkProfile", f"'{profile}'. The network profile does not exist")
    if profile and request.inputs.get("autoCreateSubnetworks") is not False:
        raise _invalid("autoCreateSubnetworks", "an RDMA network has subnets of its own alone")
    return made


def rdma_zone(network: Resource) -> str | None:
    """The zone of a network for RDMA; None for an ordinary one."""
    found = _PROFILE.fullmatch(str(network.inputs.get("networkProfile") or ""))
    return found[2] if found else None


def _block(text: str) -> ipaddress.IPv4Network:
    try:
        return ipaddress.IPv4Network(text)
    except ValueError as error:
        raise _invalid("ipCidrRange", f"'{text}'. {error}") from error


def _make_subnetwork(request: Request) -> Made:
    region = request.text("region")
    made = _place(request, f"regions/{region}", "subnetworks")
    network = request.linked(NETWORK, "network")
    block = _block(request.text("ipCidrRange"))
    if block.prefixlen > _SMALLEST_SUBNET:
        raise _invalid("ipCidrRange", f"'{block}'. The smallest subnet is a /{_SMALLEST_SUBNET}")
    for other in request.others(SUBNETWORK):
        theirs = _block(str(other.inputs["ipCidrRange"]))
        if other.inputs["network"] == request.text("network") and block.overlaps(theirs):
            what = f"Error 400: Invalid IPCidrRange: {block} conflicts with existing subnetwork '{other.id}'"
            raise RefusedError("invalid", what)
    zone = rdma_zone(network) if network else None
    if zone is not None and zone.rpartition("-")[0] != region:
        raise _invalid("region", f"'{region}'. The network's profile is of zone {zone}")
    gateway = str(block[1])
    return Made(id=made.id, computed={**made.computed, "gatewayAddress": gateway})


def _make_firewall(request: Request) -> Made:
    made = _place(request, "global", "firewalls")
    network = request.linked(NETWORK, "network")
    if network is not None and rdma_zone(network) is not None:
        raise _invalid("network", "a network with an RDMA profile takes no VPC firewall rules")
    for text in values_at(request.inputs, "sourceRanges[]"):
        _block(str(text))
    for rule in values_at(request.inputs, "allows[]"):
        words = rule if isinstance(rule, Mapping) else {}
        if words.get("ports") and words.get("protocol") not in ("tcp", "udp", "sctp"):
            raise _invalid("allowed[0].ports", "ports may only be specified on tcp, udp and sctp")
    return made


def _make_router(request: Request) -> Made:
    return _place(request, f"regions/{request.text('region')}", "routers")


def _make_nat(request: Request) -> Made:
    name, router = request.text("name"), request.text("router")
    region, project = request.text("region"), request.text("project")
    found = [
        each
        for each in request.store.of_type(ROUTER)
        if each.inputs.get("name") == router and each.inputs.get("region") == region
    ]
    if not found:
        raise RefusedError(
            "notFound", f"Error 404: The resource '{router}' was not found, notFound"
        )
    if request.text("sourceSubnetworkIpRangesToNat") == "ALL_SUBNETWORKS_ALL_IP_RANGES" and any(
        other.inputs.get("router") == router for other in request.others(NAT)
    ):
        raise _invalid("nats", f"router {router} has a NAT for all subnets already")
    return Made(id=f"{project}/{region}/{router}/{name}", computed={})


def _make_policy(request: Request) -> Made:
    made = _place(request, f"regions/{request.text('region')}", "resourcePolicies")
    placement = request.inputs.get("groupPlacementPolicy")
    if isinstance(placement, Mapping) and placement.get("gpuTopology"):
        topology = str(placement["gpuTopology"])
        if topology not in gpu_topologies():
            raise _invalid("groupPlacementPolicy.gpuTopology", f"'{topology}'")
    return made


def _make_machine(request: Request) -> Made:
    zone = request.text("zone")
    made = _place(request, f"zones/{zone}", "instances")
    name = request.text("machineType")
    _check_running(request)
    machine = google_facts(name)
    if machine is None or zone not in OFFERED_IN.get(name, ()):
        what = f"Error 404: The resource 'zones/{zone}/machineTypes/{name}' was not found, notFound"
        raise RefusedError("notFound", what)
    _check_labels(request)
    _check_disk(request, machine)
    rows = [
        row for row in values_at(request.inputs, "networkInterfaces[]") if isinstance(row, Mapping)
    ]
    subnets = list(_subnets(request, machine, rows))
    _check_purchase(request, machine)
    _check_policy(request, machine)
    interfaces = [
        {
            **row,
            "name": f"nic{index}",
            "network": subnet.inputs["network"],
            "networkIp": _address(request, subnet, index),
        }
        for index, (row, subnet) in enumerate(zip(rows, subnets, strict=True))
    ]
    computed = {
        **made.computed,
        "networkInterfaces": interfaces,
        "instanceId": str(int(request.digits, 16))[:19],
        "currentStatus": "RUNNING",
    }
    return Made(id=made.id, computed=computed)


def _check_running(request: Request) -> None:
    """What changes in place only while a machine is stopped, which the provider does where it is told to alone.

    magic-modules, resource_compute_instance.go, `allow_stopping_for_update`; a placement policy: Google, "Apply
    placement policies to instances".
    """
    for name in ("machineType", "resourcePolicies"):
        if request.old is not None and request.inputs.get(name) != request.old.inputs.get(name):
            what = f"Changing the {name} on a started instance requires stopping it"
            raise RefusedError("invalid", f"{what}. Set allow_stopping_for_update.")


def _check_labels(request: Request) -> None:
    labels = request.inputs.get("labels")
    for key, value in labels.items() if isinstance(labels, Mapping) else ():
        if not _NAME.fullmatch(str(key).replace("_", "-")) or not _LABEL.fullmatch(str(value)):
            raise _invalid(f"labels.{key}", f"'{value}'. Lower-case letters, digits, - and _")


def _check_disk(request: Request, machine: GoogleFacts) -> None:
    kind = request.text("bootDisk.initializeParams.type")
    if kind != machine.boot_disk:
        raise _invalid("disks[0].initializeParams.diskType", f"'{kind}'. Not with {machine.name}")
    size = int(request.text(_SIZE) or 0)
    before = next(values_at(request.old.inputs, _SIZE), 0) if request.old else 0
    if size < int(str(before)):
        raise _invalid(
            "sizeGb", f"'{size}'. Disk size cannot be smaller than existing size {before}"
        )
    least = dict(zip(("provisionedIops", "provisionedThroughput"), _BALANCED[kind], strict=True))
    for word, lowest in least.items():
        given = request.text(f"bootDisk.initializeParams.{word}")
        if given and int(given) < lowest:
            raise _invalid(f"disks[0].initializeParams.{word}", f"'{given}'. At least {lowest}")


def _subnets(
    request: Request, machine: GoogleFacts, rows: list[Mapping[str, object]]
) -> Iterator[Resource]:
    """The subnet of each interface, held against what the machine type and the kind of network take."""
    kinds = [str(row.get("nicType") or "GVNIC") for row in rows]
    most = {"GVNIC": machine.num_host_interfaces, "MRDMA": machine.num_rdma_interfaces}
    for kind in dict.fromkeys(kinds):
        if kinds.count(kind) > most.get(kind, 0):
            what = f"{kinds.count(kind)} of type {kind}; {machine.name} takes {most.get(kind, 0)}"
            raise _invalid("networkInterfaces", what)
    if kinds[:1] != ["GVNIC"]:
        raise _invalid(
            "networkInterfaces", "nic0 is no MRDMA interface, and every machine has a nic0"
        )
    taken: set[str] = set()
    for index, (row, kind) in enumerate(zip(rows, kinds, strict=True)):
        subnet = request.store.get(SUBNETWORK, str(row.get("subnetwork") or ""))
        if subnet is None:
            raise _invalid(f"networkInterfaces[{index}].subnetwork", "it does not exist")
        network = request.store.get(NETWORK, str(subnet.inputs["network"]))
        zone = rdma_zone(network) if network else None
        field = f"networkInterfaces[{index}]"
        if (zone is not None) != (kind == "MRDMA"):
            raise _invalid(
                f"{field}.nicType", f"'{kind}' does not fit network {subnet.inputs['network']}"
            )
        if zone is not None and zone != request.text("zone"):
            raise _invalid(f"{field}.network", f"its profile is of zone {zone}")
        if subnet.inputs["region"] != request.text("zone").rpartition("-")[0]:
            raise _invalid(f"{field}.subnetwork", f"it is in {subnet.inputs['region']}")
        place = subnet.id if zone is not None else str(subnet.inputs["network"])
        if place in taken:
            raise _invalid(f"{field}", f"two interfaces in {place}")
        taken.add(place)
        yield subnet


def _check_purchase(request: Request, machine: GoogleFacts) -> None:
    model = request.text("scheduling.provisioningModel") or "STANDARD"
    if model != "RESERVATION_BOUND":
        what = f"Error 400: {machine.name} in this emulation is sold reservation-bound alone, not {model}"
        raise RefusedError("invalid", what)
    if request.text("scheduling.onHostMaintenance") != "TERMINATE":
        raise _invalid("scheduling.onHostMaintenance", "machines with GPUs are terminated")
    if request.text("scheduling.instanceTerminationAction") not in ("STOP", "DELETE"):
        raise _invalid(
            "scheduling.instanceTerminationAction", "reservation-bound machines have one"
        )
    if request.text("reservationAffinity.type") != "SPECIFIC_RESERVATION":
        raise _invalid("reservationAffinity", "a reservation-bound machine names its reservation")
    key = request.text("reservationAffinity.specificReservation.key")
    if key != "compute.googleapis.com/reservation-name":
        raise _invalid("reservationAffinity.key", f"'{key}'")
    name = request.text("reservationAffinity.specificReservation.values[]")
    found = request.store.account.reservations.get(name)
    if found is None or found.zone_id != request.text("zone"):
        what = f"Error 404: The resource 'zones/{request.text('zone')}/reservations/{name}' was not found"
        raise RefusedError("notFound", what)
    if found.instance_type != machine.name:
        what = f"Error 400: reservation {name} holds {found.instance_type}, not {machine.name}"
        raise RefusedError("invalid", what)
    used = num_in_use(request.others(MACHINE), name)
    if used >= found.num_instances:
        what = (
            f"Error 400: reservation {name} has {found.num_instances} machines, and all are in use"
        )
        raise RefusedError("resourceExhausted", what)


def num_in_use(machines: list[Resource], reservation: str) -> int:
    """How many machines run in a reservation."""
    path = "reservationAffinity.specificReservation.values[]"
    return sum(reservation in values_at(each.inputs, path) for each in machines)


def _check_policy(request: Request, machine: GoogleFacts) -> None:
    """A policy with a topology is one domain, and holds no more machines than the domain has hosts."""
    identity = request.text("resourcePolicies")
    if not identity:
        return
    policy = request.store.get(POLICY, identity)
    placement = policy.inputs.get("groupPlacementPolicy") if policy else None
    topology = placement.get("gpuTopology") if isinstance(placement, Mapping) else None
    if topology is None:
        return
    if topology != machine.gpu_topology:
        raise _invalid("resourcePolicies", f"topology {topology} does not fit {machine.name}")
    inside = [
        each for each in request.others(MACHINE) if each.inputs.get("resourcePolicies") == identity
    ]
    if len(inside) >= (machine.hosts_per_domain or 0):
        what = f"Error 400: {identity} holds {len(inside)} machines, which is one whole domain"
        raise RefusedError("resourceExhausted", what)


def _address(request: Request, subnet: Resource, index: int) -> str:
    """A free address of a subnet; the machine keeps the one it has."""
    if request.old is not None:
        kept = request.old.outputs["networkInterfaces"]
        row = kept[index] if isinstance(kept, list) and index < len(kept) else {}
        if isinstance(row, Mapping) and row.get("subnetwork") == subnet.id:
            return str(row["networkIp"])
    taken = {
        str(value)
        for other in request.others(MACHINE)
        for value in values_at(other.outputs, "networkInterfaces[].networkIp")
    }
    block = _block(str(subnet.inputs["ipCidrRange"]))
    for step in range(_RESERVED_IN_FRONT, block.num_addresses - _RESERVED_AT_END):
        if str(block[step]) not in taken:
            return str(block[step])
    raise RefusedError("resourceExhausted", f"Error 400: IP space of '{subnet.id}' is exhausted")


def _in(path: str, token: str) -> Link:
    return Link(path=path, token=token, code="notFound")


KINDS: Mapping[str, Kind] = {
    NETWORK: Kind(noun="Network", make=_make_network, auto_name="name"),
    SUBNETWORK: Kind(
        noun="Subnetwork",
        make=_make_subnetwork,
        auto_name="name",
        links=(_in("network", NETWORK),),
    ),
    FIREWALL: Kind(
        noun="Firewall", make=_make_firewall, auto_name="name", links=(_in("network", NETWORK),)
    ),
    ROUTER: Kind(
        noun="Router", make=_make_router, auto_name="name", links=(_in("network", NETWORK),)
    ),
    NAT: Kind(noun="RouterNat", make=_make_nat, auto_name="name"),
    POLICY: Kind(noun="ResourcePolicy", make=_make_policy, auto_name="name"),
    MACHINE: Kind(
        noun="Instance",
        make=_make_machine,
        auto_name="name",
        links=(
            _in("networkInterfaces[].subnetwork", SUBNETWORK),
            _in("resourcePolicies", POLICY),
        ),
    ),
}
