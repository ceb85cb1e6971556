"""Log lines of communication libraries that tell a transport: as data, with where each was read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Library = Literal["NCCL", "UCX", "Mooncake", "HCCL"]
Transport = Literal["rdma", "nvlink", "hccs", "ascend", "socket"]
"""`nvlink` and `hccs`: a fabric of accelerators that reaches over hosts. `ascend`: HCCS or RoCE, which of
them the line does not say. `socket`: TCP over the host's own network."""

CHECKED = "2026-11-21"


@dataclass(frozen=True, slots=True, kw_only=True)
class TransportSign:
    """A log line that tells a transport.

    Args:
        library: whose line it is.
        transport: what it tells; None for a line that `transports` has to read further.
        pattern: searched for in a line, in Python's and in a byte's regular expressions alike.
        source: where the line was read.
        checked: when.
    """

    library: Library
    transport: Transport | None
    pattern: str
    source: str
    checked: str


# What makes a library write such lines; without it there is nothing to read.
SPEAKS_WITH: Mapping[Library, str] = {
    "NCCL": "NCCL_DEBUG=INFO",
    "UCX": "UCX_LOG_LEVEL=info",
    "Mooncake": "MC_LOG_LEVEL=INFO",
    "HCCL": "ASCEND_SLOG_PRINT_TO_STDOUT=1",
}

# Every network of NCCL that is no socket; RCCL prints NCCL's lines (ROCm/rccl:src/debug.cc@0cbce2a, init.cc:534).
_RDMA_NETWORKS = r"(?:IB|IBext\w*|AWS Libfabric|Libfabric|RCCL-anp)"

# `NET/Socket : Using` alone tells nothing: releases that go on to use IB print it too.
SIGNS: tuple[TransportSign, ...] = (
    TransportSign(
        library="NCCL",
        transport="rdma",
        pattern=rf"NCCL INFO Using network {_RDMA_NETWORKS}",
        source="NVIDIA/nccl:src/init.cc@5067397 line 486; lines in NVIDIA/nccl-tests#228",
        checked=CHECKED,
    ),
    TransportSign(
        library="NCCL",
        transport="rdma",
        pattern=r"NCCL INFO NET/(?:IB|OFI) : ?Using ?\[0\]",
        source="NVIDIA/nccl:src/transport/net_ib/init.cc@5067397 line 513; lines in NVIDIA/nccl-tests#228",
        checked=CHECKED,
    ),
    TransportSign(
        library="NCCL",
        transport="nvlink",
        pattern=r"NCCL INFO (?:MNNVL 1 cliqueId|.* via P2P/MNNVL)",
        source="NVIDIA/nccl:src/mnnvl.cc@5067397 line 96, src/transport/p2p.cc line 423; both since v2.21.5",
        checked=CHECKED,
    ),
    TransportSign(
        library="NCCL",
        transport="socket",
        pattern=r"NCCL INFO Using network Socket",
        source="NVIDIA/nccl:src/init.cc@5067397 line 486; lines in NVIDIA/nccl#1519",
        checked=CHECKED,
    ),
    TransportSign(
        library="NCCL",
        transport="socket",
        pattern=r"NCCL INFO .* via NET/Socket/\d",
        source="NVIDIA/nccl:src/transport/net.cc@5067397 line 324; lines in NVIDIA/nccl#226",
        checked=CHECKED,
    ),
    TransportSign(
        library="UCX",
        transport=None,
        pattern=r"UCX +INFO +(?:\S+ )?(?:inter-node cfg#|ep_cfg\[)\d+",
        source="openucx/ucx:src/ucp/core/ucp_ep.c@9466d10 ucp_ep_config_name, ucp_worker.c line 1997; `ep_cfg[…]` "
        "until 1.13 (docs/source/faq.md)",
        checked=CHECKED,
    ),
    TransportSign(
        library="UCX",
        transport=None,
        pattern=r"\| +(?:\S+ )?inter-node cfg#\d+ |\| +\d+(?:K|M|G)?\.\.\S+ +\|.*\|.*/",
        source="openucx/ucx docs/source/faq.md@9466d10, UCX_PROTO_INFO; rows recorded with NIXL 1.5.1",
        checked=CHECKED,
    ),
    TransportSign(
        library="Mooncake",
        transport="rdma",
        pattern=r"installTransport, type=(?:rdma|efa|barex|ub|cxi)\b|Using RDMA transport|RDMA device: \S",
        source="kvcache-ai/Mooncake:mooncake-transfer-engine/src/transfer_engine_impl.cpp@3b5a594 lines 387 and 429, "
        "rdma_context.cpp line 286",
        checked=CHECKED,
    ),
    TransportSign(
        library="Mooncake",
        transport="nvlink",
        pattern=r"Using NVLink transport",
        source="kvcache-ai/Mooncake:mooncake-transfer-engine/src/transfer_engine_impl.cpp@3b5a594 line 378",
        checked=CHECKED,
    ),
    TransportSign(
        library="Mooncake",
        transport="ascend",
        pattern=r"install AscendDirectTransport for: ",
        source="kvcache-ai/Mooncake:…/ascend_direct_transport.cpp@3b5a594 line 118",
        checked=CHECKED,
    ),
    # It takes TCP by itself where it finds no HCA, also when `rdma` was asked for: recorded with 0.3.13.post1.
    TransportSign(
        library="Mooncake",
        transport="socket",
        pattern=r"TcpTransport: listen on port|Using TCP transport|using TCP transport only|"
        r"topology\.cpp:\d+\] No RDMA devices found",
        source="kvcache-ai/Mooncake:mooncake-transfer-engine/src/topology.cpp@3b5a594 line 201, tcp_transport.cpp; "
        "recorded with mooncake-transfer-engine-non-cuda 0.3.13.post1",
        checked=CHECKED,
    ),
    TransportSign(
        library="HCCL",
        transport="rdma",
        pattern=r"create hccl transport:.*transporttype\[(?:STANDARD_)?ROCE\]",
        source="hicann/hccl: transport_ibverbs.cc GetQpAttr, LINK_TYPE_STR_MAP of transport_base_pub.h; run log",
        checked=CHECKED,
    ),
    TransportSign(
        library="HCCL",
        transport="hccs",
        pattern=r"create hccl transport:.*transporttype\[HCCS(?:_SW)?\]",
        source="hicann/hccl: transport_p2p.cc, LINK_TYPE_STR_MAP of transport_base_pub.h; run log",
        checked=CHECKED,
    ),
)
