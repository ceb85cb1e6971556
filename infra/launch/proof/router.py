"""Proof that requests go through the router or the edge: a client's chat, answered with a token."""

from __future__ import annotations

from collections.abc import Mapping

from infra.engines.serving import CHAT, answer_text, answer_tokens
from infra.launch.deployment import Deployment
from infra.launch.failures import router_ended, router_passes_nothing
from infra.launch.fleet import Report
from infra.launch.proof.probing import (
    ask_reachable,
    probe_hosts,
    probe_request,
    read_answers,
)
from infra.launch.proof.rank import error_text, is_good
from infra.launch.readiness import LOG_LINES
from infra.launch.unit_states import UnitState, read_units, units_request, why_ended
from infra.plan.process import Process


def first_try(deployment: Deployment, router: Process, until_s: float) -> dict[str, object]:
    """What the router's host is asked along with the router's start; `ask_through` reads what came of it.

    Args:
        deployment: whose.
        router: of it.
        until_s: how long the host tries again.
    """
    return probe_request(
        [router_probe(deployment, router, deployment.limits.first_proof_s)], until_s
    )


def ask_through(deployment: Deployment, router: Process, told: Report | None = None) -> str:
    """What a request through the router or the edge got.

    Args:
        deployment: whose.
        router: of it, or its edge.
        told: the report on a first try, None where there was none.

    Raises:
        NotReady: it has ended, or no request went through in time.
    """
    clock, limits = deployment.clock, deployment.limits
    begun, pause, attempts = clock.now(), limits.first_poll_s, 0
    while True:
        attempts += 1
        asked = clock.now()
        timeout_s = min(limits.first_proof_s * attempts, limits.longest_proof_s)
        if told is None:
            probes = {router.host: [router_probe(deployment, router, timeout_s)]}
            answers = probe_hosts(deployment, probes, timeout_s, until_s=pause)
        else:
            answers, told = read_answers(told), None
        steps = answers.get(router.id, [])
        answer = steps[-1] if steps else {}
        num_tokens = answer_tokens(answer.get("body"))
        if is_good(answer) and num_tokens:
            return _words(answer.get("body"), num_tokens)
        reason = _why_not(answer)
        ended = _end_of(deployment, router)
        if ended is not None:
            raise router_ended(deployment, router, ended)
        if clock.now() - begun > limits.router_s:
            what = (
                f"no request went through the {router.kind} within {limits.router_s:g} s: {reason}"
            )
            raise router_passes_nothing(deployment, router, what)
        clock.sleep(max(pause - (clock.now() - asked), 0.01))
        pause = min(pause * 1.5, limits.longest_poll_s)


def router_probe(deployment: Deployment, router: Process, timeout_s: float) -> dict[str, object]:
    """A chat request as a client would send it."""
    body = {
        "model": deployment.endpoints.model,
        "messages": [{"role": "user", "content": "What is 17 + 25? " * 20}],
        "max_tokens": 16,
        "temperature": 0,
    }
    step = {
        "method": "POST",
        "url": f"{router.endpoint}{CHAT}",
        "body": body,
        **deployment.asks(router),
        "timeout_s": timeout_s,
    }
    return {"id": router.id, "steps": [step]}


def _end_of(deployment: Deployment, front: Process) -> str | None:
    """How the unit of a router or an edge ended, None while it runs."""
    units = deployment.units(front.kind)
    requests = {
        host: units_request("status", list(names), log_lines=LOG_LINES)
        for host, names in units.items()
    }
    for host, report in ask_reachable(deployment, requests, deployment.limits.ask_s).items():
        for state in read_units(host, report, units[host]).values():
            if state.has_ended or ends_again_and_again(state):
                return why_ended(state)
    return None


def ends_again_and_again(state: UnitState) -> bool:
    """Whether systemd's restarts do not bring the router up: it ends as soon as it was started.

    One that was killed once is another matter: its watcher ends a router that hangs.
    """
    if state.sub_state == "auto-restart":
        return state.restarts > 0 or state.result != "signal"
    return state.restarts > 1


def _why_not(answer: Mapping[str, object]) -> str:
    """Why an answer does not show that requests go through."""
    if is_good(answer):
        return "it answered without a single token"
    status = answer.get("status")
    return error_text(answer) if status is None else f"HTTP {status}: {error_text(answer)}"


def _words(body: object, num_tokens: int) -> str:
    """What the model said, shortened; how much where no word of it can be shown."""
    text = " ".join(answer_text(body).split())
    return repr(text[:60]) if text else f"{num_tokens} tokens"
