"""srt-slurm recipes, read as srtctl would start them: endpoints on nodes, ports by its allocator, flags from its maps.

Source: NVIDIA/srt-slurm src/srtctl/{backends/vllm.py,backends/sglang.py,core/topology.py,ports.py} at commit c88ef731,
2026-08-21.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from infra.inventory.book import documentation_hosts
from infra.plan.foreign.source import Launch, NotUnderstood, Recipe, Word
from infra.plan.foreign.yaml_pages import Node

MAX_WORKERS = 512
HTTP_PORT, HTTP_STRIDE = 6100, 32
BOOTSTRAP_PORT, DIST_PORT, NCCL_PORT = 7200, 8300, 17500
NIXL_PORT, RPC_PORT = 5400, 8400
VLLM_PORT, VLLM_STRIDE = 20000, 50
FRONTEND_PORT = 8000
_MODES = ("prefill", "decode", "agg")
_CONNECTORS: Mapping[str, Mapping[str, str]] = {
    "nixl": {"kv_connector": "NixlConnector", "kv_role": "kv_both"},
    "lmcache": {"kv_connector": "LMCacheConnectorV1", "kv_role": "kv_both"},
    "kvbm": {
        "kv_connector": "DynamoConnector",
        "kv_connector_module_path": "kvbm.vllm_integration.connector",
        "kv_role": "kv_both",
    },
}
# What srtctl derives itself: it drops these from the recipe's maps.
_SGLANG_DROPPED = ("model-path", "served-model-name", "nccl-port")
_VLLM_DROPPED = (
    "connector",
    "data-parallel-rpc-port",
    "data-parallel-size-local",
    "data-parallel-start-rank",
    "data-parallel-hybrid-lb",
    "headless",
)
_VLLM_DIRECT_DROPPED = (
    "headless",
    "host",
    "port",
    "master-addr",
    "nnodes",
    "node-rank",
    "connector",
)


def is_slurm_recipe(root: Node) -> bool:
    """Whether it has a model, resources and a back end."""
    top = _base(root)
    return all(top.get(key).is_there for key in ("model", "resources", "backend"))


@dataclass(frozen=True, slots=True)
class _Endpoint:
    """One worker: its mode, number, nodes and the devices that it takes on each of them."""

    mode: str
    index: int
    nodes: tuple[int, ...]
    devices: tuple[int, ...]


@dataclass(slots=True)
class _Ports:
    """srtctl's NodePortAllocator."""

    http: dict[int, int] = field(default_factory=dict)
    bootstrap: dict[int, int] = field(default_factory=dict)
    rpc: dict[int, int] = field(default_factory=dict)
    nixl: int = NIXL_PORT
    number: int = 0

    def take(self, table: dict[int, int], node: int, base: int, stride: int = 1) -> int:
        """The next port of a table on a node."""
        port = table.get(node, base)
        table[node] = port + stride
        return port

    def take_nixl(self, count: int) -> int:
        """A block of side-channel ports: its first."""
        port = self.nixl
        self.nixl += count
        return port


def read_slurm_recipe(root: Node) -> Recipe:
    """The processes of an srt-slurm recipe.

    Raises:
        TooMuchWorkError: it has more devices or processes than are followed.
    """
    top = _base(root)
    notes = [
        NotUnderstood(
            node.line, key, "a variant: `srtctl resolve-override` writes it as a file of its own"
        )
        for key, node in root.items()
        if "override" in key
    ]
    engine: Literal["vllm", "sglang"] | None = None
    kind = top.get("backend", "type").text("sglang")
    if kind in ("vllm", "sglang"):
        engine = "vllm" if kind == "vllm" else "sglang"
    endpoints = _endpoints(top)
    if engine is None:
        why = "only vllm and sglang are read"
        notes.append(NotUnderstood(top.get("backend").line, f"backend {kind}", why))
        endpoints = []
    per_node = top.get("resources", "gpus_per_node").number(4)
    num_nodes = max((node for e in endpoints for node in e.nodes), default=-1) + 1
    names = [f"node{index}" for index in range(num_nodes)]
    book = documentation_hosts(names)
    addresses = {name: book.address(name, seen_from=name) for name in names}
    spelling = _Spelling(top, engine or "vllm", per_node, addresses)
    launches = [launch for endpoint in endpoints for launch in spelling.launches(endpoint)]
    _note_rest(top, notes)
    image = top.get("model", "container")
    identity = top.get("identity", "container", "image")
    return Recipe(
        format="srt-slurm recipe",
        launches=tuple(launches),
        not_understood=tuple(notes),
        is_whole=True,
        addresses=addresses,
        hints=tuple(node.word() for node in (identity, image) if node.is_there),
        devices_per_host=per_node,
        accelerator=top.get("resources", "gpu_type").text() or None,
        engine_version=top.get("identity", "frameworks", engine or "").text() or None,
        name=top.get("name").text(),
    )


def _base(root: Node) -> Node:
    return root.get("base") if root.get("base").is_there else root


def _note_rest(top: Node, notes: list[NotUnderstood]) -> None:
    """Parts that change how engines start, and are not followed."""
    for key in ("setup_script", "sweep", "extends"):
        if top.get(key).is_there:
            why = "it changes what runs, and is not followed"
            notes.append(NotUnderstood(top.get(key).line, f"{key}: {top.get(key).text()}", why))
    frontend = top.get("frontend", "type").text("dynamo")
    why = f"the {frontend} front end is started beside the engines, and is left out of the plan"
    line = top.get("frontend").line if top.get("frontend").is_there else 1
    notes.append(NotUnderstood(line, "frontend", why))


def _endpoints(top: Node) -> list[_Endpoint]:
    """Workers on nodes, prefill before decode before aggregated (core/topology.py allocate_endpoints)."""
    resources = top.get("resources")
    per_node = max(resources.get("gpus_per_node").number(4), 1)
    found: list[_Endpoint] = []
    node, offset = 0, 0
    total = sum(resources.get(f"{mode}_nodes").number() for mode in _MODES)
    for mode in _MODES:
        workers = min(resources.get(f"{mode}_workers").number(), MAX_WORKERS)
        width = _devices_per_worker(resources, mode, per_node)
        resources.page.work.spend(workers * max(width, per_node, 1), resources.line)
        if mode == "decode" and workers and offset and node + 1 < total:
            node, offset = node + 1, 0
        for index in range(workers):
            if width >= per_node:
                count = -(-width // per_node)
                nodes = tuple(range(node, node + count))
                found.append(_Endpoint(mode, index, nodes, tuple(range(per_node))))
                node += count
                continue
            if offset + width > per_node:
                node, offset = node + 1, 0
            found.append(_Endpoint(mode, index, (node,), tuple(range(offset, offset + width))))
            offset += width
            if offset >= per_node:
                node, offset = node + 1, 0
    return found


def _devices_per_worker(resources: Node, mode: str, per_node: int) -> int:
    """ResourceConfig.gpus_per_*."""
    told = resources.get(f"gpus_per_{mode}").number()
    workers, nodes = resources.get(f"{mode}_workers").number(), resources.get(f"{mode}_nodes")
    if told:
        return told
    if nodes.number() and workers:
        return max(nodes.number() * per_node // workers, 1)
    if mode == "decode" and workers and nodes.is_there:
        return _devices_per_worker(resources, "prefill", per_node)
    return per_node


@dataclass(slots=True)
class _Spelling:
    """Command lines of endpoints, as the back ends build them."""

    top: Node
    engine: Literal["vllm", "sglang"]
    per_node: int
    addresses: Mapping[str, str]
    ports: _Ports = field(default_factory=_Ports)

    def launches(self, endpoint: _Endpoint) -> list[Launch]:
        """The processes of one endpoint: one per node, or one per device."""
        self._config(endpoint.mode).spend(len(endpoint.nodes))
        build = self._vllm if self.engine == "vllm" else self._sglang
        return build(endpoint, self._config(endpoint.mode))

    def _config(self, mode: str) -> Node:
        name = "aggregated" if mode == "agg" else mode
        return self.top.get("backend", f"{self.engine}_config", name)

    def _launch(
        self, endpoint: _Endpoint, node: int, words: list[Word], own_env: Mapping[str, str]
    ) -> Launch:
        name = "aggregated" if endpoint.mode == "agg" else endpoint.mode
        self.top.get("environment").spend()
        given = self.top.get("backend", f"{name}_environment")
        env = {key: value.word() for key, value in self.top.get("environment").items()}
        env |= {key: value.word() for key, value in given.items()}
        line = given.line
        if len(endpoint.devices) < self.per_node:
            own_env = {**own_env, "CUDA_VISIBLE_DEVICES": ",".join(map(str, endpoint.devices))}
        env |= {key: Word(value, line) for key, value in own_env.items()}
        self.ports.number += 1
        return Launch(
            words=tuple(words),
            env=env,
            host=f"node{node}",
            role=None if endpoint.mode == "agg" else endpoint.mode,
            group=f"{endpoint.mode}-{endpoint.index}",
        )

    def _head(self, config: Node, module: str) -> list[Word]:
        """`python3 -m module --model PATH --served-model-name NAME`."""
        path = self.top.get("model", "path")
        text = path.text().removeprefix("hf:") if path.text().startswith("hf:") else "/model"
        served = config.get("served-model-name")
        name = served.text() or path.text().rpartition("/")[2]
        line = config.line
        flag = "--model" if self.engine == "vllm" else "--model-path"
        words = [Word(w, line) for w in ("python3", "-m", module)]
        words += [Word(flag, path.line), Word(text, path.line)]
        at = served.line if served.is_there else path.line
        return [*words, Word("--served-model-name", at), Word(name, at)]

    def _sglang(self, endpoint: _Endpoint, config: Node) -> list[Launch]:
        direct = self.top.get("frontend", "type").text() == "sglang"
        module = "sglang.launch_server" if direct else "dynamo.sglang"
        bootstrap = None
        if endpoint.mode == "prefill":
            bootstrap = self.ports.take(self.ports.bootstrap, endpoint.nodes[0], BOOTSTRAP_PORT)
        found = []
        for rank, node in enumerate(endpoint.nodes):
            line = config.line
            http = self.ports.take(self.ports.http, node, HTTP_PORT, HTTP_STRIDE) if not rank else 0
            own = ["--host", "0.0.0.0", "--port", str(http)]  # noqa: S104 - as srtctl writes it
            own += ["--nccl-port", str(NCCL_PORT + self.ports.number)]
            if endpoint.mode != "agg":
                own += ["--disaggregation-mode", endpoint.mode]
            if bootstrap is not None:
                own += ["--disaggregation-bootstrap-port", str(bootstrap)]
            if len(endpoint.nodes) > 1:
                leader = self.addresses[f"node{endpoint.nodes[0]}"]
                own += ["--dist-init-addr", f"{leader}:{DIST_PORT}"]
                own += ["--nnodes", str(len(endpoint.nodes)), "--node-rank", str(rank)]
            words = [*self._head(config, module), *(Word(word, line) for word in own)]
            words += _flag_words(config, _SGLANG_DROPPED)
            found.append(self._launch(endpoint, node, words, {}))
        return found

    def _vllm(self, endpoint: _Endpoint, config: Node) -> list[Launch]:
        if self.top.get("frontend", "type").text() == "vllm":
            return self._vllm_direct(endpoint, config)
        sizes = {key: _size(config, key) for key in ("tensor", "pipeline", "data")}
        width = sizes["tensor"] * sizes["pipeline"]
        spans = width > len(endpoint.devices)
        is_parallel = _value(config, "data-parallel-size").is_there
        per_rank = self.top.get("backend", "dp_launch_mode").text("per_node") == "per_gpu"
        ranks = sizes["data"] if is_parallel else len(endpoint.nodes)
        nixl = self.ports.take_nixl(ranks)
        rpc = self.ports.take(self.ports.rpc, endpoint.nodes[0], RPC_PORT) if is_parallel else 0
        found = []
        local = max(len(endpoint.devices) // width, 1)
        for index, node in enumerate(endpoint.nodes):
            parts = range(len(endpoint.devices)) if is_parallel and per_rank else range(1)
            for part in parts:
                if is_parallel and per_rank:
                    own = self._rank_words(endpoint, index * len(endpoint.devices) + part, rpc)
                    place = _Endpoint(
                        endpoint.mode, endpoint.index, endpoint.nodes, (endpoint.devices[part],)
                    )
                elif is_parallel and not spans:
                    own, place = self._local_words(endpoint, index * local, (local, rpc)), endpoint
                else:
                    own, place = self._node_words(endpoint, index), endpoint
                port = nixl if is_parallel else nixl + index
                found.append(self._dynamo_vllm(place, (node, port), own, config))
        return found

    def _dynamo_vllm(
        self, endpoint: _Endpoint, place: tuple[int, int], own: list[str], config: Node
    ) -> Launch:
        node, nixl = place
        line = config.line
        words = self._head(config, "dynamo.vllm")
        if endpoint.mode != "agg":
            words += [Word("--disaggregation-mode", line), Word(endpoint.mode, line)]
        words += self._connector(config)
        words += [Word(word, line) for word in own]
        words += _flag_words(config, (*_VLLM_DROPPED, "served-model-name", "model"))
        env = {
            "VLLM_NIXL_SIDE_CHANNEL_PORT": str(nixl),
            "VLLM_NIXL_SIDE_CHANNEL_HOST": self.addresses[f"node{node}"],
            "VLLM_PORT": str(VLLM_PORT + self.ports.number * VLLM_STRIDE),
        }
        return self._launch(endpoint, node, words, env)

    def _connector(self, config: Node) -> list[Word]:
        own = config.get("connector")
        node = own if own.is_there else self.top.get("backend", "connector")
        name = node.text() if node.is_there else self._default_connector()
        if not name or name in ("null", "none"):
            return []
        preset = _CONNECTORS.get(name.lower())
        text = json.dumps(preset) if preset else name
        return [Word("--kv-transfer-config", node.line), Word(text, node.line)]

    def _default_connector(self) -> str:
        """`nixl` where the key is left out; none where it is written as null."""
        value = self.top.get("backend").value
        return "" if isinstance(value, Mapping) and "connector" in value else "nixl"

    def _leader(self, endpoint: _Endpoint) -> str:
        return self.addresses[f"node{endpoint.nodes[0]}"]

    def _rank_words(self, endpoint: _Endpoint, rank: int, rpc: int) -> list[str]:
        words = [
            "--data-parallel-rank",
            str(rank),
            "--data-parallel-address",
            self._leader(endpoint),
        ]
        return [*words, "--data-parallel-rpc-port", str(rpc)]

    def _local_words(self, endpoint: _Endpoint, first: int, sizes: tuple[int, int]) -> list[str]:
        local, rpc = sizes
        words = ["--data-parallel-size-local", str(local), "--data-parallel-start-rank", str(first)]
        words += ["--data-parallel-address", self._leader(endpoint)]
        return [*words, "--data-parallel-rpc-port", str(rpc), "--data-parallel-hybrid-lb"]

    def _node_words(self, endpoint: _Endpoint, rank: int) -> list[str]:
        if len(endpoint.nodes) == 1:
            return []
        words = ["--master-addr", self._leader(endpoint), "--nnodes", str(len(endpoint.nodes))]
        return [*words, "--node-rank", str(rank), *(["--headless"] if rank else [])]

    def _vllm_direct(self, endpoint: _Endpoint, config: Node) -> list[Launch]:
        """`vllm serve` without Dynamo: aggregated only."""
        found = []
        for rank, node in enumerate(endpoint.nodes):
            head = self._head(config, "")
            words = [Word("vllm", config.line), Word("serve", config.line), *head[4:]]
            own = ["--host", "0.0.0.0", "--port", str(FRONTEND_PORT)] if not rank else []  # noqa: S104
            own += self._node_words(endpoint, rank)
            words += [Word(word, config.line) for word in own]
            words += _flag_words(config, (*_VLLM_DIRECT_DROPPED, "served-model-name"))
            found.append(self._launch(endpoint, node, words, {}))
        return found


def _value(config: Node, name: str) -> Node:
    """A flag under either spelling."""
    dashed = config.get(name)
    return dashed if dashed.is_there else config.get(name.replace("-", "_"))


def _size(config: Node, name: str) -> int:
    return max(_value(config, f"{name}-parallel-size").number(1), 1)


def _flag_words(config: Node, dropped: tuple[str, ...]) -> list[Word]:
    """The map of flags as words (`_config_to_cli_args`)."""
    words: list[Word] = []
    for key, node in sorted(config.items()):
        name = key.replace("_", "-")
        if name in dropped or node.value is None or node.value is False:
            continue
        words.append(Word(f"--{name}", node.line))
        if isinstance(node.value, list):
            words += [item.word() for item in node.nodes()]
        elif node.value is not True:
            words.append(node.word())
    return words
