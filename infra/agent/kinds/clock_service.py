"""The clock as an item: a service keeps it, and the kernel says that it is kept."""

import time
from typing import Dict, Optional

from ..host import Host, Refused
from ..item import Item, Parts, Reading, absent_reading
from ..services import ENABLED_WORDS, change_service, enablements, parse_properties

UNITS = (
    "chronyd.service",
    "chrony.service",
    "systemd-timesyncd.service",
    "ntpsec.service",
    "ntpd.service",
)
RUNNING = ("active", "activating", "reloading")
# It has failed and systemd starts it again: it is not running, and may be for a moment.
FLAPPING = ("auto-restart", "auto-restart-queued")
MOVING = ("activating", "deactivating", "reloading", *FLAPPING)
ASK_S = 10.0
SETTLE_S = 5.0
PAUSE_S = 0.1


def read_clock(host: Host, item: Item) -> Reading:
    """The host's clock service, whichever it is, and whether the clock is synchronized.

    The parts tell of every clock service that is installed: one that was stopped or gave way to another is still
    known by its own name, so a rollback compares it with itself.
    """
    if not host.has_systemd():
        return absent_reading(item, "systemd does not run this host")
    units = _settled_units(host)
    if not units:
        why = "no clock service is installed: install chrony"
        return Reading(None, {}, item.want, {}, locked=why)
    parts: Parts = {}
    enabled = enablements(host, list(units))
    for name, state in units.items():
        parts[name + " active"] = "active" if state in RUNNING else "inactive"
        if enabled[name] in ENABLED_WORDS:
            parts[name + " enabled"] = enabled[name]
    unit = _chosen(units)
    wanted: Parts = {unit + " active": "active"}
    if unit + " enabled" in parts:
        wanted[unit + " enabled"] = "enabled"
    synchronized = _is_synchronized(host)
    words = {True: "synchronized", False: "not synchronized", None: "unknown whether synchronized"}
    value = "{} {}, {}".format(unit, parts[unit + " active"], words[synchronized])
    if item.want is None:
        return Reading(value, parts, None, {})
    reading = Reading(value, parts, item.want, wanted)
    if reading.differing() or synchronized:
        return reading
    if synchronized is None:
        return reading._replace(note="timedatectl does not say whether the clock is synchronized")
    why = "{} runs, but the clock is not synchronized: look at `chronyc sources` or `timedatectl`"
    return reading._replace(locked=why.format(unit))


def write_clock(host: Host, _item: Item, part: str, value: object) -> None:
    """Start, stop, enable or disable the service that `part` names."""
    change_service(host, part.partition(" ")[0], str(value))


def _settled_units(host: Host) -> Dict[str, Optional[str]]:
    """The state of every clock service that is installed, by its name, none on its way to another state.

    One that systemd restarts, or that another one pushes aside (chrony and timesyncd conflict), is between two
    states for a moment; what is read then would be gone a moment later.
    """
    deadline = time.monotonic() + SETTLE_S
    while True:
        units = _installed_units(host)
        moving = [name for name, state in units.items() if state in MOVING]
        if not moving or time.monotonic() > deadline:
            return units
        time.sleep(PAUSE_S)


def _installed_units(host: Host) -> Dict[str, Optional[str]]:
    argv = ["systemctl", "show", "-p", "Id,LoadState,ActiveState,SubState", "--", *UNITS]
    answer = host.run(argv, ASK_S)
    if answer.exit_code != 0:
        raise Refused("systemctl show: {}".format(answer.last_words))
    blocks = [parse_properties(block) for block in answer.stdout.split("\n\n") if block.strip()]
    return {
        one["Id"]: one.get("SubState")
        if one.get("SubState") in FLAPPING
        else one.get("ActiveState")
        for one in blocks
        if one.get("LoadState") == "loaded" and one.get("Id")
    }


def _chosen(units: Dict[str, Optional[str]]) -> str:
    """The unit that runs, else one that is starting, else the first that is installed."""
    for states in (("active", "reloading"), ("activating",)):
        for name, state in units.items():
            if state in states:
                return name
    return next(iter(units))


def _is_synchronized(host: Host) -> Optional[bool]:
    answer = host.run(["timedatectl", "show", "-p", "NTPSynchronized"], ASK_S)
    if answer.exit_code != 0:
        return None
    return {"yes": True, "no": False}.get(
        parse_properties(answer.stdout).get("NTPSynchronized", "")
    )
