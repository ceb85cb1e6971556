"""The accelerators of a host, whoever made them: count, names, memory, driver, and why a tool did not answer."""

from __future__ import annotations

from dataclasses import dataclass

from infra.launch.preflight import amd, ascend, nvidia
from infra.launch.preflight.observed import ObservedHost, Told

Found = tuple[tuple[str, ...], tuple[int, ...], tuple[str, ...]]
# Command that lists the devices, by vendor, and the program that an operator would run by hand.
LISTING = {"nvidia": "nvidia.gpus", "amd": "amd.static", "ascend": "ascend.info"}
PROGRAMS = {"nvidia": "nvidia-smi", "amd": "amd-smi list", "ascend": "npu-smi info"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Accelerators:
    """What the vendor's tool shows of a host.

    Args:
        problem: why nothing could be read, None when something was.
        names: by device, in the tool's order.
        memory_mib: by device.
        drivers: every version that is told; one when all is well.
    """

    problem: str | None
    names: tuple[str, ...]
    memory_mib: tuple[int, ...]
    drivers: tuple[str, ...]


def accelerators_of(host: ObservedHost, vendor: str) -> Accelerators | None:
    """What the vendor's tool said; None where it was not asked."""
    told = host.commands.get(LISTING.get(vendor, ""))
    if told is None:
        return None
    problem = tool_problem(told, PROGRAMS[vendor])
    names, memory, drivers = read_listing(
        vendor, told.stdout, host.files.get(ascend.DRIVER_FILE, "")
    )
    if problem is None and not names:
        problem = f"{PROGRAMS[vendor]} shows no device: {told.last_words}"
    return Accelerators(problem=problem, names=names, memory_mib=memory, drivers=drivers)


def tool_problem(told: Told, program: str) -> str | None:
    """Why a tool's answer is of no use, None when it is."""
    if told.hung:
        return f"{program} hangs ({told.seconds:.0f} s without an answer): the driver is wedged"
    if told.is_missing:
        return f"there is no {program.split(' ', maxsplit=1)[0]}"
    if told.refusal:
        return f"{program} cannot be run: {told.refusal}"
    if told.exit_code != 0:
        return f"{program} failed with exit code {told.exit_code}: {told.last_words}"
    return None


def read_listing(vendor: str, text: str, driver_file: str = "") -> Found:
    """Names and memory (MiB) by device, and the drivers' versions; what is not told is empty or 0."""
    if vendor == "nvidia":
        return _nvidia(text)
    return _amd(text) if vendor == "amd" else _ascend(text, driver_file)


def _nvidia(text: str) -> Found:
    gpus = nvidia.parse_gpus(text)
    drivers = tuple(dict.fromkeys(gpu.driver for gpu in gpus))
    return tuple(g.name for g in gpus), tuple(g.memory_mib for g in gpus), drivers


def _amd(text: str) -> Found:
    gpus = amd.parse_static(text)
    drivers = tuple(dict.fromkeys(gpu.driver for gpu in gpus if gpu.driver))
    return tuple(g.name for g in gpus), tuple(g.memory_mib for g in gpus), drivers


def _ascend(text: str, driver_file: str) -> Found:
    npus = ascend.parse_devices(text)
    driver = ascend.parse_driver_file(driver_file)
    return (
        tuple(npu.name for npu in npus),
        tuple(npu.memory_mib for npu in npus),
        (driver,) if driver else (),
    )
