"""The knobs of one host: which files, with which first values, and where they show."""

from __future__ import annotations

import os
import stat
from functools import cache
from pathlib import Path

from infra.rehearsal.lab.hosts import LabHost
from infra.rehearsal.lab.knobs import (
    Folder,
    Knob,
    Link,
    Node,
    bracketed,
    choice,
    fixed,
    fresh_uuid,
    integer,
    preference,
    refused,
    registers,
    text,
)

MOUNT_POINTS = {
    "kernel": "/proc/sys/kernel",
    "vm": "/proc/sys/vm",
    "fs": "/proc/sys/fs",
    "cpu": "/sys/devices/system/cpu",
    "debug": "/sys/kernel/debug",
    "security": "/sys/kernel/security",
    "thp": "/sys/kernel/mm/transparent_hugepage",
    "block": "/sys/block",
    "bdi": "/sys/class/bdi",
}
"""Folder of a host's tree → where the host sees it."""

LONE = "lone"
"""Folder of a host's tree with the knobs that lie elsewhere, each of which covers one file."""
LONE_ABOVE = ("/proc/", "/sys/")

LIVE_FILES = ("/proc/sys/kernel/hostname", "/proc/sys/kernel/domainname")
"""Files that the host's own namespaces answer."""

BOOT_ID = "kernel/random/boot_id"
MIGRATION_COST_NS = 500_000  # kernel/sched/fair.c, sysctl_sched_migration_cost
THP_ENABLED = ("always", "madvise", "never")
THP_DEFRAG = ("always", "defer", "defer+madvise", "madvise", "never")
LOCKDOWN_MODES = ("none", "integrity", "confidentiality")
IDLE_STATES = (("POLL", 0), ("C1", 1), ("C2", 800))  # name, exit latency in µs, as on EPYC
GOVERNORS = ("performance", "powersave")  # what intel_pstate and amd_pstate offer
ENERGY_PREFERENCES = (
    "default",
    "performance",
    "balance_performance",
    "balance_power",
    "power",
)
DISKS = {"nvme0n1": "259:0", "nvme1n1": "259:1"}  # name and number
NFS_DEVICE = "0:52"  # of the NFS mount that a host has whose /proc/fs/nfsfs/volumes names it
READ_AHEAD_KB = 128  # VM_READAHEAD_PAGES
_MAX_VALUE_BYTES = 4096


def build_knobs(host: LabHost) -> Folder:
    """All knobs of a host at their first values."""
    tree = Folder(
        entries={
            "kernel": _kernel(host),
            "vm": _vm(),
            "fs": _copy_of("/proc/sys/fs"),
            "cpu": _cpus(host),
            "debug": _debug(host),
            "security": _security(host),
            "thp": _transparent_hugepages(),
            "block": Folder(entries={name: _disk() for name in DISKS}),
            "bdi": Folder(
                entries={name: _backing_device() for name in (*DISKS.values(), NFS_DEVICE)}
            ),
            LONE: Folder(entries={}),
        }
    )
    for path, value in host.knobs.items():
        knob = find_knob(tree, path)
        if knob is None:
            _add(tree, path, text(value))
        else:
            knob.first = knob.value = value
    for path, content in host.registers.items():
        _add(tree, path, registers(content))
    return tree


def lone_files(host: LabHost) -> list[str]:
    """Paths of the knobs of a host that none of its folders of knobs holds."""
    return [path for path in map(_path_of, (*host.knobs, *host.registers)) if _is_lone(path)]


def find_knob(tree: Folder, path: str) -> Knob | None:
    """The knob that a host sees at `path`, or that sysctl(8) calls by that name."""
    node = tree.find(_inside(path))
    return node if isinstance(node, Knob) else None


def seen_at(inside: str) -> str:
    """Where the host sees a path of the tree."""
    folder, _, rest = inside.partition("/")
    return f"/{rest}" if folder == LONE else f"{MOUNT_POINTS[folder]}/{rest}"


def _add(tree: Folder, path: str, knob: Knob) -> None:
    """Put a knob where there is none yet.

    Raises:
        FileNotFoundError: its place cannot be.
    """
    folder, _, name = _inside(path).rpartition("/")
    parent: Node | None = tree.find(folder)
    if _is_lone(_path_of(path)):
        parent = tree
        for part in folder.split("/"):
            if isinstance(parent, Folder):
                parent = parent.entries.setdefault(part, Folder(entries={}))
    if not isinstance(parent, Folder):
        raise FileNotFoundError(path)
    parent.entries[name] = knob


def _inside(path: str) -> str:
    path = _path_of(path)
    for folder, prefix in MOUNT_POINTS.items():
        if path.startswith(prefix + "/"):
            return folder + path.removeprefix(prefix)
    return LONE + path if _is_lone(path) else path


def _path_of(path: str) -> str:
    """A path as it is, or that of what sysctl(8) calls by a name."""
    return path if path.startswith("/") else "/proc/sys/" + path.replace(".", "/")


def _is_lone(path: str) -> bool:
    in_folder = any(path.startswith(prefix + "/") for prefix in MOUNT_POINTS.values())
    return path.startswith(LONE_ABOVE) and not in_folder


def _kernel(host: LabHost) -> Folder:
    kernel = _copy_of("/proc/sys/kernel")
    kernel.entries["numa_balancing"] = integer(1, 0, 3)
    kernel.entries["random"] = Folder(
        entries={
            "boot_id": fixed("-"),
            "uuid": fresh_uuid(),
            "entropy_avail": fixed("256"),
            "poolsize": fixed("256"),
        }
    )
    kernel.entries.pop("sched_migration_cost_ns", None)
    if host.kernel == "sysctl":
        kernel.entries["sched_migration_cost_ns"] = integer(MIGRATION_COST_NS, 0, 2**32 - 1)
    return kernel


def _vm() -> Folder:
    memory = _copy_of("/proc/sys/vm")
    memory.entries |= {
        "swappiness": integer(60, 0, 200),
        "max_map_count": integer(65530, 0, 2**31 - 1),
        "zone_reclaim_mode": integer(0, 0, 7),
        "nr_hugepages": integer(0, 0),
        "overcommit_memory": integer(0, 0, 2),
        "dirty_ratio": integer(20, 0, 100),
        "dirty_background_ratio": integer(10, 0, 100),
    }
    return memory


def _debug(host: LabHost) -> Folder:
    debug = Folder(entries={}, mode=0o500)
    if host.kernel == "debugfs":
        cost: Knob = integer(MIGRATION_COST_NS, 0, 2**32 - 1)
    elif host.kernel == "locked-down":
        cost = refused(str(MIGRATION_COST_NS))
    else:
        return debug
    debug.entries["sched"] = Folder(entries={"migration_cost_ns": cost})
    return debug


def _security(host: LabHost) -> Folder:
    chosen = "integrity" if host.kernel == "locked-down" else "none"
    return Folder(entries={"lockdown": bracketed(chosen, LOCKDOWN_MODES)}, mode=0o755)


def _transparent_hugepages() -> Folder:
    return Folder(
        entries={
            "enabled": bracketed("madvise", THP_ENABLED),
            "defrag": bracketed("madvise", THP_DEFRAG),
            "shmem_enabled": text("never"),
            "use_zero_page": integer(1, 0, 1),
            "hpage_pmd_size": fixed("2097152"),
        }
    )


def _disk() -> Folder:
    queue: dict[str, Node] = {
        "read_ahead_kb": integer(READ_AHEAD_KB, 0, 2**32 - 1),
        "rotational": fixed("0"),
        "scheduler": bracketed("none", ("none", "mq-deadline", "kyber")),
    }
    return Folder(entries={"queue": Folder(entries=queue), "size": fixed("7501476528")})


def _backing_device() -> Folder:
    return Folder(entries={"read_ahead_kb": integer(READ_AHEAD_KB, 0, 2**32 - 1)})


def _cpus(host: LabHost) -> Folder:
    everyone = f"0-{host.num_cpus - 1}" if host.num_cpus > 1 else "0"
    cpus = Folder(
        entries={
            "online": fixed(everyone),
            "possible": fixed(everyone),
            "present": fixed(everyone),
            "offline": fixed(""),
            "kernel_max": fixed("8191"),
            "smt": Folder(entries={"active": fixed("0"), "control": _smt(host)}),
        }
    )
    policies: dict[str, Node] = {}
    for number in range(host.num_cpus):
        cpu: dict[str, Node] = {
            "topology": Folder(
                entries={
                    "core_id": fixed(str(number)),
                    "physical_package_id": fixed("0"),
                    "thread_siblings_list": fixed(str(number)),
                }
            )
        }
        if host.has_cpufreq:
            policies[f"policy{number}"] = _frequency_policy(number)
            cpu["cpufreq"] = Link(target=f"../cpufreq/policy{number}")
            cpu["cpuidle"] = _idle_states()
            cpu["power"] = Folder(entries={"pm_qos_resume_latency_us": integer(0, 0, 2**31 - 1)})
        cpus.entries[f"cpu{number}"] = Folder(entries=cpu)
    if policies:
        cpus.entries["cpufreq"] = Folder(entries=policies)
    return cpus


def _smt(host: LabHost) -> Knob:
    """Switched by the host itself where it owns its clock; a virtual machine has no second threads to switch."""
    return choice("on", ("on", "off", "forceoff")) if host.has_cpufreq else fixed("notsupported")


def _frequency_policy(number: int) -> Folder:
    governor = choice("powersave", GOVERNORS)
    return Folder(
        entries={
            "affected_cpus": fixed(str(number)),
            "related_cpus": fixed(str(number)),
            "scaling_driver": fixed("intel_pstate"),
            "scaling_governor": governor,
            "scaling_available_governors": fixed(" ".join(GOVERNORS)),
            "energy_performance_preference": preference(
                "balance_performance", ENERGY_PREFERENCES, governor
            ),
            "energy_performance_available_preferences": fixed(" ".join(ENERGY_PREFERENCES)),
            "scaling_min_freq": integer(800_000, 0),
            "scaling_max_freq": integer(3_800_000, 0),
            "scaling_cur_freq": fixed("1200000"),
        }
    )


def _idle_states() -> Folder:
    states: dict[str, Node] = {}
    for number, (name, latency_us) in enumerate(IDLE_STATES):
        entries: dict[str, Node] = {
            "name": fixed(name),
            "latency": fixed(str(latency_us)),
            "disable": integer(0, 0, 1),
        }
        states[f"state{number}"] = Folder(entries=entries)
    return Folder(entries=states)


def _copy_of(folder: str) -> Folder:
    """Knobs with the names and values of the machine's own; writes stay with the host."""
    result = Folder(entries={})
    for path, value, mode in _machine_values(folder):
        parent = result
        *parts, name = path.split("/")
        for part in parts:
            below = parent.entries.setdefault(part, Folder(entries={}))
            if not isinstance(below, Folder):
                break
            parent = below
        parent.entries[name] = _knob_like(value, mode)
    return result


def _knob_like(value: str, mode: int) -> Knob:
    if not mode & stat.S_IWUSR:
        return fixed(value)
    try:
        knob = integer(int(value))
    except ValueError:
        knob = text(value)
    knob.mode = mode
    return knob


@cache
def _machine_values(folder: str) -> tuple[tuple[str, str, int], ...]:
    """Relative path, value and mode of every file below a folder of /proc/sys."""
    found: list[tuple[str, str, int]] = []
    device = Path(folder).stat().st_dev
    for directory, subfolders, names in os.walk(folder):
        subfolders[:] = [
            name for name in subfolders if Path(directory, name).stat().st_dev == device
        ]
        for name in names:
            path = Path(directory, name)
            mode = stat.S_IMODE(path.stat().st_mode)
            if not mode & stat.S_IRUSR:
                found.append((str(path.relative_to(folder)), "", mode))
                continue
            try:
                value = path.read_bytes()[:_MAX_VALUE_BYTES].decode().strip()
            except (OSError, UnicodeDecodeError):
                continue  # a knob that the machine itself cannot read is not there on the host
            found.append((str(path.relative_to(folder)), value, mode))
    return tuple(found)
