"""One ``vllm serve`` process from its arguments to serving."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Callable
from typing import Any

from . import connectors
from .checkpoint import check_loader, check_weights, num_shards
from .command_line import Arguments
from .container import check_cards, check_shared_memory
from .engine_core import Connector, EngineCore, make_site
from .failures import Failed, SideChannelTaken, write_error
from .handshake import Follower, Leader, bind_zmq
from .http_server import Request, Response, json_response, serve_http
from .log import Log
from .loop import Future, Loop
from .network import check_network, network_lines
from .parallel import Parallel
from .rendezvous import TIMEOUT_SECONDS, Place, Rendezvous
from .settings import Settings
from .streams import bind
from .vllm_api import FrontEnd
from .vllm_config import fit
from .world import World, take_devices

PROGRESS_STEPS = 4
LAST_PORT = 65535
# Every worker of a rank profiles with those that its own command line names (vllm#44718).
STEP_SIZES = ("max_num_batched_tokens", "max_num_seqs")
CONNECTORS: dict[str, Callable[[Any], Connector]] = {
    "nixl": connectors.NixlConnector,
    "ascend-mooncake": connectors.AscendMooncakeConnector,
    "mooncake": connectors.MooncakeConnector,
}


class Process:
    """Everything that runs in one ``vllm serve``."""

    def __init__(self, settings: Settings, args: Arguments, world: World) -> None:
        self._settings, self._args, self._world = settings, args, world
        self._loop = Loop()
        self._log = Log("APIServer" if not settings.parallel.is_headless else "EngineCore")
        self._http: list[socket.socket] = []
        self._group: Leader | Follower | None = None
        self._nodes: Rendezvous | None = None
        self._cores: dict[int, EngineCore] = {}
        self._kept: list[Any] = []
        self._is_ready = False

    def run(self) -> None:
        """Start and serve until a signal or a failure ends the process."""
        self._loop.run(self._main())

    async def _main(self) -> None:
        place = self._settings.parallel
        self._reserve_http()
        check_network(dict(os.environ), place, self._world)
        self._open_group()
        self._kept.append(
            take_devices(self._world, _local_devices(place), self._settings.utilisation)
        )
        check_shared_memory(dict(os.environ), self._world, place)
        self._settings = fit(self._settings, self._args, self._world)
        if self._nodes is not None:
            await self._nodes.join()
        if not place.has_engine and not place.is_headless:
            reason = "collective_rpc should not be called on follower node"
            raise Failed("AssertionError", reason, "EngineCore")
        if self._group is not None:
            await self._group.join()
        if self._nodes is not None or self._group is not None:
            check_cards(dict(os.environ), self._world, place)
            for line in network_lines(self._world, place):
                self._log.draw(line)
        await self._load()
        if self._nodes is not None:
            await self._nodes.profile()
        try:
            self._open_cores()
        except SideChannelTaken as failure:
            # the thread that listens ends, and the engine waits for it for ever (vllm 0.22.1, recorded)
            write_error(f"Exception in thread nixl_handshake_listener:\n{failure.text}")
            await Future[None]()
        if self._group is not None:
            await self._group.start()
        self._serve_http()
        await Future[None]()

    def _reserve_http(self) -> None:
        settings = self._settings
        place = settings.parallel
        if place.is_headless:
            return
        count = place.local if place.mode == "multi-port" else 1
        if settings.supervisor_port is not None:
            self._supervise(settings.supervisor_port)
        if settings.port > LAST_PORT:  # Linux would take what is left of it
            raise Failed("OverflowError", "bind(): port must be 0-65535.")
        for shift in range(count):
            try:
                listener = bind(settings.host, settings.port + shift, shares=True)
            except OSError as error:
                reason = (
                    "Address already in use" if error.errno == errno.EADDRINUSE else error.strerror
                )
                raise Failed("OSError", f"[Errno {error.errno}] {reason}") from error
            self._http.append(listener)
        shown = {
            k: v for k, v in self._args.values.items() if k in self._args.given and k != "api_key"
        }
        self._log.tell("api_server.py:2010", f"vLLM server version {settings.release.version}")
        self._log.tell("utils.py:233", f"non-default args: {shown}")

    def _supervise(self, port: int) -> None:
        try:
            listener = bind(self._settings.host, port)
        except OSError as error:
            text = f"error while attempting to bind on address ('{self._settings.host}', {port})"
            raise Failed(
                "OSError", f"[Errno {error.errno}] {text}: {error.strerror}", "DPSupervisor"
            ) from error
        serve_http(self._loop, listener, self._supervisor_state)

    async def _supervisor_state(self, request: Request) -> Response:
        if request.path not in ("/health", "/ready", "/readyz"):
            return json_response({"detail": "Not Found"}, 404)
        return Response(200 if self._is_ready else 503)

    def _open_group(self) -> None:
        place, scale = self._settings.parallel, self._world.time_scale
        if place.num_nodes > 1:
            where = Place(place.master_address, place.master_port, place.node_rank, place.num_nodes)
            facts = {
                "num_nodes": place.num_nodes,
                "world_size": place.size * place.workers_per_rank,
            }
            self._nodes = Rendezvous(self._loop, self._log, where, facts, TIMEOUT_SECONDS * scale)
            self._nodes.on_loss = self._stall
            self._nodes.step = {k: self._args[k] for k in STEP_SIZES if self._args[k] is not None}
            self._nodes.listen()
            own = self._settings.addresses.host
            self._kept.append(bind_zmq(own, 0, f"tcp://{own}:0"))
        if place.size == 1 or not place.has_engine:
            return
        if place.binds_rpc:
            self._group = Leader(self._loop, self._settings, self._world, self._log)
        elif place.first_rank > 0:
            follower = Follower(self._loop, self._settings, self._world, self._log)
            follower.on_generate = lambda rank, request: self._cores[rank].generate(request)
            self._group = follower
        if self._group is not None:
            self._group.on_stall = self._stall
            self._group.listen()

    def _stall(self) -> None:
        for core in self._cores.values():
            core.stall()

    async def _load(self) -> None:
        """Spend the load time, with the loader's progress lines."""
        paths = [self._settings.checkpoint.path]
        speculation = self._args["speculative_config"]
        if isinstance(speculation, dict) and speculation.get("model"):
            paths.append(speculation["model"])
        check_loader(str(self._args["load_format"]))
        for path in paths:
            check_weights(path)
        count = max(1, num_shards(paths[0]))
        for step in range(1, PROGRESS_STEPS + 1):
            await self._loop.sleep(self._world.load_seconds / PROGRESS_STEPS)
            done = count * step // PROGRESS_STEPS
            percent = 100 * step // PROGRESS_STEPS
            spent = self._world.load_seconds * step / PROGRESS_STEPS
            times = f"[{clock(spent)}<{clock(self._world.load_seconds - spent)}, {spent / max(done, 1):.2f}s/it]"
            self._log.draw(
                f"Loading safetensors checkpoint shards: {percent:3d}% Completed | {done}/{count} {times}"
            )
        took = self._world.load_seconds
        self._log.tell("default_loader.py:384", f"Loading weights took {took:.2f} seconds")
        self._log.tell(
            "gpu_model_runner.py:4879",
            f"Model loading took 0.0 GiB memory and {took:.6f} seconds",
        )
        tokens = self._settings.kv_tokens
        self._log.tell("kv_cache_utils.py:1307", f"GPU KV cache size: {tokens:,} tokens")
        if not self._args["enforce_eager"]:
            self._compile()
            name = "ACL" if self._settings.release.engine == "vllm-ascend" else "CUDA"
            bar = f"Capturing {name} graphs (decode, FULL): 100%|██████████| 1/1 [00:00<00:00]"
            self._log.draw(bar)
            self._log.tell(
                "gpu_model_runner.py:5700", "Graph capturing finished in 0 secs, took 0.00 GiB"
            )

    def _compile(self) -> None:
        """Find what was compiled for such a process, or keep it (compilation/backends.py 0.22.1)."""
        root = os.environ.get("VLLM_CACHE_ROOT")
        if root is None:
            return
        place = self._settings.parallel
        folder = os.path.join(
            root, "torch_compile_cache", place.config_hash, f"rank_{place.first_rank}"
        )
        self._log.tell(
            "backends.py:1060", f"Using cache directory: {folder} for vLLM's torch.compile"
        )
        if os.path.isdir(folder):
            self._log.tell("backends.py:390", "Directly load the compiled graph(s) from the cache")
            return
        os.makedirs(folder)  # who may not write there ends here, as vLLM does
        with open(os.path.join(folder, "computation_graph.py"), "w", encoding="utf-8") as file:
            file.write("# simulated\n")
        self._log.tell(
            "backends.py:415", "Compiling a graph for compile range (1, 8192) takes 0.00 s"
        )

    def _open_cores(self) -> None:
        place, settings = self._settings.parallel, self._settings
        if not place.has_engine:
            return
        site = (self._loop, settings, self._world, self._log)
        for rank in range(place.first_rank, place.first_rank + place.local):
            shift = rank - place.first_rank if place.mode == "multi-port" else 0
            core = EngineCore(site, rank, None if place.is_headless else settings.port + shift)
            core.caches_prefixes = self._args["enable_prefix_caching"] is not False
            if settings.kv is not None and settings.kv.connector in CONNECTORS:
                core.connector = CONNECTORS[settings.kv.connector](
                    make_site(core, settings.kv, site)
                )
                core.connector.listen()
            if self._group is not None and settings.checkpoint.num_experts:
                core.step = self._group.step
            self._cores[rank] = core
        self._open_bootstrap()

    def _open_bootstrap(self) -> None:
        """VLLM's own Mooncake connector: one bootstrap server per producing instance."""
        place = self._settings.parallel
        workers = {
            str(rank): core.connector.entry()
            for rank, core in self._cores.items()
            if isinstance(core.connector, connectors.MooncakeConnector)
        }
        kv = self._settings.kv
        is_own = place.mode in ("external", "hybrid", "multi-port") or place.first_rank == 0
        if not workers or kv is None or not kv.is_producer or not is_own:
            return
        port = self._settings.addresses.bootstrap_port
        try:
            listener = bind("0.0.0.0", port)
        except OSError as error:
            message = f"[Errno {error.errno}] error while attempting to bind on address ('0.0.0.0', {port})"
            raise Failed("OSError", f"{message}: address already in use", "EngineCore") from error

        async def query(request: Request) -> Response:
            is_query = request.path == "/query"
            return (
                json_response(workers) if is_query else json_response({"detail": "Not Found"}, 404)
            )

        serve_http(self._loop, listener, query)

    def _serve_http(self) -> None:
        place = self._settings.parallel
        own = tuple(self._cores)
        if place.mode == "internal":
            fronts = [tuple(range(place.size))]
        elif place.mode == "multi-port":
            fronts = [(rank,) for rank in own]
        else:
            fronts = [own]
        for listener, ranks in zip(self._http, fronts):  # noqa: B905 - not in Python 3.9
            front = FrontEnd(self._settings, ranks, self._generate, self._is_dead)
            serve_http(self._loop, listener, front.handle)
        self._is_ready = True
        if self._http:
            address = f"http://{self._settings.host}:{self._settings.port}"
            self._log.tell("launcher.py:38", f"Starting vLLM server on {address}")
            self._log.tell("on.py:62", "Application startup complete.")

    def _is_dead(self) -> bool:
        """Whether a request has made a core of this process fail."""
        return any(core.is_dead for core in self._cores.values())

    async def _generate(self, rank: int, request: dict[str, Any]) -> dict[str, Any]:
        core = self._cores.get(rank)
        if core is not None:
            return await core.generate(request)
        if not isinstance(self._group, Leader):
            raise Failed("RuntimeError", f"rank {rank} is not served here", "APIServer")
        return await self._group.generate(rank, request)


def clock(seconds: float) -> str:
    """Minutes and seconds as tqdm writes them."""
    return f"{int(seconds) // 60:02d}:{int(seconds) % 60:02d}"


def _local_devices(place: Parallel) -> tuple[int, ...]:
    """Return the positions of the visible devices that this process uses."""
    per_rank = place.local_workers_per_rank
    if place.mode in ("single", "external") or not place.has_engine:
        return tuple(range(per_rank))
    return tuple(range(place.local * per_rank))
