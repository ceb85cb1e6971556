"""Which transport groups and KV transfers of a plan should use, and whether what logs say is that; pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from infra.catalog.load import Catalog
from infra.engines.transport_signs import SPEAKS_WITH, Library, Transport
from infra.engines.transports import Told, fallen_back, is_mixed
from infra.plan.process import Plan, Process

COLLECTIVES: Mapping[str, Library] = {"nvidia": "NCCL", "amd": "NCCL", "ascend": "HCCL"}
WORDS: Mapping[Transport, str] = {
    "rdma": "RDMA",
    "nvlink": "NVLink between hosts",
    "hccs": "HCCS",
    "ascend": "Ascend's own transport (HCCS or RoCE)",
    "socket": "sockets",
}
MNNVL_SWITCH = "NCCL_MNNVL_ENABLE"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What is known of a transport. `ok` is None where nothing tells it."""

    ok: bool | None
    detail: str


def judge_collective(told: Sequence[Told], library: Library, *, over_nvlink: bool) -> Verdict:
    """What logs say of a group's collectives.

    Args:
        told: lines of one process.
        library: its collective library.
        over_nvlink: whether the group's hosts share an NVLink fabric, which NCCL leaves without a word when it
            cannot use it.
    """
    own = [one for one in told if one.library == library]
    line = fallen_back(own)
    if line is not None:
        return Verdict(ok=False, detail=f"its group fell back to sockets: {line}")
    if not own:
        return _unknown(library)
    transports = {one.transport for one in own}
    if over_nvlink and "nvlink" not in transports:
        said = f"its group goes over {_listed(own)} although its hosts share NVLink: no line says MNNVL"
        return Verdict(ok=False, detail=f"{said}; {own[0].line}")
    return Verdict(ok=True, detail=_listed(own))


def judge_kv(told: Sequence[Told], library: Library | None) -> Verdict:
    """What logs say of how KV goes to other hosts.

    Args:
        told: lines of one process.
        library: what moves KV; None where that is none that writes lines we know.
    """
    if library is None:
        return Verdict(ok=None, detail="not known: no line of this connector is known to tell it")
    own = [one for one in told if one.library == library]
    line = fallen_back(own)
    if line is not None:
        return Verdict(ok=False, detail=f"its KV goes over sockets: {line}")
    if (line := is_mixed(own)) is not None:
        return Verdict(ok=None, detail=f"not known: one of its peers is reached by sockets: {line}")
    return Verdict(ok=True, detail=_listed(own)) if own else _unknown(library)


def groups_over_hosts(plan: Plan) -> set[str]:
    """The groups with processes on several hosts."""
    hosts: dict[str, set[str]] = {}
    for process in plan.processes:
        if process.kind == "engine":
            hosts.setdefault(process.group, set()).add(process.host)
    return {group for group, names in hosts.items() if len(names) > 1}


def kv_processes(plan: Plan) -> dict[str, Process]:
    """The processes that hand KV to another host or take it from one, by id."""
    roles = {
        role: [process for process in plan.processes if process.role == role]
        for role in ("prefill", "decode")
    }
    hosts = {role: {process.host for process in members} for role, members in roles.items()}
    found = {}
    for role, other in (("prefill", "decode"), ("decode", "prefill")):
        for process in roles[role]:
            if hosts[other] - {process.host}:
                found[process.id] = process
    return found


def kv_library(process: Process) -> Library | None:
    """What moves a process's KV, as its command line names it."""
    words = " ".join(process.argv).lower()
    if "mooncake" in words or "disaggregation-transfer-backend ascend" in words:
        return "Mooncake"
    return "UCX" if "nixl" in words else None


def is_rack(plan: Plan, catalog: Catalog, host: str) -> bool:
    """Whether a host's NVLink fabric reaches beyond it."""
    accelerator = catalog.accelerator(plan.host(host).accelerator)
    return accelerator.fabric.kind == "nvlink" and accelerator.fabric_spans_hosts


def collective_of(plan: Plan, catalog: Catalog, process: Process) -> tuple[Library, bool]:
    """The library of a process's collectives, and whether they should go over NVLink between hosts."""
    vendor = catalog.accelerator(plan.host(process.host).accelerator).vendor
    wants_nvlink = is_rack(plan, catalog, process.host) and process.env.get(MNNVL_SWITCH) != "0"
    return COLLECTIVES.get(vendor, "NCCL"), wants_nvlink


def _unknown(library: Library) -> Verdict:
    return Verdict(ok=None, detail=f"not known: no line tells it ({SPEAKS_WITH[library]} would)")


def _listed(told: Sequence[Told]) -> str:
    """The transports that are told, each once, in the order of the lines."""
    return " and ".join(dict.fromkeys(WORDS[one.transport] for one in told))
