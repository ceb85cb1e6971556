"""What a stack on EKS puts into its cluster, in a real Kubernetes whose nodes look like its managed node group."""

from __future__ import annotations

from collections.abc import Callable

from infra.catalog.load import Catalog
from infra.rehearsal.cluster.room import Room
from tests.kubernetes.conftest import MANAGED
from tests.kubernetes.eks_program import KUBECONFIG, SOURCE
from tests.kubernetes.held_against_plan import (
    assert_every_node_is_tuned_once,
    assert_pods_hold_their_devices,
    assert_pods_run_the_plan,
    plan_of,
    stack_file,
)
from tests.kubernetes.seen import everything, wait_for
from tests.rehearsal.cloud.command import Pulumi

STACK = "eks-b200-tp8"
Deploy = Callable[..., Pulumi]
PROGRAM = "from tests.kubernetes.eks_program import main\n\nmain()\n"
# Of a cluster that exists; a stack on EKS does not read them.
UNREAD = dict.fromkeys(("kubeconfig", "kubernetes_context", "network_resource"), "")
FACTS = {
    "reservation_id": "cr-0123456789abcdef0",
    "api_from_cidr": "198.51.100.0/24",
    "cluster_admins": "arn:aws:iam::123456789012:role/platform",
}


def test_the_workload_of_a_stack_on_eks(room: Room, pulumi_in: Deploy, catalog: Catalog) -> None:
    before = everything(room.api)
    reached = {KUBECONFIG: str(room.plane.kubeconfig)}
    pulumi = pulumi_in(room, STACK, **UNREAD, **FACTS, **reached)
    (pulumi.folder / "infra" / "__main__.py").write_text(PROGRAM, encoding="utf-8")
    plan = plan_of(stack_file(pulumi), catalog)
    assert set(pulumi.changes("up")) == {"create"}
    hosts = assert_pods_run_the_plan(room, plan)
    assert_pods_hold_their_devices(plan, hosts, catalog)
    assert_every_node_is_tuned_once(room, plan, catalog)

    (pod,) = hosts.values()
    assert pod.node.startswith(f"{MANAGED}-")
    spec = pod.document["spec"]
    account = f"/api/v1/namespaces/{STACK}/serviceaccounts/{spec['serviceAccountName']}"
    assert spec["serviceAccountName"] != "default"
    assert room.api.get(account) is not None
    (copying,) = spec["initContainers"]
    assert {"name": "WEIGHTS_SOURCE", "value": SOURCE} in copying["env"]

    assert set(pulumi.changes("up", "--refresh")) == {"same"}
    assert set(pulumi.changes("destroy")) == {"delete"}
    wait_for("the last objects to go", lambda: everything(room.api) <= before)
