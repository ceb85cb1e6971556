"""A room: a real control plane with its set controllers, simulated nodes, and the stand-in of NVIDIA's DRA driver."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from infra.catalog.load import Catalog
from infra.rehearsal.cluster.api import Api
from infra.rehearsal.cluster.certificate import make_certificate
from infra.rehearsal.cluster.compute_domains import (
    SLICES,
    DomainDriver,
    channel_slices,
    definitions,
)
from infra.rehearsal.cluster.control_plane import (
    CONTEXT,
    ControlPlane,
    HandOver,
    start_control_plane,
)
from infra.rehearsal.cluster.kubelets import Kubelets
from infra.rehearsal.cluster.nodes import FABRIC, NodeGroup, node_documents
from infra.rehearsal.cluster.programs import Programs, installed_programs
from infra.rehearsal.cluster.set_controllers import (
    install_definitions,
    set_definitions,
    start_set_controllers,
)

NODES = "/api/v1/nodes"
CLASSES = "/apis/resource.k8s.io/v1/deviceclasses"


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """A cluster that runs on this machine until the room is left.

    Args:
        folder: of everything that was written, logs included.
        groups: the simulated nodes.
    """

    folder: Path
    plane: ControlPlane
    kubelets: Kubelets
    groups: Sequence[NodeGroup]

    @property
    def api(self) -> Api:
        """Its API, as its owner."""
        return self.plane.api

    @property
    def programs(self) -> Programs:
        """What runs in it."""
        return self.plane.programs

    @property
    def config(self) -> dict[str, str]:
        """What an operator of this cluster would configure for a stack over several hosts."""
        return {
            "kubeconfig": str(self.plane.kubeconfig),
            "kubernetes_context": CONTEXT,
            "network_resource": f"{FABRIC}=4",
        }


def racks(catalog: Catalog, *sizes: int) -> list[NodeGroup]:
    """Racks of GB200 trays, each an NVLink domain of so many nodes."""
    return [
        NodeGroup(
            name=f"gb200-{chr(ord('a') + number)}",
            accelerator=catalog.accelerator("gb200"),
            count=size,
            domain=f"rack-{chr(ord('a') + number)}.0",
            labels={"nvidia.com/gpu.product": "NVIDIA-GB200"},
            resources={FABRIC: "4"},
            taints=(),
        )
        for number, size in enumerate(sizes)
    ]


def ascend_nodes(catalog: Catalog, count: int) -> NodeGroup:
    """Hosts of Ascend A3."""
    return NodeGroup(
        name="a3",
        accelerator=catalog.accelerator("ascend-a3"),
        count=count,
        domain=None,
        labels={"accelerator": "huawei-Ascend910"},
        resources={FABRIC: "4"},
        taints=(),
    )


@contextmanager
def open_room(
    folder: Path,
    groups: Sequence[NodeGroup],
    *,
    is_bare: bool = False,
    has_kubelets: bool = True,
    hand_over: HandOver | None = None,
) -> Iterator[Room]:
    """Start a room, and end all of it when it is left, but what somebody else has been handed.

    Args:
        folder: new; everything that is written lies in it.
        groups: the simulated nodes.
        is_bare: whether LeaderWorkerSet, its controllers and ComputeDomain are left out.
        has_kubelets: whether every pod is said to run as soon as all that it names is there; else its user says so.
        hand_over: takes each process of the control plane and sees to its end.

    Raises:
        PrerequisiteError: the programs are not built.
        HostsFailed: one of them has not come up.
    """
    programs = installed_programs(os.environ)
    folder.mkdir(mode=0o700)
    certificate = make_certificate(folder / "certificate")
    plane = start_control_plane(programs, folder / "cluster", certificate, hand_over)
    kubelets, driver = Kubelets(plane.api), DomainDriver(plane.api)
    started: list[Kubelets | DomainDriver] = []
    try:
        for group in groups:
            _add_nodes(plane.api, group)
        if has_kubelets:
            kubelets.start()
            started.append(kubelets)
        if not is_bare:
            definition, device_class = definitions()
            install_definitions(plane, [*set_definitions(programs), definition])
            plane.api.create(CLASSES, device_class)
            driver.start()
            started.append(driver)
            start_set_controllers(plane)
        plane.wait("kube-controller-manager", lambda: _take_pods(plane.api, groups))
        plane.wait("kube-controller-manager", lambda: _are_furnished(plane.api))
        yield Room(folder=folder, plane=plane, kubelets=kubelets, groups=tuple(groups))
    finally:
        plane.api.end()
        if hand_over is None:
            plane.stop()
        for each in started:
            each.stop()
        plane.api.close()


def _add_nodes(api: Api, group: NodeGroup) -> None:
    for node in node_documents(group):
        api.create(NODES, node)
        status = {"status": node["status"]}
        api.patch(f"{NODES}/{node['metadata']['name']}/status", status, kind="strategic")
    if group.has_domain:
        for each in channel_slices(group):
            api.create(SLICES, each)


def _take_pods(api: Api, groups: Sequence[NodeGroup]) -> bool:
    """Whether the controllers have seen that every node is ready, and taken away the taint that is not its owner's."""
    own = {name: len(group.taints) for group in groups for name in group.names()}
    return all(
        len(node["spec"].get("taints") or ()) == own[node["metadata"]["name"]]
        for node in api.items(NODES)
    )


def _are_furnished(api: Api) -> bool:
    """Whether every namespace has what controllers put there by themselves: nothing more comes unasked."""
    names = [each["metadata"]["name"] for each in api.items("/api/v1/namespaces")]
    own = ("serviceaccounts/default", "configmaps/kube-root-ca.crt")
    paths = [f"/api/v1/namespaces/{name}/{each}" for name in names for each in own]
    return all(api.get(path) is not None for path in paths)
