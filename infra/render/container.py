"""The options of `docker run` and `podman run`: devices, mounts and limits of one process's container."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from infra.catalog.schema import ContainerAccess, Mount

ContainerRuntime = Literal["docker", "podman"]

# memlock for RDMA registration, stack as in every published docker command, nofile for 36 ranks' sockets.
ULIMITS = ("memlock=-1:-1", "stack=67108864:67108864", "nofile=1048576:1048576")
# A user that owns nothing: "nobody" of most distributions.
STRANGER = "65534"
# The Container Device Interface is how podman reaches NVIDIA devices (facts: docker flags).
CDI_GPUS = "nvidia.com/gpu=all"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceAccess:
    """What a container gets of its host's devices.

    Args:
        num_devices: devices of the host; all are shown, the mask variable chooses among them.
        spans_hosts: whether the stack's processes run on more than one host.
    """

    access: ContainerAccess
    num_devices: int
    spans_hosts: bool


def isolation_options(runtime: ContainerRuntime, *, binds_low_port: bool) -> list[str]:
    """What every container of ours shares with its host, and what it may not do: the vendor's devices ask for the rest.

    What docker and podman grant by themselves (files of other users, other users' programs, raw packets, device nodes)
    serves no engine. A port below 1024 needs one capability.
    """
    words = ["--network=host", "--security-opt", "no-new-privileges", "--cap-drop", "ALL"]
    words += ["--cap-add", "NET_BIND_SERVICE"] if binds_low_port else []
    for limit in ULIMITS:
        words += ["--ulimit", limit]
    if runtime == "podman":
        words.append(
            "--pids-limit=-1"
        )  # its default is 2048 threads (podman-run(1), 4.4); docker has none
    return words


def device_files(devices: DeviceAccess) -> list[str]:
    """The device files and folders of the host that a container is shown, besides what a GPU runtime adds."""
    access = devices.access
    shown = list(access.devices)
    shown += access.fabric_devices if devices.spans_hosts else ()
    return shown + [
        name.format(index=i) for name in access.per_device for i in range(devices.num_devices)
    ]


def device_options(runtime: ContainerRuntime, devices: DeviceAccess) -> list[str]:
    """Devices, groups, capabilities and shared memory of an accelerator."""
    access = devices.access
    words = ["--ipc=host"] if access.ipc_host else []
    if access.shm_size is not None and not access.ipc_host:
        words.append(f"--shm-size={access.shm_size}")
    if access.gpus is not None:
        words += ["--gpus", access.gpus] if runtime == "docker" else ["--device", CDI_GPUS]
    for device in device_files(devices):
        words += ["--device", device]
    for group in access.groups:
        words += ["--group-add", group]
    for capability in access.capabilities:
        words += ["--cap-add", capability]
    for option in access.security_options:
        words += ["--security-opt", option]
    return words


def confined_options(*, binds_low_port: bool) -> list[str]:
    """What keeps a process that parses strangers' requests to its own container, besides `isolation_options`.

    A capability does not reach another user's program (moby issue 8460): a port below 1024 leaves it root in name, with
    that one capability.
    """
    who = [] if binds_low_port else ["--user", f"{STRANGER}:{STRANGER}"]
    return ["--read-only", "--tmpfs", "/tmp", "--env", "HOME=/tmp", *who]  # noqa: S108 - the container's own


def label_options(devices: DeviceAccess | None) -> list[str]:
    """What lets a container read the host's files that it is given where SELinux enforces.

    Both runtimes leave a container alone that shares the host's IPC (moby daemon/create.go, generateSecurityOpt; podman
    pkg/specgen/generate/security_linux.go, setLabelOpts), as those of engines do. `:z` instead would write a label to
    each file of the weights, and has none to write where a credential lies.
    """
    shares_ipc = devices is not None and devices.access.ipc_host
    return [] if shares_ipc else ["--security-opt", "label=disable"]


def mount_options(mounts: Sequence[Mount]) -> list[str]:
    """Bind mounts, the first of each target; a missing source is an error, not an empty folder."""
    words: list[str] = []
    seen: set[str] = set()
    for mount in mounts:
        if mount.target in seen:
            continue
        seen.add(mount.target)
        fields = ["type=bind", f"source={mount.source}", f"target={mount.target}"]
        fields += ["readonly"] if mount.read_only else []
        words += ["--mount", ",".join(_csv_field(field) for field in fields)]
    return words


def image_and_command(
    image: str, entrypoint: Sequence[str], argv: Sequence[str], *, is_wrapped: bool
) -> tuple[list[str], list[str]]:
    """The options and the words behind them that make a container run exactly `argv`.

    Args:
        image: the reference.
        entrypoint: what the image starts by itself.
        argv: what shall run.
        is_wrapped: whether a shell of ours stands before `argv`, so that it is not the image's own command.

    Returns:
        Options (`--entrypoint`), then the image with what follows it.
    """
    head = list(entrypoint)
    if not head:
        return [], [image, *argv]
    if not is_wrapped and list(argv[: len(head)]) == head:
        return [], [image, *argv[len(head) :]]
    return ["--entrypoint", argv[0]], [image, *argv[1:]]


def _csv_field(field: str) -> str:
    """`--mount` is read as a line of CSV."""
    if "," not in field and '"' not in field:
        return field
    return '"' + field.replace('"', '""') + '"'
