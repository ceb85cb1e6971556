"""A router that hangs is ended, and how a start ended is kept: everything but systemd is real."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from infra.agent.group.config import Router
from infra.agent.group.record import HANDED_OVER
from infra.agent.group.router import SILENT, Heard, RouterWatch, advance, hangs
from infra.agent.host import Finished, Host

ROUTER = Router("moe-s-router@0.service", "router/0", "http://127.0.0.1:1/health", 10.0)
ACTIVE = "ActiveState=active\nSubState=running\nResult=success\nMainPID=0\nInvocationID=1\n"
WAITS = (
    "ActiveState=activating\nSubState=auto-restart\nResult=signal\nExecMainStatus=9\n"
    "MainPID=0\nInvocationID=1\n"
)
FAILED = (
    "ActiveState=failed\nSubState=failed\nResult=exit-code\nExecMainStatus=2\n"
    "MainPID=0\nInvocationID=7\n"
)


class Systemd(Host):
    """A host whose systemctl says what the test has it say."""

    def __init__(self, root: Path) -> None:
        super().__init__(str(root))
        self.shown = ACTIVE
        self.asked: list[list[str]] = []
        self.refuses_starts = False

    def run(self, argv: list[str], *_limits: object) -> Finished:
        self.asked.append(argv[:2])
        if argv[1] == "start" and self.refuses_starts:
            return Finished(1, "", "no answer")
        return Finished(0, self.shown if argv[1] == "show" else "", "")


def hand_over(root: Path) -> Path:
    """The stack is watched here; what says so."""
    enabled = root / HANDED_OVER.format("s").lstrip("/")
    enabled.parent.mkdir(parents=True, exist_ok=True)
    enabled.touch()
    return enabled


def told(root: Path) -> object:
    file = root / "run/moe-infra/groups/s/router.json"
    return json.loads(file.read_text())["why"] if file.exists() else None


@pytest.mark.parametrize(
    ("heard", "now", "verdict"),
    [
        (SILENT, 1e9, False),  # it waits for its engines, however long
        (Heard(None, 99), 1e9, False),
        (Heard(100.0, 3), 109.0, False),
        (Heard(100.0, 2), 500.0, False),  # a host that was frozen asks again before it judges
        (Heard(100.0, 3), 110.1, True),
        (Heard(100.0, 0), 110.1, False),
    ],
)
def test_only_a_router_that_has_answered_before_hangs(
    heard: Heard, now: float, *, verdict: bool
) -> None:
    assert hangs(heard, now, 10.0) is verdict


def test_an_answer_forgets_what_was_missed() -> None:
    heard = advance(advance(Heard(5.0, 2), answers=False, now=7.0), answers=True, now=8.0)
    assert heard == Heard(8.0, 0)


def test_a_start_that_ended_is_told_once_and_by_its_own_reason(tmp_path: Path) -> None:
    host = Systemd(tmp_path)
    watch = RouterWatch(host, "s", ROUTER)
    watch.step(10.0)
    assert told(tmp_path) is None
    host.shown = WAITS
    watch.step(20.0)
    assert told(tmp_path) == "was ended by signal 9"
    host.shown = FAILED
    watch.step(30.0)
    assert told(tmp_path) == "ended with exit code 2"
    assert ["systemctl", "kill"] not in host.asked


def test_a_start_that_systemd_did_not_take_at_boot_is_asked_for_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    host = Systemd(tmp_path)
    host.shown, host.refuses_starts = FAILED.replace("InvocationID=7", "InvocationID="), True
    watch = RouterWatch(host, "s", ROUTER)
    enabled = hand_over(tmp_path)
    watch.begin(10.0)
    for now in (10.0, 12.0, 15.0):
        watch.step(now)
    assert host.asked.count(["systemctl", "start"]) == 2
    assert capsys.readouterr().out.count("no answer") == 1  # said once
    host.refuses_starts = False
    enabled.unlink()
    watch.step(20.0)  # while groups are taken back nobody starts anything
    assert host.asked.count(["systemctl", "start"]) == 2
    enabled.touch()
    for now in (20.0, 25.0, 30.0):
        watch.step(now)
    assert host.asked.count(["systemctl", "start"]) == 3  # once taken, systemd owns it


def test_a_router_that_runs_is_not_started(tmp_path: Path) -> None:
    host = Systemd(tmp_path)
    watch = RouterWatch(host, "s", ROUTER)
    watch.begin(10.0)
    watch.step(10.0)
    assert ["systemctl", "start"] not in host.asked


def test_an_end_that_cannot_be_shown_ends_no_watch(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("no folder")
    host = Systemd(tmp_path)
    host.shown = WAITS
    RouterWatch(host, "s", ROUTER).step(10.0)


def test_a_router_that_hangs_is_killed_and_says_so(tmp_path: Path) -> None:
    host = Systemd(tmp_path)
    watch = RouterWatch(host, "s", ROUTER._replace(silent_s=0.0))
    watch.step(10.0)
    watch._heard = Heard(0.0, 2)
    watch._asked = 0.0
    watch.step(12.0)  # while groups are taken back nobody ends anything
    assert ["systemctl", "kill"] not in host.asked
    hand_over(tmp_path)
    watch._asked = 0.0
    watch.step(12.0)
    assert host.asked.count(["systemctl", "kill"]) == 1
    host.shown = WAITS
    watch.step(18.0)
    assert told(tmp_path) == "had not answered for 0 s"
