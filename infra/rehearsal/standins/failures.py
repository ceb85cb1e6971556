"""How docker 28 and podman 4 say no: their texts and exit codes, by situation.

Docker's exit code follows from its text as in docker/cli v28.2.2 `container/run.go toStatusError`: 127 when
it holds "no such file or directory" or "executable file not found", 126 for "permission denied" or "is a
directory", else 125. A missing device therefore leaves with 127 (so it was reported in public build logs).
"""

from __future__ import annotations

OCI_PREFIX = (
    "failed to create task for container: failed to create shim task: OCI runtime create failed: "
    "runc create failed: unable to start container process: error during container init: "
)
PODMAN_NOT_FOUND = "OCI runtime attempted to invoke a command that was not found"

# Situation → (docker's text, podman's text, podman's exit code)
SITUATIONS: dict[str, tuple[str, str, int]] = {
    "no_such_image": (
        "No such image: {reference}",
        "{reference}: image not known",
        125,
    ),
    "registry_unreachable": (
        'Get "https://{registry}/v2/": dial tcp: lookup {registry}: no such host',
        (
            "initializing source docker://{reference}: pinging container registry {registry}: "
            'Get "https://{registry}/v2/": dial tcp: lookup {registry}: no such host'
        ),
        125,
    ),
    "wrong_platform": (
        (
            "image with reference {reference} was found but does not provide the specified platform "
            "({platform})"
        ),
        "no image found in image index for architecture {platform}",
        125,
    ),
    "name_in_use": (
        (
            'Conflict. The container name "/{name}" is already in use by container "{id}". You have to '
            "remove (or rename) that container to be able to reuse that name."
        ),
        (
            'creating container storage: the container name "{name}" is already in use by {id}. You '
            "have to remove that container to be able to reuse that name: that name is already in use, "
            "or use --replace to instruct Podman to do so."
        ),
        125,
    ),
    # runc's systemd driver (libcontainer/cgroups/systemd, ExpandSlice) and containers/podman specgen
    "bad_cgroup_parent": (
        'cgroup-parent for systemd cgroup should be a valid slice named as "xxx.slice"',
        "did not receive systemd slice as cgroup parent when using systemd to manage cgroups: invalid argument",
        125,
    ),
    "bad_name": (
        "Invalid container name ({name}), only [a-zA-Z0-9][a-zA-Z0-9_.-] are allowed",
        (
            "running container create option: names must match [a-zA-Z0-9][a-zA-Z0-9_.-]*: invalid "
            "argument"
        ),
        125,
    ),
    "bind_source_missing": (
        'invalid mount config for type "bind": bind source path does not exist: {path}',
        "statfs {path}: no such file or directory",
        125,
    ),
    "bad_mount": (
        'invalid mount config for type "{kind}": {reason}',
        'invalid mount type "{kind}": {reason}',
        125,
    ),
    "bad_volume": (
        "invalid volume specification: '{value}'{reason}",
        "incorrect volume format, should be [host-dir:]ctr-dir[:option]: {value}",
        125,
    ),
    "bad_volume_mode": (
        "invalid mode: {value}",
        'invalid option type "{value}"',
        125,
    ),
    "bad_volume_name": (
        (
            'create {name}: "{name}" includes invalid characters for a local volume name, only '
            '"[a-zA-Z0-9][a-zA-Z0-9_.-]" are allowed. If you intended to pass a host directory, use '
            "absolute path"
        ),
        (
            "running volume create option: names must match [a-zA-Z0-9][a-zA-Z0-9_.-]*: invalid "
            "argument"
        ),
        125,
    ),
    "duplicate_mount": (
        "Duplicate mount point: {target}",
        "{target}: duplicate mount destination",
        125,
    ),
    "mount_kinds_differ": (
        OCI_PREFIX + 'error mounting "{source}" to rootfs at "{target}": mount src={source}, '
        "dst={target}, dstFd=/proc/thread-self/fd/8, flags=0x5000: not a directory: unknown: Are "
        "you trying to mount a directory onto a file (or vice-versa)? Check if the specified host "
        "path exists and is the expected type",
        "crun: mount `{source}` to `{target}`: Not a directory: OCI runtime error",
        126,
    ),
    "start_failed": (
        OCI_PREFIX + "{reason}: unknown",
        "crun: {reason}: OCI runtime error",
        126,
    ),
    "device_missing": (
        (
            'error gathering device information while adding custom device "{path}": '
            "no such file or directory"
        ),
        "stat {path}: no such file or directory",
        125,
    ),
    "not_a_device": (
        (
            'error gathering device information while adding custom device "{path}": '
            "not a device node"
        ),
        "{path} is not a device node",
        125,
    ),
    "no_gpu_driver": (
        'could not select device driver "" with capabilities: [[gpu]]',
        "unknown flag: --gpus",
        125,
    ),
    "gpu_count_and_ids": (
        "cannot set both Count and DeviceIDs on device request",
        "",
        125,
    ),
    "unknown_gpu": (
        OCI_PREFIX + "error running prestart hook #0: exit status 1, stdout: , stderr: "
        "Auto-detected mode as 'legacy'\nnvidia-container-cli: device error: {device}: unknown "
        "device\n: unknown",
        "",
        125,
    ),
    "cdi_unknown": (
        "CDI device injection failed: unresolvable CDI devices {name}",
        "setting up CDI devices: unresolvable CDI devices {name}",
        125,
    ),
    "unknown_runtime": (
        "unknown or invalid runtime name: {name}",
        'default OCI runtime "{name}" not found: invalid argument',
        125,
    ),
    "unknown_log_driver": (
        "logger: no log driver named '{name}' is registered",
        'running container create option: invalid log driver: "{name}": invalid argument',
        125,
    ),
    "unknown_network": (
        "network {name} not found",
        "unable to find network with name or ID {name}: network not found",
        125,
    ),
    "unknown_capability": (
        'invalid CapAdd: unknown capability: "{name}"',
        'invalid capability: "{name}"',
        125,
    ),
    "unknown_group": (
        "Unable to find group {name}: no matching entries in group file",
        "unable to find group {name}: no matching entries in group file",
        126,
    ),
    "unknown_user": (
        "unable to find user {name}: no matching entries in passwd file",
        "unable to find user {name}: no matching entries in passwd file",
        126,
    ),
    # moby daemon/daemon_unix.go, parseSecurityOpt, and podman pkg/specgenutil
    "bad_security_option": (
        'invalid --security-opt 2: "{option}"',
        'invalid --security-opt 2: "{option}"',
        125,
    ),
    "bad_ipc_mode": ("invalid IPC mode: {name}", "invalid IPC mode {name}", 125),
    "no_command": (
        "no command specified",
        "no command or entrypoint provided, and no CMD or ENTRYPOINT from image",
        125,
    ),
    "program_not_found": (
        OCI_PREFIX + 'exec: "{program}": executable file not found in $PATH: unknown',
        "crun: executable file `{program}` not found in $PATH: No such file or directory: "
        + PODMAN_NOT_FOUND,
        127,
    ),
    "program_path_missing": (
        OCI_PREFIX + 'exec: "{program}": stat {program}: no such file or directory: unknown',
        "crun: executable file `{program}` not found: No such file or directory: "
        + PODMAN_NOT_FOUND,
        127,
    ),
    "container_unknown": (
        "No such container: {reference}",
        'no container with name or ID "{reference}" found: no such container',
        125,
    ),
    "container_not_running": (
        "cannot kill container: {reference}: container {id} is not running",
        "can only kill running containers. {id} is in state exited: container state improper",
        125,
    ),
    "container_running": (
        (
            'cannot remove container "/{name}": container is running: stop the container before '
            "removing or force remove"
        ),
        (
            "cannot remove container {id} as it is running - running or paused containers cannot be "
            "removed without force: container state improper"
        ),
        2,
    ),
    "log_not_readable": (
        "configured logging driver does not support reading",
        "this container is using the 'none' log driver, cannot read logs",
        125,
    ),
    "bad_signal": ("invalid signal: {name}", "invalid signal: {name}", 125),
}

MISSING_WORDS = ("executable file not found", "no such file or directory")
REFUSED_WORDS = ("permission denied", "is a directory")


class CommandFailure(Exception):
    """A command that ends: the text for stderr and the exit code."""

    def __init__(self, text: str, exit_code: int) -> None:
        """Take what is printed and returned."""
        super().__init__(text)
        self.text = text
        self.exit_code = exit_code


class Refusal(Exception):
    """A situation of the table above with its facts; what it prints depends on the command."""

    def __init__(self, situation: str, **facts: str) -> None:
        """Take the situation and what fills its text."""
        super().__init__(situation)
        self.situation = situation
        self.facts = facts

    def text_for(self, program: str) -> str:
        """Return what docker's daemon or podman says."""
        docker_text, podman_text, _ = SITUATIONS[self.situation]
        return (docker_text if program == "docker" else podman_text).format(**self.facts)


def run_failure(program: str, refusal: Refusal) -> CommandFailure:
    """Return how `run` reports what the daemon refused."""
    text = refusal.text_for(program)
    if program == "podman":
        return CommandFailure(f"Error: {text}", SITUATIONS[refusal.situation][2])
    exit_code = 125
    if any(words in text for words in MISSING_WORDS):
        exit_code = 127
    elif any(words in text for words in REFUSED_WORDS):
        exit_code = 126
    return client_failure(program, f"Error response from daemon: {text}", exit_code)


def client_failure(program: str, text: str, exit_code: int = 125) -> CommandFailure:
    """Return how `run` reports what it found itself, before the daemon."""
    if program == "podman":
        return CommandFailure(f"Error: {text}", exit_code)
    return CommandFailure(
        f"docker: {text}\n\nRun 'docker run --help' for more information", exit_code
    )


def command_failure(program: str, refusal: Refusal) -> CommandFailure:
    """Return how a command other than `run` reports what the daemon refused."""
    if program == "podman":
        return CommandFailure(
            f"Error: {refusal.text_for(program)}", SITUATIONS[refusal.situation][2]
        )
    return CommandFailure(f"Error response from daemon: {refusal.text_for(program)}", 1)


def flag_failure(program: str, command: str, usage: str, reason: str) -> CommandFailure:
    """Return how a command reports an option that it does not take."""
    if program == "podman":
        return CommandFailure(f"Error: {reason}\nSee 'podman {command} --help'", 125)
    return CommandFailure(
        f"{reason}\n\nUsage:  docker {command} {usage}\n\n"
        f"Run 'docker {command} --help' for more information",
        125,
    )
