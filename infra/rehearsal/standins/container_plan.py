"""From a checked command line to all that a container's first process needs."""

from __future__ import annotations

import os

from . import LIBRARY, container_environment, linux
from .container_capabilities import ALL, CAPABILITIES, kept_capabilities, plain_name
from .container_devices import GrantedDevices, grant_devices
from .container_process import ContainerLaunch
from .container_records import record_folder
from .container_request import SECURITY_SWITCH
from .container_root import RootPlan
from .failures import Refusal
from .flag_values import parse_size
from .host_state import STANDIN_NOTICE, state_folder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .container_records import Record
    from .container_request import ContainerRequest

RUNTIMES = ("runc", "crun", "io.containerd.runc.v2")
SECURITY_OPTIONS = {
    "docker": (
        "label",
        "apparmor",
        "seccomp",
        "no-new-privileges",
        "systempaths",
        "writable-cgroups",
    ),
    "podman": (
        "label",
        "apparmor",
        "seccomp",
        "no-new-privileges",
        "systempaths",
        "mask",
        "unmask",
        "proc-opts",
    ),
}
LOG_DRIVERS = {
    "docker": [
        "json-file",
        "journald",
        "local",
        "none",
        "syslog",
        "fluentd",
        "awslogs",
        "gelf",
        "splunk",
        "gcplogs",
    ],
    "podman": ["k8s-file", "journald", "none", "passthrough", "json-file"],
}
# Where the cgroupfs driver puts containers, and how it begins their names: moby daemon/oci_linux.go, withCgroups;
# podman libpod/container_internal_linux.go, getOCICgroupPath.
CGROUPFS = {"docker": ("docker", ""), "podman": ("libpod_parent", "libpod-")}
NETWORKS = ("default", "bridge", "host", "none", "private", "slirp4netns", "pasta")
DEFAULT_SHARED_MEMORY_BYTES = 64 << 20
NVIDIA_TOOL = "/usr/local/bin/nvidia-smi"
VOLUMES_FOLDER = "/var/lib/docker/volumes"
NETWORK_NOTICE = (
    STANDIN_NOTICE + ": this container has a network of its own that nothing reaches; -p is "
    "accepted and not forwarded. Use --network host.\n"
)


def check_settings(request: ContainerRequest, host: dict[str, Any]) -> None:
    """Refuse what the daemon refuses when it creates a container."""
    flags = request.flags
    runtimes = RUNTIMES + (("nvidia",) if host["vendor"] == "nvidia" else ())
    runtime = flags.last("runtime", RUNTIMES[0])
    if runtime not in runtimes:
        raise Refusal("unknown_runtime", name=runtime)
    for value in flags.all("cap-add") + flags.all("cap-drop"):
        if plain_name(value) not in (ALL, *CAPABILITIES):
            raise Refusal("unknown_capability", name=value)
    driver = flags.last("log-driver")
    if driver and driver not in LOG_DRIVERS[request.program]:
        raise Refusal("unknown_log_driver", name=driver)
    for option in flags.all("security-opt"):
        if option.replace(":", "=").partition("=")[0] not in SECURITY_OPTIONS[request.program]:
            raise Refusal("bad_security_option", option=option)
    ipc_mode = flags.last("ipc")
    if ipc_mode not in ("", "none", "host", "private", "shareable") and ":" not in ipc_mode:
        raise Refusal("bad_ipc_mode", name=ipc_mode)


def plan_launch(
    request: ContainerRequest, host: dict[str, Any], image: dict[str, Any], record: Record
) -> ContainerLaunch:
    """Return all that the first process needs.

    Raises:
        Refusal: what the daemon refuses when it starts a container.
    """
    flags = request.flags
    if not record["words"]:
        raise Refusal("no_command")
    if request.network not in NETWORKS and not request.network.startswith("container:"):
        raise Refusal("unknown_network", name=request.network)
    groups = container_environment.image_groups(image, host["vendor"])
    uses_host_network = request.network == "host"
    own_name = flags.last("hostname") or ("" if uses_host_network else record["id"][:12])
    variables = container_environment.container_variables(
        request, image, own_name or os.uname().nodename
    )
    devices = grant_devices(request, host, variables)
    plan = _plan_root(request, host, image, devices)
    plan.groups = groups
    launch = ContainerLaunch(plan, image, record["words"])
    shown = plan.files + [mount.target for mount in plan.mounts]
    launch.preload_warnings = container_environment.check_preload(variables, shown)
    variables.update(
        container_environment.simulation_variables(request, image, host, devices.indices)
    )
    launch.variables = variables
    launch.identity = container_environment.process_identity(request, groups)
    launch.capabilities = kept_capabilities(request)
    launch.gains_nothing = any(
        option.replace(":", "=").removesuffix("=true") == SECURITY_SWITCH
        for option in flags.all("security-opt")
    )
    launch.limits = container_environment.resource_limits(request)
    launch.engine_program = host["engine_program"]
    launch.host_name = own_name
    launch.working_folder = flags.last("workdir") or image.get("working_folder") or "/"
    launch.namespaces = _namespaces(request, own_name)
    launch.control_group = _control_group(request, host, record)
    launch.terminal = flags.has("tty") and not flags.has("detach") and os.isatty(1)
    launch.keeps_input = flags.has("interactive") and not flags.has("detach")
    if record["log_driver"] not in ("none", "passthrough"):
        launch.log_path = record_folder(record["id"]) + "/log"
    return launch


def _plan_root(
    request: ContainerRequest,
    host: dict[str, Any],
    image: dict[str, Any],
    devices: GrantedDevices,
) -> RootPlan:
    """Return what the container's root holds, with the sources of its mounts made where docker makes them."""
    plan = RootPlan()
    plan.files = list(image.get("files") or [])
    plan.nodes = devices.nodes
    plan.mounts = request.mounts
    if devices.indices and host["vendor"] == "nvidia" and os.path.exists(NVIDIA_TOOL):
        # the driver's hook brings its tool along
        plan.always_bound.append((NVIDIA_TOOL, True))
    plan.read_only = request.flags.has("read-only")
    plan.shims = container_environment.program_shims(image, host["engine_program"])
    plan.always_bound += [
        (state_folder(), False),
        (host["engine_program"], True),
        (host["catalogues"], True),
        *((path, True) for path in image.get("binds") or []),
        (LIBRARY, True),
    ]
    if request.flags.last("ipc") != "host":
        plan.shared_memory_bytes = parse_size(request.flags.last("shm-size") or "0")
        plan.shared_memory_bytes = plan.shared_memory_bytes or DEFAULT_SHARED_MEMORY_BYTES
    for mount in plan.mounts:
        if mount.kind == "volume" and not mount.source:
            mount.kind = "tmpfs"
        elif mount.kind == "volume":
            mount.source = f"{VOLUMES_FOLDER}/{mount.source}/_data"
            os.makedirs(mount.source, exist_ok=True)
        elif mount.kind == "bind" and not os.path.exists(mount.source):
            if not mount.creates_source:
                raise Refusal("bind_source_missing", path=mount.source)
            os.makedirs(mount.source)
    return plan


def _namespaces(request: ContainerRequest, own_name: str) -> int:
    """Return the namespaces of the container's own."""
    namespaces = linux.CLONE_NEWNS
    if request.flags.last("ipc") != "host":
        namespaces |= linux.CLONE_NEWIPC
    if own_name:
        namespaces |= linux.CLONE_NEWUTS
    if request.network != "host":
        namespaces |= linux.CLONE_NEWNET
        if request.network != "none":
            os.write(2, NETWORK_NOTICE.encode())
    elif request.flags.all("publish") and request.program == "docker":
        os.write(2, b"WARNING: Published ports are discarded when using host network mode\n")
    if request.flags.last("restart", "no") not in ("", "no"):
        os.write(2, f"{STANDIN_NOTICE}: --restart is accepted and not acted upon\n".encode())
    return namespaces


def _control_group(request: ContainerRequest, host: dict[str, Any], record: Record) -> str:
    """Return the folder of the container's control group, or "" where the host has no such tree."""
    tree = host.get("control_groups", "/sys/fs/cgroup")
    if not os.path.exists(tree + "/cgroup.controllers"):
        return ""
    prefix, parent = {"docker": ("docker", "system.slice"), "podman": ("libpod", "machine.slice")}[
        request.program
    ]
    if host.get("cgroup_driver", "systemd") == "cgroupfs":
        parent, prefix = CGROUPFS[request.program]
        parent = request.flags.last("cgroup-parent") or parent
        return f"{tree}/{parent.strip('/')}/{prefix}{record['id']}"
    parent = request.flags.last("cgroup-parent") or parent
    if not parent.endswith(".slice") or "/" in parent:
        raise Refusal("bad_cgroup_parent", parent=parent)
    return f"{tree}/{_slice_folder(parent)}/{prefix}-{record['id']}.scope"


def _slice_folder(name: str) -> str:
    """Where systemd keeps a slice: `a-b.slice` lies in `a.slice` (systemd.slice(5))."""
    parts = name[: -len(".slice")].split("-")
    return "/".join("-".join(parts[: i + 1]) + ".slice" for i in range(len(parts)))
