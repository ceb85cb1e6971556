"""What the project really holds, asked of Google before anything is registered."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from pulumi_gcp import compute

from infra.catalog.machine_types import MachineType
from infra.errors import Problem, ProblemsFound
from infra.provision.asking import Asking
from infra.provision.gcp.config import GoogleConfig, config_problem
from infra.provision.gcp.machines import HOST_LABEL, STACK_LABEL

_Row = TypeVar("_Row")
# Examples in commands.
_IMAGE, _BLOCK = "projects/my-project/global/images/my-image", "192.0.2.0/24"
_PLACE = re.compile(r"^.*/(?=projects/)")
_GONE = re.compile(r"Error 404|not found$")


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundReservation:
    """A reservation as Compute Engine has it.

    Args:
        num_in_use: machines that run in it now, whosever they are.
        is_specific: whether machines have to name it.
    """

    machine_type: str
    num_machines: int
    num_in_use: int
    is_specific: bool
    status: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundMachine:
    """A machine that stands.

    Args:
        launched: what it takes at its launch alone, by an operator's words.
        root_gib: size of its boot volume.
        policy: link of its placement policy, "" for none.
    """

    launched: dict[str, object]
    root_gib: int
    policy: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """What was found.

    Args:
        image: self link of the image to start from.
        proxy_ranges: blocks that Identity-Aware Proxy forwards SSH from; () where the operator names a block.
        standing: by host name, of those that may be looked at.
        hosts_block: of the subnet that they stand in; None where none stands, or nobody may ask.
    """

    image: str
    proxy_ranges: tuple[str, ...]
    standing: dict[str, FoundMachine]
    hosts_block: str | None


def survey_project(
    config: GoogleConfig, machine: MachineType, names: dict[str, str], stack: str
) -> Survey:
    """Ask for image, reservation, the proxy's blocks, and the machines that stand.

    Args:
        config: of the project.
        machine: what hosts are launched as.
        names: of machines, by host name.
        stack: the stack's name.

    Raises:
        ProblemsFound: the project lacks what the stack and the configuration name.
    """
    asking = Asking(stack)
    image = _image(asking, config, machine)
    asked = {host: _machine(asking, config, host, name) for host, name in names.items()}
    gone = [host for host, found in asked.items() if found == ()]
    standing = {host: each for host, found in asked.items() for each in found or ()}
    _reservation(asking, config, machine, len(gone))
    # where nobody may say which machines stand, the network is looked at as if some did
    block = _hosts_block(asking, config, f"{stack}-hosts") if len(gone) < len(names) else None
    ranges = () if config.ssh_from else _proxy_ranges(asking)
    if asking.problems:
        raise ProblemsFound(tuple(asking.problems))
    if image is None or ranges is None:
        raise ProblemsFound((_unseen_problem(stack, image),))
    return Survey(image=image, proxy_ranges=ranges, standing=standing, hosts_block=block)


def _unseen_problem(stack: str, image: str | None) -> Problem:
    """What nobody may look at, and nothing can be made without: the warning before has said why."""
    if image is None:
        what = "Nobody may look at the image, and a machine starts from one certain image."
        return config_problem("image", what, _IMAGE, stack)
    what = "Nobody may look at the blocks of Identity-Aware Proxy, and port 22 would be closed."
    return config_problem("ssh_from_cidr", what, _BLOCK, stack)


def _proxy_ranges(asking: Asking) -> tuple[str, ...] | None:
    return asking.ask_of(
        config_problem("ssh_from_cidr", "", _BLOCK, asking.stack),
        "answer on the blocks of Identity-Aware Proxy",
        lambda: tuple(
            compute.get_netblock_ip_ranges(range_type="iap-forwarders").cidr_blocks_ipv4s
        ),
    )


def _image(asking: Asking, config: GoogleConfig, machine: MachineType) -> str | None:
    if config.image is not None:
        _, project, _, _, name = config.image.split("/")
        wanted = {"name": name, "project": project}
    else:
        wanted = {"family": machine.image.family, "project": machine.image.project}
    problem = config_problem("image", "", _IMAGE, asking.stack)
    found = asking.ask_of(
        problem, f"image {'/'.join(wanted.values())}", lambda: compute.get_image(**wanted)
    )
    return None if found is None else str(found.self_link)


def _machine(
    asking: Asking, config: GoogleConfig, host: str, name: str
) -> tuple[FoundMachine, ...] | None:
    """The machine of a host; () where there is none, None where nobody may ask."""

    def look() -> tuple[FoundMachine, ...]:
        try:
            found = compute.get_instance(name=name, project=config.project, zone=config.zone)
        except Exception as error:
            if _GONE.search(str(error)):
                return ()
            raise
        asking.note(_owner_problem(found.labels, host, name, asking.stack))
        disk = only(only(found.boot_disks, "boot disk").initialize_params, "boot disk")
        policy = next(iter(found.resource_policies or ()), "")
        return (
            FoundMachine(launched=_launched(found), root_gib=int(disk.size), policy=str(policy)),
        )

    problem = config_problem("project", "", "my-project", asking.stack)
    return asking.ask_of(problem, f"answer on whether {name} stands", look)


def _owner_problem(labels: Mapping[str, str], host: str, name: str, stack: str) -> Problem | None:
    """A machine that has the name of a host's, and is of somebody else."""
    theirs = (labels.get(STACK_LABEL), labels.get(HOST_LABEL))
    if theirs == (stack, host):
        return None
    what = f"{name} stands already, and its labels say that it is not {host} of this stack."
    fix = "Give the stack file another name, or take another project."
    return config_problem("project", what, "", stack, fix)


def only(rows: Sequence[_Row] | None, noun: str) -> _Row:
    """The first row of an answer.

    Raises:
        LookupError: the answer has none.
    """
    for row in rows or ():
        return row
    raise LookupError(f"the answer names no {noun}")


def _launched(found: compute.GetInstanceResult) -> dict[str, object]:
    """What a machine was launched with, as far as an operator chooses it."""
    reservations = [
        value
        for affinity in found.reservation_affinities or ()
        for each in affinity.specific_reservations or ()
        for value in each.values
    ]
    disk = only(only(found.boot_disks, "boot disk").initialize_params, "boot disk")
    return {
        "machine type": found.machine_type.rpartition("/")[2],
        "reservation": next(iter(reservations), ""),
        "image": _PLACE.sub("", disk.image),
        "interfaces": [each.nic_type for each in found.network_interfaces],
    }


def _hosts_block(asking: Asking, config: GoogleConfig, subnet: str) -> str | None:
    """The block of the subnet that machines stand in; None where nobody may ask."""
    problem = config_problem("vpc_cidr", "", "10.64.0.0/16", asking.stack)
    found = asking.ask_of(
        problem,
        f"subnet {subnet}",
        lambda: compute.get_subnetwork(name=subnet, region=config.region, project=config.project),
    )
    return None if found is None else str(found.ip_cidr_range)


def _reservation(asking: Asking, config: GoogleConfig, machine: MachineType, num_new: int) -> None:
    """Hold the reservation against what the stack launches into it."""
    name = config.reservation
    problem = config_problem("reservation", "", "my-reservation", asking.stack)
    found = asking.ask_of(
        problem, f"reservation {name} in {config.zone}", lambda: read_reservation(config, name)
    )
    if found is not None:
        asking.note(*reservation_problems(found, config, machine, num_new, asking.stack))


def read_reservation(config: GoogleConfig, name: str) -> FoundReservation:
    """A reservation by its name.

    Raises:
        Exception: there is none, or nobody may ask (the SDK raises nothing narrower).
    """
    found = compute.get_reservation(name=name, project=config.project, zone=config.zone)
    specific = only(found.specific_reservations, "machine type")
    return FoundReservation(
        machine_type=only(specific.instance_properties, "machine type").machine_type,
        num_machines=int(specific.count),
        num_in_use=int(specific.in_use_count),
        is_specific=bool(found.specific_reservation_required),
        status=found.status,
    )


def reservation_problems(
    found: FoundReservation, config: GoogleConfig, machine: MachineType, num_new: int, stack: str
) -> Iterator[Problem]:
    """Why machines of the stack cannot be launched into a reservation."""
    name, example = config.reservation, "my-reservation"
    if found.machine_type != machine.id:
        what = f"{name} holds {found.machine_type}; the stack launches {machine.id}."
        yield config_problem("reservation", what, example, stack)
    if found.status != "READY":
        what = f"{name} is {found.status}, and machines are launched into one that is READY."
        yield config_problem("reservation", what, example, stack)
    if not found.is_specific:
        what = f"{name} lets any machine in, and reservation-bound machines want one that has to be named."
        yield config_problem("reservation", what, example, stack)
    free = found.num_machines - found.num_in_use
    if free < num_new:
        what = f"{name} has {free} of {found.num_machines} machines left; the stack launches {num_new}."
        yield config_problem("reservation", what, example, stack)
