"""What has outlived an epoch on this host: processes of its units and containers that have not ended.

systemd and the runtimes kill all that is in the control group of a unit or a container; what is still in one when the
unit has ended waits in the kernel, or frees memory. A device is free at the latest when its process has ended. A
container that runs on because its end behind its unit did not come about (the unit was masked, the runtime was busy
or down) is killed here, and kept as every other that failed: the next start removes it.
"""

import os
import re
import threading
import time
from typing import Callable, Dict, List, NamedTuple, Optional

from ..facts.stuck import parse_state
from ..host import Host, Refused
from ..processes.unit_processes import container_of

NATIVE = "native"
LIST_S, KILL_S = 5.0, 10.0
# After so long a container is killed again that has not ended.
KILL_AGAIN_S = 10.0
# How soon the end of what was found is seen; how soon a runtime is asked again that did not answer.
CHECK_S, AGAIN_S = 0.1, 1.0
# A look that takes longer than a runtime may is not waited for: what it would find is not known.
LOOK_S = 8.0
START_TIME_FIELD = 19
DEAD = ("Z", "X", "")
# The id of a container in the name of its control group.
CONTAINER = re.compile("[0-9a-f]{64}")


class Survivor(NamedTuple):
    """A process that has outlived its unit.

    Args:
        pid: its id.
        started: when it was started, in clock ticks since boot; ids are used again.
        program: its name as the kernel has it.
        unit: whose it is.
        container: id of the unit's container that it is in, "" for the unit's own control group.
    """

    pid: int
    started: str
    program: str
    unit: str
    container: str


class Remains:
    """What is left of a group's units on this host once they have ended; looked for in a thread until it is nothing.

    Args:
        host: this one.
        units: process id by unit.
        runtime: `docker`, `podman` or `native`.
        wake: called from that thread when there is something new.
    """

    def __init__(
        self, host: Host, units: Dict[str, str], runtime: str, wake: Callable[[], object]
    ) -> None:
        """Nothing is looked for yet."""
        self._host, self._units, self._runtime, self._wake = host, units, runtime, wake
        self._look: Optional[_Look] = None
        self._begun = 0.0

    def forget(self) -> None:
        """The units run, or are about to."""
        if self._look is not None:
            self._look.is_over.set()
            self._look = None

    def look(self, now: float) -> None:
        """The units have ended: look, unless that is done already."""
        if self._look is None:
            self._look, self._begun = _Look(self._host, self._units, self._runtime), now
            thread = threading.Thread(target=self._look.run, args=(self._wake,), daemon=True)
            thread.start()

    def words(self, now: float) -> Optional[str]:
        """What is left, "" for nothing; None while it is not known."""
        known = None if self._look is None else self._look.words
        is_late = self._look is not None and now - self._begun >= LOOK_S
        return "" if known is None and is_late else known


class _Look:
    """One look, which goes on until nothing is left or it is over.

    Attributes:
        words: what is left, None before it is known.
        is_over: nobody wants to know any more.
    """

    def __init__(self, host: Host, units: Dict[str, str], runtime: str) -> None:
        self._host, self._units, self._runtime = host, units, runtime
        self.words: Optional[str] = None
        self.is_over = threading.Event()

    def run(self, wake: Callable[[], object]) -> None:
        """Until nothing is left, or it is over; runs in a thread."""
        known: Dict[str, str] = {}
        while not self.is_over.is_set():
            try:
                found = find_survivors(self._host, list(self._units), self._runtime, known)
            except Refused as error:
                self.words = str(error)
                wake()
                self.is_over.wait(AGAIN_S)
                continue
            except OSError:  # there is no /proc to look into
                found = []
            self.words = self._named(found)
            wake()
            if not found:
                return
            self._await_end(found)  # who has ended may have left a child: it is looked anew then

    def _await_end(self, found: List[Survivor]) -> None:
        """Until all of these have ended, or it is over; their containers are killed until then."""
        due = 0.0
        while found and not self.is_over.is_set():
            containers = sorted({one.container for one in found} - {""})
            if containers and time.monotonic() >= due:
                # by their ids: a name may be that of the next start
                self._host.run([self._runtime, "kill", *containers], KILL_S)
                due = time.monotonic() + KILL_AGAIN_S
            found = [one for one in found if _start_of(self._host, one.pid) == one.started]
            self.words = self._named(found) or self.words
            if found:
                self.is_over.wait(CHECK_S)

    def _named(self, found: List[Survivor]) -> str:
        if not found:
            return ""
        first, others = found[0], len(found) - 1
        words = "process {} ({}) of {} has outlived its unit".format(
            first.pid, first.program, self._units[first.unit]
        )
        return "{}, and {} more".format(words, others) if others else words


def find_survivors(
    host: Host, units: List[str], runtime: str, known: Optional[Dict[str, str]] = None
) -> List[Survivor]:
    """Every process in the control groups of units that have ended, and of their containers.

    Nothing is read that a process which waits in the kernel may have locked, and a runtime is asked only where a
    process is in any container.

    Args:
        host: this one.
        units: of the group.
        runtime: `docker`, `podman` or `native`.
        known: units by the ids of containers that were found before; those that are found now are added.

    Raises:
        Refused: the runtime does not answer.
    """
    pids = sorted(int(name) for name in os.listdir(host.path("/proc")) if name.isdecimal())
    groups = {pid: _text(host, "/proc/{}/cgroup".format(pid)) for pid in pids}
    containers = {} if known is None else known
    if runtime != NATIVE and any(map(CONTAINER.search, groups.values())):
        containers.update(_container_ids(host, units, runtime))
    marks = {"/" + unit: unit for unit in units}
    marks.update(containers)
    found = []
    for pid, group in groups.items():
        mark = next((each for each in marks if each in group), "")
        unit = marks.get(mark)
        started = _start_of(host, pid) if unit is not None else ""
        if unit is not None and started:
            program = _text(host, "/proc/{}/comm".format(pid)).strip()
            found.append(Survivor(pid, started, program, unit, mark if mark in containers else ""))
    return found


def _container_ids(host: Host, units: List[str], runtime: str) -> Dict[str, str]:
    """The unit by the id of its container, which is part of its control group's name; of those that are there.

    They are listed, so that exit code 0 tells that none is there. `docker inspect` leaves with 1 at that and where no
    daemon answers, with much the same words ("No such object", "dial unix …: no such file or directory" of docker 29).
    """
    names = {str(container_of(unit)): unit for unit in units}
    argv = [runtime, "ps", "--all", "--no-trunc", "--format", "{{.Names}} {{.ID}}"]
    for name in names:  # of any of them; podman waits for the lock of each container that it lists
        argv += ["--filter", "name=" + name]
    done = host.run(argv, LIST_S)
    if done.exit_code != 0:
        words = "{}: what is left of {}'s containers is not known"
        raise Refused(words.format(done.last_words, runtime))
    rows = [line.rpartition(" ") for line in done.stdout.splitlines()]
    return {found: names[name] for name, _, found in rows if name in names and found}


def _start_of(host: Host, pid: int) -> str:
    """When a process was started, "" when it has ended; one whose first thread has ended lives on in the others."""
    text = _text(host, "/proc/{}/stat".format(pid))
    if parse_state(text)[0] in DEAD and len(_tasks(host, pid)) <= 1:
        return ""
    fields = text.rpartition(")")[2].split()
    return fields[START_TIME_FIELD] if len(fields) > START_TIME_FIELD else ""


def _tasks(host: Host, pid: int) -> List[str]:
    try:
        return os.listdir(host.path("/proc/{}/task".format(pid)))
    except OSError:
        return []


def _text(host: Host, path: str) -> str:
    try:
        return host.read_bytes(path).decode("utf-8", "replace")
    except OSError:  # it has ended
        return ""
