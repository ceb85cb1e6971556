"""Foreign YAML: bounded, every document of a file, with the line of each value and of each line of a block of text."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from infra.plan.foreign.source import CONTINUED, NotUnderstood, Word, refused
from infra.spec.work import CHARACTERS_PER_STEP, Work
from infra.spec.yaml_source import Document, Path, read_yaml

MAX_DOCUMENTS = 64
_SEPARATOR = re.compile(r"---(\s|$)")
_BLOCK = re.compile(r"(?:^|[:\-]\s+|\s)(?:&\S+\s+)?([|>])[+-]?\d?[+-]?\s*(?:#.*)?$")


@dataclass(frozen=True, slots=True)
class Node:
    """A value of a document and where it stands; what is not there has no value."""

    page: Page
    path: Path
    value: object

    def get(self, *keys: str | int) -> Node:
        """The value under keys; one without a value where any of them is missing."""
        value: object = self.value
        for key in keys:
            if isinstance(value, Mapping):
                value = value.get(str(key))
            elif isinstance(value, list) and isinstance(key, int) and -1 < key < len(value):
                value = value[key]
            else:
                value = None
        return Node(self.page, (*self.path, *keys), value)

    @property
    def is_there(self) -> bool:
        """Whether it has a value."""
        return self.value is not None

    @property
    def line(self) -> int:
        """Its line, or that of the nearest value around it."""
        path = self.path
        while path not in self.page.document.positions and path:
            path = path[:-1]
        return self.page.document.positions.get(path, (1, 1))[0]

    def items(self) -> Iterator[tuple[str, Node]]:
        """Keys of a map, or indices of a list, with their values."""
        if isinstance(self.value, Mapping):
            for key in self.value:
                yield str(key), self.get(str(key))
        elif isinstance(self.value, list):
            for index in range(len(self.value)):
                yield str(index), self.get(index)

    def nodes(self) -> list[Node]:
        """The values of a list or map."""
        return [node for _, node in self.items()]

    def text(self, default: str = "") -> str:
        """The value as text."""
        return (
            default
            if self.value is None or isinstance(self.value, dict | list)
            else str(self.value)
        )

    def spend(self, times: int = 1) -> None:
        """Take the steps of reading the value and all that lies in it, `times` over.

        Raises:
            TooMuchWorkError: they are more than the file has left.
        """
        self.page.work.spend(times * _weight(self.value), self.line)

    def number(self, default: int = 0) -> int:
        """The value as a whole number; `default` for anything else."""
        text = self.text()
        return int(text) if re.fullmatch(r"-?\d{1,9}", text) else default

    def word(self) -> Word:
        """The value as a word with its line."""
        return Word(self.text(), self.line)

    def script(self) -> Word:
        """A text of several lines with the line of each: a folded one is one line to a shell."""
        rows = self.page.rows
        head = rows[self.line - 1] if self.line <= len(rows) else ""
        style = _BLOCK.search(head)
        if style is None:
            return self.word()
        indent = len(head) - len(head.lstrip())
        body: list[str] = []
        for row in rows[self.line :]:
            if row.strip() and len(row) - len(row.lstrip()) <= indent:
                break
            self.page.work.spend_text(len(row), self.line)
            body.append(row)
        if style[1] == ">":
            text = "".join(f"{row.strip()} {CONTINUED}" if row.strip() else "\n" for row in body)
        else:
            margin = min((len(r) - len(r.lstrip()) for r in body if r.strip()), default=0)
            text = "\n".join(row[margin:] for row in body)
        return Word(text, self.line + 1)


@dataclass(frozen=True, slots=True)
class Page:
    """One document of a file; `rows` are the lines of the whole file, `work` is the budget of the whole file."""

    document: Document
    rows: tuple[str, ...]
    work: Work

    @property
    def root(self) -> Node:
        """The document's top."""
        return Node(self, (), self.document.data)


def read_pages(text: str, file: str, work: Work) -> tuple[list[Page], list[NotUnderstood]]:
    """Every document of a YAML file, and what of it is written twice.

    Raises:
        ProblemsFound: it is no YAML, expands beyond what a recipe needs, or has too many documents.
    """
    rows = tuple(text.split("\n"))
    starts = [0, *(i for i, row in enumerate(rows) if _SEPARATOR.match(row))]
    if len(starts) > MAX_DOCUMENTS:
        raise refused(file, f"It has more than {MAX_DOCUMENTS} documents.", "Give a part of it.")
    pages: list[Page] = []
    notes: list[NotUnderstood] = []
    for begin, end in zip(starts, [*starts[1:], len(rows)], strict=True):
        part = [
            re.sub(r"^---", "", row) if i == 0 else row for i, row in enumerate(rows[begin:end])
        ]
        if not any(row.strip() and not row.lstrip().startswith("#") for row in part):
            continue
        document, problems = read_yaml("\n" * begin + "\n".join(part), file, merges=True)
        if document.data is None:
            problem = problems[0]
            raise refused(
                file, problem.what, "Give plain YAML: templates are rendered first.", problem.line
            )
        notes += [NotUnderstood(p.line or 1, p.field, p.what) for p in problems]
        pages.append(Page(document, rows, work))
    return pages, notes


def _weight(value: object) -> int:
    """How many steps a part of a document takes: its values, and their text."""
    if isinstance(value, Mapping):
        return 1 + sum(map(_weight, value.values()))
    if isinstance(value, list):
        return 1 + sum(map(_weight, value))
    return 1 + len(str(value)) // CHARACTERS_PER_STEP
