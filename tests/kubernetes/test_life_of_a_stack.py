"""The program of a stack in a real Kubernetes, from the first `pulumi up` until nothing is left of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from infra.agent.pod_launch import pod_name
from infra.catalog.load import Catalog
from infra.plan.compile import compile_file
from infra.plan.process import Plan
from infra.rehearsal.cluster.room import Room
from tests.kubernetes.seen import (
    SeenPod,
    everything,
    is_of_a_daemon_set,
    names_of,
    pods_in,
    running_pods,
    wait_for,
)
from tests.rehearsal.cloud.command import Pulumi
from tests.render.pods import resolved

GB200, A3 = "k8s-gb200-2p1d", "k8s-a3-2p1d"
IN_ONE = {"kubernetes": {"workload": "disaggregated-set"}}
Deploy = Callable[..., Pulumi]


def edit(pulumi: Pulumi, fields: Mapping[str, Any]) -> Path:
    """Edit the stack's file as an operator would; returns where it lies."""
    path = pulumi.folder / "stacks" / f"{pulumi.stack}.yaml"
    document = yaml.safe_load(path.read_text(encoding="utf-8"))
    path.write_text(yaml.safe_dump({**document, **fields}), encoding="utf-8")
    return path


def plan_of(stack_file: Path, catalog: Catalog) -> Plan:
    return compile_file(str(stack_file), catalog=catalog).plan


def by_host(room: Room, plan: Plan) -> dict[str, SeenPod]:
    """Running pods by the host of the plan whose address leads to them, and to nobody else."""
    pods = running_pods(room.api, plan.stack, len(plan.hosts))

    def look() -> dict[str, SeenPod] | None:
        names = names_of(room.api, plan.stack)
        found = {host.name: names.get(host.address, set()) for host in plan.hosts}
        if any(len(addresses) != 1 or not addresses <= set(pods) for addresses in found.values()):
            return None
        return {name: pods[next(iter(addresses))] for name, addresses in found.items()}

    hosts = wait_for("a name for every pod", look)
    assert len({pod.uid for pod in hosts.values()}) == len(pods)
    return hosts


def uids(hosts: Mapping[str, SeenPod], roles: Iterable[str]) -> dict[str, str]:
    """Of the pods of some roles, by host."""
    return {name: pod.uid for name, pod in hosts.items() if name.partition("-")[0] in roles}


def are_gone(room: Room, stack: str, known: Mapping[str, str]) -> Callable[[], bool]:
    """Whether every one of these pods is no more."""
    return lambda: (
        not ({pod["metadata"]["uid"] for pod in pods_in(room.api, stack)} & set(known.values()))
    )


def assert_pods_run_the_plan(room: Room, plan: Plan) -> dict[str, SeenPod]:
    """Process by process: the command, the variables, and who answers to the names in them."""
    hosts = by_host(room, plan)
    names = names_of(room.api, plan.stack)
    for name, pod in hosts.items():
        planned = plan.on_host(name)
        rows = pod.told["processes"]
        assert [row["id"] for row in rows] == [process.id for process in planned]
        for row, process in zip(rows, planned, strict=True):
            argv = [resolved(word, pod.environment) for word in row["argv"]]
            assert argv == [word.replace("$(POD_IP)", pod.address) for word in process.argv]
            env = {key: resolved(value, pod.environment) for key, value in row["env"].items()}
            assert env == {
                key: value.replace("$(POD_IP)", pod.address) for key, value in process.env.items()
            }
        for peer in pod.told["awaits"]:
            assert len(names[peer["name"]]) == 1
            own = pod_name(pod.environment.get("LWS_LEADER_ADDRESS", ""), peer.get("worker"))
            if own:  # the launcher takes a name for its own revision's when both lead to one pod
                assert names[own.removesuffix(f".{plan.stack}")] == names[peer["name"]]
    return hosts


def assert_pods_hold_their_devices(
    plan: Plan, hosts: Mapping[str, SeenPod], catalog: Catalog
) -> None:
    """A node for each host, with all its devices; masks of processes choose among them."""
    engines = {name: pod for name, pod in hosts.items() if name != "router"}
    assert len({pod.node for pod in engines.values()}) == len(engines)
    for name, pod in engines.items():
        host = plan.host(name)
        accelerator = catalog.accelerator(host.accelerator)
        assert accelerator.pod is not None
        limits = pod.container["resources"]["limits"]
        assert limits[accelerator.pod.resource] == str(host.num_devices)
        for row, process in zip(pod.told["processes"], plan.on_host(name), strict=True):
            mask = row["env"].get(accelerator.mask_variable)
            shown = range(host.num_devices) if mask is None else map(int, mask.split(","))
            assert tuple(shown) == process.devices


def assert_every_node_is_tuned_once(room: Room, plan: Plan) -> None:
    """One pod of the DaemonSet on each node that the stack may have."""
    accelerators = {host.accelerator for host in plan.hosts}
    nodes = [
        name
        for group in room.groups
        if group.accelerator.id in accelerators and group.name != "broken"
        for name in group.names()
    ]

    def look() -> bool:
        pods = filter(is_of_a_daemon_set, pods_in(room.api, plan.stack))
        return Counter(pod["spec"].get("nodeName") for pod in pods) == Counter(nodes)

    wait_for("a pod that tunes each node", look)


@pytest.mark.parametrize(
    ("stack", "fields"),
    [(GB200, {}), (A3, {}), (GB200, IN_ONE)],
    ids=["gb200", "a3", "gb200-as-a-unit"],
)
def test_the_life_of_a_stack(
    room: Room, pulumi_in: Deploy, catalog: Catalog, stack: str, fields: dict[str, Any]
) -> None:
    before = everything(room.api)
    pulumi = pulumi_in(room, stack)
    file = edit(pulumi, fields)
    plan = plan_of(file, catalog)
    assert set(pulumi.changes("up")) == {"create"}
    hosts = assert_pods_run_the_plan(room, plan)
    assert_pods_hold_their_devices(plan, hosts, catalog)
    assert_every_node_is_tuned_once(room, plan)

    assert set(pulumi.changes("up")) == {"same"}
    assert set(pulumi.changes("refresh")) == {"same"}
    roles = {"prefill", "decode", "router"}
    assert uids(by_host(room, plan), roles) == uids(hosts, roles)

    # a pod of decode goes: its group begins again as a whole, and nobody else
    first = uids(hosts, {"decode"})
    last = hosts[max(first)].name
    room.api.delete(f"/api/v1/namespaces/{stack}/pods/{last}")
    wait_for("another group of decode", are_gone(room, stack, first))
    hosts = assert_pods_run_the_plan(room, plan)
    assert uids(hosts, {"decode"}).keys() == first.keys()

    # another argument of decode: its pods come anew with it; those of prefill, too, where both are one unit
    edit(pulumi, {"roles": {"decode": {"max_num_seqs": 40}}})
    changed = plan_of(file, catalog)
    assert changed.hash != plan.hash
    old = {"decode", "prefill"} if fields else {"decode"}
    others = roles - old - {"router"}
    first, kept = uids(hosts, old), uids(hosts, others)
    assert pulumi.changes("up")["update"] >= 1
    wait_for("pods with the new argument", are_gone(room, stack, first))
    hosts = assert_pods_run_the_plan(room, changed)
    assert uids(hosts, others) == kept
    assert_pods_hold_their_devices(changed, hosts, catalog)

    assert set(pulumi.changes("destroy")) == {"delete"}
    wait_for("the last objects to go", lambda: everything(room.api) <= before)


def test_each_unit_stands_in_an_nvlink_domain_of_its_own(
    room: Room, pulumi_in: Deploy, catalog: Catalog, tmp_path: Path
) -> None:
    other = tmp_path / "second.yaml"
    other.write_text(yaml.safe_dump({"extends": GB200, **IN_ONE}), encoding="utf-8")
    selector = {"node_selector": "nvidia.com/gpu.product=NVIDIA-GB200"}
    domains = []
    for stack in ("first", "second"):
        pulumi = pulumi_in(room, stack, spec_file=other, **selector)
        pulumi.changes("up")
        hosts = by_host(room, plan_of(pulumi.folder / "stacks" / f"{stack}.yaml", catalog))
        engines = [pod for name, pod in hosts.items() if name != "router"]
        (domain,) = {pod.domain for pod in engines}
        domains.append(domain)
        for pod in engines:
            (claim,) = pod.document["status"]["resourceClaimStatuses"]
            path = f"/apis/resource.k8s.io/v1/namespaces/{stack}/resourceclaims"
            given = room.api.ask("GET", f"{path}/{claim['resourceClaimName']}")
            (device,) = given["status"]["allocation"]["devices"]["results"]
            assert (device["pool"], device["device"]) == (pod.node, "channel-0")
    assert sorted(domains) == ["rack-a.0", "rack-b.0"]
