"""Every `fab …` that the product can print or that a document shows, as words for the command line's own parser."""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

from infra.tasks.command_words import ENTRIES
from infra.tasks.options import Option
from infra.tasks.table import Entry

# What a value is put into when the product runs: a field of an f-string, `{}` and `%s`.
HOLE = "\0"
_FIELDS = re.compile(r"\{\w*\}|%s")
# In prose a command stands in backticks; what follows as `with --option` belongs to it.
_QUOTED = re.compile(
    r"`(?P<words>fab\s[^`]*)`"
    r"(?:[\s\w]{0,25},?[ \n]with\s(?P<more>--(?:allow|force)\s[\w.-]+|--[\w-]+))?"
)
# Elsewhere it is the whole text, or its end; a comment is set off by three spaces.
_BARE = re.compile(r"(?:^|: )(?P<words>fab\s(?:(?!: |   ).)*)(?:   .*|: .*)?$", re.DOTALL)
_NEXT = re.compile(r"(?:, then|;|&&|\|) (?=fab )")
_BLOCK = re.compile(r"^```.*?^```$|(?:^ {4}.*\n)+", re.MULTILINE | re.DOTALL)
_LINE = re.compile(r"^ *(?:\$ )?(?P<words>fab .*?)(?: +#.*)?$", re.MULTILINE)
_WORD = re.compile(r"(?<![\w./$-])fab\s+(?=[\w\0-])")
_PLACEHOLDER = re.compile(r"[A-Z]+|<\w+>|\0")
_SHELL = {"|", ">", "&&", ";"}
# Of Fabric's own options, those that take a value; they stand before the task.
_OF_FABRIC = {"-H": "hosts", "-i": "identity", "-S": "ssh-config", "--help": "task"}


@dataclass(frozen=True, slots=True)
class Quoted:
    """A command as it stands somewhere.

    Args:
        where: file and line.
        text: from `fab` on; `HOLE` stands for what is filled in when it is printed.
    """

    where: str
    text: str


def commands_of_code(source: str, where: str) -> Iterator[Quoted]:
    """The commands in a module's texts, but for its docstrings."""
    for line, text in _texts(ast.parse(source)):
        for words in (*_quoted(text), *_bare(text)):
            yield Quoted(f"{where}:{line}", words)


def unmarked_in_code(source: str, where: str) -> Iterator[Quoted]:
    """What reads like a command in a module's texts, and is neither in backticks nor the end of its text."""
    for line, text in _texts(ast.parse(source)):
        rest = re.sub(r"`[^`]*`", "", text)
        bare = _BARE.search(rest)
        for match in _WORD.finditer(rest[: bare.start("words")] if bare else rest):
            yield Quoted(f"{where}:{line}", rest[match.start() :])


def commands_of_document(text: str, where: str) -> Iterator[Quoted]:
    """The commands in a document's code: between backticks, and lines of blocks."""
    for block in _BLOCK.finditer(text):
        for match in _LINE.finditer(block[0]):
            line = text.count("\n", 0, block.start() + match.start("words")) + 1
            for words in _NEXT.split(match["words"]):
                yield Quoted(f"{where}:{line}", words)
    prose = _BLOCK.sub(lambda block: "\n" * block[0].count("\n"), text)
    for match in _QUOTED.finditer(prose):
        line = prose.count("\n", 0, match.start()) + 1
        yield Quoted(f"{where}:{line}", _with_more(match))


def command_line(text: str) -> list[str]:
    """The words of a command behind `fab`, with something plausible in every place that is left open."""
    filled: list[str] = []
    entry: Entry | None = None
    open_places: list[Option | str] = []
    for word in _shell_words(text)[1:]:
        is_flag = word.startswith("-")
        if open_places and not is_flag:
            filled.append(_value(word, open_places.pop(0)))
        elif entry is None and not is_flag:
            entry = ENTRIES.get("status" if word == HOLE else word)
            filled.append(entry.name if entry else word)
            open_places = [one for one in entry.options if one.is_positional] if entry else []
        elif set(word) == {HOLE}:  # the choice of a stack, as it was typed
            filled += ["--stack", "NAME"] if _lacks_stack(entry, filled) else []
        else:
            filled.append(word.replace(HOLE, "x"))
            open_places = [*_values_of(word, entry), *open_places]
    return filled + [_value(HOLE, place) for place in open_places if "--help" not in filled[1:]]


def _texts(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Every text that a module makes and its line, with `HOLE` for what it puts in; no docstrings."""
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        found = _alternatives(node)
        if found is not None:
            yield from ((getattr(node, "lineno", 0), text) for text in found)
            waiting += _put_in(node)
            continue
        waiting += [child for child in ast.iter_child_nodes(node) if not _is_docstring(child)]


def _alternatives(node: ast.AST) -> list[str] | None:
    """What a text can be, None where the node is none."""
    if isinstance(node, ast.Constant):
        return [_FIELDS.sub(HOLE, node.value)] if isinstance(node.value, str) else None
    if isinstance(node, ast.JoinedStr):
        parts = [_field(part) for part in node.values]
        return ["".join(texts) for texts in product(*parts)]
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        sides = [_alternatives(side) for side in (node.left, node.right)]
        if any(side is not None for side in sides):
            return ["".join(texts) for texts in product(*(side or [HOLE] for side in sides))]
    return None


def _field(part: ast.expr) -> list[str]:
    """What one part of an f-string can be; a choice between two texts is both."""
    if isinstance(part, ast.Constant):
        return [str(part.value)]
    value = part.value if isinstance(part, ast.FormattedValue) else part
    if isinstance(value, ast.IfExp):
        sides = [_alternatives(value.body), _alternatives(value.orelse)]
        return [text for side in sides for text in side or [HOLE]]
    return [HOLE]


def _put_in(node: ast.AST) -> list[ast.AST]:
    """What an f-string or a sum of texts puts in: there may be texts inside."""
    if isinstance(node, ast.JoinedStr):
        return [part.value for part in node.values if isinstance(part, ast.FormattedValue)]
    if isinstance(node, ast.BinOp):
        sides = (node.left, node.right)
        return [one for side in sides for one in (_put_in(side) if _is_text(side) else [side])]
    return []


def _is_text(node: ast.AST) -> bool:
    return _alternatives(node) is not None


def _is_docstring(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _quoted(text: str) -> list[str]:
    return [_with_more(match) for match in _QUOTED.finditer(text)]


def _with_more(match: re.Match[str]) -> str:
    return " ".join(f"{match['words']} {match['more'] or ''}".split())


def _bare(text: str) -> list[str]:
    match = _BARE.search(re.sub(r"`[^`]*`", "", text))
    found = _NEXT.split(match["words"]) if match else []
    return [words for words in found if words.strip() != "fab"]


def _shell_words(text: str) -> list[str]:
    """The words up to where another program begins; brackets around what may be left out are dropped."""
    words = shlex.split(re.sub(r"[\[\]]", "", text))
    ends = [place for place, word in enumerate(words) if word in _SHELL]
    return [word for word in words[: ends[0] if ends else None] if word != "…"]


def _values_of(word: str, entry: Entry | None) -> list[Option | str]:
    """What must follow an option."""
    name, equals, _ = word.partition("=")
    if entry is None:
        return [_OF_FABRIC[name]] if name in _OF_FABRIC and not equals else []
    option = next((one for one in entry.options if f"--{one.name}" == name), None)
    if option is None or option.kind == "switch" or equals:
        return []
    return [option] * (2 if option.kind == "pair" else 1)


def _value(word: str, place: Option | str) -> str:
    """What is typed there: the word, or one of the values where it only says that there is one."""
    if not _PLACEHOLDER.fullmatch(word):
        return word.replace(HOLE, "x")
    if isinstance(place, str):
        return "status" if place == "task" else "x"
    if place.choices:
        return place.choices[0]
    return {"force": "lease"}.get(place.name, "7" if place.kind == "number" else "x")


def _lacks_stack(entry: Entry | None, filled: Sequence[str]) -> bool:
    takes = entry is not None and any(option.name == "stack" for option in entry.options)
    return takes and not {"--stack", "--file"} & set(filled)
