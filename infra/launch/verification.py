"""Proves a running deployment: hosts as declared, and every capability through every rank and the router."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from infra.launch.deployment import Deployment
from infra.launch.fleet import ask_all, rows_of
from infra.launch.installation import state_request
from infra.launch.probing import probe_hosts, read_engine_ids, run_proofs
from infra.launch.proof import (
    FIRST_ERROR_STATUS,
    Asking,
    Proof,
    build_question,
    error_text,
    partners,
)
from infra.launch.questions import missing_from, question_for
from infra.launch.secret import Secret
from infra.plan.process import Process
from infra.render.host_state import Group

DRIFT_GROUPS: tuple[Group, ...] = ("tuning", "files", "images")


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One thing that was looked at.

    Args:
        process: the process, or the host for what concerns all of it.
        check: a capability, or the group or item of the host state.
        is_drift: whether it is about the host rather than about serving.
    """

    process: str
    check: str
    ok: bool
    detail: str
    is_drift: bool


def verify(deployment: Deployment, secrets: Mapping[str, Secret], timeout_s: float) -> list[Check]:
    """Every check, hosts first; one that fails stops none of the others.

    Args:
        deployment: what should be there.
        secrets: of the stack; installed copies are compared with them.
        timeout_s: limit of one request to an engine.

    Raises:
        HostsFailed: a host cannot be asked.
    """
    checks = drift(deployment, secrets)
    for capability in deployment.plan.capabilities:
        deployment.say(f"asking every rank: {capability}")
        checks += _through_ranks(deployment, capability, timeout_s)
        if deployment.endpoints.router is not None:
            checks.append(
                _through_router(deployment, deployment.endpoints.router, capability, timeout_s)
            )
    return checks


def drift(deployment: Deployment, secrets: Mapping[str, Secret]) -> list[Check]:
    """Tuning, files and images of every host against what is declared."""
    requests = {
        host: state_request(deployment, state.of_groups(*DRIFT_GROUPS), "check", secrets)
        for host, state in deployment.states.items()
    }
    reports = ask_all(deployment.fleet, requests, timeout_s=deployment.limits.ask_s)
    checks: list[Check] = []
    for host, report in reports.items():
        rows = rows_of(report, "items")
        for group in DRIFT_GROUPS:
            checks += _group_checks(host, group, [row for row in rows if row.get("group") == group])
    return checks


def _group_checks(host: str, group: str, rows: Sequence[Mapping[str, object]]) -> list[Check]:
    """One line for a group that is as declared, else one per item that is not."""
    wrong = [row for row in rows if row["state"] in {"changed", "failed"}]
    if wrong:
        return [
            Check(
                process=host,
                check=str(row["id"]),
                ok=False,
                detail=f"is {row['before']}, declared {row['wanted']}: {row['why']}",
                is_drift=True,
            )
            for row in wrong
        ]
    if not rows:
        return []
    counts = Counter(str(row["state"]) for row in rows)
    detail = ", ".join(
        f"{count} {state.replace('_', ' ')}" for state, count in sorted(counts.items())
    )
    return [Check(process=host, check=group, ok=True, detail=detail, is_drift=True)]


def _through_ranks(deployment: Deployment, capability: str, timeout_s: float) -> list[Check]:
    endpoints = deployment.endpoints
    pairs = partners(endpoints)
    asking = Asking(
        nonce=f"{deployment.nonce} {capability}",
        timeout_s=timeout_s,
        headers=deployment.headers,
        engine_ids=read_engine_ids(deployment, endpoints.ranks, pairs),
    )
    proofs = [
        build_question(
            endpoints, rank, pairs.get(rank), question_for(capability, rank.model), asking
        )
        for rank in endpoints.ranks
    ]
    checks = []
    for answered in run_proofs(deployment, proofs, timeout_s):
        ok, detail = answered.verdict.ok, answered.verdict.detail
        lacking = (
            missing_from(capability, _client_answer(answered.proof, answered.answers))
            if ok
            else None
        )
        if lacking is not None:
            ok, detail = False, lacking
        rank = answered.proof.rank
        where = f"rank {rank.rank} of {rank.group}: {detail}"
        checks.append(
            Check(process=rank.process, check=capability, ok=ok, detail=where, is_drift=False)
        )
    return checks


def _client_answer(proof: Proof, answers: Sequence[Sequence[Mapping[str, object]]]) -> object:
    """The body that a client would have got."""
    probe, step = proof.asked[-1]
    return answers[probe][step].get("body")


def _through_router(
    deployment: Deployment, router: Process, capability: str, timeout_s: float
) -> Check:
    question = question_for(capability, deployment.endpoints.model)
    step = {
        "method": "POST",
        "url": f"{router.endpoint}{question.path}",
        "headers": dict(deployment.headers),
        "body": dict(question.body),
        "timeout_s": timeout_s,
    }
    probes: dict[str, list[dict[str, object]]] = {router.host: [{"id": router.id, "steps": [step]}]}
    steps = probe_hosts(deployment, probes, timeout_s).get(router.id, [])
    answer: Mapping[str, object] = steps[-1] if steps else {}
    status = answer.get("status")
    detail: str | None = None
    if not isinstance(status, int) or status >= FIRST_ERROR_STATUS or answer.get("error"):
        detail = f"HTTP {status}: {error_text(answer)}" if status else error_text(answer)
    else:
        detail = missing_from(capability, answer.get("body"))
    return Check(
        process=router.id,
        check=capability,
        ok=detail is None,
        detail=detail or "answered",
        is_drift=False,
    )
