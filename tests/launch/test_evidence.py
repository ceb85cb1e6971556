"""Evidence of several hosts: the first failure over all of them, one archive, and hosts that do not answer."""

from __future__ import annotations

import io
import tarfile
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from infra.errors import StackError
from infra.launch.evidence import HostEvidence, collect, knows_stack, write_archive
from infra.launch.first_failure import (
    Failure,
    first_failure,
    journal_failure,
    kernel_failures,
    run_begun,
)
from infra.remote.failures import LostConnection, Unreachable

DAY = "2026-11-20T14:00:"
STARTED = f"{DAY}00.000000Z Started moe-s-engine@0.service - engine 0."
OOM = f"{DAY}05.500000Z torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB"
ENDED = (
    f"{DAY}09.000000Z moe-s-engine@0.service: Main process exited, code=exited, status=1/FAILURE"
)


def packed(**files: str) -> bytes:
    sink = io.BytesIO()
    with tarfile.open(fileobj=sink, mode="w:gz") as archive:
        for name, text in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(text.encode())
            archive.addfile(member, io.BytesIO(text.encode()))
    return sink.getvalue()


class Answer:
    """A host's stream: chunks, or a failure after some of them."""

    def __init__(self, *chunks: bytes | Exception, waits_s: float = 0.0) -> None:
        self.pieces, self.waits_s = chunks, waits_s
        self.report: Mapping[str, object] = {"processes": [{"id": "a/0", "role": "x"}]}

    def chunks(self) -> Iterator[bytes]:
        threading.Event().wait(self.waits_s)
        for piece in self.pieces:
            if isinstance(piece, Exception):
                raise piece
            yield piece

    def close(self) -> None:
        pass


def test_the_first_error_of_the_last_run_is_a_ranks_failure() -> None:
    earlier = f"{DAY}00.000000Z ValueError: of a run before".replace("14:", "13:")
    lines = [earlier, STARTED, f"{DAY}01.000000Z INFO fine", OOM, ENDED]
    found = journal_failure("decode-0/3", "decode-0", lines)
    assert found is not None
    assert (found.at, found.place) == (f"{DAY}05.500000", "decode-0/3")
    assert found.line.startswith("torch.OutOfMemoryError")


def test_an_end_without_words_is_a_failure_too() -> None:
    found = journal_failure("a/0", "a", [STARTED, ENDED])
    assert found is not None
    assert "status=1/FAILURE" in found.line
    stopped = ENDED.replace("status=1/FAILURE", "status=0/SUCCESS")
    assert journal_failure("a/0", "a", [STARTED, stopped]) is None
    assert journal_failure("a/0", "a", []) is None


def test_a_line_that_points_at_another_is_none() -> None:
    lines = [
        STARTED,
        f"{DAY}07.000000Z RuntimeError: Engine core initialization failed. See root cause above.",
        f"{DAY}08.000000Z WARNING cannot find a tuned kernel: a default is used",
    ]
    assert journal_failure("a/0", "a", lines) is None


def test_a_kernels_line_before_the_run_tells_nothing_of_it() -> None:
    lines = [
        f"{DAY}01.000000+0000 host kernel: NVRM: Xid (PCI:0000:18:00): 79, GPU has fallen off the bus.",
        f"{DAY}02.000000+0000 host kernel: usb 1-1: new device",
    ]
    kernels = kernel_failures("h", lines)
    assert [failure.place for failure in kernels] == ["kernel of h"]
    rank = journal_failure("a/0", "a", [STARTED, OOM])
    assert rank is not None
    first = first_failure([rank], kernels, run_begun([STARTED]))
    assert first is not None
    assert "Xid" in first.line
    long_after = Failure("2026-11-20T15:00:00.000000", "a/0", "ValueError: another day's", "a")
    assert first_failure([rank, long_after], kernels, "") == long_after
    assert first_failure([], kernels, f"{DAY}03.000000") is None
    assert first_failure([], kernels, f"{DAY}00.000000") == kernels[0]


def test_a_run_that_goes_well_does_not_hide_the_one_that_failed() -> None:
    again = STARTED.replace("00.000000Z", "20.000000Z")
    found = journal_failure("a/0", "a", [STARTED, OOM, ENDED, again, f"{DAY}21.000000Z INFO fine"])
    assert found is not None
    assert "OutOfMemory" in found.line


def run(begun: str, failed: str) -> list[str]:
    """A start, and an error at a minute and second."""
    return [STARTED.replace("00:00.0", f"{begun}.0"), OOM.replace("00:05.5", f"{failed}.5")]


@pytest.mark.parametrize(
    ("router", "first"),
    [
        ([*run("00:00", "00:29"), STARTED.replace("00:00.0", "00:30.0")], "a/0"),  # mended before
        ([*run("00:00", "05:01"), STARTED.replace("00:00.0", "05:03.0")], "router/0"),
        (run("00:00", "00:29"), "router/0"),  # nobody has started it again
    ],
    ids=["before", "together", "ended"],
)
def test_what_had_been_started_again_before_is_another_incident(
    router: list[str], first: str
) -> None:
    failures = [
        journal_failure("router/0", "b", router),
        journal_failure("a/0", "a", run("05:00", "05:04")),
    ]
    found = first_failure([each for each in failures if each is not None], [], "")
    assert found is not None
    assert found.place == first


KILLED = "Out of memory: Killed process 7 (vllm-router)"
LOST = "NVRM: Xid (PCI:0000:18:00): 79, GPU has fallen off the bus."


@pytest.mark.parametrize(
    ("host", "at", "said", "first"),
    [
        ("b", "00:29", KILLED, "a/0"),  # the router, which has been started again
        ("b", "00:29", LOST, "a/0"),  # nothing on its host fails by now
        ("b", "03:00", KILLED, "kernel of b"),
        ("a", "00:29", LOST, "kernel of a"),  # nothing has been started again there
    ],
)
def test_what_a_kernel_said_before_the_starts_on_its_host_is_another_incident(
    host: str, at: str, said: str, first: str
) -> None:
    router = [*run("00:00", "00:29"), STARTED.replace("00:00.0", "00:30.0")]
    failures = [
        journal_failure("router/0", "b", router),
        journal_failure("a/0", "a", run("05:00", "05:04")),
    ]
    kernels = kernel_failures(host, [f"2026-11-20T14:{at}.000000+0000 {host} kernel: {said}"])
    found = first_failure([each for each in failures if each is not None], kernels, "")
    assert found is not None
    assert found.place == first


@pytest.mark.parametrize(("said", "first"), [(KILLED, "a/0"), (LOST, "kernel of a")])
def test_a_start_on_a_host_mends_no_device_of_a_process_that_fails_there(
    said: str, first: str
) -> None:
    router = [*run("00:00", "00:29"), STARTED.replace("00:00.0", "00:30.0")]
    failures = [
        journal_failure("router/0", "a", router),
        journal_failure("a/0", "a", run("05:00", "05:04")),
    ]
    kernels = kernel_failures("a", [f"2026-11-20T14:00:29.000000+0000 a kernel: {said}"])
    found = first_failure([each for each in failures if each is not None], kernels, "")
    assert found is not None
    assert found.place == first


def test_one_archive_begins_with_a_summary_that_names_the_first_failure(tmp_path: Path) -> None:
    later = OOM.replace("05.5", "08.5").replace("OutOfMemory", "Connection")
    answers = {
        "h0": Answer(packed(**{"ranks/h0_0/journal.txt": f"{STARTED}\n{later}\n"})),
        "h1": Answer(packed(**{"ranks/h1_0/journal.txt": f"{STARTED}\n{OOM}\n", "../x": "no"})),
    }
    (tmp_path / "parts").mkdir()
    found = collect(lambda host, _: answers[host], list(answers), "s", tmp_path / "parts")
    findings = write_archive(tmp_path / "b.tar.gz", "s", found)
    assert findings.first is not None
    assert (findings.first.place, findings.first.at) == ("h1/0", f"{DAY}05.500000")
    with tarfile.open(tmp_path / "b.tar.gz") as archive:
        names = archive.getnames()
        text = archive.extractfile("s/summary.md")
        assert text is not None
        assert b"OutOfMemoryError" in text.read().split(b"## Every")[0]
    assert names == ["s/summary.md", "s/h0/ranks/h0_0/journal.txt", "s/h1/ranks/h1_0/journal.txt"]
    assert (tmp_path / "b.tar.gz").stat().st_mode & 0o777 == 0o600


def test_what_hosts_wrote_commands_no_terminal_that_shows_the_archive(tmp_path: Path) -> None:
    hostile = "\x1b]0;mine\x07\x1b[2J\u202e\r"
    files = {
        "ranks/h0_0/journal.txt": f"{STARTED}\n{OOM}{hostile}{ENDED}\n",
        f"host/{hostile}.txt": hostile,
    }
    (tmp_path / "parts").mkdir()
    found = collect(lambda _host, _: Answer(packed(**files)), ["h0"], "s", tmp_path / "parts")
    findings = write_archive(tmp_path / "b.tar.gz", "s", found)
    assert findings.last_lines["h0/0"] == f"{OOM}{hostile}{ENDED}"  # a return ends no line
    with tarfile.open(tmp_path / "b.tar.gz") as archive:
        for member in archive:
            file = archive.extractfile(member)
            assert file is not None
            shown = member.name + file.read().decode()
            assert shown.replace("\n", "").isprintable()
            assert r"\x1b]0;mine\x07\x1b[2J\u202e\x0d" in shown


def test_what_was_kept_of_an_epoch_before_is_no_process_of_this_one(tmp_path: Path) -> None:
    before = OOM.replace("14:", "13:").replace("torch", "moe-s-engine@0.service: torch")
    files = {
        "ranks/h0_0/journal.txt": f"{STARTED}\n{OOM}\n",
        "host/earlier/unified-0-3/journal.txt": before + "\n",
    }
    (tmp_path / "parts").mkdir()
    found = collect(lambda _host, _: Answer(packed(**files)), ["h0"], "s", tmp_path / "parts")
    findings = write_archive(tmp_path / "b.tar.gz", "s", found)
    assert [failure.place for failure in findings.ranks] == ["h0/0"]
    assert list(findings.last_lines) == ["h0/0"]
    assert findings.begun == f"{DAY}00.000000"


def test_a_host_that_breaks_off_or_is_down_is_stated_and_the_rest_is_kept(tmp_path: Path) -> None:
    whole = packed(**{"ranks/h0_0/journal.txt": f"{STARTED}\n{OOM}\n" * 5000})
    answers = {
        "h0": Answer(whole),
        "h1": Answer(whole[:400], LostConnection("h1", "it is gone.", "")),
    }

    def ask(host: str, _: Mapping[str, object]) -> Answer:
        if host == "h2":
            raise Unreachable("h2", "h2 does not answer.", "Look.")
        return answers[host]

    (tmp_path / "parts").mkdir()
    found = collect(ask, ["h0", "h1", "h2"], "s", tmp_path / "parts")
    write_archive(tmp_path / "b.tar.gz", "s", found)
    assert [each.error is None for each in found] == [True, False, False]
    with tarfile.open(tmp_path / "b.tar.gz") as archive:
        text = archive.extractfile("s/summary.md")
        assert text is not None
        summary = text.read().decode()
    assert "Not whole: h1: it is gone." in summary
    assert "Not whole: h2: h2 does not answer." in summary
    assert "OutOfMemoryError" in summary


def test_a_host_that_hangs_is_not_waited_for(
    tmp_path: Path,
) -> None:
    begun = time.monotonic()
    found: list[HostEvidence] = collect(
        lambda _host, _request: Answer(waits_s=2.0), ["h0"], "s", tmp_path, answer_s=0.2
    )
    assert time.monotonic() - begun < 1.5
    assert found[0].error is not None
    assert "not whole within" in found[0].error.what


@pytest.mark.parametrize(
    ("processes", "file", "is_known"),
    [
        ((), "host/kernel.log", False),
        (("a/0",), "host/kernel.log", True),
        ((), "host/files/release.json", True),
        ((), "host/earlier/decode_0-3/summary.json", True),  # `down` leaves it there
    ],
)
def test_a_stack_is_known_by_what_lies_on_a_host(
    processes: tuple[str, ...], file: str, is_known: bool, tmp_path: Path
) -> None:
    part = tmp_path / "part.tar.gz"
    part.write_bytes(packed(**{file: "x"}))
    found = HostEvidence("a", part=part, processes=processes)
    assert knows_stack([HostEvidence("b"), found]) is is_known


def test_a_host_out_of_reach_may_know_the_stack() -> None:
    away = HostEvidence("a", error=Unreachable("a", "a does not answer.", "Look at it."))
    assert knows_stack([away])


def test_an_archive_that_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    target = tmp_path / "b.tar.gz"
    target.mkdir()
    with pytest.raises(StackError, match="Is a directory"):
        write_archive(target, "s", [HostEvidence("a")])
    assert list(tmp_path.iterdir()) == [target]


def test_an_archive_is_its_owners_even_beside_what_another_run_has_left(tmp_path: Path) -> None:
    target = tmp_path / "b.tar.gz"
    target.touch(mode=0o644)
    write_archive(target, "s", [HostEvidence("a")])
    assert target.stat().st_mode & 0o777 == 0o600
    assert list(tmp_path.iterdir()) == [target]


LATE = """\
Job summary
===========

Errors
======

Warnings
========

#0-0 (7385783243cd44ee) MISMATCH
  Rank 1 has launched up to operation 3 -- GPU 0 managed by process 1945 on node 192.0.2.2
"""


def test_what_nccl_says_of_a_job_that_hangs_is_in_the_summary_once(tmp_path: Path) -> None:
    def stream(host: str, request: Mapping[str, object]) -> Answer:
        del request
        return Answer(packed(**{"host/nccl-ras-28028.txt": LATE if host != "c" else "c: refused"}))

    found = collect(stream, ["a", "b", "c"], "s", tmp_path)
    write_archive(tmp_path / "bundle.tar.gz", "s", found)
    with tarfile.open(tmp_path / "bundle.tar.gz") as archive:
        file = archive.extractfile("s/summary.md")
        assert file is not None
        text = file.read().decode()
    part = text.partition("## What NCCL says of its jobs\n")[2].partition("\nSecrets")[0]
    at = "a (host/nccl-ras-28028.txt), b (host/nccl-ras-28028.txt):"
    said = "\n".join(f"    {line}" for line in LATE.splitlines()[-2:])
    assert part == f"\n{at}\n\n{said}\n"
