"""What the simulated host is: `host.json`, and which processes hold its devices.

Keys of `host.json` that the stand-ins read, beside those that the engine reads: `vendor`, `host`, `address`,
`architecture`, `accelerator`, `generation`, `product_name`, `memory_mib`, `num_devices`, `driver_version`,
`fabric`, `fabric_spans_hosts` (whether devices of other hosts belong to it: a rack, a super-pod),
`super_pod_id`, `super_pod_size`, `server_index`, `imex_nodes`, `imex_configured` (whether the daemon's node
list is written at boot, default true), `peers` (addresses of the other hosts), `images`, `pullable`,
`persistence_mode`, `engine_program`, `catalogues`, `native_engine` (engine, engine_version and
plugin_version of `runtime: native`), `control_groups` (root of the cgroup tree), `has_rdma`,
`num_rdma_devices`, `devices_absent` (indices that do not appear), `fabric_manager_version`, `faults`. Of the
engine's keys `network: socket` is a card that libraries do not find, `network: uncounted` one that counts nothing.

Faults of one host, all optional, indices as strings because JSON has no other keys: `kernel_log` [text],
`ecc_uncorrected` {gpu: count}, `remapped_pending` {gpu: true}, `remapped_failure` {gpu: true},
`nvlink_inactive` {gpu: [link]}, `fabric_state` text, `imex_status` (`DEGRADED`, `DOWN`), `imex_down` [address],
`device_health` {npu: text}, `link_down` [npu], `net_health` {npu: text}, `tls_switch` {npu: 0 or 1},
`unreachable` [device address], `gpu_lost` [gpu], `vbios` {gpu: text}, `held_clocks` {gpu: reason}, `all_reduce_gb_s`
number, `all_reduce_wrong` count, `diagnosis` {gpu: [number of DCGM's error]}. Of groups that add up over hosts:
`collective_silent` (torch never loads), `collective_wrong` {device: count}, `collective_gb_s` number. Of RoCE cards:
`trust` {interface: text}, `lossless` {interface: [priority]},
`discards` {interface: count}, `bit_errors` {card: rate}. Of Ascend devices' ports: `gateway` and `netdetect`
{npu: address}, `lossless` {npu: priority}, `spoilt` {npu: count}, `link_downs` {npu: count}.
Of engines: `garbled_kv` [address, or address and port, from which KV cache arrives as something else].
"""

from __future__ import annotations

import os

from .documents import read_document

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

DEFAULT_STATE_FOLDER = "/var/lib/moe-rehearsal"
DEFAULT_RUN_FOLDER = "/run/moe-rehearsal"
STANDIN_NOTICE = "moe-infra rehearsal stand-in"
SHARE_OF_MEMORY_IN_USE = 0.92


class DeviceUse:
    """A process that holds a device: its id, name and memory in MiB."""

    __slots__ = ("memory_mib", "name", "pid")

    def __init__(self, pid: int, name: str, memory_mib: int) -> None:
        """Take the three facts of a device's user."""
        self.pid = pid
        self.name = name
        self.memory_mib = memory_mib


def state_folder() -> str:
    """Return the folder that describes this simulated host."""
    return os.environ.get("MOE_REHEARSAL_STATE", DEFAULT_STATE_FOLDER)


def run_folder() -> str:
    """Return the folder of what lives until the next boot of this simulated host."""
    return os.environ.get("MOE_REHEARSAL_RUN", DEFAULT_RUN_FOLDER)


def read_host() -> dict[str, Any]:
    """Return `host.json`.

    Raises:
        SystemExit: the file is missing or not JSON, which is a mistake of the lab.
    """
    path = state_folder() + "/host.json"
    try:
        host: dict[str, Any] = read_document(path)
    except (OSError, ValueError) as error:
        message = (
            f"{STANDIN_NOTICE}: {path}: {error}. The lab writes this file before it boots a host."
        )
        raise SystemExit(message) from None
    return host


def fault(host: dict[str, Any], name: str) -> Any:
    """Return what `host.json` says under `faults.<name>`, or None."""
    return (host.get("faults") or {}).get(name)


def fault_of(host: dict[str, Any], name: str, index: int, default: Any) -> Any:
    """Return the fault of one device, from a table keyed by its index."""
    return (fault(host, name) or {}).get(str(index), default)


def present_devices(host: dict[str, Any]) -> list[int]:
    """Return the indices of the devices that this host shows, in order."""
    hidden = set(host.get("devices_absent") or ()) | set(fault(host, "gpu_lost") or ())
    return [index for index in range(host["num_devices"]) if index not in hidden]


def device_identifier(host: dict[str, Any], index: int) -> str:
    """Return the UUID of a device, made from the host's name so that it is the same at each boot."""
    digits = 0
    for character in f"{host['host']}/{index}":
        digits = (digits * 1000003 + ord(character)) & ((1 << 128) - 1)
    text = f"{digits:032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def read_device_uses(host: dict[str, Any]) -> dict[int, DeviceUse]:
    """Return who holds each device, by index; a device that nobody holds is not in it.

    The engine keeps `devices/<index>` open and locked while it uses a device. The lock is not tried
    here, for that would refuse an engine which starts at this moment: who has the file open is read
    from /proc. An engine may write the MiB that it uses into the file, after its process id.
    """
    files: dict[tuple[int, int], int] = {}
    for index in present_devices(host):
        try:
            status = os.stat(f"{state_folder()}/devices/{index}")
        except FileNotFoundError:
            continue
        files[status.st_ino, status.st_dev] = index
    uses: dict[int, DeviceUse] = {}
    for pid in sorted(int(name) for name in os.listdir("/proc") if name.isdigit()) if files else ():
        for index in _open_files(pid, files):
            uses.setdefault(index, DeviceUse(pid, _process_name(pid), _memory_mib(host, index)))
    return uses


def _open_files(pid: int, files: dict[tuple[int, int], int]) -> list[int]:
    """Return which of the files a process has open."""
    found: list[int] = []
    try:
        descriptors = os.listdir(f"/proc/{pid}/fd")
    except OSError:
        return found
    for descriptor in descriptors:
        try:
            status = os.stat(f"/proc/{pid}/fd/{descriptor}")
        except OSError:
            continue
        index = files.get((status.st_ino, status.st_dev))
        if index is not None:
            found.append(index)
    return found


def _memory_mib(host: dict[str, Any], index: int) -> int:
    """Return how much of a device its user says it takes, or the usual share."""
    with open(f"{state_folder()}/devices/{index}", encoding="ascii", errors="replace") as file:
        words = file.read(64).split()
    if len(words) > 1 and words[1].isdigit():
        return int(words[1])
    return int(host["memory_mib"] * SHARE_OF_MEMORY_IN_USE)


def _process_name(pid: int) -> str:
    """Return what the tools call a process: the program's own title when it is an engine."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            words = file.read().decode(errors="replace").split("\0")
    except OSError:
        return "[Not Found]"
    if "vllm" in words:
        return "VLLM::EngineCore"
    if any(word.startswith("sglang") for word in words):
        return "sglang::scheduler"
    return words[0]
