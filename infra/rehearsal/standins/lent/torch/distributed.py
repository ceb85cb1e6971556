"""Ranks that meet at rank 0's TCP port and add up: real sockets between simulated hosts, simulated bytes.

Words of errors were recorded with torch 2.11.0. The store speaks lines of JSON where the real one has a protocol of
its own, and sums go through it where real ranks talk to each other: how long an all-reduce takes is slept, at
`faults.collective_gb_s` of `host.json` (400 without). `faults.collective_wrong` {device: count} spoils sums.
"""

from __future__ import annotations

import json
import socket
import threading
import time
from datetime import timedelta
from typing import Any, NamedTuple

from . import Tensor, cuda
from .simulated import NOTICE, faults, library_lines

USUAL_GB_S = 400.0
FLOAT_BYTES = 4
PAUSE_S = 0.05
_served: dict[str, float] = {}
_changed = threading.Condition()


class DistStoreError(RuntimeError):
    """The store's own errors."""


class TCPStore:
    """Values that all ranks see; rank 0's process serves them."""

    def __init__(  # noqa: PLR0913 - the real one's
        self,
        host_name: str,
        port: int,
        world_size: int,
        is_master: bool,  # noqa: FBT001 - the real one's
        *,
        timeout: timedelta,
        wait_for_workers: bool,
    ) -> None:
        """Listen, as rank 0, and connect; who is not there yet is dialled again."""
        del world_size, wait_for_workers
        if is_master:
            listener = socket.create_server(("", port))
            threading.Thread(target=_serve, args=(listener,), daemon=True).start()
        limit = time.monotonic() + timeout.total_seconds()
        while True:
            try:
                self.wire = socket.create_connection((host_name, port), timeout=1)
                break
            except OSError as error:
                if time.monotonic() > limit:
                    what = f"The client socket has timed out after {timeout.total_seconds() * 1000:.0f}ms"
                    where = f"while trying to connect to ({host_name}, {port})."
                    raise DistStoreError(f"{what} {where}") from error
                time.sleep(PAUSE_S)
        self.stream = self.wire.makefile("rw", encoding="ascii")

    def set(self, key: str, value: object) -> None:
        """Let all see a value; as with the real one nobody answers, and rank 0 may be gone by then."""
        self.send({"set": key, "value": value})

    def wait(self, keys: list[str], timeout: timedelta) -> list[Any]:
        """Wait until all keys are there.

        Raises:
            DistStoreError: they are not, in time.
        """
        found = self.ask({"get": keys, "seconds": timeout.total_seconds()}, timeout)
        if found is None:
            spelt = ", ".join(f"/{key}" for key in keys)
            milliseconds = int(timeout.total_seconds() * 1000)
            raise DistStoreError(f"wait timeout after {milliseconds}ms, keys: {spelt}")
        values: list[Any] = found
        return values

    def ask(self, request: dict[str, Any], timeout: timedelta) -> Any:
        """One question to rank 0's process."""
        self.wire.settimeout(timeout.total_seconds() + 2)
        self.send(request)
        return json.loads(self.stream.readline())

    def send(self, request: dict[str, Any]) -> None:
        """Tell rank 0's process."""
        self.stream.write(json.dumps(request) + "\n")
        self.stream.flush()


class _Group(NamedTuple):
    store: TCPStore
    rank: int
    size: int
    timeout: timedelta


_group: list[_Group] = []
_rounds = [0]


def init_process_group(
    backend: str, *, store: TCPStore, rank: int, world_size: int, timeout: timedelta
) -> None:
    """Join the group; NCCL says which way it takes."""
    _group.append(_Group(store, rank, world_size, timeout))
    if backend == "nccl":
        for line in library_lines(world_size):
            print(f"{line} ({NOTICE})", flush=True)


def barrier() -> None:
    """Wait for all ranks."""
    _exchange(0.0)


def all_reduce(tensor: Tensor) -> None:
    """Give every rank the sum, as late as the bandwidth has it."""
    told = faults()
    num_ranks = _group[0].size
    speed = float(told.get("collective_gb_s") or USUAL_GB_S) * 1e9
    total = sum(_exchange(tensor.value))
    time.sleep(tensor.count * FLOAT_BYTES / speed * 2 * (num_ranks - 1) / num_ranks)
    tensor.value = total
    tensor.num_wrong = (told.get("collective_wrong") or {}).get(str(cuda.current), 0)


def _exchange(value: float) -> list[float]:
    """Each rank's value of this round."""
    _rounds[0] += 1
    group, number = _group[0], _rounds[0]
    group.store.set(f"{number}/{group.rank}", value)
    return group.store.wait([f"{number}/{rank}" for rank in range(group.size)], group.timeout)


def _serve(listener: socket.socket) -> None:
    while True:
        wire, _ = listener.accept()
        threading.Thread(target=_answer, args=(wire,), daemon=True).start()


def _answer(wire: socket.socket) -> None:
    """Answer one rank until it leaves."""
    with wire.makefile("rw", encoding="ascii") as stream:
        for line in stream:
            request = json.loads(line)
            if "set" in request:
                _keep(request["set"], request["value"])
            else:
                stream.write(json.dumps(_values(request["get"], request["seconds"])) + "\n")
                stream.flush()


def _keep(key: str, value: float) -> None:
    with _changed:
        _served[key] = value
        _changed.notify_all()


def _values(keys: list[str], seconds: float) -> list[float] | None:
    """The values of all keys; None if they are not there in time."""
    with _changed:
        is_there = _changed.wait_for(lambda: all(key in _served for key in keys), seconds)
        return [_served[key] for key in keys] if is_there else None
