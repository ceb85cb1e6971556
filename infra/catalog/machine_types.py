"""What Google rents: machine types of Compute Engine with accelerators, as data."""

from pathlib import Path
from typing import Literal

from pydantic import StrictInt, StrictStr

from infra.catalog.files import read_entry
from infra.catalog.instance_types import CapacityKind
from infra.catalog.load import UnknownIdError
from infra.catalog.schema import Architecture
from infra.catalog.sourced import Entry, SourcedEntry
from infra.spec.nearest import nearest

FOLDER = Path(__file__).resolve().parent / "instances" / "gcp"


class ImageFamily(Entry):
    """The image that a host starts from when the operator pins none: the newest of a family."""

    project: StrictStr
    family: StrictStr


class MachineType(SourcedEntry):
    """`instances/gcp/<machine type>.yaml`.

    Args:
        memory_gb: of the host, 1 GB = 10^9 bytes.
        local_ssd_gib: of the host's own disks together; Compute Engine attaches them by itself.
        num_host_interfaces: gVNIC interfaces, each in a network of its own; the first carries ordinary traffic.
        num_rdma_interfaces: MRDMA interfaces, one subnet of one RDMA network for each.
        interface: what the image calls the first interface.
        gpu_topology: shape of an NVLink domain over hosts, as a placement policy wants it; None where there is none.
        hosts_per_domain: hosts of one NVLink domain; None where domains end at the host.
        boot_disk: type of the boot volume.
    """

    id: StrictStr
    architecture: Architecture
    num_vcpus: StrictInt
    num_devices: StrictInt
    memory_gb: StrictInt
    local_ssd_gib: StrictInt
    num_host_interfaces: StrictInt
    num_rdma_interfaces: StrictInt
    interface: StrictStr
    capacity_kinds: tuple[CapacityKind, ...]
    gpu_topology: StrictStr | None = None
    hosts_per_domain: StrictInt | None = None
    boot_disk: Literal["hyperdisk-balanced"]
    image: ImageFamily


def machine_type_names() -> tuple[str, ...]:
    """The machine types of the catalogue, sorted."""
    return tuple(sorted(path.stem for path in FOLDER.glob("*.yaml")))


def read_machine_type(name: str) -> MachineType:
    """The machine type of that name.

    Raises:
        UnknownIdError: the catalogue has none; the message names the nearest.
        CatalogueError: its file is wrong.
    """
    if name not in machine_type_names():
        raise UnknownIdError(
            "infra/catalog/instances/gcp",
            f"The catalogue has no machine type {name}.",
            nearest(name, machine_type_names()),
        )
    return read_entry(FOLDER / f"{name}.yaml", MachineType, id=name)
