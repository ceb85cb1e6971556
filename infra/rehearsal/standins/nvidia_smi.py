"""`nvidia-smi`: queries as CSV, the list, `-q` with the fabric section, NVLink state, `-pm`, `-pl`, `-ac`, `-mig`.

Written from the manual of driver 580, public outputs and recordings of driver 580.159.04 on an H200; what other
options print is not here, and they are refused as unknown ones are.
"""

from __future__ import annotations

import os
import time

from .host_state import (
    STANDIN_NOTICE,
    device_identifier,
    fault_of,
    present_devices,
    read_device_uses,
    read_host,
    run_folder,
)
from .nvidia_sections import clock_rows, fabric, link_lines, vbios
from .standin_options import BadOption, read_options

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from .host_state import DeviceUse

    FieldValue = Callable[["Gpu"], str]

OPTIONS = {
    "-L": False, "--list-gpus": False, "-q": False, "--query": False, "-i": True, "--id": True, "-d": True,
    "--display": True, "-pl": True, "--power-limit": True, "-ac": True, "--applications-clocks": True,
    "-mig": True, "--multi-instance-gpu": True, "-pm": True, "--persistence-mode": True, "--format": True,
    "--query-gpu": True,
    "--query-compute-apps": True, "--query-remapped-rows": True, "-h": False, "--help": False,
    "--version": False,
}  # fmt: skip
CUDA_VERSIONS = {"580": "13.0", "575": "12.9", "570": "12.8", "560": "12.6", "550": "12.4"}
LINK_TOPICS = {"-s": "status", "--status": "status", "-e": "errors", "--errorcounters": "errors"}
LINK_OPTIONS = {**dict.fromkeys(LINK_TOPICS, False), "-i": True, "--id": True}
IDLE_MEMORY_MIB = 4
MOST_POWER_W = 1200.0
LEAST_POWER_W = 200.0
DEFAULT_CLOCKS = "3996,1965"
MIG_MODES = {"0": "Disabled", "1": "Enabled"}
EXIT_BAD_OPTION = 2
EXIT_UNKNOWN_OPTION = 255
EXIT_NO_DEVICE = 6


class Gpu:
    """One device with all that the queries ask of it."""

    __slots__ = ("host", "index", "use")

    def __init__(self, host: dict[str, Any], index: int, use: DeviceUse | None) -> None:
        """Take host, index and whoever holds the device."""
        self.host = host
        self.index = index
        self.use = use

    @property
    def uuid(self) -> str:
        """The identifier that survives a reboot."""
        return "GPU-" + device_identifier(self.host, self.index)

    @property
    def bus_id(self) -> str:
        """The address on the PCI bus."""
        return f"{8 + self.index:08X}:01:00.0"

    @property
    def used_mib(self) -> int:
        """Memory in use."""
        return self.use.memory_mib if self.use else IDLE_MEMORY_MIB


def persistence_mode(host: dict[str, Any]) -> str:
    """Return `Enabled` or `Disabled`: what was set since boot, else what the host starts with."""
    try:
        with open(run_folder() + "/persistence_mode", encoding="ascii") as file:
            return file.read().strip()
    except FileNotFoundError:
        return "Enabled" if host.get("persistence_mode") in (True, "Enabled") else "Disabled"


def setting(gpu: Gpu, name: str, first: str) -> str:
    """What was set on one GPU since boot, else what it starts with."""
    try:
        with open(f"{run_folder()}/gpu{gpu.index}-{name}", encoding="ascii") as file:
            return file.read().strip()
    except FileNotFoundError:
        return first


def applications_clock(gpu: Gpu, place: int) -> str:
    """The application clock of the memory (0) or of the graphics (1)."""
    return setting(gpu, "clocks", DEFAULT_CLOCKS).split(",")[place]


# Field → (unit in the header, value)
GPU_FIELDS: dict[str, tuple[str, FieldValue]] = {
    "index": ("", lambda gpu: str(gpu.index)),
    "name": ("", lambda gpu: str(gpu.host["product_name"])),
    "gpu_name": ("", lambda gpu: str(gpu.host["product_name"])),
    "uuid": ("", lambda gpu: gpu.uuid),
    "gpu_uuid": ("", lambda gpu: gpu.uuid),
    "count": ("", lambda gpu: str(len(present_devices(gpu.host)))),
    "serial": ("", lambda gpu: f"16500{gpu.index:08d}"),
    "driver_version": ("", lambda gpu: str(gpu.host["driver_version"])),
    "pci.bus_id": ("", lambda gpu: gpu.bus_id),
    "gpu_bus_id": ("", lambda gpu: gpu.bus_id),
    "memory.total": ("MiB", lambda gpu: str(gpu.host["memory_mib"])),
    "memory.used": ("MiB", lambda gpu: str(gpu.used_mib)),
    "memory.reserved": ("MiB", lambda _: "0"),
    "memory.free": ("MiB", lambda gpu: str(gpu.host["memory_mib"] - gpu.used_mib)),
    "utilization.gpu": ("%", lambda _: "0"),
    "utilization.memory": ("%", lambda _: "0"),
    "temperature.gpu": ("", lambda _: "34"),
    "power.draw": ("W", lambda _: "178.21"),
    "power.limit": ("W", lambda gpu: setting(gpu, "power", "1200.00")),
    "power.min_limit": ("W", lambda _: "200.00"),
    "power.max_limit": ("W", lambda _: "1200.00"),
    "persistence_mode": ("", lambda gpu: persistence_mode(gpu.host)),
    "compute_mode": ("", lambda _: "Default"),
    "compute_cap": ("", lambda gpu: str(gpu.host.get("compute_capability", "10.0"))),
    "mig.mode.current": ("", lambda gpu: setting(gpu, "mig", "Disabled")),
    "mig.mode.pending": ("", lambda gpu: setting(gpu, "mig", "Disabled")),
    "ecc.mode.current": ("", lambda _: "Enabled"),
    "ecc.errors.uncorrected.volatile.total": (
        "",
        lambda gpu: str(fault_of(gpu.host, "ecc_uncorrected", gpu.index, 0)),
    ),
    "ecc.errors.corrected.volatile.total": ("", lambda _: "0"),
    "clocks.sm": ("MHz", lambda _: "345"),
    "clocks.max.sm": ("MHz", lambda _: "2062"),
    "clocks.mem": ("MHz", lambda _: "3996"),
    "clocks.max.mem": ("MHz", lambda _: "3996"),
    "clocks.max.memory": ("MHz", lambda _: "3996"),
    "clocks.max.graphics": ("MHz", lambda _: "2062"),
    "clocks.applications.memory": ("MHz", lambda gpu: applications_clock(gpu, 0)),
    "clocks.applications.graphics": ("MHz", lambda gpu: applications_clock(gpu, 1)),
    "clocks_event_reasons.active": ("", lambda _: "0x0000000000000001"),
    "clocks_throttle_reasons.active": ("", lambda _: "0x0000000000000001"),
    "pcie.link.gen.current": ("", lambda _: "5"),
    "pcie.link.width.current": ("", lambda _: "16"),
    "pstate": ("", lambda _: "P0"),
    "fabric.state": ("", lambda gpu: fabric(gpu.host)["State"]),
    "fabric.status": ("", lambda gpu: fabric(gpu.host)["Status"]),
}
APP_FIELDS: dict[str, tuple[str, FieldValue]] = {
    "pid": ("", lambda gpu: str(gpu.use.pid if gpu.use else 0)),
    "process_name": ("", lambda gpu: gpu.use.name if gpu.use else ""),
    "name": ("", lambda gpu: gpu.use.name if gpu.use else ""),
    "used_memory": ("MiB", lambda gpu: str(gpu.used_mib)),
    "used_gpu_memory": ("MiB", lambda gpu: str(gpu.used_mib)),
    "gpu_uuid": ("", lambda gpu: gpu.uuid),
    "gpu_name": ("", lambda gpu: str(gpu.host["product_name"])),
    "gpu_bus_id": ("", lambda gpu: gpu.bus_id),
}
ROW_FIELDS: dict[str, tuple[str, FieldValue]] = {
    "gpu_uuid": ("", lambda gpu: gpu.uuid),
    "gpu_name": ("", lambda gpu: str(gpu.host["product_name"])),
    "gpu_bus_id": ("", lambda gpu: gpu.bus_id),
    "remapped_rows.correctable": ("", lambda _: "0"),
    "remapped_rows.uncorrectable": ("", lambda _: "0"),
    "remapped_rows.pending": (
        "",
        lambda gpu: "Yes" if fault_of(gpu.host, "remapped_pending", gpu.index, None) else "No",
    ),
    "remapped_rows.failure": (
        "",
        lambda gpu: "Yes" if fault_of(gpu.host, "remapped_failure", gpu.index, None) else "No",
    ),
}


def main(arguments: list[str]) -> int:
    """Do what `nvidia-smi` was asked for.

    Args:
        arguments: as in `sys.argv`.
    """
    host = read_host()
    words = arguments[1:]
    if words[:1] == ["nvlink"]:
        return _show_links(host, words[1:])
    try:
        options = read_options(words, OPTIONS)
    except BadOption as error:
        print(f"ERROR: Option {error.word} is not recognized. Please run 'nvidia-smi -h'.\n\n")
        return EXIT_UNKNOWN_OPTION
    if {"--version", "-h", "--help"} & set(options):
        print(f"NVIDIA-SMI version  : {host['driver_version']} ({STANDIN_NOTICE})")
        print(f"DRIVER version      : {host['driver_version']}")
        print(f"CUDA Version        : {_cuda_version(host)}")
        return 0
    gpus = _chosen_gpus(host, options.get("-i", options.get("--id", "")))
    if not gpus:
        print("No devices were found")
        return EXIT_NO_DEVICE
    for query, fields in (
        ("--query-gpu", GPU_FIELDS),
        ("--query-compute-apps", APP_FIELDS),
        ("--query-remapped-rows", ROW_FIELDS),
    ):
        if query in options:
            if query == "--query-compute-apps":
                gpus = [gpu for gpu in gpus if gpu.use]
            return _print_query(gpus, options[query], fields, options.get("--format"))
    return _show(host, gpus, options)


def _chosen_gpus(host: dict[str, Any], choice: str) -> list[Gpu]:
    """Return the devices of `-i`, or all."""
    uses = read_device_uses(host)
    gpus = [Gpu(host, index, uses.get(index)) for index in present_devices(host)]
    if not choice:
        return gpus
    names = choice.split(",")
    return [gpu for gpu in gpus if {str(gpu.index), gpu.uuid, gpu.bus_id} & set(names)]


def _print_query(
    gpus: list[Gpu], query: str, fields: dict[str, tuple[str, FieldValue]], layout: str | None
) -> int:
    """Print fields of devices as CSV."""
    names = [name.strip() for name in query.split(",")]
    for name in names:
        if name not in fields:
            print(f'Field "{name}" is not a valid field to query.\n')
            return EXIT_BAD_OPTION
    words = (layout or "csv").split(",")
    if words[0] != "csv" or not set(words) <= {"csv", "noheader", "nounits"}:
        print("Format modifier is not recognized.")
        return EXIT_BAD_OPTION
    has_units = "nounits" not in words
    if "noheader" not in words:
        titles = [f"{name} [{fields[name][0]}]" if fields[name][0] else name for name in names]
        print(", ".join(titles))
    for gpu in gpus:
        values = []
        for name in names:
            unit, value = fields[name]
            values.append(f"{value(gpu)} {unit}" if unit and has_units else value(gpu))
        print(", ".join(values))
    return 0


def _show(host: dict[str, Any], gpus: list[Gpu], options: dict[str, str]) -> int:
    """Print the list, set the persistence mode, or print one of the two long forms."""
    if "-L" in options or "--list-gpus" in options:
        for gpu in gpus:
            print(f"GPU {gpu.index}: {host['product_name']} (UUID: {gpu.uuid})")
        return 0
    mode = options.get("-pm", options.get("--persistence-mode"))
    if mode is not None:
        return _set_persistence_mode(gpus, mode)
    changed = _change_setting(gpus, options)
    if changed is not None:
        return changed
    if "-q" in options or "--query" in options:
        _print_log(host, gpus)
        return 0
    version = host["driver_version"]
    print(time.strftime("%a %b %d %H:%M:%S %Y"))
    print(
        f"| NVIDIA-SMI {version}   Driver Version: {version}   CUDA Version: {_cuda_version(host)} |"
    )
    for gpu in gpus:
        print(
            f"| {gpu.index}  {host['product_name']}  {gpu.used_mib}MiB / {host['memory_mib']}MiB |"
        )
    for gpu in gpus:
        if gpu.use:
            print(f"| {gpu.index}  N/A N/A  {gpu.use.pid}  C  {gpu.use.name}  {gpu.used_mib}MiB |")
    return 0


def _set_persistence_mode(gpus: list[Gpu], mode: str) -> int:
    """Set the persistence mode until the next boot; legacy, as the real text says."""
    wanted = {"1": "Enabled", "0": "Disabled", "ENABLED": "Enabled", "DISABLED": "Disabled"}
    if mode not in wanted:
        print("Invalid combination of input arguments. Please run 'nvidia-smi -h' for help.\n")
        return EXIT_BAD_OPTION
    os.makedirs(run_folder(), exist_ok=True)
    before = persistence_mode(gpus[0].host)
    with open(run_folder() + "/persistence_mode", "w", encoding="ascii") as file:
        file.write(wanted[mode])
    for gpu in gpus:
        if before == wanted[mode]:
            print(f"Persistence mode is already {wanted[mode]} for GPU {gpu.bus_id}.")
        else:
            print(f"{wanted[mode]} persistence mode for GPU {gpu.bus_id}.")
    print("All done.")
    return 0


def _change_setting(gpus: list[Gpu], options: dict[str, str]) -> int | None:
    """Set power limit, application clocks or MIG mode; None where none of them is asked for."""
    power = options.get("-pl", options.get("--power-limit"))
    clocks = options.get("-ac", options.get("--applications-clocks"))
    mig = options.get("-mig", options.get("--multi-instance-gpu"))
    if power is None and clocks is None and mig is None:
        return None
    name, value = "mig", MIG_MODES.get(mig or "", "")
    if power is not None:
        watts = float(power) if power.replace(".", "", 1).isdigit() else 0.0
        name, value = "power", f"{watts:.2f}" if LEAST_POWER_W <= watts <= MOST_POWER_W else ""
    elif clocks is not None:
        is_pair = len(clocks.split(",")) == len(("memory", "graphics"))
        name, value = "clocks", clocks if is_pair and clocks.replace(",", "").isdigit() else ""
    if not value:
        print("Invalid combination of input arguments. Please run 'nvidia-smi -h' for help.\n")
        return EXIT_BAD_OPTION
    os.makedirs(run_folder(), exist_ok=True)
    for gpu in gpus:
        with open(f"{run_folder()}/gpu{gpu.index}-{name}", "w", encoding="ascii") as file:
            file.write(value)
    print("All done.")
    return 0


def _print_log(host: dict[str, Any], gpus: list[Gpu]) -> None:
    """Print `-q`: of its many sections those that tell something here."""
    print("\n==============NVSMI LOG==============\n")
    print(f"{'Timestamp':<55}: {time.strftime('%a %b %d %H:%M:%S %Y')}")
    print(f"{'Driver Version':<55}: {host['driver_version']}")
    print(f"{'CUDA Version':<55}: {_cuda_version(host)}\n")
    print(f"{'Attached GPUs':<55}: {len(gpus)}")
    for gpu in gpus:
        print(f"GPU {gpu.bus_id}")
        rows = [
            (1, "Product Name", host["product_name"]),
            (1, "Persistence Mode", persistence_mode(host)),
            (1, "GPU UUID", gpu.uuid),
            (1, "VBIOS Version", vbios(host, gpu.index)),
            (1, "Clocks Event Reasons", None),
            *clock_rows(host, gpu.index),
            (1, "Fabric", None),
            *((2, name, value) for name, value in fabric(host).items()),
            (1, "FB Memory Usage", None),
            (2, "Total", f"{host['memory_mib']} MiB"),
            (2, "Used", f"{gpu.used_mib} MiB"),
            (2, "Free", f"{host['memory_mib'] - gpu.used_mib} MiB"),
            (1, "Processes", None if gpu.use else "None"),
        ]
        for depth, name, value in rows:
            text = "    " * depth + name
            print(text if value is None else f"{text:<55}: {value}")
        if gpu.use:
            for depth, name, value in (
                (2, "GPU instance ID", "N/A"),
                (2, "Compute instance ID", "N/A"),
                (2, "Process ID", gpu.use.pid),
                (3, "Type", "C"),
                (3, "Name", gpu.use.name),
                (3, "Used GPU Memory", f"{gpu.used_mib} MiB"),
            ):
                print(f"{'    ' * depth + name:<42}: {value}")
    print()


def _show_links(host: dict[str, Any], words: list[str]) -> int:
    """Do `nvlink -s` and `nvlink -e`."""
    if not words:
        print(
            "\n    nvlink -- Display NvLink information.\n\n    Usage: nvidia-smi nvlink [options]\n"
        )
        return 0
    try:
        options = read_options(words, LINK_OPTIONS)
    except BadOption as error:
        print(f'Option "{error.word}" is not recognized.')
        return EXIT_BAD_OPTION
    topics = {LINK_TOPICS[name] for name in options if name in LINK_TOPICS}
    if len(topics) != 1:
        print("Invalid nvlink option. Please run 'nvidia-smi nvlink -h' for help.\n")
        return EXIT_BAD_OPTION
    gpus = _chosen_gpus(host, options.get("-i", options.get("--id", "")))
    if not gpus:
        print("No devices were found")
        return EXIT_NO_DEVICE
    for gpu in gpus:
        print(f"GPU {gpu.index}: {host['product_name']} (UUID: {gpu.uuid})")
        print("\n".join(link_lines(host, gpu.index, is_status=topics == {"status"})))
    return 0


def _cuda_version(host: dict[str, Any]) -> str:
    """Return the newest CUDA that the driver takes."""
    return CUDA_VERSIONS.get(str(host["driver_version"]).partition(".")[0], "13.0")
