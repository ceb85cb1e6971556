"""From a name or path to a `StackSpec`: find the file, merge `extends`, apply `--set`, validate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path as FilePath
from posixpath import normpath

from infra.errors import Problem, ProblemsFound
from infra.spec.bounded import is_whole_number
from infra.spec.nearest import nearest
from infra.spec.present import is_file
from infra.spec.section import looks_like_secret
from infra.spec.shape_problems import Place, validate_stack
from infra.spec.stack import KUBERNETES, StackSpec
from infra.spec.stack_files import (
    CLUSTER_NAME,
    PROJECT,
    SEARCHED,
    STACK_NAME,
    STACKS,
    find_stack,
    stack_names,
)
from infra.spec.text_file import read_text
from infra.spec.yaml_source import Path, read_yaml, why_unreadable

# Sections whose `file` is a path of the operator's machine.
FILE_REFERENCES = ("secrets", "edge")
_PLACES_OF_SECRETS = frozenset({"env", "file"})

# Where stacks lie is of this module's subject; it stands apart so that it costs no classes of the spec.
__all__ = [
    "PROJECT",
    "SEARCHED",
    "STACKS",
    "LoadedStack",
    "find_stack",
    "load_stack",
    "stack_names",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedStack:
    """A validated stack and where each of its fields was written."""

    name: str
    file: str
    spec: StackSpec
    places: Mapping[Path, Place]

    def place(self, field: str) -> Place:
        """The line of a dotted field, or of the nearest enclosing one that is written."""
        path: Path = tuple(
            int(part) if is_whole_number(part) else part for part in field.split(".") if part
        )
        while path and path not in self.places:
            path = path[:-1]
        return self.places.get(path, Place(file=self.file, line=None, column=None))

    def written_field(self, field: str) -> str:
        """The field itself when the file has it, else the same field under `defaults`, else the field."""
        parts = field.split(".")
        if tuple(parts) in self.places or len(parts) < 3 or parts[0] != "roles":  # noqa: PLR2004 - roles.<role>.<field>
            return field
        default = ("defaults", *parts[2:])
        return ".".join(default) if default in self.places else field


def load_stack(name_or_path: str, sets: Sequence[str] = ()) -> LoadedStack:
    """The stack of that name (in `stacks/` or `tests/stacks/`) or path, with `--set` applied.

    Args:
        name_or_path: a shipped stack's name, or a path that ends in `.yaml` or `.yml`.
        sets: `field=value` words; values are YAML.

    Raises:
        ProblemsFound: every problem of shape in all files and words, by line.
    """
    problems: list[Problem] = []
    path = find_stack(name_or_path)
    data, places = _read_with_extends(path, (), problems)
    name, is_partial = path.stem, bool(problems)
    _apply_sets(data, places, sets, problems)
    spec = validate_stack(data, places, _shown(path), problems)
    problems += _wrong_name(name, _shown(path), data.get("platform"))
    if is_partial:  # what could not be read is not missing
        problems = [problem for problem in problems if problem.rule != "missing-key"]
    if spec is None or problems:
        raise ProblemsFound(tuple(sorted(problems, key=lambda p: (p.file or "", p.line or 0))))
    return LoadedStack(name=name, file=_shown(path), spec=spec, places=places)


def _wrong_name(name: str, file: str, platform: object) -> list[Problem]:
    """The problem of a stack's name that its hosts or its cluster could not take over."""
    if not STACK_NAME.fullmatch(name):
        what = f"The stack's name {name!r} becomes part of paths and units on its hosts."
        fix = "Rename the file: letters, digits, `.`, `_` and `-`, a letter or digit first, at most 64."
    elif isinstance(platform, str) and platform in KUBERNETES and not CLUSTER_NAME.fullmatch(name):
        what = f"The stack's name {name!r} becomes part of the names of objects in the cluster."
        fix = "Rename the file: lower-case letters, digits and `-`, a letter first."
    else:
        return []
    return [
        Problem(
            rule="stack-name", severity="error", field="", what=what, fix=fix, file=file, line=1
        )
    ]


def _shown(path: FilePath) -> str:
    """A path as short as it is clear: relative to the project when inside it."""
    resolved = path.resolve()
    if resolved.is_relative_to(PROJECT):
        return str(resolved.relative_to(PROJECT))
    return str(path)


def _read_with_extends(
    path: FilePath, chain: tuple[FilePath, ...], problems: list[Problem]
) -> tuple[dict[str, object], dict[Path, Place]]:
    """The merged map of a file and what it extends; problems are appended."""
    file = _shown(path)
    try:
        text = read_text(path)
    except (OSError, UnicodeDecodeError) as error:
        what = f"The file cannot be read: {why_unreadable(error)}."
        before = error.object[: error.start] if isinstance(error, UnicodeDecodeError) else b""
        problem = _file_problem(file, "unreadable-file", what)
        fix = "Name a text file that you may read, in UTF-8."
        problems.append(replace(problem, fix=fix, line=before.count(b"\n") + 1))
        return {}, {}
    document, found = read_yaml(text, file)
    problems.extend(found)
    places = {
        key: Place(file=file, line=line, column=column)
        for key, (line, column) in document.positions.items()
    }
    data = document.data
    if data is None:
        return {}, places
    if not isinstance(data, dict):
        problems.append(_file_problem(file, "wrong-type", "The file is not a map."))
        return {}, places
    _place_files(data, path.parent)
    parent = data.pop("extends", None)
    if parent is None:
        return data, places
    line = places.get(("extends",))
    base, base_places = _read_parent(path, parent, (*chain, path.resolve()), line, problems)
    return _merge(base, data), {**base_places, **places}


def _read_parent(
    path: FilePath,
    parent: object,
    chain: tuple[FilePath, ...],
    place: Place | None,
    problems: list[Problem],
) -> tuple[dict[str, object], dict[Path, Place]]:
    """What `extends:` names; a failure is one problem at its line and an empty base."""
    line = place.line if place else None
    file = _shown(path)

    def refuse(rule: str, what: str, fix: str) -> tuple[dict[str, object], dict[Path, Place]]:
        problems.append(
            Problem(
                rule=rule,
                severity="error",
                field="extends",
                what=what,
                fix=fix,
                file=file,
                line=line,
            )
        )
        return {}, {}

    if not isinstance(parent, str):
        return refuse("wrong-type", "extends is not text.", "Write a stack's name or a path.")
    is_path = parent.endswith((".yaml", ".yml")) or "/" in parent
    target = path.parent / parent if is_path else STACKS / f"{parent}.yaml"
    if not is_path and not is_file(target):
        target = path.parent / f"{parent}.yaml"
    if not is_file(target):
        return refuse(
            "unknown-stack", f"extends: there is no stack {parent}.", nearest(parent, stack_names())
        )
    if target.resolve() in chain:
        names = " → ".join(step.stem for step in (*chain, target.resolve()))
        return refuse(
            "extends-cycle", f"extends runs in a circle: {names}.", "Remove one of these `extends`."
        )
    return _read_with_extends(target, chain, problems)


def _place_files(data: Mapping[str, object], folder: FilePath) -> None:
    """Put paths of referenced files where they are meant: beside the file that says them.

    What --set says is read from the working directory, as other paths of a command line are.
    """
    maps = [data.get(section) for section in FILE_REFERENCES]
    while maps:
        each = maps.pop()
        if not isinstance(each, dict):
            continue
        maps += each.values()
        file = each.get("file")
        # a folder before a secret would hide its shape
        is_place = isinstance(file, str) and file and not looks_like_secret(file)
        if is_place and not str(file).startswith("~"):
            each["file"] = normpath(folder / str(file))


def _merge(base: Mapping[str, object], top: Mapping[str, object]) -> dict[str, object]:
    """Maps merge, lists and scalars replace. An explicit null removes what the base said.

    A reference to a secret is one thing: the place that is said on top replaces the one below.
    """
    merged = dict(base)
    for key, value in top.items():
        under = merged.get(key)
        if isinstance(value, dict) and _is_reference(value):
            merged[key] = {way: place for way, place in value.items() if place is not None}
        elif isinstance(under, dict) and isinstance(value, dict):
            merged[key] = _merge(under, value)
        elif value is None and key in merged:
            del merged[key]
        else:
            merged[key] = value
    return merged


def _is_reference(value: Mapping[str, object]) -> bool:
    """Whether a map says where a secret is read: `{env: NAME}` or `{file: PATH}`, and no map of variables."""
    said = {key: place for key, place in value.items() if place is not None}
    return said.keys() <= _PLACES_OF_SECRETS and any(
        isinstance(each, str) for each in said.values()
    )


def _apply_sets(
    data: dict[str, object], places: dict[Path, Place], sets: Sequence[str], problems: list[Problem]
) -> None:
    for word in sets:
        field, equals, text = word.partition("=")
        parts: Path = tuple(part for part in field.strip().split(".") if part)
        refusal = None
        if not equals or not parts:
            fix = "Write --set field=value, e.g. --set port=8080."
            refusal = (f"--set {word} has no value.", fix)
        elif parts[0] == "extends":
            fix = "Name the other stack with --stack, or write a file that extends it."
            refusal = ("What a stack extends is read before --set is applied.", fix)
        if refusal is not None:
            what, fix = refusal
            problems.append(
                Problem(
                    rule="bad-set", severity="error", field=field, what=what, fix=fix, file="--set"
                )
            )
            continue
        # whoever writes a key where its place belongs must not read it in the message
        is_place = parts[0] in FILE_REFERENCES
        secret = is_place or "env" in parts or field.endswith(("key", "token"))
        place = Place(
            file=f"--set {field}=***" if secret else f"--set {word}", line=None, column=None
        )
        value = _set_value(text)
        target: dict[str, object] = data
        for depth, part in enumerate(parts[:-1], start=1):
            inner = target.get(str(part))
            fresh: dict[str, object] = dict(inner) if isinstance(inner, dict) else {}
            if not isinstance(inner, dict):
                places[parts[:depth]] = place
            target[str(part)] = fresh
            target = fresh
        if value is None:
            target.pop(str(parts[-1]), None)
        else:
            if is_place and _is_reference({**target, str(parts[-1]): value}):
                target.clear()
            target[str(parts[-1])] = value
        for depth in range(1, len(parts) + 1):
            places.setdefault(parts[:depth], place)
        places[parts] = place


def _set_value(text: str) -> object:
    """The value of a `--set`: as YAML has it, or the text where it has none (`2024-13-45`, `[`)."""
    document, problems = read_yaml(text, "--set")
    if problems:
        return text
    return None if document.data == {} and not text.strip().startswith("{") else document.data


def _file_problem(file: str, rule: str, what: str) -> Problem:
    return Problem(
        rule=rule,
        severity="error",
        field="",
        what=what,
        fix="A stack file is a map; see stacks/gb200-2p1d.yaml.",
        file=file,
        line=1,
    )
