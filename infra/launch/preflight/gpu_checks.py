"""Checks of GPUs: NVIDIA's fabric, links, memory, Xids and IMEX domain; AMD's partitions and links."""

from __future__ import annotations

from collections.abc import Iterator

from infra.launch.preflight import amd, ascend, linux, nvidia
from infra.launch.preflight.accelerators import tool_problem
from infra.launch.preflight.host_checks import awaited_devices
from infra.launch.preflight.observed import ObservedHost
from infra.launch.preflight.scene import Scene, Trouble, odd_ones, unequal

MAX_NAMED = 4
IMEX_CHANNEL = "/dev/nvidia-caps-imex-channels/channel0"
IMEX_NODES = "/etc/nvidia-imex/nodes_config.cfg"
FABRIC_MANAGER = "nvidia-fabricmanager.service"
PCIE_WIDTH = 16
# AWS's health suite for driver 590 (awsome-distributed-training, gpu-cluster-healthcheck@7217859): what needs a
# reboot or another machine blocks; what a reset has perhaps mended since boot warns.
XID_BLOCKS = frozenset({54, 79, 151, 168})
XID_WARNS = frozenset({48, 64, 74, 95, 109, 110, 119, 120, 136, 140, 143, 155, 156, 158})


def nvidia_hosts(scene: Scene) -> tuple[str, ...]:
    """Engine hosts with NVIDIA devices."""
    return scene.hosts_of_vendor("nvidia")


def amd_hosts(scene: Scene) -> tuple[str, ...]:
    """Engine hosts with AMD devices."""
    return scene.hosts_of_vendor("amd")


def rack_hosts(scene: Scene) -> tuple[str, ...]:
    """Engine hosts whose NVLink domain reaches beyond them, when the stack uses it."""
    if not scene.spans_hosts:
        return ()
    return tuple(
        host
        for host in nvidia_hosts(scene)
        if scene.accelerator(host).fabric.num_devices > scene.accelerator(host).devices_per_host
    )


def find_fabric_faults(scene: Scene) -> Iterator[Trouble]:
    """GPUs whose NVLink fabric is not complete: NCCL then falls back to the network in silence."""
    cliques: dict[str, str] = {}
    for name in nvidia_hosts(scene):
        sections = nvidia.parse_fabric(scene.hosts[name].text("nvidia.query") or "")
        needs_rack = name in rack_hosts(scene)
        if needs_rack and not sections:
            said = "nvidia-smi -q tells nothing of a fabric"
            fix = f"ssh {name} nvidia-smi -q; use a driver that knows the rack's fabric."
            yield Trouble(host=name, severity="block", observed=said, fix=fix)
        for index, one in enumerate(sections):
            if one.state in ("", "N/A") and not needs_rack:
                continue
            if one.state != "Completed" or one.status not in ("", "Success"):
                said = f"fabric of GPU {index}: state {one.state or 'none'}, status {one.status or 'none'}"
            elif needs_rack and one.cluster_uuid in ("", "N/A", nvidia.NO_CLUSTER):
                said = f"fabric of GPU {index} belongs to no cluster"
            else:
                cliques[name] = f"cluster {one.cluster_uuid} clique {one.clique_id}"
                continue
            fix = f"ssh {name} sudo systemctl restart nvidia-fabricmanager   # on a rack: the switch's NMX"
            yield Trouble(host=name, severity="block", observed=said, fix=fix)
            break
    if rack_hosts(scene):
        shown = {name: value for name, value in cliques.items() if name in rack_hosts(scene)}
        yield from unequal(shown, "Use trays of one NVLink domain and clique.")


def find_fabric_manager_faults(scene: Scene) -> Iterator[Trouble]:
    """Fabric managers that do not run, or are of another version than the driver."""
    for name in nvidia_hosts(scene):
        host = scene.hosts[name]
        units = linux.parse_unit_states(host.text("nvidia.services") or "")
        state = units.get(FABRIC_MANAGER, {})
        if state.get("LoadState") in (None, "not-found"):
            continue  # the switches are not this host's to manage; the fabric's state counts
        version = nvidia.parse_program_version(host.text("nvidia.fabric-manager") or "")
        drivers = {gpu.driver for gpu in nvidia.parse_gpus(host.text("nvidia.gpus") or "")}
        if state.get("ActiveState") != "active":
            yield Trouble(
                host=name,
                severity="block",
                observed=f"nvidia-fabricmanager is {state.get('ActiveState')}",
                fix=f"ssh {name} sudo systemctl start nvidia-fabricmanager",
            )
        elif version is not None and drivers and version not in drivers:
            yield Trouble(
                host=name,
                severity="block",
                observed=f"fabric manager {version} beside driver {', '.join(sorted(drivers))}",
                wanted="the same full version",
                fix=f"Install nvidia-fabricmanager {min(drivers)} on {name}.",
            )


def find_inactive_links(scene: Scene) -> Iterator[Trouble]:
    """GPUs with an NVLink down."""
    for name in nvidia_hosts(scene):
        links = nvidia.parse_links(scene.hosts[name].text("nvidia.nvlink") or "")
        if scene.accelerator(name).fabric.kind == "nvlink" and not any(
            n for n, _ in links.values()
        ):
            yield Trouble(
                host=name,
                severity="block",
                observed="nvidia-smi nvlink -s shows no link",
                fix=f"ssh {name} nvidia-smi nvlink -s; see the fabric manager and the driver.",
            )
        for gpu, (_, inactive) in links.items():
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
    """Devices with uncorrected errors, or rows that wait to be remapped."""
    for name, host in scene.hosts.items():
        for gpu in nvidia.parse_gpus(host.text("nvidia.gpus") or ""):
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
            if row.failure:
                said = f"{row.gpu_uuid}: row remapping failed"
                yield Trouble(host=name, severity="block", observed=said, fix="Replace the GPU.")
            elif row.pending:
                said = f"{row.gpu_uuid}: {row.pending} rows wait for a reset to be remapped"
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


def find_narrow_slots(scene: Scene) -> Iterator[Trouble]:
    """GPUs with fewer PCIe lanes than sixteen (the speed drops when idle, the width does not)."""
    for name in nvidia_hosts(scene):
        for gpu in nvidia.parse_gpus(scene.hosts[name].text("nvidia.gpus") or ""):
            if gpu.pcie_width is not None and gpu.pcie_width < PCIE_WIDTH:
                yield Trouble(
                    host=name,
                    severity="warn",
                    observed=f"GPU {gpu.index} ({gpu.bus_id}) has {gpu.pcie_width} PCIe lanes",
                    fix="Reseat the board, or have it replaced.",
                )


def find_xids(scene: Scene) -> Iterator[Trouble]:
    """Faults that the NVIDIA driver has written to the kernel's log since boot."""
    for name in nvidia_hosts(scene):
        told = scene.hosts[name].commands.get("kernel-log")
        if told is None or told.exit_code != 0:
            said = f"the kernel's log cannot be read: {told.last_words if told else 'not asked'}"
            fix = f"ssh {name} sudo journalctl -k -b"
            yield Trouble(host=name, severity="warn", observed=said, fix=fix)
            continue
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
                else f"ssh {name} journalctl -k -b -g Xid; reset the GPU if nothing has since.",
            )


def find_imex_faults(scene: Scene) -> Iterator[Trouble]:
    """Trays whose IMEX domain is not whole: memory of other trays cannot be mapped."""
    hosts = rack_hosts(scene)
    lists = {name: _imex_list(scene.hosts[name]) for name in hosts}
    for name in hosts:
        host = scene.hosts[name]
        said = _imex_fault(scene, name)
        if said is None and IMEX_CHANNEL not in host.paths:
            said = f"there is no {IMEX_CHANNEL}"
        if said is not None:
            fix = f"ssh {name} sudo systemctl restart nvidia-imex   # needs a drain; the node list must be one on all"
            yield Trouble(host=name, severity="block", observed=said, fix=fix)
    texts = {name: f"nodes {', '.join(nodes)}" for name, nodes in lists.items() if nodes}
    _, example, odd = odd_ones(texts)
    for name in odd:
        only = sorted(set(lists[example]) ^ set(lists[name]))
        yield Trouble(
            host=name,
            severity="block",
            observed=f"{IMEX_NODES} differs from {example}'s in {', '.join(only[:MAX_NAMED])}",
            wanted="one list on every tray",
            fix=f"fab tune-hosts --stack {scene.plan.stack}   # or copy the list, then restart nvidia-imex everywhere",
        )


def find_compute_processes(scene: Scene) -> Iterator[Trouble]:
    """Processes that compute on devices which the stack still has to start on."""
    for name in scene.engine_hosts:
        host, awaited = scene.hosts[name], awaited_devices(scene, name)
        held = {holder.pid for holder in host.holders}  # those are told by their device file
        for index, pid, words in _computing(host, scene.accelerator(name).id):
            if pid not in held and index in awaited:
                yield Trouble(
                    host=name,
                    severity="block",
                    observed=f"process {pid} ({words}) computes on device {index}, which {awaited[index]} needs",
                    fix=f"Stop it on {name}: ssh {name} sudo kill {pid}",
                )


def find_xgmi_errors(scene: Scene) -> Iterator[Trouble]:
    """AMD cards with errors on the links between them."""
    for name in amd_hosts(scene):
        for card, count in amd.parse_xgmi_errors(scene.hosts[name].text("amd.xgmi") or "").items():
            said = f"{card}: {count} XGMI errors"
            fix = f"ssh {name} sudo rocm-smi --resetxgmierr; drain the host when they come again."
            yield Trouble(host=name, severity="warn", observed=said, fix=fix)


def _imex_fault(scene: Scene, name: str) -> str | None:
    host = scene.hosts[name]
    told = host.commands.get("nvidia.imex")
    if told is None:
        return None
    if (problem := tool_problem(told, "nvidia-imex-ctl")) is not None:
        return problem
    domain = nvidia.parse_imex(scene.imex.get(name, told.stdout))
    if domain is None:
        return "nvidia-imex-ctl -N -j tells no domain"
    addresses = {scene.plan.host(one).address: one for one in rack_hosts(scene)}
    waiting = [
        f"{addresses.get(node, node)} {state}"
        for node, state in domain.nodes.items()
        if state != "READY"
    ]
    if waiting:
        return f"IMEX node {', '.join(waiting[:MAX_NAMED])}"
    missing = [one for address, one in addresses.items() if address not in domain.nodes]
    if missing:
        return f"its IMEX domain lacks {', '.join(missing[:MAX_NAMED])}"
    return f"IMEX: {domain.unconnected[0]}" if domain.unconnected else None


def _imex_list(host: ObservedHost) -> tuple[str, ...]:
    lines = [line.strip() for line in host.files.get(IMEX_NODES, "").splitlines()]
    return tuple(sorted(line for line in lines if line and not line.startswith("#")))


def _computing(host: ObservedHost, accelerator: str) -> Iterator[tuple[int, int, str]]:
    """(device, process id, name) of everything that computes on the host's devices."""
    indices = {gpu.uuid: gpu.index for gpu in nvidia.parse_gpus(host.text("nvidia.gpus") or "")}
    for one in nvidia.parse_compute_processes(host.text("nvidia.apps") or ""):
        yield indices.get(one.gpu_uuid, -1), one.pid, one.name
    for gpu, pid in amd.parse_processes(host.text("amd.processes") or ""):
        yield gpu, pid, f"on GPU {gpu}"
    dies = ascend.DIES_PER_CARD.get(accelerator, 1)
    for npu in ascend.parse_processes(host.text("ascend.info") or ""):
        yield npu.card * dies + npu.chip, npu.pid, npu.name
