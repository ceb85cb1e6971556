"""The program behind `pulumi up`: from a stack to machines, and one export, `inventory`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import assert_never

import pulumi

from infra.catalog.load import Catalog
from infra.errors import InfraError
from infra.plan.compile import resolve_topology
from infra.plan.topology import Topology
from infra.provision.account import refuse_unknown_keys
from infra.provision.existing_hosts import existing_inventory
from infra.provision.judged_stack import judged_plan
from infra.spec.load import PROJECT, LoadedStack, load_stack
from infra.spec.plain_yaml import read_yaml

# Exit code by which Pulumi's Python host knows that there is nothing to add (pulumi-language-python-exec).
MESSAGE_WAS_SHOWN = 32


def run_program() -> None:
    """Provision the stack that Pulumi has selected.

    Leaves the process when the stack or the configuration is wrong: Pulumi then prints the message
    and nothing else.
    """
    try:
        root = Path(pulumi.get_root_directory())
        pulumi.export("inventory", provision(root, pulumi.get_stack(), Catalog()))
    except InfraError as error:
        pulumi.log.error(str(error))
        sys.exit(MESSAGE_WAS_SHOWN)


def provision(root: Path, name: str, catalog: Catalog) -> pulumi.Input[dict[str, object]]:
    """Register everything that a stack needs; returns the inventory document.

    Args:
        root: the folder of `Pulumi.yaml`; stacks lie under it.
        name: the stack's name.
        catalog: what is true of the world.

    Raises:
        InfraError: the stack or the configuration is wrong; nothing was registered.
    """
    refuse_unknown_keys(read_yaml(PROJECT / "Pulumi.yaml")["config"])
    stack, topology, size_bytes = _read_stack(root, name, catalog)
    platform = stack.spec.platform
    match platform:
        case "aws-ec2":
            # Only this platform pays for loading pulumi-aws (half a second).
            from infra.provision.aws_ec2 import provision_aws_ec2  # noqa: PLC0415

            judged_plan(stack, catalog)
            return provision_aws_ec2(stack, topology, size_bytes)
        case "existing-hosts":
            return existing_inventory(root, stack.spec, topology)
        case "existing-kubernetes":
            from infra.provision.existing_kubernetes import (  # noqa: PLC0415 - loads pulumi-kubernetes
                provision_existing_kubernetes,
            )

            return provision_existing_kubernetes(stack, topology, catalog)
        case "aws-eks":
            from infra.provision.aws_eks import provision_aws_eks  # noqa: PLC0415 - loads both packages

            return provision_aws_eks(stack, topology, catalog, size_bytes)
        case _:
            assert_never(platform)


def _read_stack(root: Path, name: str, catalog: Catalog) -> tuple[LoadedStack, Topology, int]:
    """The stack file of that name, its topology, and the bytes of its checkpoint and draft."""
    path = root / "stacks" / f"{name}.yaml"
    stack = load_stack(str(path) if path.is_file() else name)
    _, topology = resolve_topology(stack, catalog)
    names = [stack.spec.checkpoint, *([stack.spec.draft.checkpoint] if stack.spec.draft else [])]
    return stack, topology, sum(catalog.checkpoint(each).size_bytes for each in names)
