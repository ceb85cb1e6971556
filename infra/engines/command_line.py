"""Command lines written and read as the engines' own parsers do: prefixes, negations, dotted JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from infra.catalog.flags import FlagCatalogue, FlagFact
from infra.catalog.schema import FlagData
from infra.catalog.versions import version_numbers
from infra.engines.per_process_settings import PER_PROCESS_FLAGS
from infra.spec.bounded import read_json, read_real, read_whole

# vLLM's readers accept 32k (1000) and 32K (1024): vllm utils/argparse_utils.py@0.22.1, human_readable_int.
_SIZES = {
    "k": 10**3,
    "m": 10**6,
    "g": 10**9,
    "t": 10**12,
    "K": 2**10,
    "M": 2**20,
    "G": 2**30,
    "T": 2**40,
}

# In values behind dots: vllm utils/argparse_utils.py@0.20.0, and not 0.18.0.
SINCE_SUFFIXES = (0, 20, 0)
LEVEL = "--optimization-level"
_LEVELS = ("0", "1", "2", "3")
_PER_PROCESS_WORDS = frozenset(f"--{name}" for name in PER_PROCESS_FLAGS)

_COMPACT = json.JSONEncoder(sort_keys=True, separators=(",", ":"))


class ParsedFlags(NamedTuple):
    """What a parser makes of argv words.

    Args:
        values: canonical name → value; JSON flags as maps, repeated ones the last, lists as tuples.
        positionals: words that are no flag and belong to none.
        rejected: (word, reason) pairs that the real parser refuses.
    """

    values: Mapping[str, object]
    positionals: tuple[str, ...]
    rejected: tuple[tuple[str, str], ...]

    def refused_with(self, room: int) -> tuple[tuple[str, str], ...]:
        """What the parser of a program refuses that takes `room` words without a flag.

        Words beyond them are named where nothing else is refused: behind a refused flag they may be its value.
        """
        strays = () if self.rejected else self.positionals[room:]
        return (*self.rejected, *((word, f"unrecognized arguments: {word}") for word in strays))


def spell_flag(name: str, value: FlagData, catalogue: FlagCatalogue) -> tuple[str, ...]:
    """The argv words of one flag: `--x`, the release's negation of it, or `--x value`; maps as compact JSON."""
    if value is True:
        return (f"--{name}",)
    if value is False:
        found = catalogue.by_option.get(f"--{name}")
        return (
            found[0].negation
            if found and found[0].negation
            else f"--no-{name.removeprefix('no-')}",
        )
    if isinstance(value, dict):
        return (f"--{name}", compact_json(value))
    if isinstance(value, list):
        return (f"--{name}", *(str(item) for item in value))
    return (f"--{name}", str(value))


def compact_json(value: object) -> str:
    """JSON with sorted keys and no spaces: the same bytes for the same value."""
    return _COMPACT.encode(value)


def parse_flags(words: Sequence[str], catalogue: FlagCatalogue) -> ParsedFlags:
    """Read argv words with the flags of one release.

    Args:
        words: argv behind the program and its subcommand.
        catalogue: the release's flags.
    """
    own = next((i for i, word in enumerate(words) if word in _PER_PROCESS_WORDS), len(words))
    shared = _read_shared(tuple(words[:own]), catalogue)
    return _read_chunks(words[own:], catalogue, shared)


def as_int(value: object, default: int) -> int:
    """A parsed value as a whole number; `default` when it is not there."""
    if type(value) is int:
        return value
    if value is None:
        return default
    try:
        return read_whole(str(value))
    except ValueError:
        return default


def as_map(value: object) -> Mapping[str, object]:
    """A parsed JSON flag as a map; empty when it is not there or not a map."""
    return value if isinstance(value, Mapping) else {}


def canonical_flag(word: str, catalogue: FlagCatalogue) -> FlagFact | None:
    """The flag that an argv word names, in any spelling that the parser takes; None for a value or an unknown one."""
    if not _looks_like_flag(word):
        return None
    head = word.partition("=")[0]
    is_dotted = head.startswith("--") or _is_short(head, catalogue)
    found = _find(head.partition(".")[0] if is_dotted else head, catalogue)
    return None if isinstance(found, str) else found[0]


@lru_cache(maxsize=4096)
def _looks_like_flag(word: str) -> bool:
    """Whether argparse takes a word for an option: a dash, and no negative number."""
    return (
        word.startswith("-")
        and len(word) > 1
        and not word[1].isdecimal()
        and " " not in word.partition("=")[0]
    )


def options_meant(word: str, options: Iterable[str]) -> tuple[str, ...]:
    """The options that Python's argparse takes a word for: its own, else every one that begins with the word."""
    known = tuple(options)
    return (word,) if word in known else tuple(each for each in known if each.startswith(word))


class FlagName(NamedTuple):
    """A flag as a stack's file names it: canonical, whether positively, and the key behind dots, "" without one."""

    name: str
    positive: bool
    key: str

    @property
    def whole(self) -> str:
        """The name with its key."""
        return f"{self.name}.{self.key}" if self.key else self.name


def flag_named(name: str, catalogue: FlagCatalogue) -> FlagName:
    """The flag that a name without dashes means: short, abbreviated, negated or with underscores, as the parser does.

    A name that no flag has, or several begin with, stays as written, for the parser to refuse.
    """
    head, _, key = name.partition(".")
    dashed = head.replace("_", "-")
    for word in (f"--{dashed}", f"-{dashed}"):
        found = _find(word, catalogue)
        if not isinstance(found, str):
            return FlagName(found[0].name, found[1], key)
    return FlagName(dashed, positive=True, key=key)


@lru_cache(maxsize=4096)
def _find(name: str, catalogue: FlagCatalogue) -> tuple[FlagFact, bool] | str:
    """The flag that a spelling means, or why the parser refuses it."""
    # vLLM's own parser turns underscores into dashes; SGLang's and the routers' is argparse as it comes.
    is_flexible = name.startswith("--") and catalogue.tool.startswith("vllm ")
    dashed = "--" + name[2:].replace("_", "-") if is_flexible else name
    starting = {o: catalogue.by_option[o] for o in options_meant(dashed, catalogue.by_option)}
    if len({(fact.name, positive) for fact, positive in starting.values()}) == 1:
        return next(iter(starting.values()))
    if starting:
        return f"ambiguous option: {name} could match {', '.join(sorted(starting))}"
    return f"unrecognized arguments: {name}"


class _Chunk(NamedTuple):
    """A flag and the words up to the next one, read. `name` is empty when nothing is to be stored."""

    name: str = ""
    keys: tuple[str, ...] = ()
    value: object = None
    positionals: tuple[str, ...] = ()
    rejected: tuple[tuple[str, str], ...] = ()


@lru_cache(maxsize=1024)
def _read_shared(words: tuple[str, ...], catalogue: FlagCatalogue) -> ParsedFlags:
    """The words before the first that is a process's own: a large plan has a handful of such beginnings."""
    return _read_chunks(words, catalogue, ParsedFlags({}, (), ()))


def _with_levels(words: Sequence[str]) -> list[str]:
    """`-O3`, `-O=3` and `-O 3` as vLLM's parser rewrites them (utils/argparse_utils.py@0.17.0 to 0.33.0)."""
    found: list[str] = []
    for word, following in zip(words, [*words[1:], ""], strict=True):
        if word[:2] == "-O" and word != "-O":
            found += [LEVEL, word[3:] if word[2] == "=" else word[2:]]
        else:
            found.append(LEVEL if word == "-O" and following in _LEVELS else word)
    return found


def _read_chunks(
    words: Sequence[str], catalogue: FlagCatalogue, before: ParsedFlags
) -> ParsedFlags:
    """Words from one flag to the next, read one after the other behind what was read `before`."""
    if LEVEL in catalogue.by_option and any(word[:2] == "-O" for word in words):
        words = _with_levels(words)
    values = dict(before.values)
    positionals, rejected = [*before.positionals], [*before.rejected]
    start = 0
    flags = [i for i, word in enumerate(words) if word[:1] == "-" and _looks_like_flag(word)]
    for end in (*flags, len(words)):
        if end > start:
            chunk = _read_chunk(tuple(words[start:end]), catalogue)
            positionals += chunk.positionals
            rejected += chunk.rejected
            if chunk.keys:
                _store_dotted(values, chunk)
            elif chunk.name:
                values[chunk.name] = chunk.value
        start = end
    return ParsedFlags(values, tuple(positionals), tuple(rejected))


@lru_cache(maxsize=65536)
def _read_chunk(words: tuple[str, ...], catalogue: FlagCatalogue) -> _Chunk:
    """One flag with the words behind it; those that it does not take are positionals.

    Ranks differ in few words, so nearly every chunk of a large plan has been read before.
    """
    word = words[0]
    if not _looks_like_flag(word):
        return _Chunk(positionals=words)
    head, equals, inline = _split_short(word, catalogue) or word.partition("=")
    name, *keys = head.split(".") if head.startswith("--") or _is_short(head, catalogue) else [head]
    found = _find(name, catalogue)
    if isinstance(found, str):
        return _Chunk(positionals=words[1:], rejected=((word, found),))
    fact, positive = found
    if fact.takes == 0:
        reason = f"argument {head}: ignored explicit argument '{inline}'"
        refused = ((word, reason),) if equals else ()
        return _Chunk(name=fact.name, value=positive, positionals=words[1:], rejected=refused)
    limit = 1 if fact.takes == 1 or keys else len(words)
    given = (inline,) if equals else words[1 : 1 + limit]
    rest = words[1:] if equals else words[1 + limit :]
    if not given:
        return _Chunk(rejected=((word, f"argument {head}: expected one argument"),))
    if keys:
        value = _dotted_value(given[0], catalogue)
        if keys[-1].endswith("+"):  # a list, its items between commas
            keys[-1], value = keys[-1][:-1], given[0].split(",")
        return _Chunk(name=fact.name, keys=tuple(keys), value=value, positionals=rest)
    return _read_values(fact, given, rest)


def _split_short(word: str, catalogue: FlagCatalogue) -> tuple[str, str, str] | None:
    """`-n2` as `-n` and 2, as argparse takes an option of one letter with its value; None for anything else."""
    letter, value = word[:2], word[2:]
    if letter == "--" or letter not in catalogue.by_option or not value or value[0] == "=":
        return None
    others = options_meant(word.partition("=")[0], catalogue.by_option)
    return None if others else (letter, "=", value)


def _is_short(head: str, catalogue: FlagCatalogue) -> bool:
    """Whether `-cc.key` is a key of `-cc`."""
    name, dot, _ = head.partition(".")
    return bool(dot) and name in catalogue.by_option


def _read_values(fact: FlagFact, given: tuple[str, ...], rest: tuple[str, ...]) -> _Chunk:
    """The words that a flag takes, as its type."""
    read: list[object] = []
    rejected: list[tuple[str, str]] = []
    for text in given:
        try:
            read.append(_read_value(fact, text))
        except ValueError as error:
            rejected.append((text, f"argument --{fact.name}: {error}"))
    if rejected:
        return _Chunk(positionals=rest, rejected=tuple(rejected))
    return _Chunk(
        name=fact.name, value=read[0] if fact.takes == 1 else tuple(read), positionals=rest
    )


def _store_dotted(values: dict[str, object], chunk: _Chunk) -> None:
    """`--x.a.b value` into the map of x; maps on the way are copied, for chunks are shared."""
    whole = values.get(chunk.name)
    target: dict[str, object] = dict(whole) if isinstance(whole, Mapping) else {}
    values[chunk.name] = target
    for key in chunk.keys[:-1]:
        inner = target.get(key)
        fresh = dict(inner) if isinstance(inner, Mapping) else {}
        target[key] = fresh
        target = fresh
    target[chunk.keys[-1]] = chunk.value


def _read_value(fact: FlagFact, text: str) -> object:
    """One word as the flag's type; ValueError with the parser's words."""
    value: object = text
    if fact.value_type == "int":
        try:
            value = read_whole(text)
        except ValueError:
            message = f"invalid int value: '{text}'"
            raise ValueError(message) from None
    elif fact.value_type == "size":
        value = _read_size(text)
    elif fact.value_type == "float":
        try:
            value = read_real(text)
        except ValueError:
            message = f"invalid float value: '{text}'"
            raise ValueError(message) from None
    elif fact.value_type == "json" or (fact.value_type == "other" and text[:1] == "{"):
        value = _read_json(text)
    if fact.choices and str(value) not in fact.choices:
        message = f"invalid choice: '{text}' (choose from {', '.join(fact.choices)})"
        raise ValueError(message)
    return value


def _read_size(text: str) -> object:
    if text in {"auto", "-1"}:
        return text
    scale = _SIZES.get(text[-1:], 1)
    number = text[:-1] if scale > 1 else text
    try:
        return read_whole(str(int(read_real(number) * scale))) if scale > 1 else read_whole(number)
    except (ValueError, OverflowError):
        message = f"invalid human_readable_int value: '{text}'"
        raise ValueError(message) from None


def _read_json(text: str) -> object:
    if text[:1] not in "{[":
        return text
    try:
        return read_json(text)
    except ValueError as error:
        message = f"Value {text} cannot be converted to JSON: {error}"
        raise ValueError(message) from None


def _dotted_value(text: str, catalogue: FlagCatalogue) -> object:
    """A dotted flag's value: JSON, a number with a suffix where the release reads those, else the text."""
    try:
        return read_json(text)
    except ValueError:
        pass
    if version_numbers(catalogue.version) < SINCE_SUFFIXES:
        return text
    try:
        return _read_size(text)
    except ValueError:
        return text
