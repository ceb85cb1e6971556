"""Changes of a plan document as data: what a case file says is wrong with an otherwise right plan."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

from pydantic import BaseModel, ConfigDict

from infra.engines.registry import ENGINES

Document = dict[str, Any]
MASKS = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ASCEND_RT_VISIBLE_DEVICES")
SHORTEST = 4
SGLANG_SHORT = {"tp": "tensor-parallel", "dp": "data-parallel"}
_OWNED = tuple(engine.owned_flags for engine in ENGINES.values())
Value = str | int | list[str] | dict[str, object] | None


class PlanEdit(BaseModel):
    """One change of processes, of hosts, or of the plan itself.

    Args:
        process: an id, a role with `*` for all of its processes (`decode/*`), or `*` for all.
        host: a name, or `*` for all.
        flag: its words are replaced; `value` None removes it, "" is a switch, a map changes keys of its JSON.
        occurrence: of a flag that stands several times, the one that is removed with its word, from 0.
        env: a variable; `value` None removes it.
        model: another path of the checkpoint, where an engine names one behind `serve`.
        program: the words that a process starts with, in place of its first.
        field: dotted, of the process, the host or the plan; `value` None removes an entry of a list.
        has_no_mounts: nothing of the host is mounted any more.
        is_left_out: the process is not there.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    process: str | None = None
    host: str | None = None
    flag: str | None = None
    occurrence: int | None = None
    env: str | None = None
    model: str | None = None
    program: tuple[str, ...] | None = None
    field: str | None = None
    has_no_mounts: bool = False
    is_left_out: bool = False
    value: Value = None


def apply_edits(document: Document, edits: Iterable[PlanEdit]) -> None:
    """Change a plan document in place, one edit after the other.

    Raises:
        AssertionError: an edit meets nothing.
    """
    for edit in edits:
        rows = list(_meant(document, edit))
        assert rows, f"the plan has nothing that {edit} is about"
        for row in rows:
            _apply(document, row, edit)


def words_of(edit: PlanEdit) -> tuple[str, ...]:
    """Words by which a finding may name what an edit is about, in small letters and with `-` for `_`.

    That is the flag or the variable, the stack's field that owns the flag, a key inside its JSON, or the value that was
    written; of what is missing, what it was.
    """
    found = list(_keys(edit.value))
    if edit.flag is not None:
        name = edit.flag.lstrip("-").removesuffix("-size")
        found += [SGLANG_SHORT[name]] if name in SGLANG_SHORT else []
        found += [name, name.removeprefix("no-")]
        found += [owned[name] for owned in _OWNED if (name := edit.flag.lstrip("-")) in owned]
    found += [edit.env] if edit.env else []
    found += ["device"] if edit.env in MASKS else []
    found += ["model", "checkpoint"] if edit.model else []
    found += [edit.field.partition(".")[0].removesuffix("s")] if edit.field else []
    found += ["router"] if edit.program else []
    found += ["/etc/"] if edit.has_no_mounts else []
    if edit.is_left_out and edit.process:
        found.append(edit.process.partition("/")[0].partition("-")[0])
    return tuple(word.replace("_", "-").lower() for word in found)


def process_row(document: Document, name: str) -> Document:
    """The row of a process.

    Raises:
        StopIteration: there is no such process.
    """
    found: Document = next(row for row in document["processes"] if row["id"] == name)
    return found


def _keys(value: Value) -> Iterator[str]:
    """Keys of a map, also of one that is written as JSON, or a value that is long enough to be told from others."""
    if isinstance(value, str) and value.startswith("{"):
        value = json.loads(value)
    if isinstance(value, dict):
        for key, inner in value.items():
            yield key
            yield from _keys(inner if isinstance(inner, dict) else None)
    elif isinstance(value, str) and len(value) >= SHORTEST:
        yield value


def _meant(document: Document, edit: PlanEdit) -> Iterator[Document]:
    if edit.host is not None:
        yield from (row for row in document["hosts"] if edit.host in ("*", row["name"]))
    elif edit.process is None:
        yield document
    else:
        role, _, name = edit.process.partition("/")
        for row in list(document["processes"]):
            is_of_role = name == "*" and row["role"] == role
            if edit.process in ("*", row["id"]) or is_of_role:
                yield row


def _apply(document: Document, row: Document, edit: PlanEdit) -> None:
    if edit.is_left_out:
        document["processes"].remove(row)
    elif edit.flag is not None and edit.occurrence is not None:
        places = [index for index, word in enumerate(row["argv"]) if word == edit.flag]
        start = places[edit.occurrence]
        del row["argv"][start : start + 2]
    elif edit.flag is not None:
        _set_flag(row["argv"], edit.flag, edit.value)
    elif edit.env is not None:
        row["env"].pop(edit.env, None)
        if edit.value is not None:
            row["env"][edit.env] = edit.value
    elif edit.model is not None:
        if "serve" in row["argv"]:
            row["argv"][row["argv"].index("serve") + 1] = edit.model
    elif edit.program is not None:
        row["argv"][:1] = edit.program
    elif edit.field is not None:
        _set_field(row, edit.field.split("."), edit.value)
    else:
        assert edit.has_no_mounts, f"{edit} changes nothing"
        row["mounts"] = []


def _set_flag(argv: list[str], flag: str, value: Value) -> None:
    written: str | None = None
    if flag in argv:
        start = argv.index(flag)
        end = start + 1
        while end < len(argv) and not argv[end].startswith("--"):
            end += 1
        written = " ".join(argv[start + 1 : end])
        argv[start:end] = []
    if isinstance(value, dict):
        value = json.dumps({**json.loads(written or "{}"), **value})
    if isinstance(value, str):
        argv += [flag, value] if value else [flag]
    elif isinstance(value, list):
        argv += [flag, *value]
    else:
        assert value is None, f"{flag} has no value of this kind: {value}"


def _set_field(row: Any, parts: list[str], value: Value) -> None:
    for part in parts[:-1]:
        row = row[int(part)] if isinstance(row, list) else row[part]
    if isinstance(row, list) and value is None:
        del row[int(parts[-1])]
    else:
        row[int(parts[-1]) if isinstance(row, list) else parts[-1]] = value
