"""What a group of ranks on two real hosts waits for before it starts again, and who may start it: decision 21."""

from __future__ import annotations

import json
import shlex
import signal
import time
from collections.abc import Iterator

import pytest

from tests.cli.commands import FAB, run
from tests.cli.watched_group import (
    CONFIG,
    HOSTS,
    LIMIT_S,
    STACK,
    WATCH,
    Site,
    have_serve,
    kept_site,
)
from tests.naming import in_time

# Faults of hosts take the seconds that watchers wait before they believe them.
pytestmark = [pytest.mark.lab, pytest.mark.slow, pytest.mark.fault]


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with kept_site() as found:
        yield found


@pytest.fixture
def serving(site: Site) -> Site:
    have_serve(site)
    return site


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
    copies = f"rm -rf /opt/kept && cp -a {folder} /opt/kept"
    for host in HOSTS:
        serving.sh(host, f"{copies} && mount -t tmpfs -o size=16k tmpfs {folder}")
        serving.sh(host, f"cp -a /opt/kept/. {folder}; cat /dev/zero > {folder}/full")
    try:
        serving.sh(HOSTS[1], f"systemctl kill -s KILL --kill-who=main moe-{STACK}-engine@0")
        view = f"cat /run/moe-infra/groups/{STACK}/*.json"
        ended = "unified-1/0 was ended by signal 9"
        full = "/var/lib/moe-infra/groups cannot be written: No space left on device"
        waits = [f"{HOSTS[0]}: {full}", f"{HOSTS[1]}: {ended}; {full}"]
        serving.until(lambda: json.loads(serving.sh(HOSTS[0], view)).get("waits_for") == waits)
        assert not any(serving.is_running(host) for host in HOSTS)
        told = serving.fab("status")[2]
        assert waits[0] in told
        assert "The group does not start until that is mended. Make room on the disk of" in told
        assert "nothing to type" not in told
        for host in HOSTS:
            serving.sh(host, f"rm {folder}/full")
        row = serving.serves_again(before["epoch"])
        assert row["why"] == f"{HOSTS[1]}: {ended}"
    finally:
        for host in HOSTS:
            serving.sh(host, f"systemctl stop {WATCH}; rm -f {folder}/full; {copies}")
            serving.sh(host, f"umount {folder} && cp -a /opt/kept/. {folder}")
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
