"""One data-parallel rank: answers requests, keeps or fetches KV cache, stalls with its group."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from .connectors import Finished, Site, TransferFailed
from .failures import CoreFailed
from .handshake import die
from .journal import Journal
from .kv_transfer import KvTransfer
from .log import Log
from .loop import Future, Loop
from .settings import Settings
from .world import World

STEP_SECONDS = 0.002
# so long the front end of a dead core still answers
LEAVING_SECONDS = 0.3
KV_FAILURE = "kv_load_failure"


class Connector(Protocol):
    """What the engine core needs of a KV connector."""

    def listen(self) -> None:
        """Open the ports of the connector."""

    def publish(self, finished: Finished) -> dict[str, Any] | None:
        """Keep the blocks of a finished prefill; return what decode has to know."""

    async def pull(self, params: dict[str, Any]) -> str:
        """Fetch the blocks of a request; return where from."""


class EngineCore:
    """One rank."""

    def __init__(
        self, site: tuple[Loop, Settings, World, Log], rank: int, port: int | None
    ) -> None:
        self._loop, self._settings, self._world, self._log = site
        self.rank = rank
        self._port = port
        self._journal = Journal(self._world.state, self._world.host)
        self._is_stalled = False
        self.is_dead = False
        kv = self._settings.kv
        # vLLM computes a bare prompt on a decode rank; an Ascend decode rank dies of it
        self._is_decode_only = (
            kv is not None and kv.connector == "ascend-mooncake" and kv.role == "kv_consumer"
        )
        self.connector: Connector | None = None
        self.step: Callable[[], Awaitable[None]] | None = None
        # whether what was fetched for a prompt was garbled; such a prompt is not fetched again
        self.caches_prefixes = False
        self._cached: dict[int, bool] = {}

    def stall(self) -> None:
        """Answer nothing from now on: a collective waits for a rank that is gone."""
        self._is_stalled = True

    async def generate(self, request: dict[str, Any]) -> dict[str, Any]:
        """Answer one request.

        Args:
            request: ``request_id``, ``path``, ``num_prompt_tokens``, ``tokens`` (the full answer),
                ``max_tokens``, ``prefix`` (what a prefix cache knows the prompt by), ``kv_transfer_params``.

        Returns:
            ``tokens``, ``finish_reason`` and ``kv_transfer_params``, or ``error``.
        """
        try:
            return await self._generate(request)
        except CoreFailed as failure:
            if self._settings.parallel.is_headless:
                die(failure)
            self.is_dead = True
            for line in (
                "EngineCore encountered a fatal error.",
                f"{failure.kind}: {failure.message}",
            ):
                self._log.complain("core.py:1167", line)
            self._loop.call_later(LEAVING_SECONDS, lambda: os._exit(0))
            return {"error": "EngineDeadError", "reason": failure.message}

    async def _generate(self, request: dict[str, Any]) -> dict[str, Any]:
        params = request.get("kv_transfer_params")
        connector = self.connector
        if self._is_decode_only and not (params and params.get("remote_block_ids")):
            self._log.complain(
                "core.py:886", f"request {request['request_id']} has no remote KV blocks"
            )
            raise CoreFailed(
                "RuntimeError",
                "ACL stream synchronize failed, error code:507015 (a request without remote KV "
                "blocks reached a decode-only rank)",
                process=f"EngineCore_DP{self.rank}",
            )
        await self._be_whole()
        source = ""
        if connector is not None and params and params.get("do_remote_prefill"):
            try:
                source = await connector.pull(params)
            except TransferFailed as failure:
                self._log.complain(
                    "worker.py:680", f"KV transfer failure for {request['request_id']}: {failure}"
                )
                if self._settings.kv is not None and self._settings.kv.fails_on_load_error:
                    return {"error": KV_FAILURE, "reason": str(failure)}
        await self._loop.sleep(STEP_SECONDS)
        if self.step is not None:
            with contextlib.suppress(OSError):  # who is gone stalls the group, which is seen below
                await self.step()
        await self._be_whole()
        if self._is_garbled(request, source):
            request = {**request, "tokens": garbled(request["tokens"])}
        return self._finish(request, params, source)

    def _is_garbled(self, request: dict[str, Any], source: str) -> bool:
        """Whether the KV cache that the answer is made from is something else than was computed."""
        is_garbled = self._world.garbles(source)
        if not self.caches_prefixes or request["num_prompt_tokens"] < self._settings.block_size:
            return is_garbled
        return self._cached.setdefault(request["prefix"], is_garbled)

    async def _be_whole(self) -> None:
        """Go on while every rank of the group is there.

        Raises:
            CoreFailed: one is gone, and the group's collectives are such that notice.
        """
        if self._is_stalled and self._world.rank_death == "fail":
            reason = "[gloo/transport/tcp/pair.cc:547] Connection closed by peer"
            raise CoreFailed("RuntimeError", reason, f"EngineCore_DP{self.rank}")
        if self._is_stalled:
            await Future[None]()

    def _finish(
        self, request: dict[str, Any], params: dict[str, Any] | None, source: str
    ) -> dict[str, Any]:
        tokens = request["tokens"][: request["max_tokens"]]
        finish_reason = "length" if len(tokens) >= request["max_tokens"] else "stop"
        result = {
            "tokens": tokens,
            "finish_reason": finish_reason,
            "kv_transfer_params": None,
            "kv_from": source or None,
        }
        # vllm nixl scheduler.py: earlier releases keep the blocks of what was cut off at its limit alone
        is_kept = finish_reason == "length" or self._settings.release.numbers >= (0, 22)
        if self.connector is not None and params and params.get("do_remote_decode") and is_kept:
            computed = request["num_prompt_tokens"] + len(tokens) - 1
            result["kv_transfer_params"] = self.connector.publish(
                Finished(request["request_id"], computed, params)
            )
        kv = self._settings.kv
        self._journal.note(
            {
                "port": self._port,
                "dp_rank": self.rank,
                "role": kv.role if kv is not None else None,
                "path": request["path"],
                "request_id": request["request_id"],
                "completion_tokens": len(tokens),
                "kv_from": source or None,
            }
        )
        return result


def garbled(tokens: list[str]) -> list[str]:
    """Return what a model says that reads the KV cache of something else: as many tokens, and none of them right."""
    return ["!"] * len(tokens)


def make_site(core: EngineCore, kv: KvTransfer, site: tuple[Loop, Settings, World, Log]) -> Site:
    """Return what a connector of this rank needs to know."""
    loop, settings, world, log = site
    return Site(loop=loop, settings=settings, kv=kv, world=world, log=log, rank=core.rank)
