"""The programs `docker` and `podman`: finds the command and does it."""

from __future__ import annotations

import os

from .command_flags import ALIASES, COMMANDS
from .container_load import USAGE as LOAD_USAGE
from .container_load import load
from .failures import CommandFailure, Refusal, command_failure, flag_failure
from .flag_values import VALUE_CHECKS
from .flags import FlagError, FlagParser, ParsedFlags
from .host_state import STANDIN_NOTICE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

VERSION_LINES = {
    "docker": "Docker version 28.2.2, build e6534b4",
    "podman": "podman version 4.9.3",
}
# Commands of the real programs that a rehearsal has no use for.
REAL_COMMANDS = frozenset(
    [
        "attach",
        "build",
        "buildx",
        "commit",
        "compose",
        "container",
        "cp",
        "create",
        "diff",
        "events",
        "exec",
        "export",
        "history",
        "image",
        "import",
        "login",
        "logout",
        "manifest",
        "network",
        "node",
        "pause",
        "plugin",
        "port",
        "push",
        "rename",
        "restart",
        "rmi",
        "save",
        "search",
        "secret",
        "service",
        "stack",
        "start",
        "stats",
        "swarm",
        "system",
        "tag",
        "top",
        "trust",
        "unpause",
        "update",
        "volume",
        "generate",
        "healthcheck",
        "kube",
        "machine",
        "mount",
        "play",
        "pod",
        "umount",
        "unshare",
    ]
)
GROUPS = ("container", "image", "system")
# Options of commands whose module holds them.
OWN_TABLES = {"load": LOAD_USAGE}


def main(arguments: list[str]) -> int:
    """Do what `docker` or `podman` was asked for; which of them, the first argument tells.

    Args:
        arguments: as in `sys.argv`.
    """
    program = os.path.basename(arguments[0])
    try:
        return _dispatch(program, arguments[1:])
    except CommandFailure as failure:
        stream = 1 if failure.exit_code == 0 else 2
        os.write(stream, (failure.text + "\n").encode())
        return failure.exit_code


def _dispatch(program: str, arguments: list[str]) -> int:
    """Find the command and do it."""
    while arguments[:1] and arguments[0] in ("--log-level", "-l", "--config", "--root"):
        arguments = arguments[2:]
    if not arguments or arguments[0] in ("--help", "-h", "help"):
        print(f"Usage:  {program} [OPTIONS] COMMAND [ARG...]\n\n{STANDIN_NOTICE}")
        return 0
    if arguments[0] in ("--version", "-v"):
        os.write(2, f"{STANDIN_NOTICE}\n".encode())
        print(VERSION_LINES[program])
        return 0
    if arguments[0].startswith("-"):
        raise _unknown_option(program, arguments[0])
    command, rest = arguments[0], arguments[1:]
    if command in GROUPS and rest:
        command, rest = f"{command} {rest[0]}", rest[1:]
    command = ALIASES.get(command, command)
    if command == "run":
        from .container_run import run_container  # noqa: PLC0415  each command loads its own

        return run_container(program, rest)
    if command not in COMMANDS and command not in OWN_TABLES:
        raise _unknown_command(program, command)
    flags = _parse(program, command, rest)
    try:
        return _action(command)(program, flags)
    except Refusal as refusal:
        raise command_failure(program, refusal) from None


def _action(command: str) -> Callable[[str, ParsedFlags], int]:
    """Return the function of a command."""
    from . import container_control, container_queries, container_system  # noqa: PLC0415  each command loads its own

    actions: dict[str, Callable[[str, ParsedFlags], int]] = {
        "ps": container_queries.show_containers,
        "images": container_queries.show_images,
        "image inspect": container_queries.inspect_images,
        "inspect": container_queries.inspect_objects,
        "info": container_system.show_system,
        "version": container_system.show_version,
        "logs": container_queries.show_logs,
        "stop": container_control.stop_containers,
        "kill": container_control.kill_containers,
        "rm": container_control.remove_containers,
        "wait": container_control.await_containers,
        "pull": container_control.pull,
        "load": load,
    }
    return actions[command]


def _parse(program: str, command: str, arguments: list[str]) -> ParsedFlags:
    """Return options and words of a command, as many as it takes."""
    usage, least, most, table = {**COMMANDS, **OWN_TABLES}[command]
    try:
        flags = FlagParser(table, VALUE_CHECKS, interspersed=True).parse(arguments)
    except FlagError as error:
        raise flag_failure(program, command, usage, str(error)) from None
    usage_line = f"Usage:  {program} {command} {usage}"
    if flags.has("help"):
        raise CommandFailure(usage_line, 0)
    count = len(flags.words)
    if count < least or (most >= 0 and count > most):
        number = "1 argument" if least == most else "at least 1 argument"
        says = f"requires {number}" if least else "accepts no arguments"
        verb = "See" if count < least and most < 0 else "Run"
        text = (
            f"docker: 'docker {command}' {says}\n\n{usage_line}\n\n"
            f"{verb} 'docker {command} --help' for more information"
        )
        if program == "podman":
            text = f"Error: {says}"
        raise CommandFailure(text, 125 if program == "podman" else 1)
    return flags


def _unknown_option(program: str, option: str) -> CommandFailure:
    """Return how an option before the command is refused."""
    reason = (
        f"unknown flag: {option.partition('=')[0]}"
        if option.startswith("--")
        else f"unknown shorthand flag: '{option[1]}' in {option}"
    )
    if program == "podman":
        return CommandFailure(f"Error: {reason}\nSee 'podman --help'", 125)
    text = (
        f"{reason}\n\nUsage:  docker [OPTIONS] COMMAND [ARG...]\n\n"
        "Run 'docker --help' for more information"
    )
    return CommandFailure(text, 125)


def _unknown_command(program: str, command: str) -> CommandFailure:
    """Return how a command is refused that the real program, or only this one, does not have."""
    if command.split(" ", maxsplit=1)[0] in REAL_COMMANDS and command not in GROUPS:
        text = f"{STANDIN_NOTICE}: '{program} {command}' is real, but not part of the rehearsal"
        return CommandFailure(text, 125)
    if program == "podman":
        text = f"Error: unrecognized command `podman {command}`\nTry 'podman --help' for more information"
        return CommandFailure(text, 125)
    text = f"docker: unknown command: docker {command}\n\nRun 'docker --help' for more information"
    return CommandFailure(text, 1)
