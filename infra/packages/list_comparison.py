"""Catalogues against lists of the same releases that were made otherwise, as a table in Markdown.

Such a list is `flags-<command>-<version>.json` (`flags`: rows as argparse's parser object shows them) or
`envs-<package>-<version>.json` (`envs`, and `additional_config_keys`).
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_SPLIT = {"vllm-bench-serve": ("vllm", "vllm bench serve")}
_COMPARED = ("dest", "type", "action", "nargs", "required", "options", "choices", "default")
_USUAL: Mapping[str, object] = {"action": "_StoreAction", "required": False}
HEAD = """\
# The engine catalogues, and lists that were made otherwise

Written by `scripts/dump-engine-catalogue --against FOLDER`. The folder's lists came from installed packages, with
torch; `infra/catalog/packages/` came from stand-ins for everything but the package. Equal rows say that the stand-ins
change nothing.

| list | rows there | rows here | equal | differences |
|---|---|---|---|---|
"""
REASONS = """\

Groups and help texts are left out here. Why the rest differs:

- **default: an object.** A configuration object is its `repr` there, cut off at 200 characters, a set is `set()`, a
  member of an enumeration or a map with such keys its `repr`; here it is the call, a list, or the name.
- **default: depends on the run.** The other lists mark it (`<random>`, `<machine-dependent>`); here the random part is
  zeros and the value is what the package writes.
- **type: bool of a flag without a value.** Flags that only say that they are deprecated have no type there.
- **default: only here.** A variable without a declaration for type checkers has the default that its reader names.
- **keys: only here.** They are read elsewhere in the package than in its configuration class, or under an older name.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Compared:
    name: str
    theirs: int
    ours: int
    equal: int
    differences: Counter[str]


def comparison_table(folder: Path, catalogues: Path) -> str:
    """The table, with the reasons of its differences.

    Args:
        folder: of the other lists.
        catalogues: `infra/catalog/packages/`.
    """
    compared = [
        *(_flags(path, catalogues) for path in sorted(folder.glob("flags-*.json"))),
        *(_variables(path, catalogues) for path in sorted(folder.glob("envs-*.json"))),
    ]
    rows = [_line(each) for each in compared if each is not None]
    return HEAD + "".join(rows) + REASONS


def _line(compared: _Compared) -> str:
    said = ", ".join(f"{kind}: {count}" for kind, count in sorted(compared.differences.items()))
    cells = (compared.name, compared.theirs, compared.ours, compared.equal, said or "none")
    return "| " + " | ".join(str(cell) for cell in cells) + " |\n"


def _flags(path: Path, catalogues: Path) -> _Compared | None:
    stem, _, version = path.stem.removeprefix("flags-").rpartition("-")
    package, command = _SPLIT.get(stem, (stem, ""))
    commands = _catalogue(catalogues / f"{package}-{version}.json").get("commands", {})
    rows = commands.get(command) or next(iter(commands.values()), None)
    if rows is None:
        return None
    theirs = {row["name"]: row for row in json.loads(path.read_text(encoding="utf-8"))["flags"]}
    return _compare(path.stem, theirs, {row["name"]: row for row in rows}, _flag_differences)


def _variables(path: Path, catalogues: Path) -> _Compared | None:
    document = json.loads(path.read_text(encoding="utf-8"))
    ours = _catalogue(catalogues / f"{path.stem.removeprefix('envs-')}.json")
    if not ours:
        return None
    theirs = {row["name"]: row for row in document["envs"]}
    theirs |= {f"key {key}": {} for key in document.get("additional_config_keys", ())}
    mine = {row["name"]: row for row in ours["variables"]}
    mine |= {f"key {key}": {} for key in ours.get("names", {}).get("additional_config_keys", ())}
    return _compare(path.stem, theirs, mine, _variable_differences)


def _compare(
    name: str,
    theirs: Mapping[str, Any],
    ours: Mapping[str, Any],
    differ: Callable[[Any, Any], Iterator[str]],
) -> _Compared:
    both = theirs.keys() & ours.keys()
    different = {row: list(differ(theirs[row], ours[row])) for row in both}
    kinds = Counter(kind for found in different.values() for kind in found)
    for only, where in ((ours.keys() - both, "only here"), (theirs.keys() - both, "only there")):
        kinds.update(f"{'keys' if row.startswith('key ') else 'rows'} {where}" for row in only)
    equal = sum(not found for found in different.values())
    return _Compared(name=name, theirs=len(theirs), ours=len(ours), equal=equal, differences=kinds)


def _flag_differences(theirs: Mapping[str, Any], ours: Mapping[str, Any]) -> Iterator[str]:
    name = ours["name"]
    usual = {**_USUAL, "dest": name.lstrip("-").replace("-", "_"), "options": [name]}
    for key in _COMPARED:
        there, here = theirs.get(key), ours.get(key, usual.get(key))
        if key == "options" and not name.startswith("-"):
            continue
        if key in {"options", "choices"}:
            there, here = _in_order(there), _in_order(here)
        if there == here:
            continue
        if key == "type" and here == "bool":
            yield "type: bool of a flag without a value"
        elif (
            key == "default"
            and isinstance(there, str)
            and "<" in there
            and ">" in there[1:]
            and "Enum" not in there
        ):
            yield "default: depends on the run"
        else:
            yield "default: an object" if key == "default" else key


def _variable_differences(theirs: Mapping[str, Any], ours: Mapping[str, Any]) -> Iterator[str]:
    if "type" in theirs and theirs["type"] != ours.get("type"):
        yield "type"
    if "default" in theirs and theirs["default"] != ours.get("default"):
        yield "default: only here" if theirs["default"] is None else "default"


def _in_order(values: Sequence[object] | None) -> list[str] | None:
    return None if values is None else sorted(str(value) for value in values)


def _catalogue(path: Path) -> Mapping[str, Any]:
    if not path.is_file():
        return {}
    document: Mapping[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return document
