"""What `fab` tells of a running deployment: logs, status, evidence; with a host that is out of reach, and a cut."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from infra.rehearsal.lab.prerequisites import missing, observe_machine
from infra.spec.load import PROJECT

# Real sshd, systemd and journald on two simulated hosts: each call takes about a second.
pytestmark = [pytest.mark.lab, pytest.mark.slow]

FAB = str(Path(sys.executable).parent / "fab")
STACK = "a2-2n-dp4tp4"
FIRST, SECOND = "unified-0", "unified-1"
UNIT = f"moe-{STACK}-engine@0"
CONTAINER = f"moe-{STACK}-engine-0"


@dataclass(frozen=True)
class Kept:
    """A kept rehearsal that serves."""

    inventory: str
    ssh_config: str

    def words(self, *words: str, stack: str = STACK) -> list[str]:
        return [FAB, words[0], "--stack", stack, "--inventory", self.inventory, *words[1:]]

    def fab(self, *words: str, stack: str = STACK) -> subprocess.CompletedProcess[str]:
        return run(*self.words(*words, stack=stack))

    def ssh(self, host: str, command: str) -> str:
        return run("ssh", "-n", "-F", self.ssh_config, host, command).stdout

    def start(self, *words: str, stack: str = STACK) -> subprocess.Popen[str]:
        """A command that runs on; its output is collected in a pipe."""
        return subprocess.Popen(
            self.words(*words, stack=stack),
            cwd=PROJECT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def is_reached(self, host: str) -> bool:
        return "here" in self.ssh(host, "echo here")


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        words,
        cwd=PROJECT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def wait_until(holds: Callable[[], bool], seconds: float = 15.0) -> bool:
    deadline = time.monotonic() + seconds
    while not holds() and time.monotonic() < deadline:
        time.sleep(0.2)
    return holds()


@pytest.fixture(scope="module")
def kept() -> Iterator[Kept]:
    reason = missing(observe_machine())
    if reason is not None:
        if os.environ.get("CI"):
            raise reason
        pytest.skip(str(reason))
    done = run(FAB, "rehearse", "--stack", STACK, "--keep", "--json")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    yield Kept(document["inventory"], document["ssh_config"])
    run(FAB, "rehearse", "--stop", document["id"])


@pytest.fixture(scope="module")
def talk(kept: Kept) -> str:
    """A recorded stack of one talkative unit on each host, counting aloud ten times a second."""
    loop = "i=0; while :; do echo tick $i; i=$((i+1)); sleep 0.1; done"
    for host in (FIRST, SECOND):
        record = json.dumps(
            {"processes": [{"id": f"{host}/0", "unit": "talk.service", "role": "unified"}]}
        )
        kept.ssh(
            host,
            f"sudo mkdir -p /etc/moe-infra/talk; echo '{record}' | sudo tee /etc/moe-infra/talk/release.json;"
            f"sudo systemd-run --unit=talk sh -c '{loop}'",
        )
    time.sleep(0.8)
    return "talk"


@pytest.fixture
def second_is_down(kept: Kept) -> Iterator[None]:
    """The second host refuses SSH, for a few seconds."""
    kept.ssh(
        SECOND,
        "sudo systemd-run sh -c 'systemctl stop ssh; sleep 5; systemctl start ssh'",
    )
    time.sleep(0.5)
    yield
    assert wait_until(lambda: kept.is_reached(SECOND))


def ticks_of(text: str, host: str) -> list[int]:
    """The numbers that a host's unit counted, as they were shown."""
    lines = [line.split() for line in text.splitlines()]
    return [int(words[4]) for words in lines if words[2:4] == [f"{host}/0", "tick"]]


def test_logs_of_both_hosts_are_merged_by_time(kept: Kept, talk: str) -> None:
    done = kept.fab("logs", "--lines", "5", stack=talk)
    assert done.returncode == 0, done.stderr
    stamps = [line[:23] for line in done.stdout.splitlines()]
    assert stamps == sorted(stamps)
    assert len(ticks_of(done.stdout, FIRST)) == len(ticks_of(done.stdout, SECOND)) == 5
    alone = kept.fab("logs", "--rank", f"{SECOND}/0", "--grep", "tick [0-9]*5$", stack=talk)
    assert set(ticks_of(alone.stdout, SECOND)) >= {5}
    assert f"{FIRST}/0" not in alone.stdout


def test_a_host_that_is_down_is_named_after_the_lines_of_the_others(
    kept: Kept, talk: str, second_is_down: None
) -> None:
    done = kept.fab("logs", "--lines", "3", stack=talk)
    assert done.returncode == 4
    assert len(ticks_of(done.stdout, FIRST)) == 3
    assert SECOND in done.stderr
    assert "Traceback" not in done.stderr


def test_following_goes_on_after_a_cut_and_loses_and_repeats_nothing(kept: Kept, talk: str) -> None:
    following = kept.start("logs", "--follow", "--lines", "1", stack=talk)
    assert wait_until(lambda: "--follow" in kept.ssh(SECOND, "pgrep -a journalctl"))
    time.sleep(1)
    # every SSH session of the host ends, this one among them
    kept.ssh(SECOND, "sudo sh -c 'for pid in $(pgrep -f \"^sshd: .*@\"); do kill -9 $pid; done'")
    time.sleep(4)
    following.send_signal(signal.SIGINT)
    shown, said = following.communicate(timeout=20)
    assert following.returncode == 130
    assert f"{SECOND}: " in said
    for host in (FIRST, SECOND):
        ticks = ticks_of(shown, host)
        assert len(ticks) > 30
        assert ticks == list(range(ticks[0], ticks[0] + len(ticks)))
        assert wait_until(lambda host=host: kept.ssh(host, "pgrep journalctl") == "")  # type: ignore[misc]  # bound now


def test_status_asks_each_host_once_and_shows_who_is_out_of_reach(
    kept: Kept, second_is_down: None
) -> None:
    done = kept.fab("status", "--json")
    assert done.returncode == 4
    document = json.loads(done.stdout)
    assert document["ok"] is False
    states = {row["host"]: row["state"] for row in document["processes"]}
    assert states == {FIRST: "active", SECOND: "unknown"}
    assert SECOND in done.stderr


def test_watching_appends_only_what_has_changed(kept: Kept) -> None:
    watching = kept.start("status", "--watch")
    time.sleep(6)
    watching.send_signal(signal.SIGINT)
    shown, _ = watching.communicate(timeout=20)
    assert watching.returncode == 130
    assert shown.count("Ctrl-C ends") == 1
    assert "\033" not in shown


def test_a_bundle_names_the_first_failure_and_the_host_that_is_missing(
    kept: Kept, second_is_down: None, tmp_path: Path
) -> None:
    target = tmp_path / "b.tar.gz"
    kept.ssh(FIRST, f"sudo systemctl kill -s KILL --kill-who=main {UNIT}")
    begun = time.monotonic()
    done = kept.fab("bundle", "--to", str(target), "--json")
    assert time.monotonic() - begun < 60
    assert done.returncode == 4
    document = json.loads(done.stdout)
    assert document["first_failure"]["process"] == f"{FIRST}/0"
    assert list(document["missing"]) == [SECOND]
    with tarfile.open(target) as archive:
        names = archive.getnames()
        summary = archive.extractfile(names[0])
        assert summary is not None
        page = summary.read().decode()
    assert names[0] == f"{STACK}/summary.md"
    assert f"Not whole: {SECOND}" in page
    assert f"{STACK}/{FIRST}/ranks/{FIRST}_0/journal.txt" in names
    assert f"{STACK}/{FIRST}/host/kernel.log" in names


@pytest.mark.parametrize(
    "kill",
    [
        f"systemctl kill -s KILL --kill-who=main {UNIT}",
        f"docker kill {CONTAINER}",
        f"systemctl stop {UNIT}",
    ],
    ids=["client", "container", "unit"],
)
def test_whatever_is_killed_nothing_of_the_container_runs_on(kept: Kept, kill: str) -> None:
    assert kept.fab("up").returncode == 0
    inspected = kept.ssh(FIRST, f"sudo docker inspect -f '{{{{.State.Pid}}}}' {CONTAINER}")
    pid = int(inspected)
    groups = kept.ssh(FIRST, f"cat /proc/{pid}/cgroup")
    assert "/moe_infra.slice/moe_infra-a2_2n_dp4tp4.slice/docker-" in groups
    kept.ssh(FIRST, f"sudo {kill}")
    assert wait_until(lambda: kept.ssh(FIRST, f"ls -d /proc/{pid}/exe") == "", 10)
    ended = "inactive" if kill.startswith("systemctl stop") else "failed"
    assert kept.ssh(FIRST, f"systemctl is-active {UNIT}").strip() == ended
    assert kept.ssh(FIRST, "sudo docker ps -q") == ""
