"""What the project really holds, asked of Google before anything is registered."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from pulumi_gcp import compute

from infra.catalog.machine_types import MachineType
from infra.errors import Problem, ProblemsFound
from infra.provision.asking import Asking
from infra.provision.gcp.config import GoogleConfig, config_problem

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
    """

    launched: dict[str, object]
    root_volume_gib: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """What was found, None for what nobody may ask.

    Args:
        image: self link of the image to start from.
        proxy_ranges: blocks that Identity-Aware Proxy forwards SSH from.
        standing: by host name.
        hosts_block: of the subnet that they stand in; None where none stands.
    """

    image: str | None
    reservation: FoundReservation | None
    proxy_ranges: tuple[str, ...] | None
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
    standing = {
        host: found
        for host, name in names.items()
        if (found := _machine(asking, config, name)) is not None
    }
    reservation = _reservation(asking, config, machine, len(names) - len(standing))
    ranges = asking.ask_of(
        config_problem("ssh_from_cidr", "", "192.0.2.0/24", stack),
        "answer on the blocks of Identity-Aware Proxy",
        lambda: tuple(
            compute.get_netblock_ip_ranges(range_type="iap-forwarders").cidr_blocks_ipv4s
        ),
    )
    block = _hosts_block(asking, config, f"{stack}-hosts") if standing else None
    if asking.problems:
        raise ProblemsFound(tuple(asking.problems))
    return Survey(
        image=image,
        reservation=reservation,
        proxy_ranges=ranges,
        standing=standing,
        hosts_block=block,
    )


def _image(asking: Asking, config: GoogleConfig, machine: MachineType) -> str | None:
    if config.image is not None:
        _, project, _, _, name = config.image.split("/")
        wanted = {"name": name, "project": project}
    else:
        wanted = {"family": machine.image.family, "project": machine.image.project}
    problem = config_problem(
        "image", "", "projects/my-project/global/images/my-image", asking.stack
    )
    found = asking.ask_of(
        problem, f"image {'/'.join(wanted.values())}", lambda: compute.get_image(**wanted)
    )
    return None if found is None else str(found.self_link)


def _machine(asking: Asking, config: GoogleConfig, name: str) -> FoundMachine | None:
    def look() -> FoundMachine | None:
        try:
            found = compute.get_instance(name=name, project=config.project, zone=config.zone)
        except Exception as error:
            if _GONE.search(str(error)):
                return None
            raise
        disk = found.boot_disks[0].initialize_params[0]
        return FoundMachine(launched=_launched(found), root_volume_gib=int(disk.size))

    problem = config_problem("project", "", "my-project", asking.stack)
    return asking.ask_of(problem, f"answer on whether {name} stands", look)


def _launched(found: compute.GetInstanceResult) -> dict[str, object]:
    """What a machine was launched with, as far as an operator chooses it."""
    kept = found.reservation_affinities[0] if found.reservation_affinities else None
    specific = kept.specific_reservations[0].values if kept and kept.specific_reservations else []
    disk = found.boot_disks[0].initialize_params[0]
    return {
        "machine type": found.machine_type.rpartition("/")[2],
        "reservation": next(iter(specific), ""),
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


def _reservation(
    asking: Asking, config: GoogleConfig, machine: MachineType, num_new: int
) -> FoundReservation | None:
    name = config.reservation
    if name is None:
        return None
    problem = config_problem("reservation", "", "my-reservation", asking.stack)
    found = asking.ask_of(
        problem, f"reservation {name} in {config.zone}", lambda: read_reservation(config, name)
    )
    if found is not None:
        asking.note(*reservation_problems(found, config, machine, num_new, asking.stack))
    return found


def read_reservation(config: GoogleConfig, name: str) -> FoundReservation:
    """A reservation by its name.

    Raises:
        Exception: there is none, or nobody may ask (the SDK raises nothing narrower).
    """
    found = compute.get_reservation(name=name, project=config.project, zone=config.zone)
    specific = found.specific_reservations[0]
    return FoundReservation(
        machine_type=specific.instance_properties[0].machine_type,
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
