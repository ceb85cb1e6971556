"""Kernel knobs: sysctls, sysfs files, bracketed choices, the migration cost, reserved ports."""

import errno
import glob
from typing import Dict, List, Optional, Set

from .host import Host, Refused
from .item import Item, Parts, Reading, absent_reading

MIGRATION_COST_SYSCTL = "/proc/sys/kernel/sched_migration_cost_ns"
MIGRATION_COST_DEBUGFS = "/sys/kernel/debug/sched/migration_cost_ns"
RESERVED_PORTS = "/proc/sys/net/ipv4/ip_local_reserved_ports"
LOCKDOWN = "/sys/kernel/security/lockdown"
MAX_PORT = 65535


def sysctl_path(key: str) -> str:
    """The file of a sysctl; a key with slashes may hold dots in an interface's name (sysctl.d(5))."""
    return "/proc/sys/" + (key if "/" in key else key.replace(".", "/"))


def read_sysctl(host: Host, item: Item) -> Reading:
    """A sysctl as procfs holds it."""
    path = sysctl_path(item.target)
    if not host.exists(path):
        return absent_reading(item, "this kernel has no {}".format(item.target))
    return _reading_of({path: host.read_word(path)}, item.want)


def read_sysfs(host: Host, item: Item) -> Reading:
    """Every file that the glob matches, each of which must hold the wanted value."""
    found = sorted(glob.glob(host.path(item.target)))
    paths = [path[len(host.root) :] for path in found]
    if not paths:
        return absent_reading(item, "no file matches {} on this host".format(item.target))
    return _reading_of({path: host.read_word(path) for path in paths}, item.want)


def read_choice(host: Host, item: Item) -> Reading:
    """A sysfs file that lists its choices with the current one in brackets."""
    if not host.exists(item.target):
        return absent_reading(item, "this kernel has no {}".format(item.target))
    text = host.read_word(item.target)
    chosen = [word[1:-1] for word in text.split() if word[:1] == "[" and word[-1:] == "]"]
    if len(chosen) != 1:
        raise Refused("{} holds {!r}, no choice in brackets".format(item.target, text))
    reading = _reading_of({item.target: chosen[0]}, item.want)
    choices = [word.strip("[]") for word in text.split()]
    if item.want is not None and item.want not in choices:
        return reading._replace(locked="this kernel offers only {}".format(", ".join(choices)))
    return reading


def read_migration_cost(host: Host, item: Item) -> Reading:
    """The scheduler's migration cost: a sysctl before Linux 5.13, debugfs since, or out of reach."""
    if host.exists(MIGRATION_COST_SYSCTL):
        path = MIGRATION_COST_SYSCTL
    elif host.exists(MIGRATION_COST_DEBUGFS):
        path = MIGRATION_COST_DEBUGFS
    else:
        reason = (
            "neither kernel.sched_migration_cost_ns nor debugfs sched/migration_cost_ns is here"
        )
        lockdown = _lockdown(host)
        if lockdown is not None:
            return _locked(item, "{} (kernel lockdown: {})".format(reason, lockdown))
        return absent_reading(item, reason)
    try:
        return _reading_of({path: host.read_word(path)}, item.want)
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.EACCES):
            raise
        mode = _lockdown(host) or "off or unknown"
        return _locked(item, "{} may not be read (kernel lockdown: {})".format(path, mode))


def read_reserved_ports(host: Host, item: Item) -> Reading:
    """The ports kept out of the ephemeral range: ours joined to what is there already."""
    if not host.exists(RESERVED_PORTS):
        return absent_reading(item, "this kernel has no net.ipv4.ip_local_reserved_ports")
    text = host.read_word(RESERVED_PORTS)
    merged = None
    if item.want is not None:
        there, ours = parse_ports(text), parse_ports(item.want)
        merged = text if ours <= there else render_ports(there | ours)
    return _reading_of({RESERVED_PORTS: text}, merged)


def write_knob(host: Host, _item: Item, part: str, value: object) -> None:
    """Write one knob; the kernel's refusal is the OSError."""
    host.write_knob(part, str(value))


def parse_ports(text: str) -> Set[int]:
    """The ports of a list like `2703,61000-61007`.

    Raises:
        Refused: something that is not a list of ports.
    """
    ports: Set[int] = set()
    for word in text.replace(",", " ").split():
        first, dash, last = word.partition("-")
        try:
            low, high = int(first), int(last if dash else first)
        except ValueError:
            low, high = 1, 0
        if not 0 <= low <= high <= MAX_PORT:
            raise Refused("{!r} is not a port or a range of ports".format(word))
        ports.update(range(low, high + 1))
    return ports


def render_ports(ports: Set[int]) -> str:
    """The list as the kernel itself prints it: ascending, runs as ranges."""
    runs: List[List[int]] = []
    for port in sorted(ports):
        if runs and port == runs[-1][1] + 1:
            runs[-1][1] = port
        else:
            runs.append([port, port])
    return ",".join(str(a) if a == b else "{}-{}".format(a, b) for a, b in runs)


def _reading_of(values: Dict[str, str], wanted: Optional[str]) -> Reading:
    parts: Parts = dict(values)
    plain = None if wanted is None else " ".join(wanted.split())
    return Reading(
        value=_shown(list(values.values())),
        parts=parts,
        wanted=plain,
        wanted_parts={} if plain is None else dict.fromkeys(values, plain),
    )


def _shown(values: List[str]) -> str:
    """One value, or every distinct one with how often it is there."""
    distinct = sorted(set(values))
    if len(distinct) == 1:
        return distinct[0]
    return ", ".join("{} ×{}".format(value, values.count(value)) for value in distinct)


def _locked(item: Item, why: str) -> Reading:
    return Reading(None, {}, item.want, {}, locked=why)


def _lockdown(host: Host) -> Optional[str]:
    """The kernel's lockdown mode, None when it is off or not built in."""
    try:
        words = host.read_word(LOCKDOWN).split()
    except OSError:
        return None
    chosen = [word.strip("[]") for word in words if word.startswith("[")]
    return chosen[0] if chosen and chosen[0] != "none" else None
