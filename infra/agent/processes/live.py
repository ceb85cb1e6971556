"""The operation `live`: what running engines really have: environment, limits, libraries, image, logged transport."""

import re
import resource
import time
from typing import Dict, List, Optional, Pattern, Tuple

from ..facts.abandoned import within
from ..facts.command_lines import text_of
from ..facts.stuck import parse_state
from ..host import Host, Refused
from ..journal.journalctl import read_entries
from ..journal.lines import Entry
from ..kinds.images import full_id, parse_ids
from ..services import parse_properties
from .masking import SECRET_NAME
from .unit_processes import container_of, find_processes, read_variables
from .units import show_units

INSPECT_S = 10.0
# The kernel reads environment and maps under a lock that a process in a wedged driver may hold for ever.
MEMORY_S = 2.0
# A transport is logged while a group forms: after so many lines it has been said, or never will be.
MAX_ENTRIES = 20000
MAX_LINES_OF_SIGN = 8
# UCX names every lane of an endpoint, two on each of eight rails.
MAX_CHARACTERS = 1000
# By the kernel's names (proc_pid_limits(5)).
LIMITS = {
    "Max locked memory": resource.RLIMIT_MEMLOCK,
    "Max open files": resource.RLIMIT_NOFILE,
    "Max stack size": resource.RLIMIT_STACK,
}
UNLIMITED = -1
STOPPED = "T"  # by a signal; a tracer's "t" is gone in a moment


def answer(request: Dict[str, object], host: Host) -> Dict[str, object]:
    """What each asked process has; `pid` is None for one that does not run."""
    listed = request.get("processes")
    asked = [row for row in listed if isinstance(row, dict)] if isinstance(listed, list) else []
    signs = request.get("signs")
    patterns = [re.compile(str(one).encode()) for one in signs] if isinstance(signs, list) else []
    units = [str(row["unit"]) for row in asked]
    found = find_processes(host, units)
    starts = _starts(host, units) if patterns else {}
    images = _images(host, units)
    changes = _unit_changes(host, units)
    rows = []
    for row, unit in zip(asked, units):
        pid = found[unit].engine_pid
        lines: List[str] = []
        if patterns and pid is not None:
            lines = _matching_lines(host, unit, patterns, starts.get(unit))
        facts = dict(_facts(host, pid, row), id=row["id"], pid=pid, lines=lines)
        facts["stopped"] = [each for each in found[unit].pids if _is_stopped(host, each)]
        rows.append(dict(facts, image=images.get(unit), changes=changes.get(unit, [])))
    named = _named_images(host, request.get("image"))
    return {"schema_version": 1, "processes": rows, "ceiling": _ceiling(), "image_ids": named}


def parse_limits(text: str) -> Dict[str, List[int]]:
    """Soft and hard limit by the kernel's name; -1 is unlimited."""
    found: Dict[str, List[int]] = {}
    for line in text.splitlines():
        for name in LIMITS:
            words = line[len(name) :].split()
            if line.startswith(name) and len(words) >= len(("soft", "hard")):
                found[name] = [
                    UNLIMITED if word == "unlimited" else int(word) for word in words[:2]
                ]
    return found


def _facts(host: Host, pid: Optional[int], row: Dict[str, object]) -> Dict[str, object]:
    """What a process has; of one whose memory cannot be read in time only that, and its limits."""
    facts: Dict[str, object] = {"env": {}, "limits": {}, "libraries": {}, "is_silent": False}
    if pid is None:
        return facts
    facts["limits"] = parse_limits(text_of(host, "/proc/{}/limits".format(pid)))
    try:
        facts.update(within(MEMORY_S, lambda: _memory(host, pid, row)))
    except Refused:
        facts["is_silent"] = True
    return facts


def _memory(host: Host, pid: int, row: Dict[str, object]) -> Dict[str, object]:
    variables = read_variables(host, pid)
    names, libraries = row.get("names"), row.get("libraries")
    return {
        "env": {
            str(name): _shown(variables, str(name))
            for name in (names if isinstance(names, list) else [])
        },
        "libraries": _mapped(host, pid, libraries if isinstance(libraries, list) else []),
    }


def _is_stopped(host: Host, pid: int) -> bool:
    return parse_state(text_of(host, "/proc/{}/stat".format(pid)))[0] == STOPPED


def _shown(variables: Dict[bytes, bytes], name: str) -> Optional[str]:
    """The value of a variable; one that holds a secret by its name is never shown."""
    value = variables.get(name.encode())
    if value is None:
        return None
    return "***" if SECRET_NAME.search(name.encode()) else value.decode("utf-8", "replace")


def _mapped(host: Host, pid: int, libraries: List[object]) -> Dict[str, bool]:
    """Whether each library, by its path or file name, is in the process's memory."""
    maps = text_of(host, "/proc/{}/maps".format(pid))
    return {str(path): "/{}".format(str(path).rpartition("/")[2]) in maps for path in libraries}


def _starts(host: Host, units: List[str]) -> Dict[str, float]:
    """When each unit became what it is, in seconds since 1970."""
    now, monotonic = time.time(), time.monotonic()
    shown = show_units(host, units) if units else {}
    stamps = {unit: shown[unit].get("StateChangeTimestampMonotonic") for unit in units}
    return {
        unit: now - monotonic + int(stamp) / 1e6
        for unit, stamp in stamps.items()
        if stamp and stamp.isdecimal()
    }


def _matching_lines(
    host: Host, unit: str, patterns: List[Pattern[bytes]], start: Optional[float]
) -> List[str]:
    """The first lines of the unit's present run that match each sign, in their order."""
    bounds = [] if start is None else ["--since=@{:.6f}".format(start - 1)]
    found: List[Entry] = []
    left = dict.fromkeys(patterns, MAX_LINES_OF_SIGN)
    seen = 0
    for entries in read_entries(host, [unit], bounds):
        seen += len(entries)
        for entry in entries:
            sign = next((one for one in left if one.search(entry.message)), None)
            if sign is not None:
                found.append(entry)
                left[sign] -= 1
                if not left[sign]:
                    del left[sign]
        if not left or seen >= MAX_ENTRIES:
            break
    return [entry.message.decode("utf-8", "replace")[:MAX_CHARACTERS] for entry in found]


def _images(host: Host, units: List[str]) -> Dict[str, str]:
    """The image that each unit's container was made from, by its digest."""
    names = {container_of(unit): unit for unit in units if container_of(unit) is not None}
    found: Dict[str, str] = {}
    for runtime in ("docker", "podman"):
        argv = [runtime, "inspect", "--format", "{{.Name}} {{.Image}}", *map(str, names)]
        for line in host.run(argv, INSPECT_S).stdout.splitlines():
            name, _, image = line.strip().lstrip("/").partition(" ")
            if name in names and image:
                found[names[name]] = full_id(image)
    return found


def _named_images(host: Host, image: object) -> List[str]:
    """By what ids a runtime knows the image that engines are started by now; [] where there is none."""
    if not isinstance(image, dict):
        return []
    words = [str(image["runtime"]), "image", "inspect", str(image["reference"])]
    answer = host.run(words, INSPECT_S)
    return parse_ids(answer.stdout) if answer.exit_code == 0 else []


def _unit_changes(host: Host, units: List[str]) -> Dict[str, List[str]]:
    """What somebody has put over each unit's own file, and whether systemd has yet to read that file.

    Drop-ins for every service of a distribution (`service.d`) are none of ours to judge.
    """
    argv = ["systemctl", "show", "-p", "DropInPaths,NeedDaemonReload", "--", *units]
    blocks = [block for block in host.run(argv, INSPECT_S).stdout.split("\n\n") if block.strip()]
    found: Dict[str, List[str]] = {}
    for unit, block in zip(units, blocks if len(blocks) == len(units) else []):
        shown = parse_properties(block)
        paths = shown.get("DropInPaths", "").split()
        own = [
            path for path in paths if path.rpartition("/")[0].rpartition("/")[2].startswith("moe")
        ]
        words = ["{} changes it".format(path) for path in own]
        if shown.get("NeedDaemonReload") == "yes":
            words.append("systemd has not read its file since that was changed")
        found[unit] = words
    return found


def _ceiling() -> Optional[Dict[str, int]]:
    """What limits can at most be here; None where root may raise them, as on every ordinary host.

    Root inside a user namespace may not: then the hard limits of this agent are the most that anything gets.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    if hard == resource.RLIM_INFINITY:
        return None
    try:
        resource.setrlimit(resource.RLIMIT_MEMLOCK, (soft, hard + 1))
    except (ValueError, OSError):
        return {name: _bytes(resource.getrlimit(number)) for name, number in LIMITS.items()}
    return None


def _bytes(limit: Tuple[int, int]) -> int:
    return UNLIMITED if limit[1] == resource.RLIM_INFINITY else limit[1]
