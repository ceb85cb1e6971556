"""Requests with which hosts meet, on more hosts than are connected to at once: all of them are at work together."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from dataclasses import replace

import pytest

from infra.agent import reading
from infra.agent.facts import reach
from infra.agent.host import Host
from infra.catalog.load import Catalog
from infra.launch.answering import ask_once
from infra.launch.deployment import Deployment
from infra.launch.fleet import Report, Request
from infra.launch.preflight.group_collectives.layout import spanning_groups
from infra.launch.preflight.group_collectives.running import run_groups
from infra.launch.preflight.group_collectives.starting import COMMAND
from infra.launch.preflight.scene import Scene
from infra.launch.preflight.table import judge
from infra.launch.preflight.waves import look_further
from infra.remote.openings import MAX_OPENINGS
from infra.render.dialing import planned_dials
from tests.launch.hosts_at_hand import Answer, fleet_at_hand
from tests.launch.preflight.scenes import healthy, imex, tell
from tests.launch.preflight.test_group_collectives import done, printed
from tests.launch.scripted_fleet import make_deployment

STACK = "gb200-2p1d"
# 32 prefill hosts of one rank each that four decode hosts dial; and one decode group over 36 hosts.
ONE_RANK_A_HOST = ("defaults.tensor_parallel=4", "roles.prefill.data_parallel=1")
MANY_PREFILL = (*ONE_RANK_A_HOST, "roles.prefill.replicas=32", "roles.decode.data_parallel=4")
WIDE_DECODE = (*ONE_RANK_A_HOST, "roles.decode.data_parallel=36")
NVLINK = "h:1:1 [0] NCCL INFO MNNVL 1 cliqueId 1 cliqueSize 4"
MEET_S = 20.0


def on_loopback(
    catalog: Catalog, sets: tuple[str, ...], answer: Answer
) -> tuple[Deployment, Scene]:
    """A healthy stack, each of whose hosts has an address of its own on the loopback."""
    scene, deployment = healthy(STACK, catalog, sets), make_deployment(STACK, catalog)[0]
    # planned ports are always the same: another run of these tests has other addresses
    net = f"127.{os.getpid() // 250 % 250 + 1}.{os.getpid() % 250}"
    hosts = tuple(
        replace(host, address=f"{net}.{place + 1}") for place, host in enumerate(scene.plan.hosts)
    )
    # the addresses are those of the loopback, and no interface that a plan names carries them
    processes = tuple(
        replace(one, env={n: v for n, v in one.env.items() if not n.endswith("_SOCKET_IFNAME")})
        for one in scene.plan.processes
    )
    plan = replace(scene.plan, hosts=hosts, processes=processes)
    domain = imex({host.address: "READY" for host in hosts})
    scene = replace(scene, plan=plan)
    for host in hosts:
        scene = tell(scene, host.name, "nvidia.imex", domain)
    fleet = fleet_at_hand([host.name for host in hosts], answer)
    return replace(deployment, plan=plan, fleet=fleet), scene


def summed(scene: Scene, host: str) -> Report:
    """What a host says whose part of a group has added up."""
    members = [one for group in spanning_groups(scene.plan) for one in group.members]
    ranks = next(one.ranks for one in members if one.host == host)
    text = printed([done(rank) for rank in ranks], (NVLINK,))
    return {"commands": {COMMAND: {"exit_code": 0, "stdout": text, "stderr": "", "seconds": 9.0}}}


def findings(scene: Scene) -> list[tuple[str, str, str]]:
    return [(f.host, f.check, f.observed) for f in judge(scene) if f.severity != "pass"]


def test_36_healthy_hosts_reach_each_other(catalog: Catalog) -> None:
    """The agent's own dials: 32 hosts listen until the four that dial them have come, which are the last ones."""

    def answer(host: str, request: Request) -> Report:
        if request["operation"] == "read":
            return reading.answer(dict(request), Host())
        if request["operation"] == "reach":
            return reach.answer(dict(request), Host())
        return summed(scene, host)

    deployment, scene = on_loopback(catalog, MANY_PREFILL, answer)
    assert len(scene.plan.hosts) == 36
    seen = look_further(deployment, scene, 0.0, 1.0)
    assert findings(seen) == []
    assert seen.reached is not None
    assert len(seen.reached.dials) == len(planned_dials(scene.plan)) > 150
    assert [dial for dial in seen.reached.dials if dial.error is not None] == []


def test_a_group_of_36_hosts_adds_up_together(catalog: Catalog) -> None:
    """Each host's ranks wait for those of all others, as in a collective."""
    everybody = threading.Barrier(36)

    def answer(host: str, request: Request) -> Report:
        if request["operation"] == "facts":
            everybody.wait(MEET_S)
            return summed(scene, host)
        return {}

    deployment, scene = on_loopback(catalog, WIDE_DECODE, answer)
    runs = run_groups(deployment, scene, [], 1.0)
    assert {group: len(run.told) for group, run in runs.items()} == {"decode/0": 36}
    assert findings(replace(scene, group_runs=runs)) == []


@pytest.mark.parametrize("num_hosts", [MAX_OPENINGS, 256])
def test_whoever_waits_for_others_keeps_nobody_from_being_asked(num_hosts: int) -> None:
    everybody = threading.Barrier(num_hosts)
    operations: list[object] = []

    def answer(host: str, request: Request) -> Report:
        operations.append(request["operation"])
        if request["operation"] == "read":
            return {}
        everybody.wait(MEET_S)
        return {"host": host}

    names = [f"host-{place}" for place in range(num_hosts)]
    requests: Mapping[str, Request] = {name: {"operation": "reach"} for name in names}
    reports = ask_once(fleet_at_hand(names, answer), requests, timeout_s=MEET_S)
    assert {host: report["host"] for host, report in reports.items()} == {n: n for n in names}
    # more than are connected to at once are connected to before they meet; fewer are not asked for that
    assert operations.count("read") == (num_hosts if num_hosts > MAX_OPENINGS else 0)
    assert operations[-num_hosts:] == ["reach"] * num_hosts
