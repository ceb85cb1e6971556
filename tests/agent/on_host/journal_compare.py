"""Run as root on a simulated host: the journal read from its files, beside the same read by journalctl.

python3 journal_compare.py FOLDER UNIT…     FOLDER holds infra/agent; prints one JSON document. With CUT_ONE in the
environment it damages the journal in the end.
"""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

sys.path.insert(0, sys.argv[1])
from infra.agent.host import Host
from infra.agent.journal import file as journal_file
from infra.agent.journal import journalctl
from infra.agent.journal import reading as journal_reading
from infra.agent.journal.file import JournalFile
from infra.agent.journal.format import read_header
from infra.agent.journal.lines import Lines, Unreadable
from infra.agent.journal.reading import Bounds
from infra.agent.journal.store import _folder, matching, open_journal

Row = tuple[int, int, bytes]
UNITS = sys.argv[2:]
NUM_DAMAGED = 150


def rows(batches: Iterable[Lines]) -> list[Row]:
    """[time, unit, message] of each entry, in their order."""
    return [
        row
        for lines in batches
        for row in zip(lines.times, lines.units, lines.messages, strict=True)
    ]


def from_files(host: Host, bounds: Bounds, grep: re.Pattern[bytes] | None = None) -> list[Row]:
    """By the files alone: what is not readable is an error here."""
    with open_journal(host, UNITS) as journal:
        batches = journal.read(journal_reading._start(host, UNITS, bounds))
        return rows(matching(lines, grep) for lines in batches)


def compare(host: Host) -> tuple[int, list[object]]:
    """How many entries there are, and the places from which the two differ."""
    everything = journal_reading.ALL
    expected = rows(journal_reading._read_with_journalctl(host, UNITS, everything))
    differing: list[object] = []
    if from_files(host, everything) != expected:
        differing.append(["all", first_difference(from_files(host, everything), expected)])
    entries = [e for batch in journalctl.read_entries(host, UNITS, []) for e in batch]
    chance = random.Random(1)  # noqa: S311 - the same places every time
    places = [*chance.sample(entries, min(len(entries), 12)), entries[-1]]
    for entry in places:
        cursor = entry.cursor.decode()
        moment = f"@{entry.time_us // 1000000}.{entry.time_us % 1000000:06d}"
        for bounds in (everything._replace(after=cursor), everything._replace(since=moment)):
            wanted = rows(journal_reading._read_with_journalctl(host, UNITS, bounds))
            found = from_files(host, bounds)
            if found != wanted:
                differing.append([str(bounds), first_difference(found, wanted)])
    for words in (b"step 7 ", b"line", b"nothing has this"):
        wanted = [row for row in expected if re.search(words, row[2])]
        if from_files(host, everything, re.compile(words)) != wanted:
            differing.append([words.decode(), None])
    return len(expected), differing


def compare_tails(host: Host) -> list[object]:
    """The numbers of last lines for which the two differ."""
    differing: list[object] = []
    for count in (1, 5, 200, 100000):
        for words in (None, b"took 0.1", b"line"):
            grep = None if words is None else re.compile(words)
            wanted = journal_reading._tails_of_journalctl(
                host, UNITS, count, journal_reading.ALL, grep
            )
            with open_journal(host, UNITS) as journal:
                found = [journal.read_tail(n, count, None, grep) for n in range(len(UNITS))]
                cursor = journal.newest_cursor()
            if rows(found) != rows(wanted.units) or cursor != wanted.cursor:
                differing.append([count, str(words)])
    return differing


def formats(folder: Path) -> list[int]:
    """What kinds of files there are: the flags of each."""
    found = set()
    for path in folder.iterdir():
        with path.open("rb") as stream:
            found.add(read_header(stream.fileno()).flags)
    return sorted(found)


def read_damaged(folder: Path) -> int:
    """Read files with random damage; how often it was noticed. Anything but `Unreadable` ends the program."""
    chance, noticed = random.Random(2), 0  # noqa: S311 - the same damage every time
    paths = sorted(folder.iterdir())
    for number in range(NUM_DAMAGED):
        with tempfile.NamedTemporaryFile() as copy:
            with paths[number % len(paths)].open("rb") as whole:
                shutil.copyfileobj(whole, copy)
            copy.flush()
            size = read_header(copy.fileno()).tail_place
            for _ in range(chance.choice((1, 20, 2000))):
                place = chance.randint(chance.choice((8, 264, size // 2)), size)
                os.pwrite(copy.fileno(), bytes([chance.getrandbits(8)]), place)
            if number % 5 == 0:
                os.truncate(copy.fileno(), chance.randint(300, size))
            try:
                with Path(copy.name).open("rb") as stream:
                    damaged = JournalFile(stream.fileno(), read_header(stream.fileno()), UNITS)
                    rows(damaged.read(None))
                    rows(damaged.read_back(None, None, 100))
            except Unreadable:
                noticed += 1
    return noticed


def through_damage(host: Host, folder: Path) -> dict[str, object]:
    """What is read where one entry is destroyed, then where the file is cut in two."""
    journal_file.WINDOW = 64  # so that the damage comes after something has been read
    found: dict[str, object] = {}
    with max(folder.glob("system@*.journal")).open("r+b") as stream:
        header = read_header(stream.fileno())
        whole = JournalFile(stream.fileno(), header, UNITS)
        index = whole._lists[0][2]
        for way, place in (
            ("entry", index.place(index.length // 2)),
            ("cut", header.tail_place // 2),
        ):
            if way == "cut":
                os.truncate(stream.fileno(), place)
            else:
                os.pwrite(stream.fileno(), b"\0", place)
            found[way] = through(host)
    return found


def through(host: Host) -> dict[str, object]:
    """Whether both ways tell the same, and how much of it the files told."""
    read = rows(journal_reading.read_forward(host, UNITS, journal_reading.ALL, None))
    wanted = rows(journal_reading._read_with_journalctl(host, UNITS, journal_reading.ALL))
    num_read = 0
    try:
        with open_journal(host, UNITS) as journal:
            for lines in journal.read(None):
                num_read += len(lines.times)
    except Unreadable:
        difference = first_difference(read, wanted) if read != wanted else None
        return {"difference": difference, "from_files": num_read, "lines": len(wanted)}
    return {"difference": "the files were read to their end"}


def first_difference(found: list[Row], wanted: list[Row]) -> list[object]:
    for number, (one, other) in enumerate(zip(found, wanted, strict=False)):
        if one != other:
            return [number, repr(one)[:200], repr(other)[:200]]
    return [len(found), len(wanted)]


def main() -> None:
    host = Host()
    folder = Path(_folder(host))
    num_entries, differing = compare(host)
    document = {
        "num_entries": num_entries,
        "differing": differing,
        "tails": compare_tails(host),
        "formats": formats(folder),
        "files": sorted(path.name for path in folder.iterdir()),
        "damaged": read_damaged(folder),
    }
    if os.environ.get("CUT_ONE"):
        document["through_damage"] = through_damage(host, folder)
    sys.stdout.write(json.dumps(document) + "\n")


main()
