"""The data-parallel group: the handshake of vLLM's front end with every engine core, and what follows.

Rank 0's process listens on the data-parallel address and rpc port. Every other rank connects, says HELLO, gets
INIT, loads, says READY with the hash of its parallel configuration, and serves once all are READY. The
connections stay open: they carry requests in internal load balancing, and their end tells of a death.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Awaitable, Callable
from typing import Any, NoReturn

from . import wire
from .failures import Failed, write_error
from .log import Log
from .loop import Future, Loop, TimedOut
from .settings import Settings
from .streams import Stream, bind, serve
from .world import World

# who dies of another rank's death dies after it: collectives notice late, and the cause is seen first
AFTERMATH_SECONDS = 0.7
HANDSHAKE_MINUTES = 5  # vllm/v1/engine/core.py HANDSHAKE_TIMEOUT_MINS, 0.17.0 to 0.33.0
Generate = Callable[[int, dict[str, Any]], Awaitable[dict[str, Any]]]


def die(failure: Failed) -> NoReturn:
    """End this process the way the engine does."""
    write_error(failure.text)
    os._exit(failure.exit_code)


class Member:
    """One remote rank as the leader sees it."""

    def __init__(self, rank: int) -> None:
        self.rank = rank
        self.state = "NEW"
        self.stream: Stream | None = None
        self.waiting: dict[int, Future[dict[str, Any]]] = {}
        self.stepping: list[Future[None]] = []

    async def step(self) -> None:
        """Wait until the rank has taken a step."""
        taken: Future[None] = Future()
        if self.stream is not None:
            self.stepping.append(taken)
            await wire.send(self.stream, {"type": "STEP"})
        await taken


class Leader:
    """The group as rank 0's process runs it."""

    def __init__(self, loop: Loop, settings: Settings, world: World, log: Log) -> None:
        parallel = settings.parallel
        self._loop, self._settings, self._world, self._log = loop, settings, world, log
        self._remote_must_be_headless = parallel.mode == "internal"
        own = range(parallel.first_rank, parallel.first_rank + parallel.local)
        self.members = {rank: Member(rank) for rank in range(parallel.size) if rank not in own}
        self._ready: Future[None] = Future()
        self.has_started = False
        self.on_stall: Callable[[], None] = lambda: None
        self._num_requests = 0

    def listen(self) -> None:
        """Bind the rpc port.

        Raises:
            Failed: ZMQ's own error.
        """
        parallel = self._settings.parallel
        address = f"tcp://{parallel.address}:{parallel.rpc_port}"
        serve(self._loop, bind_zmq(parallel.address, parallel.rpc_port, address), self._serve)

    async def join(self) -> None:
        """There is nobody to ask."""

    async def start(self) -> None:
        """Wait until every rank is ready, then let all of them serve."""
        if any(member.state != "READY" for member in self.members.values()):
            await self._ready
        self.has_started = True
        for member in self.members.values():
            if member.stream is not None:
                await wire.send(member.stream, {"type": "START"})

    async def generate(self, rank: int, request: dict[str, Any]) -> dict[str, Any]:
        """Have a remote rank answer a request."""
        member = self.members[rank]
        self._num_requests += 1
        number = self._num_requests
        answer: Future[dict[str, Any]] = Future()
        member.waiting[number] = answer
        if member.stream is None:
            return await answer
        await wire.send(member.stream, {"type": "GENERATE", "number": number, "request": request})
        return await answer

    async def step(self, asking: Member | None = None) -> None:
        """Take a step with every other rank: a mixture of experts computes nothing without all of them."""
        for member in self.members.values():
            if member is not asking:
                await member.step()

    async def _step_for(self, member: Member, stream: Stream) -> None:
        await self.step(member)
        await wire.send(stream, {"type": "STEPPED"})

    async def _serve(self, stream: Stream) -> None:
        member: Member | None = None
        while True:
            message = await wire.receive(stream)
            if message is None:
                break
            kind = message.get("type")
            if kind == "HELLO":
                member = self._greet(message, stream)
                await wire.send(
                    stream, {"type": "INIT", "data_parallel_size": self._settings.parallel.size}
                )
            elif kind == "READY" and member is not None:
                self._accept(member, message)
            elif kind == "RESULT" and member is not None:
                future = member.waiting.pop(message["number"], None)
                if future is not None:
                    future.resolve(message["result"])
            elif kind == "STEP" and member is not None:
                self._loop.spawn(self._step_for(member, stream))
            elif kind == "STEPPED" and member is not None and member.stepping:
                member.stepping.pop(0).resolve(None)
        if member is not None:
            await self._lost(member)

    def _greet(self, message: dict[str, Any], stream: Stream) -> Member:
        rank, is_headless = int(message["rank"]), bool(message["headless"])
        member = self.members.get(rank)
        if member is None and not 0 <= rank < self._settings.parallel.size:
            self._refuse(f"Message from engine with unexpected data parallel rank: {rank}")
        if member is None:
            return self._refuse(f"HELLO message from remote engine {rank}, expected it to be local")
        if is_headless != self._remote_must_be_headless:
            if is_headless:
                self._refuse(
                    f"Remote engine {rank} must not use --headless in external or hybrid dp lb mode"
                )
            self._refuse(
                f"Remote engine {rank} must use --headless unless in external or hybrid dp lb mode"
            )
        if member.state != "NEW":
            state = f"CoreEngineState.{member.state}"
            self._refuse(f"Unexpected HELLO message for remote engine {rank} in {state} state.")
        member.state, member.stream = "CONNECTED", stream
        self._log.tell("utils.py:1297", f"HELLO from remote core engine process {rank}.")
        return member

    def _accept(self, member: Member, message: dict[str, Any]) -> None:
        expected, got = self._settings.parallel.config_hash, message["parallel_config_hash"]
        if got != expected:
            self._refuse(
                f"Configuration mismatch detected for engine {member.rank}. All DP workers must have "
                "identical configurations for parameters that affect collective communication (e.g., "
                f"enable_eplb, eplb_config.log_balancedness). Worker hash: {got}, Expected hash: {expected}. "
                "Please ensure all workers are started with the same command-line arguments."
            )
        member.state = "READY"
        if all(other.state == "READY" for other in self.members.values()):
            self._ready.resolve(None)

    def _refuse(self, reason: str) -> NoReturn:
        die(Failed("RuntimeError", reason))

    async def _lost(self, member: Member) -> None:
        if not self.has_started:
            await self._loop.sleep(AFTERMATH_SECONDS)
            die(
                Failed(
                    "RuntimeError",
                    f"[gloo] Connection closed by peer (data parallel rank {member.rank})",
                    process="EngineCore_DP0",
                )
            )
        member.stream = None
        lose_rank(self._world, self._log, member.rank, self.on_stall)
        for other in self.members.values():
            if other.stream is not None:
                await wire.send(other.stream, {"type": "STALL", "rank": member.rank})


class Follower:
    """The group as the process of another rank sees it."""

    def __init__(self, loop: Loop, settings: Settings, world: World, log: Log) -> None:
        self._loop, self._settings, self._world, self._log = loop, settings, world, log
        parallel = settings.parallel
        self._ranks = range(parallel.first_rank, parallel.first_rank + parallel.local)
        self._streams: dict[int, Stream] = {}
        self.has_started = False
        self.on_stall: Callable[[], None] = lambda: None
        self.on_generate: Generate | None = None
        self._stepping: list[Future[None]] = []

    def listen(self) -> None:
        """A follower listens for nobody."""

    async def join(self) -> None:
        """Say HELLO for every local rank and wait for rank 0's answer."""
        limit = HANDSHAKE_MINUTES * 60 * self._world.time_scale
        try:
            await self._loop.within(limit, self._greet())
        except TimedOut:
            reason = f"Did not receive response from front-end process within {HANDSHAKE_MINUTES} minutes"
            die(Failed("RuntimeError", reason, process=f"EngineCore_DP{self._ranks[0]}"))

    async def start(self) -> None:
        """Report READY and wait until rank 0 lets all serve."""
        content = {"type": "READY", "parallel_config_hash": self._settings.parallel.config_hash}
        for stream in self._streams.values():
            await self._send_or_fail(stream, content)
        for rank, stream in self._streams.items():
            message = await wire.receive(stream)
            if message is None or message.get("type") != "START":
                await self._fail(rank)
        self.has_started = True
        for rank, stream in self._streams.items():
            self._loop.spawn(self._follow(rank, stream))

    async def step(self) -> None:
        """Take a step with every other rank, through rank 0."""
        taken: Future[None] = Future()
        self._stepping.append(taken)
        await wire.send(self._streams[self._ranks[0]], {"type": "STEP"})
        await taken

    async def _greet(self) -> None:
        parallel = self._settings.parallel
        hello = {"type": "HELLO", "local": False, "headless": parallel.is_headless}
        for rank in self._ranks:
            while rank not in self._streams:
                stream = await wire.dial(self._loop, parallel.address, parallel.rpc_port)
                try:
                    await wire.send(stream, {**hello, "rank": rank})
                    answer = await wire.receive(stream)
                except OSError:
                    answer = None
                if answer is not None and answer.get("type") == "INIT":
                    self._streams[rank] = stream
                else:
                    stream.close()
                    await self._loop.sleep(wire.RETRY_SECONDS)

    async def _send_or_fail(self, stream: Stream, message: dict[str, Any]) -> None:
        try:
            await wire.send(stream, message)
        except OSError:
            await self._fail(self._ranks[0])

    async def _fail(self, rank: int) -> NoReturn:
        await self._loop.sleep(AFTERMATH_SECONDS)
        die(
            Failed(
                "RuntimeError",
                "Engine core initialization failed. See root cause above. "
                f"Failed core proc(s): {{'EngineCore_DP{rank}': 1}} (rank 0 closed the connection)",
            )
        )

    async def _follow(self, rank: int, stream: Stream) -> None:
        while True:
            message = await wire.receive(stream)
            if message is None:
                lose_rank(self._world, self._log, 0, self.on_stall)
                return
            if message.get("type") == "STALL":
                lose_rank(self._world, self._log, int(message["rank"]), self.on_stall)
            elif message.get("type") == "STEP":
                await wire.send(stream, {"type": "STEPPED"})
            elif message.get("type") == "STEPPED" and self._stepping:
                self._stepping.pop(0).resolve(None)
            elif message.get("type") == "GENERATE" and self.on_generate is not None:
                self._loop.spawn(self._answer(rank, stream, message))

    async def _answer(self, rank: int, stream: Stream, message: dict[str, Any]) -> None:
        if self.on_generate is None:
            return
        result = await self.on_generate(rank, message["request"])
        try:
            await wire.send(
                stream, {"type": "RESULT", "number": message["number"], "result": result}
            )
        except OSError:
            self._log.caution("core.py:900", "front end is gone")


def lose_rank(world: World, log: Log, rank: int, on_stall: Callable[[], None]) -> None:
    """Do what is left when a rank died: stall, as a collective does, or leave when the host says so."""
    if world.rank_death == "exit":
        log.complain("core.py:886", "EngineCore encountered a fatal error.")
        die(
            Failed(
                "vllm.v1.engine.exceptions.EngineDeadError", f"rank {rank} is gone", "EngineCore"
            )
        )
    if world.rank_death == "fail":
        on_stall()
        return
    log.caution(
        "core.py:886", f"rank {rank} is gone; collectives of this group hang (/health stays 200)"
    )
    on_stall()


def bind_zmq(host: str, port: int, shown: str) -> Any:
    """Bind a socket that is ZMQ's in reality.

    Raises:
        Failed: ZMQ's own error.
    """
    try:
        return bind(host, port)
    except OSError as error:
        texts = {
            errno.EADDRINUSE: "Address already in use",
            errno.EADDRNOTAVAIL: "Cannot assign requested address",
        }
        reason = texts.get(error.errno or 0, "No such device")
        raise Failed("zmq.error.ZMQError", f"{reason} (addr='{shown}')") from error
