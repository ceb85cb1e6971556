"""Headings of docs/operations.md quote what is said: whoever searches the page for a message finds it there."""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterator

import pytest

from infra.spec.load import PROJECT

# Every module is parsed.
pytestmark = pytest.mark.slow

PAGE = (PROJECT / "docs" / "operations.md").read_text(encoding="utf-8")
QUOTED = [
    quoted
    for heading in re.findall(r"^## (.*)$", PAGE, re.MULTILINE)
    for quoted in re.findall(r"`([^`]+)`", heading)
    if not quoted.startswith("fab ")  # tests/cli/test_quoted_commands.py holds those
]
VALUE = "\0"  # stands in a text for what is filled in
ENOUGH = 3  # words that nobody says by chance
EDGES = " .,:;()'\""


def texts() -> Iterator[str]:
    """Every text of the code, of the playbooks and of the kernel's errors."""
    yield from map(os.strerror, range(1, 134))
    for path in sorted((PROJECT / "ansible").rglob("*.yml")):
        yield re.sub(r"\{\{.*?\}\}", VALUE, path.read_text(encoding="utf-8"), flags=re.DOTALL)
    for path in sorted((PROJECT / "infra").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.JoinedStr):
                parts = (p.value if isinstance(p, ast.Constant) else VALUE for p in node.values)
                yield "".join(map(str, parts))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield re.sub(r"\{[^{}]*\}", VALUE, node.value)  # of a format


@pytest.fixture(scope="module")
def said() -> dict[str, list[list[str]]]:
    """The words of all texts that have one, by word."""
    found: dict[str, list[list[str]]] = {}
    for words in {tuple(words_of(text)) for text in texts()}:
        for word in set(words):
            found.setdefault(word, []).append(list(words))
    return found


def words_of(text: str) -> list[str]:
    return [word for part in text.split() if (word := part.strip(EDGES))]


def is_said(wanted: list[str], said: dict[str, list[list[str]]]) -> bool:
    """Whether these words stand side by side in one text, most of them literally."""
    return any(stands_in(wanted, text) for word in wanted for text in said.get(word, ()))


def stands_in(wanted: list[str], text: list[str]) -> bool:
    """A value at the beginning or end of a text may have had several words."""
    before = [VALUE] * len(wanted) if text[0] == VALUE else []
    after = [VALUE] * len(wanted) if text[-1] == VALUE else []
    whole = before + text + after
    windows = (whole[at : at + len(wanted)] for at in range(len(whole) - len(wanted) + 1))
    return any(are_alike(wanted, window) for window in windows)


def are_alike(wanted: list[str], own: list[str]) -> bool:
    literal = sum(map(str.__eq__, wanted, own))
    if 2 * literal < len(wanted) and literal < ENOUGH:
        return False
    return all(
        mine == word or (VALUE in word and re.fullmatch(pattern(word), mine))
        for mine, word in zip(wanted, own, strict=True)
    )


def pattern(word: str) -> str:
    return ".*".join(map(re.escape, word.split(VALUE)))


def test_a_message_that_nobody_says_is_noticed(said: dict[str, list[list[str]]]) -> None:
    assert is_said(words_of("nobody would restart it"), said)
    assert not is_said(words_of("nobody would ever restart it"), said)
    assert not is_said(words_of("given up after"), {})


@pytest.mark.parametrize("quoted", QUOTED)
def test_a_heading_quotes_what_is_said(quoted: str, said: dict[str, list[list[str]]]) -> None:
    message = re.sub(r"^\S+/\d+: ", "", quoted)  # whose it is
    for fragment in message.split("…"):
        wanted = words_of(fragment)
        assert not wanted or is_said(wanted, said), fragment
