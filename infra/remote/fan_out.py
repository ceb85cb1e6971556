"""The same thing on many hosts at once, failures kept per host."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from infra.errors import InfraError
from infra.remote.failures import HostFailure

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


def run_on_all(
    hosts: Sequence[H], function: Callable[[H], T], *, limit: int | None = None
) -> dict[str, Result[T]]:
    """What the function gives for every host, in the hosts' order; one failing leaves the others alone.

    The function bounds its own time. An error that is not ours is a bug and is raised when all have ended.

    Args:
        hosts: each with a name of its own.
        function: runs in a thread for each host.
        limit: how many hosts at once; None for all of them, which hosts that wait for each other need.
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
        return {name: future.result() for name, future in futures.items()}
    except BaseException:
        # after Ctrl-C: what has not begun never does, and what waits for a host is told that nobody cares
        pool.shutdown(wait=False, cancel_futures=True)
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


def _nothing() -> None:
    """Stands for the `close` of hosts that hold no connection."""


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
