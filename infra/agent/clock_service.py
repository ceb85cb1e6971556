"""The clock as an item: a service keeps it, and the kernel says that it is kept."""

from typing import Dict, List, Optional

from .host import Host, Refused
from .item import Item, Parts, Reading, absent_reading
from .services import ENABLED_WORDS, change_service, enablement, parse_properties

UNITS = (
    "chronyd.service",
    "chrony.service",
    "systemd-timesyncd.service",
    "ntpsec.service",
    "ntpd.service",
)
ASK_S = 10.0


def read_clock(host: Host, item: Item) -> Reading:
    """The host's clock service, whichever it is, and whether the clock is synchronized."""
    if not host.has_systemd():
        return absent_reading(item, "systemd does not run this host")
    shown = _clock_unit(host)
    if shown is None:
        why = "no clock service is installed: install chrony"
        return Reading(None, {}, item.want, {}, locked=why)
    unit = shown["Id"]
    is_active = shown.get("ActiveState") in ("active", "activating", "reloading")
    parts: Parts = {unit + " active": "active" if is_active else "inactive"}
    wanted: Parts = {unit + " active": "active"}
    enabled = enablement(host, unit)
    if enabled in ENABLED_WORDS:
        parts[unit + " enabled"] = enabled
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


def _clock_unit(host: Host) -> Optional[Dict[str, str]]:
    """The properties of the unit that runs, else of the first that is installed."""
    argv = ["systemctl", "show", "-p", "Id,LoadState,ActiveState", "--", *UNITS]
    answer = host.run(argv, ASK_S)
    if answer.exit_code != 0:
        raise Refused("systemctl show: {}".format(answer.last_words))
    blocks: List[Dict[str, str]] = [
        parse_properties(block) for block in answer.stdout.split("\n\n") if block.strip()
    ]
    loaded = [one for one in blocks if one.get("LoadState") == "loaded" and one.get("Id")]
    active = [one for one in loaded if one.get("ActiveState") == "active"]
    return next(iter(active or loaded), None)


def _is_synchronized(host: Host) -> Optional[bool]:
    answer = host.run(["timedatectl", "show", "-p", "NTPSynchronized"], ASK_S)
    if answer.exit_code != 0:
        return None
    return {"yes": True, "no": False}.get(
        parse_properties(answer.stdout).get("NTPSynchronized", "")
    )
