"""The docker and podman commands that tell of the program itself: info, version."""

from __future__ import annotations

import os

from . import images
from .container_queries import fill_template
from .container_records import is_running, list_records
from .documents import format_document
from .host_state import STANDIN_NOTICE, read_host

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .flags import ParsedFlags

VERSIONS = {"docker": "28.2.2", "podman": "4.9.3"}


def show_system(program: str, flags: ParsedFlags) -> int:
    """Do `info`."""
    document = _podman_system() if program == "podman" else _docker_system()
    template = flags.last("format")
    if template == "json":
        print(format_document(_by_keys(document) if program == "podman" else document))
    elif template:
        print(fill_template(template, document))
    elif program == "podman":
        print(_as_yaml(_by_keys(document)))
    else:
        told = [(key, value) for key, value in document.items() if isinstance(value, (str, int))]
        lines = "".join(f" {key}: {value}\n" for key, value in told)
        print(f"Client:\n Version:    {VERSIONS[program]}\n\nServer:\n{lines}", end="")
    return 0


def _docker_system() -> dict[str, Any]:
    """Return what docker's daemon says of itself, by the names of its templates."""
    host = read_host()
    records = list_records()
    return {
        "ID": "5c1f8e0a-0000-4000-8000-000000000000",
        "Containers": len(records),
        "ContainersRunning": sum(is_running(record) for record in records),
        "Images": len(images.held_images(host)),
        "Driver": "overlay2",
        "LoggingDriver": "json-file",
        "CgroupDriver": host.get("cgroup_driver", "systemd"),
        "CgroupVersion": "2",
        "KernelVersion": os.uname().release,
        "OperatingSystem": "Ubuntu 24.04.2 LTS",
        "OSType": "linux",
        "Architecture": host["architecture"],
        "NCPU": os.cpu_count(),
        "DockerRootDir": "/var/lib/docker",
        "Name": host["host"],
        "ServerVersion": VERSIONS["docker"],
        "Runtimes": {name: {"path": name} for name in _runtimes(host)},
        "DefaultRuntime": "runc",
        "LiveRestoreEnabled": False,
        "SecurityOptions": ["name=seccomp,profile=builtin", "name=cgroupns"],
        "Warnings": [],
    }


def _podman_system() -> dict[str, dict[str, Any]]:
    """Return what podman says of itself, by the names of its templates.

    Source: podman `libpod/define/info.go`; some of its fields.
    """
    host = read_host()
    return {
        "Host": {
            "Arch": images.go_architecture(host["architecture"]),
            "CgroupManager": host.get("cgroup_driver", "systemd"),
            "Hostname": host["host"],
            "Kernel": os.uname().release,
        },
        "Store": {"GraphDriverName": "overlay", "GraphRoot": "/var/lib/containers/storage"},
        "Version": {"Version": VERSIONS["podman"]},
    }


def _by_keys(document: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Return podman's document by its keys in JSON: the names of its templates with a small first letter."""
    return {
        part[0].lower() + part[1:]: {
            name[0].lower() + name[1:]: value for name, value in fields.items()
        }
        for part, fields in document.items()
    }


def _as_yaml(document: dict[str, dict[str, Any]]) -> str:
    return "\n".join(
        "\n".join([f"{part}:", *(f"  {key}: {value}" for key, value in fields.items())])
        for part, fields in document.items()
    )


def show_version(program: str, flags: ParsedFlags) -> int:
    """Do `version`."""
    architecture = images.go_architecture(read_host()["architecture"])
    part = {
        "Version": VERSIONS[program],
        "ApiVersion": "1.50",
        "GitCommit": "rehearsal",
        "GoVersion": "go1.24.3",
        "Os": "linux",
        "Arch": architecture,
    }
    document = {"Client": part, "Server": {**part, "Engine": STANDIN_NOTICE}}
    template = flags.last("format")
    if template:
        print(fill_template(template, document))
        return 0
    for title in ("Client", "Server"):
        print(f"{title}: {STANDIN_NOTICE}")
        print(f" Version:           {VERSIONS[program]}\n API version:       1.50")
        print(f" OS/Arch:           linux/{architecture}")
    return 0


def _runtimes(host: dict[str, Any]) -> list[str]:
    """Return the runtimes that the daemon knows."""
    names = ["io.containerd.runc.v2", "runc"]
    return [*names, "nvidia"] if host["vendor"] == "nvidia" else names
