"""The Ansible inventory of a provisioned stack, from the outputs that provisioning exports."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence

import yaml

from infra.errors import StackError
from infra.plan.process import Plan

OUTPUT = "inventory"
SCHEMA = 1


def inventory_from_outputs(
    outputs: Mapping[str, object], *, ssh_arguments: Sequence[str] = ()
) -> dict[str, object]:
    """The inventory document, one group per role: what `fab inventory` writes as YAML.

    Args:
        outputs: the stack's outputs by name; `inventory` is read.
        ssh_arguments: words that every connection gets besides its own proxy command.

    Raises:
        StackError: the stack exports no inventory, or one of another schema.
    """
    exported = outputs.get(OUTPUT)
    if not isinstance(exported, Mapping):
        raise StackError(
            "pulumi stack output",
            "The stack exports no inventory.",
            "Type: pulumi up --stack STACK",
        )
    if exported.get("schema") != SCHEMA:
        what = f"The inventory has schema {exported.get('schema')}; this version reads {SCHEMA}."
        raise StackError(
            "pulumi stack output", what, f"Type: pulumi up --stack {exported.get('stack', 'STACK')}"
        )
    groups: dict[str, dict[str, object]] = {}
    for host in _maps(exported.get("hosts")):
        variables = _variables(host, ssh_arguments)
        for number, role in enumerate(_texts(host.get("roles"))):
            # Ansible merges a host's variables over groups: they stand in its first one.
            groups.setdefault(role, {})[str(host["name"])] = None if number else variables
    return {"all": {"children": {role: {"hosts": hosts} for role, hosts in groups.items()}}}


def inventory_from_plan(
    plan: Plan, *, user: str, ssh_arguments: Sequence[str] = ()
) -> dict[str, object]:
    """The inventory document of hosts at a plan's own addresses."""
    groups: dict[str, dict[str, object]] = {}
    for host in plan.hosts:
        for number, role in enumerate(host.groups):
            address = None if number else {"ansible_host": host.address}
            groups.setdefault(role, {})[host.name] = address
    variables = {"ansible_user": user, "ansible_ssh_common_args": shlex.join(ssh_arguments) or None}
    return {
        "all": {
            "vars": {name: value for name, value in variables.items() if value is not None},
            "children": {role: {"hosts": hosts} for role, hosts in groups.items()},
        }
    }


def inventory_text(document: Mapping[str, object]) -> str:
    """An inventory document as the YAML that Ansible and `fab` read."""
    return yaml.safe_dump(dict(document), sort_keys=False, default_flow_style=False)


def _variables(host: Mapping[str, object], ssh_arguments: Sequence[str]) -> dict[str, object]:
    words = list(ssh_arguments)
    if host.get("proxy_command"):
        words += ["-o", f"ProxyCommand={host['proxy_command']}"]
    moe = {
        "address": host["address"],
        "interface": host["interface"],
        "rdma_devices": list(_texts(host.get("rdma_devices"))),
        "instance_id": host.get("instance_id"),
        "host_key": host.get("host_key"),
    }
    variables = {
        "ansible_host": host.get("instance_id") if host.get("proxy_command") else host["address"],
        "ansible_user": host.get("user"),
        "ansible_ssh_common_args": shlex.join(words) or None,
        "moe": {name: value for name, value in moe.items() if value not in (None, [])},
    }
    return {name: value for name, value in variables.items() if value is not None}


def _maps(value: object) -> list[Mapping[str, object]]:
    return [each for each in value if isinstance(each, Mapping)] if isinstance(value, list) else []


def _texts(value: object) -> list[str]:
    return [str(each) for each in value] if isinstance(value, list) else []
