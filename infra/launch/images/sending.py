"""Sends an archive of an image from the operator's machine to the hosts that lack the image, once over SSH.

One host gets it in pieces, whole or not at all; from there it goes from host to host as checkpoints do. Every host
loads it by itself, what it then holds is compared with the archive, and the archive is removed from all of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from infra.errors import InfraError, PrerequisiteError, StackError
from infra.launch.deployment import Pace
from infra.launch.fleet import Fleet, answers_when_known, ask_all, ask_reached
from infra.launch.images.archive import NAME, OPTION, ImageArchive, plain_name
from infra.launch.images.presence import ImageOnHost, bring_images
from infra.launch.staging.checkpoints import stage
from infra.launch.staging.order import Staging
from infra.launch.staging.plan import Checkpoint, giga
from infra.launch.staging.progress import rate_words
from infra.render.items import HostState, Item
from infra.render.weight_source import WeightSource

RECEIVED = ".moe-received"  # infra/agent/staging/receiving.py
PIECE_BYTES = 1 << 25
PIECE_S = 900.0
# What must stay free besides the archive: logs, and what others write meanwhile.
ROOM = 1.1
SHOWN_HASH = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Sending:
    """An archive on its way.

    Args:
        archive: what is sent.
        reference: the name that the archive gives the image, as hosts call it.
        folder: where it lies on hosts meanwhile.
        is_shared: whether all hosts see one and the same folder.
        piece_bytes: how much of it one request carries.
    """

    archive: ImageArchive
    reference: str
    folder: str
    is_shared: bool
    piece_bytes: int = PIECE_BYTES

    def request(self, action: str, **keys: object) -> dict[str, object]:
        """A request to the agent that receives."""
        return {
            "operation": "receive",
            "action": action,
            "target": self.folder,
            "name": NAME,
            "size_bytes": self.archive.size_bytes,
            "sha256": self.archive.sha256,
            "repository": self.reference,
            **keys,
        }


def plan_sending(
    archive: ImageArchive, states: Mapping[str, HostState], folder: str, *, is_shared: bool
) -> tuple[Sending, dict[str, HostState]]:
    """The sending, and host states whose image comes out of the archive and is known by its id.

    Args:
        archive: that was read.
        states: by host, in plan order.
        folder: of the weights, whose disk is large.
        is_shared: whether all hosts see one and the same.

    Raises:
        StackError: the stack runs in no image, or in one that the archive does not hold.
    """
    items = {item.target: item for state in states.values() for item in _image_items(state)}
    if not items:
        raise StackError(OPTION, "The stack runs in no image.", "Leave it out.")
    held = {target: archive.images.get(plain_name(target)) for target in items}
    missing = [target for target, identity in held.items() if identity is None]
    if missing:
        what = f"{archive.path} holds {', '.join(archive.images) or 'no name'}, and not {', '.join(missing)}."
        raise StackError(OPTION, what, f"Save it under that name: docker save -o FILE {missing[0]}")
    for target, item in items.items():
        pinned = item.details.get("digest")
        if pinned not in (None, held[target]):
            what = (
                f"engine.image is pinned to {pinned}, and the archive holds the id {held[target]}."
            )
            fix = "Pin that id: an archive does not tell a registry's digest."
            raise StackError(OPTION, what, fix)
    target = f"{folder}/{RECEIVED}/{archive.sha256[:SHOWN_HASH]}"
    sending = Sending(
        archive=archive, reference=next(iter(items)), folder=target, is_shared=is_shared
    )
    path = f"{target}/{NAME}"

    def changed(item: Item) -> Item:
        if item.kind != "image":
            return item
        own = {"archive": path, "digest": held[item.target]}
        kept = {key: value for key, value in item.details.items() if key != "mirror"}
        return replace(item, details={**kept, **own})

    return sending, {
        host: replace(state, items=tuple(changed(item) for item in state.items))
        for host, state in states.items()
    }


def send_and_load(
    sending: Sending, states: Mapping[str, HostState], staging: Staging
) -> list[ImageOnHost]:
    """Have every host that answers hold the image; one that does already is sent nothing.

    A host that does not get the archive keeps the others from nothing; what has arrived is gone on from.

    Raises:
        PrerequisiteError: there is no room for the archive; no byte was sent.
        HostsFailed: the first host cannot be asked any more, or does not take the archive.
    """
    fleet, pace = staging.fleet, staging.pace
    images = bring_images(fleet, states, "check", pace)
    answering = list(dict.fromkeys(one.host for one in images if one.error is None))
    lacking = [one.host for one in images if one.state == "changed"]
    if not lacking:
        _discard(sending, fleet, answering, pace)
        return images
    first = _first_host(sending, fleet, lacking, pace)
    _send(sending, fleet, first, pace)
    without: dict[str, str] = {}
    if not sending.is_shared and len(lacking) > 1:
        without = _hand_on(sending, staging, [first, *(host for host in lacking if host != first)])
    loading = [host for host in lacking if host not in without]
    pace.say(f"loading {sending.reference} on {len(loading)} hosts")
    loaded = bring_images(fleet, {host: states[host] for host in loading}, "apply", pace)
    if not without and all(one.state != "failed" for one in loaded):
        _discard(sending, fleet, answering, pace)
    rest = [
        replace(one, state="failed", why=without[one.host]) if one.host in without else one
        for one in images
        if one.host not in loading
    ]
    return [*rest, *loaded]


def _image_items(state: HostState) -> Sequence[Item]:
    return [item for item in state.of_groups("images") if item.kind == "image"]


def _first_host(sending: Sending, fleet: Fleet, hosts: Sequence[str], pace: Pace) -> str:
    """The host that is sent the archive: the one that has most of it, else the first that answers."""
    requests = dict.fromkeys(hosts, sending.request("look"))
    reports, _ = ask_reached(fleet, requests, timeout_s=pace.limits.ask_s)
    counts = {host: int(str(report.get("num_bytes") or 0)) for host, report in reports.items()}
    most = max(counts, key=lambda host: counts[host])
    first = most if counts[most] else next(iter(reports))
    needed = (sending.archive.size_bytes - counts[first]) * ROOM
    free = int(str(reports[first].get("free_bytes") or 0))
    if not reports[first].get("is_whole") and free < needed:
        what = f"{giga(needed)} GB are needed under {sending.folder} and {giga(free)} GB are free."
        raise PrerequisiteError(first, what, "Make room there. No byte was sent.")
    return first


def _send(sending: Sending, fleet: Fleet, host: str, pace: Pace) -> None:
    """Send the archive to one host, from where the last sending got to."""
    clock, size = pace.clock, sending.archive.size_bytes
    looks = {host: sending.request("look")}
    report = ask_all(fleet, looks, timeout_s=pace.limits.ask_s)[host]
    if report.get("is_whole"):
        return
    offset = begun_at = int(str(report.get("num_bytes") or 0))
    begun = shown = clock.now()
    again = f", going on after {giga(offset)} GB" if offset else ""
    pace.say(f"sending {sending.archive.path.name} ({giga(size)} GB) to {host}{again}")
    with sending.archive.path.open("rb") as stream:
        stream.seek(offset)
        while offset < size:
            piece = stream.read(sending.piece_bytes)
            if not piece:
                what = f"{sending.archive.path} became shorter while it was sent."
                raise StackError(OPTION, what, "Run it again when nobody writes to it.")
            request = sending.request("write", offset=offset, body=piece)
            ask_all(fleet, {host: request}, timeout_s=PIECE_S)
            offset += len(piece)
            now = clock.now()
            if now - shown >= pace.limits.progress_s:
                shown = now
                pace.say(f"{host}: {rate_words(offset, size, (offset - begun_at) / (now - begun))}")
    ask_all(fleet, {host: sending.request("publish")}, timeout_s=pace.limits.pull_s)


def _hand_on(sending: Sending, staging: Staging, hosts: Sequence[str]) -> dict[str, str]:
    """Have hosts fetch the archive from each other, in a chain; why one did not get it, by host."""
    checkpoint = Checkpoint(
        id="image",
        repository=sending.reference,
        revision=sending.archive.sha256[:SHOWN_HASH],
        target=sending.folder,
        hosts=tuple(hosts),
        readers=tuple(hosts),
        source=WeightSource(document={}, host=None, shown=hosts[0], secret=None),
    )
    return {one.host: one.why for one in stage(staging, [checkpoint]) if not one.ok}


def _discard(sending: Sending, fleet: Fleet, hosts: Sequence[str], pace: Pace) -> None:
    """Remove the archive from every host; an earlier run may have left it where it is loaded already."""
    requests = dict.fromkeys(hosts, sending.request("discard"))
    answers = answers_when_known(fleet, requests, timeout_s=pace.limits.ask_s)
    for host, answer in answers.items():
        if isinstance(answer, InfraError):
            pace.say(f"{host}: the archive lies there still, for the next run: {answer.what}")
