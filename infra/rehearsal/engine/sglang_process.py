"""One SGLang server process from its arguments to serving."""

from __future__ import annotations

import os
import signal
from typing import Any

from . import wire
from .blocks import BlockListener, BlockStore
from .checkpoint import check_weights, num_shards
from .command_line import Arguments
from .container import check_cards, check_shared_memory
from .engine_core import STEP_SECONDS, garbled
from .failures import Failed, write_error
from .handshake import bind_zmq
from .http_server import Request, Response, json_response, serve_http
from .journal import Journal
from .log import Log
from .loop import Future, Loop, TimedOut
from .network import check_network, network_lines
from .rdma_card import carry, mooncake_lines
from .rendezvous import TIMEOUT_SECONDS, Place, Rendezvous
from .settings import Release, Settings
from .sglang_api import SglangFrontEnd
from .sglang_config import Node, configure, fit, parse_arguments
from .streams import bind, reserve
from .web_client import fetch_json
from .world import World, read_world, take_devices

ZMQ_PORT_DELTA = 233  # sglang/srt/server_args.py ZMQ_TCP_PORT_DELTA, 0.5.9
HEALTH_CHECK_SECONDS = 20  # http_server.py 0.5.9: SGLANG_HEALTH_CHECK_TIMEOUT
BOOTSTRAP_SECONDS = 300  # SGLANG_DISAGGREGATION_BOOTSTRAP_TIMEOUT and …_WAITING_TIMEOUT
PORT_NAMES = (
    "port_base",
    "detokenizer_port",
    "rpc_port",
    "metrics_ipc_name",
    "scheduler_input_port",
    "load_port",
)


def run_sglang(program: str, argv: list[str], release: Release, environ: dict[str, str]) -> None:
    """Start a server and serve until a signal or a failure ends the process.

    Raises:
        Refused: argparse's verdict.
        Failed: SGLang's own error in its main process.
    """
    args = parse_arguments(argv, program, release)
    world = read_world(environ)
    settings, node = configure(args, release, world, dict(os.environ))
    server = Server((settings, node), args, world)
    try:
        server.run()
    except Failed as failure:
        if failure.process in ("", "APIServer"):
            raise
        write_error(failure.text)
        write_error("Received sigquit from a child process. It usually means the child failed.\n")
        os.kill(os.getpid(), signal.SIGKILL)


class Server:
    """Everything that runs in one server process."""

    def __init__(self, parts: tuple[Settings, Node], args: Arguments, world: World) -> None:
        self._settings, self._node = parts
        self._args, self._world = args, world
        self._loop = Loop()
        self._log = Log("")
        self._store = BlockStore()
        self._journal = Journal(world.state, world.host)
        self._kept: list[Any] = []
        self._is_stalled = False
        self._next_rank = 0
        self._worker_port = 0
        self._front: SglangFrontEnd | None = None

    def run(self) -> None:
        """Start and serve."""
        self._loop.run(self._main())

    async def _main(self) -> None:
        node = self._node
        http, guard = self._reserve_http()
        self._kept.append(guard)
        check_network(dict(os.environ), self._settings.parallel, self._world)
        self._open_ports()
        nodes = self._rendezvous()
        self._kept.append(take_devices(self._world, tuple(range(node.devices)), None))
        check_shared_memory(dict(os.environ), self._world, self._settings.parallel)
        self._settings = fit(self._settings, self._world)
        if nodes is not None:
            await nodes.join()
            check_cards(dict(os.environ), self._world, self._settings.parallel)
            for line in network_lines(self._world, self._settings.parallel):
                self._log.draw(line)
        if node.mode != "null" and self._args["disaggregation_transfer_backend"] == "mooncake":
            for line in mooncake_lines(self._world):
                self._log.draw(line)
        check_weights(self._settings.checkpoint.path)
        count = num_shards(self._settings.checkpoint.path)
        self._log.tell("model_runner", "Load weight begin. avail mem=0.00 GB")
        await self._loop.sleep(self._world.load_seconds)
        self._log.draw(f"Loading safetensors checkpoint shards: 100% Completed | {count}/{count}")
        took = self._world.load_seconds
        self._log.tell("model_runner", f"Load weight end. elapsed={took:.2f} s")
        self._log.tell("scheduler", f"max_total_num_tokens={self._settings.kv_tokens}")
        if not self._args["disable_cuda_graph"]:
            self._log.tell("model_runner", "Capture cuda graph begin. avail mem=0.00 GB")
            self._log.tell("model_runner", "Capture cuda graph end. Time elapsed: 0.00 s.")
        if node.node_rank > 0:
            serve_http(self._loop, http, _dummy_health)
        else:
            self._open_bootstrap()
            front = self._front = SglangFrontEnd(self._settings, self._generate, self._token)
            serve_http(self._loop, http, front.handle)
            await self._loop.sleep(STEP_SECONDS)
            front.is_starting = False
            self._log.tell("http_server", "The server is fired up and ready to roll!")
        await Future[None]()

    def _reserve_http(self) -> Any:
        settings = self._settings
        try:
            return reserve(settings.host, settings.port)
        except OSError as error:
            text = f"error while attempting to bind on address ('{settings.host}', {settings.port})"
            raise Failed(
                "ERROR", f"[Errno {error.errno}] {text}: {(error.strerror or '').lower()}", ""
            ) from error

    def _open_ports(self) -> None:
        """DP attention talks over TCP on the head node: dist port + 1 to + 5, from 0.5.23 + 6."""
        node = self._node
        if not node.has_dp_attention or node.node_rank > 0:
            return
        host, first = node.dist_address or ("127.0.0.1", self._settings.port + ZMQ_PORT_DELTA)
        count = 6 if self._settings.release.numbers >= (0, 5, 23) else 5
        for name, shift in zip(PORT_NAMES[:count], range(1, count + 1)):  # noqa: B905 - not in 3.9
            try:
                listener = bind(host, first + shift)
                listener.listen(16)
            except OSError as error:
                raise Failed(
                    "ValueError",
                    f"{name} at {first + shift} is not available in 30 seconds. {error.strerror}",
                    process="",
                ) from error
            self._kept.append(listener)

    def _rendezvous(self) -> Rendezvous | None:
        node = self._node
        if node.num_nodes == 1 and node.dist_address is None:
            return None
        host, port = node.dist_address or ("127.0.0.1", self._settings.port + ZMQ_PORT_DELTA)
        place = Place(host, port, node.node_rank, node.num_nodes)
        facts = {
            "num_nodes": node.num_nodes,
            "tensor": self._settings.parallel.tensor,
            "pipeline": self._settings.parallel.pipeline,
            "data_parallel": node.data_parallel,
        }
        limit = float(self._args["dist_timeout"] or TIMEOUT_SECONDS) * self._world.time_scale
        nodes = Rendezvous(self._loop, self._log, place, facts, limit)
        nodes.on_loss = self._stall
        nodes.listen()
        return nodes

    def _stall(self) -> None:
        self._log.caution("scheduler", "a node is gone; collectives hang")
        self._is_stalled = True
        if self._front is not None:
            self._front.is_starting = True

    def _open_bootstrap(self) -> None:
        """Open the prefill server's bootstrap port and the port of its KV sender."""
        if self._node.mode != "prefill":
            return
        address, port = self._settings.addresses.host, self._node.bootstrap_port
        worker = bind_zmq(address, 0, f"tcp://{address}:0")
        self._worker_port = int(worker.getsockname()[1])
        limit = BOOTSTRAP_SECONDS * self._world.time_scale

        def sent(num_tokens: int) -> None:
            carry(self._world, "port_xmit_data", num_tokens)

        BlockListener(self._loop, self._store, {}, limit, sent).listen(worker)
        try:
            listener = bind(self._settings.host, port)
        except OSError as error:
            text = f"error while attempting to bind on address ('{self._settings.host}', {port})"
            message = f"[Errno {error.errno}] {text}: {(error.strerror or '').lower()}"
            raise Failed("OSError", message, "Scheduler") from error
        serve_http(self._loop, listener, self._bootstrap)

    async def _bootstrap(self, request: Request) -> Response:
        if request.path == "/health":
            return Response(200, b"OK", "text/plain")
        if request.path != "/route":
            return json_response({"detail": "Not Found"}, 404)
        names = ("engine_rank", "target_dp_group", "target_pp_rank")
        if any(not request.query.get(name) for name in names):
            return Response(400, b"Missing inputs for bootstrap server.", "text/plain")
        if request.query["engine_rank"] == "-1":
            return json_response(
                {
                    "prefill_attn_tp_size": self._settings.parallel.tensor
                    // max(1, self._node.data_parallel),
                    "prefill_dp_size": self._node.data_parallel,
                    "prefill_pp_size": self._settings.parallel.pipeline,
                    "prefill_page_size": self._node.page_size,
                }
            )
        return json_response(
            {"rank_ip": self._settings.addresses.host, "rank_port": self._worker_port}
        )

    async def _token(self) -> bool:
        """Whether the scheduler gives a token in time, whichever half of a pair this server is."""
        if self._is_stalled:
            await self._loop.sleep(HEALTH_CHECK_SECONDS * self._world.time_scale)
        return not self._is_stalled

    async def _generate(self, request: dict[str, Any]) -> dict[str, Any]:
        """Answer one request as the scheduler of this server does."""
        room, mode = request["bootstrap_room"], self._node.mode
        if mode != "null" and room is None:
            reason = (
                "Invalid request: Disaggregated request received without bootstrap room id. "
                f"req.rid='{request['request_id']}'"
            )
            return {"error": "BadRequestError", "reason": reason, "status": 400}
        if self._is_stalled:
            await Future[None]()
        source = ""
        if mode == "decode":
            source, failure = await self._fetch(request)
            if failure:
                return {"error": "InternalServerError", "reason": failure, "status": 500}
        await self._loop.sleep(STEP_SECONDS)
        limit = 1 if mode == "prefill" else request["max_tokens"]
        # a decode server of 0.5.9 has no prefix cache (server_args.py: chunk cache)
        spoken = garbled(request["tokens"]) if self._world.garbles(source) else request["tokens"]
        tokens = spoken[:limit]
        if mode == "prefill":
            failure = await self._hand_over(request)
            if failure:
                return {"error": "InternalServerError", "reason": failure, "status": 500}
        self._note(request, len(tokens), source)
        return {
            "tokens": tokens,
            "finish_reason": "length" if len(tokens) >= limit else "stop",
            "kv_transfer_params": None,
        }

    async def _hand_over(self, request: dict[str, Any]) -> str:
        """Keep the blocks of a prefill until decode took them; return the failure, empty without one."""
        key = str(request["bootstrap_room"])
        self._store.publish(key, request["num_prompt_tokens"], self._node.page_size)

        async def wait() -> None:
            await self._store.fetched(key)

        try:
            await self._loop.within(BOOTSTRAP_SECONDS * self._world.time_scale, wait())
        except TimedOut:
            return (
                f"Prefill bootstrap failed for request rank=0 req.rid='{request['request_id']}' "
                f"req.bootstrap_room={key} with exception KVTransferError: Request {key} timed out after "
                f"{BOOTSTRAP_SECONDS}.0s in KVPoll.Bootstrapping"
            )
        return ""

    async def _fetch(self, request: dict[str, Any]) -> tuple[str, str]:
        """Fetch the blocks of a request; return where from, and the failure, empty without one."""
        key, limit = str(request["bootstrap_room"]), BOOTSTRAP_SECONDS * self._world.time_scale
        address = f"{request['bootstrap_host']}:{request['bootstrap_port']}"
        failed = (
            f"Decode handshake failed for request rank=0 decode_req.req.rid='{request['request_id']}' "
            f"decode_req.req.bootstrap_room={key} with exception KVTransferError(bootstrap_room={key}): "
        )
        base = f"http://{address}/route?"
        query = "engine_rank=-1&target_dp_group=-1&target_pp_rank=-1"
        sizes = await fetch_json(self._loop, base + query, limit)
        if sizes is None:
            return (
                "",
                f"{failed}Could not fetch prefill parallel info from bootstrap_addr: {address}",
            )
        if sizes["prefill_page_size"] != self._node.page_size:
            return "", (
                f"{failed}Page size mismatch: prefill server has page_size={sizes['prefill_page_size']}, but "
                f"decode server has page_size={self._node.page_size}. Both servers must use the same "
                "--page-size value."
            )
        where = await fetch_json(
            self._loop, base + "engine_rank=0&target_dp_group=0&target_pp_rank=0", limit
        )
        if where is None:
            return "", f"{failed}Could not fetch bootstrap info from {address}"
        sender = (where["rank_ip"], int(where["rank_port"]))
        try:
            answer = await wire.ask(
                self._loop, sender, {"type": "READ", "key": key, "waits": True}, limit
            )
        except (OSError, TimedOut):
            answer = {"ok": False, "reason": f"lost {sender[0]}:{sender[1]}"}
        if not answer.get("ok"):
            return "", f"{failed}{answer.get('reason')}"
        carry(self._world, "port_rcv_data", int(answer.get("num_tokens") or 0))
        return f"{sender[0]}:{sender[1]}", ""

    def _note(self, request: dict[str, Any], count: int, source: str) -> None:
        rank = request["data_parallel_rank"]
        if rank is None:
            rank = self._next_rank % self._node.data_parallel
            self._next_rank += 1
        self._journal.note(
            {
                "port": self._settings.port,
                "dp_rank": rank,
                "role": self._settings.kv.role if self._settings.kv is not None else None,
                "path": request["path"],
                "request_id": request["request_id"],
                "completion_tokens": count,
                "kv_from": source or None,
            }
        )


async def _dummy_health(request: Request) -> Response:
    """Nodes after the first answer health checks and nothing else."""
    is_health = request.path in ("/health", "/health_generate")
    return Response(200) if is_health else json_response({"detail": "Not Found"}, 404)
