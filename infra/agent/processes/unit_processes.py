"""The operating-system processes behind a unit: in its control group, and in its container's."""

import os
import re
from typing import Dict, List, NamedTuple, Optional, Set

from ..host import Host, Refused

SHOW_S = 10.0
INSPECT_S = 10.0
RUNTIMES = ("docker", "podman")
_UNIT = re.compile(r"^(moe-.+)@(\d+)\.service$")


class UnitProcesses(NamedTuple):
    """What runs for a unit.

    Args:
        engine_pid: the first process of the engine: the container's, or the unit's own; None when none runs.
        pids: everything in its control groups, the runtime's client included.
    """

    engine_pid: Optional[int]
    pids: List[int]


def find_processes(host: Host, units: List[str]) -> Dict[str, UnitProcesses]:
    """The processes of each unit; one systemctl call and one runtime call for all of them.

    Raises:
        Refused: systemd gives no answer.
    """
    if not units:
        return {}
    fields = "MainPID,ControlGroup"
    done = host.run(["systemctl", "show", "-p", fields, "--", *units], SHOW_S)
    blocks = [block for block in done.stdout.split("\n\n") if block.strip()]
    if done.exit_code != 0 or len(blocks) != len(units):
        raise Refused("systemctl show: {}".format(done.last_words))
    groups = _groups_of_processes(host)
    inside = _container_pids(host, units)
    found: Dict[str, UnitProcesses] = {}
    for unit, block in zip(units, blocks):
        shown = dict(line.split("=", 1) for line in block.splitlines() if "=" in line)
        main, container = int(shown.get("MainPID") or 0), inside.get(unit)
        wanted = {shown.get("ControlGroup") or "-"}
        if container is not None:
            wanted |= groups.get(container, set()) - {"/"}
        pids = sorted(pid for pid, own in groups.items() if own & wanted)
        found[unit] = UnitProcesses(container or main or None, pids)
    return found


def container_of(unit: str) -> Optional[str]:
    """The container of a unit's process, by the names that rendering gives both; None of other units."""
    match = _UNIT.match(unit)
    return None if match is None else "{}-{}".format(match.group(1), match.group(2))


def read_variables(host: Host, pid: int) -> Dict[bytes, bytes]:
    """The environment that a process was started with; {} when it has ended."""
    try:
        raw = host.read_bytes("/proc/{}/environ".format(pid))
    except OSError:
        return {}
    return dict(entry.split(b"=", 1) for entry in raw.split(b"\0") if b"=" in entry)


def _groups_of_processes(host: Host) -> Dict[int, Set[str]]:
    """The control groups of every process."""
    groups: Dict[int, Set[str]] = {}
    for name in os.listdir(host.path("/proc")):
        if name.isdecimal():
            try:
                text = host.read_bytes("/proc/{}/cgroup".format(name)).decode("utf-8", "replace")
            except OSError:  # it has ended
                continue
            groups[int(name)] = {line.split(":", 2)[2] for line in text.splitlines() if ":" in line}
    return groups


def _container_pids(host: Host, units: List[str]) -> Dict[str, int]:
    """The first process of each unit's running container."""
    names = {container_of(unit): unit for unit in units if container_of(unit) is not None}
    found: Dict[str, int] = {}
    for runtime in RUNTIMES:
        # a name that is none of this runtime's is left out and makes the exit code 1
        shown = host.run(
            [runtime, "inspect", "--format", "{{.Name}} {{.State.Pid}}", *map(str, names)],
            INSPECT_S,
        )
        for line in shown.stdout.splitlines():
            name, _, pid = line.strip().lstrip("/").partition(" ")
            if name in names and pid.isdecimal() and int(pid) > 0:
                found[names[name]] = int(pid)
    return found
