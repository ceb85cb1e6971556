"""`fab` interrupted or killed while hosts work for it: nothing runs on, nothing is half done, and it goes on."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import chain, cycle

import pytest

from infra.launch.preflight.group_collectives.adding_up import MARK
from tests.cli.rack import (
    HOSTS,
    LEASE_S,
    SLOW,
    SLOW_S,
    STACK,
    Ended,
    Rack,
    end,
    kept_rack,
    until,
    until_said,
)

# Real sshd, systemd and engines on two simulated hosts: each call of `fab` takes seconds.
pytestmark = [pytest.mark.lab, pytest.mark.slow, pytest.mark.fault]

INT, KILL = signal.SIGINT, signal.SIGKILL
# The second time an impatient operator presses Ctrl-C twice.
ENDS = {"kill": ((KILL,), (KILL,)), "interrupt": ((INT,), (INT, INT))}
LEASE = f"/run/moe-infra/leases/{STACK}.json"
UNFINISHED = f"/var/lib/moe-infra/releases/{STACK}/unfinished"
WATCHED = f"/etc/systemd/system/multi-user.target.wants/moe-{STACK}-watch.service"
ENGINE = f"moe-{STACK}-engine@0"
# Long enough to meet `up` while it waits, short enough to wait for.
LOAD_S = 2.0
FACTS = "/var/lib/moe-rehearsal/host.json"
# A program that tuning and preflight run on every host.
CLOCK = "/usr/local/bin/timedatectl"
AT_ONCE_S = 5.0
# A systemctl that does not tell which units systemd knows: files have been laid out then, and nothing is finished.
SYSTEMCTL = "/usr/local/bin/systemctl"
MUTE = f'#!/bin/sh\n[ "$1" != list-units ] || exec sleep {SLOW_S}\nexec /usr/bin/systemctl "$@"\n'


@pytest.fixture(scope="module")
def rack() -> Iterator[Rack]:
    with kept_rack() as (ssh_config, inventory, lab):
        for host in HOSTS:
            facts = json.loads(lab.read_file(host, FACTS))
            lab.write_file(host, FACTS, json.dumps({**facts, "load_seconds": LOAD_S}).encode())
        yield Rack(inventory, ssh_config, lab)


def is_there(rack: Rack, path: str) -> bool:
    return rack.lab.run(HOSTS[-1], ["test", "-e", path]).returncode == 0


def check_end(rack: Rack, ended: Ended, signals: tuple[signal.Signals, ...]) -> None:
    """It left as it was told to, at once, and nobody works for it on the hosts any more."""
    assert "Traceback" not in ended.said
    if signals == (KILL,):
        assert ended.code == -KILL
    else:
        assert ended.code == 130, ended.said
        assert ended.said.rstrip().endswith("Interrupted.")
        assert ended.seconds < AT_ONCE_S
    until(lambda: not rack.agents(), AT_ONCE_S)


def starts(rack: Rack) -> list[str]:
    """systemd's id of each engine's start."""
    return [rack.ssh(host, f"systemctl show -p InvocationID --value {ENGINE}") for host in HOSTS]


def journal(rack: Rack, host: str) -> str:
    """What the watcher and the engine of a host have said last, and systemd of them."""
    units = f"-u moe-{STACK}-watch -u {ENGINE}"
    return rack.ssh(host, f"sudo journalctl -o short-precise --no-pager -n 60 {units}")


@pytest.mark.parametrize("how", ENDS)
def test_up_that_ends_in_any_phase_goes_on_and_down_leaves_what_it_found(
    rack: Rack, how: str
) -> None:
    found, ways = [rack.left(host) for host in HOSTS], cycle(ENDS[how])

    def up_until(phase: Callable[[subprocess.Popen[str]], None]) -> Ended:
        started, signals = rack.begin("up"), next(ways)
        phase(started)
        ended = end(started, *signals)
        check_end(rack, ended, signals)
        return ended

    up_until(lambda _: until(lambda: is_there(rack, LEASE)))
    assert [rack.left(host) for host in HOSTS] == found
    with mute_systemd(rack):
        up_until(lambda _: until(lambda: is_there(rack, UNFINISHED)))
    assert rack.fab("status").returncode == 5
    assert rack.fab("down").returncode == 0
    assert [rack.left(host) for host in HOSTS] == found
    up_until(lambda started: until_said(started, "installed on"))
    # those that the one before had begun to start are told of as running
    ended = up_until(lambda started: until_said(started, " engine processes "))
    before = starts(rack)
    assert all(before)
    if how == "interrupt":
        assert f"`fab up --stack {STACK}" in ended.said
        assert f"`fab down --stack {STACK}" in ended.said
    # nothing but an `up` that has proven every rank has anybody start them again
    assert not is_there(rack, WATCHED)
    up_until(lambda started: until_said(started, "ranks has generated"))
    assert starts(rack) == before
    # the one before may have come so far: then this one is at work as soon as it holds the hosts
    up_until(lambda _: until(lambda: is_there(rack, LEASE) and is_there(rack, WATCHED)))
    done = rack.fab("up", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["ok"] is True
    assert rack.fab("status").returncode == 0
    assert starts(rack) == before, "\n".join([done.stderr, *map(partial(journal, rack), HOSTS)])
    down = rack.begin("down")
    until_said(down, "stopping unified")
    signals = next(ways)
    ended = end(down, *signals)
    check_end(rack, ended, signals)
    assert how == "kill" or f"Not down yet: `fab down --stack {STACK}" in ended.said
    assert rack.fab("down").returncode == 0
    assert [rack.left(host) for host in HOSTS] == found


@contextmanager
def mute_systemd(rack: Rack) -> Iterator[None]:
    """Hosts on which an installation stops in its middle."""
    for host in HOSTS:
        rack.lab.write_file(host, SYSTEMCTL, MUTE.encode(), 0o755)
    try:
        yield
    finally:
        for host in HOSTS:
            rack.lab.run(host, ["rm", SYSTEMCTL])


# A docker whose images come as long as somebody wants, and are there from then on.
DOCKER = "/usr/local/sbin/docker"
GATE, ALL_FACTS = "/opt/gate", "/root/host.json"
PULLS = f"""#!/bin/sh
[ "$1" = pull ] || exec /usr/local/bin/docker "$@"
while [ -e {GATE} ]; do sleep 0.1; done
cp {ALL_FACTS} {FACTS}
"""


@contextmanager
def lacking_image(rack: Rack) -> Iterator[None]:
    """Hosts without the engine's image; none comes while the gate is there."""
    kept = [rack.lab.read_file(host, FACTS) for host in HOSTS]
    for host, facts in zip(HOSTS, kept, strict=True):
        rack.lab.write_file(host, GATE, b"")
        rack.lab.write_file(host, ALL_FACTS, facts)
        rack.lab.write_file(host, FACTS, json.dumps({**json.loads(facts), "images": []}).encode())
        rack.lab.write_file(host, DOCKER, PULLS.encode(), 0o755)
    try:
        yield
    finally:
        for host, facts in zip(HOSTS, kept, strict=True):
            rack.lab.write_file(host, FACTS, facts)
            rack.lab.run(host, ["rm", "-f", GATE, ALL_FACTS, DOCKER])


def pulling(rack: Rack) -> list[str]:
    """Hosts on which an image is being pulled."""
    return [
        host
        for host in HOSTS
        if any(DOCKER in argv and "pull" in argv for _, argv in rack.lab.processes(host))
    ]


def test_up_that_is_killed_or_freezes_while_it_pulls_an_image_is_gone_on_with(rack: Rack) -> None:
    """A host that works for long keeps the lease of whoever lives, and of nobody else."""
    found = [rack.left(host) for host in HOSTS]
    with lacking_image(rack):
        killed = rack.begin("up")
        until(lambda: pulling(rack) == list(HOSTS))
        check_end(rack, end(killed, KILL), (KILL,))
        assert not pulling(rack)
        assert [rack.left(host) for host in HOSTS] == found
        gone = rack.begin("up")
        until(lambda: pulling(rack) == list(HOSTS))
        begun = time.monotonic()
        until(lambda: time.monotonic() > begun + LEASE_S + AT_ONCE_S, 2 * LEASE_S)
        assert pulling(rack) == list(HOSTS)
        refused = rack.fab_elsewhere("up")
        assert refused.returncode == 3, refused.stderr
        assert f"holds stack {STACK} with `fab up` since 20" in refused.stderr
        gone.send_signal(signal.SIGSTOP)
        try:
            frozen = time.monotonic()
            until(lambda: not pulling(rack), LEASE_S)
            until(lambda: time.monotonic() > frozen + LEASE_S)
            for host in HOSTS:
                rack.lab.run(host, ["rm", GATE])
            done = rack.fab_elsewhere("up")
            assert done.returncode == 0, done.stderr
        finally:
            gone.send_signal(signal.SIGCONT)
        before = starts(rack)
        _, said = gone.communicate(timeout=30)
    assert gone.returncode == 4, said
    assert "The lease was lost" in said
    assert starts(rack) == before
    assert rack.fab("status").returncode == 0
    assert rack.fab("down").returncode == 0
    assert [rack.left(host) for host in HOSTS] == found


def test_a_replacement_that_is_killed_while_it_stops_groups_is_gone_on_with(rack: Rack) -> None:
    found = [rack.left(host) for host in HOSTS]
    edited = ("--set", "roles.unified.max_num_seqs=9")
    assert rack.fab("up").returncode == 0
    changes = json.loads(rack.fab("diff", *edited, "--json").stdout)["changes"]
    release = next(row["before"] for row in changes if row["what"] == "release")
    for wanted, is_there in (((*edited, "--replace"), edited), (("--release", release), ())):
        before = starts(rack)
        killed = rack.begin("up", *wanted)
        until_said(killed, "stopping unified")
        check_end(rack, end(killed, KILL), (KILL,))
        assert rack.fab("status").returncode == 5
        done = rack.fab("up", *wanted, "--json")
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["ok"] is True
        assert not set(starts(rack)) & set(before)
        assert rack.fab("diff", *is_there).returncode == 0
    assert rack.fab("down").returncode == 0
    assert [rack.left(host) for host in HOSTS] == found


@contextmanager
def slow_program(rack: Rack) -> Iterator[None]:
    """Hosts on which a program that is asked in passing takes a minute."""
    kept = [rack.lab.read_file(host, CLOCK) for host in HOSTS]
    for host in HOSTS:
        rack.lab.write_file(host, CLOCK, SLOW, 0o755)
    try:
        yield
    finally:
        for host, content in zip(HOSTS, kept, strict=True):
            rack.lab.write_file(host, CLOCK, content, 0o755)


def is_slow(rack: Rack) -> bool:
    """Whether every host is in the middle of it."""
    return all(
        SLOW_S in chain.from_iterable(argv for _, argv in rack.lab.processes(host))
        for host in HOSTS
    )


def knobs(rack: Rack) -> list[str]:
    """What tuning sets, as far as it can be told apart."""
    look = "sysctl -n vm.swappiness kernel.numa_balancing net.ipv4.ip_local_reserved_ports; ls /etc/sysctl.d"
    return [rack.ssh(host, look) for host in HOSTS]


def test_tuning_that_is_interrupted_is_finished_or_taken_back(rack: Rack) -> None:
    tuned = knobs(rack)
    assert rack.fab("tune-hosts", "--rollback").returncode == 0
    found = knobs(rack)
    assert found != tuned
    finishes = (("tune-hosts", "--rollback"), ("tune-hosts",))
    for finish, signals in zip(finishes, ENDS["interrupt"], strict=True):
        with slow_program(rack):
            started = rack.begin("tune-hosts")
            until(lambda: is_slow(rack))
            ended = end(started, *signals)
            check_end(rack, ended, signals)
        assert f"fab tune-hosts --stack {STACK}" in ended.said
        assert "--rollback` takes all of it back" in ended.said
        done = rack.fab(*finish)
        assert done.returncode == 0, done.stderr
        assert knobs(rack) == (found if "--rollback" in finish else tuned)
    assert rack.fab("tune-hosts", "--check").returncode == 0


def test_an_interrupted_preflight_leaves_nothing_running(rack: Rack) -> None:
    before = [rack.left(host) for host in HOSTS]
    with slow_program(rack):
        started = rack.begin("preflight")
        until(lambda: is_slow(rack))
        check_end(rack, end(started, INT), (INT,))
    assert [rack.left(host) for host in HOSTS] == before
    assert rack.fab("preflight").returncode == 0


def adding_up(rack: Rack) -> list[str]:
    """Hosts on which ranks of a group's collective run."""
    return [
        host
        for host in HOSTS
        if any(MARK in word for _, argv in rack.lab.processes(host) for word in argv)
    ]


@pytest.mark.parametrize("how", [INT, KILL])
def test_a_group_that_adds_up_is_ended_with_the_command(rack: Rack, how: signal.Signals) -> None:
    before = [rack.left(host) for host in HOSTS]
    facts = rack.lab.read_file(HOSTS[-1], FACTS)
    silent = {**json.loads(facts), "faults": {"collective_silent": True}}
    rack.lab.write_file(HOSTS[-1], FACTS, json.dumps(silent).encode())
    try:
        started = rack.begin("preflight")
        until(lambda: adding_up(rack) == list(HOSTS))
        check_end(rack, end(started, how), (how,))
        until(lambda: not adding_up(rack) and [rack.left(host) for host in HOSTS] == before)
    finally:
        rack.lab.write_file(HOSTS[-1], FACTS, facts)
