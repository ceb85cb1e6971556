"""Has hosts list and stage a checkpoint: what their agents are asked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from infra.errors import HostsFailed, InfraError
from infra.launch.fleet import answers_when_known, rows_of
from infra.launch.staging.order import Order, Staging
from infra.launch.staging.plan import (
    Checkpoint,
    giga,
)

LIST_S = 60.0
MAX_NAMED = 3


def list_files(
    staging: Staging, checkpoint: Checkpoint, hosts: Sequence[str]
) -> tuple[tuple[Mapping[str, object], ...], str | None, str]:
    """The checkpoint's files as its source lists them, and the host that could ask: the first, else any.

    Raises:
        HostsFailed: no host gets a list; in the first one's words.
    """
    request = {
        "operation": "staging",
        "action": "list",
        "source": source_document(staging, checkpoint, None),
    }
    first: InfraError | None = None
    for some in (hosts[:1], hosts[1:]):
        answers = answers_when_known(staging.fleet, dict.fromkeys(some, request), timeout_s=LIST_S)
        for host, answer in answers.items():
            if not isinstance(answer, InfraError):
                commit = answer.get("commit")
                found = None if commit is None else str(commit)
                return tuple(rows_of(answer, "files")), found, host
            first = first or answer
    assert first is not None  # noqa: S101 - there is at least one host
    what = f"{checkpoint.source.shown} does not list {checkpoint.id}: {first.what}"
    raise HostsFailed(first.where, what, _way_to_source(checkpoint))


def _way_to_source(checkpoint: Checkpoint) -> str:
    secret = checkpoint.source.secret
    token = f", give the stack the secret {secret}," if secret else ""
    return f"Let the host reach it{token} or name another source with --source."


def source_document(
    staging: Staging, checkpoint: Checkpoint, commit: str | None
) -> dict[str, object] | None:
    """The origin as the agent gets it, with its token."""
    document = dict(checkpoint.source.document)
    if not document:
        return None
    secret = staging.secrets.get(checkpoint.source.secret or "")
    if secret is not None:
        document["token"] = secret.reveal()
    return {**document, **({"commit": commit} if commit else {})}


def start_stagings(staging: Staging, order: Order, port: int) -> dict[str, InfraError]:
    """Start the staging on every host that needs it; why not, where a host refuses."""
    checkpoint = order.checkpoint
    token = str(running_status(order).get("token") or staging.token)
    source = source_document(staging, checkpoint, order.commit)
    serves, members = len(order.seats) > 1, dict(staging.addresses)
    requests = {}
    for seat in order.seats:
        if order.found[seat.host].state == "running":
            continue
        address = staging.addresses[seat.host]
        requests[seat.host] = {
            "operation": "staging",
            "action": "start",
            "job": checkpoint.job,
            "target": checkpoint.target,
            "repository": checkpoint.repository,
            "revision": checkpoint.revision,
            "commit": order.commit,
            "files": list(order.files),
            "source": source,
            "peers": [
                {"name": peer, "address": f"{_literal(staging.addresses[peer])}:{port}"}
                for peer in seat.peers
            ],
            "listen": {"address": address, "port": port, "members": members} if serves else None,
            "token": token,
            "operator": staging.operator,
        }
    if requests:
        size = sum(int(str(file["size_bytes"])) for file in order.files)
        origin = order.seats[0].host
        way = " → ".join(seat.host for seat in order.seats[:MAX_NAMED])
        way += f" → … {len(order.seats)} hosts" if len(order.seats) > MAX_NAMED else ""
        where = (
            f"{origin} holds it"
            if order.found[origin].state == "complete"
            else checkpoint.source.shown
        )
        staging.pace.say(
            f"{checkpoint.id}: {len(order.files)} files, {giga(size)} GB, from {where}: {way}"
        )
    return _refusals(staging, requests)


def start_checks(staging: Staging, order: Order) -> dict[str, InfraError]:
    """Have every host of the order read what it holds; why not, where a host refuses."""
    requests = {
        seat.host: {
            "operation": "staging",
            "action": "start",
            "job": order.checkpoint.job,
            "target": order.checkpoint.target,
            "files": list(order.found[seat.host].files),
            "only_check": True,
            "operator": staging.operator,
        }
        for seat in order.seats
        if order.found[seat.host].state != "running"
    }
    return _refusals(staging, requests)


def _refusals(
    staging: Staging, requests: Mapping[str, Mapping[str, object]]
) -> dict[str, InfraError]:
    answers = answers_when_known(staging.fleet, requests, timeout_s=staging.pace.limits.ask_s)
    return {host: answer for host, answer in answers.items() if isinstance(answer, InfraError)}


def running_status(order: Order) -> Mapping[str, object]:
    """What a staging that runs already says of itself; {} where none does."""
    running = (one.status for one in order.found.values() if one.state == "running")
    return next((status for status in running if status.get("token")), {})


def _literal(address: str) -> str:
    return f"[{address}]" if ":" in address else address
