"""The program of a stack in a real Kubernetes, from the first `pulumi up` until nothing is left of it."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from infra.catalog.load import Catalog
from infra.plan.compile import compile_stack
from infra.rehearsal.cluster.room import Room
from infra.spec.load import load_stack, stack_names
from infra.tasks.manifests import manifests_of
from tests.kubernetes.held_against_plan import (
    are_gone,
    assert_every_node_is_tuned_once,
    assert_pods_hold_their_devices,
    assert_pods_run_the_plan,
    by_host,
    edit,
    plan_of,
    stack_file,
    uids,
)
from tests.kubernetes.seen import everything, wait_for
from tests.rehearsal.cloud.command import Pulumi

GB200, A3 = "k8s-gb200-2p1d", "k8s-a3-2p1d"
IN_ONE = {"kubernetes": {"workload": "disaggregated-set"}}
Deploy = Callable[..., Pulumi]


ROLES = {"prefill", "decode", "router"}


@pytest.mark.parametrize("stack", [GB200, A3], ids=["gb200", "a3"])
def test_the_life_of_a_stack(room: Room, pulumi_in: Deploy, catalog: Catalog, stack: str) -> None:
    before = everything(room.api)
    pulumi = pulumi_in(room, stack)
    assert_life(room, pulumi, catalog, changed_with={"decode"})
    assert set(pulumi.changes("destroy")) == {"delete"}
    wait_for("the last objects to go", lambda: everything(room.api) <= before)


def test_the_life_of_a_unit_and_of_another_beside_it(
    room: Room, pulumi_in: Deploy, catalog: Catalog, tmp_path: Path
) -> None:
    """Each stands in an NVLink domain of its own."""
    before = everything(room.api)
    file = tmp_path / "unit.yaml"
    file.write_text(yaml.safe_dump({"extends": GB200, **IN_ONE}), encoding="utf-8")
    selector = {"node_selector": "nvidia.com/gpu.product=NVIDIA-GB200"}
    first, second = (pulumi_in(room, name, spec_file=file, **selector) for name in ("one", "two"))
    # one object carries them: what changes one role brings all anew
    assert_life(room, first, catalog, changed_with={"decode", "prefill"})
    assert set(second.changes("up")) == {"create"}
    domains = sorted(domain_of(each, room, catalog) for each in (first, second))
    assert domains == ["rack-a.0", "rack-b.0"]
    for pulumi in (first, second):
        assert set(pulumi.changes("destroy")) == {"delete"}
    wait_for("the last objects to go", lambda: everything(room.api) <= before)


def assert_life(room: Room, pulumi: Pulumi, catalog: Catalog, *, changed_with: set[str]) -> None:
    """A stack comes up, stays as it is, loses a pod, and gets another argument.

    Args:
        room: the cluster.
        pulumi: the command line for the stack.
        catalog: devices.
        changed_with: roles whose pods come anew when decode gets another argument.
    """
    stack = pulumi.stack
    file = stack_file(pulumi)
    plan = plan_of(file, catalog)
    assert set(pulumi.changes("up")) == {"create"}
    hosts = assert_pods_run_the_plan(room, plan)
    assert_pods_hold_their_devices(plan, hosts, catalog)
    assert_every_node_is_tuned_once(room, plan, catalog)

    assert_manifests_are_taken(room, stack)

    # what stands is looked at, and then what is wanted compared with it
    assert set(pulumi.changes("up", "--refresh")) == {"same"}
    assert uids(by_host(room, plan), ROLES) == uids(hosts, ROLES)

    # a pod of decode goes: its group begins again as a whole, and nobody else
    first = uids(hosts, {"decode"})
    last = hosts[max(first)].name
    room.api.delete(f"/api/v1/namespaces/{stack}/pods/{last}")
    wait_for("another group of decode", are_gone(room, stack, first))
    hosts = assert_pods_run_the_plan(room, plan)
    assert uids(hosts, {"decode"}).keys() == first.keys()

    # another argument of decode: its pods come anew with it
    edit(pulumi, {"roles": {"decode": {"max_num_seqs": 40}}})
    changed = plan_of(file, catalog)
    assert changed.hash != plan.hash
    others = ROLES - changed_with - {"router"}
    first, kept = uids(hosts, changed_with), uids(hosts, others)
    assert pulumi.changes("up")["update"] >= 1
    wait_for("pods with the new argument", are_gone(room, stack, first))
    hosts = assert_pods_run_the_plan(room, changed)
    assert uids(hosts, others) == kept
    assert_pods_hold_their_devices(changed, hosts, catalog)


def assert_manifests_are_taken(room: Room, stack: str) -> None:
    """What `fab render` writes is valid to the API server and to the controllers' webhooks."""
    if stack not in stack_names():
        return
    catalog = Catalog()
    found = manifests_of(compile_stack(load_stack(stack), catalog=catalog), catalog)
    kubectl = [str(room.programs.bin / "kubectl"), f"--kubeconfig={room.plane.kubeconfig}"]
    taken = subprocess.run(
        [*kubectl, "apply", "--dry-run=server", "--filename=-"],
        input="---\n".join(found.files.values()),
        capture_output=True,
        text=True,
        check=False,
    )
    assert taken.returncode == 0, taken.stderr
    assert taken.stdout.count("(server dry run)") == len(found.files)


def domain_of(pulumi: Pulumi, room: Room, catalog: Catalog) -> str:
    """The one NVLink domain in which all pods of a stack are; each has its node's channel."""
    hosts = by_host(room, plan_of(stack_file(pulumi), catalog))
    engines = [pod for name, pod in hosts.items() if name != "router"]
    for pod in engines:
        (claim,) = pod.document["status"]["resourceClaimStatuses"]
        path = f"/apis/resource.k8s.io/v1/namespaces/{pulumi.stack}/resourceclaims"
        given = room.api.ask("GET", f"{path}/{claim['resourceClaimName']}")
        (device,) = given["status"]["allocation"]["devices"]["results"]
        assert (device["pool"], device["device"]) == (pod.node, "channel-0")
    nodes = [room.api.ask("GET", f"/api/v1/nodes/{pod.node}") for pod in engines]
    (domain,) = {str(node["metadata"]["labels"]["nvidia.com/gpu.clique"]) for node in nodes}
    return domain
