"""Python code run where a process of the plan would run: its image with devices and mounts, or its environment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from infra.plan.process import Process
from infra.render.container import (
    device_options,
    image_and_command,
    isolation_options,
    label_options,
    mount_options,
)
from infra.render.launch_script import ContainerLaunch, NativeLaunch, prepend_wrapper

PYTHON = "python3"


def python_command(
    launch: ContainerLaunch | NativeLaunch,
    process: Process,
    name: str,
    env: Mapping[str, str],
    words: Sequence[str],
) -> tuple[str, ...]:
    """The argument vector of `python3 WORDS…`, which leaves nothing behind that is not called `name`.

    Args:
        launch: how the process is started.
        process: whose prepended variables hold here, too.
        name: of the container.
        env: all other variables.
        words: what follows Python's own name.
    """
    wrapper = prepend_wrapper(process.env_prepend)
    if isinstance(launch, NativeLaunch):
        variables = [f"{key}={value}" for key, value in env.items()]
        return ("env", *variables, *wrapper, f"{launch.environment}/bin/{PYTHON}", *words)
    options, command = image_and_command(
        launch.image, launch.entrypoint, [*wrapper, PYTHON, *words], is_wrapped=True
    )
    given = [launch.runtime, "run", "--rm", f"--name={name}", "--log-driver=none", "--pull=never"]
    given += isolation_options(launch.runtime, binds_low_port=False)
    if launch.devices is not None:
        given += device_options(launch.runtime, launch.devices)
    given += [*label_options(launch.devices), *mount_options(launch.mounts)]
    for key, value in env.items():
        given += ["--env", f"{key}={value}"]
    return (*given, *options, *command)


def removal_command(launch: ContainerLaunch | NativeLaunch, name: str) -> str | None:
    """Shell words that remove what is left of it; None where nothing can be."""
    if isinstance(launch, NativeLaunch):
        return None
    return f"{launch.runtime} rm --force {name} >/dev/null 2>&1"
