"""The rule about published holes that a plan's release has, and that the plan meets."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from infra.catalog.advisories import (
    Advisory,
    Condition,
    advisories_of,
    known_key,
    package_of,
)
from infra.checks.entrances import engines_have_key
from infra.checks.view import Finding, PlanView
from infra.plan.process import Process


def no_known_holes(view: PlanView) -> Iterator[Finding]:
    """The engine's release has no published hole that this plan meets."""
    package, version = package_of(view.release, view.surroundings.named_release)
    met = [each for each in advisories_of(package, version) if _is_met(each.when, view)]
    if met:
        holes = "; ".join(f"{each.id}: {each.what}" for each in met)
        upgrade = _upgrade(met, view.catalog.releases(package))
        fixes = dict.fromkeys(filter(None, [*upgrade, *(each.fix for each in met)]))
        what = f"{package} {version} has published holes that this plan meets. {holes}."
        yield Finding(field="engine.version", what=what, fix=" ".join(fixes))


def _upgrade(met: list[Advisory], releases: Iterable[str]) -> Iterator[str]:
    """The release that mends all that is mended, and what none does."""
    mending = {each.id: each.mended(releases) for each in met}
    known = [version for version in mending.values() if version is not None]
    if known:
        yield f"Take {met[0].package} {max(known, key=known_key)} or later."
    unmended = [name for name, version in mending.items() if version is None]
    if unmended:
        yield f"No fixed release is known for {', '.join(unmended)}."


def _is_met(when: Condition, view: PlanView) -> bool:
    """Whether all of a condition is so in a plan."""
    if when.has_key is not None and engines_have_key(view) != when.has_key:
        return False
    if when.spans_hosts and all(process.dp_ranks for process in view.engines):
        return False
    shape = view.checkpoint.shape if view.checkpoint else None
    if when.takes_images and (shape is None or shape.vision is None):
        return False
    own = view.checkpoint.architecture if view.checkpoint else None
    if when.architectures and own not in when.architectures:
        return False
    return any(_is_met_by(when, view, process) for process in view.variants)


def _is_met_by(when: Condition, view: PlanView, process: Process) -> bool:
    """Whether an engine process is as a condition wants its command and environment."""
    flags, env = view.flags(process), process.env
    connector = str(view.kv_connector(process) or "")
    return (
        (not when.any_flag or any(flags.get(name) for name in when.any_flag))
        and not any(flags.get(name) for name in when.no_flag)
        and all(name in env and value in (None, env[name]) for name, value in when.env.items())
        and (not when.connectors or any(part in connector for part in when.connectors))
        and (not when.names_repository or _is_repository(view, process))
        and (when.program is None or any(when.program in word for word in process.argv))
    )


def _is_repository(view: PlanView, process: Process) -> bool:
    """Whether the checkpoint is named as a hub names it, and not by a folder."""
    flags = view.flags(process)
    return not str(flags.get("model") or flags.get("model-path") or "/").startswith(("/", ".", "$"))
