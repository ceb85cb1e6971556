"""The real `fab` against simulated hosts: what an operator does to a deployment, and what goes wrong."""

from __future__ import annotations

import json
import shlex
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest

from tests.cli.commands import FAB, begin, need_lab, run, run_elsewhere
from tests.cli.rack import LEASE_S, end, until, until_said
from tests.naming import in_time, until_named

# Real sshd, systemd and routers on one simulated host: each call takes about a second.
pytestmark = [pytest.mark.lab, pytest.mark.slow]

STACK = "vllm-shared-1p1d"
HOST = "host-0"
ROUTER = f"moe-{STACK}-router@0"


@dataclass(frozen=True)
class Kept:
    """A kept rehearsal: a tuned host with nothing started."""

    inventory: str
    ssh_config: str

    def words(self, *words: str, stack: str = STACK) -> list[str]:
        return [FAB, words[0], "--stack", stack, "--inventory", self.inventory, *words[1:]]

    def fab(self, *words: str, stack: str = STACK) -> subprocess.CompletedProcess[str]:
        return run(*self.words(*words, stack=stack))

    def fab_elsewhere(self, *words: str) -> subprocess.CompletedProcess[str]:
        return run_elsewhere(*self.words(*words))

    def begin(self, *words: str) -> subprocess.Popen[str]:
        return begin(*self.words(*words))

    def ssh(self, command: str) -> str:
        done = run("ssh", "-n", "-F", self.ssh_config, HOST, command)
        return done.stdout


@pytest.fixture(scope="module")
def kept() -> Iterator[Kept]:
    need_lab()
    done = run(FAB, "rehearse", "--stack", STACK, "--keep", "--to-step", "tune", "--json")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    yield Kept(document["inventory"], document["ssh_config"])
    run(FAB, "rehearse", "--stop", document["id"])


@pytest.fixture
def up(kept: Kept) -> Kept:
    """The deployment runs; it costs a second where it does already."""
    done = kept.fab("up", "--json")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["ok"] is True
    assert [row["id"] for row in document["processes"]] == ["host-0/0", "host-0/1"]
    assert document["router"]["ready"] is True
    return kept


@pytest.mark.fault
def test_a_taken_port_is_named_and_nothing_is_installed(kept: Kept) -> None:
    kept.fab("down")
    kept.ssh("sudo systemd-run --unit=squatter python3 -m http.server 7101")
    time.sleep(0.5)
    with in_time():
        done = kept.fab("up")
    kept.ssh("sudo systemctl stop squatter")
    assert done.returncode == 3, done.stderr
    assert all(word in done.stderr for word in ("host-0", "7101", "http.server", "host-0/1"))
    assert "Traceback" not in done.stderr
    assert kept.ssh("ls -d /etc/moe-infra 2>/dev/null") == ""


@pytest.mark.fault
def test_weights_that_are_not_there_are_refused(kept: Kept) -> None:
    kept.fab("down")
    path = kept.ssh("ls -d /models/*/*/manifest.json | head -1").strip()
    kept.ssh(f"sudo mv {path} {path}.away")
    with in_time():
        done = kept.fab("up")
    kept.ssh(f"sudo mv {path}.away {path}")
    assert done.returncode == 3, done.stderr
    assert "manifest.json" in done.stderr


def test_status_and_logs_of_what_runs(up: Kept) -> None:
    status = up.fab("status", "--json")
    assert status.returncode == 0
    assert json.loads(status.stdout)["ok"] is True
    logs = up.fab("logs", "--rank", "host-0/1", "--lines", "5", "--json")
    lines = json.loads(logs.stdout)["lines"]
    assert {line["process"] for line in lines} == {"host-0/1"}
    grepped = up.fab("logs", "--grep", "startup complete")
    assert len(grepped.stdout.splitlines()) >= 2
    assert up.fab("logs", "--rank", "nobody/0").returncode == 2
    moment = up.fab("logs", "--since", "nonsense")
    assert (moment.returncode, "--since: 'nonsense' is no moment" in moment.stderr) == (2, True)


def test_verify_passes_then_notices_a_changed_file(up: Kept) -> None:
    assert up.fab("verify").returncode == 0
    path = f"/etc/moe-infra/{STACK}/engine-1/environment"
    up.ssh(f"sudo cp -p {path} /opt/kept && echo '# spoilt' | sudo tee -a {path}")
    done = up.fab("verify", "--json")
    up.ssh(f"sudo cp -p /opt/kept {path} && sudo rm /opt/kept")
    assert done.returncode == 6, done.stderr
    wrong = [check for check in json.loads(done.stdout)["checks"] if check["ok"] is False]
    assert [check["check"] for check in wrong] == [f"file:{path}"]


@pytest.mark.fault
def test_what_waits_for_a_drain_is_drift_once_the_host_had_it_and_what_is_printed_mends_it(
    up: Kept,
) -> None:
    before = json.loads(up.fab("verify", "--json").stdout)
    (waiting,) = [check for check in before["checks"] if check["check"] == "kernel.cmdline"]
    assert (before["ok"], waiting["ok"]) == (True, None), "the host never had it"
    assert "add it to the boot loader by hand, then reboot" in waiting["detail"]
    up.ssh("sudo nvidia-smi -mig 1")
    with in_time():
        done = up.fab("verify", "--json")
    assert done.returncode == 6, done.stdout + done.stderr
    wrong = [check for check in json.loads(done.stdout)["checks"] if check["ok"] is False]
    assert [(check["process"], check["check"]) for check in wrong] == [(HOST, "gpu.mig_mode")]
    assert "is Enabled, declared Disabled: waits for a drain" in wrong[0]["detail"]
    said = up.fab("verify").stderr
    assert up.fab("tune-hosts").returncode == 0, "tune-hosts alone mends nothing, and says so"
    assert up.fab("verify").returncode == 6, "nor does it make little of it"
    for command in said.splitlines()[-1].removeprefix("Next: ").split(", then "):
        done = run(FAB, *shlex.split(command)[1:])
        assert done.returncode == 0, (command, done.stdout + done.stderr)
    assert up.fab("verify").returncode == 0


@pytest.mark.fault
def test_a_killed_rank_is_named_and_its_group_comes_up_again_by_itself(up: Kept) -> None:
    before = {row["group"]: row for row in json.loads(up.fab("status", "--json").stdout)["groups"]}
    up.ssh(f"sudo systemctl kill -s KILL --kill-who=main 'moe-{STACK}-engine@1'")
    until_named(lambda: up.fab("status").stderr, "host-0: host-0/1 was ended by signal 9")
    deadline = time.monotonic() + 30
    while True:
        status = up.fab("status", "--json")
        document = json.loads(status.stdout)
        group = {row["group"]: row for row in document["groups"]}["decode/0"]
        if document["ok"] and group["epoch"] > before["decode/0"]["epoch"]:
            break
        assert time.monotonic() < deadline, status.stdout
    assert group["restarts"] == before["decode/0"]["restarts"] + 1
    assert group["why"] == "host-0: host-0/1 was ended by signal 9"
    rows = {row["id"]: row for row in document["processes"]}
    assert rows["host-0/1"]["epoch"] == group["epoch"]
    assert rows["host-0/0"]["epoch"] == before["prefill/0"]["epoch"]  # another group: not touched
    # what `status` calls ok is proven at once, although the router looks for its endpoints once a second
    proven = up.fab("verify", "--timeout", "5")
    assert proven.returncode == 0, proven.stdout + proven.stderr


def statuses(kept: Kept, wanted: int, limit_s: float = 30.0) -> subprocess.CompletedProcess[str]:
    """`fab status` until it leaves with a code."""
    deadline = time.monotonic() + limit_s
    while (done := kept.fab("status")).returncode != wanted:
        assert time.monotonic() < deadline, done.stdout + done.stderr
    return done


def through_router(kept: Kept) -> int:
    """The tokens that a request through the router got."""
    model = json.loads(kept.ssh("curl -s -m 5 localhost:8000/v1/models"))["data"][0]["id"]
    body = json.dumps({"model": model, "prompt": "a " * 400, "max_tokens": 4})
    words = f"-H 'Content-Type: application/json' -d '{body}' localhost:8000/v1/completions"
    tokens: int = json.loads(kept.ssh(f"curl -s -m 20 {words}"))["usage"]["completion_tokens"]
    return tokens


@contextmanager
def other_router(kept: Kept, script: str) -> Iterator[None]:
    """A host whose router's program is another one; the right one is `/opt/kept` meanwhile."""
    program = kept.ssh("ls /opt/moe-infra/routers/vllm-router-*/bin/vllm-router").strip()
    write = f"printf '#!/bin/sh\n%s\n' '{script}' | sudo tee {program}"
    kept.ssh(f"sudo cp -p {program} /opt/kept && {write}")
    try:
        yield
    finally:
        kept.ssh(f"sudo cp -p /opt/kept {program}; sudo rm /opt/kept")


@pytest.mark.fault
def test_a_killed_router_is_started_again_named_and_passes_requests_on(up: Kept) -> None:
    before = json.loads(up.fab("status", "--json").stdout)
    named = "router/0: restarted once; the last time it was ended by signal 9."
    with other_router(up, "exec sleep 600"):
        up.ssh(f"sudo systemctl kill -s KILL {ROUTER}")
        until_named(lambda: up.fab("status").stderr, named)
        while_down = statuses(up, 5)
    assert f"{named} It does not answer." in while_down.stderr
    assert "started again by itself: nothing to type." in while_down.stderr
    up.ssh(f"sudo systemctl kill -s KILL {ROUTER}")
    statuses(up, 0)
    assert through_router(up) == 4
    after = json.loads(up.fab("status", "--json").stdout)
    assert after["processes"] == before["processes"]  # no rank is touched
    assert (before["router"]["restarts"], after["router"]["restarts"]) == (0, 2)


@pytest.mark.fault
def test_a_router_that_hangs_is_named_at_once_and_ended_by_its_watcher(up: Kept) -> None:
    pid = up.ssh(f"systemctl show -p MainPID --value {ROUTER}").strip()
    up.ssh(f"sudo kill -STOP {pid}")
    with in_time():
        named = up.fab("status")
    assert named.returncode == 5, named.stdout
    assert "Not ready: router/0." in named.stderr
    said = statuses(up, 0)
    assert "router/0: restarted once; the last time it had not answered for 10 s." in said.stderr
    assert through_router(up) == 4


@pytest.mark.fault
def test_a_router_that_dies_again_and_again_is_given_up_and_up_starts_it_anew(up: Kept) -> None:
    with other_router(up, "exit 3"):
        up.ssh(f"sudo systemctl kill -s KILL {ROUTER}")
        deadline = time.monotonic() + 40
        while up.ssh(f"systemctl is-active {ROUTER}").strip() != "failed":
            assert time.monotonic() < deadline
        with in_time():
            given_up = up.fab("status")
        with in_time():
            refused = up.fab("up")
        # systemd is about to start it once more by itself
        up.ssh(f"sudo systemctl stop {ROUTER}")
    assert given_up.returncode == 5
    row = next(line for line in given_up.stdout.splitlines() if line.startswith("router/0"))
    assert row.split()[2:4] == ["failed", "no"]
    said = "router/0: given up: it ends again and again; the last time it ended with exit code 3. "
    assert f"{said}`fab up` starts it again." in given_up.stderr
    assert given_up.stderr.splitlines()[-1].startswith(f"Next: fab up --stack {STACK}")
    assert refused.returncode == 5
    assert "router/0: It ended with exit code 3" in refused.stderr
    assert f"`fab up --stack {STACK} --inventory {up.inventory}` starts it anew" in refused.stderr
    mended = up.fab("up")
    assert mended.returncode == 0, mended.stderr
    assert "router/0:" not in up.fab("status").stderr


def starts(kept: Kept) -> str:
    """systemd's id of each engine's start."""
    units = " ".join(f"moe-{STACK}-engine@{index}" for index in (0, 1))
    return kept.ssh(f"systemctl show -p InvocationID --value {units}")


@pytest.mark.fault
def test_up_that_ends_or_freezes_while_the_router_starts_is_gone_on_with_from_anywhere(
    up: Kept,
) -> None:
    """An operator's machine that vanishes looks to hosts like one that is frozen: nobody hangs up."""
    before = starts(up)
    with other_router(up, 'while [ -e /opt/gate ]; do sleep 0.1; done; exec /opt/kept "$@"'):
        up.ssh(f"sudo touch /opt/gate; sudo systemctl stop {ROUTER}")
        started = up.begin("up")
        until_said(started, "ranks has generated")
        until(lambda: up.ssh(f"systemctl is-active {ROUTER}").strip() == "active")
        ended = end(started, signal.SIGINT)
        assert ended.code == 130
        assert f"`fab up --stack {STACK}" in ended.said
        told = up.fab("status")
        assert told.returncode == 5
        assert "Not ready: router/0." in told.stderr
        gone = up.begin("up")
        until_said(gone, "ranks has generated")
        gone.send_signal(signal.SIGSTOP)
        try:
            frozen = time.monotonic()
            with in_time():
                refused = up.fab_elsewhere("up")
            assert refused.returncode == 3
            assert f"holds stack {STACK} with `fab up` since 20" in refused.stderr
            assert "20 s after its owner has died anybody may go on" in refused.stderr
            time.sleep(max(frozen + LEASE_S - time.monotonic(), 0.0))
            up.ssh("sudo rm /opt/gate")
            done = up.fab_elsewhere("up")
            assert done.returncode == 0, done.stderr
        finally:
            gone.send_signal(signal.SIGCONT)
        _, said = gone.communicate(timeout=30)
    assert gone.returncode == 4
    assert "The lease was lost" in said
    assert starts(up) == before
    assert through_router(up) == 4


def test_another_release_is_not_written_over_a_running_one(up: Kept) -> None:
    done = up.fab("up", "--set", "defaults.max_num_seqs=7")
    assert done.returncode == 3, done.stderr
    assert "fab down" in done.stderr


def test_down_leaves_nothing_and_may_be_repeated(up: Kept) -> None:
    assert up.fab("down").returncode == 0
    left = up.ssh(
        f"ls -d /etc/moe-infra /etc/systemd/system/moe-{STACK}* /var/lib/moe-infra/rollback/{STACK} 2>/dev/null;"
        f"systemctl list-units --all --no-legend 'moe-{STACK}*'; sudo docker ps -aq"
    )
    assert left == ""
    again = up.fab("down")
    assert again.returncode == 0
    assert "Nothing of" in again.stdout
    assert up.fab("status").returncode == 5
    assert up.fab("logs").returncode == 5


@pytest.mark.parametrize("task", ["status", "down", "logs", "restart"])
def test_a_stack_that_neither_files_nor_hosts_know_is_refused(kept: Kept, task: str) -> None:
    done = run(FAB, task, "--stack", "h200-tp", "--inventory", kept.inventory, "--json")
    assert done.returncode == 2, done.stderr
    (error,) = json.loads(done.stdout)["errors"]
    assert error["what"] == "There is no stack h200-tp."


def test_tuning_is_checked_taken_back_and_brought_about(kept: Kept) -> None:
    assert kept.fab("tune-hosts", "--check").returncode == 0
    assert kept.fab("tune-hosts", "--rollback").returncode == 0
    drift = kept.fab("tune-hosts", "--check", "--diff", "--json")
    assert drift.returncode == 6
    document = json.loads(drift.stdout)
    assert document["changed"] > 0
    assert document["ok"] is False
    assert list(document["hosts"][0]["items"][0]) == [
        "id",
        "state",
        "before",
        "wanted",
        "after",
        "why",
        "needs",
    ]
    assert kept.fab("tune-hosts").returncode == 0
    again = kept.fab("tune-hosts", "--json")
    assert json.loads(again.stdout)["changed"] == 0
