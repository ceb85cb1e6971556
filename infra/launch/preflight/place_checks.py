"""Checks of the places that a start needs on a host: where we write, what containers are given, what waits in vain."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from infra.launch.name_lists import listed
from infra.launch.preflight import linux
from infra.launch.preflight.observed import Stuck
from infra.launch.preflight.scene import Scene, Trouble, everywhere
from infra.launch.preflight.ssh_command import ssh_command
from infra.render.container import DeviceAccess, device_files
from infra.render.host_paths import UNIT_FOLDER, stack_folder

# What `up` writes besides the weights (docs/architecture.md, "One document per host").
RECORDS = "/var/lib/moe-infra"
RUN_TIME = "/run/moe-infra"
SHARED_MEMORY = "/dev/shm"  # noqa: S108 - of the host
MIB = 1 << 20
# What NVIDIA gives one container with an engine: `--shm-size=1g` (NCCL user guide, troubleshooting, shared memory).
SHARED_BYTES = 1 << 30
# What to type on the host, and what to say of it.
WAYS_OUT = {
    "EROFS": (
        "sudo mount -o remount,rw {at}",
        "after a look at dmesg: a damaged disk is mounted so",
    ),
    "ENOSPC": ("df -h {at}; df -i {at}", "free space there"),
    "EDQUOT": ("sudo repquota -a", "free space there"),
}
OTHER_WAY_OUT = ("ls -ld {at}; findmnt --target {at}", "mend what is wrong there")


def written_places(scene: Scene) -> tuple[str, ...]:
    """Where a start of this stack writes, the weights apart."""
    return (stack_folder(scene.plan.stack), UNIT_FOLDER, RECORDS, RUN_TIME)


def find_places_that_take_nothing(scene: Scene) -> Iterator[Trouble]:
    """Hosts where files, records or units could not be written: read-only mounts and full disks."""
    for name, host in scene.hosts.items():
        seen = set()
        for place in written_places(scene):
            tried = host.written.get(place)
            if tried is None or tried.error is None or tried.at in seen:
                continue
            seen.add(tried.at)
            script, note = WAYS_OUT.get(tried.code or "", OTHER_WAY_OUT)
            yield Trouble(
                host=name,
                severity="block",
                observed=f"nothing can be written to {tried.at}: {tried.error}",
                wanted=f"{place} can be written",
                fix=f"{ssh_command(name, script.format(at=shlex.quote(tried.at)))}   # {note}",
            )


def shared_memory_hosts(scene: Scene) -> tuple[str, ...]:
    """Hosts whose engines use the host's own shared memory: natively, or as containers that share its IPC."""
    is_native = scene.plan.runtime == "native"
    return tuple(
        host
        for host in scene.engine_hosts
        if is_native or scene.accelerator(host).container.ipc_host
    )


def find_full_shared_memory(scene: Scene) -> Iterator[Trouble]:
    """Hosts whose shared memory is full: segments of processes that were killed stay, and each start adds its own."""
    for name in shared_memory_hosts(scene):
        disk = scene.hosts[name].disks.get(SHARED_MEMORY)
        engines = [p for p in scene.waiting(name) if p.kind == "engine"]
        wanted = len(engines) * SHARED_BYTES
        if disk is None or not engines or (disk.error is None and disk.free_bytes >= wanted):
            continue
        free = f"{disk.free_bytes / MIB:.0f} MiB of {SHARED_MEMORY} are free"
        # what no process has open any more; a running process of somebody else keeps its own
        script = f"for f in {SHARED_MEMORY}/*; do sudo fuser -s $f || ls -l $f; done; df -h {SHARED_MEMORY}"
        yield Trouble(
            host=name,
            severity="block" if disk.error is None else "warn",
            observed=free if disk.error is None else f"{SHARED_MEMORY}: {disk.error}",
            wanted=f"{wanted / MIB:.0f} MiB free: {len(engines)} engine processes share memory there",
            fix=f"{ssh_command(name, script)}   # remove what no process has open: nccl-*, psm_*, sem.*",
        )


def container_hosts(scene: Scene) -> tuple[str, ...]:
    """Hosts whose processes run in containers."""
    return () if scene.plan.runtime == "native" else everywhere(scene)


def given_sources(scene: Scene, host: str) -> dict[str, str]:
    """What containers are given of a host, devices too, each with the first process that is; without the weights."""
    weights = scene.plan.weights_path.rstrip("/")
    access = scene.accelerator(host).container
    devices = DeviceAccess(
        access=access,
        num_devices=scene.plan.host(host).num_devices,
        spans_hosts=scene.spans_hosts,
    )
    found: dict[str, str] = {}
    for process in scene.plan.on_host(host):
        sources = [mount.source for mount in process.mounts]
        if process.kind == "engine":
            sources += [*(mount.source for mount in access.mounts), *device_files(devices)]
        for source in sources:
            if source != weights and not source.startswith(f"{weights}/"):
                found.setdefault(source, process.id)
    return found


def find_missing_sources(scene: Scene) -> Iterator[Trouble]:
    """What containers are given and is not there: they would not start."""
    for name in container_hosts(scene):
        missing = {
            source: process
            for source, process in given_sources(scene, name).items()
            if source not in scene.hosts[name].paths
        }
        if missing:
            source, process = next(iter(missing.items()))
            yield Trouble(
                host=name,
                severity="block",
                observed=f"{listed(list(missing))}, which {process}'s container is given, is not there",
                fix=f"ssh {name} ls -ld {source}   # install what brings it: the driver, its tools",
            )


def find_stuck_processes(scene: Scene) -> Iterator[Trouble]:
    """Processes that nothing can end any more: a driver or a mount behind them is gone."""
    for name, host in scene.hosts.items():
        waited = linux.parse_hung_tasks(host.text("kernel-log") or "")
        threads: dict[int, list[Stuck]] = {}
        for one in host.stuck:
            threads.setdefault(one.pid, []).append(one)
        for pid, stuck in threads.items():
            since = max((waited.get(one.task, 0) for one in stuck), default=0)
            where = next((f" in {one.where}" for one in stuck if one.where), "")
            long = f", as the kernel said, for more than {since} s" if since else ""
            yield Trouble(
                host=name,
                severity="block" if since else "warn",
                observed=f"process {pid} ({stuck[0].command}) waits in the kernel{where}{long}",
                fix=f"ssh {name} sudo cat /proc/{pid}/stack; a dead mount is let go by `umount -f -l`, "
                "a dead driver by a reboot.",
            )
