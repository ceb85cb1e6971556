"""Checks of one host alone: weights, image, name, memory, limits, leftovers."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from infra.launch.preflight import linux
from infra.launch.preflight.observed import ObservedHost
from infra.launch.preflight.scene import Scene, Trouble, odd_ones
from infra.launch.preflight.ssh_command import ssh_command
from infra.render import boot_mark
from infra.render.host_paths import release_path

ROOM_FACTOR = 1.1
MIN_FREE_INODES = 10000
GIB = 1 << 30
# LoadCredential= came with systemd 247 (its NEWS); before it is ignored with a warning.
CREDENTIALS_SINCE = 247
# LimitNOFILE of our units; the kernel refuses more than fs.nr_open.
NUM_FILES = 1048576
NO_DISKS = ("tmpfs", "ramfs", "overlay", "squashfs")
CLOCK_SOURCE = "/sys/devices/system/clocksource/clocksource0/current_clocksource"
# Each reading of the time is a system call with these, and the kernel falls back to them when it distrusts the TSC.
SLOW_CLOCKS = ("hpet", "acpi_pm", "jiffies", "refined-jiffies", "xen")
LOOPBACK = re.compile(r"^(127\.|::1$)")


def find_unfinished_boots(scene: Scene) -> Iterator[Trouble]:
    """Cloud hosts whose boot script still runs, or has failed: weights would lie where it did not put them."""
    for name, host in scene.hosts.items():
        said = host.word(boot_mark.FILE)
        if said is None or said == boot_mark.DONE:
            continue
        why = said.removeprefix(boot_mark.FAILED)
        observed = f"its boot script failed: {why}"
        fix = f"Mend that on {name}; then let the script run again: ssh {name} sudo {boot_mark.SCRIPT}"
        if said == boot_mark.RUNNING:
            observed = "its boot script still runs"
            fix = f"ssh {name} sudo cloud-init status --wait"
        yield Trouble(host=name, severity="block", observed=observed, fix=fix)


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
        disk, missing = host.disks.get(path), _missing_bytes(host, _sizes(scene))
        written = host.written.get(path)
        if disk is None or missing is None:
            continue
        missing_bytes, there_bytes = missing
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
        there = f" ({there_bytes / GIB:.0f} GiB are)" if there_bytes else ""
        wanted = f"{wanted_gib:.0f} GiB on a disk, for what is not staged yet{there}"
        yield Trouble(host=name, severity="block", observed=said, wanted=wanted, fix=move)


def find_missing_image(scene: Scene) -> Iterator[Trouble]:
    """Images that `up` would bring, and what it cannot bring: a silent runtime, a virtual environment."""
    for name, host in scene.hosts.items():
        for row in host.items.values():
            if row.get("group") != "images" or row.get("state") == "ok":
                continue
            kind = str(row["id"]).partition(":")[0]
            # nothing stages a program or an environment: the reason says how each is installed
            task = "up" if kind == "program" else "stage-weights"
            fix = f"fab {task} --stack {scene.plan.stack}"
            if kind == "environment":
                fix = f"Run that command on {name}: `fab` makes no environments."
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
            own = scene.plan.host(name).address
            script = f"sudo sed -i 's/^{addresses[0]}\\b/{own}/' /etc/hosts"
            yield Trouble(
                host=name,
                severity="block" if scene.spans_hosts else "warn",
                observed=f"its own name resolves to {addresses[0]}",
                fix=ssh_command(name, script),
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
                fix=f"`fab status --stack {other}`; `fab down --stack {other}` if it is a leftover.",
            )


def _is_enough(limit: str, least: int | None) -> bool:
    """Whether a soft limit is at least that many; None wants no limit at all."""
    return limit == "unlimited" or (least is not None and limit.isdecimal() and int(limit) >= least)


def _missing_bytes(host: ObservedHost, sizes: Mapping[str, int]) -> tuple[int, int] | None:
    """Bytes still to be written of checkpoints that are not whole, and bytes of them that are there; None of none."""
    lacking = {
        row_id: size
        for name, size in sizes.items()
        if (row := host.items.get(row_id := f"weights:{name}")) is not None
        and row.get("state") != "ok"
    }
    there = {row_id: min(host.sizes.get(row_id, 0), size) for row_id, size in lacking.items()}
    there_bytes = sum(there.values())
    return (sum(lacking.values()) - there_bytes, there_bytes) if lacking else None


def _weights_bytes(scene: Scene, host: ObservedHost) -> int:
    return sum(size for name, size in _sizes(scene).items() if f"weights:{name}" in host.items)


def _sizes(scene: Scene) -> dict[str, int]:
    """Bytes of every checkpoint of the catalogue."""
    catalog = scene.catalog
    return {name: catalog.checkpoint(name).size_bytes for name in catalog.ids("checkpoints")}
