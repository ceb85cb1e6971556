"""Services of a host that set knobs of ours, too: which one would undo an item, and the way out."""

import glob
import os
from typing import List, NamedTuple, Tuple

from ..host import Host
from ..item import Item

UNIT_FOLDERS = ("/etc/systemd/system", "/run/systemd/system", "/usr/lib/systemd/system")
# Where systemd keeps the processes of a service that runs: cgroup v2, and its own tree of v1.
CONTROL_GROUPS = ("/sys/fs/cgroup/system.slice", "/sys/fs/cgroup/systemd/system.slice")
MASK = "/dev/null"
# What TuneD applies at boot; `tuned-adm off` leaves it empty, and without it TuneD chooses a profile by itself.
TUNED_PROFILE = "/etc/tuned/active_profile"
TUNED = "tuned.service"


class Overwriter(NamedTuple):
    """A service that writes to knobs by itself.

    Args:
        knobs: how the paths of what it may write begin.
        way_out: the command that makes it leave them alone.
    """

    knobs: Tuple[str, ...]
    way_out: str


PROCESSORS = "/sys/devices/system/cpu/cpu"  # and /cpufreq
# TuneD's plugins cpu, vm and disk; power-profiles-daemon's drivers; cpupower-service.conf of RHEL.
OVERWRITERS = {
    TUNED: Overwriter(
        (PROCESSORS, "/sys/kernel/mm/transparent_hugepage/", "/sys/block/"), "tuned-adm off"
    ),
    "power-profiles-daemon.service": Overwriter(
        (PROCESSORS,), "systemctl disable --now power-profiles-daemon"
    ),
    "cpupower.service": Overwriter((PROCESSORS,), "systemctl disable --now cpupower"),
}


def overwriters_here(host: Host) -> List[str]:
    """Those that run on this host, or start with it."""
    return [unit for unit in sorted(OVERWRITERS) if _is_at_work(host, unit)]


def overwritten(item: Item, here: List[str]) -> str:
    """What an operator should know of an item that others set, too; "" where none does.

    Args:
        item: of the host's tuning.
        here: the services of this host, from `overwriters_here`.
    """
    return "; ".join(
        "{} sets it, too, when it starts and when its settings change: "
        "`sudo {}` leaves it to us".format(unit, OVERWRITERS[unit].way_out)
        for unit in here
        if item.target.startswith(OVERWRITERS[unit].knobs)
    )


def _is_at_work(host: Host, unit: str) -> bool:
    if any(_is_masked(host, folder + "/" + unit) for folder in UNIT_FOLDERS):
        return False
    if unit == TUNED and host.exists(TUNED_PROFILE) and not host.read_word(TUNED_PROFILE):
        return False
    links = [folder + "/*.wants/" + unit for folder in UNIT_FOLDERS]
    groups = [folder + "/" + unit for folder in CONTROL_GROUPS]
    return any(glob.glob(host.path(pattern)) for pattern in links) or any(map(host.exists, groups))


def _is_masked(host: Host, path: str) -> bool:
    place = host.path(path)
    return os.path.islink(place) and os.readlink(place) == MASK
