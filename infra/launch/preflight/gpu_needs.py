"""The answers of vendors' tools that checks of accelerators rest on; NVIDIA's and AMD's, and what all vendors share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from infra.launch.preflight import amd, ascend, linux, nvidia
from infra.launch.preflight.accelerators import LISTING, Found, read_listing
from infra.launch.preflight.device_checks import awaited_devices
from infra.launch.preflight.evidence import Answer, FileText, is_there, of_each, printed
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
        yield of_each(GPUS, _num(scene, host), nvidia.count_modes)
    else:
        yield of_each("amd.static", _num(scene, host), amd.count_partitions)


def memory_errors(scene: Scene, host: str) -> Iterator[Answer]:
    """Errors of the devices' memory."""
    if scene.accelerator(host).vendor == "nvidia":
        yield of_each(GPUS, _num(scene, host), nvidia.count_ecc)
        yield of_each("nvidia.rows", _num(scene, host), nvidia.count_rows)
    else:
        yield of_each("amd.ecc", _num(scene, host), lambda text: len(amd.parse_uncorrected(text)))


def firmware(scene: Scene, host: str) -> Iterator[Answer | FileText]:
    """The VBIOS or firmware of the devices."""
    vendor = scene.accelerator(host).vendor
    if vendor == "nvidia":
        yield of_each(QUERY, _num(scene, host), lambda text: len(nvidia.parse_vbios(text)))
    elif vendor == "amd":
        path = f"{amd.DEVICES}/*/vbios_version"
        yield FileText(path=path, reads=str.strip, num=_num(scene, host))
    else:
        yield FileText(path=ASCEND_FIRMWARE, reads=ascend.parse_driver_file)


def clock_reasons(scene: Scene, host: str) -> Iterator[Answer]:
    """What holds clocks down."""
    yield of_each(QUERY, _num(scene, host), nvidia.count_clock_reasons)


def lanes(scene: Scene, host: str) -> Iterator[Answer | FileText]:
    """PCIe lanes of the devices."""
    if scene.accelerator(host).vendor == "nvidia":
        yield of_each(GPUS, _num(scene, host), nvidia.count_widths)
    else:
        path = f"{amd.DEVICES}/*/current_link_width"
        yield FileText(path=path, reads=parse_width, num=_num(scene, host))


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


def links(scene: Scene, host: str) -> Iterator[Answer]:
    """NVLinks of each device; that all are off is told by nothing at all."""
    num = _num(scene, host)
    yield of_each(
        "nvidia.nvlink",
        num,
        lambda text: num if nvidia.shows_no_links(text) else len(nvidia.parse_links(text)),
    )


def diagnosis(_scene: Scene, _host: str) -> Iterator[Answer]:
    """DCGM's diagnosis: it fails with its tests, and tells them all the same.

    It needs no nv-hostengine: `diag` starts an engine of its own (NVIDIA/DCGM dcgmi/Diag.cpp, v2.1.4 to v4.6.0).
    """
    yield Answer(
        command="nvidia.dcgm",
        is_told=lambda told: bool(nvidia.parse_diagnosis(told.stdout)),
        by_hand="dcgmi diag -r 1   # from datacenter-gpu-manager",
    )


def xgmi_errors(scene: Scene, host: str) -> Iterator[Answer]:
    """Errors of the links between AMD's cards."""
    yield of_each("amd.xgmi", _num(scene, host), amd.count_xgmi)


def _num(scene: Scene, host: str) -> int:
    """How many devices a host has."""
    return scene.plan.host(host).num_devices


def _listing(
    scene: Scene,
    host: str,
    holds: Callable[[Found], object],
) -> Answer:
    """What the vendor's tool lists: names, memory, drivers."""
    vendor = scene.accelerator(host).vendor
    return Answer(command=LISTING[vendor], is_told=printed(partial(read_listing, vendor), holds))
