"""What a shell script consists of: commands, groups, conditions, loops, functions."""

from __future__ import annotations

from dataclasses import dataclass

from infra.plan.foreign.shell_words import RawWord


@dataclass(frozen=True, slots=True)
class Assignment:
    """`name=word`, `name+=word`, or `name=(words)`."""

    name: str
    appends: bool
    value: RawWord | None
    items: tuple[RawWord, ...] | None
    line: int


@dataclass(frozen=True, slots=True)
class Command:
    """A simple command. `heredoc` is the line of a here document that it reads, None for none."""

    assignments: tuple[Assignment, ...]
    words: tuple[RawWord, ...]
    line: int
    heredoc: int | None = None


@dataclass(frozen=True, slots=True)
class Block:
    """`{ … }`, or `( … )`, which keeps to itself what it sets."""

    body: Statements
    is_subshell: bool = False


@dataclass(frozen=True, slots=True)
class Branches:
    """`if`: (condition, body) pairs; the last condition is empty for `else`."""

    arms: tuple[tuple[Statements, Statements], ...]
    line: int


@dataclass(frozen=True, slots=True)
class Choice:
    """`case`: (patterns, body) pairs."""

    subject: RawWord
    arms: tuple[tuple[tuple[RawWord, ...], Statements], ...]
    line: int


@dataclass(frozen=True, slots=True)
class Loop:
    """`for name in words`, or `for ((…))` with `counter` as written."""

    name: str
    words: tuple[RawWord, ...]
    counter: str | None
    body: Statements
    line: int


@dataclass(frozen=True, slots=True)
class While:
    """`while` or `until`: how often it runs only a shell could say."""

    line: int


@dataclass(frozen=True, slots=True)
class Function:
    """A function's definition."""

    name: str
    body: Node
    line: int


Node = Command | Block | Branches | Choice | Loop | While | Function


@dataclass(frozen=True, slots=True)
class Statement:
    """Nodes joined by `&&`, `||`, `|`: (operator before it, node), the first operator being empty."""

    chain: tuple[tuple[str, Node], ...]
    in_background: bool
    line: int


Statements = tuple[Statement, ...]
