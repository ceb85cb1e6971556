"""The units of groups on this host: what they are, cheaply and often; started, stopped and killed together."""

from typing import Dict, List, NamedTuple, Optional

from ..host import Host
from ..processes.listening import TABLES, parse_table
from ..services import parse_properties
from .rules import CHANGING, PARTIAL, RUNNING, STOPPED, WAITING

PROPERTIES = (
    "ActiveState",
    "SubState",
    "Result",
    "ExecMainStatus",
    "MainPID",
    "ExecMainPID",
    "InvocationID",
    "Job",
)
SHOW_S = 10.0
ACT_S = 20.0
# systemd is asked again after this long although no process has gone: a unit may have been started by hand.
LOOK_S = 5.0
# And after this long while units are on their way from one state to another.
SOON_S = 0.2
UP = ("active", "activating", "reloading")
DOWN = ("inactive", "failed")
# The SubState between an end and the start that systemd makes by itself; engines never have it.
WAITS = "auto-restart"
START_TIME_FIELD = 19


class Unit(NamedTuple):
    """One unit as systemd has it.

    Args:
        state: systemd's ActiveState; `unknown` before it was asked.
        how: how it ended, in words; "" while it runs, not before systemd starts it again by itself.
        pid: of its main process, 0 for none.
        invocation: systemd's id of this start, "" for none.
        latest_pid: the main process of this start, also when it has ended; 0 for none.
        waits: systemd has been asked to start it, and has not begun: other units come first.
    """

    state: str
    how: str
    pid: int
    invocation: str
    latest_pid: int = 0
    waits: bool = False


class Units:
    """All units that one watcher looks after; systemd is asked about all of them at once.

    Between two questions only /proc is read: has each main process its start time still?
    """

    def __init__(self, host: Host, names: List[str]) -> None:
        """Know the names; nothing is asked yet."""
        self._host = host
        self._names = names
        self._started: Dict[str, str] = {}
        self._asked: Optional[float] = None
        self.units: Dict[str, Unit] = {name: Unit("unknown", "", 0, "") for name in names}

    def look(self, now: float, *, again: bool) -> bool:
        """Ask systemd when something may have changed; whether it was asked and has answered."""
        units = self.ask() if self.is_due(now, again=again) else None
        if units is not None:
            self.take(units, now)
        return units is not None

    def is_due(self, now: float, *, again: bool, soon: bool = False) -> bool:
        """Whether systemd is to be asked: something may have changed.

        Args:
            now: monotonic seconds.
            again: ask in any case.
            soon: a start is on its way.
        """
        limit_s = SOON_S if soon or self._is_between() else LOOK_S
        is_old = self._asked is None or now - self._asked > limit_s
        return again or is_old or self._has_ended()

    def ask(self) -> Optional[Dict[str, Unit]]:
        """What systemd says of the units; None when it is too busy to answer. Changes nothing here."""
        answered = self._host.run(
            ["systemctl", "show", "-p", ",".join(PROPERTIES), "--", *self._names], SHOW_S
        )
        blocks = [block for block in answered.stdout.split("\n\n") if block.strip()]
        if answered.exit_code != 0 or len(blocks) != len(self._names):
            return None
        return {
            name: read_unit(parse_properties(block)) for name, block in zip(self._names, blocks)
        }

    def take(self, units: Dict[str, Unit], now: float) -> None:
        """This is what they are; `now` is when systemd was asked."""
        self._asked, self.units = now, units
        self._started = {
            name: _start_time(self._host, unit.pid) for name, unit in units.items() if unit.pid
        }

    def start(self, names: List[str]) -> str:
        """Start units together; does not wait for them. Why systemd takes no such job, "" when it may have."""
        self._host.run(["systemctl", "reset-failed", "--", *names], ACT_S)
        done = self._host.run(["systemctl", "start", "--no-block", "--", *names], ACT_S)
        return "systemctl start: {}".format(done.last_words) if done.exit_code else ""

    def stop(self, names: List[str]) -> None:
        """Stop units together; does not wait for them."""
        self._host.run(["systemctl", "stop", "--no-block", "--", *names], ACT_S)

    def kill(self, names: List[str]) -> None:
        """End every process of units that do not stop."""
        self._host.run(
            ["systemctl", "kill", "--signal=SIGKILL", "--kill-who=all", "--", *names], ACT_S
        )

    def _is_between(self) -> bool:
        """Whether a unit is between two states."""
        return any(
            unit.waits or unit.state not in ("active", "inactive", "failed")
            for unit in self.units.values()
        )

    def _has_ended(self) -> bool:
        """Whether a main process has gone, before it could be told from its successor even."""
        return any(
            not started or _start_time(self._host, self.units[name].pid) != started
            for name, started in self._started.items()
        )


def read_unit(shown: Dict[str, str]) -> Unit:
    """A unit of what `systemctl show` says of it."""
    state = shown.get("ActiveState", "unknown")
    pid, latest_pid = shown.get("MainPID", "0"), shown.get("ExecMainPID", "0")
    return Unit(
        state=state,
        how=_how_ended(shown) if state not in UP or shown.get("SubState") == WAITS else "",
        pid=int(pid) if pid.isdecimal() else 0,
        invocation=shown.get("InvocationID", ""),
        latest_pid=int(latest_pid) if latest_pid.isdecimal() else 0,
        waits=state in DOWN and bool(shown.get("Job")),
    )


def state_of_units(units: List[Unit]) -> str:
    """What units are together."""
    up = [unit for unit in units if unit.state in UP]
    if len(up) == len(units):
        return RUNNING
    if any(unit.state in ("deactivating", "unknown") for unit in units):
        return CHANGING
    if any(unit.waits for unit in units):
        return WAITING
    return PARTIAL if up else STOPPED


def held_ports(host: Host, ports: List[int]) -> List[int]:
    """Those of some ports that anybody listens on."""
    wanted, held = set(ports), set()
    for path, family in TABLES:
        try:
            text = host.read_bytes(path).decode("ascii", "replace")
        except OSError:
            continue
        held |= {one.port for one in parse_table(text, family)}
    return sorted(held & wanted)


def find_fault(
    names: List[str], units: Dict[str, Unit], processes: Dict[str, str], known: Dict[str, str]
) -> str:
    """The first unit that ended or was started by somebody else, with its process; "" for none.

    Args:
        names: the units.
        units: as systemd has them.
        processes: process id by unit.
        known: invocation by unit as it was started or taken over; a unit without one is not judged.
    """
    for name in names:
        unit = units[name]
        # one that began in this epoch and has ended is a fault, whoever has asked for another start of it meanwhile
        is_to_begin = unit.waits and known.get(name) != unit.invocation
        is_between = unit.state in ("deactivating", "unknown")
        if unit.state not in UP and not is_between and not is_to_begin:
            return "{} {}".format(processes[name], unit.how)
        if unit.state in UP and known.get(name, unit.invocation) != unit.invocation:
            return "{} was started by somebody else".format(processes[name])
    return ""


def _how_ended(shown: Dict[str, str]) -> str:
    result, status = shown.get("Result", ""), shown.get("ExecMainStatus", "")
    if not shown.get("InvocationID"):
        return "does not run"
    if result in ("signal", "core-dump"):
        return "was ended by signal {}".format(status)
    if result in ("success", "exit-code"):
        return "ended with exit code {}".format(status)
    return "was ended by systemd ({})".format(result)


def _start_time(host: Host, pid: int) -> str:
    """When a process was started, "" when there is none: process ids are used again."""
    try:
        text = host.read_bytes("/proc/{}/stat".format(pid)).decode("utf-8", "replace")
    except OSError:
        return ""
    fields = text.rpartition(")")[2].split()
    is_zombie = not fields or fields[0] == "Z"
    return "" if is_zombie else fields[START_TIME_FIELD]
