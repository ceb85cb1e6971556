"""What `fab` tells of a running deployment: logs, status, evidence; with a host that is out of reach, and a cut."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import tarfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from infra.spec.load import PROJECT
from tests.cli.commands import FAB, need_lab, run
from tests.cli.kept_hosts import set_fault

# Real sshd, systemd and journald on two simulated hosts: each call takes about a second.
pytestmark = [pytest.mark.lab, pytest.mark.slow]

STACK = "a2-2n-dp4tp4"
FIRST, SECOND = "unified-0", "unified-1"
UNIT = f"moe-{STACK}-engine@0"
OVER_PORT = 45999
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


def wait_until(holds: Callable[[], bool], seconds: float = 15.0) -> bool:
    deadline = time.monotonic() + seconds
    while not holds() and time.monotonic() < deadline:
        time.sleep(0.2)
    return holds()


@contextmanager
def second_is_down(kept: Kept) -> Iterator[None]:
    """The second host takes no connections, until the first one says that it is over, however busy the machine is."""
    call = f'import socket; socket.create_connection(("192.0.2.1", {OVER_PORT}), 1)'
    waits = 'for i in $(seq 300); do python3 -c "$0" 2>/dev/null && break; sleep 0.3; done'
    outage = f"systemctl stop ssh; {waits}; systemctl start ssh"
    kept.ssh(SECOND, f"sudo systemd-run sh -c '{outage}' '{call}'")
    assert wait_until(lambda: not kept.is_reached(SECOND))
    try:
        yield
    finally:
        kept.ssh(FIRST, f"sudo systemd-run --unit=over python3 -m http.server {OVER_PORT}")
        is_back = wait_until(lambda: kept.is_reached(SECOND), 30)
        kept.ssh(FIRST, "sudo systemctl stop over")
    assert is_back


@pytest.fixture(scope="module")
def kept() -> Iterator[Kept]:
    need_lab()
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
        process = {"id": f"{host}/0", "unit": "talk.service", "kind": "engine", "role": "unified"}
        process |= {"group": "unified/0", "endpoint": None, "devices": []}  # type: ignore[dict-item]  # JSON
        head = {"stack": "talk", "release": "0", "cleanup": None}
        record = json.dumps({**head, "processes": [process]})
        kept.ssh(
            host,
            f"sudo mkdir -p /etc/moe-infra/talk; echo '{record}' | sudo tee /etc/moe-infra/talk/release.json;"
            f"sudo systemd-run --unit=talk sh -c '{loop}'",
        )
    time.sleep(0.8)
    return "talk"


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


@pytest.mark.fault
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


def test_watching_appends_only_what_has_changed(kept: Kept) -> None:
    watching = kept.start("status", "--watch")
    assert watching.stdout is not None
    first = watching.stdout.readline()
    time.sleep(4)
    watching.send_signal(signal.SIGINT)
    shown, _ = watching.communicate(timeout=20)
    shown = first + shown
    assert watching.returncode == 130
    assert shown.count("Ctrl-C ends") == 1
    assert "\033" not in shown


@pytest.mark.fault
def test_what_a_kernel_has_killed_is_in_the_bundle_and_named(kept: Kept, tmp_path: Path) -> None:
    killed = "Out of memory: Killed process 4711 (vllm) total-vm:912kB, anon-rss:905kB"
    kept.ssh(SECOND, set_fault(str({"kernel_log": [killed]})))
    target = tmp_path / "b.tar.gz"
    done = kept.fab("bundle", "--to", str(target), "--json")
    kept.ssh(SECOND, set_fault("{}"))
    assert done.returncode == 0, done.stderr
    first = json.loads(done.stdout)["first_failure"]
    assert (first["process"], killed in first["line"]) == (f"kernel of {SECOND}", True)
    logs = {}
    with tarfile.open(target) as archive:
        for host in (FIRST, SECOND):
            file = archive.extractfile(f"{STACK}/{host}/host/kernel.log")
            assert file is not None
            logs[host] = file.read().decode().splitlines()
    stamp = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}\+00:?00"
    assert re.fullmatch(f"{stamp} {SECOND} kernel: {re.escape(killed)}", logs[SECOND][-1])
    assert [len(logs[host]) for host in (FIRST, SECOND)] == [1, 2]


@pytest.mark.fault
def test_a_host_that_is_down_hides_nothing_of_the_others(
    kept: Kept, talk: str, tmp_path: Path
) -> None:
    target = tmp_path / "b.tar.gz"
    kept.ssh(FIRST, f"sudo systemctl kill -s KILL --kill-who=main {UNIT}")
    with second_is_down(kept):
        begun = time.monotonic()
        running = [
            kept.start("logs", "--lines", "3", stack=talk),
            kept.start("status", "--json"),
            kept.start("bundle", "--to", str(target), "--json"),
        ]
        answers = [each.communicate(timeout=90) for each in running]
        took = time.monotonic() - begun
    assert took < 75  # the minute of `bundle`, and what starting three interpreters takes
    assert [each.returncode for each in running] == [4, 4, 4]
    assert all(SECOND in said and "Traceback" not in said for _, said in answers)
    (logs, _), (status, _), (bundle, _) = answers
    assert len(ticks_of(logs, FIRST)) == 3
    rows = json.loads(status)["processes"]
    assert [row["host"] for row in rows if row["state"] == "unknown"] == [SECOND]
    assert FIRST in {row["host"] for row in rows}
    document = json.loads(bundle)
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


@pytest.mark.fault
def test_a_host_that_is_down_is_judged_beside_the_others(kept: Kept) -> None:
    with second_is_down(kept):
        running = {
            words[0]: kept.start(*words, "--json")
            for words in (
                ["preflight", "--join", "5"],
                ["verify", "--timeout", "5"],
                ["diff"],
                ["facts"],
                ["restart"],
            )
        }
        answers = {task: each.communicate(timeout=90) for task, each in running.items()}
    assert {each.returncode for each in running.values()} == {4}
    assert not any("Traceback" in said for _, said in answers.values())
    documents = {task: json.loads(text) for task, (text, _) in answers.items()}
    for document in documents.values():
        assert [error["where"] for error in document["errors"]] == [SECOND]
        assert document["ok"] is False
    findings = documents["preflight"]["findings"]
    own = [(one["check"], one["severity"]) for one in findings if one["host"] == SECOND]
    assert own == [("host-answers", "block")]
    others = {one["check"] for one in findings if one["host"] == FIRST}
    assert {"ports-free", "driver-version", "weights-staged"} <= others
    checks = documents["verify"]["checks"]
    told = {one["check"]: one["ok"] for one in checks if one["process"] == FIRST}
    assert told["tuning"] is told["files"] is told["weights"] is True
    unknown = {one["check"] for one in checks if one["process"] in (SECOND, f"{SECOND}/0")}
    assert {"tuning", "files", "running", "chat"} <= unknown
    assert all(one["ok"] is None for one in checks if one["process"] == f"{SECOND}/0")
    assert isinstance(documents["diff"]["changes"], list)
    assert [host["name"] for host in documents["facts"]["hosts"]] == [FIRST]
    Path(documents["facts"]["file"]).unlink()
    (refused,) = documents["restart"]["errors"]
    assert "unified/0 has ranks there, so nothing was stopped." in refused["what"]
    assert f"fab replace-host {SECOND} NEW" in refused["fix"]


def test_nothing_is_bundled_of_a_stack_that_nobody_knows(kept: Kept, tmp_path: Path) -> None:
    done = kept.fab("bundle", "--to", str(tmp_path / "b.tar.gz"), stack="h200-tp9")
    assert done.returncode == 2, done.stderr
    assert "h200-tp8" in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "kill",
    [
        f"systemctl kill -s KILL --kill-who=main {UNIT}",
        f"docker kill {CONTAINER}",
        f"systemctl stop {UNIT}",
    ],
    ids=["client", "container", "unit"],
)
@pytest.mark.fault
def test_whatever_is_killed_nothing_of_the_container_runs_on(kept: Kept, kill: str) -> None:
    assert kept.fab("up").returncode == 0
    inspected = kept.ssh(FIRST, f"sudo docker inspect -f '{{{{.State.Pid}}}}' {CONTAINER}")
    pid = int(inspected)
    groups = kept.ssh(FIRST, f"cat /proc/{pid}/cgroup")
    assert "/moe_infra.slice/moe_infra-a2_2n_dp4tp4.slice/docker-" in groups
    kept.ssh(FIRST, f"sudo {kill}")
    assert wait_until(lambda: kept.ssh(FIRST, f"ls -d /proc/{pid}/exe") == "", 10)
    # the watcher may have started the group again by now: as another container
    left = kept.ssh(FIRST, f"sudo docker inspect -f '{{{{.State.Pid}}}}' {CONTAINER} 2>/dev/null")
    assert left.strip() != str(pid)
