"""The rule about settings that a release takes one by one, and refuses together."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from infra.catalog.combinations import Combination, Look, combinations
from infra.catalog.versions import version_numbers
from infra.checks.view import Finding, PlanView
from infra.engines.command_line import as_map
from infra.plan.process import Process

VARIABLE, MODEL = "env.", "model."
UNKNOWN = ""  # what a shell fills in


def settings_combine(view: PlanView) -> Iterator[Finding]:
    """No settings stand together that the release's own configuration code refuses."""
    rows = _rows(view)
    met = {
        kind.id: [row for row in rows if row.is_met(_look(view, kind))] for kind in view.kinds.first
    }
    for process in view.variants:
        look = _look(view, process)
        for row in met[view.kinds.of[process.id].id]:
            shown = [n for n in row.settings() if n in row.when or look(n) is not None]
            told = " and ".join(_told(name, look) for name in shown)
            release = f"{view.release.engine} {view.release.version}"
            what = f"{told}: {release} refuses them together: {row.words(look).rstrip('. ')}."
            field = _field(process, next(iter(row.when)))
            yield Finding(field=field, what=what, fix=row.fix, process=process.id)


def _rows(view: PlanView) -> list[Combination]:
    """What holds for the release, of the engine and of what it sits on."""
    engine = view.release.engine
    own = version_numbers(view.release.version)
    found = [row for row in combinations(view.family) if row.is_of(engine, view.version())]
    if engine != view.family:
        found += [row for row in combinations(engine) if row.is_of(engine, own)]
    return found


def _look(view: PlanView, process: Process) -> Look:
    flags = view.flags(process)

    def look(name: str) -> object:
        if name.startswith(VARIABLE):
            return _settled(process.env.get(name.removeprefix(VARIABLE)))
        if name.startswith(MODEL):
            return _of_model(view, name.removeprefix(MODEL))
        flag, *keys = name.split(".")
        value: Any = flags.get(flag)
        for key in keys:
            value = as_map(value).get(key)
        return _settled(value)

    return look


def _of_model(view: PlanView, name: str) -> object:
    if name == "architecture":
        return UNKNOWN if view.checkpoint is None else view.checkpoint.architecture
    return view.checkpoint is not None and view.checkpoint.shape is not None


def _settled(value: object) -> object:
    return UNKNOWN if isinstance(value, str) and "$" in value else value


def _told(name: str, look: Look) -> str:
    """A setting and its value as an operator knows them."""
    value = look(name)
    if name == "model.architecture":
        return f"a model of class {value}"
    if name.startswith(MODEL):
        return "a model with multi-head latent attention"
    if name.startswith(VARIABLE):
        variable = name.removeprefix(VARIABLE)
        return f"no {variable}" if value is None else f"{variable}={value}"
    words = f"--{name.replace('.', ' ', 1)}"
    if value is None or value is False:
        return f"no {words}"
    return words if value is True or isinstance(value, dict | list | tuple) else f"{words} {value}"


def _field(process: Process, name: str) -> str:
    if name.startswith(VARIABLE):
        return f"roles.{process.role}.env.{name.removeprefix(VARIABLE)}"
    return f"roles.{process.role}.flags.{name.partition('.')[0]}"
