"""What a hostile host sends for its evidence and its log: bounded, and never more than data."""

from __future__ import annotations

import gzip
import io
import json
import os
import struct
import tarfile
import time
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from infra.launch import evidence_parts
from infra.launch.evidence import HostEvidence, collect, write_archive
from infra.launch.evidence_parts import MAX_FILE_BYTES, MAX_PART_BYTES, read_part, safe_name
from infra.launch.logs.stream import MAX_FRAME_BYTES, HostLog
from infra.remote.failures import NoReport

LIMIT_S = 10.0


class Stream:
    """An agent's stream that says what it is told to."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self.report: Mapping[str, object] = {"processes": []}
        self._chunks = chunks

    def chunks(self) -> Iterator[bytes]:
        return self._chunks

    def close(self) -> None:
        """Nothing is open."""


def part(folder: Path, *members: tuple[tarfile.TarInfo, bytes]) -> Path:
    path = folder / "part.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        for member, content in members:
            member.size = len(content) if member.isreg() else 0
            archive.addfile(member, io.BytesIO(content))
    return path


def member(name: str, kind: bytes = tarfile.REGTYPE, link: str = "") -> tarfile.TarInfo:
    made = tarfile.TarInfo(name)
    made.type, made.linkname, made.mode = kind, link, 0o4777
    return made


def test_names_of_a_host_lead_nowhere_and_links_and_devices_are_left_out(tmp_path: Path) -> None:
    sent = part(
        tmp_path,
        (member("/etc/cron.d/x"), b"1"),
        (member("../../x"), b"2"),
        (member("a/../../x"), b"3"),
        (member("link", tarfile.SYMTYPE, "/etc/passwd"), b""),
        (member("hard", tarfile.LNKTYPE, "/etc/passwd"), b""),
        (member("node", tarfile.CHRTYPE), b""),
        (member("pipe", tarfile.FIFOTYPE), b""),
        (member("./ranks//a\x1b[2J\u202eb/x y\\z"), b"4"),
        (member("n" * 300), b"5"),
        (member("/".join("abcdefghijklmnop")), b"6"),
    )
    found = dict(read_part(sent))
    assert found == {"ranks/a__2J_b/x_y_z": b"4", "n" * 200: b"5"}
    target = tmp_path / "all.tar.gz"
    write_archive(target, "s", [HostEvidence("h", part=sent)])
    with tarfile.open(target) as archive:
        for each in archive:
            assert each.isreg()
            assert each.name.startswith("s/")
            assert each.mode == 0o600


def test_what_unpacks_without_end_is_read_to_a_limit(tmp_path: Path) -> None:
    path = tmp_path / "bomb.gz"
    head = member("zeros")
    head.size = 1 << 36
    with gzip.open(path, "wb", compresslevel=1) as packed:
        packed.write(head.tobuf())
        for _ in range(80):
            packed.write(bytes(1 << 23))
    begun = time.process_time()
    found = dict(read_part(path))
    assert time.process_time() - begun < LIMIT_S
    assert [len(content) for content in found.values()] == [MAX_FILE_BYTES]


@pytest.mark.parametrize("kind", [tarfile.XHDTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.XGLTYPE])
def test_a_head_that_announces_gigabytes_is_not_kept(kind: bytes, tmp_path: Path) -> None:
    head = member("x", kind)
    head.size = 1 << 34
    path = tmp_path / "head.gz"
    path.write_bytes(gzip.compress(head.tobuf() + bytes(4096)))
    assert list(read_part(path)) == []


def test_a_sparse_file_of_terabytes_is_left_out(tmp_path: Path) -> None:
    made = member("sparse")
    made.pax_headers = {
        f"GNU.sparse.{name}": value
        for name, value in (("size", str(1 << 42)), ("map", "0,1"), ("name", "sparse"))
    }
    path = tmp_path / "sparse.gz"
    with tarfile.open(path, "w:gz", format=tarfile.PAX_FORMAT) as archive:
        made.size = 1
        archive.addfile(made, io.BytesIO(b"x"))
    assert list(read_part(path)) == []


def test_many_files_end(tmp_path: Path) -> None:
    block = b"".join(member(f"f{i}").tobuf() for i in range(1_000))
    path = tmp_path / "many.gz"
    path.write_bytes(gzip.compress(block * 25))
    assert sum(1 for _ in read_part(path)) == evidence_parts.MAX_FILES


@pytest.mark.parametrize(
    "content",
    [b"", b"no gzip", gzip.compress(b"no tar" * 200, mtime=0), b"\x1f\x8b\x08" + b"\0" * 20],
)
def test_what_is_no_archive_holds_nothing(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "part"
    path.write_bytes(content)
    assert list(read_part(path)) == []


def test_a_host_that_sends_for_ever_is_cut_and_others_are_whole(tmp_path: Path) -> None:
    piece = os.urandom(1 << 20) * 16

    def endless() -> Iterator[bytes]:
        while True:
            yield piece

    whole = part(tmp_path, (member("host/kernel.log"), b"x")).read_bytes()

    def opened(host: str, _: object) -> Stream:
        return Stream(endless() if host == "evil" else iter([whole]))

    evil, good = collect(opened, ["evil", "good"], "s", tmp_path, answer_s=60.0)
    assert isinstance(evil.error, NoReport)
    assert "sent more than 256 MiB of evidence" in evil.error.what
    assert (tmp_path / "0.tar.gz").stat().st_size <= MAX_PART_BYTES
    assert good.error is None


def frame(head: Mapping[str, object], columns: bytes = b"") -> bytes:
    packer = zlib.compressobj()
    text = json.dumps(head).encode() + b"\n" + columns
    return packer.compress(text) + packer.flush(zlib.Z_SYNC_FLUSH)


STAMP = struct.pack("<Q", 1_700_000_000_000_000)
FRAMES = {
    "bomb": zlib.compress(bytes(MAX_FRAME_BYTES + 1)),
    "noise": b"\xff" * 100,
    "list": frame([1]),  # type: ignore[arg-type]  # what no agent sends
    "number": frame({"num_lines": -1}),
    "count": frame({"num_lines": 10**9, "process": 0, "processes": ["a"]}, STAMP),
    "text": frame({"num_lines": "2"}, STAMP),
    "process": frame({"num_lines": 1, "process": 7}, STAMP + b"x"),
    "messages": frame({"num_lines": 1, "process": 0, "processes": ["a"]}, STAMP + b"x\ny\nz"),
    "time": frame({"num_lines": 1, "process": 0, "processes": ["a"]}, b"\xff" * 8 + b"x"),
    "names": frame({"num_lines": 0, "processes": ["a"] * 70_000}),
    "deep": zlib.compress(b'{"a":' * 5_000 + b"1" + b"}" * 5_000 + b"\n"),
}  # fmt: skip


@pytest.mark.parametrize("data", FRAMES.values(), ids=FRAMES)
def test_a_frame_that_is_none_fails_its_host(data: bytes) -> None:
    log = HostLog("a", lambda _: Stream(iter([data])), {"operation": "logs"}, say=print)
    with pytest.raises(NoReport, match="what it sends is no log"):
        list(log.batches())


def test_a_safe_name_is_the_name_of_what_is_safe() -> None:
    assert safe_name("ranks/prefill-0_0/4711/py-spy.txt") == "ranks/prefill-0_0/4711/py-spy.txt"
    assert safe_name("host/files/moe-s-engine@0.service") == "host/files/moe-s-engine@0.service"
    assert safe_name("") == safe_name("..") == safe_name("/") == ""
