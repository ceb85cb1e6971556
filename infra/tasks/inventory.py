"""`fab inventory`: the Ansible inventory of a cloud stack, from its Pulumi outputs."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

from infra.errors import StackError
from infra.provision.outputs import read_outputs
from infra.render.inventory_file import inventory_from_outputs, inventory_text
from infra.spec.load import PROJECT
from infra.tasks.choice import INVENTORIES, same_choice
from infra.tasks.options import Options
from infra.tasks.output import SCHEMA_VERSION, Output
from infra.tasks.platforms import refuse_kubernetes
from infra.tasks.stack_options import chosen_stack
from infra.whole_file import NAME_ANOTHER, unwritten, write_whole


def run(options: Options, output: Output) -> int:
    """Write the inventory of a provisioned stack."""
    stack = chosen_stack(options)
    refuse_kubernetes(stack.file, stack.name, stack.spec.platform)
    if not stack.spec.platform.startswith("aws"):
        what = f"{stack.name} runs on {stack.spec.platform}: its inventory is written by hand."
        fix = f"Write ansible/inventory/{stack.name}.yml; examples lie in ansible/inventory/examples/."
        raise StackError(f"{stack.file} platform", what, fix)
    words = _ssh_words(options.text("ssh-args") or "")
    outputs = read_outputs(stack.name, PROJECT, os.environ)
    document = inventory_from_outputs(outputs, ssh_arguments=words)
    path = Path(options.text("to") or INVENTORIES / f"{stack.name}.yml")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise unwritten(error, path, "--to", NAME_ANOTHER) from error
    write_whole(path, inventory_text(document), option="--to")
    output.document(
        {
            "schema_version": SCHEMA_VERSION,
            "stack": stack.name,
            "ok": True,
            "path": str(path),
            "inventory": document,
        }
    )
    output.message(f"Written: {path}")
    named = f" --inventory {shlex.quote(str(path))}" if options.text("to") else ""
    output.next_command(f"fab tune-hosts {same_choice(options)}{named}")
    return 0


def _ssh_words(text: str) -> tuple[str, ...]:
    """The words of `--ssh-args`.

    Raises:
        StackError: a quotation is left open.
    """
    try:
        return tuple(shlex.split(text))
    except ValueError as error:
        raise StackError(f"--ssh-args {text}", f"{error}.", "Close the quotation.") from error
