"""What `fab --help TASK` prints: how the task is typed, what it does, and each option in a line or two."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping

from infra.tasks.options import Option
from infra.tasks.table import Entry

WIDTH = 100
# What stands after an option, where it says more than VALUE.
VALUES: Mapping[str, str] = {
    "stack": "NAME",
    "file": "PATH",
    "inventory": "PATH",
    "plan": "PATH",
    "to": "PATH",
    "picture": "PATH",
    "identity": "PATH",
    "ssh-config": "PATH",
    "image-archive": "PATH",
    "to-stack": "PATH",
    "to-plan": "PATH",
    "report": "PATH",
    "timeout": "SECONDS",
}


def task_help(entry: Entry) -> str:
    """The whole text for one task."""
    places = [option for option in entry.options if option.is_positional]
    others = [option for option in entry.options if not option.is_positional]
    usage = " ".join(
        ["Usage: fab", entry.name, *(_shown(option) for option in places), "[options]"]
    )
    rows = [(_shown(option), option.help) for option in (*places, *others)]
    width = max(len(name) for name, _ in rows)
    lines = [
        textwrap.fill(
            text,
            width=WIDTH,
            initial_indent=f"  {name:<{width}}  ",
            subsequent_indent=" " * (width + 4),
            break_long_words=False,
            break_on_hyphens=False,
        )
        for name, text in rows
    ]
    return "\n".join([usage, "", f"{entry.help}.", "", *lines])


def _shown(option: Option) -> str:
    """An option as it is typed, with the place of its value."""
    if option.is_positional:
        return option.name.upper()
    value = {"switch": "", "number": "N", "pair": "A B"}.get(option.kind, "VALUE")
    if option.kind != "switch":
        value = VALUES.get(option.name, value)
    return f"--{option.name} {value}".rstrip()
