"""The stack and inventory of a shell: `MOE_STACK` and `MOE_INVENTORY`, for commands that name none."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from infra.tasks.options import Options
from infra.tasks.table import Entry

STACK_VARIABLE, INVENTORY_VARIABLE = "MOE_STACK", "MOE_INVENTORY"
# Task → options that a stack is not read beside.
_INSTEAD: Mapping[str, tuple[str, ...]] = {
    "check": ("plan", "explain"),
    "render": ("plan",),
    "rehearse": ("plan", "list", "stop"),
    "tune-hosts": ("hosts",),
}
# A stack only narrows what they tell.
_NEED_NONE = ("engines",)


def with_default_stack(
    entry: Entry, options: Options, environment: Mapping[str, str]
) -> tuple[Options, str]:
    """The options of a task, with the stack of the shell where none was typed, and what is to be said of that.

    The variable of the inventory counts only beside that of the stack: another stack that is typed has other hosts.

    Args:
        entry: the task.
        options: as typed.
        environment: of the shell.

    Returns:
        The options, and a line that names what was taken from the shell, "" for nothing.
    """
    names = {option.name for option in entry.options}
    stack = environment.get(STACK_VARIABLE)
    instead = ("stack", "file", *_INSTEAD.get(entry.name, ()))
    is_chosen = any(options.given.get(name) for name in instead)
    if not stack or "stack" not in names or is_chosen or entry.name in _NEED_NONE:
        return options, ""
    is_path = "/" in stack or stack.endswith((".yaml", ".yml"))
    given: dict[str, object] = {**options.given, ("file" if is_path else "stack"): stack}
    told = f"{STACK_VARIABLE}: {stack}"
    inventory = environment.get(INVENTORY_VARIABLE)
    if inventory and "inventory" in names and not given.get("inventory"):
        given["inventory"] = inventory
        told += f", {INVENTORY_VARIABLE}: {inventory}"
    return replace(options, given=given), told
