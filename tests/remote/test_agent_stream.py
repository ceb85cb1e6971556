"""A streamed request to an agent: chunks through noise, errors as reports, a loss that is told."""

from __future__ import annotations

import json
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from infra.remote.agent_stream import AgentStream, open_agent_stream
from infra.remote.failures import AgentFailed, LostConnection, NoReport
from infra.remote.outcome import Host, Outcome
from tests.remote.fake_host import FakeHost

RECORD = "/etc/moe-infra/s/release.json"


def put_record(folder: Path, journalctl: str) -> None:
    """The record of one process below `root`, and a journalctl of our own in `bin`."""
    (folder / "bin").mkdir()
    program = folder / "bin" / "journalctl"
    program.write_text(f"#!/bin/sh\n{journalctl}\n")
    program.chmod(0o755)
    record = folder / "root" / RECORD.lstrip("/")
    record.parent.mkdir(parents=True)
    rows = [{"id": "a/0", "unit": "u.service", "role": "unified"}]
    record.write_text(json.dumps({"processes": rows}))


def prepared(folder: Path, journalctl: str) -> FakeHost:
    """A host with a record of one process, and a journalctl of our own."""
    put_record(folder, journalctl)
    path = f"{folder / 'bin'}:/usr/bin:/bin"
    return FakeHost(environment={"PATH": path, "MOE_INFRA_ROOT": str(folder / "root")})


class Cut:
    """A stream that breaks off in the middle of a chunk."""

    def chunks(self) -> Iterator[bytes]:
        yield b"\nmoe-infra-stream\n5\nab"

    def outcome(self, timeout_s: float) -> Outcome:
        assert timeout_s > 0
        return Outcome(exit_code=None, stdout=b"", stderr=b"")

    def close(self) -> None:
        pass


def runs(pid: str) -> bool:
    """Whether a process runs; one that only waits to be reaped does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] != "Z"
    except OSError:
        return False


def wait_until(holds: Callable[[], bool], seconds: float = 5.0) -> bool:
    deadline = time.monotonic() + seconds
    while not holds() and time.monotonic() < deadline:
        time.sleep(0.02)
    return holds()


def ask(host: Host, **keys: object) -> AgentStream:
    request = {"operation": "logs", "record": RECORD, **keys}
    return open_agent_stream(host, request, timeout_s=20, sudo=False)


def test_chunks_come_then_the_report(host: Host) -> None:
    stream = ask(host, lines=5)
    unpacked = zlib.decompress(b"".join(stream.chunks()))
    assert unpacked == b""
    assert stream.report == {"schema_version": 1, "processes": []}
    stream.close()


def test_large_logs_arrive_whole(folder: Path) -> None:
    entry = r"__CURSOR=c\n__REALTIME_TIMESTAMP=1\nMESSAGE=%s\n_SYSTEMD_UNIT=u.service\n\n"
    text = "x" * 200
    host = prepared(folder, f'for i in $(seq 2000); do printf "{entry % text}"; done')
    stream = ask(host)
    unpacked = zlib.decompress(b"".join(stream.chunks()))
    assert unpacked.count(text.encode()) == 2000
    stream.close()


def test_what_the_agent_refuses_is_raised_after_what_came(folder: Path) -> None:
    stream = ask(prepared(folder, "echo 'no journal' >&2; exit 1"), lines=5)
    with pytest.raises(AgentFailed, match="no journal"):
        list(stream.chunks())
    stream.close()


def test_an_end_without_a_report_says_what_was_said(folder: Path) -> None:
    host = FakeHost(environment={"PATH": str(folder)})
    stream = ask(host, lines=5)
    with pytest.raises(NoReport):
        list(stream.chunks())
    stream.close()


def test_a_reader_that_leaves_ends_the_agent_and_journalctl(folder: Path) -> None:
    note = folder / "pid"
    host = prepared(folder, f'case "$*" in *-u*) echo $$ >{note}; exec sleep 60;; esac')
    stream = ask(host, since="today")
    assert wait_until(lambda: note.exists() and note.read_text().endswith("\n"))
    stream.close()
    assert wait_until(lambda: not runs(note.read_text().strip()))


def test_a_lost_connection_is_not_called_an_end() -> None:
    with pytest.raises(LostConnection):
        list(AgentStream("h", Cut()).chunks())
