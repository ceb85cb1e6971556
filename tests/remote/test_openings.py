"""Few connections are opened at once; who is connected to is asked beside them, and nobody waits after an interrupt."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager

import pytest

from infra.launch.fleet import SshFleet
from infra.remote.agent_session import AgentSession
from infra.remote.connecting import SshOptions
from infra.remote.failures import Unreachable
from infra.remote.host import SshHost
from infra.remote.openings import MAX_OPENINGS, Openings
from infra.remote.ssh_target import resolve_target
from tests.remote.loopback_sshd import Sshd, inventory_host
from tests.remote.opened import open_host

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


@contextmanager
def full(openings: Openings, most: int = MAX_OPENINGS) -> Iterator[ExitStack]:
    """All places are taken; the stack gives them back."""
    with ExitStack() as taken:
        for _ in range(most):
            taken.enter_context(openings.place("other"))
        yield taken


def test_no_more_are_opened_at_once_than_there_are_places() -> None:
    openings, guard = Openings(2), threading.Lock()
    running = most = 0

    def enter() -> None:
        nonlocal running, most
        with openings.place("h"):
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
            with openings.place("h"):
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
    with openings.place("h"):
        pass


def test_a_host_waits_for_a_place_and_holds_nobody_up_who_hangs_up(
    sshd: Sshd, options: SshOptions
) -> None:
    target = resolve_target(inventory_host(sshd), options.defaults, options.resources.ssh_config)
    host = SshHost(target, options)
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


@pytest.mark.fault
def test_after_an_interrupt_nobody_is_connected_to_any_more(
    sshd: Sshd, options: SshOptions
) -> None:
    names = [f"loop-{place}" for place in range(4)]
    fleet = SshFleet({name: inventory_host(sshd, name) for name in names}, options)

    fleet._agents["loop-0"] = Interrupted(fleet._hosts["loop-0"])
    before = set(threading.enumerate())
    with full(options.resources.openings):
        with pytest.raises(KeyboardInterrupt):
            fleet.ask({name: {"operation": "read"} for name in names}, timeout_s=LIMIT_S)
        limit = time.monotonic() + LIMIT_S
        while set(threading.enumerate()) - before:
            assert time.monotonic() < limit, "a host waits in line still"
            time.sleep(0.01)
    assert [host._connection for host in fleet._hosts.values()] == [None] * 4
