"""The same thing on many hosts at once, failures kept per host."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from infra.errors import InfraError
from infra.remote.failures import HostFailure

# How soon an interrupt is met that the wait for hosts has missed.
WAKE_S = 0.5
T = TypeVar("T")


class Named(Protocol):
    """Anything that stands for one host."""

    @property
    def name(self) -> str:
        """The inventory's name."""
        ...


H = TypeVar("H", bound=Named)


@dataclass(frozen=True, slots=True, kw_only=True)
class Result(Generic[T]):
    """What came of one host.

    Args:
        host: its name.
        value: what the function returned, None when it failed.
        error: why it failed, None when it did not.
        seconds: how long it took.
    """

    host: str
    value: T | None
    error: InfraError | None
    seconds: float

    def unwrap(self) -> T:
        """The value.

        Raises:
            InfraError: the host failed.
        """
        if self.error is not None:
            raise self.error
        # T may be None itself: there is nothing to narrow
        return self.value  # type: ignore[return-value]


def _nothing() -> None:
    """Stands for the `close` of hosts that hold no connection, and for whoever need not know of an end."""


def run_on_all(
    hosts: Sequence[H],
    function: Callable[[H], T],
    *,
    limit: int | None = None,
    before_closing: Callable[[], None] = _nothing,
) -> dict[str, Result[T]]:
    """What the function gives for every host, in the hosts' order; one failing leaves the others alone.

    The function bounds its own time. An error that is not ours is a bug and is raised at once.

    Args:
        hosts: each with a name of its own.
        function: runs in a thread for each host.
        limit: how many hosts at once; None for all of them, which hosts that wait for each other need.
        before_closing: called first of all after an interrupt or a bug; the hosts that have a `close` are closed then.
    """
    if not hosts:
        return {}
    pool = ThreadPoolExecutor(
        max_workers=min(limit or len(hosts), len(hosts)), thread_name_prefix="host"
    )
    try:
        futures: dict[str, Future[Result[T]]] = {
            host.name: pool.submit(_one, host, function) for host in hosts
        }
        _await(futures.values())
        return {name: future.result() for name, future in futures.items()}
    except BaseException:
        # After Ctrl-C: with a limit, what has not begun never does; without one all have. Closing takes its time for
        # each host that is being connected to, so whoever waits for something else has to know before it begins.
        pool.shutdown(wait=False, cancel_futures=True)
        before_closing()
        for host in hosts:
            getattr(host, "close", _nothing)()
        raise
    finally:
        pool.shutdown(wait=False)


def failures_of(results: Mapping[str, Result[T]]) -> tuple[HostFailure, ...]:
    """The hosts that failed, in order."""
    return tuple(
        HostFailure(host=result.host, error=result.error)
        for result in results.values()
        if result.error is not None
    )


def _await(futures: Iterable[Future[Result[T]]]) -> None:
    """Until all have ended, or one with a bug; an interrupt that another thread took ends no wait, so none is long."""
    left = set(futures)
    while left:
        done, left = wait(left, WAKE_S, FIRST_EXCEPTION)
        for one in done:
            one.result()


def _one(host: H, function: Callable[[H], T]) -> Result[T]:
    begun = time.monotonic()
    value: T | None = None
    error: InfraError | None = None
    try:
        value = function(host)
    except InfraError as raised:
        error = raised
    seconds = time.monotonic() - begun
    return Result(host=host.name, value=value, error=error, seconds=seconds)
