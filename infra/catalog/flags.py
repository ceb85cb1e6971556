"""The flags and variables of an engine release, read out of its package (`flags/`, `envs/`)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Literal

ValueType = Literal["bool", "int", "size", "float", "str", "json", "other"]
TWO_WAY = ("BooleanOptionalAction", "EnableDisableAction")


@dataclass(frozen=True, slots=True, kw_only=True)
class FlagFact:
    """One flag of a release.

    Args:
        name: the canonical spelling without dashes: the longest, equal over releases.
        options: every spelling with dashes, negations included.
        negation: the spelling that switches it off, with dashes; None for what is no two-way switch.
        takes: how many words follow: 0, 1, or None for any number.
        value_type: how a word is read.
        choices: allowed values, () for any.
    """

    name: str
    options: tuple[str, ...]
    negation: str | None
    takes: int | None
    value_type: ValueType
    choices: tuple[str, ...]
    default: object


@dataclass(frozen=True, slots=True, eq=False)
class FlagCatalogue:
    """All flags of one tool's release; `by_option` also knows every negation. Equal only to itself."""

    tool: str
    version: str
    by_name: Mapping[str, FlagFact]
    by_option: Mapping[str, tuple[FlagFact, bool]]


@dataclass(frozen=True, slots=True)
class EnvironmentNames:
    """The variables that a release reads, and vllm-ascend's `additional_config` keys."""

    names: frozenset[str]
    additional_config: frozenset[str]


@lru_cache(maxsize=32)
def read_flag_catalogue(path: Path) -> FlagCatalogue:
    """A catalogue file as look-up tables."""
    document = json.loads(path.read_text(encoding="utf-8"))
    by_name: dict[str, FlagFact] = {}
    by_option: dict[str, tuple[FlagFact, bool]] = {}
    for row in document["flags"]:
        options = tuple(row["options"])
        if not options:
            continue
        negatives = tuple(option for option in options if _is_negative(option, row))
        fact = FlagFact(
            name=_canonical(options, negatives),
            options=options,
            negation=negatives[0] if negatives else None,
            takes=_takes(row),
            value_type=_value_type(row),
            choices=tuple(str(choice) for choice in row["choices"] or ()),
            default=row["default"],
        )
        by_name[fact.name] = fact
        for option in options:
            by_option[option] = (fact, option not in negatives)
            if (
                "BooleanOptional" in row["action"]
                and option.startswith("--")
                and option not in negatives
            ):
                by_option.setdefault(f"--no-{option[2:]}", (fact, False))
    return FlagCatalogue(document["tool"], document["version"], by_name, by_option)


@lru_cache(maxsize=8)
def read_environment_names(paths: tuple[Path, ...]) -> EnvironmentNames:
    """The union of the variables in several catalogue files."""
    names: set[str] = set()
    additional: set[str] = set()
    for path in paths:
        document = json.loads(path.read_text(encoding="utf-8"))
        names.update(row["name"] for row in document["envs"])
        additional.update(document.get("additional_config_keys", ()))
    return EnvironmentNames(frozenset(names), frozenset(additional))


def _is_negative(option: str, row: Mapping[str, object]) -> bool:
    """Whether a spelling of a two-way switch turns it off: `--no-x`, or `--disable-x` for enable_x (vllm 0.33.0)."""
    if row["action"] not in TWO_WAY:
        return False
    verb, _, rest = str(row["dest"]).replace("_", "-").partition("-")
    opposite = {"enable": f"--disable-{rest}", "disable": f"--enable-{rest}"}.get(verb)
    return option.startswith("--no-") or option == opposite


def _canonical(options: tuple[str, ...], negatives: tuple[str, ...]) -> str:
    spelt_out = [option for option in options if option.startswith("--")] or list(options)
    positive = [option for option in spelt_out if option not in negatives] or spelt_out
    return max(positive, key=len).lstrip("-")


def _takes(row: Mapping[str, object]) -> int | None:
    nargs = row["nargs"]
    if (
        nargs == 0
        or "True" in str(row["action"])
        or "False" in str(row["action"])
        or "Boolean" in str(row["action"])
    ):
        return 0
    return 1 if nargs in (None, 1) else None


def _value_type(row: Mapping[str, object]) -> ValueType:
    text = str(row["type"]).lower()
    if _takes(row) == 0:
        return "bool"
    for known in ("bool", "int", "float", "str"):
        if text == known:
            return known
    if text.startswith("human_readable_int"):
        return "size"
    if text in {"loads", "union_dict_and_str", "parse_dataclass", "_parse_type", "json_list_type"}:
        return "json"
    return "other"
