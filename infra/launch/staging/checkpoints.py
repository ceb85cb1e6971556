"""Brings checkpoints to hosts: looked at first, refused where they do not fit, then staged there and followed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from infra.errors import PrerequisiteError
from infra.launch.answering import AnsweringFleet, refuse_silence
from infra.launch.fleet import Report, ask_all, ask_reached, rows_of
from infra.launch.staging.order import (
    MANIFEST,
    Order,
    Outcome,
    Staging,
    checked_outcome,
    has_sum,
    outcomes_of,
    texts_of,
    unseen_outcome,
)
from infra.launch.staging.plan import (
    Checkpoint,
    Found,
    Seat,
    chain,
    missing_bytes,
    short_of_room,
)
from infra.launch.staging.progress import Standing
from infra.launch.staging.start import list_files, running_status, start_checks, start_stagings
from infra.launch.staging.watch import follow, look_request
from infra.plan.ports import STAGING_BLOCK
from infra.remote.failures import HostFailure


def stage(staging: Staging, checkpoints: Sequence[Checkpoint]) -> list[Outcome]:
    """Bring every checkpoint to those of its hosts that answer; what runs there already is followed.

    Raises:
        PrerequisiteError: a disk is too small; no byte was written.
        HostsFailed: no host can be asked, nor can the one that is the source, or no source lists the checkpoint.
    """
    looking = AnsweringFleet(staging.fleet)
    looks = [_reached(looking, staging, one) for one in checkpoints]
    refuse_silence(looking)
    orders = [_order(staging, checkpoint, found) for checkpoint, found in looks]
    _refuse_full_disks(orders)
    ports = _free_ports(looking, staging, orders)
    hashed = _hash_first(staging, orders, ports)
    orders = [_order_behind(looking, staging, order, hashed) for order in orders]
    standings = _bring(staging, [order for order in orders if order.seats], ports)
    outcomes = []
    for order in orders:
        first = hashed.get(order.checkpoint.job, {})
        outcomes += outcomes_of(order, {**standings.get(order.checkpoint.job, {}), **first})
        if not order.seats:  # what was renamed into place just now clients of a mount may see later
            outcomes += _unseen(looking, staging, order)
    return outcomes


def _bring(
    staging: Staging, orders: Sequence[Order], ports: Mapping[str, int]
) -> dict[str, dict[str, Standing]]:
    """Have the hosts of orders stage them, to the end; standing by host, by job."""
    jobs = {order.checkpoint.job: order for order in orders}
    refused = {job: start_stagings(staging, order, ports[job]) for job, order in jobs.items()}
    standings = follow(staging, jobs, refused, goal="complete")
    _end(staging, standings)
    return standings


def _hash_first(
    staging: Staging, orders: Sequence[Order], ports: Mapping[str, int]
) -> dict[str, dict[str, Standing]]:
    """Have one host bring what has no checksums at its source, and hash it, before others take it from there.

    A host believes no other one: what travels between them has its checksum from this side. That costs those
    checkpoints the overlap: all others begin when the first host has ended.

    Returns:
        How the first host of each such checkpoint has ended, by host, by job.
    """
    alone = [replace(order, seats=order.seats[:1]) for order in orders if order.lacks_sums]
    for order in alone:
        first = order.seats[0].host
        staging.pace.say(
            f"{order.checkpoint.id}: {order.checkpoint.source.shown} tells no checksums, so {first} brings it first "
            "and hashes it, and the others take it from there with these sums: that takes up to twice as long. "
            f"With the {MANIFEST} of a staged host beside the files at the source all would begin at once."
        )
    standings = _bring(staging, alone, ports)
    firsts = {order.checkpoint.job: order.seats[0].host for order in alone}
    return {job: {host: standings[job][host]} for job, host in firsts.items()}


def _order_behind(
    looking: AnsweringFleet,
    staging: Staging,
    order: Order,
    hashed: Mapping[str, Mapping[str, Standing]],
) -> Order:
    """What the other hosts are to do now that the first one has hashed everything; other orders as they are."""
    done = hashed.get(order.checkpoint.job)
    if done is None:
        return order
    ((first, standing),) = done.items()
    _, found = _reached(looking, staging, order.checkpoint)
    if standing.phase != "complete" or not all(has_sum(file) for file in found[first].files):
        return replace(order, seats=(), failed_first=first)
    found = {**found, first: replace(found[first], state="complete")}  # it was read a moment ago
    again = _order(staging, order.checkpoint, found)
    # what was said of the hosts before stays what the outcome is about
    return replace(again, found={**found, first: order.found[first]})


def deep_check(staging: Staging, checkpoints: Sequence[Checkpoint]) -> list[Outcome]:
    """Hold every byte of every checkpoint against its manifest's checksums; nothing is changed.

    Raises:
        HostsFailed: no host can be asked.
    """
    looking = AnsweringFleet(staging.fleet)
    looks = [_reached(looking, staging, one) for one in checkpoints]
    refuse_silence(looking)
    orders = {}
    for one, found in looks:
        readable = [host for host, there in found.items() if there.files]
        seats = tuple(Seat(host=host, peers=()) for host in readable)
        orders[one.job] = Order(checkpoint=one, found=found, files=(), commit=None, seats=seats)
    refused = {job: start_checks(staging, order) for job, order in orders.items()}
    standings = follow(staging, orders, refused, goal="checked")
    _end(staging, standings)
    outcomes = []
    for job, order in orders.items():
        hosts = order.checkpoint.hosts
        outcomes += [checked_outcome(order, host, standings[job].get(host)) for host in hosts]
        outcomes += _unseen(looking, staging, order)
    return outcomes


def end_stagings(
    staging: Staging, checkpoints: Sequence[Checkpoint]
) -> tuple[dict[str, list[str]], tuple[HostFailure, ...]]:
    """Stop what stages these checkpoints, where a host answers; what has arrived stays.

    Returns:
        The jobs that ran, by host, and why other hosts cannot be asked.

    Raises:
        HostsFailed: no host can be asked.
    """
    jobs: dict[str, list[str]] = {}
    for one in checkpoints:
        for host in one.hosts:
            jobs.setdefault(host, []).append(one.job)
    requests = {
        host: {"operation": "staging", "action": "end", "jobs": n} for host, n in jobs.items()
    }
    limit_s = staging.pace.limits.ask_s
    reports, failures = ask_reached(staging.fleet, requests, timeout_s=limit_s)
    return {host: texts_of(report.get("ended")) for host, report in reports.items()}, failures


def _reached(
    looking: AnsweringFleet, staging: Staging, checkpoint: Checkpoint
) -> tuple[Checkpoint, dict[str, Found]]:
    """The checkpoint on its hosts; for a shared mount on another one that sees it, where its own is away."""
    found = _look(looking, staging, checkpoint)
    others = [host for host in checkpoint.readers if host not in checkpoint.hosts]
    if others and all(found[host].error is not None for host in checkpoint.hosts):
        instead = replace(checkpoint, hosts=tuple(others))
        seen = _look(looking, staging, instead)
        first = next((host for host in others if seen[host].error is None), None)
        if first is not None:
            return replace(checkpoint, hosts=(first,)), seen
    return checkpoint, found


def _unseen(looking: AnsweringFleet, staging: Staging, order: Order) -> list[Outcome]:
    """The hosts that should share a mount, and do not see what another one holds; who is away says nothing."""
    one = order.checkpoint
    others = tuple(host for host in one.readers if host not in one.hosts)
    if not others or not all(order.found[host].is_there for host in one.hosts):
        return []
    seen = _look(looking, staging, replace(one, hosts=others))
    states = {host: seen[host] for host in others if seen[host].error is None}
    return [unseen_outcome(order, host) for host, found in states.items() if not found.is_there]


def _look(looking: AnsweringFleet, staging: Staging, checkpoint: Checkpoint) -> dict[str, Found]:
    """The checkpoint on its hosts, and on the host that it is to come from."""
    hosts = list(checkpoint.hosts)
    if checkpoint.source.host is not None and checkpoint.source.host not in hosts:
        hosts.append(checkpoint.source.host)
    request = look_request([checkpoint], with_files=True)
    requests = dict.fromkeys(hosts, request)
    reports = ask_all(looking, requests, timeout_s=staging.pace.limits.ask_s)
    return {
        host: _read_found(host, reports[host])
        if host in reports
        else Found(host=host, state="away", error=looking.away[host])
        for host in hosts
    }


def _read_found(host: str, report: Report) -> Found:
    row = rows_of(report, "checkpoints")[0]
    status, files = row.get("status"), row.get("files")
    return Found(
        host=host,
        state=str(row["state"]),
        num_bytes=int(str(row.get("num_bytes") or 0)),
        free_bytes=int(str(row.get("free_bytes") or 0)),
        wrong=tuple(texts_of(row.get("wrong"))),
        files=tuple(file for file in files if isinstance(file, dict))
        if isinstance(files, list)
        else (),
        status=status if isinstance(status, dict) else {},
    )


def _order(staging: Staging, checkpoint: Checkpoint, found: Mapping[str, Found]) -> Order:
    """What to do about one checkpoint; nothing where every host has it."""
    own = [found[host] for host in checkpoint.hosts if found[host].error is None]
    for one in own:
        if one.state == "running":
            who = one.status.get("operator") or "somebody"
            staging.pace.say(
                f"{checkpoint.id} on {one.host}: already being staged by {who}; following it"
            )
    seed = checkpoint.source.host
    if seed is not None and (error := found[seed].error) is not None:
        raise error
    if not own:
        return Order(checkpoint=checkpoint, found=found, files=(), commit=None, seats=())
    if seed is not None and not found[seed].is_there:
        what = f"{checkpoint.target} is not complete there: {'; '.join(found[seed].wrong) or found[seed].state}."
        raise PrerequisiteError(seed, what, "Name a host that holds it, or another source.")
    outside = seed if seed not in checkpoint.hosts else None
    seats = chain([_as_source(one, seed) for one in own], outside)
    waiting = [one for one in own if one.state == "running"]
    if not seats:
        seats = tuple(Seat(host=one.host, peers=()) for one in waiting)
        return Order(checkpoint=checkpoint, found=found, files=(), commit=None, seats=seats)
    known = next((found[seat.host].files for seat in seats[:1] if found[seat.host].files), ())
    first = found[seats[0].host].state
    if known and (first in {"complete", "running"} or seats[0].host == seed):
        return Order(checkpoint=checkpoint, found=found, files=known, commit=None, seats=seats)
    files, commit, head = list_files(staging, checkpoint, [seat.host for seat in seats])
    if head != seats[0].host:  # whoever can list it can fetch it
        again = [found[head], *(one for one in own if one.host != head)]
        again[0] = Found(host=head, state="partial", num_bytes=1 << 62)
        seats = chain([one for one in again if one.state != "complete"], None)
    return Order(checkpoint=checkpoint, found=found, files=files, commit=commit, seats=seats)


def _as_source(found: Found, seed: str | None) -> Found:
    """A host that is named as the source counts as one that holds it; its work reads every byte before it serves."""
    is_source = found.host == seed and found.is_there
    return replace(found, state="complete") if is_source else found


def _refuse_full_disks(orders: Sequence[Order]) -> None:
    """Before any byte is written, every host must have room for all that it still lacks."""
    needed: dict[str, int] = {}
    free: dict[str, int] = {}
    for order in orders:
        for seat in order.seats:
            found = order.found[seat.host]
            if found.state not in {"complete", "unverified", "running"}:
                missing = missing_bytes(found, order.files)
                needed[seat.host] = needed.get(seat.host, 0) + missing
                free[seat.host] = found.free_bytes
    short = short_of_room(needed, free)
    if short:
        hosts = ", ".join(text.partition(" ")[0] for text in short)
        path = orders[0].checkpoint.target.rsplit("/", 2)[0]
        what = f"{'; '.join(short)} under {path} (what is missing and a tenth for others)."
        fix = "Make room there, or set weights.path to a larger disk. No byte was written."
        raise PrerequisiteError(hosts, what, fix)


def _free_ports(
    looking: AnsweringFleet, staging: Staging, orders: Sequence[Order]
) -> dict[str, int]:
    """A port for each checkpoint that is free on all its hosts; the one in use where a staging runs already.

    Raises:
        PrerequisiteError: the whole block is taken.
    """
    hosts = dict.fromkeys(seat.host for order in orders for seat in order.seats)
    block = range(STAGING_BLOCK.first, STAGING_BLOCK.last + 1)
    request = {**look_request((), with_files=False), "ports": list(block)}
    limit_s = staging.pace.limits.ask_s
    reports = ask_all(looking, dict.fromkeys(hosts, request), timeout_s=limit_s)
    taken = {
        int(port) for report in reports.values() for port in texts_of(report.get("ports_taken"))
    }
    free = iter([port for port in block if port not in taken])
    ports = {}
    for order in orders:
        running = running_status(order)
        port = int(str(running.get("port") or 0)) or next(free, 0)
        if not port:
            what = f"Ports {block[0]} to {block[-1]} are all taken, and hosts need one to hand weights on."
            raise PrerequisiteError(
                ", ".join(hosts), what, "Free one: `ss -Htlnp` shows who listens."
            )
        ports[order.checkpoint.job] = port
    return ports


def _end(staging: Staging, standings: Mapping[str, Mapping[str, Standing]]) -> None:
    """Stop serving and forget the jobs; one that nobody could follow to its end goes on, and ends by itself."""
    jobs: dict[str, list[str]] = {}
    for job, of_hosts in standings.items():
        for host, standing in of_hosts.items():
            if standing.phase != "lost":
                jobs.setdefault(host, []).append(job)
    requests = {
        host: {"operation": "staging", "action": "end", "jobs": names}
        for host, names in jobs.items()
    }
    staging.fleet.ask(requests, timeout_s=staging.pace.limits.ask_s)
