"""The RDMA card of a simulated host: what libraries log of its use, and the counters that it keeps.

UCX's lines were recorded with NIXL 1.5.1 (UCX 1.23) over TCP, Mooncake's with mooncake-transfer-engine-non-cuda
0.3.13.post1; with a card they differ by its name (openucx/ucx:src/ucp/core/ucp_worker.c@9466d10
ucp_worker_print_used_tls, kvcache-ai/Mooncake:…/transfer_engine_impl.cpp@3b5a594 line 429).
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Collection
from typing import Literal

from .world import World

Counter = Literal["port_xmit_data", "port_rcv_data"]

CARDS = "rdma"
SHOWN_IN_UCX = ("INFO", "DEBUG", "TRACE", "DATA", "REQ", "ASYNC", "FUNC", "POLL")
# One token's KV of Kimi K2: 61 layers of 576 values of two bytes.
TOKEN_BYTES = 61 * 576 * 2
WORD_BYTES = 4


def ucx_endpoint_lines(world: World, agent: str, backends: Collection[str] = ()) -> list[str]:
    """What UCX logs of its first endpoint to another host, with UCX_LOG_LEVEL=info; nothing where NIXL has others."""
    if backends and "UCX" not in backends:
        return []
    if os.environ.get("UCX_LOG_LEVEL", "").upper() not in SHOWN_IN_UCX:
        return []
    if world.network in ("socket", "efa"):  # UCX finds no verbs on either
        lanes = "rma_am({0})  amo_am({0})  am({0})  ka({0})".format("tcp/eth0")
    else:
        lanes = "rma({0})  amo({0})  am({0})  ka({0})".format("rc_mlx5/mlx5_0:1")
    head = f"[{time.time():.6f}] [{world.host}:{os.getpid():<5}:0]      ucp_worker.c:1997 UCX  INFO    "
    return [f"{head}{agent} inter-node cfg#1 {lanes}"]


def mooncake_lines(world: World) -> list[str]:
    """What Mooncake's transfer engine logs of the transport that it takes; without a card that is TCP."""
    if os.environ.get("MC_LOG_LEVEL", "INFO").upper() not in ("INFO", "TRACE"):
        return []
    if world.vendor == "ascend":
        return [
            _glog(
                "I",
                "ascend_direct_transport.cpp:118",
                f"install AscendDirectTransport for: {world.address}",
            )
        ]
    if world.network == "socket":
        return [
            _glog("W", "topology.cpp:201", "No RDMA devices found, check your device installation"),
            _glog(
                "I", "transfer_engine_impl.cpp:274", "Topology discovery complete. Found 0 HCAs."
            ),
            _glog("I", "tcp_transport.cpp:391", "TcpTransport: listen on port 16095"),
        ]
    return [
        _glog("I", "transfer_engine_impl.cpp:274", "Topology discovery complete. Found 1 HCAs."),
        _glog("I", "transfer_engine_impl.cpp:429", "installTransport, type=rdma"),
    ]


def carry(world: World, counter: Counter, num_tokens: int) -> None:
    """Count the KV of some tokens on the first card; hosts without one, or that use sockets, count nothing."""
    path = os.path.join(world.state, CARDS, "mlx5_0", counter)
    if world.network != "rdma" or not os.path.exists(path):
        return
    with open(path, "r+", encoding="ascii") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        present = int(file.read().strip() or 0)
        file.seek(0)
        file.write(f"{present + num_tokens * TOKEN_BYTES // WORD_BYTES}\n")


def _glog(level: str, source: str, text: str) -> str:
    now = time.time()
    stamp = time.strftime("%m%d %H:%M:%S", time.localtime(now))
    return f"{level}{stamp}.{int(now % 1 * 1e6):06d} {os.getpid()} {source}] {text}"
