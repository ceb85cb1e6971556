"""Whether groups and KV transfers use the transport that they should: what logs say of it, or that nothing does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from infra.catalog.load import Catalog
from infra.engines.transports import read_transports
from infra.launch.proof.host_drift import Check
from infra.launch.transport_verdicts import (
    Verdict,
    collective_of,
    groups_over_hosts,
    judge_collective,
    judge_kv,
    kv_library,
    kv_processes,
)
from infra.plan.process import Plan, Process


def check_transports(
    plan: Plan, catalog: Catalog, lines: Mapping[str, Sequence[str]]
) -> list[Check]:
    """A check per process of a group that spans hosts, and one per process that hands KV to other hosts.

    Args:
        plan: whose processes run.
        catalog: what accelerators are.
        lines: what each running engine has logged that tells a transport, by process id.
    """
    spanning, transferring = groups_over_hosts(plan), kv_processes(plan)
    checks = []
    for process in (one for one in plan.processes if one.id in lines):
        told = read_transports(lines[process.id])
        if process.group in spanning:
            library, over_nvlink = collective_of(plan, catalog, process)
            verdict = judge_collective(told, library, over_nvlink=over_nvlink)
            checks.append(_check(process, "transport", verdict))
        if process.id in transferring:
            verdict = judge_kv(told, kv_library(process))
            checks.append(_check(process, "kv-transport", verdict))
    return checks


def _check(process: Process, subject: str, verdict: Verdict) -> Check:
    return Check(
        process=process.id, check=subject, ok=verdict.ok, detail=verdict.detail, is_drift=True
    )
