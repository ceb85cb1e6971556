"""The lab's outer process: it lives as long as the lab, and takes everything away at the end.

It ends when its starter does (unless the lab is kept), on SIGTERM, or when the lab itself ends. All
simulated hosts live in a process namespace of its child, so that one SIGKILL ends them; their mounts
and network vanish with them. What remains for it are control groups, files and the registry's entry.
"""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import socket
import sys
import time
import traceback
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NoReturn

from infra.rehearsal.lab import cgroups, control, first_process, linux, registry
from infra.rehearsal.lab.errors import LabError, explain
from infra.rehearsal.lab.linux import Namespace

READY_REPORT_FD = 3
"""Descriptor on which the starter hears of success (`{}`) or failure."""


@dataclass(slots=True, kw_only=True)
class _Supervision:
    """What the supervisor holds while the lab runs."""

    entry: registry.LabEntry
    cgroup_root: int
    inner: int
    inner_pidfd: int
    channel: socket.socket
    to_end: list[int] = field(default_factory=list)


def main(arguments: list[str]) -> None:
    """Run a lab: id, directory, the starter's process id."""
    lab_id, directory, starter = arguments[0], Path(arguments[1]), int(arguments[2])
    asked_to_end = _catch_signals()
    starter_pidfd = os.pidfd_open(starter)
    if os.getppid() != starter:
        return  # it died before we could watch it
    os.umask(0o022)
    os.chdir("/")
    try:
        supervision = _start(lab_id, directory)
    except (LabError, OSError) as error:
        _clean_files(lab_id, directory)
        _report_failure(explain(error, str(directory)))
        sys.exit(1)
    try:
        _watch(supervision, starter_pidfd, asked_to_end)
    finally:
        _end(supervision)


def _catch_signals() -> socket.socket:
    """A socket that is readable once somebody asked this process to end."""
    woken, waker = socket.socketpair()
    waker.settimeout(0)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda _number, _frame: None)
    signal.set_wakeup_fd(os.dup(waker.fileno()))
    return woken


def _start(lab_id: str, directory: Path) -> _Supervision:
    registry.remove_stale()
    entry = registry.LabEntry(
        id=lab_id,
        directory=str(directory),
        pid=os.getpid(),
        start_ticks=registry.start_ticks(os.getpid()) or 0,
        kept=False,
        created=time.time(),
        num_hosts=0,
    )
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    registry.record(entry)
    linux.unshare(Namespace.MOUNT | Namespace.NET)
    linux.keep_mounts_to_ourselves()
    cgroup_root = cgroups.open_root(directory)
    _remove_stale_groups(cgroup_root)
    group = cgroups.make(cgroup_root, cgroups.PREFIX + lab_id)
    ours, theirs = socket.socketpair()
    linux.unshare(Namespace.PID)
    inner = os.fork()
    if inner == 0:
        ours.close()
        _be_inside(lab_id, directory, group, theirs)
    theirs.close()
    os.close(READY_REPORT_FD)
    return _Supervision(
        entry=entry,
        cgroup_root=cgroup_root,
        inner=inner,
        inner_pidfd=os.pidfd_open(inner),
        channel=ours,
    )


def _be_inside(lab_id: str, directory: Path, group: int, channel: socket.socket) -> NoReturn:
    """The child: PID 1 of the lab's process namespace."""
    try:
        linux.die_with_parent()
        linux.unshare(Namespace.MOUNT)
        linux.mount("proc", "/proc", "proc")
        lab = first_process.FirstProcess(directory, group, channel)
        lab.listen(registry.control_socket(lab_id))
        os.write(READY_REPORT_FD, b"{}\n")
        os.close(READY_REPORT_FD)
        lab.loop.run()
    except BaseException:  # noqa: BLE001 - a fork must not return into its parent's code
        traceback.print_exc()
    finally:
        os._exit(1)


def _watch(supervision: _Supervision, starter_pidfd: int, asked_to_end: socket.socket) -> None:
    """Return when the lab shall end."""
    poll = select.poll()
    for descriptor in (asked_to_end.fileno(), starter_pidfd, supervision.inner_pidfd):
        poll.register(descriptor, select.POLLIN)
    poll.register(supervision.channel, select.POLLIN)
    while True:
        for descriptor, _ in poll.poll():
            if descriptor != supervision.channel.fileno():
                return
            message, files = control.receive(supervision.channel)
            if message is None:
                return
            _obey(supervision, message, files)
            if message.get("keep"):
                poll.unregister(starter_pidfd)


def _obey(supervision: _Supervision, message: dict[str, Any], files: list[int]) -> None:
    """Take a message from the lab's inside."""
    if message.get("keep"):
        supervision.entry = replace(supervision.entry, kept=True)
        registry.record(supervision.entry)
    if "num_hosts" in message:
        supervision.entry = replace(supervision.entry, num_hosts=message["num_hosts"])
        registry.record(supervision.entry)
    for pidfd in files:
        supervision.to_end.append(pidfd)
        if (pid := _pid_of(pidfd)) > 0:  # it has not ended meanwhile
            registry.note_process(supervision.entry.id, pid)
    control.send(supervision.channel, {"done": True})


def _pid_of(pidfd: int) -> int:
    """The process that a descriptor names (`Pid:` of proc_pid_fdinfo(5))."""
    lines = Path(f"/proc/self/fdinfo/{pidfd}").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Pid:"))


def _end(supervision: _Supervision) -> None:
    """Kill everything, then remove everything."""
    signal.pidfd_send_signal(supervision.inner_pidfd, signal.SIGKILL)
    for pidfd in supervision.to_end:
        try:
            signal.pidfd_send_signal(pidfd, signal.SIGKILL)
        except ProcessLookupError:
            continue
    os.waitpid(supervision.inner, 0)
    cgroups.remove(supervision.cgroup_root, cgroups.PREFIX + supervision.entry.id)
    _clean_files(supervision.entry.id, Path(supervision.entry.directory))


def _clean_files(lab_id: str, directory: Path) -> None:
    shutil.rmtree(directory, ignore_errors=True)
    registry.forget(lab_id)


def _remove_stale_groups(cgroup_root: int) -> None:
    names = os.listdir(cgroup_root)  # before the entries: a lab records itself, then makes a group
    running = {entry.id for entry in registry.read_entries() if registry.is_running(entry)}
    for name in names:
        if name.startswith(cgroups.PREFIX) and name.removeprefix(cgroups.PREFIX) not in running:
            cgroups.remove(cgroup_root, name)


def _report_failure(error: LabError) -> None:
    report = {"where": error.where, "what": error.what, "fix": error.fix}
    os.write(READY_REPORT_FD, json.dumps({"error": report}).encode() + b"\n")
