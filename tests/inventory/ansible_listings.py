"""What Ansible makes of many inventories, in one process: `python ansible_listings.py < FOLDERS`, for tests.

Standard input is a JSON list of inventories. Standard output is a JSON list: of each, what `ansible-inventory --list`
prints and what Ansible's own SSH connection makes of each host's variables, or the error that it ends with.
"""

from __future__ import annotations

import contextlib
import io
import json
import multiprocessing
import os
import shlex
import sys
from typing import Any

# Before Ansible is loaded, which reads them once. Our maps merge key by key, which is the first one's meaning.
os.environ["ANSIBLE_HASH_BEHAVIOUR"] = "merge"
os.environ["ANSIBLE_INVENTORY_ANY_UNPARSED_IS_FAILED"] = "1"
os.environ["ANSIBLE_INVENTORY_ENABLED"] = "yaml"
os.environ["ANSIBLE_DEPRECATION_WARNINGS"] = "0"

from ansible.cli.inventory import InventoryCLI  # type: ignore[import-untyped]
from ansible.errors import AnsibleError  # type: ignore[import-untyped]
from ansible.playbook.play_context import PlayContext  # type: ignore[import-untyped]
from ansible.plugins.loader import connection_loader  # type: ignore[import-untyped]


def listed(inventory: str) -> dict[str, Any]:
    """What the program lists."""
    out = io.StringIO()
    with (
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(io.StringIO()),
        contextlib.suppress(SystemExit),
    ):
        InventoryCLI(["ansible-inventory", "--list", "-i", inventory]).run()
    document: dict[str, Any] = json.loads(out.getvalue())
    return document


def resolved(name: str, variables: dict[str, Any]) -> dict[str, Any]:
    """What Ansible's connection makes of a host's variables, or the error that it ends with."""
    ssh = connection_loader.get("ssh", PlayContext())
    try:
        ssh.set_options(var_options={"inventory_hostname": name, **variables})
    except AnsibleError as error:
        return {"error": str(error)}
    arguments = [variables.get("ansible_ssh_args")]
    arguments += [ssh.get_option("ssh_common_args"), ssh.get_option("ssh_extra_args")]
    return {
        "address": ssh.get_option("host"),
        "port": ssh.get_option("port") or 22,
        "user": ssh.get_option("remote_user"),
        "identity": ssh.get_option("private_key_file"),
        "arguments": [word for text in arguments for word in shlex.split(text or "")],
        "moe": variables.get("moe") or {},
    }


def plain(value: Any) -> Any:
    """A value without the sign that it is no template."""
    if isinstance(value, dict):
        return value.get("__ansible_unsafe") or {key: plain(each) for key, each in value.items()}
    return value


def told(inventory: str) -> dict[str, Any]:
    """Groups with their own hosts and children, and every host."""
    try:
        groups = listed(inventory)
    except (AnsibleError, ValueError, TypeError, RecursionError) as error:
        return {"error": f"{type(error).__name__}: {error}"}
    variables = plain(groups.pop("_meta")["hostvars"])
    names = {host for group in groups.values() for host in group.get("hosts", ())}
    hosts = {name: resolved(name, variables.get(name, {})) for name in sorted(names)}
    return {"groups": groups, "hosts": hosts}


if __name__ == "__main__":
    # Ansible keeps what it has read: each inventory has a process of its own, forked from one that has loaded Ansible.
    with multiprocessing.get_context("fork").Pool(2, maxtasksperchild=1) as pool:
        json.dump(pool.map(told, json.load(sys.stdin), chunksize=1), sys.stdout)
