"""Labs come and go: start one, find those that run, stop a kept one."""

from __future__ import annotations

import json
import os
import secrets
import select
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from infra.rehearsal.lab import registry
from infra.rehearsal.lab.client import HALF_OF_MEMORY, Lab
from infra.rehearsal.lab.errors import LabError, explain
from infra.rehearsal.lab.hosts import LabHost, Strangers
from infra.rehearsal.lab.prerequisites import check_prerequisites
from infra.rehearsal.lab.supervisor import READY_REPORT_FD

LOG = "lab.log"
_PROJECT = Path(__file__).parents[3]
_PROGRAM = """\
import sys
sys.path.insert(0, sys.argv[1])
from infra.rehearsal.lab.supervisor import main
main(sys.argv[2:])
"""
_ENVIRONMENT = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "LC_ALL": "C.UTF-8",
}
_START_LIMIT_S = 30.0
_LOG_LINES = 5
_FORBIDDEN_IN_PATHS = ",:\\\n"  # they separate the options of an overlay mount


def open_lab(directory: Path, *, lab_id: str | None = None) -> Lab:
    """Start a lab that has no hosts yet, and that ends with this process, however it ends.

    Args:
        directory: the lab's folder, absent or empty. It is the lab's from now on: whatever lies in
            it when the lab ends is removed with it.
        lab_id: how it is listed; default: six random characters.

    Raises:
        LabError: something is missing on this machine; nothing was started.
    """
    check_prerequisites()
    directory = directory.absolute()
    if any(character in str(directory) for character in _FORBIDDEN_IN_PATHS):
        raise LabError(
            str(directory), "has a comma, colon or backslash in it.", "Choose another folder."
        )
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        is_empty = not any(directory.iterdir())
    except OSError as error:
        raise explain(error, str(directory)) from error
    if not is_empty:
        raise LabError(str(directory), "is not empty.", "Name a folder that can be the lab's own.")
    name = lab_id or secrets.token_hex(3)
    try:
        pid, report = _spawn(directory, name)
    except OSError as error:
        shutil.rmtree(directory, ignore_errors=True)
        raise explain(error, str(directory)) from error
    _hear(report, pid, directory)
    return Lab(next(entry for entry in registry.read_entries() if entry.id == name))


def start_lab(
    directory: Path,
    hosts: Sequence[LabHost],
    *,
    lab_id: str | None = None,
    disk: str = HALF_OF_MEMORY,
    strangers: Strangers = "no",
) -> Lab:
    """`open_lab` and `Lab.boot`: all hosts are powered on; `wait_ready` waits for them."""
    lab = open_lab(directory, lab_id=lab_id)
    lab.boot(hosts, disk=disk, strangers=strangers)
    return lab


def list_labs() -> tuple[registry.LabEntry, ...]:
    """Every lab that runs on this machine, kept or not; what is left of dead ones is removed."""
    registry.remove_stale()
    return registry.read_entries()


def attach_lab(lab_id: str) -> Lab:
    """A lab that another process started.

    Raises:
        LabError: none of that id runs.
    """
    entries = list_labs()
    for entry in entries:
        if entry.id == lab_id:
            return Lab(entry)
    known = ", ".join(entry.id for entry in entries) or "none"
    raise LabError(f"lab {lab_id}", "does not run.", f"Running: {known}.")


def stop_lab(lab_id: str) -> None:
    """Stop a lab that another process started and kept.

    Raises:
        LabError: none of that id runs.
    """
    attach_lab(lab_id).stop()


def _spawn(directory: Path, lab_id: str) -> tuple[int, int]:
    """The supervisor's process id, and where to hear from it.

    A session of its own, so that Ctrl-C reaches only its starter.
    """
    report_read, report_write = os.pipe()
    log = os.open(directory / LOG, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    nothing = os.open("/dev/null", os.O_RDONLY)
    python = os.path.realpath(sys.executable)
    program = [python, "-I", "-S", "-c", _PROGRAM, str(_PROJECT)]
    try:
        pid = os.posix_spawn(
            python,
            [*program, lab_id, str(directory), str(os.getpid())],
            _ENVIRONMENT,
            file_actions=[
                (os.POSIX_SPAWN_DUP2, nothing, 0),
                (os.POSIX_SPAWN_DUP2, log, 1),
                (os.POSIX_SPAWN_DUP2, log, 2),
                (os.POSIX_SPAWN_DUP2, report_write, READY_REPORT_FD),
            ],
            setsid=True,
            setsigmask=[],
        )
    finally:
        for descriptor in (log, nothing, report_write):
            os.close(descriptor)
    return pid, report_read


def _hear(report: int, pid: int, directory: Path) -> None:
    """Wait until the lab answers requests.

    Raises:
        LabError: it could not be started; nothing is left.
    """
    log = directory / LOG
    with os.fdopen(report, "rb") as channel:
        poll = select.poll()
        poll.register(channel, select.POLLIN)
        answer = channel.readline() if poll.poll(_START_LIMIT_S * 1000) else b""
    if not answer:
        lines = log.read_text().splitlines() if log.exists() else []
        raise LabError(
            f"lab in {directory}",
            f"did not start: {' | '.join(lines[-_LOG_LINES:]) or 'no word from it'}.",
            "Report this; it is a bug of the lab.",
        )
    error = json.loads(answer).get("error")
    if error:
        os.waitpid(pid, 0)
        raise LabError(error["where"], error["what"], error["fix"])
