"""KV blocks that a producer keeps for others, and the listener from which they are fetched."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any, NamedTuple

from . import wire
from .loop import Future, Loop, TimedOut
from .streams import Stream, serve


class Published(NamedTuple):
    """The blocks of one finished prefill."""

    key: str
    block_ids: tuple[int, ...]
    num_tokens: int


class BlockStore:
    """What a producer has published and nobody has fetched yet."""

    def __init__(self) -> None:
        self._published: dict[str, Published] = {}
        self._awaited: dict[str, Future[Published]] = {}
        self._fetched: dict[str, Future[None]] = {}
        self._next_block = 1

    def publish(self, key: str, num_tokens: int, block_size: int) -> Published:
        """Keep the blocks of a request under a key."""
        count = max(1, -(-num_tokens // block_size))
        ids = tuple(range(self._next_block, self._next_block + count))
        self._next_block += count
        published = Published(key, ids, num_tokens)
        self._published[key] = published
        self._fetched[key] = Future()
        waiting = self._awaited.pop(key, None)
        if waiting is not None:
            waiting.resolve(published)
        return published

    def take(self, key: str) -> Published | None:
        """Hand out blocks once."""
        published = self._published.pop(key, None)
        if published is not None:
            self._fetched.pop(key).resolve(None)
        return published

    def fetched(self, key: str) -> Future[None]:
        """Return a future that is resolved when the blocks were fetched."""
        done: Future[None] = Future()
        done.resolve(None)
        return self._fetched.get(key, done)

    async def appearing(self, loop: Loop, key: str, seconds: float) -> bool:
        """Wait until blocks are published under a key; False when that takes too long."""
        if key in self._published:
            return True
        future = self._awaited.setdefault(key, Future())

        async def wait() -> None:
            await future

        try:
            await loop.within(seconds, wait())
        except TimedOut:
            return False
        return True


class BlockListener:
    """Answers who an engine is, and hands out its blocks; `sent` is told of how many tokens they were."""

    def __init__(
        self,
        loop: Loop,
        store: BlockStore,
        identity: dict[str, Any],
        wait_seconds: float,
        sent: Callable[[int], None],
    ) -> None:
        self._loop, self._store, self._identity = loop, store, identity
        self._wait_seconds = wait_seconds
        self._sent = sent

    def listen(self, listener: socket.socket) -> None:
        """Serve on a bound socket."""
        serve(self._loop, listener, self._serve)

    async def _serve(self, stream: Stream) -> None:
        while True:
            message = await wire.receive(stream)
            if message is None:
                return
            if message.get("type") == "WHO":
                await wire.send(stream, {"type": "IDENTITY", **self._identity})
            elif message.get("type") == "READ":
                await wire.send(stream, await self._read(message))

    async def _read(self, message: dict[str, Any]) -> dict[str, Any]:
        key = str(message.get("key"))
        if message.get("waits"):
            await self._store.appearing(self._loop, key, self._wait_seconds)
        published = self._store.take(key)
        if published is None:
            return {"type": "BLOCKS", "ok": False, "reason": f"no blocks of request {key}"}
        wanted = message.get("block_ids")
        if wanted is not None and list(wanted) != list(published.block_ids):
            return {
                "type": "BLOCKS",
                "ok": False,
                "reason": f"blocks {wanted} are not those of {key}",
            }
        self._sent(published.num_tokens)
        told = {"block_ids": list(published.block_ids), "num_tokens": published.num_tokens}
        return {"type": "BLOCKS", "ok": True, **told}
