"""What a release's own configuration code refuses in several settings together (`combinations/`), one row for each."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import StrictStr

from infra.catalog.files import read_rows
from infra.catalog.sourced import Entry
from infra.catalog.versions import version_numbers

FOLDER = Path(__file__).parent / "combinations"
# Sizes that are 1 where a command line does not name them.
ONES = frozenset(
    {
        "tensor-parallel-size",
        "pipeline-parallel-size",
        "data-parallel-size",
        "decode-context-parallel-size",
        "dcp-kv-cache-interleave-size",
        "max-num-partial-prefills",
        "max-long-partial-prefills",
        "expert-parallel-size",
        "moe-data-parallel-size",
        "attention-context-parallel-size",
        "attention-data-parallel-size",
    }
)
ANY_CASE = frozenset({"speculative-algorithm"})  # SGLang reads its value so
TIMES = " * "  # between settings whose values are multiplied
_PLACE = re.compile(r"\{([a-zA-Z][\w.-]*)\}")

Look = Callable[[str], object]


class _Row(Entry):
    """A row as its file has it; `combinations/README.md` has the words."""

    first: StrictStr
    last: StrictStr | None = None
    engines: tuple[StrictStr, ...] | None = None
    file: StrictStr
    when: dict[StrictStr, Any]
    unless: tuple[StrictStr, ...] = ()
    process: StrictStr | None = None
    kind: StrictStr
    says: StrictStr
    fix: StrictStr


class Combination(NamedTuple):
    """Settings that a release refuses together.

    Args:
        first: the first release in which it was read.
        last: the last one; None where it is the newest that was read.
        engines: whose processes it is about.
        file: where, inside the package.
        when: setting → condition; all hold where it is refused. `combinations/README.md` has the words.
        unless: settings of which none is set where it is refused: they change what is compared.
        kind: the error, or the configuration class whose validator says so.
        says: the release's words, with the values of settings in braces.
        fix: what to write instead.
    """

    first: str
    last: str | None
    engines: tuple[str, ...]
    file: str
    when: Mapping[str, Any]
    unless: tuple[str, ...]
    kind: str
    says: str
    fix: str

    def is_of(self, engine: str, version: tuple[int, int, int]) -> bool:
        """Whether it holds for a release of an engine."""
        if engine not in self.engines or version < version_numbers(self.first):
            return False
        return self.last is None or version <= version_numbers(self.last)

    def is_met(self, look: Look) -> bool:
        """Whether all its conditions hold.

        Args:
            look: setting → value; None for one that is not set, an empty text for one that nobody knows.
        """
        if any(look(name) not in (None, False) for name in self.unless):
            return False
        return all(
            _holds(condition, _value(name, look), look) for name, condition in self.when.items()
        )

    def settings(self) -> tuple[str, ...]:
        """What is compared, in the row's order: its settings, and those that it holds them against."""
        named: dict[str, None] = {}
        for name, condition in self.when.items():
            named |= dict.fromkeys(name.split(TIMES))
            named |= dict.fromkeys(_references(condition))
        return tuple(named)

    def words(self, look: Look) -> str:
        """What the release says of these values."""
        return _PLACE.sub(lambda match: str(_value(match[1], look)), self.says).strip()


@cache
def combinations(engine: str) -> tuple[Combination, ...]:
    """The rows of an engine's own code; those of vllm are about its plugin for Ascend, too.

    Raises:
        CatalogueError: a row has another shape.
    """
    both = ("vllm", "vllm-ascend") if engine == "vllm" else (engine,)
    return tuple(
        Combination(
            first=row.first,
            last=row.last,
            engines=both if row.engines is None else row.engines,
            file=row.file,
            when=row.when,
            unless=row.unless,
            kind=row.kind,
            says=row.says,
            fix=row.fix,
        )
        for row in read_rows(FOLDER / f"{engine}.json", _Row)
    )


def _references(condition: Any) -> list[str]:
    """The settings that a condition names behind an `@`."""
    if isinstance(condition, bool):
        return []
    ((_, wanted),) = condition.items()
    several = wanted if isinstance(wanted, list) else [wanted]
    return [each[1:] for each in several if isinstance(each, str) and each.startswith("@")]


def _value(name: str, look: Look) -> object:
    """A setting's value, or the product of several; "" for one that nobody knows."""
    if TIMES in name:
        return _product([_value(each, look) for each in name.split(TIMES)])
    value = look(name)
    if name in ANY_CASE and isinstance(value, str):
        return value.upper()
    return 1 if value is None and name in ONES else value


def _product(values: list[object]) -> object:
    numbers = [number for value in values if (number := _number(value)) is not None]
    return math.prod(numbers) if len(numbers) == len(values) else ""


def _holds(condition: Any, value: object, look: Look) -> bool:
    """Whether a value meets a condition; one that nobody knows meets none."""
    if value == "":
        return False
    if isinstance(condition, bool):
        return bool(value) is condition
    ((word, wanted),) = condition.items()
    if word in ("in", "not_in"):
        known = [_named(each, look) for each in wanted]
        return "" not in known and (value in known) is (word == "in")
    if word in ("given", "has", "not_share"):
        return {
            "given": (value is not None) is wanted,
            "has": isinstance(value, str) and str(wanted) in value,
            "not_share": isinstance(value, int | float) and not 0 < value <= 1,
        }[word]
    return _compares(word, _number(value), _number(_named(wanted, look)))


def _compares(word: str, number: int | None, other: int | None) -> bool:
    if number is None or other is None:
        return False
    if word == "not_dividing":
        return number > 1 and other > 0 and other % number != 0
    return {"above": number > other, "below": number < other, "not_above": number <= other}[word]


def _named(wanted: object, look: Look) -> object:
    """A value itself, or that of the setting whose name follows an `@`; "" for a length that the engine chooses."""
    if not (isinstance(wanted, str) and wanted.startswith("@")):
        return wanted
    value = _value(wanted[1:], look)
    number = _number(value)
    return "" if value is None or (number is not None and number < 1) else value


def _number(value: object) -> int | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value
    return int(value) if isinstance(value, str) and re.fullmatch(r"-?\d+", value) else None
