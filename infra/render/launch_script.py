"""Launch scripts: the one place where an argument vector becomes shell text."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from infra.catalog.schema import Mount
from infra.engines.credentials import Credential
from infra.errors import StackError
from infra.plan.gate import refuse_process
from infra.plan.grammar import is_image, is_normal_path, shown
from infra.plan.host_mounts import gives_host_away
from infra.plan.process import Process
from infra.render.compile_cache import CACHE_MOUNT, cache_lines
from infra.render.container import (
    STRANGER,
    ContainerRuntime,
    DeviceAccess,
    confined_options,
    device_options,
    image_and_command,
    isolation_options,
    label_options,
    mount_options,
)
from infra.render.environment_file import odd_variables
from infra.render.host_paths import (
    CONTAINER_SECRETS,
    container_name,
    credentials_folder,
    process_folder,
    process_index,
    router_credentials,
    slice_path,
    stack_slice,
)
from infra.render.units import GRACE_S

PRELOAD = "LD_PRELOAD"
NO_CREDENTIAL_EXIT = 78  # EX_CONFIG of sysexits.h
NO_SLICE_EXIT = 69  # EX_UNAVAILABLE of sysexits.h
NOT_INSTALLED_EXIT = 127  # what a shell says of a missing program


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerLaunch:
    """A process that runs in a container.

    Args:
        devices: None for a process that uses none, such as a router.
        mounts: from host to container, weights among them.
        cache: the accelerator for which what it compiles is kept, None where nothing is.

    Raises:
        StackError: the image is an option to the runtime, or a mount gives the host away.
    """

    runtime: ContainerRuntime
    image: str
    entrypoint: tuple[str, ...]
    devices: DeviceAccess | None
    mounts: tuple[Mount, ...]
    cache: str | None = None

    def __post_init__(self) -> None:
        """Refuse what the gate and the rule `host-mount` should have stopped."""
        if self.image and not is_image(self.image):
            fix = "Write [REGISTRY/]NAME[:TAG][@DIGEST]."
            raise StackError("engine.image", f"{shown(self.image)} is no image's reference.", fix)
        for mount in self.mounts:
            is_open = gives_host_away(mount.source, read_only=mount.read_only) is not None
            if is_open or not (is_normal_path(mount.source) and is_normal_path(mount.target)):
                what = f"{shown(mount.source)} is not mounted on {shown(mount.target)}: no path, or all of the host."
                raise StackError("mounts", what, "Mount the one folder that the process reads.")


@dataclass(frozen=True, slots=True, kw_only=True)
class NativeLaunch:
    """A process that runs in a virtual environment of the host, or from the distribution's own package.

    Args:
        environment: its folder, None for the distribution's.
        package: what to install there when it is missing.
    """

    environment: str | None
    package: str


def launch_script(
    stack: str,
    process: Process,
    launch: ContainerLaunch | NativeLaunch,
    credentials: Sequence[Credential],
) -> str:
    """A script for `sh` that becomes the process: exactly `argv`, in its container or environment.

    Raises:
        StackError: the process has not passed the gate.
    """
    refuse_process(process)
    lines = [
        "#!/bin/sh",
        f"# {process.id} of stack {stack}, written by moe-infra: `fab plan` shows the same command.",
        "set -eu",
    ]
    if credentials:
        # systemd before 247 has no credentials: root can read the files themselves, and a router what its unit copied.
        is_router = process.kind == "router" and isinstance(launch, NativeLaunch)
        copies = router_credentials(stack, process_index(process))
        folder = shlex.quote(copies if is_router else credentials_folder(stack))
        lines.append(f': "${{CREDENTIALS_DIRECTORY:={folder}}}"')
    lines += [_credential_guard(each) for each in credentials if each.holds != "file"]
    if isinstance(launch, ContainerLaunch):
        return "\n".join([*lines, *_in_container(stack, process, launch, credentials)]) + "\n"
    return "\n".join([*lines, *_in_environment(process, launch, credentials)]) + "\n"


def shell_command(words: Sequence[str]) -> str:
    """Words as one command of several lines: an option and its values share a line."""
    rows: list[list[str]] = []
    for word in words:
        if not rows or word.startswith("--"):
            rows.append([])
        rows[-1].append(shlex.quote(word))
    return " \\\n  ".join(" ".join(row) for row in rows)


def prepend_wrapper(env_prepend: Mapping[str, str]) -> list[str]:
    """A shell that puts values before what is there already, then becomes its arguments; [] for none."""
    return _wrapper(_prepending(env_prepend))


def _in_container(
    stack: str, process: Process, launch: ContainerLaunch, credentials: Sequence[Credential]
) -> list[str]:
    name = container_name(stack, process)
    wrapper = _wrapper([*_held_values(credentials), *_prepending(process.env_prepend)])
    options, command = image_and_command(
        launch.image, launch.entrypoint, [*wrapper, *process.argv], is_wrapped=bool(wrapper)
    )
    words = [launch.runtime, "run", f"--name={name}", f"--stop-timeout={GRACE_S}"]
    words += ["--label", f"moe-infra.stack={stack}", "--label", f"moe-infra.process={process.id}"]
    # The journal has the output already; a second copy in the runtime's own log would fill the disk.
    words += ["--log-driver=none", "--pull=never"]
    words += isolation_options(launch.runtime, binds_low_port=process.binds_low_port)
    if launch.devices is not None:
        words += device_options(launch.runtime, launch.devices)
    if process.kind == "router":
        words += confined_options(binds_low_port=process.binds_low_port)
    words += [*label_options(launch.devices), *mount_options(launch.mounts)]
    words += [f"--env-file={process_folder(stack, process)}/environment"]
    for variable, value in odd_variables(process.env).items():
        words += ["--env", f"{variable}={value}"]
    text = "exec " + shell_command(words) + " \\\n  $parent"
    # Whoever may ask the runtime sees a container's variables: they name secrets' files, and hold none.
    for credential in credentials:
        target = _mounted(credential)
        source = f"$CREDENTIALS_DIRECTORY/{credential.name}"
        text += f' \\\n  --mount "type=bind,source={source},target={target},readonly"'
        if credential.holds == "path":
            text += f" \\\n  --env={credential.variable}={target}"
    caches: list[str] = []
    if launch.cache is not None:
        caches = cache_lines(launch.runtime, launch.image, stack, launch.cache)
        text += f" \\\n  {CACHE_MOUNT}"
    if options:
        text += f" \\\n  {shell_command(options)}"
    left_over = f"{launch.runtime} rm --force {shlex.quote(name)} >/dev/null 2>&1 || :"
    return [
        left_over,
        *_copied_credentials(stack, process, credentials),
        *_parent_slice(launch.runtime, stack),
        *caches,
        f"{text} \\\n  {shell_command(command)}",
    ]


def _wrapper(lines: Sequence[str]) -> list[str]:
    """A shell that does this, then becomes its arguments; [] for nothing to do."""
    if not lines:
        return []
    return ["/bin/sh", "-c", "; ".join([*lines, 'exec "$@"']), "sh"]


def _held_values(credentials: Sequence[Credential]) -> list[str]:
    """Shell lines inside a container that give the process the secrets that it takes as variables alone."""
    return [
        f"{credential.variable}=$(cat {_mounted(credential)}) || exit {NO_CREDENTIAL_EXIT}; "
        f"export {credential.variable}"
        for credential in credentials
        if credential.holds == "value"
    ]


def _mounted(credential: Credential) -> str:
    """The file of a secret inside a container."""
    return f"{CONTAINER_SECRETS}/{credential.name}"


def _copied_credentials(
    stack: str, process: Process, credentials: Sequence[Credential]
) -> list[str]:
    """Shell lines that give the user of a router's container secrets that it may read."""
    if process.kind != "router" or process.binds_low_port or not credentials:
        return []
    folder = shlex.quote(router_credentials(stack, process_index(process)))
    files = " ".join(f'"$CREDENTIALS_DIRECTORY/{credential.name}"' for credential in credentials)
    copied = f"install -m 0400 -o {STRANGER} {files} {folder}/"
    return [copied, f"CREDENTIALS_DIRECTORY={folder}"]


def _parent_slice(runtime: ContainerRuntime, stack: str) -> list[str]:
    """Shell lines that put the container into the stack's slice, by its name where systemd rules the control groups.

    Outside of it nothing would keep the container from a cloud's metadata service: then it is not started.
    """
    field = "{{.CgroupDriver}}" if runtime == "docker" else "{{.Host.CgroupManager}}"
    asked = f"{runtime} info --format {shlex.quote(field)}"
    name, path = stack_slice(stack), slice_path(stack)
    head = (
        f"moe-infra: not started: `{asked}` does not tell who rules the control groups, but says: "
    )
    return [
        f"said=$({asked}) || :",
        f"case $said in systemd) parent=--cgroup-parent={name} ;; cgroupfs) parent=--cgroup-parent={path} ;;",
        f'  *) echo {shlex.quote(head)}"$said" >&2; exit {NO_SLICE_EXIT} ;; esac',
    ]


def _in_environment(
    process: Process, launch: NativeLaunch, credentials: Sequence[Credential]
) -> list[str]:
    program = shlex.quote(process.argv[0])
    lines: list[str] = []
    missing = f"moe-infra: {process.argv[0]} is not there: install the package {launch.package}"
    if launch.environment is not None:
        missing = f"moe-infra: {process.argv[0]} is not in {launch.environment}: install {launch.package} there"
        lines = [f"PATH={shlex.quote(launch.environment + '/bin')}:$PATH", "export PATH"]
    for variable, value in odd_variables(process.env).items():
        lines.append(f"export {variable}={shlex.quote(value)}")
    for credential in (each for each in credentials if each.holds != "file"):
        path = f'"$CREDENTIALS_DIRECTORY/{credential.name}"'
        if credential.holds == "path":
            lines.append(f"export {credential.variable}={path}")
        else:
            lines += [f"{credential.variable}=$(cat {path})", f"export {credential.variable}"]
    lines += _prepending(process.env_prepend)
    guard = f"command -v {program} >/dev/null || {{ echo {shlex.quote(missing)} >&2; exit {NOT_INSTALLED_EXIT}; }}"
    return [*lines, guard, "exec " + shell_command(process.argv)]


def _prepending(env_prepend: Mapping[str, str]) -> list[str]:
    """Shell lines that put each value before what the variable holds already."""
    return [
        _proven_preload(value) if name == PRELOAD else _export(name, value)
        for name, value in env_prepend.items()
    ]


def _export(name: str, value: str) -> str:
    return f'export {name}={shlex.quote(value)}"${{{name}:+:${name}}}"'


def _proven_preload(value: str) -> str:
    """Preload what a program starts with, else say why not.

    ld.so goes on without a missing library, and a jemalloc built for other pages ends every process.
    """
    library = shlex.quote(value)
    head = shlex.quote(f"moe-infra: LD_PRELOAD={value} is left out: ")
    says = f'echo {head}"${{said:-a program ends at once with it}}" >&2'
    return (
        f'if said=$(LD_PRELOAD={library} /bin/true 2>&1) && test -z "$said"; '
        f"then {_export(PRELOAD, value)}; else {says}; fi"
    )


def _credential_guard(credential: Credential) -> str:
    """Refuse to start without a secret that the stack asks for."""
    path = f'"$CREDENTIALS_DIRECTORY/{credential.name}"'
    message = shlex.quote(
        f"moe-infra: the credential {credential.name} is missing: not started without it"
    )
    return f"test -s {path} || {{ echo {message} >&2; exit {NO_CREDENTIAL_EXIT}; }}"
