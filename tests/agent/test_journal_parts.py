"""Parts of reading journal files that need no journald: compressed fields, cursors, and how files are merged."""

from __future__ import annotations

import ctypes
import lzma
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from infra.agent.host import Host
from infra.agent.journal.file import Start
from infra.agent.journal.format import read_header
from infra.agent.journal.lines import Lines, Unreadable
from infra.agent.journal.store import _merged, by_time, open_journal, start_at
from infra.agent.journal.unpacking import LZ4, XZ, ZSTD, unpack
from tests.agent.stubborn_host import StubbornHost

TEXT = b"MESSAGE=" + b"a word and another " * 200
MACHINE = "4d76df612f6d545ca420105d960909fe"


def lz4(text: bytes) -> bytes:
    library = ctypes.CDLL("liblz4.so.1")
    buffer = ctypes.create_string_buffer(library.LZ4_compressBound(len(text)))
    size = library.LZ4_compress_default(text, buffer, len(text), len(buffer))
    return struct.pack("<Q", len(text)) + buffer.raw[:size]


def zstd(text: bytes) -> bytes:
    library = ctypes.CDLL("libzstd.so.1")
    library.ZSTD_compress.restype = ctypes.c_size_t
    buffer = ctypes.create_string_buffer(2 * len(text) + 100)
    size = library.ZSTD_compress(
        buffer, ctypes.c_size_t(len(buffer)), text, ctypes.c_size_t(len(text)), 3
    )
    return buffer.raw[:size]


PACKERS: dict[int, Callable[[bytes], bytes]] = {
    XZ: lambda text: lzma.compress(text, check=lzma.CHECK_NONE),
    LZ4: lz4,
    ZSTD: zstd,
}


@pytest.mark.parametrize("flag", PACKERS)
def test_a_compressed_field_is_unpacked(flag: int) -> None:
    assert unpack(flag, PACKERS[flag](TEXT)) == TEXT


@pytest.mark.parametrize("flag", [*PACKERS, 8, XZ | ZSTD])
@pytest.mark.parametrize("packed", [b"", b"\0" * 8, b"\xff" * 40, TEXT])
def test_what_is_not_compressed_so_is_unreadable(flag: int, packed: bytes) -> None:
    with pytest.raises(Unreadable):
        unpack(flag, packed)


@pytest.mark.parametrize("flag", PACKERS)
def test_half_of_a_compressed_field_is_unreadable(flag: int) -> None:
    packed = PACKERS[flag](TEXT)
    with pytest.raises(Unreadable):
        unpack(flag, packed[: len(packed) // 2])


def test_a_cursor_names_a_place() -> None:
    cursor = f"s={MACHINE};i=1a76d;b={MACHINE};m=1b3c8e55;t=660b82b596b34;x=fa4bd04aa1cdc57c"
    expected = Start(bytes.fromhex(MACHINE), 0x1A76D, 0x660B82B596B34, includes=True)
    assert start_at(cursor, includes=True) == expected


@pytest.mark.parametrize("cursor", ["", "s=1;i=1", "i=1;s=4d76df612f6d545ca420105d960909fe;t=1"])
def test_another_cursor_is_journalctls(cursor: str) -> None:
    with pytest.raises(Unreadable):
        start_at(cursor, includes=False)


def batches(name: str, *groups: list[int]) -> Iterator[Lines]:
    for keys in groups:
        messages = [f"{name}{key}".encode() for key in keys]
        yield Lines(keys, keys, [0] * len(keys), messages, messages[-1])


def merged(*sources: Iterator[Lines]) -> tuple[list[bytes], list[bytes]]:
    found = list(_merged(list(sources), lambda lines: lines.times))
    return [m for lines in found for m in lines.messages], [lines.cursor for lines in found]


def test_files_are_merged_and_each_cursor_is_that_of_the_last_entry() -> None:
    messages, cursors = merged(batches("a", [1, 4], [6, 9]), batches("b", [2, 3, 5], [7, 8]))
    assert messages == [b"a1", b"b2", b"b3", b"a4", b"b5", b"a6", b"b7", b"b8", b"a9"]
    assert cursors == [b"a4", b"b5", b"b8", b"a9"]


def test_a_file_whose_clock_was_set_back_loses_nothing() -> None:
    messages, _ = merged(batches("a", [5, 9, 3], [4]), batches("b", [1, 10], [11]))
    assert sorted(messages) == sorted([b"a5", b"a9", b"a3", b"a4", b"b1", b"b10", b"b11"])


def test_nothing_is_merged_to_nothing() -> None:
    assert merged() == ([], [])
    assert by_time([Lines([], [], [], [], b"c")]).cursor == b"c"


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"LPKSHHRH",
        b"#!/bin/sh\n" + b"x" * 300,
        b"LPKSHHRH" + b"\0\0\0\0" + b"\x20" + b"\0" * 300,
    ],
    ids=["empty", "begun", "foreign", "a flag that is not known"],
)
def test_a_file_that_is_no_known_journal_is_unreadable(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "system.journal"
    path.write_bytes(content)
    with path.open("rb") as stream, pytest.raises(Unreadable):
        read_header(stream.fileno())


@pytest.mark.parametrize("folders", [(), ("/var/log/journal", "/run/log/journal")])
def test_one_folder_or_journalctl_reads(host: StubbornHost, folders: tuple[str, ...]) -> None:
    host.put("/etc/machine-id", MACHINE + "\n")
    for folder in folders:
        host.put(f"{folder}/{MACHINE}/system.journal", b"")
    with pytest.raises(Unreadable, match="one folder"), open_journal(host, []):
        pass


def test_a_host_without_an_id_is_unreadable(tmp_path: Path) -> None:
    with pytest.raises(Unreadable), open_journal(Host(str(tmp_path)), []):
        pass
