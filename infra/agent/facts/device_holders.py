"""Which processes have device files open, from /proc alone."""

import contextlib
import os
from typing import Dict, List, Set

from ..host import Host

MAX_COMMAND = 300
MAX_HOLDERS = 256


def holders_of(host: Host, devices: List[str]) -> List[Dict[str, object]]:
    """Every process that has one of the device files open: device, pid, command line, control group."""
    if not devices:
        return []
    wanted = {host.path(device): device for device in devices}
    found: List[Dict[str, object]] = []
    for name in sorted(filter(str.isdigit, os.listdir(host.path("/proc"))), key=int):
        held = _open_of(host.path("/proc/{}/fd".format(name)), set(wanted))
        if not held:
            continue
        command = _text(host, "/proc/{}/cmdline".format(name)).replace("\0", " ").strip()
        group = control_group(_text(host, "/proc/{}/cgroup".format(name)))
        for path in sorted(held):
            row = {"device": wanted[path], "pid": int(name), "control_group": group}
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


def _text(host: Host, path: str) -> str:
    try:
        return host.read_bytes(path).decode("utf-8", "replace")
    except OSError:  # it has ended meanwhile
        return ""
