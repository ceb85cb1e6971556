"""The variables, limits and program of a container's first process."""

from __future__ import annotations

import os
import sys

from . import LENT_PACKAGES
from .container_capabilities import kept_capabilities
from .failures import Refusal
from .flag_values import parse_ulimit
from .host_state import state_folder
from .images import DEFAULT_PATH, SHELLS, image_environment, programs_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .container_request import ContainerRequest

# Real programs that any image of these has and that a unit may name before or instead of the engine.
COMMON_PROGRAMS = (*SHELLS, "env", "true", "false", "sleep", "cat", "ls", "id", "nproc", "printenv")
PYTHON_NAMES = ("python", "python3")
# dockerd as packaged runs with these; a container inherits them without --ulimit. Soft, hard.
DAEMON_LIMITS = {"memlock": (8 << 20, 8 << 20), "nofile": (1024, 524288)}
LIMIT_NUMBERS = {
    "cpu": 0, "fsize": 1, "data": 2, "stack": 3, "core": 4, "rss": 5, "nproc": 6, "nofile": 7, "memlock": 8,
    "locks": 10, "sigpending": 11, "msgqueue": 12, "nice": 13, "rtprio": 14, "rttime": 15,
}  # fmt: skip
UNLIMITED = -1
PRELOAD_WARNING = (
    "ERROR: ld.so: object '{path}' from LD_PRELOAD cannot be preloaded "
    "(cannot open shared object file): ignored.\n"
)
BASE_GROUPS = {"root": 0, "daemon": 1, "tty": 5, "disk": 6, "video": 44, "users": 100}
ROCM_GROUPS = {"render": 109}


def container_variables(
    request: ContainerRequest, image: dict[str, Any], host_name: str
) -> dict[str, str]:
    """Return the variables as the daemon merges them: image, then files, then -e."""
    variables = {"PATH": DEFAULT_PATH, "HOSTNAME": host_name}
    if request.flags.has("tty"):
        variables["TERM"] = "xterm"
    variables.update(image_environment(image))
    for entry in request.variables:
        key, equals, value = entry.partition("=")
        if equals:
            variables[key] = value
        else:
            variables.pop(key, None)
    variables.setdefault("HOME", "/root")
    return variables


def simulation_variables(
    request: ContainerRequest, image: dict[str, Any], host: dict[str, Any], devices: list[int]
) -> dict[str, str]:
    """Return what tells the simulated engine which engine it is, which devices it has and what it may lock."""
    return {
        "MOE_REHEARSAL_ENGINE": image.get("engine") or "",
        "MOE_REHEARSAL_ENGINE_VERSION": image.get("engine_version") or "",
        "MOE_REHEARSAL_PLUGIN_VERSION": image.get("plugin_version") or "",
        "MOE_REHEARSAL_DEVICES": ",".join(str(index) for index in devices),
        "MOE_REHEARSAL_LOCKED_MEMORY": locked_memory(request),
        "MOE_REHEARSAL_STATE": state_folder(),
        "MOE_REHEARSAL_CATALOGUES": host["catalogues"],
        "PYTHONPATH": LENT_PACKAGES,
    }


def check_preload(variables: dict[str, str], shown_paths: list[str]) -> str:
    """Take from LD_PRELOAD what the container lacks and return what ld.so says about it.

    The machine's own libraries shine through under /usr, so ld.so itself could find one that the image does
    not have. What was asked for is kept in MOE_REHEARSAL_LD_PRELOAD.

    Args:
        variables: the container's; changed.
        shown_paths: files of the image and targets of mounts.
    """
    preload = variables.get("LD_PRELOAD", "")
    if not preload:
        return ""
    variables["MOE_REHEARSAL_LD_PRELOAD"] = preload
    kept: list[str] = []
    warnings = ""
    for path in preload.replace(":", " ").split():
        found = any(
            path == shown
            or path.startswith(shown + "/")
            or ("/" not in path and shown.endswith("/" + path))
            for shown in shown_paths
        )
        if found:
            kept.append(path)
        else:
            warnings += PRELOAD_WARNING.format(path=path)
    variables["LD_PRELOAD"] = ":".join(kept)
    return warnings


def program_shims(image: dict[str, Any], engine_program: str) -> dict[str, str]:
    """Return the scripts that let a shell in the container start the simulated engine."""
    start = (
        '[ -z "$LD_PRELOAD" ] || export MOE_REHEARSAL_LD_PRELOAD="$LD_PRELOAD"\n'
        f'exec {sys.executable} -I -S {engine_program} {{name}} "$@"'
    )
    shims = {}
    for name in programs_of(image):
        script = "#!/bin/sh\n"
        if name in PYTHON_NAMES:
            script += f'case "$1" in -*) [ "$1" = -m ] || exec {sys.executable} "$@" ;; esac\n'
            script += f'[ ! -f "$1" ] || exec {sys.executable} "$@"\n'
        shims[name] = script + start.format(name=name) + "\n"
    for name, words in (image.get("programs") or {}).items():
        shims[name] = "#!/bin/sh\nexec " + " ".join(words) + ' "$@"\n'
    return shims


def resolve_program(words: list[str], image: dict[str, Any], engine_program: str) -> list[str]:
    """Return what to execute for the container's command, seen from inside its root.

    Args:
        words: entry point and command.
        image: the image's entry in host.json.
        engine_program: path of the simulated engine.

    Raises:
        Refusal: no such program in the image.
    """
    name = os.path.basename(words[0])
    folder = os.path.dirname(words[0])
    engine_start = [sys.executable, "-I", "-S", engine_program]
    if folder and folder not in image_environment(image)["PATH"].split(":"):
        if os.path.isfile(words[0]) and os.access(words[0], os.X_OK):
            return words
        raise Refusal("program_path_missing", program=words[0])
    if name in (image.get("programs") or {}):
        return [*image["programs"][name], *words[1:]]
    if name in programs_of(image):
        first = words[1] if len(words) > 1 else ""
        runs_real_python = name in PYTHON_NAMES and (first == "-c" or os.path.isfile(first))
        return [sys.executable, *words[1:]] if runs_real_python else engine_start + words
    if name in COMMON_PROGRAMS:
        return [f"/usr/bin/{name}", *words[1:]]
    situation = "program_path_missing" if folder else "program_not_found"
    raise Refusal(situation, program=words[0])


def resource_limits(request: ContainerRequest) -> list[tuple[int, int, int]]:
    """Return (resource, soft, hard) of each limit; -1 is unlimited."""
    limits = dict(DAEMON_LIMITS)
    for value in request.flags.all("ulimit"):
        if value == "host":
            return []
        name, soft, hard = parse_ulimit(value)
        limits[name] = (soft, hard)
    return [(LIMIT_NUMBERS[name], soft, hard) for name, (soft, hard) in limits.items()]


def locked_memory(request: ContainerRequest) -> str:
    """Return how many bytes the container may lock, or `unlimited`; the machine may be unable to grant it."""
    if "IPC_LOCK" in kept_capabilities(request):
        return "unlimited"
    soft = {number: soft for number, soft, _ in resource_limits(request)}
    allowed = soft.get(LIMIT_NUMBERS["memlock"], UNLIMITED)
    return "unlimited" if allowed == UNLIMITED else str(allowed)


def image_groups(image: dict[str, Any], vendor: str) -> dict[str, int]:
    """Return the groups that an image's /etc/group has."""
    groups = dict(BASE_GROUPS)
    if vendor == "amd":
        groups.update(ROCM_GROUPS)
    groups.update(image.get("groups") or {})
    return groups


def process_identity(
    request: ContainerRequest, groups: dict[str, int]
) -> tuple[int, int, list[int]]:
    """Return user, group and further groups of the container's first process.

    Raises:
        Refusal: a name that the image does not know.
    """
    user_name, _, group_name = request.flags.last("user").partition(":")
    user = 0
    if user_name.isdigit():
        user = int(user_name)
    elif user_name not in ("", "root"):
        raise Refusal("unknown_user", name=user_name)
    group = _group_number(group_name, groups) if group_name else 0
    further = [
        _group_number(name, groups)
        for name in request.flags.all("group-add")
        if name != "keep-groups"
    ]
    return user, group, further


def _group_number(name: str, groups: dict[str, int]) -> int:
    """Return the number of a group given by name or number."""
    if name.isdigit():
        return int(name)
    if name not in groups:
        raise Refusal("unknown_group", name=name)
    return groups[name]
