"""Which flags a refusal names: the release's own words, and whether other words name the same."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cache

from infra.catalog.flags import FlagCatalogue

# Beginnings after which argparse says what it is about, and ends with the flag or flags in all their spellings.
_ARGPARSE = (
    re.compile(r"error: argument ([^:\s]+): "),
    re.compile(r"error: unrecognized arguments: (--[^\s=]+)"),
    re.compile(r"error: the following arguments are required: ([^\s,]+)"),
)
# pydantic names the field of a class that is wrong behind the class, unless a check of the whole class failed.
_FIELD = re.compile(
    r"validation errors? for \w+ ([a-z][\w.]*) (?:Input|Unexpected|Field|Extra|Missing|Value)\b"
)


def named_in(
    says: str, flags: FlagCatalogue, variables: Iterable[str]
) -> tuple[frozenset[str], ...]:
    """What a release's refusal names.

    Args:
        says: the refusal.
        flags: the flags of the release.
        variables: environment variables that a refusal may be about.

    Returns:
        Sets of names of which one each has to be named by whoever says the same: canonical flags without dashes (or
        the word that is no flag), variables, and fields of JSON flags. Empty when the refusal names nothing.
    """
    found = [_flags_of_argparse(says, flags)]
    if not found[0]:
        found = [_flags_in(says, flags) | {name for name in variables if _has_word(name, says)}]
    field = _FIELD.search(says)
    if field is not None and field[1].replace("_", "-") not in flags.by_name:
        found.append(frozenset({field[1].rpartition(".")[2]}))
    return tuple(names for names in found if names)


def names_the_same(
    text: str,
    wanted: tuple[frozenset[str], ...],
    flags: FlagCatalogue,
    fields: Mapping[str, str],
) -> bool:
    """Whether a text names one of each set, in any spelling of the release or as the stack's field for it.

    Args:
        text: everything that is said.
        wanted: what `named_in` returns.
        flags: the flags of the release.
        fields: flag → field of a stack that stands for it.
    """
    return all(any(_is_named(name, text, flags, fields) for name in names) for names in wanted)


def _flags_of_argparse(says: str, flags: FlagCatalogue) -> frozenset[str]:
    found = next((match[1] for each in _ARGPARSE if (match := each.search(says))), None)
    if found is None:
        return frozenset()
    return frozenset(
        flags.by_option[option][0].name if option in flags.by_option else option.lstrip("-")
        for option in found.split("/")
    )


def _flags_in(says: str, flags: FlagCatalogue) -> frozenset[str]:
    """Flags whose name is in the words of a message: as on a command line, as an attribute, or in words."""
    return frozenset(
        fact.name for fact in flags.by_name.values() if _pattern(fact.options).search(says)
    )


@cache
def _pattern(options: tuple[str, ...]) -> re.Pattern[str]:
    """The spellings of a flag; one that is a single word only where nothing else can be meant."""
    spellings = []
    for option in options:
        words = [re.escape(word) for word in option.lstrip("-").split("-")]
        if not option.startswith("--"):
            spellings.append(rf"\b{words[0]}_size\b")
        elif len(words) > 1:
            spellings.append(rf"(?:--|(?<![\w-])){'[-_ ]'.join(words)}(?![\w-])")
        else:
            spellings += [rf"(?:--|\bself\.|\bargs\.){words[0]}(?![\w-])", rf"\b{words[0]}="]
    return re.compile("|".join(spellings))


def _is_named(name: str, text: str, flags: FlagCatalogue, fields: Mapping[str, str]) -> bool:
    fact = flags.by_name.get(name)
    spellings = {name, fields.get(name, name)}
    if fact is not None:
        spellings |= {option.lstrip("-") for option in fact.options if option.startswith("--")}
    return any(_has_word(spelling, text) for spelling in spellings)


def _has_word(name: str, text: str) -> bool:
    words = "[-_]".join(map(re.escape, re.split("[-_]", name)))
    return re.search(rf"(?<![A-Za-z0-9]){words}(?![A-Za-z0-9])", text) is not None
