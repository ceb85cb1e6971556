"""An ordinary Ansible YAML inventory read: groups, ranges, variables, and our keys under `moe:`."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from pathlib import Path

from infra.errors import Problem, ProblemsFound
from infra.inventory.groups import ALWAYS, Groups, Variables, merge_variables
from infra.inventory.hosts import Inventory, InventoryHost
from infra.inventory.values import TAGS, Encrypted, is_template
from infra.inventory.variable_files import (
    NOTHING_BESIDE,
    VariableFile,
    VariableFiles,
    read_variable_files,
)
from infra.inventory.walk import Found, Walk
from infra.spec.bounded import is_whole_number
from infra.spec.text_file import read_text
from infra.spec.work import TooMuchWorkError, Work
from infra.spec.yaml_source import read_yaml, why_unreadable

# Names of one value: Ansible takes the first of them that is set.
HOST_KEYS = ("ansible_ssh_host", "ansible_host")
PORT_KEYS = ("ansible_ssh_port", "ansible_port")
USER_KEYS = ("ansible_ssh_user", "ansible_user")
IDENTITY_KEYS = ("ansible_ssh_private_key_file", "ansible_private_key_file")
# In the order in which Ansible gives them to ssh, which takes the first value of an option.
ARGUMENT_KEYS = ("ansible_ssh_args", "ansible_ssh_common_args", "ansible_ssh_extra_args")
SSH_CONNECTIONS = (None, "ssh", "smart", "paramiko", "ansible.builtin.ssh")
# For each host its groups and their variables; ten thousand hosts with ten of each take a fifth of it.
MAX_STEPS = 1_000_000
_ADDRESS = re.compile(
    r"[A-Za-z0-9]([A-Za-z0-9_.\-]*[A-Za-z0-9])?|[0-9a-fA-F]*:[0-9a-fA-F:.]*:[0-9a-fA-F:.]*"
)
# Host names become names of folders and of lines in what is told.
_NAME = re.compile(r"[!-.0-\[\]-~]+")


def read_inventory(path: Path, shown: str | None = None) -> Inventory:
    """The hosts of an inventory file, in file order.

    Args:
        path: the file.
        shown: its name for messages.

    Raises:
        ProblemsFound: it is missing, is no inventory, names a host's address twice, or has unknown keys under `moe:`.
    """
    file = shown or str(path)
    try:
        text = read_text(path)
    except (OSError, UnicodeDecodeError) as error:
        what = f"The inventory cannot be read: {why_unreadable(error)}."
        fix = "Name one with --inventory PATH; examples lie in ansible/inventory/examples/."
        raise ProblemsFound(
            (
                Problem(
                    rule="missing-inventory",
                    severity="error",
                    field="",
                    what=what,
                    fix=fix,
                    file=file,
                ),
            )
        ) from error
    shown_folder = file.rpartition("/")[0]
    return parse_inventory(text, file, read_variable_files(path.parent, shown_folder))


def parse_inventory(text: str, file: str, beside: VariableFiles = NOTHING_BESIDE) -> Inventory:
    """The hosts of an inventory's text and of what lies beside it; see `read_inventory`."""
    document, found = read_yaml(text, file, TAGS, merges=True)
    problems = (*found, *beside.problems)
    if problems:
        raise ProblemsFound(tuple(_without_stack_hint(problem) for problem in problems))
    try:
        return _inventory(Walk(file, document, Groups(Work(MAX_STEPS))), beside)
    except TooMuchWorkError as error:
        what = f"The inventory is not read: {error.why}."
        fix = "Write fewer groups of groups, and smaller ranges of hosts."
        problem = Problem(
            rule="too-many-hosts", severity="error", field="", what=what, fix=fix, file=file
        )
        raise ProblemsFound((problem,)) from error


def _inventory(walk: Walk, beside: VariableFiles) -> Inventory:
    """The hosts of a document; see `read_inventory`."""
    document, file = walk.document, walk.file
    if isinstance(document.data, Mapping):
        for name, body in document.data.items():
            walk.group(str(name), body, (str(name),), None)
    if cycle := walk.groups.cycle():
        what = f"Groups contain each other: {' in '.join(cycle)}."
        walk.refuse("group-cycle", (cycle[0],), what, "Remove one of these `children`.")
        raise ProblemsFound(tuple(walk.problems))
    walk.check_beside(beside)
    hosts = tuple(_host(name, walk, beside) for name in walk.hosts)
    if not hosts and not walk.problems:
        walk.refuse(
            "empty-inventory",
            (),
            "The inventory has no hosts.",
            "List them under `all: children: <role>: hosts:`.",
        )
    if not walk.problems:
        _refuse_twice(hosts, walk)
    if walk.problems:
        raise ProblemsFound(tuple(walk.problems))
    members = {name: tuple(walk.groups.hosts_of(name)) for name in walk.groups.by_name}
    return Inventory(path=file, hosts=hosts, members=members)


def _host(name: str, walk: Walk, beside: VariableFiles) -> InventoryHost:
    found = walk.hosts[name]
    _refuse_name(name, found, walk)
    everybody, *groups = walk.groups.in_precedence(found.direct)
    variables = walk.groups.variables_of(found.direct)
    walk.groups.work.spend(1 + len(variables))
    for later in (
        _of_files(beside.groups.get(everybody, ())),
        _of_files(chain.from_iterable(beside.groups.get(group, ()) for group in groups)),
        found.own,
        _of_files(beside.hosts.get(name, ())),
    ):
        variables = merge_variables(variables, later)
    _refuse_connection(variables, name, walk)
    moe = variables.get("moe")
    own: Mapping[str, object] = moe if isinstance(moe, Mapping) else {}
    address = _text(HOST_KEYS, variables, name, walk) or name
    service = str(own.get("address") or address)
    for value in dict.fromkeys((address, service)):
        if not is_template(value) and not _ADDRESS.fullmatch(value):
            fix = "Write an IP address or a host name; templates are not filled in here."
            walk.refuse("wrong-value", (name,), f"{name}: {value!r} is no address.", fix)
    rdma, mtu = own.get("rdma_devices"), own.get("mtu")
    return InventoryHost(
        name=name,
        groups=tuple(group for group in walk.groups.of_host(found.direct) if group != "all"),
        address=address,
        service_address=service,
        port=_port(variables, name, walk),
        user=_text(USER_KEYS, variables, name, walk),
        private_key_file=_text(IDENTITY_KEYS, variables, name, walk),
        ssh_arguments=tuple(
            word for key in ARGUMENT_KEYS for word in _words(key, variables, name, walk)
        ),
        host_key=None if own.get("host_key") is None else str(own["host_key"]),
        interface=str(own.get("interface") or "eth0"),
        rdma_devices=tuple(str(device) for device in rdma) if isinstance(rdma, list) else (),
        instance_id=None if own.get("instance_id") is None else str(own["instance_id"]),
        image_mirror=None if own.get("image_mirror") is None else str(own["image_mirror"]),
        image_archive=None if own.get("image_archive") is None else str(own["image_archive"]),
        mtu=mtu if isinstance(mtu, int) else None,
        nvlink_domain=None if own.get("nvlink_domain") is None else str(own["nvlink_domain"]),
        interface_origin="inventory" if own.get("interface") else "placeholder",
    )


def _refuse_name(name: str, found: Found, walk: Walk) -> None:
    """Refuse names that are no names, and variables that Ansible would give to a group of the same name."""
    if not _NAME.fullmatch(name):
        what = f"{name!r} is no name of a host."
        walk.refuse("wrong-value", (name,), what, "Write letters, digits and `.`, `_`, `-`, `:`.")
    is_group = name in walk.groups.by_name or name in ALWAYS
    is_one = is_group and name not in ALWAYS and walk.groups.hosts_of(name) == [name]
    if is_group and not is_one and (found.own or all(group in ALWAYS for group in found.direct)):
        what = f"{name} is a host and a group, and Ansible mixes up the variables of both."
        walk.refuse("wrong-value", (name,), what, "Rename one of them.")


def _of_files(files: Iterable[VariableFile]) -> Variables:
    """What files say, the last of them first heard."""
    variables: Variables = {}
    for file in files:
        data = file.document.data
        variables = merge_variables(variables, data if isinstance(data, Mapping) else {})
    return variables


def _refuse_connection(variables: Mapping[str, object], name: str, walk: Walk) -> None:
    """Refuse hosts that Ansible would not reach over SSH: `fab` knows no other way."""
    kind = _text(("ansible_connection",), variables, name, walk)
    if kind not in SSH_CONNECTIONS:
        what = f"{name}: ansible_connection is {kind!r}, and `fab` reaches hosts over SSH alone."
        walk.refuse("wrong-value", (name,), what, "Take it out, or take the host out.")


def _port(variables: Mapping[str, object], name: str, walk: Walk) -> int:
    key, value = _first(PORT_KEYS, variables)
    if value is None:
        return 22
    number = int(value) if isinstance(value, str) and is_whole_number(value) else value
    if isinstance(number, int) and 0 < number < 65536:  # noqa: PLR2004 - the range of TCP ports
        return number
    what = f"{name}: {key} {value!r} is no port."
    walk.refuse("wrong-value", (name,), what, "Write a number from 1 to 65535.")
    return 22


def _first(keys: Sequence[str], variables: Mapping[str, object]) -> tuple[str, object]:
    """The first of these keys that has a value, and its value; None without one."""
    return next(
        ((key, variables[key]) for key in keys if variables.get(key) is not None), (keys[-1], None)
    )


def _text(
    keys: Sequence[str], variables: Mapping[str, object], name: str, walk: Walk
) -> str | None:
    key, value = _first(keys, variables)
    if isinstance(value, Encrypted):
        what = f"{name}: {key} is encrypted, and only Ansible can read it."
        walk.refuse("encrypted-value", (name,), what, f"Write {key} in plain text.")
        return None
    if is_template(value):
        what = f"{name}: {key} is a template ({value}), and only Ansible can fill it in."
        walk.refuse("template-value", (name,), what, f"Write the value of {key}.")
        return None
    return None if value is None else str(value)


def _words(key: str, variables: Mapping[str, object], name: str, walk: Walk) -> tuple[str, ...]:
    try:
        return tuple(shlex.split(_text((key,), variables, name, walk) or ""))
    except ValueError as error:
        what = f"{name}: {key} cannot be split into words: {error}."
        walk.refuse("wrong-value", (name,), what, "Close the quotation.")
        return ()


def _refuse_twice(hosts: tuple[InventoryHost, ...], walk: Walk) -> None:
    """Two names for one address would put two hosts' processes on one machine."""
    seen: dict[str, str] = {}
    for host in hosts:
        key = host.service_address
        if key in seen:
            what = f"{host.name} and {seen[key]} have the same address {host.service_address}."
            walk.refuse(
                "host-twice", (host.name,), what, "Give each host its own address, or remove one."
            )
        seen.setdefault(key, host.name)


def _without_stack_hint(problem: Problem) -> Problem:
    return Problem(
        rule=problem.rule,
        severity="error",
        field=problem.field,
        what=problem.what,
        fix=problem.fix
        if "stack" not in problem.fix
        else "Examples lie in ansible/inventory/examples/.",
        file=problem.file,
        line=problem.line,
    )
