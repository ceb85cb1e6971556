"""What a cluster lacks, told by the real command line before anything is made."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from infra.catalog.load import Catalog
from infra.rehearsal.cluster.control_plane import free_ports
from infra.rehearsal.cluster.programs import Programs
from infra.rehearsal.cluster.room import Room, ascend_nodes, open_room
from infra.rehearsal.cluster.set_controllers import install_definitions, set_definitions
from tests.kubernetes.seen import everything
from tests.rehearsal.cloud.command import Pulumi

GB200, A3 = "k8s-gb200-2p1d", "k8s-a3-2p1d"
INSTALL = "kubectl apply --server-side -f https://github.com/kubernetes-sigs/lws/releases"
Deploy = Callable[..., Pulumi]


@pytest.fixture(scope="module")
def bare_room(
    programs: Programs, catalog: Catalog, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Room]:
    """A cluster that knows no LeaderWorkerSet."""
    folder = tmp_path_factory.mktemp("bare") / "room"
    with open_room(folder, [ascend_nodes(catalog, 4)], is_bare=True) as opened:
        yield opened


def refusal(
    room: Room, pulumi: Pulumi, config: Mapping[str, str] | None = None, operation: str = "up"
) -> str:
    """What `pulumi up` says; nothing new is in the cluster."""
    before = everything(room.api)
    words = [f"--config=moe-infra:{key}={value}" for key, value in (config or {}).items()]
    options = ("--yes", "--skip-preview") if operation == "up" else ()
    done = pulumi(operation, *options, *words)
    assert done.returncode != 0, done.stdout
    assert "Traceback" not in done.stdout + done.stderr
    assert everything(room.api) - before == set()
    return " ".join(done.stdout.split())


def test_a_cluster_without_leader_worker_sets_or_their_webhooks_is_refused_with_the_command(
    bare_room: Room, pulumi_in: Deploy
) -> None:
    pulumi = pulumi_in(bare_room, A3)
    told = refusal(bare_room, pulumi)
    assert "knows no LeaderWorkerSet" in told
    assert INSTALL in told
    # their definitions alone
    install_definitions(bare_room.plane, set_definitions(bare_room.programs))
    told = refusal(bare_room, pulumi)
    assert "none of its webhooks is there" in told
    assert INSTALL in told


def test_a_kubeconfig_that_does_not_answer_is_refused(
    room: Room, pulumi_in: Deploy, tmp_path: Path
) -> None:
    document = json.loads(room.plane.kubeconfig.read_text())
    (port,) = free_ports(1)
    document["clusters"][0]["cluster"]["server"] = f"https://127.0.0.1:{port}"
    silent = tmp_path / "silent"
    silent.write_text(json.dumps(document))
    pulumi = pulumi_in(room, A3)
    for operation in ("preview", "up"):
        told = refusal(room, pulumi, {"kubeconfig": str(silent)}, operation)
        assert "cluster room: It does not answer" in told
        assert f"kubectl --context=room --kubeconfig={silent} get nodes" in told
    told = refusal(room, pulumi, {"kubernetes_context": "no-such"})
    assert "cluster no-such: It does not answer" in told
    told = refusal(room, pulumi, {"kubeconfig": str(tmp_path / "nowhere")})
    assert "Nothing was created" in told


def test_nodes_with_too_few_devices_are_refused(room: Room, pulumi_in: Deploy) -> None:
    told = refusal(room, pulumi_in(room, GB200), {"node_selector": "nvidia.com/gpu.product=BROKEN"})
    assert "needs 6 nodes with 4 nvidia.com/gpu and 4 rdma/hca each; of the 6 with" in told
    assert "broken-0 has 2 nvidia.com/gpu" in told
    assert f"pulumi config set node_selector KEY=VALUE --stack {GB200}" in told


def test_a_namespace_of_somebody_else_is_refused_and_one_that_is_lent_is_kept(
    room: Room, pulumi_in: Deploy
) -> None:
    path = "/api/v1/namespaces"
    labels = {"app.kubernetes.io/instance": "a-shop"}
    room.api.create(path, {"metadata": {"name": "shop", "labels": labels}})
    try:
        pulumi = pulumi_in(room, A3, namespace="shop")
        told = refusal(room, pulumi)
        assert "exists and was not made for this stack: it belongs to a-shop" in told
        assert f"kubectl label namespace shop moe-infra/lent-to={A3}" in told
        lent = {"metadata": {"labels": {"moe-infra/lent-to": A3}}}
        room.api.patch(f"{path}/shop", lent)
        counts = pulumi.changes("up")
        assert counts.pop("same") == 1  # the stack itself, which the refused run has written down
        assert set(counts) == {"create"}
        assert set(pulumi.changes("destroy")) == {"delete"}
        assert room.api.ask("GET", f"{path}/shop")["status"]["phase"] == "Active"
    finally:
        room.api.delete(f"{path}/shop")
