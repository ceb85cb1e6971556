"""Host patterns of an Ansible inventory: ranges of names, and a port behind them."""

from __future__ import annotations

import re
import string
from collections.abc import Iterator

from infra.spec.bounded import is_whole_number

MAX_HOSTS = 20_000
_RANGE = re.compile(
    r"\[(?P<first>[0-9]{0,9}|[A-Za-z]):(?P<last>[0-9]{1,9}|[A-Za-z])(:(?P<step>[0-9]{1,9}))?\]"
)
_LETTERS = string.ascii_letters  # the order in which Ansible counts letters: a to z, then A to Z


def expand_range(pattern: str) -> Iterator[str]:
    """`rack[01:03]` → rack01, rack02, rack03, as Ansible expands it; letters too.

    What is no range of Ansible's (`[3:]`, `[a:3]`) is left as it stands.
    """
    match = _RANGE.search(pattern)
    middle = _members(match) if match else None
    if match is None or middle is None:
        yield pattern
        return
    head, tail = pattern[: match.start()], pattern[match.end() :]
    for part in middle:
        yield from expand_range(f"{head}{part}{tail}")


def split_port(pattern: str) -> tuple[str, int | None]:
    """`d[0:3]:2222` as (`d[0:3]`, 2222); an IPv6 address has no port behind it."""
    head, _, tail = pattern.rpartition(":")
    if is_whole_number(tail) and ":" not in _RANGE.sub("", head) and "[" not in tail:
        return (head, int(tail)) if head else (pattern, None)
    return pattern, None


def _members(match: re.Match[str]) -> list[str] | None:
    """What a range counts through; None when its ends do not belong together."""
    first, last, step = match["first"] or "0", match["last"], max(int(match["step"] or 1), 1)
    if first.isdecimal() != last.isdecimal():
        return None
    if first.isdecimal():
        if first[0] == "0" and 1 < len(first) != len(last):
            return None
        numbers = range(int(first), min(int(last), int(first) + step * MAX_HOSTS) + 1, step)
        return [str(n).zfill(len(first)) for n in numbers]
    return list(_LETTERS[_LETTERS.index(first) : _LETTERS.index(last) + 1 : step])
