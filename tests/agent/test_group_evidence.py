"""What is kept of an epoch: the words of its own starts, also those of which journald no longer knows the start."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from infra.agent.group.evidence import Ended, keep
from infra.agent.group.units import Unit
from infra.agent.journal.starts import BEGINS
from tests.agent.stubborn_host import StubbornHost

A, B = "moe-s-engine@0.service", "moe-s-engine@1.service"
MAIN = 12  # the main process of what systemd calls the latest start, "a2"
Entry = Mapping[str, object]


@pytest.fixture
def kept(
    host: StubbornHost, stand_in: Callable[[str, str], None], tmp_path: Path
) -> Callable[..., list[str]]:
    """The lines that are kept when journald has these entries, oldest first."""

    def lines(entries: list[Entry], invocations: Mapping[str, str], end: str = "") -> list[str]:
        (tmp_path / "all").write_text("".join(json.dumps(one) + "\n" for one in entries))
        named = [
            one for one in entries if "_SYSTEMD_INVOCATION_ID" in one or "INVOCATION_ID" in one
        ]
        (tmp_path / "named").write_text("".join(json.dumps(one) + "\n" for one in named))
        # as journalctl: matches for starts alone find no entry that names none
        stand_in(
            "journalctl",
            f'case "$*" in *" _SYSTEMD_UNIT="*|*" -u "*) cat {tmp_path}/all;; *) cat {tmp_path}/named;; esac; {end}',
        )
        units = {
            unit: Unit("failed", "", 0, start and "a2", MAIN) for unit, start in invocations.items()
        }
        folder = keep(host, Ended("s", "decode/0", 4, "it ended", units, dict(invocations), []))
        return (Path(folder) / "journal.txt").read_text().splitlines()

    return lines


def said(unit: str, start: str | None, message: object, second: int = 0) -> Entry:
    """What a process of a unit wrote, or PID 1 about it."""
    entry = {"__REALTIME_TIMESTAMP": str(second * 10**6), "_SYSTEMD_UNIT": unit, "MESSAGE": message}
    return entry if start is None else {**entry, "_SYSTEMD_INVOCATION_ID": start}


def told(unit: str, start: str, message: str, second: int = 0) -> Entry:
    """What PID 1 wrote about a unit."""
    return {
        "__REALTIME_TIMESTAMP": str(second * 10**6), "_SYSTEMD_UNIT": "init.scope", "UNIT": unit,
        "_SYSTEMD_INVOCATION_ID": "pid1", "INVOCATION_ID": start, "MESSAGE": message,
        **({"MESSAGE_ID": BEGINS} if message.startswith("Starting") else {}),
    }  # fmt: skip


def test_words_of_a_process_that_ended_at_once_are_kept(kept: Callable[..., list[str]]) -> None:
    entries = [
        said(A, "a1", "of the epoch before"),
        said(A, None, "of the epoch before, without a start"),
        told(A, "a2", "Starting", 1),
        said(A, None, "error: no such device", 2),  # it had ended when journald asked
        told(A, "a2", "Failed", 3),
    ]
    assert kept(entries, {A: "a2"}) == [
        f"1970-01-01T00:00:01.000000Z {A}: Starting",
        f"1970-01-01T00:00:02.000000Z {A}: error: no such device",
        f"1970-01-01T00:00:03.000000Z {A}: Failed",
    ]


def test_first_words_of_the_latest_main_process_are_of_the_latest_start(
    kept: Callable[..., list[str]],
) -> None:
    """It spoke before systemd had said that it starts it."""
    entries = [
        told(A, "a1", "Failed", 1),
        {**said(A, None, "first words", 2), "_PID": str(MAIN)},
        told(A, "a2", "Starting", 3),
    ]
    assert kept(entries, {A: "a2"}) == [
        f"1970-01-01T00:00:02.000000Z {A}: first words",
        f"1970-01-01T00:00:03.000000Z {A}: Starting",
    ]


def test_each_unit_has_its_own_start(kept: Callable[..., list[str]]) -> None:
    entries = [
        told(A, "a2", "Starting"),
        said(B, None, "of B's epoch before"),
        told(B, "b2", "Starting"),
        said(B, None, "from B"),
        said(A, None, "from A"),
        told(B, "b3", "Starting again"),
        said(B, None, "of a start after it"),
    ]
    lines = [line.partition(" ")[2] for line in kept(entries, {A: "a2", B: "b2"})]
    assert lines == [f"{A}: Starting", f"{B}: Starting", f"{B}: from B", f"{A}: from A"]


def test_a_start_that_is_not_known_leaves_nothing_out(kept: Callable[..., list[str]]) -> None:
    entries = [
        said(A, "a1", "one"),
        said(A, None, "two"),
        said(B, "b1", "before"),
        said(B, "b2", "x"),
    ]
    lines = [line.partition(" ")[2] for line in kept(entries, {A: "", B: "b2"})]
    assert lines == [f"{A}: one", f"{A}: two", f"{B}: x"]


def test_text_that_is_none_and_lines_of_one_entry_are_kept(kept: Callable[..., list[str]]) -> None:
    entries = [
        said(A, "a", [104, 105, 255]),
        said(A, "a", "Traceback:\n  File x"),
        said(A, "a", None),
    ]
    first, *rest = kept(entries, {A: "a"})
    assert first.endswith(f"{A}: hi�")
    assert rest[0].endswith(f"{A}: Traceback:")
    assert rest[1] == "      File x"
    assert rest[2].endswith(f"{A}: (no message)")


def test_a_journal_that_cannot_be_read_is_said(kept: Callable[..., list[str]]) -> None:
    assert kept([], {A: "a"}, "echo no journal files were found >&2; exit 1") == [
        "(journalctl: no journal files were found)"
    ]
    assert kept([], {A: "a"}) == ["(nothing was written)"]
