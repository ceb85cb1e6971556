"""Clients' keys as an operator writes them, and what of them a host gets: digests and names."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import NamedTuple

from infra.errors import StackError

# The secret of a stack that holds them.
EDGE_KEYS = "edge_keys"
FIELD = "edge.keys"
# 32 letters of hexadecimal digits are 128 bits: nobody finds such a key by its digest.
SHORTEST, LONGEST = 32, 512
MAX_KEYS = 10_000
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_KEY = re.compile(r"[!-~]+")
_FIX = "Write a line `NAME KEY` for each client, with a key of `openssl rand -hex 32`."


class ClientKey(NamedTuple):
    """A client's key, and the name that the access log has for it."""

    name: str
    key: str

    def __repr__(self) -> str:
        """Never the key."""
        return f"ClientKey({self.name!r}, ***)"


def parse_keys(text: str) -> tuple[ClientKey, ...]:
    """The keys of a file: a line for each, with name and key; `#` begins a line that says nothing.

    Raises:
        StackError: a line is no such pair, a name or a key stands there twice, or there is none. No key is shown.
    """
    found: dict[str, ClientKey] = {}
    lines: dict[str, int] = {}
    for number, line in enumerate(text.split("\n"), start=1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        why = _why_not(words)
        if not why and (twice := lines.get(words[0]) or lines.get(f" {words[1]}")):
            why = f"has the name or the key of line {twice}"
        if why:
            raise StackError(FIELD, f"Line {number} of the clients' keys {why}.", _FIX)
        lines.update({words[0]: number, f" {words[1]}": number})
        found[words[0]] = ClientKey(words[0], words[1])
    if not found:
        raise StackError(FIELD, "There is no line with a client's key.", _FIX)
    if len(found) > MAX_KEYS:
        raise StackError(FIELD, f"It holds {len(found)} keys; at most {MAX_KEYS} are taken.", _FIX)
    return tuple(found.values())


def digest_map(keys: tuple[ClientKey, ...]) -> str:
    """What lies on a host: the SHA-256 digest of each key and its name, by name."""
    rows = (f"{hashlib.sha256(key.encode()).hexdigest()} {name}" for name, key in sorted(keys))
    return "\n".join(rows) + "\n"


def as_hosts_get_them(values: Mapping[str, str]) -> dict[str, str]:
    """Secrets by name as they leave the operator's machine: of clients' keys nothing but digests and names.

    Raises:
        StackError: the clients' keys are none.
    """
    keys = values.get(EDGE_KEYS)
    own = {} if keys is None else {EDGE_KEYS: digest_map(parse_keys(keys))}
    return {**values, **own}


def _why_not(words: list[str]) -> str:
    """What is wrong with a line, as the end of a sentence, "" for nothing."""
    if len(words) != len(ClientKey._fields):
        return f"is of {_counted(len(words))}, and not a name, a space and a key"
    name, key = words
    if not _NAME.fullmatch(name):
        return "has a name of other characters than letters, digits, `.`, `_` and `-`, or of more than 64"
    if not _KEY.fullmatch(key) or not SHORTEST <= len(key) <= LONGEST:
        return f"has a key of {len(key)} characters for {name}: {SHORTEST} to {LONGEST} plain ones are needed"
    return ""


def _counted(num_words: int) -> str:
    return "one word" if num_words == 1 else f"{num_words} words"
