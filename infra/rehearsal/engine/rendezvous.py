"""torch's rendezvous of several nodes: node 0 listens on the master port, the others join."""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Any, NamedTuple

from . import wire
from .failures import Failed
from .handshake import AFTERMATH_SECONDS, die
from .log import Log
from .loop import Future, Loop, TimedOut
from .streams import Stream, bind, serve

TIMEOUT_SECONDS = 600  # torch's default for a store and for NCCL


class Place(NamedTuple):
    """Where one node stands in its world."""

    address: str
    port: int
    node: int
    num_nodes: int


class Rendezvous:
    """All nodes of one world, seen from one of them."""

    def __init__(
        self, loop: Loop, log: Log, place: Place, facts: dict[str, Any], seconds: float
    ) -> None:
        """Prepare.

        Args:
            loop: the event loop.
            log: where to report.
            place: where this node stands.
            facts: what must be equal everywhere (number of nodes, world size); who differs never joins.
            seconds: the scaled time limit.
        """
        self._loop, self._log, self._seconds = loop, log, seconds
        self._address, self._port, self._node, self._num_nodes = place
        self._facts = facts
        self._joined: dict[int, Stream] = {}
        self._complete: Future[None] = Future()
        self.on_loss: Callable[[], None] = lambda: None
        self._has_started = False
        # sizes of a step that this node was told; with others elsewhere the first collective never ends
        self.step: dict[str, Any] = {}
        self._is_alike = True

    def listen(self) -> None:
        """Bind the master port on node 0; TCPStore listens on every address.

        Raises:
            Failed: torch's own error.
        """
        if self._node != 0:
            return
        try:
            listener = bind("0.0.0.0", self._port)
        except OSError as error:
            name = errno.errorcode.get(error.errno or 0, "EINVAL")
            raise Failed(
                "torch.distributed.DistNetworkError",
                "The server socket has failed to listen on any local network address. "
                f"port: {self._port}, useIpv6: false, code: -{error.errno}, name: {name}, "
                f"message: {(error.strerror or '').lower()}",
                process="Worker_TP0",
            ) from error
        serve(self._loop, listener, self._accept)

    async def join(self) -> None:
        """Meet all nodes."""
        try:
            await self._loop.within(self._seconds, self._meet())
        except TimedOut:
            die(self._timed_out())
        self._has_started = True

    async def profile(self) -> None:
        """Run the first step of all nodes: where they were told different sizes, NCCL's watchdog ends it."""
        if self._is_alike:
            return
        await self._loop.sleep(self._seconds)
        limit = TIMEOUT_SECONDS * 1000
        die(
            Failed(
                "torch.distributed.DistBackendError",
                f"[Rank {self._node}] Watchdog caught collective operation timeout: WorkNCCL(OpType=ALLREDUCE, "
                f"Timeout(ms)={limit}) ran for {limit} milliseconds before timing out.",
                process="Worker_TP0",
            )
        )

    async def _meet(self) -> None:
        if self._node == 0:
            await self._reach_itself()
            if self._num_nodes > 1:
                await self._complete
            for stream in self._joined.values():
                await wire.send(stream, {"type": "GO", "alike": self._is_alike})
            return
        stream = await wire.dial(self._loop, self._address, self._port)
        await wire.send(stream, self._joining())
        answer = None
        while answer is None or answer.get("type") != "GO":
            answer = await wire.receive(stream)
            if answer is None:
                stream.close()
                await self._loop.sleep(wire.RETRY_SECONDS)
                stream = await wire.dial(self._loop, self._address, self._port)
                await wire.send(stream, self._joining())
        self._is_alike = bool(answer["alike"])
        self._loop.spawn(self._watch(stream))

    def _joining(self) -> dict[str, Any]:
        return {"type": "JOIN", "node": self._node, "step": self.step, **self._facts}

    async def _reach_itself(self) -> None:
        """Connect to the master address as node 0's own client does: a wrong address hangs here."""
        stream = await wire.dial(self._loop, self._address, self._port)
        await wire.send(stream, {"type": "SELF", **self._facts})
        await wire.receive(stream)
        stream.close()

    async def _accept(self, stream: Stream) -> None:
        message = await wire.receive(stream)
        if message is None:
            return
        if message.get("type") == "SELF":
            await wire.send(stream, {"type": "OK"})
            return
        node = int(message.get("node", -1))
        agrees = all(message.get(key) == value for key, value in self._facts.items())
        if not agrees or not 0 < node < self._num_nodes or node in self._joined:
            self._log.caution("TCPStore", f"node {node} does not fit into this world: {message}")
            await self._loop.sleep(self._seconds)
            return
        self._joined[node] = stream
        self._is_alike &= all(self.step.get(k, v) == v for k, v in message.get("step", {}).items())
        if len(self._joined) == self._num_nodes - 1:
            self._complete.resolve(None)
        await self._watch(stream)

    async def _watch(self, stream: Stream) -> None:
        while await wire.receive(stream) is not None:
            pass
        if not self._has_started:
            await self._loop.sleep(AFTERMATH_SECONDS)
            die(
                Failed(
                    "torch.distributed.DistBackendError",
                    "NCCL error: remote process exited or there was a network error",
                    process="Worker_TP0",
                )
            )
        self.on_loss()

    def _timed_out(self) -> Failed:
        if (self._node == 0 and self._joined) or (self._node == 0 and self._num_nodes > 1):
            return Failed(
                "torch.distributed.DistStoreError",
                f"Timed out after {TIMEOUT_SECONDS + 1} seconds waiting for clients. "
                f"{len(self._joined) + 1}/{self._num_nodes} clients joined.",
                process="Worker_TP0",
            )
        return Failed(
            "torch.distributed.DistNetworkError",
            f"The client socket has timed out after {TIMEOUT_SECONDS * 1000}ms while trying to connect to "
            f"({self._address}, {self._port}).",
            process="Worker_TP0",
        )
