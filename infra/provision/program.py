"""The program behind `pulumi up`: from a stack to machines, and one export, `inventory`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import assert_never

import pulumi

from infra.catalog.load import Catalog
from infra.errors import InfraError
from infra.plan.compile import resolve_topology
from infra.provision.own_config import refuse_unknown_keys
from infra.provision.platform import Declared, provisioned
from infra.spec.load import PROJECT, load_stack
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
    declared = _read_stack(root, name, catalog)
    platform = declared.stack.spec.platform
    # Each platform is imported where it is named: its packages cost half a second, and other stacks need none of them.
    match platform:
        case "aws-ec2":
            from infra.provision.aws import ec2_stack  # noqa: PLC0415

            return provisioned(ec2_stack, declared)
        case "aws-eks":
            from infra.provision.aws import eks_stack  # noqa: PLC0415

            return provisioned(eks_stack, declared)
        case "gcp-gce":
            from infra.provision.gcp import gce_stack  # noqa: PLC0415

            return provisioned(gce_stack, declared)
        case "existing-hosts":
            from infra.provision import existing_hosts  # noqa: PLC0415

            return provisioned(existing_hosts, declared)
        case "existing-kubernetes":
            from infra.provision import existing_kubernetes  # noqa: PLC0415

            return provisioned(existing_kubernetes, declared)
        case _:
            assert_never(platform)


def _read_stack(root: Path, name: str, catalog: Catalog) -> Declared:
    """The stack file of that name, with what follows from it."""
    path = root / "stacks" / f"{name}.yaml"
    stack = load_stack(str(path) if path.is_file() else name)
    _, topology = resolve_topology(stack, catalog)
    names = [stack.spec.checkpoint, *([stack.spec.draft.checkpoint] if stack.spec.draft else [])]
    return Declared(
        root=root,
        stack=stack,
        topology=topology,
        catalog=catalog,
        size_bytes=sum(catalog.checkpoint(each).size_bytes for each in names),
    )
