"""Which labs run on this machine, in a runtime folder, so that other processes find them."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
from dataclasses import asdict, dataclass
from pathlib import Path

_PROCESSES = "processes"
_MACHINE_VALUES = "machine-values.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class LabEntry:
    """One running lab.

    Args:
        id: short name; also that of its folder in the registry.
        directory: the lab's files; removed with it.
        pid: the supervisor.
        start_ticks: when that process started (clock ticks since boot), so that a reused pid is not
            taken for it.
        kept: whether it outlives its starter.
        created: seconds since the epoch.
        num_hosts: hosts that it has booted or is about to boot.
    """

    id: str
    directory: str
    pid: int
    start_ticks: int
    kept: bool
    created: float
    num_hosts: int


def runtime_folder() -> Path:
    """/run/moe-infra/rehearsals for root, else a folder of the user's own."""
    if os.geteuid() == 0:
        return Path("/run/moe-infra/rehearsals")
    parent = os.environ.get("XDG_RUNTIME_DIR") or f"/run/user/{os.geteuid()}"
    return Path(parent, "moe-infra/rehearsals")


def control_socket(lab_id: str) -> Path:
    """Where a lab listens; a short path, as unix sockets need one."""
    return runtime_folder() / lab_id / "control"


def start_ticks(pid: int) -> int | None:
    """When a process started, in clock ticks since boot; None when there is none, or a zombie."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()  # from field 3, the state
    return None if fields[0] in "ZX" else int(fields[19])


def record(entry: LabEntry) -> None:
    """Write or replace an entry."""
    folder = runtime_folder() / entry.id
    while not folder.is_dir():
        with contextlib.suppress(FileNotFoundError):  # another lab just removed the empty registry
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    new = folder / "lab.json.new"
    new.write_text(json.dumps(asdict(entry)))
    new.rename(folder / "lab.json")


def note_machine_value(path: Path, text: str) -> None:
    """Remember what a file of the machine held before the first lab changed it."""
    note = runtime_folder() / _MACHINE_VALUES
    values = json.loads(note.read_text()) if note.exists() else {}
    note.write_text(json.dumps({str(path): text} | values))


def forget(lab_id: str) -> None:
    """Remove an entry; with the last one, put the machine's values back and the registry away."""
    folder = runtime_folder()
    shutil.rmtree(folder / lab_id, ignore_errors=True)
    note = folder / _MACHINE_VALUES
    if note.exists() and not any(map(is_running, read_entries())):
        for path, text in json.loads(note.read_text()).items():
            Path(path).write_text(text)
        note.unlink(missing_ok=True)
    for empty in (folder, folder.parent):
        try:
            empty.rmdir()
        except OSError:
            return


def read_entries() -> tuple[LabEntry, ...]:
    """Every entry, running or stale, oldest first."""
    entries = []
    for path in runtime_folder().glob("*/lab.json"):
        try:
            entries.append(LabEntry(**json.loads(path.read_text())))
        except (OSError, ValueError, TypeError):
            continue  # removed meanwhile, or left by a crash in the middle of writing
    return tuple(sorted(entries, key=lambda entry: entry.created))


def is_running(entry: LabEntry) -> bool:
    """Whether the supervisor of an entry lives."""
    return start_ticks(entry.pid) == entry.start_ticks


def note_process(lab_id: str, pid: int) -> None:
    """Remember a process outside the lab that ends with it, for whoever finds that its supervisor was killed."""
    with (runtime_folder() / lab_id / _PROCESSES).open("a", encoding="ascii") as file:
        file.write(f"{pid} {start_ticks(pid)}\n")


def remove_stale() -> None:
    """End the processes and remove the files of labs whose supervisor was killed."""
    for entry in read_entries():
        if not is_running(entry):
            _end_processes(runtime_folder() / entry.id / _PROCESSES)
            shutil.rmtree(entry.directory, ignore_errors=True)
            forget(entry.id)


def _end_processes(note: Path) -> None:
    """Kill what a note names, unless another process has the number by now."""
    for line in note.read_text(encoding="ascii").splitlines() if note.exists() else ():
        pid, _, ticks = line.partition(" ")
        with contextlib.suppress(ProcessLookupError):
            pidfd = os.pidfd_open(int(pid))
            try:
                if str(start_ticks(int(pid))) == ticks:
                    signal.pidfd_send_signal(pidfd, signal.SIGKILL)
            finally:
                os.close(pidfd)
