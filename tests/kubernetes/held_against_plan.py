"""What runs in a cluster held against the plan: hosts and pods, commands, devices, and nodes that are tuned."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml

from infra.agent.pod_launch import pod_name
from infra.catalog.load import Catalog
from infra.inventory.pods import ROUTER_HOST
from infra.plan.compile import compile_file
from infra.plan.process import Plan
from infra.rehearsal.cluster.api import Document
from infra.rehearsal.cluster.pods import (
    ResolvedPod,
    endpoints_in,
    is_of_a_daemon_set,
    names_of,
    pods_in,
    resolved,
)
from infra.rehearsal.cluster.room import Room
from infra.render.host_state import node_state
from infra.render.wanted_tuning import Tuning
from tests.kubernetes.seen import running_pods, wait_for
from tests.rehearsal.cloud.command import Pulumi


def stack_file(pulumi: Pulumi) -> Path:
    """Where the stack's file lies."""
    return pulumi.folder / "stacks" / f"{pulumi.stack}.yaml"


def edit(pulumi: Pulumi, fields: Mapping[str, Any]) -> None:
    """Edit the stack's file as an operator would."""
    path = stack_file(pulumi)
    document = yaml.safe_load(path.read_text(encoding="utf-8"))
    path.write_text(yaml.safe_dump({**document, **fields}), encoding="utf-8")


def plan_of(stack_file: Path, catalog: Catalog) -> Plan:
    return compile_file(str(stack_file), catalog=catalog).plan


def by_host(room: Room, plan: Plan) -> dict[str, ResolvedPod]:
    """Running pods by the host of the plan whose address leads to them, and to nobody else."""
    pods = running_pods(room.api, plan.stack, len(plan.hosts))

    def look() -> dict[str, ResolvedPod] | None:
        names = names_of(room.api, plan.stack)
        found = {host.name: names.get(host.address, set()) for host in plan.hosts}
        if ROUTER_HOST in found:  # its name is that of a service with an address of its own
            found[ROUTER_HOST] = _behind(room, plan, plan.host(ROUTER_HOST).address)
        if any(len(addresses) != 1 or not addresses <= set(pods) for addresses in found.values()):
            return None
        return {name: pods[next(iter(addresses))] for name, addresses in found.items()}

    hosts = wait_for("a name for every pod", look)
    assert len({pod.uid for pod in hosts.values()}) == len(pods)
    return hosts


def _behind(room: Room, plan: Plan, service: str) -> set[str]:
    """Pods that a service leads to."""
    pieces = endpoints_in(room.api, plan.stack)
    return {address for name, piece in pieces if name == service for address in piece["addresses"]}


def uids(hosts: Mapping[str, ResolvedPod], roles: Iterable[str]) -> dict[str, str]:
    """Of the pods of some roles, by host."""
    return {name: pod.uid for name, pod in hosts.items() if name.partition("-")[0] in roles}


def are_gone(room: Room, stack: str, known: Mapping[str, str]) -> Callable[[], bool]:
    """Whether every one of these pods is no more."""
    return lambda: (
        not ({pod["metadata"]["uid"] for pod in pods_in(room.api, stack)} & set(known.values()))
    )


def assert_pods_run_the_plan(room: Room, plan: Plan) -> dict[str, ResolvedPod]:
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
                assert address_of(room, plan, own) == names[peer["name"]]
    return hosts


def address_of(room: Room, plan: Plan, pod: str) -> set[str]:
    """Where the own name of a pod leads, as soon as it does: names of services may come first."""
    name = pod.removesuffix(f".{plan.stack}")
    return wait_for(f"the name {name}", lambda: names_of(room.api, plan.stack).get(name))


def assert_pods_hold_their_devices(
    plan: Plan, hosts: Mapping[str, ResolvedPod], catalog: Catalog
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


def assert_every_node_is_tuned_once(room: Room, plan: Plan, catalog: Catalog) -> None:
    """One pod of the DaemonSet on each node that the stack may have; it runs, and is told the plan's tuning."""
    accelerators = {host.accelerator for host in plan.hosts}
    nodes = [
        name
        for group in room.groups
        if group.accelerator is not None
        and group.accelerator.id in accelerators
        and group.name != "broken"
        for name in group.names()
    ]

    def look() -> list[Document] | None:
        pods = [each for each in pods_in(room.api, plan.stack) if is_of_a_daemon_set(each)]
        stand = Counter(pod["spec"].get("nodeName") for pod in pods) == Counter(nodes)
        return pods if stand and all(p["status"]["phase"] == "Running" for p in pods) else None

    tuning = Tuning(profile=catalog.tuning(plan.tuning), enable=())
    wanted = [item.as_document() for item in node_state(plan.stack, tuning).of_groups("tuning")]
    assert wanted
    for pod in wait_for("a pod that tunes each node", look):
        settings = next(each["configMap"]["name"] for each in pod["spec"]["volumes"])
        path = f"/api/v1/namespaces/{plan.stack}/configmaps/{settings}"
        told = json.loads(room.api.ask("GET", path)["data"]["tuning.json"])
        assert (told["request"]["mode"], told["request"]["items"]) == ("apply", wanted)
