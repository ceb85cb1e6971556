"""What one `docker run` or `podman run` asks for, after all that the client itself checks."""

from __future__ import annotations

import os

from .command_flags import DOCKER_RUN, PODMAN_RUN
from .failures import CommandFailure, Refusal, client_failure, flag_failure
from .flag_values import VALUE_CHECKS, GpuRequest, parse_gpus, parse_mount, parse_network
from .flags import TRUE_WORDS, FlagError, FlagParser, ParsedFlags

USAGE = {
    "docker": "[OPTIONS] IMAGE [COMMAND] [ARG...]",
    "podman": "[options] IMAGE [COMMAND [ARG...]]",
}
PULL_WORDS = {
    "docker": ("always", "missing", "never"),
    "podman": ("always", "missing", "never", "newer"),
}
VOLUME_MODES = ("ro", "rw", "z", "Z", "nocopy", "private", "rprivate", "slave", "rslave", "shared",
                "rshared", "consistent", "cached", "delegated")  # fmt: skip
PODMAN_VOLUME_MODES = (
    "U",
    "O",
    "idmap",
    "exec",
    "noexec",
    "dev",
    "nodev",
    "suid",
    "nosuid",
    "copy",
)
NAME_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-")
SECURITY_SWITCH = "no-new-privileges"
MOST_PORT = 65535
MOST_PARTS = 3
"""Of -v and --device: outside, inside, mode."""


class MountRequest:
    """One mount: kind `bind`, `volume` or `tmpfs`, from where, to where."""

    __slots__ = ("creates_source", "kind", "options", "read_only", "source", "target")

    def __init__(self, kind: str, source: str, target: str) -> None:
        """Take kind, source and target; the rest is off."""
        self.kind = kind
        self.source = source
        self.target = os.path.normpath(target)
        self.read_only = False
        self.creates_source = False
        self.options = ""


class ContainerRequest:
    """The parsed command line of `run`."""

    __slots__ = (
        "command",
        "devices",
        "entrypoint",
        "flags",
        "gpus",
        "mounts",
        "network",
        "program",
        "reference",
        "variables",
    )

    def __init__(self, program: str, flags: ParsedFlags) -> None:
        """Take the program's name and its options; the rest is filled in by `read_request`."""
        self.program = program
        self.flags = flags
        self.reference = flags.words[0]
        self.command = flags.words[1:]
        self.entrypoint: list[str] | None = None
        self.variables: list[str] = []
        self.mounts: list[MountRequest] = []
        self.devices: list[tuple[str, str]] = []
        self.gpus: list[GpuRequest] = []
        self.network = "default"


def read_request(program: str, arguments: list[str]) -> ContainerRequest:
    """Return what `run` was asked for.

    Args:
        program: `docker` or `podman`.
        arguments: the words after `run`.

    Raises:
        CommandFailure: what the client refuses before it asks the daemon.
        Refusal: what the daemon refuses about volumes and mounts.
    """
    flags = _parse(program, arguments)
    request = ContainerRequest(program, flags)
    pull = flags.last("pull", "missing")
    if pull not in PULL_WORDS[program]:
        raise client_failure(
            program,
            f'invalid pull option: \'{pull}\': must be one of "always", "missing" or "never"',
        )
    _check_conflicts(request)
    if "entrypoint" in flags.given:
        request.entrypoint = [flags.last("entrypoint")]
    for value in flags.all("gpus"):
        request.gpus.append(parse_gpus(value))
    networks = [parse_network(value) for value in flags.all("network") + flags.all("net")]
    if networks:
        if not networks[0].strip():
            raise client_failure(program, "no name set for network")
        request.network = networks[0]
    for value in flags.all("publish"):
        _check_port(program, value)
    request.devices = _read_devices(request)
    request.variables = _read_variables(request)
    request.mounts = _read_mounts(request)
    return request


def _parse(program: str, arguments: list[str]) -> ParsedFlags:
    """Return the options and the words after them; at least an image is needed."""
    table = DOCKER_RUN if program == "docker" else PODMAN_RUN
    try:
        flags = FlagParser(table, VALUE_CHECKS).parse(arguments)
    except FlagError as error:
        raise flag_failure(program, "run", USAGE[program], str(error)) from None
    if flags.has("help"):
        raise CommandFailure(f"Usage:  {program} run {USAGE[program]}", 0)
    if not flags.words and program == "podman":
        raise CommandFailure("Error: requires at least 1 arg(s), only received 0", 125)
    if not flags.words:
        raise CommandFailure(
            f"docker: 'docker run' requires at least 1 argument\n\nUsage:  docker run {USAGE[program]}"
            "\n\nSee 'docker run --help' for more information",
            1,
        )
    return flags


def _check_conflicts(request: ContainerRequest) -> None:
    """Refuse what the client refuses about options that exclude each other."""
    program, flags = request.program, request.flags
    if flags.has("detach") and flags.all("attach"):
        text = "conflicting options: cannot specify both --attach and --detach"
        raise CommandFailure(text, 1)
    restart = flags.last("restart", "no")
    if flags.has("rm") and restart not in ("", "no"):
        raise client_failure(program, "conflicting options: cannot specify both --restart and --rm")
    identifier_file = flags.last("cidfile")
    if identifier_file and os.path.exists(identifier_file):
        raise client_failure(
            program,
            "container ID file found, make sure the other container isn't running or delete "
            + identifier_file,
        )
    pid_mode = flags.last("pid")
    if pid_mode not in ("", "host", "private") and not pid_mode.startswith("container:"):
        raise client_failure(program, "--pid: invalid PID mode")
    for option in flags.all("security-opt"):
        key, _, value = option.partition("=" if "=" in option else ":")
        if not value and key != SECURITY_SWITCH:
            raise client_failure(program, f'Invalid --security-opt: "{option}"')
        if (
            key == "seccomp"
            and value not in ("unconfined", "builtin")
            and not os.path.exists(value)
        ):
            raise client_failure(
                program,
                f"opening seccomp profile ({value}) failed: open {value}: "
                "no such file or directory",
            )
    if (
        flags.has("tty")
        and flags.has("interactive")
        and not flags.has("detach")
        and not os.isatty(0)
    ):
        raise CommandFailure("the input device is not a TTY", 1)


def _check_port(program: str, value: str) -> None:
    """Refuse a malformed `-p`."""
    container_port = value.rpartition(":")[2]
    port, slash, protocol = container_port.partition("/")
    host_port = value.split(":")[-2] if ":" in value else ""
    for kind, text in (("containerPort", port), ("hostPort", host_port)):
        ends = text.split("-")
        numeric = all(end.isdigit() and int(end) <= MOST_PORT for end in ends)
        if not numeric and (text or kind == "containerPort"):
            raise client_failure(program, f"invalid {kind}: {text}")
    if slash and protocol.lower() not in ("tcp", "udp", "sctp"):
        raise client_failure(program, f"invalid proto: {protocol}")


def _read_devices(request: ContainerRequest) -> list[tuple[str, str]]:
    """Return (path on the host, path in the container) of each `--device`; CDI names go to gpus."""
    devices: list[tuple[str, str]] = []
    for value in request.flags.all("device"):
        vendor, equals, _ = value.partition("=")
        if equals and "/" in vendor and not value.startswith("/"):
            request.gpus.append(GpuRequest(cdi_names=[value]))
            continue
        parts = value.split(":")
        if len(parts) > MOST_PARTS or not parts[0]:
            raise client_failure(request.program, f"bad format for path: {value}")
        if len(parts) == MOST_PARTS and not _is_device_mode(parts[2]):
            raise client_failure(request.program, f"bad mode specified: {parts[2]}")
        target = parts[1] if len(parts) > 1 and not _is_device_mode(parts[1]) else parts[0]
        if not target.startswith("/"):
            raise client_failure(request.program, f"{target} is not an absolute path")
        devices.append((os.path.normpath(parts[0]), os.path.normpath(target)))
    return devices


def _is_device_mode(text: str) -> bool:
    """Return whether a text is a set of r, w and m, each at most once."""
    return bool(text) and set(text) <= set("rwm") and len(set(text)) == len(text)


def _read_variables(request: ContainerRequest) -> list[str]:
    """Return `KEY=VALUE` of each variable, files first; a bare KEY is to be taken away."""
    variables: list[str] = []
    for path in request.flags.all("env-file"):
        try:
            variables += read_variable_file(path)
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            raise client_failure(request.program, f"open {path}: {reason}") from None
        except ValueError as error:
            raise client_failure(request.program, f"invalid env file ({path}): {error}") from None
    for value in request.flags.all("env"):
        if "=" not in value and value in os.environ:
            variables.append(f"{value}={os.environ[value]}")
        else:
            variables.append(value)
    return variables


def read_variable_file(path: str) -> list[str]:
    """Return the variables of an `--env-file`, read as docker reads it.

    Quotes and what follows a value belong to it; a bare KEY takes the client's value or is left out.

    Raises:
        OSError: the file cannot be read.
        ValueError: a line that docker refuses.
    """
    variables: list[str] = []
    with open(path, encoding="utf-8-sig", newline="\n") as file:
        for raw_line in file:
            line = raw_line.rstrip("\n").rstrip("\r").lstrip()
            if not line or line.startswith("#"):
                continue
            key, equals, _ = line.partition("=")
            if not key:
                raise ValueError(f"no variable name on line '{line}'")
            if " " in key or "\t" in key:
                raise ValueError(f"variable '{key}' contains whitespaces")
            if equals:
                variables.append(line)
            elif key in os.environ:
                variables.append(f"{key}={os.environ[key]}")
    return variables


def _read_mounts(request: ContainerRequest) -> list[MountRequest]:
    """Return the mounts of -v, --mount and --tmpfs, in the order in which docker mounts them.

    Raises:
        Refusal: one that the daemon refuses, or two at the same place.
    """
    mounts = [_parse_volume(request.program, value) for value in request.flags.all("volume")]
    mounts += [_parse_mount_option(value) for value in request.flags.all("mount")]
    for value in request.flags.all("tmpfs"):
        target, _, options = value.partition(":")
        mount = MountRequest("tmpfs", "", target)
        mount.options = options
        mounts.append(mount)
    targets: set[str] = set()
    for mount in mounts:
        if mount.target in targets:
            raise Refusal("duplicate_mount", target=mount.target)
        targets.add(mount.target)
    mounts.sort(key=_depth)
    return mounts


def _depth(mount: MountRequest) -> int:
    """Return how deep a target lies: outer mounts come first."""
    return mount.target.count("/") if mount.target != "/" else 0


def _parse_volume(program: str, value: str) -> MountRequest:
    """Return the mount that `-v` asks for."""
    parts = value.split(":")
    if value == "" or "" in parts:
        reason = "invalid empty volume spec" if not value else "empty section between colons"
        raise client_failure(program, f"invalid spec: {value}: {reason}")
    if len(parts) > MOST_PARTS:
        raise Refusal("bad_volume", value=value, reason="")
    if len(parts) == 1:
        return _checked(MountRequest("volume", "", value), value)
    source, target = parts[0], parts[1]
    modes = parts[2].split(",") if len(parts) == MOST_PARTS else []
    known = VOLUME_MODES + (PODMAN_VOLUME_MODES if program == "podman" else ())
    for mode in modes:
        if mode not in known:
            raise Refusal("bad_volume_mode", value=parts[2])
    if source.startswith(".") or (program == "podman" and source.startswith("~")):
        source = os.path.abspath(source)
    if source.startswith("/"):
        mount = MountRequest("bind", os.path.normpath(source), target)
        mount.creates_source = program == "docker"
    else:
        if not set(source) <= NAME_CHARACTERS or source[0] in "_.-":
            raise Refusal("bad_volume_name", name=source)
        mount = MountRequest("volume", source, target)
    mount.read_only = "ro" in modes
    return _checked(mount, value, target)


def _checked(mount: MountRequest, value: str, target: str | None = None) -> MountRequest:
    """Return a mount of `-v` whose target is absolute and not the root."""
    target = value if target is None else target
    if not target.startswith("/"):
        reason = (
            f": invalid mount config for type \"{mount.kind}\": invalid mount path: '{target}' "
            "mount path must be absolute"
        )
        raise Refusal("bad_volume", value=value, reason=reason)
    if mount.target == "/":
        reason = (
            f': invalid mount config for type "{mount.kind}": invalid specification: '
            "destination can't be '/'"
        )
        raise Refusal("bad_volume", value=value, reason=reason)
    return mount


def _parse_mount_option(value: str) -> MountRequest:
    """Return the mount that `--mount` asks for; its source must exist, docker makes none."""
    fields = parse_mount(value)
    kind, source, target = fields["type"], fields["source"], fields["target"]
    if kind not in ("bind", "volume", "tmpfs"):
        raise Refusal("bad_mount", kind=kind, reason="mount type unknown")
    if not target.startswith("/"):
        reason = f"invalid mount path: '{target}' mount path must be absolute"
        raise Refusal("bad_mount", kind=kind, reason=reason)
    if kind == "bind":
        source = os.path.abspath(source) if source.startswith(".") else source
        if not source:
            raise Refusal("bad_mount", kind=kind, reason="field Source must not be empty")
        if not source.startswith("/"):
            reason = f"invalid mount path: '{source}' mount path must be absolute"
            raise Refusal("bad_mount", kind=kind, reason=reason)
        if not os.path.exists(source):
            raise Refusal("bind_source_missing", path=source)
    mount = MountRequest(kind, source, target)
    mount.read_only = fields["readonly"] in TRUE_WORDS
    if "tmpfs-size" in fields:
        mount.options = "size=" + fields["tmpfs-size"]
    return mount
