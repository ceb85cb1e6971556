"""What a shell offers for the next word of a command line: tasks, options, and the values that options can have."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence

from infra.tasks.command_words import ENTRIES
from infra.tasks.options import Option
from infra.tasks.table import Entry

# bash expands what it is offered: a name with anything else in it would run.
_PLAIN = re.compile(r"[\w.:=/-]+")
CORE = ("--help", "--hosts", "--identity", "--list", "--print-completion-script", "--ssh-config")
# Fields of a stack that hold ids of the catalogue, by the folder that has them.
FIELDS: Mapping[str, str] = {
    "checkpoint": "checkpoints",
    "draft.checkpoint": "checkpoints",
    "accelerator": "accelerators",
    "tuning": "tuning",
    "router.name": "routers",
}


def offer(line: str) -> None:
    """Print what a shell may offer; nobody need take it."""
    text = "".join(f"{word}\n" for word in candidates(line) if _PLAIN.fullmatch(word))
    with contextlib.suppress(BrokenPipeError):
        os.write(1, text.encode())


def candidates(line: str) -> list[str]:
    """Words that may come next, or in the place of the last one; the shell chooses by what is typed of it.

    Args:
        line: as the shells' scripts hand it over, with the program's name first. bash has words end at `=`.
    """
    try:
        words = shlex.split(line)[1:]
    except ValueError:  # a quotation is still open
        return []
    place = next((i for i, word in enumerate(words) if word in ENTRIES), None)
    if place is None:
        return [*ENTRIES, *CORE]
    own, typed = [entry for word in words if (entry := ENTRIES.get(word))][-1], words[place + 1 :]
    options = [f"--{option.name}" for option in own.options if not option.is_positional]
    return [*_values(own, typed), *options]


def _values(entry: Entry, typed: Sequence[str]) -> list[str]:
    """The values of the option that the last words are about; [] where none is known: the shell then offers files."""
    known = {f"--{option.name}": option for option in entry.options}
    for back, word in enumerate(reversed(typed)):
        name, _, _ = word.partition("=")
        if name in known:
            # the value may have begun; of --set, bash makes three words: FIELD, = and what is typed of the value
            limit = 3 if known[name].name in ("set", "compare") else 1
            rest = typed[len(typed) - back :]
            return _of_option(known[name], rest) if back <= limit else []
    return []


def _of_option(option: Option, rest: Sequence[str]) -> list[str]:
    if option.choices:
        return list(option.choices)
    if option.kind == "switch":
        return []
    if option.name == "set":
        field = rest[0].partition("=")[0] if rest else ""
        if field in FIELDS and (len(rest) > 1 or "=" in rest[0]):
            ids = _ids(FIELDS[field])
            return [*ids, *(f"{field}={each}" for each in ids)]
        return [f"{field}=" for field in FIELDS]
    found = _SOURCES.get(option.name)
    return list(found()) if found is not None else []


def _stacks() -> Iterable[str]:
    from infra.spec.stack_files import stack_names  # noqa: PLC0415 - of one kind of word alone

    return stack_names()


def _ids(folder: str) -> Sequence[str]:
    from infra.catalog.load import Catalog  # noqa: PLC0415 - as above

    return Catalog().ids(folder)


def _releases() -> Iterable[str]:
    from infra.catalog.load import Catalog  # noqa: PLC0415 - as above

    catalog = Catalog()
    return (f"{name}:{release}" for name in catalog.engines for release in catalog.releases(name))


def _rules() -> Iterable[str]:
    from infra.checks.rules import RULES  # noqa: PLC0415 - as above

    return RULES


def _steps() -> Iterable[str]:
    from infra.rehearsal.report import STEPS  # noqa: PLC0415 - as above

    return STEPS


def _kept() -> Iterable[str]:
    from infra.rehearsal.lab.starting import list_labs  # noqa: PLC0415 - as above

    return (entry.id for entry in list_labs())


_SOURCES: Mapping[str, Callable[[], Iterable[str]]] = {
    "stack": _stacks,
    "compare": _stacks,
    "accelerator": lambda: _ids("accelerators"),
    "checkpoint": lambda: _ids("checkpoints"),
    "engine": _releases,
    "diff": _releases,
    "profile": lambda: _ids("tuning"),
    "explain": _rules,
    "to-step": _steps,
    "stop": _kept,
}
