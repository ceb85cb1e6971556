"""Checks of one host alone: weights, image, ports, devices, name, memory, limits, leftovers."""

from __future__ import annotations

import re
from collections.abc import Iterator

from infra.launch.preflight import linux
from infra.launch.preflight.observed import Holder, ObservedHost
from infra.launch.preflight.scene import Scene, Trouble, odd_ones
from infra.plan.process import Process
from infra.render.host_paths import release_path
from infra.render.reserved_ports import RESERVED_PORTS_ID, ports_at_risk

MAX_NAMED = 3
ROOM_FACTOR = 1.1
MIN_FREE_INODES = 10000
GIB = 1 << 30
# LoadCredential= came with systemd 247 (its NEWS); before it is ignored with a warning.
CREDENTIALS_SINCE = 247
# LimitNOFILE of our units; the kernel refuses more than fs.nr_open.
NUM_FILES = 1048576
NO_DISKS = ("tmpfs", "ramfs", "overlay", "squashfs")
# They keep device files open on every host that has them, and compute nothing (their own documentation).
DEVICE_DAEMONS = (
    "nvidia-persistenced", "nv-fabricmanager", "nv-hostengine", "nvidia-imex", "nvidia-smi", "dcgm-exporter",
    "nvsm_core", "nvidia-ctk", "npu-exporter", "amd-smi", "rocm-smi", "npu-smi", "Xorg",
)  # fmt: skip
DEVICE_FILES = {"nvidia": "/dev/nvidia{index}", "ascend": "/dev/davinci{index}", "amd": "/dev/kfd"}
CLOCK_SOURCE = "/sys/devices/system/clocksource/clocksource0/current_clocksource"
# Each reading of the time is a system call with these, and the kernel falls back to them when it distrusts the TSC.
SLOW_CLOCKS = ("hpet", "acpi_pm", "jiffies", "refined-jiffies", "xen")
LOOPBACK = re.compile(r"^(127\.|::1$)")


def find_missing_weights(scene: Scene) -> Iterator[Trouble]:
    """Checkpoints that are not there, or not whole."""
    for name, host in scene.hosts.items():
        for row in host.items.values():
            if row.get("group") == "weights" and row.get("state") != "ok":
                yield Trouble(
                    host=name,
                    severity="block",
                    observed=f"{row['id']}: {row['why']}",
                    fix=f"fab stage-weights --stack {scene.plan.stack}",
                )


def find_no_room(scene: Scene) -> Iterator[Trouble]:
    """Hosts where a checkpoint that is still missing does not fit."""
    path = scene.plan.weights_path
    for name, host in scene.hosts.items():
        disk, missing_bytes = host.disks.get(path), _missing_bytes(scene, host)
        written = host.written.get(path)
        if disk is None or not missing_bytes:
            continue
        wanted_gib = missing_bytes * ROOM_FACTOR / GIB
        move = f"Mount a disk at {path} on {name}, or set weights.path in the stack."
        if disk.error is not None:
            said = f"{path}: {disk.error}"
        elif disk.is_read_only:
            said = f"{path} is mounted read-only ({disk.mount})"
        elif written is not None and written.error is not None:
            said = f"nothing can be written to {written.at}: {written.error}"
        elif disk.kind in NO_DISKS:
            said = f"{path} lies on {disk.kind} ({disk.mount})"
        elif disk.free_bytes < missing_bytes * ROOM_FACTOR:
            said = f"{disk.free_bytes / GIB:.0f} GiB free at {disk.mount}"
        elif disk.total_inodes and disk.free_inodes < MIN_FREE_INODES:
            said = f"{disk.free_inodes} inodes free at {disk.mount}"
        else:
            continue
        wanted = f"{wanted_gib:.0f} GiB on a disk, for what is not staged yet"
        yield Trouble(host=name, severity="block", observed=said, wanted=wanted, fix=move)


def find_missing_image(scene: Scene) -> Iterator[Trouble]:
    """Images that `up` would bring, and what it cannot bring: a silent runtime, a virtual environment."""
    for name, host in scene.hosts.items():
        for row in host.items.values():
            if row.get("group") != "images" or row.get("state") == "ok":
                continue
            fix = f"fab stage-weights --stack {scene.plan.stack}"
            if row.get("state") == "changed":
                has = f"has {row['before']}" if row.get("before") else "is not there"
                said = f"{row['id']} {has}: `up` brings {row.get('wanted') or 'it'}"
                yield Trouble(host=name, severity="warn", observed=said, fix=fix)
            else:
                said = f"{row['id']}: {row['why']}"
                yield Trouble(host=name, severity="block", observed=said, fix=fix)


def find_other_digests(scene: Scene) -> Iterator[Trouble]:
    """Hosts whose image is another one under the same tag."""
    digests = {
        name: str(row["before"])
        for name, host in scene.hosts.items()
        for row in host.items.values()
        if str(row["id"]).startswith("image:") and row.get("state") == "ok" and row.get("before")
    }
    usual, example, odd = odd_ones(digests)
    for name, digest in odd.items():
        yield Trouble(
            host=name,
            severity="block",
            observed=f"{digest}, while {example} has {usual}",
            wanted=f"one digest of {scene.plan.engine.image}",
            fix=f"ssh {name} sudo {scene.plan.runtime} pull {scene.plan.engine.image}   # or pin its digest",
        )


def find_taken_ports(scene: Scene) -> Iterator[Trouble]:
    """Ports that somebody else listens on; our own running processes may."""
    for name, host in scene.hosts.items():
        needs: dict[int, Process] = {
            port: process for process in scene.waiting(name) for port in bound_ports(process)
        }
        ours = {port for process in scene.ours.get(name, ()) for port in process.ports}
        for row in host.listening:
            port = int(str(row["port"]))
            if port not in needs or port in ours:
                continue
            holder = f"process {row['pid']} ({row['command']})" if row.get("pid") else "somebody"
            yield Trouble(
                host=name,
                severity="block",
                observed=f"port {port}, which {needs[port].id} needs, is taken by {holder}",
                fix=f"Stop it on {name}, or change the stack's ports.",
            )


def find_unreserved_ports(scene: Scene) -> Iterator[Trouble]:
    """Ports that the kernel may give to outgoing connections before the engines bind them."""
    for name, host in scene.hosts.items():
        ports = sorted(ports_at_risk(scene.plan.on_host(name)))
        row = host.items.get(RESERVED_PORTS_ID)
        if ports and (row is None or row["state"] != "ok"):
            yield Trouble(
                host=name,
                severity="block",
                observed=f"ports {_listed([str(p) for p in ports])} lie where the kernel takes ports for outgoing "
                "connections, and are not reserved",
                fix=f"fab tune-hosts --stack {scene.plan.stack}",
            )


def find_held_devices(scene: Scene) -> Iterator[Trouble]:
    """Devices of processes that do not run yet, held by somebody."""
    for name in scene.engine_hosts:
        files = awaited_device_files(scene, name)
        for holder in scene.hosts[name].holders:
            if holder.device not in files or is_device_daemon(holder):
                continue
            waits = files[holder.device]
            yield Trouble(
                host=name,
                severity="block",
                observed=f"{holder.device}, which {waits} needs, is held by process {holder.pid} ({_whose(holder)})",
                fix=f"Stop it on {name}: ssh {name} sudo kill {holder.pid}",
            )


def find_loopback_name(scene: Scene) -> Iterator[Trouble]:
    """Hosts whose own name is the loopback: what binds to it cannot be reached by peers."""
    for name, host in scene.hosts.items():
        addresses = linux.parse_own_addresses(host.text("own-name") or "")
        if not addresses:
            yield Trouble(
                host=name,
                severity="warn",
                observed="its own name does not resolve",
                fix=f"Write `{scene.plan.host(name).address} {name}` to /etc/hosts on {name}.",
            )
        elif LOOPBACK.match(addresses[0]):
            yield Trouble(
                host=name,
                severity="block" if scene.spans_hosts else "warn",
                observed=f"its own name resolves to {addresses[0]}",
                fix=f"ssh {name} sudo sed -i 's/^{addresses[0]}\\b/{scene.plan.host(name).address}/' /etc/hosts",
            )


def find_mistaken_names(scene: Scene) -> Iterator[Trouble]:
    """Hosts that know a peer's name and mean another machine by it."""
    for name, host in scene.hosts.items():
        for peer in scene.plan.hosts:
            addresses = linux.parse_own_addresses(host.text(f"name:{peer.name}") or "")
            if addresses and peer.address not in addresses:
                yield Trouble(
                    host=name,
                    severity="warn",
                    observed=f"it takes {peer.name} for {addresses[0]}, which is {peer.address}",
                    fix=f"ssh {name} getent ahosts {peer.name}; mend /etc/hosts or the name service.",
                )


def find_slow_clocks(scene: Scene) -> Iterator[Trouble]:
    """Hosts whose kernel tells the time by a slow device: engines read it at every step."""
    for name, host in scene.hosts.items():
        source = host.word(CLOCK_SOURCE)
        if source in SLOW_CLOCKS:
            yield Trouble(
                host=name,
                severity="warn",
                observed=f"its clock source is {source}",
                fix=f"ssh {name} sudo journalctl -k -b -g clocksource; the kernel says why it distrusts the TSC.",
            )


def find_little_memory(scene: Scene) -> Iterator[Trouble]:
    """Hosts that read the weights from the disk again at every start."""
    for name, host in scene.hosts.items():
        memory = linux.parse_memory(host.files.get("/proc/meminfo", ""))
        available, size = memory.get("MemAvailable"), _weights_bytes(scene, host)
        if available is not None and size and available < size:
            yield Trouble(
                host=name,
                severity="warn",
                observed=f"{available / GIB:.0f} GiB of memory available",
                wanted=f"{size / GIB:.0f} GiB, so that the weights stay in the page cache between starts",
                fix="Free memory there, or expect every start to read the disk.",
            )


def find_swap(scene: Scene) -> Iterator[Trouble]:
    """Hosts that swap."""
    for name, host in scene.hosts.items():
        swaps = linux.parse_swaps(host.files.get("/proc/swaps", ""))
        if swaps:
            said = ", ".join(f"{where} ({size / GIB:.1f} GiB)" for where, size in swaps)
            fix = f"ssh {name} sudo swapoff --all"
            yield Trouble(host=name, severity="warn", observed=f"swap on {said}", fix=fix)


def find_low_limits(scene: Scene) -> Iterator[Trouble]:
    """Hosts whose service manager cannot grant what our units ask for, tried with a service of its own."""
    wanted = {"Max locked memory": None, "Max open files": NUM_FILES}
    for name, host in scene.hosts.items():
        told = host.commands.get("service-limits")
        if told is None:
            continue
        if told.exit_code != 0:
            said = f"a service with our limits does not start: {told.last_words}"
            fix = f"ssh {name} sysctl fs.nr_open   # at least {NUM_FILES}"
            yield Trouble(host=name, severity="block", observed=said, fix=fix)
            continue
        limits = linux.parse_limits(told.stdout)
        low = [
            f"{limit.lower()} {limits.get(limit, 'unknown')}"
            for limit, least in wanted.items()
            if not _is_enough(limits.get(limit, ""), least)
        ]
        if low:
            yield Trouble(
                host=name,
                severity="block",
                observed=f"a service gets {' and '.join(low)}",
                fix=f"Raise the limits of PID 1 on {name} (it runs in a container?), then run again.",
            )


def find_old_systemd(scene: Scene) -> Iterator[Trouble]:
    """Hosts whose systemd ignores the credentials that the stack's secrets would travel by."""
    for name, host in scene.hosts.items():
        version = linux.parse_systemd_version(host.text("systemd") or "")
        if version is not None and version < CREDENTIALS_SINCE:
            yield Trouble(
                host=name,
                severity="warn",
                observed=f"systemd {version} ignores LoadCredential=: launch scripts read the files of "
                f"{', '.join(scene.plan.secrets)} as root",
                wanted=f"systemd {CREDENTIALS_SINCE} or newer",
                fix="Nothing must be done; a newer systemd keeps secrets to the unit.",
            )


def find_cgroup_driver(scene: Scene) -> Iterator[Trouble]:
    """Docker hosts where `systemctl daemon-reload` can take GPUs from running containers."""
    for name in scene.hosts_of_vendor("nvidia"):
        told = scene.hosts[name].commands.get("docker-info")
        if told is None:
            continue
        driver = linux.parse_cgroup_driver(told.stdout) if told.exit_code == 0 else None
        if driver is None:
            fix = f"ssh {name} sudo systemctl status docker"
            said = f"docker does not answer: {told.last_words}"
            yield Trouble(host=name, severity="block", observed=said, fix=fix)
        elif driver[0] == "systemd":
            yield Trouble(
                host=name,
                severity="warn",
                observed="docker's cgroup driver is systemd: a daemon-reload can take the GPUs from running containers",
                wanted="cgroupfs, or no daemon-reload while engines run (nvidia-container-toolkit#48)",
                fix='Write {"exec-opts": ["native.cgroupdriver=cgroupfs"]} to /etc/docker/daemon.json.',
            )


def find_other_stacks(scene: Scene) -> Iterator[Trouble]:
    """Hosts that hold another stack's release."""
    own = release_path(scene.plan.stack)
    for name, host in scene.hosts.items():
        others = sorted(
            path.split("/")[-2]
            for path in host.paths
            if path.startswith("/etc/moe-infra/") and path.endswith("/release.json") and path != own
        )
        for other in others:
            yield Trouble(
                host=name,
                severity="warn",
                observed=f"stack {other} is installed here too",
                fix=f"fab status --stack {other}; fab down --stack {other} if it is a leftover.",
            )


def bound_ports(process: Process) -> list[int]:
    """Every port that a process binds."""
    return [bind.port + i for bind in process.binds for i in range(bind.count)]


def awaited_devices(scene: Scene, host: str) -> dict[int, str]:
    """The devices that processes which do not run yet will use, each with its process."""
    ours = {device for process in scene.ours.get(host, ()) for device in process.devices}
    return {
        index: process.id
        for process in scene.waiting(host)
        for index in process.devices
        if index not in ours
    }


def awaited_device_files(scene: Scene, host: str) -> dict[str, str]:
    """The device files of those devices, each with a process that will open it."""
    pattern = DEVICE_FILES.get(scene.accelerator(host).vendor)
    awaited = awaited_devices(scene, host)
    if pattern is None:
        return {}
    if "{index}" not in pattern and len(awaited) < scene.plan.host(host).num_devices:
        return {}  # one file for all devices: whoever holds it may use the others
    return {pattern.format(index=index): process for index, process in awaited.items()}


def is_device_daemon(holder: Holder) -> bool:
    """Whether a holder only watches devices."""
    program = holder.command.split(" ")[0].rpartition("/")[2]
    return program in DEVICE_DAEMONS


def _is_enough(limit: str, least: int | None) -> bool:
    """Whether a soft limit is at least that many; None wants no limit at all."""
    return limit == "unlimited" or (least is not None and limit.isdecimal() and int(limit) >= least)


def _whose(holder: Holder) -> str:
    unit = holder.control_group.rstrip("/").rpartition("/")[2]
    return f"{holder.command or 'no command'}; {unit}" if unit else holder.command


def _missing_bytes(scene: Scene, host: ObservedHost) -> int:
    return sum(
        size
        for name, size in _sizes(scene).items()
        if (row := host.items.get(f"weights:{name}")) is not None and row.get("state") != "ok"
    )


def _weights_bytes(scene: Scene, host: ObservedHost) -> int:
    return sum(size for name, size in _sizes(scene).items() if f"weights:{name}" in host.items)


def _sizes(scene: Scene) -> dict[str, int]:
    """Bytes of every checkpoint of the catalogue."""
    catalog = scene.catalog
    return {name: catalog.checkpoint(name).size_bytes for name in catalog.ids("checkpoints")}


def _listed(names: list[str]) -> str:
    more = len(names) - MAX_NAMED
    return ", ".join(names[:MAX_NAMED]) + (f" and {more} more" if more > 0 else "")
