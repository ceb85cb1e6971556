"""Kernel knobs: sysctls, sysfs files, bracketed choices, the migration cost, reserved ports, read-ahead."""

import errno
import glob
from typing import Dict, List, Optional, Set

from ..host import Host, Refused
from ..item import Item, Parts, Reading, absent_reading

MIGRATION_COST_SYSCTL = "/proc/sys/kernel/sched_migration_cost_ns"
MIGRATION_COST_DEBUGFS = "/sys/kernel/debug/sched/migration_cost_ns"
RESERVED_PORTS = "/proc/sys/net/ipv4/ip_local_reserved_ports"
LOCKDOWN = "/sys/kernel/security/lockdown"
NFS_VOLUMES = "/proc/fs/nfsfs/volumes"
NFS_READ_AHEAD = "/sys/class/bdi/{}/read_ahead_kb"
DEVICE = 3  # its column
# How sysfs says that there is nothing to switch: Documentation/ABI/testing/sysfs-devices-system-cpu, smt/control.
NOTHING_THERE = ("notsupported", "notimplemented")
MAX_PORT = 65535


def sysctl_path(key: str) -> str:
    """The file of a sysctl; a key with slashes may hold dots in an interface's name (sysctl.d(5))."""
    return "/proc/sys/" + (key if "/" in key else key.replace(".", "/"))


def read_sysctl(host: Host, item: Item) -> Reading:
    """A sysctl as procfs holds it."""
    path = sysctl_path(item.target)
    if not host.exists(path):
        return absent_reading(item, "this kernel has no {}".format(item.target))
    return _reading_of({path: host.read_word(path)}, item)


def read_sysfs(host: Host, item: Item) -> Reading:
    """Every file that the glob matches, each of which must hold the wanted value."""
    found = sorted(glob.glob(host.path(item.target)))
    paths = [path[len(host.root) :] for path in found]
    if not paths:
        return absent_reading(item, "no file matches {} on this host".format(item.target))
    values = {path: host.read_word(path) for path in paths}
    if item.want is not None and set(values.values()) <= set(NOTHING_THERE):
        return absent_reading(item, "{} says {}".format(paths[0], values[paths[0]]))
    return _reading_of(values, item)


def read_nfs_read_ahead(host: Host, item: Item) -> Reading:
    """The read-ahead of every NFS file system that is mounted; each has a bdi of its own."""
    if not host.exists(NFS_VOLUMES):
        return absent_reading(item, "no NFS file system is mounted")
    table = host.read_bytes(NFS_VOLUMES).decode("utf-8", "replace")
    paths = [NFS_READ_AHEAD.format(device) for device in parse_nfs_devices(table)]
    if not paths:
        return absent_reading(item, "no NFS file system is mounted")
    return _reading_of({path: host.read_word(path) for path in paths}, item)


def parse_nfs_devices(table: str) -> List[str]:
    """The devices (`0:52`) of /proc/fs/nfsfs/volumes, whose fourth column they are."""
    rows = [line.split() for line in table.splitlines()[1:]]
    return sorted({row[DEVICE] for row in rows if len(row) > DEVICE and ":" in row[DEVICE]})


def read_choice(host: Host, item: Item) -> Reading:
    """A sysfs file that lists its choices with the current one in brackets."""
    if not host.exists(item.target):
        return absent_reading(item, "this kernel has no {}".format(item.target))
    text = host.read_word(item.target)
    chosen = [word[1:-1] for word in text.split() if word[:1] == "[" and word[-1:] == "]"]
    if len(chosen) != 1:
        raise Refused("{} holds {!r}, no choice in brackets".format(item.target, text))
    reading = _reading_of({item.target: chosen[0]}, item)
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
        return _reading_of({path: host.read_word(path)}, item)
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
    return _reading_of({RESERVED_PORTS: text}, item._replace(want=merged))


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


def _reading_of(values: Dict[str, str], item: Item) -> Reading:
    parts: Parts = dict(values)
    if item.want is None:
        return Reading(_shown(list(values.values())), parts, None, {})
    plain = " ".join(item.want.split())
    wanted = {
        path: value if item.is_on("at_least") and _is_enough(value, plain) else plain
        for path, value in values.items()
    }
    wanted_parts: Parts = dict(wanted)
    return Reading(
        value=_shown(list(values.values())),
        parts=parts,
        wanted=_shown(list(wanted.values())),
        wanted_parts=wanted_parts,
    )


def _is_enough(value: str, least: str) -> bool:
    """Whether every number of a value is as large as the one of the wanted value in its place."""
    found, wanted = value.split(), least.split()
    if len(found) != len(wanted) or not all(word.isdecimal() for word in found + wanted):
        return False
    return all(int(one) >= int(other) for one, other in zip(found, wanted))


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
