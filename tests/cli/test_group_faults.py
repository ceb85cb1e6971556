"""What befalls a group of ranks on two real hosts, and what `fab status` says of it: docs/decisions.md 21."""

from __future__ import annotations

import json
import shlex
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from infra.errors import Differs
from infra.rehearsal.lab import registry
from infra.rehearsal.lab.client import Lab
from tests.cli.commands import FAB, begin, need_lab, run
from tests.naming import in_time, until_named

# Faults of hosts take the seconds that watchers wait before they believe them.
pytestmark = [pytest.mark.lab, pytest.mark.slow, pytest.mark.fault]

STACK = "a2-2n-dp4tp4"
GROUP = "unified/0"
HOSTS = ("unified-0", "unified-1")
WATCH = f"moe-{STACK}-watch"
CONFIG = f"/etc/moe-infra/{STACK}/watch/groups.json"
FACTS = "/var/lib/moe-rehearsal/host.json"
# Believed sooner than in production, for the tests' time; long enough for a machine that does other things. A row of
# restarts is forgotten soon, so that no test waits longer for the faults of those before it.
HASTE = {"lost_s": 4.0, "max_restarts": 20, "stable_s": 1.0}
# Longer than any of these tests looks at ranks that load.
LOAD_S = 600.0
PATIENCE = {"first_s": 60.0, "silent_s": 60.0, "stuck_s": 4.0}
LIMIT_S = 60.0
# As long a host may be silent before SSH believes it.
CONNECT_S = 10.0
REPLACES = f"`fab replace-host {HOSTS[1]} NEW --stack {STACK} "


@dataclass(frozen=True)
class Site:
    """Two hosts with a group of four ranks that has been handed over to its watchers."""

    inventory: str
    lab: Lab
    installed: dict[str, bytes]

    def words(self, *words: str) -> list[str]:
        return [FAB, words[0], "--stack", STACK, "--inventory", self.inventory, *words[1:]]

    def start(self, *words: str) -> subprocess.Popen[str]:
        """Start `fab` with the stack and inventory."""
        return begin(*self.words(*words), stdout=subprocess.PIPE)

    def fab(self, *words: str) -> tuple[int, str, str]:
        done = run(*self.words(*words), timeout_s=LIMIT_S)
        return done.returncode, done.stdout, done.stderr

    def status_says(self, code: int, *words: str) -> str:
        """An operator types `fab status` now: how it leaves, and what it names; what it says last."""
        left, _, err = self.fab("status")
        assert left == code, err
        assert not [word for word in words if word not in err], err
        return err.splitlines()[-1]

    @contextmanager
    def slow_loads(self) -> Iterator[None]:
        """Engines that are started now load for longer than anybody looks; in the end one of them dies of it."""
        before = [self.lab.read_file(host, FACTS) for host in HOSTS]
        for host, text in zip(HOSTS, before, strict=True):
            slow = {**json.loads(text), "load_seconds": LOAD_S}
            self.lab.write_file(host, FACTS, json.dumps(slow).encode())
        try:
            yield
        finally:
            for host, text in zip(HOSTS, before, strict=True):
                self.lab.write_file(host, FACTS, text)
            self.until(lambda: self.is_running(HOSTS[1]))
            self.kill_rank()

    def kill_rank(self) -> None:
        self.sh(HOSTS[1], f"systemctl kill -s KILL --kill-who=main moe-{STACK}-engine@0")

    def status(self) -> dict[str, Any]:
        document: dict[str, Any] = json.loads(self.fab("status", "--json")[1])
        return document

    def sh(self, host: str, command: str) -> str:
        return self.lab.run(host, ["sh", "-c", command]).stdout.decode()

    def record(self) -> dict[str, Any]:
        """What the host of rank 0 remembers."""
        text = self.sh(HOSTS[0], f"cat /var/lib/moe-infra/groups/{STACK}/*.json")
        document: dict[str, Any] = json.loads(text)["lead"]
        return document

    def until(self, what: Callable[[], bool], limit_s: float = LIMIT_S) -> float:
        """Wait for something; the seconds that it took."""
        begun = time.monotonic()
        while not what():
            assert time.monotonic() - begun < limit_s, self.record()
            time.sleep(0.2)
        return time.monotonic() - begun

    def serves_again(self, after: int) -> dict[str, Any]:
        """Wait until a newer epoch serves; its row of `groups`."""
        self.until(lambda: self.record()["epoch"] > after and self.record()["phase"] == "run")
        self.until(lambda: bool(self.status()["ok"]))
        row: dict[str, Any] = self.status()["groups"][0]
        return row

    def names(self, why: str, before: dict[str, Any], known_after_s: float = 0.0) -> None:
        """Wait, not for long, until rank 0's host knows what ended the epoch, which `fab status` shows."""

        def said() -> str:
            record = self.record()
            is_over = record["epoch"] > before["epoch"] or record["phase"] != "run"
            return str(record["why"]) if is_over else ""

        until_named(said, why, known_after_s)

    def set_limits(self, **changes: float) -> None:
        """Write other limits for the watchers, and have them read."""
        for host in HOSTS:
            document = json.loads(self.lab.read_file(host, CONFIG))
            document["limits"].update({**HASTE, **changes})
            document["patience"] = PATIENCE
            self.lab.write_file(host, CONFIG, json.dumps(document).encode())
            self.sh(host, f"systemctl restart {WATCH}")

    def is_running(self, host: str) -> bool:
        return self.sh(host, f"systemctl is-active moe-{STACK}-engine@0").strip() == "active"

    def engine_pids(self, host: str) -> list[int]:
        """The engine's own processes, not the container's client."""
        return [
            pid
            for pid, argv in self.lab.processes(host)
            if any(word.endswith("/engine") for word in argv[:5])
        ]


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    need_lab()
    done = run(FAB, "rehearse", "--stack", STACK, "--keep", "--to-step", "start", "--json")
    document = json.loads(done.stdout)
    try:
        assert done.returncode == 0, done.stderr
        entry = next(one for one in registry.read_entries() if one.id == document["id"])
        lab = Lab(entry)
        installed = {host: lab.read_file(host, CONFIG) for host in HOSTS}
        found = Site(document["inventory"], lab, installed)
        found.set_limits()
        yield found
    finally:
        run(FAB, "rehearse", "--stop", document["id"])


@pytest.fixture
def serving(site: Site) -> Site:
    """The group serves; a restart that is asked for forgets those before."""
    if not site.status()["ok"] or site.record()["phase"] != "run":
        code, _, err = site.fab("restart")
        assert code == 0, err
    return site


def test_a_rank_that_is_killed_is_named_and_its_evidence_kept(serving: Site) -> None:
    before, why = serving.record(), "unified-1: unified-1/0 was ended by signal 9"
    with serving.slow_loads():
        serving.kill_rank()
        serving.names(why, before)
        serving.until(lambda: serving.record()["epoch"] > before["epoch"])
        serving.status_says(5, f"restarted once; the last time: {why}.", "nothing to type.")
    row = serving.serves_again(before["epoch"] + 1)
    assert row["why"] == why
    assert row["restarts"] == before["restarts"] + 2
    serving.status_says(0, why)
    folder = f"/var/lib/moe-infra/evidence/{STACK}/unified-0-{before['epoch']}"
    for host in HOSTS:
        facts = json.loads(serving.lab.read_file(host, f"{folder}/facts.json"))
        assert facts["epoch"] == before["epoch"]
        assert b"startup complete" in serving.lab.read_file(HOSTS[0], f"{folder}/journal.txt")


def test_a_frozen_rank_is_named_by_verify_and_goes_on_when_it_is_let(serving: Site) -> None:
    """`fab status` shows nothing of it before somebody asks something of it."""
    pids = " ".join(map(str, serving.engine_pids(HOSTS[1])))
    serving.sh(HOSTS[1], f"kill -STOP {pids}")
    code, checks, err = serving.fab("verify", "--timeout", "1")
    assert code == 5, err
    assert f"{HOSTS[1]}/0: process {pids} of it is stopped (SIGSTOP): `ssh " in checks
    assert f"sudo kill -CONT {pids}`" in checks
    last = err.splitlines()[-1]
    assert last.startswith("Next: fab bundle --stack")
    assert ", then fab restart --stack" in last
    serving.sh(HOSTS[1], f"kill -CONT {pids}")
    # every rank answers, and only the watchers' limits are not those of the stack; one may have begun a restart
    serving.until(lambda: serving.fab("verify")[0] == Differs.exit_code)


def test_a_frozen_rank_is_noticed_by_requests_that_make_no_token(serving: Site) -> None:
    before = serving.record()
    for pid in serving.engine_pids(HOSTS[1]):
        serving.sh(HOSTS[1], f"kill -STOP {pid}")
    assert serving.status()["ok"]  # the port is open and the health is green

    base = json.loads(serving.lab.read_file(HOSTS[0], CONFIG))["groups"][0]["metrics"][0]
    base = base.rpartition("/")[0]
    model = json.loads(serving.sh(HOSTS[0], f"curl -s {base}/v1/models"))["data"][0]["id"]
    body = json.dumps({"model": model, "prompt": "a " * 400, "max_tokens": 4})
    asked = f"curl -s -m 30 -H 'X-data-parallel-rank: 2' -H 'Content-Type: application/json' -d '{body}'"

    def ask() -> None:
        serving.sh(HOSTS[0], f"{asked} {base}/v1/completions")

    why = "rank 2 runs requests and has made no token for 4 s"
    thread = threading.Thread(target=ask, daemon=True)
    with serving.slow_loads():
        thread.start()
        serving.names(why, before, PATIENCE["stuck_s"])
        serving.until(lambda: serving.record()["epoch"] > before["epoch"])
        last = serving.status_says(5, "the last time: ", f"{why}.", "nothing to type.")
        assert last.startswith(f"Next: fab logs --stack {STACK} "), "it loads"
    serving.serves_again(before["epoch"] + 1)
    serving.status_says(0)
    thread.join(30)


def test_a_host_that_is_cut_off_stops_its_ranks_and_joins_the_next_epoch(serving: Site) -> None:
    before = serving.record()
    serving.lab.cut(HOSTS[1])
    try:
        serving.names("unified-1: silent for more than 4 s", before, HASTE["lost_s"])
        serving.until(lambda: serving.record()["phase"] == "stop")
        serving.until(lambda: not serving.is_running(HOSTS[1]))
        serving.until(lambda: not serving.is_running(HOSTS[0]))
        view = f"cat /run/moe-infra/groups/{STACK}/*.json"
        serving.until(
            lambda: json.loads(serving.sh(HOSTS[0], view))["waits_for"] == ["unified-1 is silent"]
        )
        assert serving.record()["epoch"] == before["epoch"]  # nobody starts half a group
        silent = (
            f"restarts ({HOSTS[1]}: silent for more than 4 s); it waits for {HOSTS[1]} is silent."
        )
        serving.status_says(4, silent, "by itself as soon as unified-1 can be heard", REPLACES)
    finally:
        serving.lab.heal(HOSTS[1])
    row = serving.serves_again(before["epoch"])
    assert row["why"] == "unified-1: silent for more than 4 s"
    assert row["epoch"] == before["epoch"] + 1


def test_a_frozen_host_is_waited_for_and_joins_the_next_epoch(serving: Site) -> None:
    before = serving.record()
    serving.lab.freeze(HOSTS[1])
    try:
        serving.names("unified-1: silent for more than 4 s", before, HASTE["lost_s"])
        serving.until(lambda: serving.record()["phase"] == "stop")
        with in_time(CONNECT_S):
            serving.status_says(
                4, "Out of reach: unified-1: ", "silent for more than 4 s", REPLACES
            )
    finally:
        serving.lab.thaw(HOSTS[1])
    row = serving.serves_again(before["epoch"])
    assert row["why"] == "unified-1: silent for more than 4 s"


@pytest.mark.parametrize("host", HOSTS)
def test_a_host_that_was_rebooted_takes_part_again_without_anybody(
    serving: Site, host: str
) -> None:
    before = serving.record()
    boots = next(one.boots for one in serving.lab.status() if one.name == host)
    serving.lab.power_off(host)
    with in_time(CONNECT_S):
        after = serving.status_says(4, f"Out of reach: {host}: ", f"`fab replace-host {host} NEW ")
    assert after.startswith(f"Next: fab status --stack {STACK}")
    with in_time(CONNECT_S):
        code, _, err = serving.fab("up")
    assert code == 4, err
    assert f"{host}: " in err
    serving.lab.start(host)
    serving.lab.wait_reboot(host, boots, LIMIT_S)
    serving.names(host, before, HASTE["lost_s"])
    row = serving.serves_again(before["epoch"])
    assert host in row["why"]
    assert row["epoch"] == before["epoch"] + 1


@pytest.mark.parametrize("host", HOSTS)
def test_a_watcher_that_is_killed_comes_back_and_no_rank_is_touched(
    serving: Site, host: str
) -> None:
    serving.until(lambda: not serving.record()["attempts"])  # nothing is about to be forgotten
    before = serving.record()
    show = f"systemctl show -p InvocationID moe-{STACK}-engine@0"
    units = [serving.sh(one, show) for one in HOSTS]
    pid = serving.sh(host, f"systemctl show -p MainPID --value {WATCH}")
    serving.sh(host, f"systemctl kill -s KILL {WATCH}")
    serving.until(
        lambda: serving.sh(host, f"systemctl show -p MainPID --value {WATCH}") not in (pid, "0\n")
    )
    time.sleep(5)  # longer than the others wait before they believe that a host is lost
    assert serving.record() == before
    assert [serving.sh(one, show) for one in HOSTS] == units


def test_a_group_that_fails_again_and_again_is_given_up_until_it_is_asked_for(
    serving: Site,
) -> None:
    serving.set_limits(max_restarts=2, stable_s=600.0)
    try:
        assert serving.fab("restart")[0] == 0
        for _ in range(3):
            epoch = serving.record()["epoch"]
            serving.until(lambda: serving.is_running(HOSTS[1]))
            serving.kill_rank()
            serving.until(
                lambda e=epoch: (
                    serving.record()["phase"] == "failed"  # type: ignore[misc]
                    or serving.record()["epoch"] > e
                )
            )
        serving.until(lambda: not serving.is_running(HOSTS[0]))
        with in_time():
            code, out, err = serving.fab("status", "--json")
        document = json.loads(out)
        assert code == 5, err
        assert [row["state"] for row in document["processes"]] == ["failed", "failed"]
        assert document["groups"][0]["why"].startswith("given up after 2 restarts in a row; ")
        assert "unified-1/0 was ended by signal 9" in document["groups"][0]["why"]
        after = serving.status_says(5, "Nobody starts it again but you: `fab logs ")
        assert serving.record()["phase"] == "failed"
        # the command that is printed is the way out
        said, command = after.split(": ", 1)
        assert said == "Next"
        assert command.endswith("--role unified --replica 0")
        done = run(FAB, *shlex.split(command)[1:], timeout_s=LIMIT_S)
        assert done.returncode == 0, done.stderr
        assert serving.status()["ok"]
    finally:
        serving.set_limits()


@pytest.mark.parametrize("after_s", [0.4, 1.2, 2.0])
def test_a_restart_whose_operator_dies_leaves_a_group_that_serves(
    serving: Site, after_s: float
) -> None:
    if serving.record()["attempts"]:  # of a test before: an operator who dies early changes nothing
        assert serving.fab("restart")[0] == 0
    operator = serving.start("restart")
    time.sleep(after_s)
    operator.send_signal(signal.SIGKILL)
    operator.communicate()
    serving.until(lambda: serving.record()["phase"] == "run" and bool(serving.status()["ok"]))
    assert serving.record()["attempts"] == 0


def test_a_rank_that_somebody_starts_by_hand_ends_the_epoch(serving: Site) -> None:
    before = serving.record()
    # rank 0 would end by itself when its peer goes, and then be the first to be noticed
    for pid in serving.engine_pids(HOSTS[0]):
        serving.sh(HOSTS[0], f"kill -STOP {pid}")
    serving.sh(HOSTS[1], f"systemctl restart moe-{STACK}-engine@0")
    serving.names("unified-1: unified-1/0 ", before)
    row = serving.serves_again(before["epoch"])
    assert row["why"].startswith("unified-1: unified-1/0 ")


def test_a_disk_that_is_full_keeps_ranks_from_being_started_and_not_from_being_stopped(
    serving: Site,
) -> None:
    before, folder = serving.record(), f"/var/lib/moe-infra/groups/{STACK}"
    copies = f"rm -rf /root/kept && cp -a {folder} /root/kept"
    for host in HOSTS:
        serving.sh(host, f"{copies} && mount -t tmpfs -o size=16k tmpfs {folder}")
        serving.sh(host, f"cp -a /root/kept/. {folder}; cat /dev/zero > {folder}/full")
    try:
        serving.sh(HOSTS[1], f"systemctl kill -s KILL --kill-who=main moe-{STACK}-engine@0")
        view = f"cat /run/moe-infra/groups/{STACK}/*.json"
        ended = "unified-1/0 was ended by signal 9"
        full = "/var/lib/moe-infra/groups cannot be written: No space left on device"
        waits = [f"{HOSTS[0]}: {full}", f"{HOSTS[1]}: {ended}; {full}"]
        serving.until(lambda: json.loads(serving.sh(HOSTS[0], view)).get("waits_for") == waits)
        assert not any(serving.is_running(host) for host in HOSTS)
        assert waits[0] in serving.fab("status")[2]
        for host in HOSTS:
            serving.sh(host, f"rm {folder}/full")
        row = serving.serves_again(before["epoch"])
        assert row["why"] == f"{HOSTS[1]}: {ended}"
    finally:
        for host in HOSTS:
            serving.sh(host, f"systemctl stop {WATCH}; rm -f {folder}/full; {copies}")
            serving.sh(host, f"umount {folder} && cp -a /root/kept/. {folder}")
            serving.sh(host, f"systemctl start {WATCH}")


def test_a_process_that_outlives_its_container_is_named_and_uses_up_no_restart(
    serving: Site,
) -> None:
    """In its control group, with a device open, as one that waits in a driver; somebody who watches devices is none."""
    before, host = serving.record(), HOSTS[1]
    container = f"moe-{STACK}-engine-0"
    group = (
        "/sys/fs/cgroup/left/docker-$(docker inspect --format '{{.Id}}' " + container + ").scope"
    )
    hold = "exec sleep 600 3</dev/davinci0"
    alone = ">/dev/null 2>&1 & echo $!"
    watches = serving.sh(host, f"setsid sh -c '{hold}' {alone}").strip()
    join = f'group={group}; mkdir -p "$group"; export group; '
    pid = serving.sh(host, f"{join}setsid sh -c 'echo $$ >$group/cgroup.procs; {hold}' {alone}")
    pid = pid.strip()
    try:
        serving.until(lambda: "docker-" in serving.sh(host, f"cat /proc/{pid}/cgroup"))
        serving.kill_rank()
        view = f"cat /run/moe-infra/groups/{STACK}/*.json"
        ended = f"{HOSTS[1]}/0 was ended by signal 9"
        waits = f"{host}: {ended}; process {pid} (sleep) of {host}/0 has outlived its unit"
        serving.until(lambda: json.loads(serving.sh(HOSTS[0], view)).get("waits_for") == [waits])
        serving.status_says(5, f"it waits for {waits}.", f"sudo cat /proc/{pid}/stack`")
        time.sleep(4)  # in which five starts would fail
        assert not any(serving.is_running(one) for one in HOSTS)
        during = serving.record()
        assert (during["phase"], during["epoch"]) == ("stop", before["epoch"])
        shows = "docker inspect --format '{{.State.Status}}' " + container
        assert serving.sh(host, shows) == "exited\n"  # it is kept
        serving.sh(host, f"kill {pid}")
        row = serving.serves_again(before["epoch"])
        assert row["why"] == f"{host}: {ended}"
        assert (row["epoch"], row["restarts"]) == (before["epoch"] + 1, before["restarts"] + 1)
    finally:
        serving.sh(host, f"kill {pid} {watches}")


def test_no_rank_is_started_beside_containers_of_a_runtime_that_is_down(serving: Site) -> None:
    """Its daemon is replaced: clients end, and containers live on (`live-restore`)."""
    before, host = serving.record(), HOSTS[1]
    left = serving.engine_pids(host)
    refuses = "Cannot connect to the Docker daemon. Is the docker daemon running?"
    down = "/usr/local/sbin/docker"  # comes first where units look
    program = f"#!/bin/sh\necho '{refuses}' >&2; exit 1\n"
    serving.lab.write_file(host, down, program.encode(), 0o755)
    try:
        serving.kill_rank()
        view = f"cat /run/moe-infra/groups/{STACK}/*.json"
        ended = f"{host}/0 was ended by signal 9"
        unknown = f"{refuses}: what is left of docker's containers is not known"
        waits = [f"{host}: {ended}; {unknown}"]
        serving.until(lambda: json.loads(serving.sh(HOSTS[0], view)).get("waits_for") == waits)
        serving.status_says(5, f"it waits for {waits[0]}.", " sudo docker ps`")
        time.sleep(4)  # in which five starts would fail
        assert serving.engine_pids(host) == left
        during = serving.record()
        assert (during["phase"], during["epoch"]) == ("stop", before["epoch"])
    finally:
        serving.sh(host, f"rm {down}")
    row = serving.serves_again(before["epoch"])
    assert row["why"] == f"{host}: {ended}"
    assert (row["epoch"], row["restarts"]) == (before["epoch"] + 1, before["restarts"] + 1)
    assert not set(left) & set(serving.engine_pids(host))


def test_a_unit_that_systemd_does_not_start_is_named_until_it_does(serving: Site) -> None:
    before, unit = serving.record(), f"moe-{STACK}-engine@0.service"
    unmasks = f"sudo systemctl unmask {unit}; sudo systemctl unmask --runtime {unit}"
    serving.sh(HOSTS[1], f"systemctl mask --runtime {unit}")
    try:
        serving.sh(HOSTS[1], f"systemctl kill -s KILL --kill-who=main {unit}")
        said = f"{HOSTS[1]}: systemctl start: Failed to start {unit}: Unit {unit} is masked."
        serving.until(lambda: serving.record()["why"] == said, 20.0)
        assert not serving.engine_pids(
            HOSTS[1]
        )  # though systemd ran nothing behind a unit that is masked
        serving.status_says(5, said, f"'{unmasks}'`")
        code, _, err = serving.fab("up")
        assert code == 3, err
        assert f"{HOSTS[1]}: Somebody masked units, so systemd would not start them" in err
        assert f"there: {unit}. `ssh " in err
        assert f"'{unmasks}'`" in err
    finally:
        serving.sh(HOSTS[1], unmasks)
    assert serving.serves_again(before["epoch"])["why"] == said


@pytest.mark.parametrize("left_alone", ["disable --now", "stop"])
def test_up_hands_over_anew_what_ended_while_its_watchers_were_off(
    serving: Site, left_alone: str
) -> None:
    for host in HOSTS:
        serving.lab.write_file(host, CONFIG, serving.installed[host])
        serving.sh(host, f"systemctl {left_alone} {WATCH}")
    serving.sh(HOSTS[1], f"systemctl kill -s KILL --kill-who=main moe-{STACK}-engine@0")
    serving.until(lambda: not serving.is_running(HOSTS[1]))
    code, _, err = serving.fab("restart")
    assert code == 3, err
    before = serving.record()
    code, _, err = serving.fab("up")
    assert code == 0, err
    time.sleep(1)  # ten times as long as watchers take to act on what they remember
    after = serving.record()
    assert (after["phase"], after["epoch"], after["why"]) == ("run", before["epoch"] + 1, "")
    assert all(serving.is_running(host) for host in HOSTS)


def test_a_start_that_systemd_does_not_take_is_told_in_its_own_words(serving: Site) -> None:
    unit = f"moe-{STACK}-engine@0.service"
    bad = f"/etc/systemd/system/{unit}.d"
    for host in HOSTS:
        serving.lab.write_file(host, CONFIG, serving.installed[host])
        serving.sh(host, f"systemctl disable --now {WATCH}")
    serving.kill_rank()
    serving.until(lambda: not serving.is_running(HOSTS[1]))
    setting = f"mkdir {bad} && printf '[Service]\nType=none\nExecStart=\n' > {bad}/x.conf"
    serving.sh(HOSTS[1], f"{setting} && systemctl daemon-reload")
    code, _, err = serving.fab("up")
    assert code == 5, err
    said = f"Failed to start {unit}: Unit {unit} has a bad unit file setting."
    assert f"{HOSTS[1]}: Systemd does not take the start: {said}" in err
    assert "started 2 engine processes" not in err
    serving.sh(HOSTS[1], f"rm -r {bad}; systemctl daemon-reload")
    code, _, err = serving.fab("up")
    assert code == 0, err


def test_what_is_taken_back_is_not_started_by_anybody(serving: Site) -> None:
    for host in HOSTS:
        serving.lab.write_file(host, CONFIG, serving.installed[host])
    serving.sh(HOSTS[1], f"systemctl disable --now {WATCH}")
    with in_time():
        code, out, err = serving.fab("verify")
    assert code == 6, err
    assert "unified-1: unified/0: nobody would start it again" in out
    after = serving.status_says(5, "unified-1: Nobody watches the ranks there")
    left = json.loads(serving.fab("status", "--json")[1])
    assert [process["ready"] for process in left["processes"]] == [True, True]
    assert [(error["where"], left["ok"]) for error in left["errors"]] == [("unified-1", False)]
    assert after.startswith("Next: fab up ")
    done = run(FAB, *shlex.split(after)[2:], timeout_s=LIMIT_S)
    assert done.returncode == 0, done.stderr
    serving.status_says(0)
    code, _, err = serving.fab("down")
    assert code == 0, err
    left = "ls -d /etc/moe-infra /var/lib/moe-infra/groups /run/moe-infra/groups 2>/dev/null"
    for host in HOSTS:
        assert (
            serving.sh(host, f"{left}; systemctl list-units --all --no-legend 'moe-{STACK}*'") == ""
        )
    code, _, err = serving.fab("restart")
    assert code == 3
    assert "Nothing of it is on its hosts" in err
