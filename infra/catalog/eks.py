"""What an EKS cluster is made of: versions, images, add-ons and charts, as data (`eks.yaml`)."""

from functools import cache
from pathlib import Path
from typing import Literal

from pydantic import Field, StrictBool, StrictInt, StrictStr

from infra.catalog.files import read_entry
from infra.catalog.schema import Architecture
from infra.catalog.sourced import Entry, SourcedEntry

FILE = Path(__file__).with_name("eks.yaml")
Need = Literal["lustre", "efa", "domain"]
"""What a stack may need of its cluster: a Lustre file system, the EFA fabric, an NVLink domain over hosts."""


class KubernetesVersions(Entry):
    """The version that is taken unless the operator names one, and the least that a stack's objects work with."""

    version: StrictStr
    least: StrictStr


class SystemNode(Entry):
    """A node for what a cluster runs beside engines."""

    instance_type: StrictStr
    image: StrictStr


class SystemNodes(Entry):
    """Nodes beside those of the accelerators; `volume_gib` holds the router's image, which is the engine's."""

    count: StrictInt
    volume_gib: StrictInt
    x86_64: SystemNode
    aarch64: SystemNode

    def of(self, architecture: Architecture) -> SystemNode:
        """The node for images of an architecture."""
        return self.aarch64 if architecture == "aarch64" else self.x86_64


class ClusterAddon(Entry):
    """An add-on that EKS installs and updates.

    Args:
        least: floor for its version, without `v` and build; None for none.
        before_nodes: whether nodes never become ready without it.
        needed_for: None when every cluster gets it.
        values: its configuration.
        service_account: of `kube-system`, that takes `policy` through Pod Identity; both or neither.
        policy: managed policy of AWS.
    """

    name: StrictStr
    least: StrictStr | None = None
    before_nodes: StrictBool = False
    needed_for: Need | None = None
    values: dict[str, object] = Field(default_factory=dict)
    service_account: StrictStr | None = None
    policy: StrictStr | None = None


class Chart(Entry):
    """A Helm chart; `repository` is None for one that is named by its address."""

    name: StrictStr
    chart: StrictStr
    version: StrictStr
    namespace: StrictStr
    repository: StrictStr | None = None
    needed_for: Need | None = None
    values: dict[str, object] = Field(default_factory=dict)


class EksParts(SourcedEntry):
    """`eks.yaml`."""

    kubernetes: KubernetesVersions
    unsupported_zones: tuple[StrictStr, ...]
    images: dict[Architecture, StrictStr]
    system_nodes: SystemNodes
    addons: tuple[ClusterAddon, ...]
    charts: tuple[Chart, ...]
    copy_image: StrictStr
    node_disks: StrictStr

    def addons_for(self, needs: frozenset[Need]) -> tuple[ClusterAddon, ...]:
        """The add-ons of a cluster with these needs."""
        return tuple(each for each in self.addons if each.needed_for in {None, *needs})

    def charts_for(self, needs: frozenset[Need]) -> tuple[Chart, ...]:
        """The charts of a cluster with these needs, in the order in which they are installed."""
        return tuple(each for each in self.charts if each.needed_for in {None, *needs})


@cache
def read_eks_parts() -> EksParts:
    """The parts of `eks.yaml`.

    Raises:
        CatalogueError: the file is wrong.
    """
    return read_entry(FILE, EksParts)
