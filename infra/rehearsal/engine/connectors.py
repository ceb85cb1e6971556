"""KV connectors: how a rank publishes what it computed and fetches what another rank computed."""

from __future__ import annotations

import os
from typing import Any, NamedTuple

from . import wire
from .blocks import BlockListener, BlockStore
from .container import check_transfer
from .failures import CoreFailed, Failed, SideChannelTaken
from .handshake import bind_zmq
from .kv_transfer import (
    KvTransfer,
    check_ascend_connector,
    check_backends,
    random_id,
    rank_engine_id,
)
from .log import Log
from .loop import Future, Loop, TimedOut
from .rdma_card import carry, mooncake_lines, ucx_endpoint_lines
from .settings import Settings
from .web_client import fetch_json
from .world import World

HANDSHAKE_SECONDS = 5  # NixlConnector's receive timeout on the side channel
# a scaled limit must still outlast a busy machine: dozens of processes share two cores
LEAST_SECONDS = 1.0
ASCEND_BLOCK_TOKENS = 128
REMOTE_KEYS = ("remote_engine_id", "remote_request_id", "remote_host", "remote_port")
WAIT_SECONDS = 300  # how long a pull waits for a prefill that has not finished


class TransferFailed(Exception):
    """The KV cache of a request could not be fetched; the text is the engine's log line."""


class Finished(NamedTuple):
    """A prefill whose blocks are to be kept."""

    request_id: str
    num_tokens: int
    params: dict[str, Any]


class Site(NamedTuple):
    """The rank that a connector belongs to."""

    loop: Loop
    settings: Settings
    kv: KvTransfer
    world: World
    log: Log
    rank: int

    @property
    def engine_id(self) -> str:
        """The engine id of the rank."""
        settings = self.settings
        return rank_engine_id(self.kv, settings.parallel, self.rank, settings.release.numbers)

    @property
    def tensor_parallel(self) -> int:
        """Tensor-parallel size of the rank."""
        return self.settings.parallel.tensor

    def sent(self, num_tokens: int) -> None:
        """Blocks of so many tokens went to another rank."""
        carry(self.world, "port_xmit_data", num_tokens)

    def draw(self, lines: list[str]) -> None:
        """Write what a library writes, as it writes it."""
        for line in lines:
            self.log.draw(line)


class NixlConnector:
    """NIXL: a side channel per rank at base port + global data-parallel rank."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._store = BlockStore()
        self._greeted: set[str] = set()
        self._agent = random_id()
        self._has_published = False
        addresses = site.settings.addresses
        self._host = addresses.side_channel_host
        self._port = addresses.side_channel_port + site.rank
        self._backends = tuple(site.kv.extra.get("backends", ()))

    def listen(self) -> None:
        """Bind the side channel.

        Raises:
            SideChannelTaken: ZMQ's own error.
        """
        site = self._site
        check_backends(site.kv)
        check_transfer(dict(os.environ), site.world, self._backends)
        identity = {
            "engine_id": site.engine_id,
            "compatibility_hash": site.settings.compatibility_hash,
            "block_size": site.settings.block_size,
        }
        try:
            listener = bind_zmq(self._host, self._port, f"tcp://{self._host}:{self._port}")
        except Failed as failure:
            raise SideChannelTaken(failure.kind, failure.message, failure.process) from failure
        BlockListener(site.loop, self._store, identity, 0.0, site.sent).listen(listener)

    def publish(self, finished: Finished) -> dict[str, Any] | None:
        """Keep the blocks of a finished prefill and return what decode has to know."""
        site = self._site
        if not self._has_published:
            site.draw(ucx_endpoint_lines(site.world, self._agent, self._backends))
            self._has_published = True
        published = self._store.publish(
            finished.request_id, finished.num_tokens, site.settings.block_size
        )
        release = site.settings.release.numbers
        ids: list[Any] = list(published.block_ids)
        result = {
            "do_remote_prefill": True,
            "do_remote_decode": False,
            "remote_block_ids": [ids] if release >= (0, 18) else ids,
            "remote_engine_id": site.engine_id,
            "remote_request_id": finished.request_id,
            "remote_host": self._host,
            "remote_port": self._port,
            "tp_size": site.tensor_parallel,
        }
        return (
            {**result, "remote_num_tokens": finished.num_tokens} if release >= (0, 18) else result
        )

    async def pull(self, params: dict[str, Any]) -> str:
        """Fetch the blocks of a request; return where they came from.

        Without a key the request waits for ever: vLLM 0.22.1 does so, recorded.

        Raises:
            CoreFailed: no blocks are named: it, too.
            TransferFailed: the other side cannot be reached, is incompatible or has no such blocks.
        """
        if not params.get("remote_block_ids"):
            # scheduler.py 0.22.1: the tokens are counted as remote ones before the blocks are looked for
            raise CoreFailed("AssertionError", "", "EngineCore")
        if any(key not in params for key in REMOTE_KEYS):
            self._site.log.caution(
                "scheduler.py:492",
                f"Got invalid KVTransferParams: {params}. This request will not utilize KVTransfer",
            )
            await Future[None]()  # it waits for blocks that nobody fetches
        try:
            address = (str(params["remote_host"]), int(params["remote_port"]))
        except (TypeError, ValueError):
            reason = (
                f"Invalid argument (addr='tcp://{params['remote_host']}:{params['remote_port']}')"
            )
            raise TransferFailed(f"NIXL handshake failed: zmq.error.ZMQError: {reason}") from None
        await self._greet(str(params["remote_engine_id"]), address)
        ids = params.get("remote_block_ids") or []
        flat = ids[0] if ids and isinstance(ids[0], list) else ids
        await read_blocks(
            self._site, address, {"key": params["remote_request_id"], "block_ids": flat}
        )
        return f"{address[0]}:{address[1]}"

    async def _greet(self, engine_id: str, address: tuple[str, int]) -> None:
        if engine_id in self._greeted:
            return
        site = self._site
        identity = await ask_identity(site, address, "NIXL")
        local, remote = site.settings.compatibility_hash, identity.get("compatibility_hash")
        if site.kv.extra.get("enforce_handshake_compat", True) and local != remote:
            raise TransferFailed(
                f"NIXL compatibility hash mismatch. Local: {local}, Remote: {remote}. Prefill and decode "
                "instances have incompatible configurations. This may be due to: different vLLM versions, "
                "models, dtypes, KV cache layouts, attention backends, etc. Both instances must use "
                "identical configurations."
            )
        if identity.get("engine_id") != engine_id:
            raise TransferFailed(
                f"Remote NIXL agent engine ID mismatch. Expected {engine_id},"
                f"received {identity.get('engine_id')}."
            )
        site.log.tell("nixl/worker.py:555", f"NIXL compatibility check passed (hash: {remote})")
        if not self._greeted:
            site.draw(ucx_endpoint_lines(site.world, self._agent, self._backends))
        self._greeted.add(engine_id)


class AscendMooncakeConnector:
    """MooncakeConnectorV1: producers listen at kv_port + rank * TP * PP + device, consumers dial."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._store = BlockStore()
        self._greeted: set[tuple[str, int]] = set()
        parallel = site.settings.parallel
        self._count = parallel.tensor * parallel.pipeline
        self._host = site.settings.addresses.host
        self._port = site.kv.port + site.rank * self._count

    def listen(self) -> None:
        """Start Mooncake; bind the ports of this rank's devices when it produces.

        Raises:
            Failed: Mooncake's, vllm-ascend's or ZMQ's own error.
        """
        site = self._site
        check_ascend_connector(site.kv, site.settings.parallel, site.settings.release.plugin)
        site.draw(mooncake_lines(site.world))
        if not site.kv.is_producer:
            return
        identity = {"engine_id": site.engine_id}
        for port in range(self._port, self._port + self._count):
            listener = bind_zmq(self._host, port, f"tcp://{self._host}:{port}")
            BlockListener(site.loop, self._store, identity, 0.0, site.sent).listen(listener)

    def publish(self, finished: Finished) -> dict[str, Any] | None:
        """Keep the blocks of a finished prefill and return what decode has to know."""
        site = self._site
        published = self._store.publish(
            finished.request_id, finished.num_tokens, ASCEND_BLOCK_TOKENS
        )
        return {
            "do_remote_prefill": True,
            "do_remote_decode": False,
            "remote_block_ids": [list(published.block_ids)],
            "remote_engine_id": site.engine_id,
            "remote_request_id": finished.request_id,
            "remote_host": self._host,
            "remote_port": self._port,
            "remote_pcp_size": 1,
            "remote_dcp_size": site.settings.parallel.context,
            "remote_ptp_size": site.tensor_parallel,
            "last_token_id": 0,
            "remote_multi_nodes_meta_mapping": {},
            "num_prompt_blocks": len(published.block_ids),
        }

    async def pull(self, params: dict[str, Any]) -> str:
        """Fetch the blocks of a request; return where they came from.

        Raises:
            TransferFailed: the other side cannot be reached, is itself, or has no such blocks.
        """
        address = (str(params.get("remote_host")), int(params.get("remote_port") or 0))
        if address not in self._greeted:
            identity = await ask_identity(self._site, address, "Mooncake")
            if identity.get("engine_id") == self._site.engine_id:
                name = self._site.engine_id
                raise TransferFailed(f"Conflict engine id {name} with local engine id {name}.")
            self._greeted.add(address)
        ids = params.get("remote_block_ids") or [[]]
        await read_blocks(
            self._site, address, {"key": params.get("remote_request_id"), "block_ids": ids[0]}
        )
        return f"{address[0]}:{address[1]}"


class MooncakeConnector:
    """vLLM's own Mooncake connector: a bootstrap server tells where a transfer's workers listen."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._store = BlockStore()
        self.worker_port = 0

    def listen(self) -> None:
        """Open the worker's port; the bootstrap server belongs to the process."""
        site = self._site
        listener = bind_zmq(
            site.settings.addresses.host, 0, f"tcp://{site.settings.addresses.host}:0"
        )
        self.worker_port = int(listener.getsockname()[1])
        wait = WAIT_SECONDS * site.world.time_scale
        identity = {"engine_id": site.engine_id}
        BlockListener(site.loop, self._store, identity, wait, site.sent).listen(listener)
        site.draw(mooncake_lines(site.world))

    def entry(self) -> dict[str, Any]:
        """Return this rank's line in the answer to ``/query``."""
        address = f"tcp://{self._site.settings.addresses.host}:{self.worker_port}"
        return {"engine_id": self._site.engine_id, "worker_addr": {"0": {"0": address}}}

    def publish(self, finished: Finished) -> dict[str, Any] | None:
        """Keep the blocks under the router's transfer id; decode knows it already."""
        transfer_id = finished.params.get("transfer_id")
        if transfer_id:
            self._store.publish(
                str(transfer_id), finished.num_tokens, self._site.settings.block_size
            )
        else:
            self._site.log.caution(
                "mooncake_connector.py:632",
                "Missing transfer_id in kv_transfer_params from router!",
            )
        return None

    async def pull(self, params: dict[str, Any]) -> str:
        """Ask the bootstrap server for the producer, then fetch the blocks.

        Raises:
            TransferFailed: the bootstrap server or the producer cannot be reached.
        """
        limit = max(LEAST_SECONDS, HANDSHAKE_SECONDS * self._site.world.time_scale)
        url = str(params.get("remote_bootstrap_addr"))
        engines = await fetch_json(self._site.loop, f"{url}/query", limit)
        if engines is None:
            raise TransferFailed(f"Failed to query Mooncake bootstrap server at {url}")
        for entry in engines.values():
            if entry["engine_id"] == params.get("remote_engine_id"):
                text = next(iter(next(iter(entry["worker_addr"].values())).values()))
                host, _, port = text[len("tcp://") :].rpartition(":")
                await read_blocks(
                    self._site, (host, int(port)), {"key": params.get("transfer_id"), "waits": True}
                )
                return f"{host}:{port}"
        raise TransferFailed(f"engine {params.get('remote_engine_id')} is not registered at {url}")


async def ask_identity(site: Site, address: tuple[str, int], noun: str) -> dict[str, Any]:
    """Ask a listener who it is.

    Raises:
        TransferFailed: nobody answers.
    """
    limit = max(LEAST_SECONDS, HANDSHAKE_SECONDS * site.world.time_scale)
    try:
        return await wire.ask(site.loop, address, {"type": "WHO"}, limit)
    except (OSError, TimedOut):
        raise TransferFailed(
            f"{noun} handshake with tcp://{address[0]}:{address[1]} failed: "
            "zmq.error.Again: Resource temporarily unavailable"
        ) from None


async def read_blocks(site: Site, address: tuple[str, int], message: dict[str, Any]) -> None:
    """Fetch blocks from a listener.

    Raises:
        TransferFailed: nobody answers, or the blocks are not there.
    """
    seconds = WAIT_SECONDS if message.get("waits") else HANDSHAKE_SECONDS
    limit = max(LEAST_SECONDS, seconds * site.world.time_scale)
    try:
        answer = await wire.ask(site.loop, address, {"type": "READ", **message}, limit)
    except (OSError, TimedOut):
        raise TransferFailed(
            f"transfer from {address[0]}:{address[1]} failed: connection lost"
        ) from None
    if not answer.get("ok"):
        raise TransferFailed(
            f"transfer from {address[0]}:{address[1]} failed: {answer.get('reason')}"
        )
    carry(site.world, "port_rcv_data", int(answer.get("num_tokens") or 0))
