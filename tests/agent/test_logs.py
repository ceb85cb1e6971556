"""The streamed operation `logs`: units of the record, tails, cursors, patterns, and what is refused."""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from infra.agent.host import Refused
from infra.agent.journal.lines import Parser
from infra.agent.journal.operation import stream
from tests.agent.stubborn_host import StubbornHost

RECORD = "/etc/moe-infra/s/release.json"
UNITS = {"a/0": "moe-s-engine@0.service", "a/1": "moe-s-engine@1.service"}
# Answers as journalctl does: a file per unit, oldest first; `tac` of whole entries for --reverse.
JOURNALCTL = """
echo "$*" >> {folder}/asked
cursor=; reverse=; n=; unit=all
for word in "$@"; do
  case "$last" in -n) n=$word;; -u) unit=$word;; esac
  case "$word" in --reverse) reverse=1;; --follow) exec sleep 60;; esac
  last=$word
done
[ -n "$reverse" ] && sort={folder}/$unit.reverse || sort={folder}/$unit
[ "$n" = 1 ] && [ -z "$reverse" ] && sort={folder}/newest
[ -e "$sort" ] && cat "$sort"
exit 0
"""


def entry(at: int, unit: str, text: str) -> str:
    lines = (f"__CURSOR=c{at}", f"__REALTIME_TIMESTAMP={at}", f"MESSAGE={text}")
    return "\n".join((*lines, f"_SYSTEMD_UNIT={unit}")) + "\n\n"


@pytest.fixture
def journal(stand_in: Callable[[str, str], None], tmp_path: Path, host: StubbornHost) -> Path:
    first, second = UNITS.values()
    own = {
        first: [entry(at, first, f"first {at}") for at in (1, 3, 5)],
        second: [entry(at, second, f"second {at}") for at in (2, 4, 6)],
    }
    for unit, entries in own.items():
        (tmp_path / unit).write_text("".join(entries))
        (tmp_path / f"{unit}.reverse").write_text("".join(reversed(entries)))
    (tmp_path / "newest").write_text(own[second][-1])
    stand_in("journalctl", JOURNALCTL.format(folder=tmp_path))
    rows = [
        {"id": name, "unit": unit, "role": "decode" if name == "a/1" else "prefill"}
        for name, unit in UNITS.items()
    ]
    host.put(RECORD, json.dumps({"processes": rows}))
    return tmp_path


def lines_of(host: StubbornHost, **keys: object) -> tuple[list[str], dict[str, object]]:
    """What the reader of the stream finds: P names, L lines, C cursors, B caught up; and the report."""
    chunks: list[bytes] = []
    report = stream({"record": RECORD, **keys}, host, chunks.append)
    unpacker, found = zlib.decompressobj(), []
    for chunk in chunks:
        head, _, columns = unpacker.decompress(chunk).partition(b"\n")
        found += read_frame(json.loads(head), columns) if head else []
    assert unpacker.eof
    return found, report


def read_frame(head: dict[str, Any], columns: bytes) -> list[str]:
    """A frame by its documentation, in words."""
    count = head["num_lines"]
    times, rest = struct.unpack_from(f"<{count}Q", columns), columns[8 * count :]
    numbers: Sequence[int] = [head["process"]] * count if "process" in head else []
    if not numbers:
        numbers, rest = struct.unpack_from(f"<{count}H", rest), rest[2 * count :]
    texts = rest.decode().split("\n") if count else []
    return [
        *(f"P{name}" for name in head.get("processes", ())),
        *(f"L{n} {at} {text}" for n, at, text in zip(numbers, times, texts, strict=True)),
        *([f"C{head['cursor']}"] if head.get("cursor") else []),
        *(["B"] if head.get("is_caught_up") else []),
    ]


def test_the_last_lines_of_each_unit_are_merged_by_time(host: StubbornHost, journal: Path) -> None:
    lines, report = lines_of(host, lines=2)
    assert lines[:2] == ["Pa/0", "Pa/1"]
    assert lines[2:6] == ["L0 3 first 3", "L1 4 second 4", "L0 5 first 5", "L1 6 second 6"]
    assert lines[6:] == ["Cc6", "B"]
    assert report["processes"] == [
        {"id": "a/0", "role": "prefill"},
        {"id": "a/1", "role": "decode"},
    ]


def test_the_cursor_to_follow_from_is_an_entry_of_the_units(
    host: StubbornHost, journal: Path
) -> None:
    """After one of another unit journalctl would pass over the first line that comes."""
    lines_of(host, lines=2)
    (newest,) = [line for line in (journal / "asked").read_text().splitlines() if "-n 1" in line]
    assert all(f"-u {unit}" in newest for unit in UNITS.values())


def test_units_that_have_written_nothing_are_followed_from_their_start(
    host: StubbornHost, journal: Path
) -> None:
    (journal / "newest").write_text("")
    lines, _ = lines_of(host, lines=2)
    assert lines == ["Pa/0", "Pa/1", "B"]


def test_a_pattern_looks_back_until_it_has_enough(host: StubbornHost, journal: Path) -> None:
    lines, _ = lines_of(host, lines=1, grep="[13]$")
    assert [line for line in lines if line[0] == "L"] == ["L0 3 first 3"]


def test_each_line_of_a_message_is_a_line_with_its_time(host: StubbornHost, journal: Path) -> None:
    first = UNITS["a/0"]
    size = struct.pack("<Q", len(b"one\n\nthree")).decode("latin-1")
    several = (
        "__CURSOR=c9\n__REALTIME_TIMESTAMP=9\n"
        f"MESSAGE\n{size}one\n\nthree\n_SYSTEMD_UNIT={first}\n\n"
    )
    (journal / "all").write_text("")
    (journal / first).write_bytes((several + entry(10, first, "")).encode("latin-1"))
    lines, _ = lines_of(host, since="yesterday", process="a/0")
    assert lines == ["Pa/0", "L0 9 one", "L0 9 ", "L0 9 three", "L0 10 ", "Cc10", "B"]


def test_one_process_or_one_role_is_read_alone(host: StubbornHost, journal: Path) -> None:
    for keys in ({"process": "a/1"}, {"role": "decode"}):
        lines, _ = lines_of(host, lines=9, **keys)
        assert [line for line in lines if line[0] in "PL"] == [
            "Pa/1",
            "L0 2 second 2",
            "L0 4 second 4",
            "L0 6 second 6",
        ]


def test_a_cursor_is_where_reading_goes_on(host: StubbornHost, journal: Path) -> None:
    lines_of(host, lines=2, after="c4")
    asked = (journal / "asked").read_text()
    assert "--after-cursor=c4" in asked
    assert "--reverse" not in asked


def test_a_process_that_nobody_has_is_an_empty_stream(host: StubbornHost, journal: Path) -> None:
    lines, report = lines_of(host, lines=2, process="nobody", follow=True)
    assert lines == []
    assert len(str(report["processes"])) > 2
    assert not (journal / "asked").exists()


def test_a_host_without_a_record_has_nothing_to_say(host: StubbornHost) -> None:
    assert lines_of(host, lines=2) == ([], {"schema_version": 1, "processes": []})


def test_a_damaged_record_is_refused(host: StubbornHost) -> None:
    host.put(RECORD, "{")
    with pytest.raises(Refused, match=RECORD):
        lines_of(host, lines=2)


def test_a_journal_that_cannot_be_read_is_refused_in_its_words(
    host: StubbornHost, journal: Path, stand_in: Callable[[str, str], None]
) -> None:
    stand_in("journalctl", "echo 'Failed to open journal: denied' >&2; exit 1")
    with pytest.raises(Refused, match="denied"):
        lines_of(host, since="yesterday")


def test_an_entry_may_come_in_any_pieces() -> None:
    unit = UNITS["a/0"]
    text = (entry(1, unit, "one") + entry(2, unit, "two")).encode()
    for size in (1, 7, len(text)):
        parser = Parser([unit])
        pieces = [text[at : at + size] for at in range(0, len(text), size)]
        found = [each.message for piece in pieces for each in parser.feed(piece)]
        assert found == [b"one", b"two"]
