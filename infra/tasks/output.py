"""What a task says: data on standard output, everything else on standard error."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TextIO

from infra.errors import InfraError, Problem, ProblemsFound
from infra.remote.failures import HostFailure, SeveralHostsFailed
from infra.tasks.completion import Completion
from infra.visible import visible, visible_json

SCHEMA_VERSION = 1
# To the upper left corner, and everything below it away.
CLEAR = "\033[H\033[J"
Tone = Literal["good", "bad", "warn", "dim", "bold"]
_CODES: Mapping[Tone, str] = {"good": "32", "bad": "31", "warn": "33", "dim": "2", "bold": "1"}


class AsWritten(str):
    """What a program on a host has written: shown as it stands, since a command in it is nobody's advice."""

    __slots__ = ()


class _Shaped(str):
    """A text with commands to the terminal that are ours; all else in it is visible."""

    __slots__ = ()


class _Table(str):
    """Rows in columns; what is said of their cells is said before they are aligned."""

    __slots__ = ("rows",)
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """Where a task's words go; what they quote of hosts, files and people commands no terminal.

    Args:
        wants_json: one document on standard output, and nothing else there.
        has_colour: whether a person reads it on a terminal that shows colour.
        complete: makes the commands in a text such that they can be typed as they stand; every word goes through it but
            those of hosts (`AsWritten`).
    """

    wants_json: bool
    has_colour: bool
    complete: Completion
    stdout: TextIO
    stderr: TextIO

    def data(self, text: str) -> None:
        """Lines for people who asked for data; with `--json` they are left out."""
        if not self.wants_json:
            print(self._shown(text), file=self.stdout, flush=True)

    def redrawn(self, text: str) -> None:
        """Data in the place of all that a terminal shows; elsewhere behind it."""
        start = CLEAR if self.stdout.isatty() else ""
        self.data(_Shaped(start + self._shown(text)))

    def document(self, document: Mapping[str, object]) -> None:
        """The task's one JSON document; printed only with `--json`."""
        if self.wants_json:
            plain = not (self.stdout.encoding or "utf-8").lower().startswith("utf")
            whole = _completed(document, self.complete)
            text = visible_json(json.dumps(whole, ensure_ascii=plain))
            print(text, file=self.stdout, flush=True)

    def message(self, text: str) -> None:
        """A line about the work: progress, a warning, a failure."""
        print(self._shown(text), file=self.stderr, flush=True)

    def next_command(self, text: str) -> None:
        """The last line for a person: what to type next."""
        if not self.wants_json:
            self.message(self.toned(f"Next: {text}", "dim"))

    def failure(self, error: InfraError) -> None:
        """One failure as a message and, with `--json`, as the document of failures."""
        self.message(self.toned(str(error), "bad"))
        self.document(failure_document(error))

    def failed_hosts(self, failures: Sequence[HostFailure], num_hosts: int) -> None:
        """Some of a command's hosts, after what became of the others: a table of why."""
        self.message(self.toned(str(SeveralHostsFailed(failures, num_hosts)), "bad"))

    def toned(self, text: str, tone: Tone) -> str:
        """The text in a colour where a terminal shows it."""
        if not (self.has_colour and text):
            return text
        return _Shaped(f"\033[{_CODES[tone]}m{self._shown(text)}\033[0m")

    def _shown(self, text: str) -> str:
        """A text as it is printed: with commands that can be typed, and nothing in it that a terminal obeys."""
        if isinstance(text, _Shaped):
            return text
        if isinstance(text, _Table):
            text = _aligned([[self._said(cell) for cell in row] for row in text.rows])
            return visible(text)
        return visible(text if isinstance(text, AsWritten) else self._said(text))

    def _said(self, text: str) -> str:
        return self.complete.named(self.complete(text))


def failure_document(error: InfraError) -> dict[str, object]:
    """The document of a failure that came before a task's own document."""
    return {
        "schema_version": SCHEMA_VERSION,
        "ok": False,
        "exit_code": error.exit_code,
        "errors": [{"where": e.where, "what": e.what, "fix": e.fix} for e in _each(error)],
    }


def with_failures(
    document: Mapping[str, object], failures: Sequence[HostFailure]
) -> Mapping[str, object]:
    """A task's document of the hosts that could be asked, with `errors` where others could not."""
    if not failures:
        return document
    several = SeveralHostsFailed(failures, len(failures))
    return {**document, "ok": False, "errors": failure_document(several)["errors"]}


def table(rows: Sequence[Sequence[str]]) -> str:
    """Rows in aligned columns, the first row being the head; the last column is left ragged."""
    text = _Table(_aligned(rows))
    text.rows = rows
    return text


def _aligned(rows: Sequence[Sequence[str]]) -> str:
    if not rows:
        return ""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]) - 1)]
    return "\n".join(
        "  ".join(
            [*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[-1]]
        ).rstrip()
        for row in rows
    )


def _completed(value: object, complete: Completion) -> object:
    """A value of a document with every text in it completed that is not a host's own."""
    if isinstance(value, AsWritten):
        return value
    if isinstance(value, str):
        return complete(value)
    if isinstance(value, Mapping):
        return {key: _completed(each, complete) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_completed(each, complete) for each in value]
    return value


def _each(error: InfraError) -> Sequence[Problem | InfraError]:
    """The failure itself, or every problem of a list of problems."""
    return error.problems if isinstance(error, ProblemsFound) else error.each()
