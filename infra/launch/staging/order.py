"""What a staging works on: the run, an order per checkpoint, and what came of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from infra.errors import InfraError
from infra.launch.deployment import Pace
from infra.launch.fleet import Fleet
from infra.launch.secret import Secret
from infra.launch.staging.plan import (
    Checkpoint,
    Found,
    Seat,
)
from infra.launch.staging.progress import Standing

MANIFEST = "manifest.json"  # agent/staging/manifest.py


@dataclass(frozen=True, slots=True, kw_only=True)
class Staging:
    """One run of `stage-weights`.

    Args:
        addresses: where hosts dial each other, by host.
        secrets: of the stack; the hub's token travels on standard input.
        operator: who asks, for whoever comes second.
        token: what peers of this staging must know.
    """

    fleet: Fleet
    addresses: Mapping[str, str]
    secrets: Mapping[str, Secret]
    pace: Pace
    operator: str
    token: str = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of one checkpoint on one host.

    Args:
        state: complete (it was already), staged, failed, damaged or missing.
        why: what is wrong, or where it came from.
        error: why the host cannot be asked, None where it can.
        is_unseen: whether another host holds it on a mount that this one should share: nothing is to be staged.
    """

    checkpoint: str
    host: str
    path: str
    state: str
    num_files: int
    size_bytes: int
    why: str
    error: InfraError | None = None
    is_unseen: bool = False

    @property
    def ok(self) -> bool:
        """Whether the host holds it."""
        return self.state in {"complete", "staged"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What the hosts of one checkpoint are asked to do.

    Args:
        failed_first: the host that was to hash it for all others, and has not; None where that is no matter.
    """

    checkpoint: Checkpoint
    found: Mapping[str, Found]
    files: tuple[Mapping[str, object], ...]
    commit: str | None
    seats: tuple[Seat, ...]
    failed_first: str | None = None

    @property
    def lacks_sums(self) -> bool:
        """Whether a host would take a file from another one with nothing to hold it against."""
        return len(self.seats) > 1 and not all(map(has_sum, self.files))


def has_sum(file: Mapping[str, object]) -> bool:
    """Whether a row of a listing says by what its file is known (agent/staging/manifest.py)."""
    return file.get("sha256") is not None or file.get("git_sha1") is not None


def outcomes_of(order: Order, standings: Mapping[str, Standing]) -> list[Outcome]:
    """What became of a checkpoint on each of its hosts."""
    outcomes = []
    for host in order.checkpoint.hosts:
        found, standing = order.found[host], standings.get(host)
        if found.error is not None:
            outcomes.append(_away(order, found.error, host))
            continue
        if found.state == "complete":
            sizes = [int(str(file["size_bytes"])) for file in found.files]
            state, why = "complete", "already complete (verified)"
            outcomes.append(_outcome(order, host, state, (len(sizes), sum(sizes)), why))
            continue
        if standing is None and order.failed_first is not None:
            why = (
                f"not begun: {order.failed_first} was to bring it first and hash it, and has failed"
            )
            outcomes.append(_outcome(order, host, "failed", (0, 0), why))
            continue
        assert standing is not None  # noqa: S101 - who is not complete has a seat
        state = "staged" if standing.phase == "complete" else "failed"
        came = ", ".join(f"{count} files from {name}" for name, count in standing.came_from.items())
        if state == "staged":
            why = came or "complete there; somebody else has ended its staging"
        else:
            why = str(standing.problem)
        amount = (standing.num_files, standing.size_bytes)
        outcomes.append(_outcome(order, host, state, amount, why))
    return outcomes


def checked_outcome(order: Order, host: str, standing: Standing | None) -> Outcome:
    """What a check found on one host; without a standing there was nothing to read."""
    found = order.found[host]
    if found.error is not None:
        return _away(order, found.error, host)
    if standing is None:
        state = "damaged" if found.state == "damaged" else "missing"
        why = "; ".join(found.wrong) or f"{order.checkpoint.target} is not there ({found.state})"
        return _outcome(order, host, state, (0, 0), why)
    amount = (standing.num_files, standing.size_bytes)
    if standing.phase != "checked":
        why = str(standing.problem or standing.phase)
        return replace(_outcome(order, host, "failed", amount, why), error=standing.error)
    wrong = "; ".join(standing.damaged)
    return _outcome(order, host, "damaged" if wrong else "complete", amount, wrong or "verified")


def unseen_outcome(order: Order, host: str) -> Outcome:
    """What a host of a shared mount lacks although another one holds it there."""
    place, holder = order.checkpoint.target.rsplit("/", 2)[0], order.checkpoint.hosts[0]
    why = (
        f"{holder} has it, and {host} does not see it: `ssh {host} findmnt -T {place}` tells what is mounted there; "
        "mount there what the others have"
    )
    return replace(_outcome(order, host, "missing", (0, 0), why), is_unseen=True)


def mount_step(hosts: Sequence[str]) -> str:
    """What has hosts see what others hold on a mount, as a step before the next command."""
    return f"mount the weights on {', '.join(dict.fromkeys(hosts))} as on the others"


def _away(order: Order, error: InfraError, host: str) -> Outcome:
    why = f"cannot be asked: {error.what}"
    return replace(_outcome(order, host, "failed", (0, 0), why), error=error)


def _outcome(order: Order, host: str, state: str, amount: tuple[int, int], why: str) -> Outcome:
    return Outcome(
        checkpoint=order.checkpoint.id,
        host=host,
        path=order.checkpoint.target,
        state=state,
        num_files=amount[0],
        size_bytes=amount[1],
        why=why,
    )


def texts_of(value: object) -> list[str]:
    """A list of texts in a report; [] when it is not there."""
    return [str(one) for one in value] if isinstance(value, list) else []
