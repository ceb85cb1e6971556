"""The recorded verdicts: one file for each release, one line for each command, the same bytes for the same answers."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from infra.packages.verdicts.asking import Verdict
from infra.packages.verdicts.questions import Question
from infra.spec.load import PROJECT

RECORDS = PROJECT / "tests" / "cases" / "verdicts"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One recorded verdict.

    Args:
        change: the damage in words; empty for a command as it is shipped.
        digest: of the command that was asked about; another command has another verdict.
    """

    stack: str
    process: str
    change: str
    digest: str
    verdict: Verdict

    @property
    def key(self) -> tuple[str, str, str]:
        """What names it among the rows of one release."""
        return (self.stack, self.process, self.change)


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """What one release said.

    Args:
        release: package and version.
        wheels: file name → SHA-256 of what answered.
        rows: shipped commands and damaged ones, by stack, process and change.
    """

    release: str
    wheels: Mapping[str, str]
    rows: tuple[Row, ...]

    @property
    def shipped(self) -> tuple[Row, ...]:
        """Commands as stacks render them."""
        return tuple(row for row in self.rows if not row.change)

    @property
    def broken(self) -> tuple[Row, ...]:
        """Damaged commands."""
        return tuple(row for row in self.rows if row.change)


def record_of(
    release: str,
    wheels: Mapping[str, str],
    questions: Iterable[Question],
    verdicts: Mapping[str, Verdict],
) -> Record:
    """The record of one run."""
    rows = {
        question.key: Row(
            stack=question.stack,
            process=question.process,
            change=question.change,
            digest=question.digest,
            verdict=verdicts[question.digest],
        )
        for question in questions
    }
    ordered = tuple(rows[key] for key in sorted(rows))
    return Record(release=release, wheels=dict(sorted(wheels.items())), rows=ordered)


def record_text(record: Record) -> str:
    """The file's text."""
    lines = [
        json.dumps(
            [
                row.stack,
                row.process,
                row.change,
                row.digest,
                row.verdict.level,
                row.verdict.says,
            ],
            ensure_ascii=False,
        )
        for row in record.rows
    ]
    wheels = json.dumps(record.wheels)
    head = f'{{"release": {json.dumps(record.release)},\n"wheels": {wheels},\n"rows": [\n'
    return head + ",\n".join(lines) + "\n]}\n"


def with_broken_of(old: Record, new: Record) -> Record:
    """A record of shipped commands with the damaged ones of another."""
    rows = sorted((*new.shipped, *old.broken), key=lambda row: row.key)
    return replace(new, rows=tuple(rows))


def read_record(path: Path) -> Record:
    """One record.

    Raises:
        OSError: there is no such file.
    """
    document = json.loads(path.read_text(encoding="utf-8"))
    rows = tuple(
        Row(
            stack=stack,
            process=process,
            change=change,
            digest=digest,
            verdict=Verdict(level=level, says=says),
        )
        for stack, process, change, digest, level, says in document["rows"]
    )
    return Record(release=document["release"], wheels=document["wheels"], rows=rows)
