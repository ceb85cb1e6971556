"""`group_vars/` and `host_vars/` beside an inventory, as Ansible finds them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from infra.errors import Problem
from infra.inventory.values import TAGS
from infra.spec.text_file import read_text
from infra.spec.yaml_source import Document, read_yaml, why_unreadable

# Of one name, the first that is there is taken and the others are not: Ansible's own rule.
ENDINGS = ("", ".yml", ".yaml", ".json")
VAULT = "$ANSIBLE_VAULT;"


@dataclass(frozen=True, slots=True, kw_only=True)
class VariableFile:
    """One file that was read.

    Args:
        file: its name for messages.
    """

    file: str
    document: Document


@dataclass(frozen=True, slots=True, kw_only=True)
class VariableFiles:
    """Files by name of group or host, in the order in which later ones win."""

    groups: Mapping[str, tuple[VariableFile, ...]] = field(default_factory=dict)
    hosts: Mapping[str, tuple[VariableFile, ...]] = field(default_factory=dict)
    problems: tuple[Problem, ...] = ()


NOTHING_BESIDE = VariableFiles()


def read_variable_files(folder: Path, shown: str) -> VariableFiles:
    """What lies beside an inventory.

    A file that is encrypted as a whole is passed over: nothing in it is ours.

    Args:
        folder: the inventory's.
        shown: its name for messages, "" for the working directory.
    """
    problems: list[Problem] = []
    found = {
        kind: _by_name(folder / kind, f"{shown}/{kind}" if shown else kind, problems)
        for kind in ("group_vars", "host_vars")
    }
    return VariableFiles(
        groups=found["group_vars"], hosts=found["host_vars"], problems=tuple(problems)
    )


def _by_name(
    folder: Path, shown: str, problems: list[Problem]
) -> dict[str, tuple[VariableFile, ...]]:
    if not folder.is_dir():
        return {}
    names = {_stem(path) for path in folder.iterdir()}
    found: dict[str, tuple[VariableFile, ...]] = {}
    for name in sorted(names):
        ending = next((end for end in ENDINGS if (folder / f"{name}{end}").exists()), None)
        if ending is None:
            continue
        paths = _files_of(folder / f"{name}{ending}")
        read = (_read(path, f"{shown}/{path.relative_to(folder)}", problems) for path in paths)
        found[name] = tuple(file for file in read if file is not None)
    return found


def _stem(path: Path) -> str:
    return path.stem if path.suffix in ENDINGS and not path.is_dir() else path.name


def _files_of(path: Path) -> Iterator[Path]:
    """The file itself, or the variable files of a folder and of those below it, in the order of their names."""
    if not path.is_dir():
        yield path
        return
    for entry in sorted(path.iterdir()):
        if entry.name.startswith(".") or entry.name.endswith("~"):
            continue
        if entry.is_dir():
            yield from _files_of(entry) if not entry.suffix else ()
        elif entry.suffix in ENDINGS:
            yield entry


def _read(path: Path, shown: str, problems: list[Problem]) -> VariableFile | None:
    try:
        text = read_text(path)
    except (OSError, UnicodeDecodeError) as error:
        problems.append(
            _problem(
                shown, f"It cannot be read: {why_unreadable(error)}.", "Mend it, or take it away."
            )
        )
        return None
    if text.startswith(VAULT):
        return None
    document, found = read_yaml(text, shown, TAGS, merges=True)
    problems += found
    if not isinstance(document.data, Mapping) and not found:
        what = "It is not a map of variables."
        problems.append(_problem(shown, what, "Write `name: value` per line."))
    return VariableFile(file=shown, document=document)


def _problem(file: str, what: str, fix: str) -> Problem:
    return Problem(rule="variable-file", severity="error", field="", what=what, fix=fix, file=file)
