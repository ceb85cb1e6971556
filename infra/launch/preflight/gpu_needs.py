"""The answers of vendors' tools that checks of accelerators rest on; NVIDIA's and AMD's, and what all vendors share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from infra.launch.preflight import amd, ascend, linux, nvidia
from infra.launch.preflight.accelerators import LISTING, Found, read_listing
from infra.launch.preflight.device_checks import awaited_devices
from infra.launch.preflight.evidence import Answer, FileText, is_there, printed
from infra.launch.preflight.firmware_checks import ASCEND_FIRMWARE
from infra.launch.preflight.gpu_checks import manager_state, switch_hosts
from infra.launch.preflight.nvlink_checks import declared_domain, rack_hosts
from infra.launch.preflight.recording import driver_version
from infra.launch.preflight.roce import parse_width
from infra.launch.preflight.scene import Scene

GPUS, QUERY = "nvidia.gpus", "nvidia.query"
SERVICES = "nvidia.services"


def listed_devices(scene: Scene, host: str) -> Iterator[Answer]:
    """The devices by the vendor's tool."""
    yield _listing(scene, host, lambda found: found[0])


def listed_names(scene: Scene, host: str) -> Iterator[Answer]:
    """The name of every device."""
    yield _listing(scene, host, lambda found: found[0] and all(found[0]))


def listed_memory(scene: Scene, host: str) -> Iterator[Answer]:
    """The memory of every device."""
    yield _listing(scene, host, lambda found: found[1] and all(found[1]))


def driver(scene: Scene, host: str) -> Iterator[Answer | FileText]:
    """The driver's version, where no file tells it; the light look asks no tool, and Ascend's tells none."""
    if scene.depth == "light" or driver_version(scene.hosts[host]):
        return
    if scene.accelerator(host).vendor == "ascend":
        yield FileText(path=ascend.DRIVER_FILE, reads=ascend.parse_driver_file)
    else:
        yield _listing(scene, host, lambda found: found[2])


def computing(scene: Scene, host: str) -> Iterator[Answer]:
    """Who computes on the devices."""
    vendor = scene.accelerator(host).vendor
    if vendor == "nvidia":
        yield Answer(command="nvidia.apps", is_told=printed(nvidia.shows_processes))
        yield _listing(scene, host, lambda found: found[0])  # which device is whose
    elif vendor == "amd":
        awaited = frozenset(awaited_devices(scene, host))
        told = printed(amd.parse_asked_devices, lambda devices: devices >= awaited and devices)
        yield Answer(command="amd.processes", is_told=told)
    else:
        yield Answer(command="ascend.info", is_told=printed(ascend.shows_processes))


def splitting(scene: Scene, host: str) -> Iterator[Answer]:
    """How devices are split."""
    if scene.accelerator(host).vendor == "nvidia":
        yield Answer(command=GPUS, is_told=printed(nvidia.shows_modes))
    else:
        yield Answer(command="amd.static", is_told=printed(amd.shows_partitions))


def memory_errors(scene: Scene, host: str) -> Iterator[Answer]:
    """Errors of the devices' memory."""
    if scene.accelerator(host).vendor == "nvidia":
        yield Answer(command=GPUS, is_told=printed(nvidia.parse_gpus))
        yield Answer(command="nvidia.rows", is_told=printed(nvidia.shows_rows))
    else:
        yield Answer(command="amd.ecc", is_told=printed(amd.shows_uncorrected))


def firmware(scene: Scene, host: str) -> Iterator[Answer | FileText]:
    """The VBIOS or firmware of the devices."""
    vendor = scene.accelerator(host).vendor
    if vendor == "nvidia":
        yield Answer(command=QUERY, is_told=printed(nvidia.parse_vbios))
    elif vendor == "amd":
        yield FileText(path=f"{amd.DEVICES}/*/vbios_version", reads=str.strip)
    else:
        yield FileText(path=ASCEND_FIRMWARE, reads=ascend.parse_driver_file)


def clock_reasons(_scene: Scene, _host: str) -> Iterator[Answer]:
    """What holds clocks down."""
    yield Answer(command=QUERY, is_told=printed(nvidia.shows_clock_reasons))


def lanes(scene: Scene, host: str) -> Iterator[Answer | FileText]:
    """PCIe lanes of the devices."""
    if scene.accelerator(host).vendor == "nvidia":
        told = printed(nvidia.parse_gpus, lambda gpus: gpus and all(gpu.pcie_width for gpu in gpus))
        yield Answer(command=GPUS, is_told=told)
    else:
        yield FileText(path=f"{amd.DEVICES}/*/current_link_width", reads=parse_width)


def kernel_log(_scene: Scene, _host: str) -> Iterator[Answer]:
    """The kernel's log since boot: an empty one is none."""
    told = printed(linux.parse_kernel_lines)
    yield Answer(command="kernel-log", is_told=told, by_hand="journalctl -k -b")


def fabric(scene: Scene, host: str) -> Iterator[Answer]:
    """The fabric's state; that a rack's is not told the check says itself."""
    if host not in rack_hosts(scene):
        yield Answer(command=QUERY, is_told=printed(nvidia.shows_fabric))


def domain(scene: Scene, _host: str) -> Iterator[Answer]:
    """The NVLink domain; the light look asks no tool."""
    if scene.depth == "full":
        yield Answer(command=QUERY, is_told=printed(nvidia.shows_fabric))


def declared(scene: Scene, host: str) -> Iterator[Answer]:
    """The domain that GPUs tell, where the inventory names one."""
    if declared_domain(scene, host) is not None:
        yield Answer(command=QUERY, is_told=printed(nvidia.shows_fabric))


def fabric_manager(scene: Scene, host: str) -> Iterator[Answer]:
    """The service's state; its version beside the driver's where it runs, else whether the fabric is whole."""
    yield Answer(command=SERVICES, is_told=lambda _: bool(manager_state(scene.hosts[host])))
    state = manager_state(scene.hosts[host])
    if state.get("ActiveState") == "active":
        version = printed(nvidia.parse_program_version, is_there)
        yield Answer(command="nvidia.fabric-manager", is_told=version)
        yield _listing(scene, host, lambda found: found[2])
    elif state.get("LoadState") == "not-found" and host in switch_hosts(scene):
        yield Answer(command=QUERY, is_told=printed(nvidia.shows_fabric))


def links(_scene: Scene, _host: str) -> Iterator[Answer]:
    """NVLinks of each device."""
    yield Answer(command="nvidia.nvlink", is_told=printed(nvidia.parse_links))


def diagnosis(_scene: Scene, _host: str) -> Iterator[Answer]:
    """DCGM's diagnosis: it fails with its tests, and tells them all the same."""
    yield Answer(
        command="nvidia.dcgm",
        is_told=lambda told: bool(nvidia.parse_diagnosis(told.stdout)),
        by_hand="dcgmi diag -r 1   # from datacenter-gpu-manager; it wants nvidia-dcgm.service",
    )


def xgmi_errors(_scene: Scene, _host: str) -> Iterator[Answer]:
    """Errors of the links between AMD's cards."""
    yield Answer(command="amd.xgmi", is_told=printed(amd.shows_xgmi_errors))


def _listing(
    scene: Scene,
    host: str,
    holds: Callable[[Found], object],
) -> Answer:
    """What the vendor's tool lists: names, memory, drivers."""
    vendor = scene.accelerator(host).vendor
    return Answer(command=LISTING[vendor], is_told=printed(partial(read_listing, vendor), holds))
