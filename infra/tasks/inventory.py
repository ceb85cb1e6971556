"""`fab inventory`: the Ansible inventory of a cloud stack, from its Pulumi outputs."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

from infra.errors import StackError
from infra.provision.outputs import read_outputs
from infra.render.inventory_file import inventory_from_outputs, inventory_text
from infra.spec.load import PROJECT
from infra.tasks.choice import INVENTORIES
from infra.tasks.options import Options
from infra.tasks.output import SCHEMA_VERSION, Output
from infra.tasks.platforms import refuse_kubernetes
from infra.tasks.stack_options import chosen_stack


def run(options: Options, output: Output) -> int:
    """Write the inventory of a provisioned stack."""
    stack = chosen_stack(options)
    refuse_kubernetes(stack.file, stack.name, stack.spec.platform)
    if not stack.spec.platform.startswith("aws"):
        what = f"{stack.name} runs on {stack.spec.platform}: its inventory is written by hand."
        fix = f"Write ansible/inventory/{stack.name}.yml; examples lie in ansible/inventory/examples/."
        raise StackError(f"{stack.file} platform", what, fix)
    outputs = read_outputs(stack.name, PROJECT, os.environ)
    words = tuple(shlex.split(options.text("ssh-args") or ""))
    document = inventory_from_outputs(outputs, ssh_arguments=words)
    path = Path(options.text("to") or INVENTORIES / f"{stack.name}.yml")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(inventory_text(document), encoding="utf-8")
    except OSError as error:
        what = f"The inventory cannot be written: {error.strerror}."
        raise StackError(f"--to {path}", what, "Name another file.") from error
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
    output.next_command(f"fab tune-hosts --stack {stack.name}")
    return 0
