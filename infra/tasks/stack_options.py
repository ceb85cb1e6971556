"""The stack, inventory and plan that a task's shared options choose."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path

from infra.catalog.load import Catalog
from infra.checks.judge import judge_stack
from infra.errors import ProblemsFound, StackError
from infra.inventory.ansible_file import read_inventory
from infra.inventory.facts_file import RecordedHost, facts_path, read_facts, with_facts
from infra.inventory.hosts import Inventory, InventoryHost
from infra.plan.compile import CompiledStack, compile_stack
from infra.spec.load import PROJECT, LoadedStack, load_stack
from infra.spec.stack import KUBERNETES
from infra.tasks.options import Options
from infra.tasks.output import Output
from infra.tasks.sudo_password import sudo_words

INVENTORIES = PROJECT / "ansible" / "inventory"


def chosen_stack(options: Options) -> LoadedStack:
    """The stack of `--stack` or `--file`, with `--set` applied.

    Raises:
        StackError: neither or both were given, or the stack is wrong.
    """
    name, file = options.text("stack"), options.text("file")
    if (name is None) == (file is None):
        raise _one_stack(both=name is not None)
    sets = options.words("set")
    if file is None:
        return load_stack(name or "", sets)
    if not Path(file).is_file():
        raise StackError("--file", f"There is no file {file}.", "Name a stack file.")
    return load_stack(str(Path(file).absolute()), sets)


def chosen_name(options: Options) -> str:
    """The name of the stack of `--stack` or `--file`; the file is not read.

    Raises:
        StackError: neither or both were given.
    """
    name, file = options.text("stack"), options.text("file")
    if (name is None) == (file is None):
        raise _one_stack(both=name is not None)
    path = file or name or ""
    return Path(path).stem if path.endswith((".yaml", ".yml")) else path


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


def chosen_inventory(options: Options, stack_name: str) -> Inventory | None:
    """The inventory of `--inventory`, else `ansible/inventory/<stack>.yml`, else None.

    Raises:
        ProblemsFound: the file is missing or is no inventory.
    """
    named = options.text("inventory")
    path = inventory_path(options, stack_name)
    if named is None and not path.is_file():
        return None
    inventory = read_inventory(path, named or str(path.relative_to(PROJECT)))
    return with_facts(inventory, read_facts(facts_path(path)))


def inventory_path(options: Options, stack_name: str) -> Path:
    """Where the inventory lies, or would lie."""
    named = options.text("inventory")
    return INVENTORIES / f"{stack_name}.yml" if named is None else Path(named)


def recorded_facts(
    options: Options, stack_name: str, hosts: Mapping[str, InventoryHost]
) -> dict[str, RecordedHost]:
    """What the facts file says of each host of a plan, by the plan's name.

    Raises:
        StackError: the file is not what `fab facts` writes.
    """
    path = facts_path(inventory_path(options, stack_name))
    known = {found.address: found for found in read_facts(path).values()}
    return {
        name: known[host.service_address]
        for name, host in hosts.items()
        if host.service_address in known
    }


def has_inventory(options: Options, stack_name: str) -> bool:
    """Whether hosts come from an inventory, named or the default one."""
    default = INVENTORIES / f"{stack_name}.yml"
    return options.text("inventory") is not None or default.is_file()


def needs_inventory(options: Options) -> bool:
    """Whether the chosen stack's hosts are anything but pods.

    Raises:
        StackError: the stack is wrong.
    """
    return chosen_stack(options).spec.platform not in KUBERNETES


def needed_inventory(options: Options, stack_name: str) -> Inventory:
    """The inventory of a task that reaches hosts.

    Raises:
        StackError: there is none.
    """
    inventory = chosen_inventory(options, stack_name)
    if inventory is None:
        raise StackError(
            f"ansible/inventory/{stack_name}.yml",
            "There is no inventory: nothing says where the hosts are.",
            f"Write one (examples lie in ansible/inventory/examples/), run "
            f"`fab inventory --stack {stack_name}`, or add --inventory PATH.",
        )
    return inventory


def compile_chosen(options: Options, catalog: Catalog) -> CompiledStack:
    """The chosen stack compiled against its inventory, or against documentation addresses."""
    stack = chosen_stack(options)
    return compile_stack(stack, catalog=catalog, inventory=chosen_inventory(options, stack.name))


def compile_for_hosts(options: Options, catalog: Catalog) -> CompiledStack:
    """The chosen stack compiled against the hosts that exist.

    Raises:
        StackError: hosts of its platform are not ours to bring up, or there is no inventory.
    """
    stack = chosen_stack(options)
    refuse_kubernetes(stack.file, stack.spec.platform)
    return compile_stack(stack, catalog=catalog, inventory=needed_inventory(options, stack.name))


def refuse_kubernetes(file: str, platform: str) -> None:
    """Refuse a platform whose processes Kubernetes starts: units over SSH would be the wrong thing.

    Raises:
        StackError: it is one.
    """
    if platform in KUBERNETES:
        what = f"The back end for {platform} is not there yet: `fab check` and `fab plan` are all that it has."
        raise StackError(f"{file} platform", what, "Use aws-ec2 or existing-hosts.")


def refuse_problems(compiled: CompiledStack, catalog: Catalog, output: Output) -> None:
    """Judge a compiled stack with every rule: warnings are printed.

    Raises:
        ProblemsFound: a rule refuses it.
    """
    problems = judge_stack(compiled.plan, compiled.stack, catalog)
    errors = tuple(problem for problem in problems if problem.blocks)
    if errors:
        raise ProblemsFound(errors)
    for problem in problems:
        output.message(output.toned(f"{problem.severity}: {problem}", "warn"))


def _one_stack(*, both: bool) -> StackError:
    what = "Both --stack and --file were given." if both else "No stack was named."
    fix = "Add --stack NAME or --file PATH; `fab stacks` lists the shipped ones."
    return StackError("command line", what, fix)
