"""The docker and podman commands that change a container: stop, kill, rm, wait, and pull."""

from __future__ import annotations

import os
import time

from . import images
from .container_records import (
    find_record,
    is_running,
    list_records,
    process_start,
    remove_record,
    timestamp,
    write_record,
)
from .failures import CommandFailure, Refusal, command_failure
from .host_state import read_host

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal as _signal
    from collections.abc import Callable

    from .container_records import Record
    from .flags import ParsedFlags
else:
    import _signal

POLL_INTERVAL_S = 0.02
REMOVAL_LIMIT_S = 5.0
LAST_SIGNAL = 64


def stop_containers(program: str, flags: ParsedFlags) -> int:
    """Do `stop`: ask, wait, then kill."""
    signal_name = flags.last("signal")
    limit = flags.last("timeout") or flags.last("time")

    def stop(reference: str) -> None:
        record = find_record(reference)
        if not is_running(record):
            return
        number = signal_number(signal_name or record["stop_signal"])
        _send(record, number)
        limit_s = float(limit) if limit else float(record["stop_timeout_s"])
        if not _ends_within(record, limit_s):
            _send(record, _signal.SIGKILL)
            _ends_within(record, REMOVAL_LIMIT_S)

    return _for_each(program, flags.words, stop)


def kill_containers(program: str, flags: ParsedFlags) -> int:
    """Do `kill`."""
    number = signal_number(flags.last("signal", "SIGKILL"))

    def kill(reference: str) -> None:
        record = find_record(reference)
        if not is_running(record):
            raise Refusal("container_not_running", reference=reference, id=record["id"])
        _send(record, number)
        if number == _signal.SIGKILL:
            _ends_within(record, REMOVAL_LIMIT_S)

    return _for_each(program, flags.words, kill)


def remove_containers(program: str, flags: ParsedFlags) -> int:
    """Do `rm`."""
    force = flags.has("force")
    exit_code = 0
    for reference in flags.words:
        try:
            _remove_one(reference, force=force)
        except Refusal as refusal:
            failure = command_failure(program, refusal)
            os.write(2, (failure.text + "\n").encode())
            if refusal.situation != "container_unknown" or not force:
                exit_code = failure.exit_code
        else:
            print(reference)
    return exit_code


def force_removal(name: str) -> None:
    """Remove a container of this name, running or not, if there is one."""
    for record in list_records():
        if record["name"] == name:
            _remove(record)


def await_containers(program: str, flags: ParsedFlags) -> int:
    """Do `wait`: print the exit code of each container once it has ended."""

    def wait(reference: str) -> None:
        record = find_record(reference)
        while True:
            try:
                record = find_record(record["id"])
            except Refusal:
                break
            if record["status"] != "running":
                break
            time.sleep(POLL_INTERVAL_S)
        print(record["exit_code"])

    return _for_each(program, flags.words, wait, prints_name=False)


def pull(program: str, flags: ParsedFlags) -> int:
    """Do `pull`: only what `host.json` lists under `pullable` is within reach."""
    reference = flags.words[0]
    name, tag, _ = images.split_reference(reference)
    if "@" not in reference and ":" not in reference.rpartition("/")[2] and not flags.has("quiet"):
        print("Using default tag: latest")
    try:
        image = images.pull_image(read_host(), reference)
    except Refusal as refusal:
        raise command_failure(program, refusal) from None
    if not flags.has("quiet"):
        print(f"{tag}: Pulling from {name}\nDigest: {image['digest']}")
        print(f"Status: Image is up to date for {name}:{tag}")
    print(f"docker.io/{name}:{tag}" if "." not in name.partition("/")[0] else f"{name}:{tag}")
    return 0


def signal_number(name: str) -> int:
    """Return the number of a signal given as 15, TERM or SIGTERM.

    Raises:
        CommandFailure: there is no such signal.
    """
    if name.isdigit() and 0 < int(name) <= LAST_SIGNAL:
        return int(name)
    number = getattr(_signal, "SIG" + name.upper().removeprefix("SIG"), None)
    if not isinstance(number, int):
        raise CommandFailure(f"Error response from daemon: invalid signal: {name}", 1)
    return number


def _for_each(
    program: str, references: list[str], act: Callable[[str], None], *, prints_name: bool = True
) -> int:
    """Act on each container and print its name; failures are reported and the rest goes on."""
    exit_code = 0
    for reference in references:
        try:
            act(reference)
        except Refusal as refusal:
            failure = command_failure(program, refusal)
            os.write(2, (failure.text + "\n").encode())
            exit_code = failure.exit_code
            continue
        if prints_name:
            print(reference)
    return exit_code


def _send(record: Record, number: int) -> None:
    """Signal the first process of a container."""
    try:
        os.kill(record["pid"], number)
    except ProcessLookupError:
        return


def _ends_within(record: Record, limit_s: float) -> bool:
    """Return whether a container has ended, its record included, before the limit."""
    deadline = time.monotonic() + limit_s
    while True:
        client_lives = process_start(record["client_pid"]) == record["client_start"]
        if not is_running(record) and (not client_lives or _is_settled(record)):
            return True
        if time.monotonic() >= deadline:
            return False
        time.sleep(POLL_INTERVAL_S)


def _is_settled(record: Record) -> bool:
    """Return whether the container's own client has recorded its end."""
    for present in list_records():
        if present["id"] == record["id"]:
            return bool(present["status"] != "running")
    return True


def _remove_one(reference: str, *, force: bool) -> None:
    """Remove the container that a reference means.

    Raises:
        Refusal: there is none, or it runs and nobody forces.
    """
    record = find_record(reference)
    if is_running(record) and not force:
        raise Refusal("container_running", name=record["name"], id=record["id"])
    _remove(record)


def _remove(record: Record) -> None:
    """Kill what runs and forget the container."""
    if is_running(record):
        _send(record, _signal.SIGKILL)
        _ends_within(record, REMOVAL_LIMIT_S)
    if record["status"] == "running":
        record.update(status="exited", finished_at=timestamp())
        if not write_record(record):
            return
    remove_record(record)
