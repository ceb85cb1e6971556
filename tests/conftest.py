"""Guards around every test: no network, no cloud account of the developer's, nothing left behind."""

from __future__ import annotations

import gc
import ipaddress
import math
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from _pytest.runner import runtestprotocol

from tests.slow_groups import CHOOSING_SLOW, SlowGroups, may_be_slow, put_longest_first

if TYPE_CHECKING:
    from infra.catalog.load import Catalog

OUTSIDE = ("lab", "pulumi")  # these reach what they started themselves, beyond loopback
MAY_SLEEP = (*OUTSIDE, "slow")
FOREIGN_PREFIXES = ("AWS_", "PULUMI_")
FOREIGN_NAMES = ("KUBECONFIG",)
CHANGED_BY_PYTEST = (b"PYTEST_CURRENT_TEST",)
LONGEST_SLEEP_S = 1.0
SSH_CONFIG = str(Path("~/.ssh/config").expanduser())


# Started behind `&` in a script, tests would have every program of theirs ignore the interrupts that they send it.
signal.signal(signal.SIGINT, signal.default_int_handler)


class GuardError(AssertionError):
    """A test reached for something outside itself."""


class _Guard:
    """What the audit hook and `time.sleep` ask: a hook cannot be removed, so this is switched."""

    is_on = False
    longest_sleep_s = math.inf


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden", action="store_true", help="write tests/golden/ anew; then read the diff"
    )


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Modules and tests are objects that stay: whoever looks through them for garbage finds none, now and later."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """A run of slow tests alone loads the files that have some."""
    is_left_out = config.option.markexpr in CHOOSING_SLOW and not may_be_slow(collection_path)
    return is_left_out or None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Workers that are handed groups of tests (`--dist loadgroup`) have the longest first."""
    if getattr(config.option, "loadgroup", False):
        put_longest_first(items)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> SlowGroups | None:
    """What hands groups of tests to workers (`--dist loadgroup`)."""
    return SlowGroups(config, log) if config.getoption("dist") == "loadgroup" else None


def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool:
    """Report of a test that its call passed, and whatever else did not: its times stand in the call's.

    A worker's report costs both sides more than a short test does, and pytest makes three of each.
    """
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    reports = runtestprotocol(item, log=False, nextitem=nextitem)
    called = next((report for report in reports if report.when == "call"), None)
    for report in reports:
        if called is not None and report is not called and report.passed:
            called.duration += report.duration
    for report in reports:
        if report is called or not report.passed:
            item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


@pytest.fixture
def update_golden(request: pytest.FixtureRequest) -> bool:
    """Whether golden files are written instead of compared."""
    return bool(request.config.getoption("--update-golden"))


@pytest.fixture(scope="session")
def catalog() -> Catalog:
    """The shipped catalogue, each file read once per session."""
    # here: the process that hands tests to workers reads this file, too, and needs none
    from infra.catalog.load import Catalog  # noqa: PLC0415

    return Catalog()


def _is_loopback(host: object) -> bool:
    text = str(host, "ascii", "replace") if isinstance(host, bytes) else str(host or "")
    if text in {"", "localhost", "0.0.0.0", "::"}:
        return True
    try:
        return ipaddress.ip_address(text.partition("%")[0]).is_loopback
    except ValueError:
        return text == socket.gethostname()


def _is_number(host: object) -> bool:
    try:
        ipaddress.ip_address(str(host).partition("%")[0])
    except ValueError:
        return False
    return True


def _watch(event: str, arguments: tuple[object, ...], guard: type[_Guard] = _Guard) -> None:
    """The audit hook: called for every event of the interpreter, so quick for those of no interest.

    The guard is an argument, for in the interpreter's last moments the module's own names are gone.
    """
    if not guard.is_on:
        return
    if event == "open":
        if arguments[0] == SSH_CONFIG:
            raise GuardError(f"The test read {SSH_CONFIG}: give the code a file of the test's own.")
    elif event == "socket.connect":
        address = arguments[1]
        if isinstance(address, tuple) and not _is_loopback(address[0]):
            raise GuardError(
                f"The test connected to {address[0]}:{address[1]}: only loopback is there."
            )
    elif event == "socket.getaddrinfo":
        host = arguments[0]
        if not _is_loopback(host) and not _is_number(host):
            raise GuardError(f"The test looked up {host!r}: no name is known in tests.")


sys.addaudithook(_watch)


@pytest.fixture(autouse=True)
def guarded(request: pytest.FixtureRequest) -> Iterator[None]:
    """No sockets but loopback, no name look-ups, no `~/.ssh/config`, no long sleep, an environment of its own.

    Tests wait for events, with short polls; only marked ones may sleep. No variable of a cloud account or cluster is
    seen, and none stays changed. One fixture and not one for each: every test of thousands has it.
    """
    marks = {mark.name for mark in request.node.iter_markers()}
    _Guard.is_on = marks.isdisjoint(OUTSIDE)
    _Guard.longest_sleep_s = LONGEST_SLEEP_S if marks.isdisjoint(MAY_SLEEP) else math.inf
    foreign = {name: os.environ.pop(name) for name in _names() if _is_foreign(name)}
    before = _variables()
    yield
    _Guard.is_on, _Guard.longest_sleep_s = False, math.inf
    after = _variables()
    os.environ.update(foreign)
    if before != after:
        _refuse_changes(before, after)


def _refuse_changes(before: Mapping[bytes, bytes], after: Mapping[bytes, bytes]) -> None:
    changed = {name for name in {*before, *after} if before.get(name) != after.get(name)}
    wrong = sorted(name for name in map(os.fsdecode, changed) if not _is_foreign(name))
    if wrong:
        raise GuardError(f"The test left these variables changed: {', '.join(wrong)}.")


def _short_sleep(seconds: float, sleep: Callable[[float], None] = time.sleep) -> None:
    """`time.sleep`, which refuses a test what it is to wait for otherwise."""
    if seconds > _Guard.longest_sleep_s:
        raise GuardError(f"The test sleeps {seconds} s: wait for the event, or pass a clock.")
    sleep(seconds)


pytest.MonkeyPatch().setattr(time, "sleep", _short_sleep)


def _names() -> list[str]:
    return os.fsdecode(b"\0".join(_variables())).split("\0")


def _variables() -> dict[bytes, bytes]:
    """All of the environment that tests may not change; decoding it for each would cost what a short test does."""
    held: dict[bytes, bytes] = vars(os.environ)["_data"]
    variables = held.copy()
    for name in CHANGED_BY_PYTEST:
        variables.pop(name, None)
    return variables


def _is_foreign(name: str) -> bool:
    return name.startswith(FOREIGN_PREFIXES) or name in FOREIGN_NAMES
