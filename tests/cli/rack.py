"""Hosts of a kept rehearsal and the `fab` that is typed at them: to its end, or only until something is said."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from infra.rehearsal.lab import registry
from infra.rehearsal.lab.client import Lab
from tests.cli.commands import FAB, begin, need_lab, run, run_elsewhere

STACK = "a2-2n-dp4tp4"
HOSTS = ("unified-0", "unified-1")
# The agent's lease: as long a machine that has vanished keeps others away.
LEASE_S = 20.0


@dataclass(frozen=True)
class Rack:
    """Tuned hosts, of which the stack uses two."""

    inventory: Path
    ssh_config: str
    lab: Lab

    def words(self, *words: str) -> list[str]:
        return [FAB, words[0], "--stack", STACK, "--inventory", str(self.inventory), *words[1:]]

    def fab(self, *words: str) -> subprocess.CompletedProcess[str]:
        return run(*self.words(*words))

    def fab_elsewhere(self, *words: str) -> subprocess.CompletedProcess[str]:
        return run_elsewhere(*self.words(*words))

    def begin(self, *words: str) -> subprocess.Popen[str]:
        return begin(*self.words(*words))

    def ssh(self, host: str, command: str) -> str:
        return run("ssh", "-n", "-F", self.ssh_config, host, command).stdout

    def left(self, host: str) -> str:
        """Everything of ours and every unit of the stack on a host."""
        return self.ssh(
            host,
            "sudo find /etc /var/lib/moe-infra -path '*moe*' | sort;"
            f"systemctl list-units --all --no-legend 'moe-{STACK}*'; sudo docker ps -aq",
        )

    def agents(self) -> list[tuple[str, ...]]:
        """Agents that still work on any host, and the program that a test has made slow."""
        signs = ("zlib", SLOW_S)
        return [
            argv
            for host in HOSTS
            for _, argv in self.lab.processes(host)
            if any(sign in word for word in argv for sign in signs)
        ]


@contextmanager
def kept_rack(*words: str) -> Iterator[tuple[str, Path, Lab]]:
    """The ssh_config, inventory and lab of a rehearsal that is kept after tuning."""
    need_lab()
    done = run(FAB, "rehearse", "--stack", STACK, *words, "--keep", "--to-step", "tune", "--json")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    try:
        lab = Lab(next(one for one in registry.read_entries() if one.id == document["id"]))
        yield document["ssh_config"], Path(document["inventory"]), lab
    finally:
        run(FAB, "rehearse", "--stop", document["id"])


# How long a program that a test has made slow sleeps, as it stands in the process table.
SLOW_S = "61.7"
SLOW = f"#!/bin/sh\nexec sleep {SLOW_S}\n".encode()


@dataclass(frozen=True)
class Ended:
    """A command that a signal has ended, and the rest of what it said."""

    code: int
    said: str
    seconds: float


def until_said(started: subprocess.Popen[str], sign: str) -> None:
    """Wait until a command has said something."""
    assert started.stderr is not None
    for line in started.stderr:
        if sign in line:
            return
    pytest.fail(f"it ended with {started.wait()} and never said {sign!r}")


def until(what: Callable[[], object], limit_s: float = 30.0) -> None:
    """Wait for something."""
    deadline = time.monotonic() + limit_s
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def end(started: subprocess.Popen[str], *signals: signal.Signals) -> Ended:
    """Send a command these signals, a twentieth of a second apart, and wait for its end."""
    begun = time.monotonic()
    for number in signals:
        started.send_signal(number)
        time.sleep(0.05)
    try:
        _, said = started.communicate(timeout=30)
    except subprocess.TimeoutExpired:
        had_ended = started.poll() is not None
        started.send_signal(signal.SIGABRT)  # faulthandler says where every thread is
        _, said = started.communicate(timeout=10)
        raise AssertionError(f"not heeded; its process had ended: {had_ended}\n{said}") from None
    return Ended(started.returncode, said, time.monotonic() - begun)
