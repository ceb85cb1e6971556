"""What reads a host's words: its agent's answers, its log, its evidence, its journal."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from infra.agent.host import Refused
from infra.agent.journal.frames import FrameWriter
from infra.agent.journal.lines import Lines, Parser
from infra.errors import InfraError
from infra.launch.evidence import HostEvidence, write_archive
from infra.launch.logs.stream import HostLog
from infra.launch.preflight.observed import read_observed
from infra.launch.supervision import (
    holding_hosts,
    led_elsewhere,
    read_groups,
    router_ends,
    watched_hosts,
)
from infra.launch.unit_states import read_units, why_ended
from infra.remote.agent_call import read_answer
from infra.remote.outcome import Outcome
from tests.fuzz.mutations import as_json
from tests.fuzz.running import Ran, Surface

UNIT = "moe-s-engine@0.service"
MARK = b"\nmoe-infra-report %d\n"


def _answer(path: Path) -> Ran:
    """An answer as it arrives, and all that is read from it."""
    text = path.read_bytes()
    try:
        report = read_answer(
            "a", Outcome(exit_code=0, stdout=MARK % len(text) + text + b"\n", stderr=b"")
        )
    except InfraError as error:
        return Ran(code=error.exit_code, said=str(error).encode("unicode_escape").decode())
    observed = read_observed(
        "a", report, sent_s=1.0, received_s=2.0, also={"state": report, "listening": report}
    )
    units = read_units("a", report, {UNIT: "a/0"})
    said = [why_ended(state) for state in units.values()]
    groups = read_groups([report])
    found = (
        led_elsewhere(report),
        watched_hosts({"a": report}),
        holding_hosts({"a": report}),
        router_ends([report]),
    )
    return Ran(code=0, said=repr((observed, said, groups, found)))


class _Chunks:
    """A stream of one piece."""

    report: Mapping[str, object]

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.report = {"processes": []}

    def chunks(self) -> Iterator[bytes]:
        """The piece."""
        yield self._data

    def close(self) -> None:
        """Nothing is open."""


def _log(path: Path) -> Ran:
    log = HostLog(
        "a", lambda _: _Chunks(path.read_bytes()), {"operation": "logs"}, say=lambda _: None
    )
    try:
        lines = [batch.lines for batch in log.batches()]
    except InfraError as error:
        return Ran(code=error.exit_code, said=str(error))
    assert all(len(each.times) == len(each.messages) == len(each.processes) for each in lines)
    return Ran(code=0, said=repr(lines))


def _evidence(path: Path) -> Ran:
    """A host's part, written into the operator's archive, which holds plain files below its own folder."""
    target = path.with_name("evidence.tar.gz")
    findings = write_archive(target, "s", [HostEvidence("a", part=path)])
    with tarfile.open(target) as archive:
        for member in archive:
            assert member.isreg()
            assert member.name.startswith("s/")
            assert ".." not in member.name.split("/")
    return Ran(code=0, said=repr(findings))


def _journal(path: Path) -> Ran:
    parser = Parser([UNIT])
    try:
        found = [*parser.feed(path.read_bytes()[:40]), *parser.feed(path.read_bytes()[40:])]
    except Refused as error:
        return Ran(code=4, said=str(error))
    return Ran(code=0, said=repr(found))


def _reports() -> Sequence[bytes]:
    row = {
        "id": "vm.swappiness",
        "group": "tuning",
        "state": "ok",
        "why": "",
        "before": "0",
        "wanted": "0",
        "after": "0",
    }
    unit = {
        "unit": UNIT, "load_state": "loaded", "active_state": "failed", "sub_state": "failed", "result": "exit-code",
        "exec_main_status": 1, "main_pid": 0, "n_restarts": 0, "job": 0, "since": None, "log_tail": ["ERROR boom"],
    }  # fmt: skip
    group = {
        "group": "decode/0",
        "epoch": 2,
        "phase": "runs",
        "restarts": 0,
        "why": "",
        "leads": True,
        "pause_s": 1.5,
    }
    report = {
        "schema_version": 1, "items": [row], "units": [unit], "groups": [group],
        "watch": {"active": True, "enabled": True},
        "router": {"process": "router/0", "why": "ended"},
        "listening": [{"port": 7100, "address": "0.0.0.0", "inode": 7}],
        "commands": {"clock": {"exit_code": 0, "stdout": "x", "stderr": "", "seconds": 0.1}}, "files": {"/proc/a": "1"},
        "paths": ["/dev/a"], "sizes": {"/a": 1}, "holders": [{"device": "/dev/a", "pid": 7, "command": "x"}],
        "disks": {"/models": {"mount": "/", "kind": "ext4", "exists": True, "free_bytes": 1, "free_inodes": 1}},
        "writable": {"/etc": {"at": "/etc", "error": None}}, "clock": {"now_s": 1.5, "error_s": 0.01}, "stuck": [],
        "also": [{"units": [unit]}], "left_out": [],
    }  # fmt: skip
    return [json.dumps(report).encode()]


def _frames() -> Sequence[bytes]:
    sent: list[bytes] = []
    writer = FrameWriter(sent.append)
    writer.processes(["a/0", "a/1"])
    writer.lines(
        Lines([1_700_000_000_000_000] * 2, [0, 0], [0, 1], [b"one", b"two\nthree"], b"s=1;i=2")
    )
    writer.end()
    return [sent[0], sent[0] + sent[1], b"".join(sent)]


def _parts() -> Sequence[bytes]:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name in ("ranks/a_0/journal.txt", "host/kernel.log", "host/files/" + "é" * 120):
            member = tarfile.TarInfo(name)
            text = b"2026-11-26T00:00:00.000000Z ERROR boom\n" * 3
            member.size = len(text)
            archive.addfile(member, io.BytesIO(text))
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w") as archive:
        link = tarfile.TarInfo("ranks/x")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(link)
        archive.addfile(tarfile.TarInfo("../out"))
    return [packed.getvalue(), plain.getvalue()]


ENTRY = (
    b"__CURSOR=c\n__REALTIME_TIMESTAMP=17\nMESSAGE=boom\n_SYSTEMD_UNIT=moe-s-engine@0.service\n\n"
)
BINARY = b"__CURSOR=c\n__REALTIME_TIMESTAMP=17\nMESSAGE\n\x05\0\0\0\0\0\0\0a\nb\nc\n\n"

HOST_SURFACES: Mapping[str, Surface] = {
    "answer": Surface(file="report.json", seeds=_reports, write=as_json, run=_answer, codes=(0, 4)),
    "log": Surface(file="frames", seeds=_frames, write=None, run=_log, codes=(0, 4)),
    "evidence": Surface(file="part.tar.gz", seeds=_parts, write=None, run=_evidence, codes=(0,)),
    "journal": Surface(
        file="export",
        seeds=lambda: [ENTRY * 3, ENTRY + BINARY * 2],
        write=None,
        run=_journal,
        codes=(0, 4),
    ),
}
