"""`fab inventory`: the Ansible inventory of a stack, from its Pulumi outputs or to be filled in."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

from infra.catalog.load import Catalog
from infra.errors import StackError
from infra.plan.compile import compile_stack
from infra.provision.outputs import read_outputs, refuse_gone_machines
from infra.render.inventory_file import inventory_from_outputs, inventory_text
from infra.render.inventory_skeleton import inventory_skeleton
from infra.spec.load import PROJECT, LoadedStack
from infra.spec.plain_yaml import parse_yaml
from infra.spec.present import is_file
from infra.spec.stack import CLOUDS
from infra.tasks.choice import INVENTORIES, same_choice
from infra.tasks.options import Options
from infra.tasks.output import SCHEMA_VERSION, Output
from infra.tasks.platforms import refuse_kubernetes
from infra.tasks.stack_options import chosen_stack
from infra.whole_file import NAME_ANOTHER, unwritten, write_whole

ADDRESSES = "addresses"


def run(options: Options, output: Output) -> int:
    """Write the inventory of a provisioned stack, or one to fill in for hosts that exist."""
    stack = chosen_stack(options)
    refuse_kubernetes(stack.file, stack.name, stack.spec.platform)
    path = Path(options.text("to") or INVENTORIES / f"{stack.name}.yml")
    document = _write_from_outputs if stack.spec.platform in CLOUDS else _write_skeleton
    written = document(stack, options, path)
    head = {"schema_version": SCHEMA_VERSION, "stack": stack.name, "ok": True}
    output.document({**head, "path": str(path), "inventory": written})
    output.message(f"Written: {path}")
    named = f" --inventory {shlex.quote(str(path))}" if options.text("to") else ""
    verb = "tune-hosts"
    if document is _write_skeleton:
        verb = "facts"
        if options.text(ADDRESSES) is None:
            output.message(
                "Write an address into it for each host: until then every task refuses it."
            )
    output.next_command(f"fab {verb} {same_choice(options)}{named}")
    return 0


def _write_from_outputs(stack: LoadedStack, options: Options, path: Path) -> object:
    """The inventory of machines that Pulumi has made; as a document.

    Raises:
        StackError: hosts are named, and the cloud's are known.
        PrerequisiteError: the outputs name machines that were given back.
    """
    if options.text(ADDRESSES) is not None:
        what = f"The hosts of {stack.name} are the cloud's."
        raise StackError(
            f"--{ADDRESSES}", what, "Leave it out: Pulumi's outputs have their addresses."
        )
    words = _ssh_words(options.text("ssh-args") or "")
    outputs = read_outputs(stack.name, PROJECT, os.environ)
    refuse_gone_machines(outputs, stack.name, PROJECT, os.environ)
    document = inventory_from_outputs(outputs, ssh_arguments=words)
    _write(path, inventory_text(document))
    return document


def _write_skeleton(stack: LoadedStack, options: Options, path: Path) -> object:
    """An inventory to be filled in; never over one that is there. As a document.

    Raises:
        StackError: there is a file, words are for clouds, or addresses are not as many as hosts.
    """
    if options.text("ssh-args") is not None:
        fix = "Write ansible_ssh_common_args into the file."
        raise StackError("--ssh-args", "It is for hosts of a cloud.", fix)
    if is_file(path):
        what = "There is one already, and somebody may have written it."
        raise StackError(str(path), what, "Edit it, or name another file with --to.")
    plan = compile_stack(stack, catalog=Catalog(), inventory=None).plan
    given = (options.text(ADDRESSES) or "").split(",")
    text = inventory_skeleton(plan, tuple(word.strip() for word in given if word.strip()))
    _write(path, text)
    return parse_yaml(text)


def _write(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise unwritten(error, path, "--to", NAME_ANOTHER) from error
    write_whole(path, text, option="--to")


def _ssh_words(text: str) -> tuple[str, ...]:
    """The words of `--ssh-args`.

    Raises:
        StackError: a quotation is left open.
    """
    try:
        return tuple(shlex.split(text))
    except ValueError as error:
        raise StackError(f"--ssh-args {text}", f"{error}.", "Close the quotation.") from error
