"""Which device nodes a container gets, and which accelerators the engine in it can therefore use."""

from __future__ import annotations

import os

from .failures import Refusal
from .host_state import device_identifier, present_devices

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .container_request import ContainerRequest
    from .flag_values import GpuRequest

NVIDIA_CONTROL_NODES = ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools")
IMEX_CHANNELS = "/dev/nvidia-caps-imex-channels"
FIRST_RENDER_NODE = 128
AMD_CONTROL_NODE = "/dev/kfd"
ASCEND_CONTROL_NODES = ("/dev/davinci_manager", "/dev/devmm_svm", "/dev/hisi_hdc")
ASCEND_DRIVER_LIBRARIES = "/usr/local/Ascend/driver/lib64"
CDI_KIND = "nvidia.com/gpu"


class GrantedDevices:
    """The nodes of one container as (host path, container path), and the usable indices."""

    __slots__ = ("indices", "nodes")

    def __init__(self, nodes: list[tuple[str, str]], indices: list[int]) -> None:
        """Take nodes and indices, the latter in order."""
        self.nodes = nodes
        self.indices = indices


def device_node(vendor: str, index: int) -> str:
    """Return the path of an accelerator's node on the host."""
    if vendor == "nvidia":
        return f"/dev/nvidia{index}"
    if vendor == "amd":
        return f"/dev/dri/renderD{FIRST_RENDER_NODE + index}"
    return f"/dev/davinci{index}"


def grant_devices(
    request: ContainerRequest, host: dict[str, Any], environment: dict[str, str]
) -> GrantedDevices:
    """Return what a container gets of the host's devices.

    Args:
        request: the parsed `run`.
        host: `host.json`.
        environment: the container's variables, which the nvidia runtime reads.

    Raises:
        Refusal: a device that is not there, or GPUs on a host without the NVIDIA driver.
    """
    nodes: list[tuple[str, str]] = []
    for source, target in request.devices:
        nodes += _expand(source, target)
    if request.flags.has("privileged"):
        nodes += [(path, path) for path in _all_nodes(host)]
    granted = set(_gpus(request, host, environment))
    if granted:
        wanted = [device_node("nvidia", index) for index in sorted(granted)]
        wanted += NVIDIA_CONTROL_NODES
        if "NVIDIA_IMEX_CHANNELS" in environment:
            channels = environment["NVIDIA_IMEX_CHANNELS"].split(",")
            wanted += [f"{IMEX_CHANNELS}/channel{channel}" for channel in channels]
        nodes += [(path, path) for path in wanted if os.path.exists(path)]
    unique = {target: source for source, target in nodes}
    present = {target for target in unique if os.path.exists(unique[target])}
    vendor = host["vendor"]
    if vendor in ("amd", "ascend") and _control_is_complete(vendor, present, request):
        granted = {
            index for index in present_devices(host) if device_node(vendor, index) in present
        }
    return GrantedDevices([(unique[target], target) for target in unique], sorted(granted))


def _expand(source: str, target: str) -> list[tuple[str, str]]:
    """Return the nodes that one `--device` adds: a folder brings all that lie in it."""
    if not os.path.exists(source):
        raise Refusal("device_missing", path=source)
    if os.path.isdir(source):
        nodes = [
            (os.path.join(folder, name), os.path.join(target + folder[len(source) :], name))
            for folder, _, names in os.walk(source)
            for name in sorted(names)
        ]
        if nodes:
            return nodes
        raise Refusal("not_a_device", path=source)
    if not os.path.realpath(source).startswith("/dev/"):
        raise Refusal("not_a_device", path=source)
    return [(source, target)]


def _all_nodes(host: dict[str, Any]) -> list[str]:
    """Return the nodes that `--privileged` brings; without the driver's hook no GPU among them."""
    vendor = host["vendor"]
    control = {"amd": (AMD_CONTROL_NODE,), "ascend": ASCEND_CONTROL_NODES}.get(vendor, ())
    paths = list(control) + [device_node(vendor, index) for index in present_devices(host)]
    return [path for path in paths if os.path.exists(path)]


def _gpus(
    request: ContainerRequest, host: dict[str, Any], environment: dict[str, str]
) -> list[int]:
    """Return the NVIDIA devices that the container is given."""
    granted: list[int] = []
    for gpus in request.gpus:
        if gpus.cdi_names:
            granted += [index for name in gpus.cdi_names for index in _cdi_device(host, name)]
            continue
        if host["vendor"] != "nvidia":
            raise Refusal("no_gpu_driver")
        if gpus.count and gpus.device_ids:
            raise Refusal("gpu_count_and_ids")
        granted += _requested(host, gpus)
    if not request.gpus and request.flags.last("runtime") == "nvidia":
        visible = environment.get("NVIDIA_VISIBLE_DEVICES", "void")
        if visible == "all":
            return present_devices(host)
        if visible not in ("", "void", "none"):
            return [_gpu_index(host, name) for name in visible.split(",")]
    return granted


def _requested(host: dict[str, Any], gpus: GpuRequest) -> list[int]:
    """Return the devices of a count or of a list of ids."""
    present = present_devices(host)
    if gpus.device_ids:
        return [_gpu_index(host, name) for name in gpus.device_ids]
    if gpus.count == -1:
        if not present:
            raise Refusal("unknown_gpu", device="0")
        return present
    if gpus.count > len(present):
        raise Refusal("unknown_gpu", device=str(len(present)))
    return present[: gpus.count]


def _gpu_index(host: dict[str, Any], name: str) -> int:
    """Return the device that an index or a UUID names."""
    for index in present_devices(host):
        if name in (str(index), "GPU-" + device_identifier(host, index)):
            return index
    raise Refusal("unknown_gpu", device=name)


def _cdi_device(host: dict[str, Any], name: str) -> list[int]:
    """Return the devices of a CDI name such as `nvidia.com/gpu=all`."""
    kind, _, device = name.partition("=")
    present = present_devices(host)
    if host["vendor"] == "nvidia" and kind == CDI_KIND:
        if device == "all" and present:
            return present
        if device in [str(index) for index in present]:
            return [int(device)]
    raise Refusal("cdi_unknown", name=name)


def _control_is_complete(vendor: str, present: set[str], request: ContainerRequest) -> bool:
    """Return whether the container has what every device of a vendor needs beside its own node."""
    if vendor == "amd":
        return AMD_CONTROL_NODE in present
    if not all(node in present for node in ASCEND_CONTROL_NODES):
        return False
    return any(
        mount.kind == "bind"
        and (ASCEND_DRIVER_LIBRARIES + "/").startswith(mount.target.rstrip("/") + "/")
        and os.path.isdir(mount.source)
        and os.listdir(mount.source)
        for mount in request.mounts
    )
