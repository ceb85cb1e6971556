"""Commands in what a task says, completed with the operator's own choice, so that they can be typed as they stand.

Whoever fails or finds something names a command by its stack alone, `fab up --stack NAME`, and a host by its name,
`ssh NAME ls`. With which file, inventory, values and password that stack was chosen, and how its hosts are reached,
only the task knows; here those words take the names' place.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from infra.errors import StackError
from infra.inventory.hosts import InventoryHost
from infra.remote.known_hosts import SSH_PORT
from infra.tasks.choice import chosen_name, taken_choice
from infra.tasks.command_words import ENTRIES
from infra.tasks.options import Options

# What stands for the address of any of the hosts that share a finding.
ANY_HOST = "HOST"
# A task and what stands between it and its stack: words of the same command.
_COMMAND = r"(?P<before>\bfab (?P<task>[a-z-]+)(?: (?!fab |--stack )[^\s`]+)* )--stack "
_NAME_ENDS = r"(?![\w/-]|\.\w)"
_SSH = re.compile(r"\bssh (?P<host>[\w.@:-]+)(?=[ `])")


def completed(options: Options, hosts: Mapping[str, InventoryHost], text: str) -> str:
    """A text with every command about a task's stack, or on one of its hosts, as it is to be typed.

    A command about another stack stays as it is, and so does one that has the words already.

    Args:
        options: of the task; they choose the stack.
        hosts: those that the task has begun to reach, by the names that it calls them.
        text: what it says.
    """

    def with_place(found: re.Match[str]) -> str:
        config, name = options.text("ssh-config"), found["host"]
        if name != ANY_HOST:
            host = hosts.get(name)
            return found[0] if host is None else _ssh(host, config)
        ways = {_ssh(replace(each, address=ANY_HOST), config) for each in hosts.values()}
        return ways.pop() if len(ways) == 1 else found[0]

    return _SSH.sub(with_place, _with_choice(options, text))


def _with_choice(options: Options, text: str) -> str:
    if "stack" not in options.given:  # `fab import --file` names another thing
        return text
    try:
        name = chosen_name(options)
    except StackError:  # the task takes none here, or refuses this choice
        return text

    def with_choice(found: re.Match[str]) -> str:
        entry = ENTRIES.get(found["task"])
        if entry is None:
            return found[0]
        words = taken_choice(options, {option.name for option in entry.options})
        has_them = text.startswith(words, found.end("before"))
        return found[0] if has_them else found["before"] + words

    return re.sub(_COMMAND + re.escape(name) + _NAME_ENDS, with_choice, text)


def _ssh(host: InventoryHost, config: str | None) -> str:
    """`ssh` and how it reaches a host as this project does: what the inventory says of it, else what -S named."""
    arguments = host.ssh_arguments
    words = [] if config is None or any(w.startswith("-F") for w in arguments) else ["-F", config]
    words += ["-p", str(host.port)] if host.port != SSH_PORT else []
    words += ["-i", host.private_key_file] if host.private_key_file is not None else []
    place = host.address if host.user is None else f"{host.user}@{host.address}"
    # a shell leaves ~ as it is between quotes
    expanded = [
        str(Path(w).expanduser()) if w.startswith("~/") else w for w in (*words, *arguments)
    ]
    return shlex.join(["ssh", *expanded, place])
