"""Inputs made wrong: structure-aware mutations of documents and texts, and noise. The same seed, the same inputs."""

from __future__ import annotations

import copy
import itertools
import json
import random
import re
from collections.abc import Callable
from typing import Any

import yaml

Tree = Any  # a document of maps, lists and scalars

# What stands in for a value: other types, extremes, texts that terminals, shells, YAML and unit files obey.
VALUES: tuple[Tree, ...] = (
    None, True, False, 0, -1, 1, 2**31, 10**9, 10**18, -(10**17), 0.0, -0.5, 1e308, float("inf"), float("nan"),
    "", " ", "0", "-1", "true", "null", "~", "1e999", "0x7f", "1:30:00", "2026-13-45", "9" * 5_000,
    "a" * 5_000, "\x1b[2J\x1b]0;x\x07", "\r\n", "\n\nX=1\n", "a\tb", "\x00", "\ufeff", "\u202e\u200b", "\ud800",
    "é" * 300,
    "$(id)", "`id`", "${A:-${A:-x}}", "$((1/0))", "$((9**9**9))", "'", '"', "\\", "%n%s%h", "{{ x }}", "{1..99999999}",
    "$(seq 1 999999999)", "../../etc/passwd", "/", "/etc/shadow", "-v/:/host", "--", "a=b", "[1:999999999]",
    "host[a:z]",
    "192.0.2.1\n", "::1", "127.0.0.1:99999", "http://u:p@example.com:x/", "sha256:" + "0" * 64, [], {}, [[]], [None],
    ["x"] * 300, {"a": {"a": {"a": {}}}}, {"": ""}, {"<<": 1},
)  # fmt: skip
NUMBERS = (
    *(value for value in VALUES if type(value) in (int, float)),
    7,
    65_536,
    99_999,
    "1e5k",
    "9" * 400,
)
MAX_PLACES = 4_000
_NUMBER = re.compile(rb"\b[0-9]+\b")
NOISE = (
    b"\x00", b"\xff\xfe", b"\xef\xbb\xbf", b"\r", b"\x1b[31m", b"\xed\xa0\x80", b"&a *a", b"<<: *a",
    b"!!python/object:x ",
    b"---\n", b"...\n", b"{", b"[", b"'", b'"', b"\\\n", b"<<EOF\n", b"$(", b"${", b"((", b"`", b"| ", b"&& ", b"; ",
    b"done\n",
    b"if true; then\n", b"for i in 1 2 3; do\n", b"f() { f; }; f\n", b"A=$A$A\n", b"* " * 50, b"\t", b"=", b"--", b"%",
)  # fmt: skip


def nested(depth: int, kind: random.Random) -> Tree:
    """A value that lies deep."""
    value: Tree = "x"
    for _ in range(depth):
        value = [value] if kind.random() < 0.5 else {"a": value}
    return value


def mutate_tree(tree: Tree, rng: random.Random) -> Tree:
    """A few changes somewhere in a document; most keep a value's type, and so come further."""
    tree = json.loads(json.dumps(tree, default=str))
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        places = list(itertools.islice(_places(tree), MAX_PLACES))
        if not places:
            return copy.deepcopy(rng.choice(VALUES))
        holder, key = rng.choice(places)
        change = rng.randrange(-7, 7)
        if change < 0:
            alike = [value for value in VALUES if type(value) is type(holder[key])]
            holder[key] = copy.deepcopy(rng.choice(alike or VALUES))
        elif change < 3:
            holder[key] = copy.deepcopy(rng.choice(VALUES))
        elif change == 3:
            holder[key] = nested(rng.choice((3, 30, 80, 400)), rng)
        elif change == 4 and isinstance(holder, dict):
            holder[str(rng.choice(VALUES))] = holder.pop(key)
        elif change == 5 and isinstance(holder, list):
            holder.extend([holder[key]] * rng.choice((1, 5, 200)))
        else:
            other, at = rng.choice(places)
            holder[key] = json.loads(
                json.dumps(other[at] if _has(other, at) else None, default=str)
            )
    return tree


def mutate_text(data: bytes, rng: random.Random) -> bytes:
    """A few changes somewhere in a text."""
    for _ in range(rng.choice((1, 1, 2, 6))):
        at = rng.randrange(len(data) + 1)
        end = min(len(data), at + rng.choice((0, 1, 3, 20, 200)))
        change = rng.randrange(-4, 6)
        numbers = list(_NUMBER.finditer(data)) if change < 0 else []
        if numbers:
            at, end = rng.choice(numbers).span()
            piece = str(rng.choice(NUMBERS)).encode()
        elif change <= 0:
            piece = rng.choice(NOISE) * rng.choice((1, 1, 1, 30, 2_000))
        elif change == 1:
            piece = str(rng.choice(VALUES)).encode("utf-8", "surrogatepass")
        elif change == 2:
            piece = data[at:end] * rng.choice((2, 50))
        elif change == 3:
            piece = bytes(rng.randrange(256) for _ in range(rng.randint(1, 12)))
        elif change == 4:
            return data[:at]
        else:
            other = rng.randrange(len(data) + 1)
            piece = data[other : other + rng.choice((10, 200))]
        data = data[:at] + piece + data[end:]
    return data


def as_yaml(tree: Tree, rng: random.Random) -> bytes:
    """A document as YAML of one style or another."""
    text: str = yaml.safe_dump(
        tree, default_flow_style=rng.choice((None, True, False)), allow_unicode=True, width=10**6
    )
    return text.encode("utf-8", "surrogatepass")


def as_json(tree: Tree, rng: random.Random) -> bytes:
    """A document as JSON."""
    return json.dumps(tree, ensure_ascii=rng.random() < 0.7).encode("utf-8", "surrogatepass")


def mutated(
    seed: bytes, rng: random.Random, write: Callable[[Tree, random.Random], bytes] | None
) -> bytes:
    """One input from a good one.

    Args:
        seed: the good one.
        rng: of this input.
        write: writes a changed document; None where the input is no document.
    """
    if write is None or rng.random() < 0.3:
        return mutate_text(seed, rng)
    try:
        data = write(mutate_tree(yaml.safe_load(seed), rng), rng)
    except (yaml.YAMLError, ValueError, RecursionError):
        return mutate_text(seed, rng)
    return mutate_text(data, rng) if rng.random() < 0.1 else data


def _has(holder: Tree, key: Any) -> bool:
    return key in holder if isinstance(holder, dict) else key < len(holder)


def _places(tree: Tree) -> Any:
    """Every (holder, key) of a document."""
    waiting = [tree]
    while waiting:
        holder = waiting.pop()
        keys = (
            list(holder)
            if isinstance(holder, dict)
            else range(len(holder))
            if isinstance(holder, list)
            else ()
        )
        for key in keys:
            yield holder, key
            waiting.append(holder[key])
