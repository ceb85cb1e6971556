"""HTTP requests sent from the hosts of a deployment, so that only SSH has to reach them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from infra.engines.serving import BOOTSTRAP_QUERY, engine_ids
from infra.errors import InfraError
from infra.launch.deployment import Deployment
from infra.launch.fleet import REREADS, Report, Request, all_reports, rows_of
from infra.launch.proof.rank import Proof, Verdict, judge_proof
from infra.plan.endpoints import RankEndpoint
from infra.remote.failures import LostConnection

HEALTH_S = 3.0
# What starting the agent and a full machine may add to the slowest request.
SLACK_S = 15.0
# Two requests and the counter: the most that one probe waits for.
SLOW_STEPS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """A proof with what came of it; `answers` by probe, the answers of its steps."""

    proof: Proof
    verdict: Verdict
    answers: tuple[list[Mapping[str, object]], ...]


def run_proofs(deployment: Deployment, proofs: Sequence[Proof], limit_s: float) -> list[Answered]:
    """The verdict of each proof, asked from the host of its rank; all at the same time."""
    probes: dict[str, list[dict[str, object]]] = {}
    for number, proof in enumerate(proofs):
        for part, steps in enumerate(proof.probes):
            probe: dict[str, object] = {"id": f"{number}.{part}", "steps": list(steps)}
            probes.setdefault(proof.rank.host, []).append(probe)
    answers = probe_hosts(deployment, probes, limit_s)
    engine = deployment.endpoints.engine
    answered = []
    for number, proof in enumerate(proofs):
        own = tuple(answers.get(f"{number}.{part}", []) for part in range(len(proof.probes)))
        verdict = judge_proof(engine, proof, own)
        answered.append(Answered(proof=proof, verdict=verdict, answers=own))
    return answered


def probe_hosts(
    deployment: Deployment,
    probes: Mapping[str, list[dict[str, object]]],
    limit_s: float,
    *,
    until_s: float = 0.0,
) -> dict[str, list[Mapping[str, object]]]:
    """The answers of every probe's steps by its id.

    Args:
        deployment: whose hosts are asked.
        probes: by the host that sends them.
        limit_s: of the slowest request of a probe.
        until_s: how long hosts try probes that fail again, before they answer.
    """
    requests = {host: probe_request(listed, until_s) for host, listed in probes.items() if listed}
    limit = SLOW_STEPS * limit_s + until_s + SLACK_S
    found: dict[str, list[Mapping[str, object]]] = {}
    for report in ask_reachable(deployment, requests, limit).values():
        found.update(read_answers(report))
    return found


def probe_request(probes: Sequence[Mapping[str, object]], until_s: float) -> dict[str, object]:
    """A request to one host; see `probe_hosts`."""
    return {
        "operation": "probe",
        "probes": list(probes),
        "parallel": max(len(probes), 1),
        "until_s": until_s,
    }


def read_answers(report: Report) -> dict[str, list[Mapping[str, object]]]:
    """The answers of every probe's steps by its id, of one host's report."""
    return {str(row.get("id")): list(rows_of(row, "steps")) for row in rows_of(report, "probes")}


def ask_reachable(
    deployment: Deployment, requests: Mapping[str, Request], limit_s: float
) -> dict[str, Mapping[str, object]]:
    """The reports of hosts that answer; a lost connection is looked at again in the next round.

    Raises:
        HostsFailed: a host fails in any other way, or every host is lost.
    """
    if not requests:
        return {}
    answers = deployment.fleet.ask(requests, timeout_s=limit_s)
    for _ in range(REREADS):
        if not all(isinstance(answer, LostConnection) for answer in answers.values()):
            break
        answers = deployment.fleet.ask(requests, timeout_s=limit_s)
    kept: dict[str, Report | InfraError] = {
        host: answer for host, answer in answers.items() if not isinstance(answer, LostConnection)
    }
    for host in answers.keys() - kept.keys():
        deployment.say(f"{host}: the connection was lost; looking again")
    return all_reports(kept or answers)


def read_engine_ids(
    deployment: Deployment, ranks: Sequence[RankEndpoint]
) -> dict[tuple[str, int], str]:
    """Engine ids that bootstrap servers know, where a decode rank must be told them."""
    if deployment.endpoints.handover != "transfer-id":
        return {}
    servers = {rank.bootstrap: rank.host for rank in ranks if rank.bootstrap}
    requests: dict[str, list[dict[str, object]]] = {}
    for url, host in servers.items():
        step = {"method": "GET", "url": url + BOOTSTRAP_QUERY, "timeout_s": HEALTH_S}
        requests.setdefault(host, []).append({"id": url, "steps": [step]})
    return {
        (url, rank): identity
        for url, answers in probe_hosts(deployment, requests, HEALTH_S).items()
        for rank, identity in engine_ids(answers[-1].get("body") if answers else None).items()
    }
