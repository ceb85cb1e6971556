"""The name and inventory that a task's shared options choose: what tasks need that only read what hosts hold."""

from __future__ import annotations

import shlex
from collections.abc import Collection
from pathlib import Path

from infra.errors import StackError
from infra.inventory.hosts import Inventory
from infra.spec.present import is_file
from infra.spec.stack_files import PROJECT
from infra.tasks.options import Options
from infra.tasks.sudo_password import sudo_words

INVENTORIES = PROJECT / "ansible" / "inventory"


def chosen_name(options: Options) -> str:
    """The name of the stack of `--stack` or `--file`; the file is not read.

    Raises:
        StackError: neither or both were given.
    """
    name, file = options.text("stack"), options.text("file")
    if (name is None) == (file is None):
        raise one_stack(both=name is not None)
    is_path = file is not None or str(name).endswith((".yaml", ".yml")) or "/" in str(name)
    return Path(file or str(name)).stem if is_path else str(name)


def same_choice(options: Options) -> str:
    """The words that choose the same stack, inventory and values again, for the next command."""
    words = [
        word
        for name in ("stack", "file", "inventory")
        if (value := options.text(name)) is not None
        for word in (f"--{name}", value)
    ]
    words += [word for value in options.words("set") for word in ("--set", value)]
    words += sudo_words(options)
    return shlex.join(words)


def taken_choice(options: Options, taken: Collection[str]) -> str:
    """The words of `same_choice` as far as a task takes them.

    Args:
        options: that chose.
        taken: names of the options of the task that the words are for.
    """
    return same_choice(Options({k: v for k, v in options.given.items() if k in taken}))


def chosen_inventory(options: Options, stack_name: str) -> Inventory | None:
    """The inventory of `--inventory`, else `ansible/inventory/<stack>.yml`, else None.

    Raises:
        ProblemsFound: the file is missing or is no inventory.
    """
    named = options.text("inventory")
    path = inventory_path(options, stack_name)
    if named is None and not is_file(path):
        return None
    # A stack is checked and planned before it has hosts, and what reads inventories is a dozen modules.
    from infra.inventory.ansible_file import read_inventory  # noqa: PLC0415
    from infra.inventory.facts_file import facts_path, read_facts, with_facts  # noqa: PLC0415

    inventory = read_inventory(path, named or str(path.relative_to(PROJECT)))
    return with_facts(inventory, read_facts(facts_path(path)))


def inventory_path(options: Options, stack_name: str) -> Path:
    """Where the inventory lies, or would lie."""
    named = options.text("inventory")
    return INVENTORIES / f"{stack_name}.yml" if named is None else Path(named)


def has_inventory(options: Options, stack_name: str) -> bool:
    """Whether hosts come from an inventory, named or the default one."""
    default = INVENTORIES / f"{stack_name}.yml"
    return options.text("inventory") is not None or is_file(default)


def needed_inventory(options: Options, stack_name: str) -> Inventory:
    """The inventory of a task that reaches hosts.

    Raises:
        StackError: there is none, or there can be none: the stack runs in pods.
    """
    inventory = chosen_inventory(options, stack_name)
    if inventory is None:
        # Reading a stack takes half of a short command's start, and here alone its platform matters.
        from infra.tasks.platforms import refuse_stack_in_pods  # noqa: PLC0415

        refuse_stack_in_pods(stack_name, options.text("file"), options.words("set"))
        raise StackError(
            f"ansible/inventory/{stack_name}.yml",
            "There is no inventory: nothing says where the hosts are.",
            f"`fab inventory --stack {stack_name}` writes it, on existing hosts to be filled in; "
            "or add --inventory PATH.",
        )
    return inventory


def one_stack(*, both: bool) -> StackError:
    """The refusal of both --stack and --file, or of neither."""
    what = "Both --stack and --file were given." if both else "No stack was named."
    fix = (
        "Leave one of them out."
        if both
        else "Add --stack NAME or --file PATH; `fab stacks` lists the shipped ones."
    )
    return StackError("command line", what, fix)
