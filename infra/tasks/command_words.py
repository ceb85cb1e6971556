"""The words of a command line, judged and put right before Invoke's parser sees them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from infra.errors import StackError
from infra.tasks.options import Option
from infra.tasks.table import GROUPS, Entry

ENTRIES: Mapping[str, Entry] = {entry.name: entry for _, group in GROUPS for entry in group}


def pairs_as_one_word(words: Sequence[str]) -> list[str]:
    """The words of a command line with both values of a `pair` option as one: Invoke's parser takes one value."""
    joined: list[str] = []
    pairs: set[str] = set()
    waiting = list(words)
    while waiting:
        word = waiting.pop(0)
        if word in ENTRIES:
            pairs = {
                f"--{option.name}" for option in ENTRIES[word].options if option.kind == "pair"
            }
        joined.append(word)
        name, equals, _ = word.partition("=")
        if name not in pairs:
            continue
        if not equals and waiting:
            joined.append(waiting.pop(0))
        if waiting and not waiting[0].startswith("-") and waiting[0] not in ENTRIES:
            joined[-1] += f" {waiting.pop(0)}"
    return joined


def refuse_lost_words(words: Sequence[str]) -> None:
    """Refuse what Invoke's parser would pass over in silence, or blame on another word.

    Raises:
        StackError: an option that may be repeated has no value, or another one has two.
    """
    for entry, options in _options_by_task(words):
        seen: set[str] = set()
        for option, value in options:
            flag = f"--{option.name}"
            if option.kind == "words" and value is None:
                raise StackError("command line", f"{flag} needs a value.", f"Write {flag} VALUE.")
            if option.name in seen and option.kind not in ("words", "switch"):
                what = f"{flag} is given twice to {entry.name}."
                raise StackError("command line", what, "Leave one of them out.")
            seen.add(option.name)


def _options_by_task(
    words: Sequence[str],
) -> Iterator[tuple[Entry, list[tuple[Option, str | None]]]]:
    """Each task with its options and their values, as Invoke's parser divides the words; None for no value."""
    entry: Entry | None = None
    given: list[tuple[Option, str | None]] = []
    waiting, places = list(words), 0
    while waiting:
        word = waiting.pop(0)
        flags = {f"--{option.name}": option for option in entry.options} if entry else {}
        name, equals, value = word.partition("=")
        if name in flags:
            option = flags[name]
            taken: str | None = value if equals else None
            if not equals and option.kind != "switch" and waiting and waiting[0] not in flags:
                taken = waiting.pop(0)
            given.append((option, taken))
        elif places and not word.startswith("-"):
            places -= 1
        elif word in ENTRIES:
            if entry is not None:
                yield entry, given
            entry, given = ENTRIES[word], []
            places = sum(option.is_positional for option in entry.options)
    if entry is not None:
        yield entry, given
