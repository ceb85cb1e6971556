"""The same thing on many hosts: bounded, ordered, one failing leaves the others alone."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from infra.errors import HostsFailed, InfraError
from infra.remote.failures import (
    HostFailure,
    SeveralHostsFailed,
    SudoRefused,
    Unreachable,
    failure_table,
)
from infra.remote.fan_out import failures_of, run_on_all


@dataclass(frozen=True)
class Named:
    name: str


HOSTS = [Named(f"host-{index}") for index in range(5)]


def fails_on(*names: str) -> Callable[[Named], str]:
    def function(host: Named) -> str:
        if host.name in names:
            raise Unreachable(host.name, f"{host.name} port 22 refuses.", "Start sshd.")
        return host.name.upper()

    return function


def test_results_come_in_the_hosts_order() -> None:
    def slow_first(host: Named) -> str:
        time.sleep(0.05 if host.name == "host-0" else 0)
        return host.name

    results = run_on_all(HOSTS, slow_first)
    assert list(results) == [host.name for host in HOSTS]
    assert results["host-4"].unwrap() == "host-4"
    assert all(result.seconds >= 0 for result in results.values())


def test_no_hosts_are_no_results() -> None:
    assert run_on_all([], lambda host: host) == {}


def test_one_failure_is_itself() -> None:
    results = run_on_all(HOSTS, fails_on("host-1"))
    assert [failure.host for failure in failures_of(results)] == ["host-1"]
    assert results["host-2"].value == "HOST-2"
    with pytest.raises(Unreachable):
        results["host-1"].unwrap()


def test_several_failures_are_one_table_grouped_by_kind() -> None:
    def function(host: Named) -> str:
        if host.name == "host-4":
            raise SudoRefused(host.name, "sudo wants a password.", "Give NOPASSWD.")
        raise Unreachable(host.name, f"{host.name} port 22 refuses.", "Start sshd.")

    failures = failures_of(run_on_all(HOSTS, function))
    error = SeveralHostsFailed(failures, len(HOSTS))
    assert error.exit_code == 4
    assert str(error) == (
        "5 of 5 hosts failed:\n"
        "  host-0, host-1, host-2, host-3  the host port 22 refuses. Start sshd.\n"
        "  host-4                          sudo wants a password. Give NOPASSWD."
    )


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("host-1 has no sudo.", "the host has no sudo."),
        ("of two: host-1.", "of two: the host."),
        ("host-1/0 ended.", "host-1/0 ended."),
        ("host-10 and host-1.example.com do.", "host-10 and host-1.example.com do."),
        ("host-1: type `ssh host-1`.", "the host: type `ssh host-1`."),
    ],
    ids=["alone", "last", "rank", "longer", "command"],
)
def test_only_what_is_said_of_a_host_itself_is_said_of_all(said: str, shown: str) -> None:
    row = failure_table([HostFailure("host-1", HostsFailed("host-1", said, ""))])
    assert row == f"  host-1  {shown}"


def test_a_bug_is_not_a_host_failure() -> None:
    def broken(_: Named) -> str:
        raise KeyError("bug")

    with pytest.raises(KeyError):
        run_on_all(HOSTS, broken)


def test_an_interrupt_lets_nobody_wait_on() -> None:
    """The host that is interrupted ends the run; the other one is told by `close`."""

    class Waiting:
        def __init__(self, name: str) -> None:
            self.name = name
            self.closed = threading.Event()

        def close(self) -> None:
            self.closed.set()

    hosts = [Waiting("interrupted"), Waiting("waits")]
    started, ended = threading.Event(), threading.Event()

    def function(host: Waiting) -> None:
        if host.name == "interrupted":
            assert started.wait(5)
            raise KeyboardInterrupt
        started.set()
        host.closed.wait(10)
        ended.set()

    begun = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        run_on_all(hosts, function)
    assert ended.wait(5)
    assert time.monotonic() - begun < 5


def test_an_interrupt_that_another_thread_took_is_heeded() -> None:
    """The kernel gives a signal to any thread; one that comes just before the main thread waits is like that."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    over = threading.Event()

    def function(_: Named) -> None:
        time.sleep(0.2)  # the main thread waits by then
        signal.pthread_kill(threading.get_ident(), signal.SIGINT)
        over.wait(10)

    begun = time.monotonic()
    try:
        with pytest.raises(KeyboardInterrupt):
            run_on_all([Named("a")], function)
        assert time.monotonic() - begun < 5
    finally:
        over.set()
        signal.signal(signal.SIGINT, before)


def test_after_an_interrupt_those_who_wait_for_something_else_know_before_hosts_are_closed() -> (
    None
):
    told: list[str] = []

    @dataclass(frozen=True)
    class Closed(Named):
        def close(self) -> None:
            told.append(self.name)

    def interrupted(_: Closed) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_on_all([Closed("a")], interrupted, before_closing=lambda: told.append("all"))
    assert told == ["all", "a"]


def test_the_limit_holds() -> None:
    running, most, guard = 0, 0, threading.Lock()

    def count(_: Named) -> None:
        nonlocal running, most
        with guard:
            running += 1
            most = max(most, running)
        time.sleep(0.02)
        with guard:
            running -= 1

    run_on_all(HOSTS, count, limit=2)
    assert most == 2


def test_the_errors_are_ours() -> None:
    assert issubclass(SeveralHostsFailed, InfraError)
