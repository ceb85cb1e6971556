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
from infra.plan.foreign.slurm_places import (
    Endpoint,
    NodePorts,
    allocate_endpoints,
    base_of,
    config_of,
    engine_of,
    size_of,
    value_of,
)
from infra.plan.foreign.source import Launch, NotUnderstood, Recipe, Word
from infra.plan.foreign.yaml_pages import Node

FRONTEND_PORT = 8000
DIST_PORT, NCCL_PORT = 8300, 17500
VLLM_PORT, VLLM_STRIDE = 20000, 50
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
    top = base_of(root)
    return all(top.get(key).is_there for key in ("model", "resources", "backend"))


def read_slurm_recipe(top: Node) -> Recipe:
    """The processes of an srt-slurm recipe, or of one variant of it, its placeholders filled.

    Raises:
        TooMuchWorkError: it has more devices or processes than are followed.
    """
    notes: list[NotUnderstood] = []
    kind = engine_of(top)
    engine: Literal["vllm", "sglang"] = "vllm" if kind == "vllm" else "sglang"
    is_read = kind in ("vllm", "sglang")
    endpoints = allocate_endpoints(top) if is_read else []
    per_node = top.get("resources", "gpus_per_node").number(4)
    num_nodes = max((node for e in endpoints for node in e.nodes), default=-1) + 1
    names = [f"node{index}" for index in range(num_nodes)]
    book = documentation_hosts(names)
    addresses = {name: book.address(name, seen_from=name) for name in names}
    spelling = _Spelling(top, engine, per_node, addresses)
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
        engine_version=top.get("identity", "frameworks", engine).text() or None,
        name=top.get("name").text(),
        other_engine=None if is_read else Word(kind, top.get("backend").line),
    )


def _note_rest(top: Node, notes: list[NotUnderstood]) -> None:
    """Parts that change how engines start, and are not followed."""
    for key in ("setup_script", "extends"):
        if top.get(key).is_there:
            why = "it changes what runs, and is not followed"
            notes.append(NotUnderstood(top.get(key).line, f"{key}: {top.get(key).text()}", why))
    frontend = top.get("frontend", "type").text("dynamo")
    why = f"the {frontend} front end is started beside the engines, and is left out of the plan"
    line = top.get("frontend").line if top.get("frontend").is_there else 1
    notes.append(NotUnderstood(line, "frontend", why))


@dataclass(slots=True)
class _Spelling:
    """Command lines of endpoints, as the back ends build them."""

    top: Node
    engine: Literal["vllm", "sglang"]
    per_node: int
    addresses: Mapping[str, str]
    ports: NodePorts = field(default_factory=NodePorts)

    def launches(self, endpoint: Endpoint) -> list[Launch]:
        """The processes of one endpoint: one per node, or one per device."""
        config_of(self.top, endpoint.mode).spend(len(endpoint.nodes))
        build = self._vllm if self.engine == "vllm" else self._sglang
        return build(endpoint, config_of(self.top, endpoint.mode))

    def _launch(
        self, endpoint: Endpoint, node: int, words: list[Word], own_env: Mapping[str, str]
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

    def _sglang(self, endpoint: Endpoint, config: Node) -> list[Launch]:
        direct = self.top.get("frontend", "type").text() == "sglang"
        module = "sglang.launch_server" if direct else "dynamo.sglang"
        bootstrap = None
        if endpoint.mode == "prefill":
            bootstrap = self.ports.take_bootstrap(endpoint.nodes[0])
        found = []
        for rank, node in enumerate(endpoint.nodes):
            line = config.line
            http = self.ports.take_http(node) if not rank else 0
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

    def _vllm(self, endpoint: Endpoint, config: Node) -> list[Launch]:
        if self.top.get("frontend", "type").text() == "vllm":
            return self._vllm_direct(endpoint, config)
        sizes = {key: size_of(config, key) for key in ("tensor", "pipeline", "data")}
        width = sizes["tensor"] * sizes["pipeline"]
        spans = width > len(endpoint.devices)
        is_parallel = value_of(config, "data-parallel-size").is_there
        per_rank = self.top.get("backend", "dp_launch_mode").text("per_node") == "per_gpu"
        ranks = sizes["data"] if is_parallel else len(endpoint.nodes)
        nixl = self.ports.take_nixl(ranks)
        rpc = self.ports.take_rpc(endpoint.nodes[0]) if is_parallel else 0
        found = []
        local = max(len(endpoint.devices) // width, 1)
        for index, node in enumerate(endpoint.nodes):
            parts = range(len(endpoint.devices)) if is_parallel and per_rank else range(1)
            for part in parts:
                if is_parallel and per_rank:
                    own = self._rank_words(endpoint, index * len(endpoint.devices) + part, rpc)
                    place = Endpoint(
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
        self, endpoint: Endpoint, place: tuple[int, int], own: list[str], config: Node
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

    def _leader(self, endpoint: Endpoint) -> str:
        return self.addresses[f"node{endpoint.nodes[0]}"]

    def _rank_words(self, endpoint: Endpoint, rank: int, rpc: int) -> list[str]:
        words = [
            "--data-parallel-rank",
            str(rank),
            "--data-parallel-address",
            self._leader(endpoint),
        ]
        return [*words, "--data-parallel-rpc-port", str(rpc)]

    def _local_words(self, endpoint: Endpoint, first: int, sizes: tuple[int, int]) -> list[str]:
        local, rpc = sizes
        words = ["--data-parallel-size-local", str(local), "--data-parallel-start-rank", str(first)]
        words += ["--data-parallel-address", self._leader(endpoint)]
        return [*words, "--data-parallel-rpc-port", str(rpc), "--data-parallel-hybrid-lb"]

    def _node_words(self, endpoint: Endpoint, rank: int) -> list[str]:
        if len(endpoint.nodes) == 1:
            return []
        words = ["--master-addr", self._leader(endpoint), "--nnodes", str(len(endpoint.nodes))]
        return [*words, "--node-rank", str(rank), *(["--headless"] if rank else [])]

    def _vllm_direct(self, endpoint: Endpoint, config: Node) -> list[Launch]:
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
