"""Proof that the edge lets in whom it should, and nobody else, and holds no stream back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from infra.engines.serving import CHAT, HEALTH, MODELS
from infra.launch.deployment import Deployment
from infra.launch.proof.host_drift import Check
from infra.launch.proof.probing import probe_hosts
from infra.launch.proof.questions import question_for
from infra.launch.proof.rank import error_text
from infra.plan.process import Process

# No key that a file may hold: those are longer, and made by nobody twice.
WRONG_KEY = "moe-infra-wrong-key"
OK, NO_KEY = 200, 401
CLOSED = (403, 404)
# The first byte of a stream, seconds from when it was asked for.
FIRST_BYTE_S = 0.3
# What the front may add where what stands behind it is later than that.
ADDED_S = 0.1
# Each is asked so often, and the quickest counts: a model's own pace is no delay of the front's.
STREAMS = 3
# By what routers and engines have, and the ways round a list of paths.
CONTROL = (
    "/pause", "/resume", "/collective_rpc", "/scale_elastic_ep", "/invocations", "/flush_cache", "/workers",
    "/list_workers", "/remove_worker", "/metrics", "/tokenize", "/v1/models/../../metrics", "//metrics",
    "/v1/models/%2e%2e/%2e%2e/metrics", "/V1/models", "/%6detrics",
)  # fmt: skip
Answer = Mapping[str, object]
Answers = Mapping[str, Sequence[Answer]]


def check_edge(deployment: Deployment, edge: Process, timeout_s: float) -> list[Check]:
    """What the edge answers with a right key, a wrong one and none.

    Asked from its own host, over TLS to whoever shows the stack's certificate.
    """
    probes = [*_of_keys(deployment, edge), *_of_paths(deployment, edge)]
    answers = probe_hosts(deployment, {edge.host: probes}, timeout_s)
    rows = [
        _judge("no key", [answers.get("no-key", [])], (NO_KEY,)),
        _judge("a wrong key", [answers.get("wrong-key", [])], (NO_KEY,)),
        _judge("a right key", [answers.get("right-key", [])], (OK,)),
        _judge("paths that control", [answers.get(each, []) for each in _control_ids()], CLOSED),
        _first_byte(deployment, edge, timeout_s),
    ]
    return [
        Check(process=edge.id, check="edge", ok=ok, detail=detail, is_drift=False)
        for ok, detail in rows
    ]


def _of_keys(deployment: Deployment, edge: Process) -> list[dict[str, object]]:
    right = deployment.asks(edge)
    wrong = {**right, "headers": {"Authorization": f"Bearer {WRONG_KEY}"}}
    none = {**right, "headers": {}}
    asked = (("no-key", none, HEALTH), ("wrong-key", wrong, MODELS), ("right-key", right, MODELS))
    return [
        {"id": name, "steps": [{"method": "GET", "url": f"{edge.endpoint}{path}", **how}]}
        for name, how, path in asked
    ]


def _of_paths(deployment: Deployment, edge: Process) -> list[dict[str, object]]:
    how = deployment.asks(edge)
    return [
        {
            "id": f"{method} {path}",
            "steps": [{"method": method, "url": f"{edge.endpoint}{path}", **how}],
        }
        for method in ("GET", "POST")
        for path in CONTROL
    ]


def _control_ids() -> list[str]:
    return [f"{method} {path}" for method in ("GET", "POST") for path in CONTROL]


def _judge(
    asked: str, answers: Sequence[Sequence[Answer]], wanted: Sequence[int]
) -> tuple[bool, str]:
    """Whether every answer has a wanted status, and what was seen."""
    seen: dict[str, None] = {}
    for steps in answers:
        answer: Answer = steps[-1] if steps else {}
        status = answer.get("status")
        seen[error_text(answer) if status is None else str(status)] = None
    ok = all(each in map(str, wanted) for each in seen)
    told = f"{asked}: {', '.join(seen)}"
    return ok, told if ok else f"{told}, wanted {' or '.join(map(str, wanted))}"


def judge_first_byte(
    edge: Process, through_s: float, behind: str, behind_s: float
) -> tuple[bool, str]:
    """Whether a stream begins in time for a client, and what was measured.

    Args:
        edge: through which the stream came.
        through_s: seconds until its first byte came through the edge.
        behind: what the edge hands requests to.
        behind_s: seconds until the same stream's first byte came from there.
    """
    way = "over TLS" if (edge.endpoint or "").startswith("https:") else "without TLS"
    told = f"first byte of a stream {way}: {through_s:.3f} s, {behind_s:.3f} s behind the edge"
    if through_s <= FIRST_BYTE_S:
        return True, told
    late = f"{told}; wanted {FIRST_BYTE_S} s at most"
    if behind_s <= FIRST_BYTE_S or through_s - behind_s > ADDED_S:
        return False, f"{late}, and the edge adds {through_s - behind_s:.3f} s"
    return True, f"{late}, and {behind} is what is late: the edge adds {ADDED_S} s at most"


def _first_byte(deployment: Deployment, edge: Process, timeout_s: float) -> tuple[bool, str]:
    """Whether a stream begins in time through the edge, held against the same one behind it."""
    by_id = {process.id: process for process in deployment.plan.processes}
    behind = by_id[edge.connects[0].to]
    seconds: dict[str, float] = {}
    for process in (behind, edge):
        steps = [_stream(deployment, process, timeout_s) for _ in range(STREAMS)]
        probe: dict[str, object] = {"id": process.id, "steps": steps}
        answers = probe_hosts(deployment, {edge.host: [probe]}, timeout_s * STREAMS)
        answered = answers.get(process.id, [])
        times = [each for step in answered if isinstance(each := step.get("first_byte_s"), float)]
        bad = next((step for step in answered if step.get("status") != OK), None)
        if len(times) < STREAMS or bad is not None:
            words = error_text(bad or (answered[-1] if answered else {}))
            return False, f"no stream through {process.id}: {words}"
        seconds[process.id] = min(times)
    return judge_first_byte(edge, seconds[edge.id], behind.id, seconds[behind.id])


def _stream(deployment: Deployment, process: Process, timeout_s: float) -> dict[str, object]:
    question = question_for("stream", deployment.endpoints.model)
    return {
        "method": "POST",
        "url": f"{process.endpoint}{CHAT}",
        "body": dict(question.body),
        "timeout_s": timeout_s,
        **deployment.asks(process),
    }
