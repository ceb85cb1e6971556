"""Hands what engines have compiled to hosts that lack it: packed where it lies, sent on as weights are, unpacked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from infra.errors import InfraError
from infra.launch.fleet import Report, answers_when_known, ask_reached, rows_of
from infra.launch.staging.checkpoints import stage
from infra.launch.staging.order import Staging
from infra.launch.staging.plan import Checkpoint
from infra.plan.process import Plan
from infra.render.host_paths import cache_folder
from infra.render.process_launch import runnable_image
from infra.render.weight_source import WeightSource

# Of an image's id in a job's name.
SHOWN_HASH = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheOnHost:
    """What engines of one host find compiled.

    Args:
        state: held (it was there), staged, absent (no host has compiled it for this image) or failed.
        why: where it came from, or what is wrong.
    """

    host: str
    accelerator: str
    state: str
    num_bytes: int
    why: str


def stage_caches(staging: Staging, plan: Plan) -> list[CacheOnHost]:
    """Have every host with engines find what one like it has compiled: with the same accelerator and image.

    Engines may run meanwhile; a host that has begun to compile by itself keeps its own. A host that cannot be asked
    has no row.

    Args:
        staging: the run.
        plan: whose engines they are.

    Raises:
        HostsFailed: no host can be asked.
    """
    accelerators = {host.name: host.accelerator for host in plan.hosts if host.num_devices}
    if plan.runtime == "native":
        return []
    common = {"operation": "caches", "stack": plan.stack, "runtime": plan.runtime}
    common["reference"] = runnable_image(plan.engine.image)
    look = {**common, "action": "look"}
    limit_s = staging.pace.limits.ask_s
    reports, _ = ask_reached(staging.fleet, dict.fromkeys(accelerators, look), timeout_s=limit_s)
    kinds: dict[tuple[str, str], dict[str, int]] = {}
    for host, report in reports.items():
        key = accelerators[host], str(report.get("image") or "")
        kinds.setdefault(key, {})[host] = _size(report, *key)
    found: list[CacheOnHost] = []
    for (accelerator, image), sizes in kinds.items():
        found += _hand_on(
            staging, plan.stack, {**common, "accelerator": accelerator, "image": image}, sizes
        )
    order = list(accelerators)
    return sorted(found, key=lambda one: order.index(one.host))


def _size(report: Report, accelerator: str, image: str) -> int:
    """Bytes that a host holds of what such engines compile."""
    rows = rows_of(report, "caches")
    own = (r for r in rows if (r["accelerator"], r["image"]) == (accelerator, image))
    return sum(int(str(row["num_bytes"])) for row in own)


def _hand_on(
    staging: Staging, stack: str, common: Mapping[str, object], sizes: Mapping[str, int]
) -> list[CacheOnHost]:
    """Of hosts with one accelerator and image those that have nothing get what the fullest one has."""
    accelerator, image = str(common["accelerator"]), str(common["image"])
    first = max(sizes, key=lambda host: sizes[host])
    lacking = [host for host in sizes if not sizes[host]]

    def row(host: str, state: str, num_bytes: int, why: str) -> CacheOnHost:
        return CacheOnHost(
            host=host, accelerator=accelerator, state=state, num_bytes=num_bytes, why=why
        )

    if not sizes[first]:
        why = (
            "no host has compiled anything for this image yet"
            if image
            else "its image is not there"
        )
        return [row(host, "absent", 0, why) for host in lacking]
    held = [row(host, "held", size, "it compiled it") for host, size in sizes.items() if size]
    if not lacking:
        return held
    wrong = _brought(staging, stack, common, [first, *lacking])
    for host, why in _asked(staging, {**common, "action": "drop"}, [first, *lacking]).items():
        staging.pace.say(f"{host}: the archive of caches lies there still: {why}")
    return held + [
        row(host, "failed", 0, wrong[host])
        if host in wrong
        else row(host, "staged", sizes[first], f"from {first}")
        for host in lacking
    ]


def _brought(
    staging: Staging, stack: str, common: Mapping[str, object], hosts: Sequence[str]
) -> dict[str, str]:
    """Pack on the first host, fetch and unpack on the others; why not, by host."""
    first, *lacking = hosts
    accelerator, image = str(common["accelerator"]), str(common["image"])
    staging.pace.say(f"packing what engines compiled on {first}")
    packed = _asked(staging, {**common, "action": "pack"}, [first])
    if packed:
        return dict.fromkeys(lacking, f"{first} hands nothing on: {packed[first]}")
    checkpoint = Checkpoint(
        id=f"caches-{stack}-{accelerator}",
        repository=stack,
        revision=image[:SHOWN_HASH],
        target=f"{cache_folder(stack)}/packed/{accelerator}/{image}",
        hosts=tuple(hosts),
        readers=tuple(hosts),
        source=WeightSource(document={}, host=None, shown=first, secret=None),
    )
    wrong = {one.host: one.why for one in stage(staging, [checkpoint]) if not one.ok}
    there = [host for host in lacking if host not in wrong]
    return {**wrong, **_asked(staging, {**common, "action": "unpack"}, there)}


def _asked(staging: Staging, request: Mapping[str, object], hosts: Sequence[str]) -> dict[str, str]:
    """Ask hosts; why it was not done, by host."""
    limit_s = staging.pace.limits.pull_s
    answers = answers_when_known(staging.fleet, dict.fromkeys(hosts, request), timeout_s=limit_s)
    return {host: told.what for host, told in answers.items() if isinstance(told, InfraError)}
