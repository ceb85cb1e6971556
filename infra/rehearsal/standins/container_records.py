"""What `docker ps` knows: one folder per container until the next boot."""

from __future__ import annotations

import errno
import fcntl
import os
import time

from .documents import read_document, write_document
from .failures import Refusal
from .host_state import run_folder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    Record = dict[str, Any]

EXIT_CODE_WHEN_UNSEEN = 137


def containers_folder() -> str:
    """Return where the records lie."""
    return run_folder() + "/containers"


def record_folder(container_id: str) -> str:
    """Return the folder of one container."""
    return f"{containers_folder()}/{container_id}"


def add_record(record: Record) -> None:
    """Store a new container, and with that take its name.

    Clients take turns, as a daemon has them do: nothing but a whole record takes a name, so that a client that is
    killed in between leaves the name free.

    Raises:
        Refusal: another container has the name, running or not.
    """
    os.makedirs(containers_folder(), mode=0o755, exist_ok=True)
    turn = os.open(containers_folder(), os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(turn, fcntl.LOCK_EX)
        for other in list_records():
            if other["name"] == record["name"]:
                raise Refusal("name_in_use", name=other["name"], id=other["id"])
        os.mkdir(record_folder(record["id"]), 0o700)
        write_record(record)
    finally:
        os.close(turn)


def write_record(record: Record) -> bool:
    """Store the present state of a container, unless another client has removed it; return whether it is there."""
    try:
        write_document(record_folder(record["id"]) + "/record.json", record)
    except FileNotFoundError:
        return False
    return True


def remove_record(record: Record) -> None:
    """Forget a container, which frees its name, in one step: other clients may remove and write it meanwhile."""
    gone = f"{run_folder()}/removed-{record['id']}"
    try:
        os.rename(record_folder(record["id"]), gone)
    except FileNotFoundError:  # another client was first
        return
    while True:  # a client that was about to write there may still do so
        for name in os.listdir(gone):
            try:
                os.unlink(f"{gone}/{name}")
            except FileNotFoundError:
                continue
        try:
            os.rmdir(gone)
        except OSError as error:
            if error.errno != errno.ENOTEMPTY:
                raise
        else:
            return


def list_records() -> list[Record]:
    """Return every container, newest first, with the state that its process is really in."""
    records: list[Record] = []
    try:
        names = os.listdir(containers_folder())
    except FileNotFoundError:
        return records
    for name in names:
        try:
            record = read_document(f"{containers_folder()}/{name}/record.json")
        except (FileNotFoundError, NotADirectoryError):
            continue
        settled = _settle(record)
        if settled is not None:
            records.append(settled)
    records.sort(key=_age, reverse=True)
    return records


def find_record(reference: str) -> Record:
    """Return the container that a name, an id or the beginning of an id means.

    Raises:
        Refusal: there is none.
    """
    wanted = reference.lstrip("/")
    records = list_records()
    for record in records:
        if wanted in (record["name"], record["id"]):
            return record
    for record in records:
        if wanted and record["id"].startswith(wanted):
            return record
    raise Refusal("container_unknown", reference=reference)


def is_running(record: Record) -> bool:
    """Return whether the container's first process lives."""
    return (
        bool(record["status"] == "running") and process_start(record["pid"]) == record["pid_start"]
    )


def process_start(pid: int) -> str:
    """Return when a process started, in clock ticks since boot; "" when there is no such process."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            fields = file.read().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return ""
    return "" if fields[0] in ("Z", "X") else fields[19]


def timestamp() -> str:
    """Return the present time as the daemon writes it."""
    now = time.time()
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now)) + f".{int(now % 1 * 1e9):09d}Z"


def _age(record: Record) -> str:
    """Return what containers are ordered by."""
    created: str = record["created_at"]
    return created


def _settle(record: Record) -> Record | None:
    """Return a record whose process ended unseen as exited, or None when it was to leave then, or has."""
    if record["status"] != "running" or is_running(record):
        return record
    if process_start(record["client_pid"]) == record["client_start"]:
        return record
    if record["auto_remove"]:
        remove_record(record)
        return None
    record.update(status="exited", exit_code=EXIT_CODE_WHEN_UNSEEN, finished_at=timestamp())
    return record if write_record(record) else None
