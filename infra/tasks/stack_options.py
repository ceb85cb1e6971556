"""The stack and plan that a task's shared options choose."""

from __future__ import annotations

from pathlib import Path

from infra.catalog.load import Catalog
from infra.errors import StackError
from infra.plan.compile import CompiledStack, compile_stack
from infra.spec.load import LoadedStack, load_stack
from infra.spec.stack import KUBERNETES
from infra.tasks.choice import chosen_inventory, needed_inventory, one_stack
from infra.tasks.options import Options
from infra.tasks.platforms import refuse_kubernetes


def chosen_stack(options: Options) -> LoadedStack:
    """The stack of `--stack` or `--file`, with `--set` applied.

    Raises:
        StackError: neither or both were given, or the stack is wrong.
    """
    name, file = options.text("stack"), options.text("file")
    if (name is None) == (file is None):
        raise one_stack(both=name is not None)
    sets = options.words("set")
    if file is None:
        return load_stack(name or "", sets)
    try:
        is_file, is_folder = Path(file).is_file(), Path(file).is_dir()
    except OSError as error:
        what = f"{file} cannot be reached: {error.strerror}."
        raise StackError("--file", what, "Name a stack file that you may read.") from error
    if not is_file:
        what = f"There is no file {file}."
        if is_folder:
            what = f"{file} is a folder."
        elif Path(file).exists():
            what = f"{file} is a pipe or a device, and a stack is named after its file."
        raise StackError("--file", what, "Name a stack file.")
    return load_stack(str(Path(file).absolute()), sets)


def needs_inventory(options: Options) -> bool:
    """Whether the chosen stack's hosts are anything but pods.

    Raises:
        StackError: the stack is wrong.
    """
    return chosen_stack(options).spec.platform not in KUBERNETES


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
    refuse_kubernetes(stack.file, stack.name, stack.spec.platform)
    return compile_stack(stack, catalog=catalog, inventory=needed_inventory(options, stack.name))
