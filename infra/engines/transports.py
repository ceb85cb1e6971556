"""Which transport processes really use between hosts, read from the lines that their libraries log."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from infra.engines.transport_signs import SIGNS, Library, Transport

# UCX's own names of transports (UCT_TL_DEFINE_ENTRY in openucx/ucx:src/uct@9466d10).
_UCX_RDMA = frozenset(
    {"rc_mlx5", "rc_verbs", "dc_mlx5", "ud_mlx5", "ud_verbs", "gga_mlx5", "rc_gda", "srd"}
)
_UCX_NVLINK = frozenset({"cuda_ipc"})
_UCX_SOCKET = frozenset({"tcp"})
# An endpoint with one of these is to a process of the same host.
_UCX_SAME_HOST = frozenset({"self", "sysv", "posix", "cma", "xpmem", "knem", "rocm_ipc"})
_UCX_ENDPOINT = re.compile(r"(?:(self|intra-node|inter-node) cfg#|ep_cfg\[)\d+\]?:?(.*)")
_UCX_HEADER = re.compile(r"\| +(?:\S+ )?(self|intra-node|inter-node) cfg#\d+ ")
_UCX_ROW = re.compile(r"\| +\d+[KMG]?\.\.\S+ +\|[^|]*\|([^|]*)\|")
_UCX_LANES = re.compile(r"\b(\w+)\(([^)]*)\)")
_UCX_NAME = re.compile(r"\b([a-z]\w+)/\S+")
# Keep-alive lanes carry no data.
_UCX_NO_DATA = "ka"


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """A line that tells a transport between hosts."""

    library: Library
    transport: Transport
    line: str


def sign_patterns() -> list[str]:
    """One expression per line that tells a transport; an agent keeps a few lines of each."""
    return [sign.pattern for sign in SIGNS]


def read_transports(lines: Iterable[str]) -> tuple[Told, ...]:
    """What lines tell, in their order, each line once."""
    kept = [line.strip() for line in lines]
    found = [_read_line(line) for line in kept]
    return (*(told for told in found if told is not None), *parse_ucx("\n".join(kept)))


def parse_ucx(text: str) -> tuple[Told, ...]:
    """The endpoints between hosts of UCX's log, and the rows of its protocol tables.

    Endpoints say how they reach the other side (`inter-node cfg#1 rma(rc_mlx5/mlx5_0:1) ka(…)`); until UCX 1.13
    they do not, and one without shared memory counts as another host's.
    """
    found: list[Told] = []
    scope = ""
    for line in text.splitlines():
        transports: frozenset[str] = frozenset()
        if header := _UCX_HEADER.search(line):
            scope = header[1]
        elif "UCX" in line and (endpoint := _UCX_ENDPOINT.search(line)):
            transports = _lanes(endpoint[2])
            if endpoint[1] not in (None, "inter-node") or transports & _UCX_SAME_HOST:
                continue
        elif scope == "inter-node" and (row := _UCX_ROW.search(line)):
            transports = frozenset(_UCX_NAME.findall(row[1]))
        transport = _ucx_transport(transports)
        if transport is not None:
            found.append(Told(library="UCX", transport=transport, line=line.strip()))
    return tuple(found)


def fallen_back(told: Sequence[Told]) -> str | None:
    """The line that says that a library goes over sockets, although none says that it does not; else None."""
    by_library: dict[Library, dict[Transport, str]] = {}
    for one in told:
        by_library.setdefault(one.library, {}).setdefault(one.transport, one.line)
    for transports in by_library.values():
        if list(transports) == ["socket"]:
            return transports["socket"]
    return None


def is_mixed(told: Sequence[Told]) -> str | None:
    """The line of an endpoint over sockets where others are not: UCX chooses for each peer; else None."""
    own = [one for one in told if one.library == "UCX"]
    sockets = [one.line for one in own if one.transport == "socket"]
    return sockets[0] if sockets and len(sockets) < len(own) else None


def _read_line(line: str) -> Told | None:
    """The first sign that a line shows by itself."""
    for sign in SIGNS:
        if sign.transport is not None and re.search(sign.pattern, line):
            return Told(library=sign.library, transport=sign.transport, line=line)
    return None


def _lanes(text: str) -> frozenset[str]:
    """The transports of an endpoint's lanes that carry data."""
    return frozenset(
        name
        for feature, lanes in _UCX_LANES.findall(text)
        if feature != _UCX_NO_DATA
        for name in _UCX_NAME.findall(lanes)
    )


def _ucx_transport(names: frozenset[str]) -> Transport | None:
    """The best that an endpoint has: a lane of TCP beside RDMA only wires it up."""
    if names & _UCX_NVLINK:
        return "nvlink"
    if names & _UCX_RDMA:
        return "rdma"
    return "socket" if names & _UCX_SOCKET else None
