"""The operation `facts`: what a host is, in one execution; every probe has a time limit, nothing is changed.

Texts go back as tools and kernel print them; they are read where they are judged. What `writable` names is
written to, by a file without a name that is gone at once.
"""

import glob
import os
import re
import time
from contextlib import ExitStack, suppress
from typing import Dict, Iterator, List, Optional, Tuple

from ..at_once import each_at_once
from ..host import Host, Refused
from .abandoned import within
from .device_holders import holders_of
from .stuck import stuck_processes
from .wall_clock import read_wall_clock
from .write_probe import try_writing

MAX_REPORT_BYTES = 1000000
MAX_OUTPUT_BYTES = 262144
MAX_FILE_BYTES = 65536
# Sixteen cards with sixteen GIDs each, and room for as many more.
MAX_PATHS = 2048
MAX_PARALLEL = 16
DEFAULT_S = 10.0
DISK_S = 5.0
BEHIND_S = 15.0
OCTAL = re.compile(r"\\([0-7]{3})")

Table = Dict[str, object]


class Room:
    """What is left of the report's size."""

    def __init__(self, num_bytes: int) -> None:
        """Begin with an empty report."""
        self.left = num_bytes

    def take(self, text: str, most: int) -> str:
        """The text, cut to what one may have and to what is left."""
        kept = text[: max(0, min(most, self.left))]
        self.left -= len(kept)
        return kept


def answer(request: Dict[str, object], host: Host) -> Dict[str, object]:
    """Everything that was asked of this host."""
    room = Room(MAX_REPORT_BYTES)
    return {
        "schema_version": 1,
        "clock": _clock(host),
        "files": _files(host, _words(request, "files"), room),
        "paths": _paths(host, _words(request, "globs")),
        "disks": {path: _disk(host, path) for path in _words(request, "disks")},
        "sizes": {name: _size(host, paths) for name, paths in _named_paths(request, "sizes")},
        "writable": {path: try_writing(host, path) for path in _words(request, "writable")},
        "holders": holders_of(host, _words(request, "devices")),
        "stuck": stuck_processes(host) if request.get("stuck") else [],
        "commands": _commands(host, _maps(request, "commands"), room),
    }


def _clock(host: Host) -> Table:
    """Seconds since 1970 now, and how wrong that may be; or why it is not known."""
    try:
        clock = read_wall_clock(host)
    except Refused as error:
        return {"error": str(error)}
    return {"now_s": round(clock.now(), 6), "error_s": round(clock.error_s, 6)}


def _commands(host: Host, asked: List[Table], room: Room) -> Dict[str, Table]:
    """How each command ended, by id; several run at a time, those of one `queue` one after another."""
    queues: Dict[object, List[Table]] = {}
    for one in asked:
        queues.setdefault(one.get("queue") or (one["id"],), []).append(one)
    ran = each_at_once(
        lambda queue: [(str(one["id"]), _run(host, one)) for one in queue],
        list(queues.values()),
        MAX_PARALLEL,
    )
    answers = {name: told for queue in ran for name, told in queue}
    for told in answers.values():
        told["stdout"] = room.take(str(told["stdout"]), MAX_OUTPUT_BYTES)
        told["stderr"] = room.take(str(told["stderr"]), MAX_FILE_BYTES)
    return answers


def _run(host: Host, asked: Table) -> Table:
    argv, behind = _words(asked, "argv"), _words(asked, "behind")
    begun = time.monotonic()
    with ExitStack() as stack:
        if behind:  # what it leaves when it is ended early
            stack.enter_context(host.cleaning(behind))
        done = host.run(argv, float(str(asked.get("timeout_s") or DEFAULT_S)))
    if behind and done.exit_code is None:
        host.run(behind, BEHIND_S)
    return {
        "exit_code": done.exit_code,
        "stdout": done.stdout,
        "stderr": done.stderr,
        "seconds": round(time.monotonic() - begun, 3),
    }


def _files(host: Host, patterns: List[str], room: Room) -> Dict[str, str]:
    """The text of every small file that a pattern names; what cannot be read is left out."""
    texts = {}
    for path in _paths(host, patterns):
        try:
            with open(host.path(path), "rb") as stream:
                content = stream.read(MAX_FILE_BYTES)
        except OSError:  # sysfs has files that exist and do not read
            continue
        texts[path] = room.take(content.decode("utf-8", "replace"), MAX_FILE_BYTES)
    return texts


def _paths(host: Host, patterns: List[str]) -> List[str]:
    """What is there of some patterns, as the host names it."""
    found = []
    for pattern in patterns:
        listed = glob.glob(host.path(pattern)) if glob.has_magic(pattern) else [host.path(pattern)]
        found += [path[len(host.root) :] for path in sorted(listed) if os.path.lexists(path)]
    return found[:MAX_PATHS]


def _disk(host: Host, path: str) -> Optional[Table]:
    """The file system that holds a path, or would hold it; a mount that hangs is left behind."""
    try:
        return within(DISK_S, lambda: _measure(host, path))
    except OSError as error:
        return {"error": error.strerror or str(error)}
    except Refused as error:
        return {"error": str(error)}


def _size(host: Host, paths: List[str]) -> Optional[int]:
    """Bytes of all files below some folders, 0 where there are none; None while they are not told in time."""
    try:
        return within(DISK_S, lambda: sum(_bytes_below(host.path(path)) for path in paths))
    except (OSError, Refused):
        return None


def _bytes_below(folder: str) -> int:
    total = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):  # a file that has gone meanwhile
                total += os.stat(os.path.join(parent, name)).st_size
    return total


def _measure(host: Host, path: str) -> Table:
    place = path
    while place != "/" and not os.path.exists(host.path(place)):
        place = os.path.dirname(place)
    status = os.statvfs(host.path(place) or "/")
    mount, kind, source = _mount_of(host, os.path.realpath(host.path(place) or "/"))
    return {
        "mount": mount,
        "kind": kind,
        "source": source,
        "exists": place == path,
        "free_bytes": status.f_bavail * status.f_frsize,
        "total_bytes": status.f_blocks * status.f_frsize,
        "free_inodes": status.f_favail,
        "total_inodes": status.f_files,
        "read_only": bool(status.f_flag & os.ST_RDONLY),
    }


def _mount_of(host: Host, place: str) -> List[str]:
    best = ["/", "unknown", ""]
    for line in host.read_bytes("/proc/self/mounts").decode("utf-8", "replace").splitlines():
        fields = line.split()
        if len(fields) < 3:  # noqa: PLR2004 - source, folder, kind
            continue
        folder = OCTAL.sub(lambda found: chr(int(found.group(1), 8)), fields[1])
        holds = folder in ("/", place) or place.startswith(folder + "/")
        if holds and (len(folder) > len(best[0]) or folder == best[0]):
            best = [folder, fields[2], fields[0]]
    return best


def _words(request: Table, key: str) -> List[str]:
    listed = request.get(key)
    return [str(word) for word in listed] if isinstance(listed, list) else []


def _named_paths(request: Table, key: str) -> Iterator[Tuple[str, List[str]]]:
    asked = request.get(key)
    named = asked if isinstance(asked, dict) else {}
    for name in named:
        yield str(name), _words(named, name)


def _maps(request: Table, key: str) -> List[Table]:
    listed = request.get(key)
    return [one for one in listed if isinstance(one, dict)] if isinstance(listed, list) else []
