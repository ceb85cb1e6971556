"""Few connections are opened at once; who is connected to is asked beside them, and nobody waits after an interrupt."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from infra.launch.fleet import SshFleet
from infra.remote.agent_session import AgentSession
from infra.remote.connecting import SshOptions
from infra.remote.failures import Unreachable
from infra.remote.host import SshHost
from infra.remote.openings import MAX_OPENINGS, Openings
from infra.remote.ssh_target import SshTarget, resolve_target
from tests.remote.loopback_sshd import Sshd, inventory_host
from tests.remote.opened import open_host
from tests.remote.test_connecting import CARRY

LIMIT_S = 20.0
# Long enough for whoever should wait to be seen not waiting.
MOMENT_S = 0.3


class Interrupted(AgentSession):
    """Whoever asks it is interrupted."""

    def ask(
        self,
        request: Mapping[str, object],  # noqa: ARG002 - the parent's signature
        *,
        timeout_s: float,  # noqa: ARG002 - the same
    ) -> dict[str, object]:
        raise KeyboardInterrupt


class Awaited(SshHost):
    """A host that is still connecting when it is to be closed: as long as that takes, places become free."""

    def __init__(self, target: SshTarget, options: SshOptions, places: ExitStack) -> None:
        super().__init__(target, options)
        self._places = places
        self._others = set(threading.enumerate())

    def close(self) -> None:
        """Give all places back, and wait until nobody is asked any more."""
        self._places.close()
        wait_until_none_but(self._others)
        super().close()


def wait_until_none_but(others: set[threading.Thread]) -> None:
    limit = time.monotonic() + LIMIT_S
    while {thread for thread in threading.enumerate() if thread.name.startswith("host")} - others:
        assert time.monotonic() < limit, "a host waits in line still"
        time.sleep(0.01)


def unopened(sshd: Sshd, options: SshOptions, *arguments: str) -> SshHost:
    host = inventory_host(sshd, ssh_arguments=arguments)
    return SshHost(resolve_target(host, options.defaults, options.resources.ssh_config), options)


@contextmanager
def full(openings: Openings, most: int = MAX_OPENINGS) -> Iterator[ExitStack]:
    """All places are taken; the stack gives them back."""
    with ExitStack() as taken:
        for _ in range(most):
            taken.enter_context(openings.place("other", openings.line))
        yield taken


def test_no_more_are_opened_at_once_than_there_are_places() -> None:
    openings, guard = Openings(2), threading.Lock()
    running = most = 0

    def enter() -> None:
        nonlocal running, most
        with openings.place("h", openings.line):
            with guard:
                running += 1
                most = max(most, running)
            time.sleep(0.02)
            with guard:
                running -= 1

    threads = [threading.Thread(target=enter) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT_S)
    assert (running, most) == (0, 2)


def test_who_waits_in_line_is_sent_away_and_who_comes_later_is_let_in() -> None:
    openings, errors = Openings(1), list[Unreachable]()

    def wait_in_line() -> None:
        try:
            with openings.place("h", openings.line):
                pass
        except Unreachable as error:
            errors.append(error)

    with full(openings, 1):
        waiting = threading.Thread(target=wait_in_line)
        waiting.start()
        waiting.join(MOMENT_S)
        assert waiting.is_alive()
        openings.send_away()
        waiting.join(LIMIT_S)
        assert [str(error) for error in errors] == [
            "h: it was not connected to: the command was interrupted. Run it again."
        ]
    with openings.place("h", openings.line):
        pass


def test_a_host_waits_for_a_place_and_holds_nobody_up_who_hangs_up(
    sshd: Sshd, options: SshOptions
) -> None:
    host = unopened(sshd, options)
    opening = threading.Thread(target=host.open)
    with full(options.resources.openings):
        opening.start()
        opening.join(MOMENT_S)
        assert opening.is_alive()
        begun = time.monotonic()
        for _ in range(100):
            host.close()
        assert (
            time.monotonic() - begun < 5
        )  # each would wait 0.1 s for one that is being connected to
    opening.join(LIMIT_S)
    assert host.run("echo in", timeout_s=LIMIT_S).stdout == b"in\n"
    host.close()


def test_a_host_that_is_connected_to_needs_no_place(sshd: Sshd, options: SshOptions) -> None:
    host = open_host(inventory_host(sshd), options)
    with full(options.resources.openings):
        assert host.run("echo in", timeout_s=LIMIT_S).stdout == b"in\n"
    host.close()


def fleet_of_four(sshd: Sshd, options: SshOptions) -> tuple[list[str], SshFleet]:
    names = [f"loop-{place}" for place in range(4)]
    return names, SshFleet({name: inventory_host(sshd, name) for name in names}, options)


@pytest.mark.fault
def test_after_an_interrupt_nobody_is_connected_to_any_more(
    sshd: Sshd, options: SshOptions
) -> None:
    names, fleet = fleet_of_four(sshd, options)

    fleet._agents["loop-0"] = Interrupted(fleet._hosts["loop-0"])
    before = set(threading.enumerate())
    with full(options.resources.openings):
        with pytest.raises(KeyboardInterrupt):
            fleet.ask({name: {"operation": "read"} for name in names}, timeout_s=LIMIT_S)
        wait_until_none_but(before)
    assert [host._connection for host in fleet._hosts.values()] == [None] * 4


@pytest.mark.fault
def test_a_place_that_becomes_free_after_an_interrupt_is_nobodys(
    sshd: Sshd, options: SshOptions
) -> None:
    names, fleet = fleet_of_four(sshd, options)
    with full(options.resources.openings) as taken:
        awaited = Awaited(fleet._hosts["loop-0"].target, options, taken)
        fleet._hosts["loop-0"], fleet._agents["loop-0"] = awaited, Interrupted(awaited)
        opened = sessions_of(sshd)
        with pytest.raises(KeyboardInterrupt):
            fleet.ask({name: {"operation": "read"} for name in names}, timeout_s=LIMIT_S)
    assert sessions_of(sshd) == opened


def sessions_of(sshd: Sshd) -> int:
    """How many logins an sshd has seen."""
    return (sshd.folder / "log").read_text().count("Accepted publickey")


@pytest.mark.fault
def test_who_is_connecting_at_an_interrupt_hangs_up(
    sshd: Sshd, options: SshOptions, tmp_path: Path
) -> None:
    begun, go = tmp_path / "begun", tmp_path / "go"
    (tmp_path / "carry.py").write_text(CARRY)
    waits = f"touch {begun}; until test -e {go}; do sleep 0.02; done"
    (tmp_path / "proxy").write_text(f"{waits}; exec {sys.executable} -I {tmp_path}/carry.py $1 $2")
    host = unopened(sshd, options, "-o", f"ProxyCommand=sh {tmp_path}/proxy %h %p")
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(host.run, "echo in", timeout_s=LIMIT_S)
        limit = time.monotonic() + LIMIT_S
        while not begun.exists():
            assert time.monotonic() < limit
            time.sleep(0.01)
        options.resources.openings.send_away()
        host.close()
        go.touch()
        with pytest.raises(Unreachable, match="the command was interrupted"):
            asked.result()
    assert host._connection is None
    assert host.run("echo in", timeout_s=LIMIT_S).stdout == b"in\n"
    host.close()


@pytest.mark.fault
def test_an_agent_that_was_to_be_started_before_an_interrupt_is_not(
    sshd: Sshd, options: SshOptions
) -> None:
    host = unopened(sshd, options)
    session = AgentSession(host)
    start = session.prepare(["read"])
    options.resources.openings.send_away()
    start()
    assert host._connection is None
    with pytest.raises(Unreachable, match="the command was interrupted"):
        session.ask({"operation": "read", "paths": []}, timeout_s=LIMIT_S)
    # a lease is given back after an interrupt
    assert session.ask({"operation": "read", "paths": []}, timeout_s=LIMIT_S)["files"] == {}
    host.close()
