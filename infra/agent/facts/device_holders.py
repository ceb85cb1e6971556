"""Which processes have device files open, from /proc alone."""

import contextlib
import os
from typing import Dict, List, Set

from ..host import Host
from .command_lines import command_lines, text_of

MAX_COMMAND = 300
MAX_HOLDERS = 256


def holders_of(host: Host, devices: List[str]) -> List[Dict[str, object]]:
    """Every process that has one of the device files open: device, pid, command line, control group."""
    if not devices:
        return []
    wanted = {host.path(device): device for device in devices}
    held: Dict[int, Set[str]] = {}
    for pid in sorted(map(int, filter(str.isdigit, os.listdir(host.path("/proc"))))):
        paths = _open_of(host.path("/proc/{}/fd".format(pid)), set(wanted))
        if paths:
            held[pid] = paths
    commands = command_lines(host, list(held)[:MAX_HOLDERS])
    found: List[Dict[str, object]] = []
    for pid, command in commands.items():
        group = control_group(text_of(host, "/proc/{}/cgroup".format(pid)))
        for path in sorted(held[pid]):
            row = {"device": wanted[path], "pid": pid, "control_group": group}
            row["command"] = command[:MAX_COMMAND]
            found.append(row)
    return found[:MAX_HOLDERS]


def control_group(text: str) -> str:
    """The control group of /proc/PID/cgroup: the unified one, else systemd's own."""
    groups = [line.split(":", 2) for line in text.splitlines() if line.count(":") >= 2]  # noqa: PLR2004
    for controllers in ("", "name=systemd"):
        for _, listed, path in groups:
            if listed == controllers:
                return path
    return groups[0][2] if groups else ""


def _open_of(folder: str, wanted: Set[str]) -> Set[str]:
    """Which of the paths a process has open; descriptors come and go while it is looked at."""
    found: Set[str] = set()
    try:
        entries = os.listdir(folder)
    except OSError:
        return found
    for entry in entries:
        with contextlib.suppress(OSError):
            path = os.readlink(os.path.join(folder, entry))
            if path in wanted:
                found.add(path)
    return found
