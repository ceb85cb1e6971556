"""Checks of GPUs: NVIDIA's fabric manager, links, memory, Xids and diagnosis; AMD's partitions and links."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from infra.catalog.schema import Accelerator
from infra.launch.preflight import amd, ascend, linux, nvidia
from infra.launch.preflight.device_checks import awaited_devices
from infra.launch.preflight.finding import Severity
from infra.launch.preflight.observed import ObservedHost
from infra.launch.preflight.roce import parse_width
from infra.launch.preflight.scene import Scene, Trouble

MAX_NAMED = 4
# A GPU with so many rows remapped has used up its spare ones (Azure's azure_gpu_ecc.nhc).
MOST_REMAPPED_ROWS = 512
FABRIC_MANAGER = "nvidia-fabricmanager.service"
PCIE_WIDTH = 16
DIAGNOSIS: dict[str, Severity] = {"Fail": "block", "Warn": "warn"}
# AWS's health suite for driver 590 (awsome-distributed-training, gpu-cluster-healthcheck@7217859): what needs a
# reboot or another machine blocks; what a reset has perhaps mended since boot warns.
XID_BLOCKS = frozenset({54, 79, 151, 168})
XID_WARNS = frozenset(
    {48, 64, 74, 95, 109, 110, 119, 120, 136, 140, 143, *range(144, 151), 155, 156, 158}
)


def nvidia_hosts(scene: Scene) -> tuple[str, ...]:
    """Engine hosts with NVIDIA devices."""
    return scene.hosts_of_vendor("nvidia")


def amd_hosts(scene: Scene) -> tuple[str, ...]:
    """Engine hosts with AMD devices."""
    return scene.hosts_of_vendor("amd")


def switch_hosts(scene: Scene) -> tuple[str, ...]:
    """Engine hosts whose NVSwitches are their own: HGX boards. On a rack they are the rack's."""
    return tuple(
        host
        for host in nvidia_hosts(scene)
        if scene.accelerator(host).fabric.kind == "nvlink"
        and not scene.accelerator(host).fabric_spans_hosts
    )


def manager_state(host: ObservedHost) -> dict[str, str]:
    """What systemd says of the fabric manager; {} where it says nothing that can be read."""
    units = linux.parse_unit_states(host.text("nvidia.services") or "")
    state = units.get(FABRIC_MANAGER, {})
    return state if state.get("LoadState") and state.get("ActiveState") else {}


def find_fabric_manager_faults(scene: Scene) -> Iterator[Trouble]:
    """Fabric managers that do not run, or are of another version than the driver."""
    for name in nvidia_hosts(scene):
        state, own_switches = manager_state(scene.hosts[name]), name in switch_hosts(scene)
        active = state.get("ActiveState")
        if active == "active":
            yield from _other_manager(name, scene.hosts[name])
        elif state.get("LoadState") == "not-found":
            # where it is complete, somebody else manages the switches
            if own_switches and not _has_whole_fabric(scene.hosts[name]):
                said = "nvidia-fabricmanager is not installed, and the GPUs' fabric is not complete"
                yield Trouble(
                    host=name,
                    severity="block",
                    observed=said,
                    fix=_install(name, _drivers(scene.hosts[name])),
                )
        elif state and (own_switches or active != "inactive"):  # a rack's switches have their own
            yield Trouble(
                host=name,
                severity="block",
                observed=f"nvidia-fabricmanager is {active}",
                fix=f"ssh {name} sudo systemctl start nvidia-fabricmanager",
            )


def _other_manager(name: str, host: ObservedHost) -> Iterator[Trouble]:
    """A manager that runs beside a driver of another version."""
    version = nvidia.parse_program_version(host.text("nvidia.fabric-manager") or "")
    drivers = _drivers(host)
    if version is not None and drivers and version not in drivers:
        yield Trouble(
            host=name,
            severity="block",
            observed=f"fabric manager {version} beside driver {', '.join(sorted(drivers))}",
            wanted="the same full version",
            fix=_install(name, drivers),
        )


def _has_whole_fabric(host: ObservedHost) -> bool:
    """Whether no GPU is known to wait for its fabric."""
    sections = nvidia.parse_fabric(host.text("nvidia.query") or "")
    return all(one.state == "Completed" for one in sections)


def _drivers(host: ObservedHost) -> set[str]:
    return {gpu.driver for gpu in nvidia.parse_gpus(host.text("nvidia.gpus") or "")}


def _install(name: str, drivers: set[str]) -> str:
    return f"Install nvidia-fabricmanager {min(drivers, default='of the driver')} on {name}."


def find_inactive_links(scene: Scene) -> Iterator[Trouble]:
    """GPUs with an NVLink down."""
    for name in nvidia_hosts(scene):
        text = scene.hosts[name].text("nvidia.nvlink")
        links = nvidia.parse_links(text or "")
        has_links = any(count for count, _ in links.values())
        is_none_told = bool(links) or nvidia.shows_no_links(text)
        if scene.accelerator(name).fabric.kind == "nvlink" and is_none_told and not has_links:
            yield Trouble(
                host=name,
                severity="block",
                observed="nvidia-smi nvlink -s shows no link",
                fix=f"ssh {name} nvidia-smi nvlink -s; see the fabric manager and the driver.",
            )
        most = max((count for count, _ in links.values()), default=0)
        for gpu, (count, inactive) in links.items():
            if count < most:
                yield Trouble(
                    host=name,
                    severity="block",
                    observed=f"GPU {gpu} has {count} NVLinks, the others {most}",
                    fix=f"ssh {name} nvidia-smi nvlink -s; reset or replace the GPU.",
                )
            if inactive:
                numbers = ", ".join(str(link) for link in inactive)
                yield Trouble(
                    host=name,
                    severity="block",
                    observed=f"GPU {gpu}: NVLink {numbers} inactive",
                    fix=f"ssh {name} nvidia-smi nvlink -e; reset or replace the GPU.",
                )


def find_partitions(scene: Scene) -> Iterator[Trouble]:
    """Devices that are split: MIG, or AMD partitions."""
    for name, host in scene.hosts.items():
        for gpu in nvidia.parse_gpus(host.text("nvidia.gpus") or ""):
            if gpu.mig == "Enabled":
                fix = f"ssh {name} sudo nvidia-smi -mig 0 && ssh {name} sudo nvidia-smi --gpu-reset"
                said = f"MIG is enabled on GPU {gpu.index}"
                yield Trouble(host=name, severity="block", observed=said, fix=fix)
                break
        for one in amd.parse_static(host.text("amd.static") or ""):
            if one.compute_partition not in ("", "SPX") or one.memory_partition not in ("", "NPS1"):
                said = (
                    f"GPU {one.index} is partitioned {one.compute_partition}/{one.memory_partition}"
                )
                fix = f"ssh {name} sudo amd-smi set --compute-partition SPX; amd-smi set --memory-partition NPS1"
                yield Trouble(host=name, severity="block", observed=said, fix=fix)
                break


def find_memory_errors(scene: Scene) -> Iterator[Trouble]:
    """Devices with uncorrected errors, or rows that wait to be remapped, or none of which errors would be seen."""
    for name, host in scene.hosts.items():
        gpus = nvidia.parse_gpus(host.text("nvidia.gpus") or "")
        yield from _uncounted(name, gpus)
        for gpu in gpus:
            if gpu.ecc_uncorrected:
                said = (
                    f"GPU {gpu.index}: {gpu.ecc_uncorrected} uncorrected memory errors since boot"
                )
                yield Trouble(
                    host=name,
                    severity="warn",
                    observed=said,
                    fix="Drain the host and reset the GPU.",
                )
        for row in nvidia.parse_remapped_rows(host.text("nvidia.rows") or ""):
            if row.has_failed:
                said = f"{row.gpu_uuid}: row remapping failed"
                yield Trouble(host=name, severity="block", observed=said, fix="Replace the GPU.")
            elif row.uncorrectable > MOST_REMAPPED_ROWS:
                said = f"{row.gpu_uuid}: {row.uncorrectable} rows were remapped, of {MOST_REMAPPED_ROWS} spare ones"
                yield Trouble(host=name, severity="block", observed=said, fix="Replace the GPU.")
            elif row.has_pending:
                said = f"{row.gpu_uuid}: rows wait for a reset to be remapped"
                yield Trouble(
                    host=name,
                    severity="warn",
                    observed=said,
                    fix="Drain the host and reset the GPU.",
                )
        for index, count in amd.parse_uncorrected(host.text("amd.ecc") or "").items():
            if count:
                said = f"GPU {index}: {count} uncorrectable memory errors"
                yield Trouble(
                    host=name,
                    severity="warn",
                    observed=said,
                    fix="Drain the host and reset the GPU.",
                )


def _uncounted(name: str, gpus: Iterable[nvidia.Gpu]) -> Iterator[Trouble]:
    """GPUs that somebody has told not to look for errors of their memory."""
    off = [str(gpu.index) for gpu in gpus if gpu.has_ecc_off]
    if off:
        yield Trouble(
            host=name,
            severity="warn",
            observed=f"ECC is off on GPU {', '.join(off)}: errors of its memory are neither corrected nor counted",
            wanted="ECC on",
            fix=f"ssh {name} sudo nvidia-smi -e 1   # then a reset or a reboot; nothing to do where it is meant so",
        )


def find_narrow_slots(scene: Scene) -> Iterator[Trouble]:
    """GPUs with fewer PCIe lanes than sixteen (the speed drops when idle, the width does not)."""
    for name in (*nvidia_hosts(scene), *amd_hosts(scene)):
        for device, width in _lanes(scene.hosts[name]).items():
            if width < PCIE_WIDTH:
                yield Trouble(
                    host=name,
                    severity="warn",
                    observed=f"GPU {device} has {width} PCIe lanes",
                    fix="Reseat the board, or have it replaced.",
                )


def find_xids(scene: Scene) -> Iterator[Trouble]:
    """Faults that the NVIDIA driver has written to the kernel's log since boot."""
    for name in nvidia_hosts(scene):
        told = scene.hosts[name].commands.get("kernel-log")
        if told is None or told.exit_code != 0:
            continue
        switches = nvidia.parse_switch_errors(told.stdout)
        if switches:
            numbers = ", ".join(str(number) for number in dict.fromkeys(n for _, n in switches))
            yield Trouble(
                host=name,
                severity="warn",
                observed=f"SXid {numbers} of {len({bus for bus, _ in switches})} NVSwitches since boot",
                fix=f"ssh {name} sudo journalctl -k -b -g SXid; an Xid 74 beside it means the switch, not the GPU.",
            )
        by_number: dict[int, list[str]] = {}
        for bus, number in nvidia.parse_xids(told.stdout):
            by_number.setdefault(number, []).append(bus)
        for number, buses in by_number.items():
            if number not in XID_BLOCKS | XID_WARNS:
                continue
            yield Trouble(
                host=name,
                severity="block" if number in XID_BLOCKS else "warn",
                observed=f"Xid {number} on {', '.join(buses[:MAX_NAMED])} since boot",
                fix="Reboot the host; have the GPU replaced when it comes again."
                if number in XID_BLOCKS
                else f"ssh {name} sudo journalctl -k -b -g Xid; reset the GPU if nothing has since.",
            )


def find_compute_processes(scene: Scene) -> Iterator[Trouble]:
    """Processes that compute on devices which the stack still has to start on."""
    for name in scene.engine_hosts:
        host, awaited = scene.hosts[name], awaited_devices(scene, name)
        held = {holder.pid for holder in host.holders}  # those are told by their device file
        for index, pid, words in _computing(host, scene.accelerator(name)):
            if pid not in held and index in awaited:
                yield Trouble(
                    host=name,
                    severity="block",
                    observed=f"process {pid} ({words}) computes on device {index}, which {awaited[index]} needs",
                    fix=f"Stop it on {name}: ssh {name} sudo kill {pid}",
                )


def find_failed_diagnosis(scene: Scene) -> Iterator[Trouble]:
    """GPUs that DCGM's quick diagnosis fails."""
    for name in nvidia_hosts(scene):
        told = scene.hosts[name].commands.get("nvidia.dcgm")
        results = nvidia.parse_diagnosis(told.stdout) if told is not None else None
        if results is None:
            continue
        for status, severity in DIAGNOSIS.items():
            tests = [test for test, said in results.items() if said == status]
            if tests:
                yield Trouble(
                    host=name,
                    severity=severity,
                    observed=f"dcgmi diag -r 1: {status.lower()} in {', '.join(tests[:MAX_NAMED])}",
                    fix=f"ssh {name} sudo dcgmi diag -r 1",
                )


def find_xgmi_errors(scene: Scene) -> Iterator[Trouble]:
    """AMD cards with errors on the links between them."""
    for name in amd_hosts(scene):
        for card, count in amd.parse_xgmi_errors(scene.hosts[name].text("amd.xgmi") or "").items():
            said = f"{card}: {count} XGMI errors"
            fix = f"ssh {name} sudo rocm-smi --resetxgmierr; drain the host when they come again."
            yield Trouble(host=name, severity="warn", observed=said, fix=fix)


def _lanes(host: ObservedHost) -> dict[str, int]:
    """PCIe lanes of each device of NVIDIA's or AMD's that tells them."""
    found = {
        f"{gpu.index} ({gpu.bus_id})": gpu.pcie_width
        for gpu in nvidia.parse_gpus(host.text("nvidia.gpus") or "")
        if gpu.pcie_width is not None
    }
    for path, text in host.files.items():
        if path.startswith(amd.DEVICES) and path.endswith("/current_link_width"):
            width = parse_width(text)
            found |= {path.split("/")[-2]: width} if width is not None else {}
    return found


def is_computing(host: ObservedHost, accelerator: Accelerator) -> bool:
    """Whether anything computes on a host's devices."""
    return any(True for _ in _computing(host, accelerator))


def _computing(host: ObservedHost, accelerator: Accelerator) -> Iterator[tuple[int, int, str]]:
    """(device, process id, name) of everything that computes on the host's devices."""
    indices = {gpu.uuid: gpu.index for gpu in nvidia.parse_gpus(host.text("nvidia.gpus") or "")}
    for one in nvidia.parse_compute_processes(host.text("nvidia.apps") or ""):
        yield indices.get(one.gpu_uuid, -1), one.pid, one.name
    for gpu, pid in amd.parse_processes(host.text("amd.processes") or ""):
        yield gpu, pid, f"on GPU {gpu}"
    for npu in ascend.parse_processes(host.text("ascend.info") or ""):
        yield npu.card * accelerator.devices_per_card + npu.chip, npu.pid, npu.name
