"""The evidence of all hosts at once, within one limit of time, as one archive that begins with a summary."""

from __future__ import annotations

import functools
import io
import tarfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from infra.errors import InfraError
from infra.launch.evidence_parts import MAX_PART_BYTES, read_part
from infra.launch.first_failure import (
    Failure,
    first_failure,
    journal_failure,
    kernel_failures,
    run_begun,
)
from infra.launch.fleet import rows_of
from infra.launch.logs.stream import Chunks
from infra.launch.ras_states import read_ras
from infra.remote.failures import NoReport, OverTime
from infra.render.host_paths import release_path
from infra.visible import visible, visible_bytes
from infra.whole_file import unwritten, writing_whole

# Of a minute: connecting comes before, writing the archive after it. Parts are read as they come.
COLLECT_S = 40.0
ANSWER_S = 50.0
# Where a host's part has the stack's own files; what else lies in `host/` is about the host.
OF_STACK = ("host/files/", "host/earlier/")
JOURNAL, KERNEL, SUMMARY = "journal.txt", "host/kernel.log", "summary.md"
RAS = "host/nccl-ras-"
RANKS = "ranks/"  # what was kept of epochs before lies elsewhere, with journals of its own
MAX_NAMED = 40
# Of all hosts together, packed: as the operator's disk has to hold it twice.
MAX_TOTAL_BYTES = 1 << 33


@dataclass(slots=True)
class HostEvidence:
    """What came of one host.

    Args:
        part: its archive as far as it came, None when nothing did.
        processes: recorded there.
        left_out: for want of time.
        error: why it is not whole, None when it is.
        findings: what its logs tell, None for a part that nobody has read yet.
    """

    host: str
    part: Path | None = None
    processes: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    error: InfraError | None = None
    findings: Findings | None = None


@dataclass(slots=True)
class Findings:
    """What journals and kernel logs tell.

    Args:
        begun: when the first of the processes' last runs began, "" when that is not known.
        collectives: what NCCL finds wrong, by host and port that were asked.
    """

    ranks: list[Failure] = field(default_factory=list)
    kernels: list[Failure] = field(default_factory=list)
    last_lines: dict[str, str] = field(default_factory=dict)
    begun: str = ""
    collectives: dict[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def first(self) -> Failure | None:
        """The failure that came first."""
        return first_failure(self.ranks, self.kernels, self.begun)


def collect(
    open_stream: Callable[[str, Mapping[str, object]], Chunks],
    hosts: Sequence[str],
    stack: str,
    folder: Path,
    *,
    answer_s: float = ANSWER_S,
) -> list[HostEvidence]:
    """Every host's evidence, asked for at the same time; none is waited for beyond the limit.

    Args:
        open_stream: sends a request to a host's agent.
        hosts: all of them.
        stack: whose record and processes.
        folder: takes a file per host.
        answer_s: when whoever has not answered is given up.
    """
    request = {"operation": "evidence", "record": release_path(stack), "collect_s": COLLECT_S}
    room = _Room()
    readers = [
        _HostReader(
            host, functools.partial(open_stream, host, request), folder / f"{place}.tar.gz", room
        )
        for place, host in enumerate(hosts)
    ]
    until = time.monotonic() + answer_s
    threads = [
        threading.Thread(target=reader.read, name=f"evidence {reader.found.host}", daemon=True)
        for reader in readers
    ]
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(max(until - time.monotonic(), 0.0))
    finally:
        for reader in readers:
            reader.close(answer_s)
    return [reader.result() for reader in readers]


class _Room:
    """How much the hosts may still send."""

    def __init__(self) -> None:
        self._of_host: Counter[str] = Counter()
        self._lock = threading.Lock()

    def take(self, host: str, num_bytes: int) -> None:
        """Take room for a piece before it is written.

        Raises:
            NoReport: the host, or all of them, have sent more than any evidence has.
        """
        with self._lock:
            self._of_host[host] += num_bytes
            own, total = self._of_host[host], self._of_host.total()
        if own > MAX_PART_BYTES or total > MAX_TOTAL_BYTES:
            whose, most = (
                ("it", MAX_PART_BYTES)
                if own > MAX_PART_BYTES
                else ("all hosts together", MAX_TOTAL_BYTES)
            )
            what = f"{whose} sent more than {most >> 20} MiB of evidence; the rest is not taken."
            raise NoReport(host, what, "Look at the host by hand.")


class _HostReader:
    """Writes one host's stream to a file."""

    def __init__(
        self, host: str, open_stream: Callable[[], Chunks], part: Path, room: _Room
    ) -> None:
        self.found = HostEvidence(host)
        self._open, self._part, self._room = open_stream, part, room
        self._stream: Chunks | None = None
        self._is_over = threading.Event()
        self._bug: BaseException | None = None

    def read(self) -> None:
        """Until the stream is over; runs in a thread."""
        try:
            self._stream = self._open()
            with self._part.open("wb") as part:
                for chunk in self._stream.chunks():
                    self.found.part = self._part
                    self._room.take(self.found.host, len(chunk))
                    part.write(chunk)
            report = self._stream.report
            self.found.processes = tuple(str(row["id"]) for row in rows_of(report, "processes"))
            left_out = report.get("left_out")
            self.found.left_out = tuple(map(str, left_out)) if isinstance(left_out, list) else ()
            self._is_over.set()  # it is whole; whoever waits no longer reads it by himself
            self.found.findings = _read_part(self.found)
        except OSError as error:  # of the part; what is wrong with the host is one of ours
            self._bug = unwritten(
                error,
                self._part,
                "",
                "Make the folder for temporary files writable, or set TMPDIR.",
            )
        except InfraError as error:
            self.found.error = error
        except BaseException as error:  # noqa: BLE001 - raised again by `result`
            self._bug = error
        self._is_over.set()

    def close(self, answer_s: float) -> None:
        """Stop waiting; the agent ends itself."""
        if not self._is_over.is_set():
            what = f"its evidence was not whole within {answer_s:g} s."
            self.found.error = OverTime(self.found.host, what, "Look at the host by hand.")
        if self._stream is not None:
            self._stream.close()

    def result(self) -> HostEvidence:
        """What came.

        Raises:
            Exception: a bug of this side.
        """
        if self._bug is not None and self.found.error is None:
            raise self._bug
        return self.found


def knows_stack(found: Sequence[HostEvidence]) -> bool:
    """Whether a host holds something of the stack, or may: processes, files, or evidence of earlier runs."""
    return any(
        each.error is not None
        or each.processes
        or any(name.startswith(OF_STACK) for name, _ in _members(each))
        for each in found
    )


def write_archive(target: Path, stack: str, found: Sequence[HostEvidence]) -> Findings:
    """One archive with the summary first; returns what the logs tell.

    Args:
        target: written whole or not at all, readable by its owner alone.
        stack: its name, and the name of the folder in the archive.
        found: of every host.

    Raises:
        StackError: it cannot be written; nothing is left of it.
        PrerequisiteError: there is no room for it.
    """
    findings = read_findings(found)
    with writing_whole(target, option="--to", mode=0o600) as file:
        _pack(file, summary(stack, found, findings), stack, found)
    return findings


def _pack(file: BinaryIO, page: str, stack: str, found: Sequence[HostEvidence]) -> None:
    """Write the archive: the page, then what came of each host."""
    with tarfile.open(fileobj=file, mode="w:gz", compresslevel=3) as archive:
        text = visible(page).encode()
        member = tarfile.TarInfo(f"{stack}/{SUMMARY}")
        member.size, member.mtime, member.mode = len(text), int(time.time()), 0o600
        archive.addfile(member, io.BytesIO(text))
        for each in found:
            for name, content in _members(each):
                inner, shown = (
                    tarfile.TarInfo(visible(f"{stack}/{each.host}/{name}")),
                    visible_bytes(content),
                )
                inner.size, inner.mtime, inner.mode = len(shown), member.mtime, 0o600
                archive.addfile(inner, io.BytesIO(shown))


def read_findings(found: Sequence[HostEvidence]) -> Findings:
    """What the journals and kernel logs of all hosts tell."""
    parts = [each.findings or _read_part(each) for each in found]
    return Findings(
        ranks=[failure for part in parts for failure in part.ranks],
        kernels=[failure for part in parts for failure in part.kernels],
        collectives={at: lines for part in parts for at, lines in part.collectives.items()},
        last_lines={process: line for part in parts for process, line in part.last_lines.items()},
        begun=min((part.begun for part in parts if part.begun), default=""),
    )


def _read_part(found: HostEvidence) -> Findings:
    """What one host's journals and kernel log tell."""
    findings = Findings()
    begun: list[str] = []
    for name, content in _members(found):
        is_journal = name.startswith(RANKS) and name.endswith("/" + JOURNAL)
        is_ras = name.startswith(RAS)
        if name != KERNEL and not is_journal and not is_ras:
            continue
        text = content.decode("utf-8", "replace")
        if is_ras:
            findings.collectives[f"{found.host} ({name})"] = read_ras(text)
            continue
        lines = text.removesuffix("\n").split("\n")
        if name == KERNEL:
            findings.kernels += kernel_failures(found.host, lines)
            continue
        process = name.split("/")[1].replace("_", "/")
        begun += [at for at in (run_begun(lines),) if at]
        failure = journal_failure(process, found.host, lines)
        findings.ranks += [failure] if failure is not None else []
        findings.last_lines[process] = lines[-1] if lines else ""
    findings.begun = min(begun, default="")
    return findings


def summary(stack: str, found: Sequence[HostEvidence], findings: Findings) -> str:
    """The page that is read first."""
    first = findings.first
    missing = [each for each in found if each.error is not None]
    stamp = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime())
    lines = [f"# {stack}: evidence of {stamp} UTC", "", "## First failure", ""]
    if first is None:
        lines.append(
            "No line of any process, and none of a kernel since the last start, tells of a failure."
        )
    else:
        lines += [f"{first.at} {first.place}", "", f"    {first.line}"]
    for each in missing:
        lines += ["", f"Not whole: {each.host}: {each.error.what if each.error else ''}"]
    lines += ["", "## Every process: its first failure, else its last line", ""]
    told = {failure.place: f"{failure.at} {failure.line}" for failure in findings.ranks}
    for each in found:
        known = each.processes or tuple(
            process for process in findings.last_lines if process.startswith(f"{each.host}/")
        )
        lines += [
            f"- {p} ({each.host}): {told.get(p) or findings.last_lines.get(p) or 'no line'}"
            for p in known
        ]
    lines += ["", "## Kernels", ""]
    lines += [
        f"- {failure.at} {failure.place}: {failure.line}"
        for failure in findings.kernels[-MAX_NAMED:]
    ]
    lines += [] if findings.kernels else ["Nothing."]
    lines += _told_by_nccl(findings.collectives)
    left_out = [f"- {each.host}: {', '.join(each.left_out)}" for each in found if each.left_out]
    lines += ["", "## Left out for want of time", "", *left_out] if left_out else []
    lines += [
        "",
        "Secrets are masked as `***`: values of the stack's credentials, of variables that are named",
        "like secrets, and what looks like a key.",
    ]
    return "\n".join(lines) + "\n"


def _told_by_nccl(collectives: Mapping[str, tuple[str, ...]]) -> list[str]:
    """What NCCL finds wrong with its jobs; places that say the same, as all hosts of a job do, are named together."""
    said: dict[tuple[str, ...], list[str]] = {}
    for at, lines in collectives.items():
        said.setdefault(lines, []).append(at)
    rows = []
    for lines, places in said.items():
        if lines:
            rows += ["", f"{', '.join(places)}:", "", *(f"    {line}" for line in lines)]
    return ["", "## What NCCL says of its jobs", *rows] if rows else []


def _members(found: HostEvidence) -> Iterator[tuple[str, bytes]]:
    """The files of a host's part; as far as they came, where it broke off."""
    if found.part is not None and found.part.exists():
        yield from read_part(found.part)
