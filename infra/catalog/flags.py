"""The flags and variables of an engine release, out of its package's catalogue (`packages/`)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

ValueType = Literal["bool", "int", "size", "float", "str", "json", "other"]
TWO_WAY = ("BooleanOptionalAction", "EnableDisableAction")
# Names that a later release gave a longer spelling: readers know one name for all releases.
SAME: Mapping[str, str] = {"device-memory-utilization": "gpu-memory-utilization"}


class FlagFact(NamedTuple):
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


def read_flags(tool: str, version: str, rows: Iterable[Mapping[str, Any]]) -> FlagCatalogue:
    """The rows of one command as look-up tables."""
    by_name: dict[str, FlagFact] = {}
    by_option: dict[str, tuple[FlagFact, bool]] = {}
    for row in rows:
        if not row["name"].startswith("-"):  # a positional
            continue
        options = tuple(row.get("options") or (row["name"],))
        negatives = tuple(option for option in options if _is_negative(option, row))
        fact = FlagFact(
            name=_canonical(options, negatives),
            options=options,
            negation=negatives[0] if negatives else None,
            takes=_takes(row),
            value_type=_value_type(row),
            choices=tuple(str(choice) for choice in row.get("choices", ())),
            default=row.get("default"),
        )
        by_name[fact.name] = fact
        for option in options:
            by_option[option] = (fact, option not in negatives)
            # EnableDisableAction keeps `--no-enable-x` and hides it (vllm utils/argparse_utils.py@0.33.0)
            is_two_way = any(kind in row.get("action", "") for kind in TWO_WAY)
            if is_two_way and option.startswith("--") and option not in negatives:
                by_option.setdefault(f"--no-{option[2:]}", (fact, False))
    return FlagCatalogue(tool, version, by_name, by_option)


def _is_negative(option: str, row: Mapping[str, Any]) -> bool:
    """Whether a spelling of a two-way switch turns it off: `--no-x`, or `--disable-x` for enable_x (vllm 0.33.0)."""
    if row.get("action") not in TWO_WAY:
        return False
    dest = row.get("dest") or row["name"].lstrip("-")
    verb, _, rest = str(dest).replace("_", "-").partition("-")
    opposite = {"enable": f"--disable-{rest}", "disable": f"--enable-{rest}"}.get(verb)
    return option.startswith("--no-") or option == opposite


def _canonical(options: tuple[str, ...], negatives: tuple[str, ...]) -> str:
    spelt_out = [option for option in options if option.startswith("--")] or list(options)
    positive = [option for option in spelt_out if option not in negatives] or spelt_out
    name = max(positive, key=len).lstrip("-")
    return SAME.get(name, name)


def _takes(row: Mapping[str, Any]) -> int | None:
    nargs, action = row.get("nargs"), row.get("action", "")
    if nargs == 0 or "True" in action or "False" in action or "Boolean" in action:
        return 0
    return 1 if nargs in (None, 1) else None


def _value_type(row: Mapping[str, Any]) -> ValueType:
    text = str(row.get("type")).lower()
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
