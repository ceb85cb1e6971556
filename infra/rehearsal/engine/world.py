"""The simulated host as a process sees it: identity, devices and their locks."""

from __future__ import annotations

import fcntl
import json
import os
from typing import Any, NamedTuple

from .failures import Failed

LOCKED_MEMORY = "MOE_REHEARSAL_LOCKED_MEMORY"
EFA_LIBRARIES = (
    "/opt/amazon/efa/lib/libfabric.so.1",
    "/opt/amazon/ofi-nccl/lib/libnccl-net-ofi.so",
)
STATE_VARIABLE = "MOE_REHEARSAL_STATE"
DEFAULT_STATE = "/var/lib/moe-rehearsal"
MASK_VARIABLES = {
    "nvidia": ("CUDA_VISIBLE_DEVICES",),
    "amd": ("HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"),
    "ascend": ("ASCEND_RT_VISIBLE_DEVICES",),
}
GIB = 1 << 30


class World(NamedTuple):
    """What ``host.json`` and the container's environment say."""

    state: str
    host: str
    address: str
    vendor: str
    accelerator: str
    generation: str
    memory_bytes: int
    time_scale: float
    load_seconds: float
    overhead_gib: float
    host_memory_gib: float | None
    devices: tuple[int, ...]
    rank_death: str
    network: str
    has_multi_node_nvlink: bool
    host_devices: int
    garbled_kv: tuple[str, ...]

    def garbles(self, source: str) -> bool:
        """Whether KV cache that is fetched from an address, or an address and port, arrives as something else."""
        return any(source == each or source.startswith(f"{each}:") for each in self.garbled_kv)

    @property
    def is_blackwell(self) -> bool:
        """Whether kernels for NVIDIA's Blackwell run here."""
        return self.generation == "blackwell"

    @property
    def is_hopper(self) -> bool:
        """Whether kernels for NVIDIA's Hopper run here."""
        return self.generation == "hopper"

    @property
    def device_word(self) -> str:
        """The name of a device in torch's messages."""
        return "npu" if self.vendor == "ascend" else "cuda"


def read_world(environ: dict[str, str]) -> World:
    """Return the world of this process.

    Raises:
        Failed: there is no simulated host here.
    """
    state = environ.get(STATE_VARIABLE, DEFAULT_STATE)
    path = os.path.join(state, "host.json")
    try:
        with open(path, encoding="utf-8") as file:
            host = json.load(file)
        granted = environ.get("MOE_REHEARSAL_DEVICES")
        physical = (
            tuple(range(host["num_devices"]))
            if granted is None
            else tuple(int(x) for x in granted.split(",") if x.strip())
        )
        return World(
            state=state,
            host=host["host"],
            address=host["address"],
            vendor=host["vendor"],
            accelerator=host["accelerator"],
            generation=host["generation"],
            memory_bytes=host["memory_mib"] << 20,
            time_scale=float(host.get("time_scale", 1.0)),
            load_seconds=float(host.get("load_seconds", 0.0)),
            overhead_gib=float(host.get("overhead_gib", 0.0)),
            host_memory_gib=host.get("host_memory_gib"),
            devices=_masked(physical, host["vendor"], environ),
            rank_death=environ.get("MOE_REHEARSAL_RANK_DEATH", host.get("rank_death", "stall")),
            network=_network(host, environ),
            has_multi_node_nvlink=_has_multi_node_nvlink(host),
            host_devices=host["num_devices"],
            garbled_kv=tuple((host.get("faults") or {}).get("garbled_kv", ())),
        )
    except (OSError, ValueError, KeyError) as error:
        message = f"{path} does not describe a simulated host: {error!r}"
        raise Failed("moe-infra rehearsal", message, process="") from error


def take_devices(
    world: World, local_indices: tuple[int, ...], utilisation: float | None
) -> list[int]:
    """Lock devices for the life of this process.

    Args:
        world: this host.
        local_indices: positions in the list of visible devices, one per worker.
        utilisation: the fraction of memory that vLLM asks for; None for an engine that just allocates.

    Returns:
        The descriptors that hold the locks.

    Raises:
        Failed: a device is not there, or another process holds it.
    """
    folder = os.path.join(world.state, "devices")
    os.makedirs(folder, exist_ok=True)
    descriptors = []
    for position in local_indices:
        if position >= len(world.devices):
            raise _no_such_device(world, position, checks_first=utilisation is not None)
        descriptor = os.open(
            os.path.join(folder, str(world.devices[position])),
            os.O_RDWR | os.O_CREAT | os.O_CLOEXEC,
            0o666,
        )
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(descriptor)
            if utilisation is None:
                raise out_of_memory(world, position, world.memory_bytes / 2) from None
            raise _device_in_use(world, position, utilisation) from None
        descriptors.append(descriptor)
    return descriptors


def out_of_memory(world: World, position: int, wanted_bytes: float) -> Failed:
    """Return torch's failure to allocate ``wanted_bytes`` on a device."""
    total = world.memory_bytes / GIB
    if world.vendor == "ascend":
        return Failed(
            "RuntimeError",
            f"NPU out of memory. Tried to allocate {wanted_bytes / GIB:.2f} GiB "
            f"(NPU {position}; {total:.2f} GiB total capacity; {total - 0.5:.2f} GiB already "
            "allocated; 0.31 GiB free; 0.10 GiB cached) If reserved memory is >> allocated memory "
            "try setting max_split_size_mb to avoid fragmentation.",
            process="EngineCore",
        )
    word = "HIP" if world.vendor == "amd" else "CUDA"
    return Failed(
        "torch.OutOfMemoryError",
        f"{word} out of memory. Tried to allocate {wanted_bytes / GIB:.2f} GiB. GPU {position} has a "
        f"total capacity of {total:.2f} GiB of which 0.31 GiB is free. Including non-PyTorch memory, "
        f"this process has {total - 0.31:.2f} GiB memory in use.",
        process="EngineCore",
    )


def is_in_container(environ: dict[str, str]) -> bool:
    """Whether a container's runtime has started this process: it tells what may be locked."""
    return LOCKED_MEMORY in environ


def device_folder(environ: dict[str, str]) -> str:
    """Where device nodes lie."""
    return environ.get("MOE_REHEARSAL_DEV", "/dev")


def _network(host: dict[str, Any], environ: dict[str, str]) -> str:
    """What libraries find to carry data between hosts: a container sees the cards that it was given.

    Devices of Ascend have a network of their own. What speaks to EFA is in the image or mounted; without it NCCL and
    libfabric take TCP.
    """
    network = str(host.get("network", "rdma"))
    is_shown = os.path.exists(os.path.join(device_folder(environ), "infiniband", "rdma_cm"))
    if is_in_container(environ) and host["vendor"] != "ascend" and not is_shown:
        return "socket"
    return "socket" if network == "efa" and not _has_efa_libraries() else network


def _has_efa_libraries() -> bool:
    """Whether the loader finds libfabric and NCCL's plugin for it here (folders of AWS's EFA installer)."""
    return all(os.path.exists(path) for path in EFA_LIBRARIES)


def _has_multi_node_nvlink(host: dict[str, Any]) -> bool:
    """Whether NCCL finds a complete fabric of several trays; without one it says nothing of it."""
    state = (host.get("faults") or {}).get("fabric_state", "Completed")
    is_rack = host["vendor"] == "nvidia" and bool(host["fabric_spans_hosts"])
    return is_rack and state == "Completed"


def _masked(physical: tuple[int, ...], vendor: str, environ: dict[str, str]) -> tuple[int, ...]:
    """Apply the vendor's mask: positions in the granted list; what follows a bad entry is dropped."""
    for name in MASK_VARIABLES[vendor]:
        mask = environ.get(name)
        if mask is None:
            continue
        chosen: list[int] = []
        for entry in mask.split(","):
            text = entry.strip()
            if not text.isdigit() or int(text) >= len(physical):
                break
            if physical[int(text)] in chosen:
                return ()
            chosen.append(physical[int(text)])
        return tuple(chosen)
    return physical


def _no_such_device(world: World, position: int, *, checks_first: bool) -> Failed:
    process = "EngineCore"
    if world.vendor == "ascend":
        return Failed(
            "RuntimeError",
            "SetPrecisionMode:build/CMakeFiles/torch_npu.dir/compiler_depend.ts:156 NPU function "
            "error: at_npu::native::AclSetCompileopt, error code is 107001\n"
            f"[ERROR] Invalid device ID. The device ID {position} is not less than the number of "
            f"visible devices ({len(world.devices)}); check ASCEND_RT_VISIBLE_DEVICES.",
            process=process,
        )
    word = "HIP" if world.vendor == "amd" else "CUDA"
    if not world.devices:
        return Failed("RuntimeError", f"No {word} GPUs are available", process=process)
    if not checks_first:
        return Failed(
            "torch.AcceleratorError", f"{word} error: invalid device ordinal", process=process
        )
    return Failed(
        "AssertionError", f"DP adjusted local rank {position} is out of bounds. ", process
    )


def _device_in_use(world: World, position: int, utilisation: float) -> Failed:
    total = world.memory_bytes / GIB
    device = "" if world.vendor == "ascend" else f" {world.device_word}:{position}"
    wanted = f"{utilisation}, {total * utilisation:.2f} GiB"
    oom = out_of_memory(world, position, total * utilisation * GIB)
    return Failed(
        "ValueError",
        f"Free memory on device{device} (0.31/{total:.2f} GiB) on startup is less than desired GPU memory "
        f"utilization ({wanted}). Decrease GPU memory utilization or reduce GPU memory used by other "
        f"processes.\n{oom.kind}: {oom.message}",
        process="EngineCore",
    )
