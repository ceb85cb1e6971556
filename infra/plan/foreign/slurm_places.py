"""Where srtctl puts the workers of an srt-slurm recipe, and which ports it gives them.

Source: NVIDIA/srt-slurm src/srtctl/core/topology.py, ports.py and backends/vllm.py at commit c88ef731, 2026-08-21.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from infra.plan.foreign.yaml_pages import Node

MAX_WORKERS = 512
HTTP_PORT, HTTP_STRIDE = 6100, 32
BOOTSTRAP_PORT, NIXL_PORT, RPC_PORT = 7200, 5400, 8400
_MODES = ("prefill", "decode", "agg")


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One worker: its mode, number, nodes and the devices that it takes on each of them."""

    mode: str
    index: int
    nodes: tuple[int, ...]
    devices: tuple[int, ...]


@dataclass(slots=True)
class NodePorts:
    """srtctl's NodePortAllocator."""

    http: dict[int, int] = field(default_factory=dict)
    bootstrap: dict[int, int] = field(default_factory=dict)
    rpc: dict[int, int] = field(default_factory=dict)
    nixl: int = NIXL_PORT
    number: int = 0

    def take_http(self, node: int) -> int:
        """The next port for requests on a node."""
        return _take(self.http, node, HTTP_PORT, HTTP_STRIDE)

    def take_bootstrap(self, node: int) -> int:
        """The next bootstrap port on a node."""
        return _take(self.bootstrap, node, BOOTSTRAP_PORT)

    def take_rpc(self, node: int) -> int:
        """The next handshake port of data-parallel ranks on a node."""
        return _take(self.rpc, node, RPC_PORT)

    def take_nixl(self, count: int) -> int:
        """A block of side-channel ports: its first."""
        port = self.nixl
        self.nixl += count
        return port


def _take(table: dict[int, int], node: int, base: int, stride: int = 1) -> int:
    port = table.get(node, base)
    table[node] = port + stride
    return port


def base_of(root: Node) -> Node:
    """The recipe itself: below `base:` where its variants stand beside it."""
    return root.get("base") if root.get("base").is_there else root


def value_of(config: Node, name: str) -> Node:
    """A flag under either spelling."""
    dashed = config.get(name)
    return dashed if dashed.is_there else config.get(name.replace("-", "_"))


def size_of(config: Node, name: Literal["tensor", "pipeline", "data"]) -> int:
    """A parallel size, in whichever spelling it stands (`tensor-parallel-size`, `tp-size`, `tp`), at least 1."""
    short = f"{name[0]}p"
    spellings = (f"{name}-parallel-size", f"{short}-size", short)
    found = (value_of(config, spelling) for spelling in spellings)
    return max(
        next((node for node in found if node.is_there), value_of(config, short)).number(1), 1
    )


def engine_of(top: Node) -> str:
    """The back end that a recipe names; SGLang where it names none."""
    return top.get("backend", "type").text("sglang")


def config_of(top: Node, mode: str) -> Node:
    """The flags of the workers of one mode."""
    name = "aggregated" if mode == "agg" else mode
    return top.get("backend", f"{engine_of(top)}_config", name)


def allocate_endpoints(top: Node) -> list[Endpoint]:
    """Workers on nodes, prefill before decode before aggregated (core/topology.py allocate_endpoints)."""
    resources = top.get("resources")
    per_node = max(resources.get("gpus_per_node").number(4), 1)
    found: list[Endpoint] = []
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
                found.append(Endpoint(mode, index, nodes, tuple(range(per_node))))
                node += count
                continue
            if offset + width > per_node:
                node, offset = node + 1, 0
            found.append(Endpoint(mode, index, (node,), tuple(range(offset, offset + width))))
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
