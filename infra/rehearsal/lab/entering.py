"""Programs of the rehearsal inside a host, without SSH; and what runs there."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from infra.rehearsal.lab import cgroups, linux, user_range
from infra.rehearsal.lab.boot import ENVIRONMENT, HOST_NAMESPACES

_NOT_STARTED = 127


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """What to run.

    Args:
        argv: argument vector; the program is looked up in the host's PATH.
        environment: added to a login-less root's.
        files: descriptors of standard input, output and error.
    """

    argv: tuple[str, ...]
    environment: Mapping[str, str]
    files: tuple[int, ...]


def run_inside(first_pid: int, group: int, program: Program) -> int:
    """Start a program as root in all namespaces of a host.

    Args:
        first_pid: the host's PID 1.
        group: descriptor of a cgroup of the host.
        program: what to run.

    Returns:
        A child of ours that ends as the program does; killing it kills the program.
    """
    child = os.fork()
    if child:
        return child
    try:
        _enter(first_pid, group, program)
    finally:
        os._exit(_NOT_STARTED)


def list_processes(first_pid: int) -> list[dict[str, Any]]:
    """Every process of a host: `pid` as the host counts, `argv`."""
    namespace = os.stat(f"/proc/{first_pid}/ns/pid").st_ino
    found = []
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            if os.stat(folder / "ns/pid").st_ino != namespace:
                continue
            status = (folder / "status").read_text()
            argv = (folder / "cmdline").read_bytes().decode(errors="replace")
        except OSError:
            continue  # it ended while we looked
        numbers = next(line for line in status.splitlines() if line.startswith("NSpid:")).split()
        found.append({"pid": int(numbers[-1]), "argv": argv.split("\0")[:-1]})
    return sorted(found, key=lambda process: process["pid"])


def _enter(first_pid: int, group: int, program: Program) -> None:
    cgroups.write(group, "cgroup.procs", "0")
    is_of_range = not os.path.samefile(f"/proc/{first_pid}/ns/user", "/proc/self/ns/user")
    users = linux.Namespace.USER if is_of_range else linux.Namespace(0)
    linux.enter(os.pidfd_open(first_pid), HOST_NAMESPACES | users)
    if is_of_range:
        user_range.become_its_root()
    os.chdir("/")
    inner = os.fork()
    if inner:
        _, status = os.waitpid(inner, 0)
        code = os.waitstatus_to_exitcode(status)
        os._exit(code if code >= 0 else 128 - code)
    linux.die_with_parent()
    for number in set(signal.Signals) - {signal.SIGKILL, signal.SIGSTOP}:
        signal.signal(number, signal.SIG_DFL)
    for target, descriptor in enumerate(program.files):
        os.dup2(descriptor, target)
    try:
        environment = ENVIRONMENT | dict(program.environment)
        os.execvpe(program.argv[0], program.argv, environment)  # noqa: S606 - no shell is meant
    except OSError as error:
        os.write(2, f"{program.argv[0]}: {error.strerror}\n".encode())
        os._exit(_NOT_STARTED)
