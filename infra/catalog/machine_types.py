"""What Google rents: machine types of Compute Engine with accelerators, as data."""

from pathlib import Path
from typing import Literal

from pydantic import StrictInt, StrictStr

from infra.catalog.instance_types import CapacityKind
from infra.catalog.load import names_in, read_named
from infra.catalog.schema import Architecture
from infra.catalog.sourced import Entry, SourcedEntry

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

    @property
    def interface_types(self) -> list[str]:
        """What Compute Engine calls the interfaces of a host, in the order in which they are attached."""
        return ["GVNIC"] * self.num_host_interfaces + ["MRDMA"] * self.num_rdma_interfaces


def machine_type_names() -> tuple[str, ...]:
    """The machine types of the catalogue, sorted."""
    return names_in(FOLDER)


def read_machine_type(name: str) -> MachineType:
    """The machine type of that name.

    Raises:
        UnknownIdError: the catalogue has none; the message names the nearest.
        CatalogueError: its file is wrong.
    """
    return read_named(FOLDER, MachineType, "machine type", name)
