"""A given plan whose commands name weights where simulated hosts hold them.

An imported command names its model as its author's hosts have it: by a repository, which an engine would fetch from the
hub, or by a folder of theirs. Simulated hosts reach no hub, and hold what a stack of this project stages.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from infra.catalog.flags import FlagCatalogue
from infra.catalog.load import Catalog
from infra.catalog.schema import Checkpoint, Mount
from infra.checks.view import PlanView, view_plan
from infra.engines.command_line import as_map, canonical_flag
from infra.plan.document import plan_hash
from infra.plan.process import Plan, Process
from infra.plan.resolve import weights_on_host

_NAME = "served-model-name"


def with_staged_weights(plan: Plan, catalog: Catalog) -> tuple[Plan, Mapping[str, str]]:
    """The plan with every known model below its weights' path, and what each is called in the given plan.

    Clients go on asking for the model by the name that the engine would have given it.

    Args:
        plan: as it was given.
        catalog: the checkpoints.

    Returns:
        The plan, the same where nothing changes; the staged folder by the name that stood in its place.
    """
    view = view_plan(plan, catalog)
    moved: dict[str, str] = {}
    processes = []
    for process in plan.processes:
        own = dict(_moved(view, process)) if process.kind == "engine" else {}
        moved |= own
        processes.append(_staged(view, process, own) if own else process)
    if not moved:
        return plan, moved
    changed = replace(plan, processes=tuple(processes), hash="")
    return replace(changed, hash=plan_hash(changed)), moved


def _moved(view: PlanView, process: Process) -> Iterator[tuple[str, str]]:
    """(what a command calls a checkpoint, the folder of it): the model, and its draft."""
    flags, root = view.flags(process), view.plan.weights_path
    draft = as_map(flags.get("speculative-config")).get("model")
    for told, known in (
        (_model(view, process), view.checkpoint),
        (draft or flags.get("speculative-draft-model-path"), view.draft(process)),
    ):
        if isinstance(told, str) and known is not None and not _is_staged(told, known, root):
            yield told, weights_on_host(known, root, None).path


def _model(view: PlanView, process: Process) -> object:
    flags = view.flags(process)
    return flags.get("model") or flags.get("model-path")


def _is_staged(told: str, known: Checkpoint, root: str) -> bool:
    below = told.removeprefix(f"{root}/{known.id}/")
    return below not in (told, "")


def _staged(view: PlanView, process: Process, moved: Mapping[str, str]) -> Process:
    flags = view.catalog.flags(view.release.flags_catalogue)
    argv = tuple(_words(process.argv, flags, moved))
    model = _model(view, process)
    if model in moved and _NAME not in view.flags(process):
        argv += (f"--{_NAME}", str(model))
    return replace(process, argv=argv, mounts=_mounts(process.mounts, view.plan, moved))


def _words(argv: Sequence[str], flags: FlagCatalogue, moved: Mapping[str, str]) -> Iterator[str]:
    """The words with what names a model put in its place; the name that clients ask for stays."""
    current = ""
    for word in argv:
        fact = canonical_flag(word, flags)
        current = current if fact is None else fact.name
        head, equals, value = word.partition("=") if fact is not None else ("", "", word)
        if current == _NAME:
            yield word
        elif value.startswith("{"):
            for old, new in moved.items():
                value = value.replace(json.dumps(old), json.dumps(new))
            yield f"{head}{equals}{value}"
        else:
            yield f"{head}{equals}{moved.get(value, value)}"


def _mounts(mounts: Sequence[Mount], plan: Plan, moved: Mapping[str, str]) -> tuple[Mount, ...]:
    """Mounts without those that showed the author's weights, or stand where ours do."""
    return tuple(
        mount
        for mount in mounts
        if not _covers(mount.target, plan.weights_path)
        and not any(_covers(mount.target, old) for old in moved if old.startswith("/"))
    )


def _covers(target: str, path: str) -> bool:
    return path == target or path.startswith(f"{target.rstrip('/')}/")
