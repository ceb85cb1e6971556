"""Tools that hang: whoever asks a host waits until its agent has given up all of them, and the host is not left out."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest

from infra.agent.facts import operation as facts
from infra.agent.host import REAP_S, Host
from infra.catalog.load import Catalog
from infra.launch.answering import AnsweringFleet
from infra.launch.deployment import Limits
from infra.launch.fleet import Answers, Fleet, Request, rows_of
from infra.launch.preflight.asking import asked_commands
from infra.launch.preflight.commands import Command, asking_s
from infra.launch.preflight.finding import Finding
from infra.launch.preflight.observed import Told
from infra.launch.preflight.scene import Scene
from infra.launch.preflight.table import judge
from infra.launch.preflight.waves import look, look_further
from infra.remote.failures import over_time
from tests.launch.preflight.scenes import healthy
from tests.launch.preflight.test_silent_hosts import Silenced
from tests.launch.scripted_fleet import make_deployment

HGX, RACK, AMD, A2, A3 = "h200-2n-tp16", "gb200-2p1d", "mi355x-tp8", "a2-2n-dp4tp4", "a3-2p1d"
FAMILIES = (HGX, RACK, AMD, A2, A3)
# Whoever looks at hosts at night waits no longer for tools of which none answers.
TOLERABLE_S = 120.0

Hangs = Callable[[Command], bool]


def command(name: str, timeout_s: float) -> Command:
    return Command(id=name, argv=("true",), timeout_s=timeout_s)


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        ([], 0.0),
        ([10.0], 10.0 + REAP_S),
        ([10.0] * 16, 10.0 + REAP_S),
        ([10.0] * 17, 2 * (10.0 + REAP_S)),
        ([5.0] * 16 + [60.0], 65.0 + 2 * REAP_S),
        ([60.0] + [5.0] * 16, 60.0 + REAP_S),
    ],
    ids=["none", "one", "as many as run at a time", "one more", "a long one last", "one first"],
)
def test_some_run_at_a_time_in_their_order(limits: list[float], expected: float) -> None:
    assert asking_s(command(str(place), each) for place, each in enumerate(limits)) == expected


def test_those_of_a_queue_run_one_after_another() -> None:
    queues = [replace(command(str(n), 10.0), queue=f"queue {n % 8}") for n in range(24)]
    assert asking_s(queues) == 3 * (10.0 + REAP_S)
    assert asking_s([*queues, command("alone", 40.0)]) == 40.0 + REAP_S


@pytest.mark.parametrize("stack", FAMILIES)
def test_nobody_waits_for_minutes_when_no_tool_of_any_vendor_answers(
    stack: str, catalog: Catalog
) -> None:
    scene = healthy(stack, catalog)
    for host in scene.hosts:
        assert asking_s(asked_commands(scene, host).values()) < TOLERABLE_S


def test_the_agent_takes_no_longer_for_what_hangs(catalog: Catalog) -> None:
    scene = healthy(A3, catalog)
    asked = asked_commands(scene, next(iter(scene.hosts))).values()
    hanging = [
        replace(one, argv=("sleep", "60"), timeout_s=one.timeout_s / 100, behind=())
        for one in asked
    ]
    begun = time.monotonic()
    report = facts.answer({"commands": [one.as_document() for one in hanging]}, Host())
    took_s = time.monotonic() - begun
    rows = report["commands"]
    assert isinstance(rows, dict)
    assert rows.keys() == {one.id for one in asked}
    assert all("did not answer" in row["stderr"] for row in rows.values())
    assert sum(one.timeout_s for one in hanging) / facts.MAX_PARALLEL <= took_s
    assert took_s <= asking_s(hanging)


class Hanging:
    """Healthy hosts on which some tools hang: each answers when its agent has given up all of these.

    What it is asked along takes as long as any request may.
    """

    def __init__(self, fleet: Fleet, scene: Scene, hangs: Hangs) -> None:
        self._fleet = fleet
        self._scene = scene
        self._hangs = hangs

    def ask(self, requests: Mapping[str, Request], *, timeout_s: float) -> Answers:
        answers = self._fleet.ask(requests, timeout_s=timeout_s)
        for host, request in requests.items():
            report = answers[host]
            if request["operation"] != "facts" or not isinstance(report, Mapping):
                continue
            asked = [_command(row) for row in rows_of(request, "commands")]
            rest_s = Limits().ask_s if "also" in request else 0.0
            if rest_s + asking_s(one for one in asked if self._hangs(one)) > timeout_s:
                answers[host] = over_time(host, timeout_s)
            else:
                answers[host] = {**report, "commands": {o.id: self._told(host, o) for o in asked}}
        return answers

    def _told(self, host: str, one: Command) -> dict[str, object]:
        words = f"{one.argv[0]} did not answer within {one.timeout_s:g} s and was killed"
        hung = Told(exit_code=None, stdout="", stderr=words, seconds=one.timeout_s)
        pinged = Told(exit_code=0, stdout="0.00% packets loss", stderr="", seconds=1.0)
        told = hung if self._hangs(one) else self._scene.hosts[host].commands.get(one.id, pinged)
        return {
            "exit_code": told.exit_code,
            "stdout": told.stdout,
            "stderr": told.stderr,
            "seconds": told.seconds,
        }


def _command(row: Mapping[str, object]) -> Command:
    argv = row["argv"]
    assert isinstance(argv, list)
    limit, queue = float(str(row["timeout_s"])), str(row.get("queue", ""))
    return Command(id=str(row["id"]), argv=tuple(argv), timeout_s=limit, queue=queue)


def looked_at(stack: str, catalog: Catalog, hangs: Hangs) -> tuple[list[Finding], AnsweringFleet]:
    """What a whole preflight has against hosts on which these tools hang."""
    deployment, fleet, _ = make_deployment(stack, catalog)
    answering = AnsweringFleet(Hanging(Silenced(fleet, "nobody"), healthy(stack, catalog), hangs))
    deployment = replace(deployment, fleet=answering)
    scene = look(deployment, catalog, "full", {}).scene
    return list(judge(look_further(deployment, scene, 0.0, 1.0))), answering


@pytest.mark.parametrize(
    ("stack", "program", "checks"),
    [
        (HGX, "dcgmi", {"gpu-diagnosis"}),
        (RACK, "dcgmi", {"gpu-diagnosis"}),
        (AMD, "rocm-smi", {"xgmi"}),
        (A2, "hccn_tool", {"device-network", "tls-switch", "device-gateway", "device-ping"}),
        (A3, "hccn_tool", {"device-network", "tls-switch", "device-ping"}),
        (A3, "-hccs_ping", {"device-ping"}),
    ],
)
def test_a_tool_that_hangs_is_a_warning_and_leaves_no_host_out(
    stack: str, program: str, checks: set[str], catalog: Catalog
) -> None:
    found, answering = looked_at(
        stack, catalog, lambda one: any(word.endswith(program) for word in one.argv)
    )
    assert answering.away == {}
    hung = [one for one in found if " did not answer within " in one.observed]
    assert {one.severity for one in hung} == {"warn"}
    assert checks <= {one.check for one in hung}
    assert not [one for one in found if one.check in checks and one.severity == "block"]


@pytest.mark.parametrize("stack", FAMILIES)
def test_nor_do_all_that_hang_together(stack: str, catalog: Catalog) -> None:
    found, answering = looked_at(stack, catalog, lambda _: True)
    assert answering.away == {}
    assert not [one for one in found if one.check == "host-answers" and one.severity != "pass"]
