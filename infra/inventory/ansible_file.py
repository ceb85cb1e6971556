"""An ordinary Ansible YAML inventory read: groups, ranges, variables, and our keys under `moe:`."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

from infra.errors import Problem, ProblemsFound
from infra.inventory.groups import Group, Groups, Variables, merge_variables
from infra.inventory.host_ranges import MAX_HOSTS, expand_range, split_port
from infra.inventory.hosts import Inventory, InventoryHost
from infra.inventory.values import TAGS, Encrypted, is_template
from infra.inventory.variable_files import (
    NOTHING_BESIDE,
    VariableFile,
    VariableFiles,
    read_variable_files,
)
from infra.spec.bounded import is_whole_number
from infra.spec.nearest import nearest
from infra.spec.text_file import read_text
from infra.spec.work import TooMuchWorkError, Work
from infra.spec.yaml_source import Document, read_yaml, why_unreadable

# Names of one value: Ansible takes the first of them that is set.
HOST_KEYS = ("ansible_ssh_host", "ansible_host")
PORT_KEYS = ("ansible_ssh_port", "ansible_port")
USER_KEYS = ("ansible_ssh_user", "ansible_user")
IDENTITY_KEYS = ("ansible_ssh_private_key_file", "ansible_private_key_file")
# In the order in which Ansible gives them to ssh, which takes the first value of an option.
ARGUMENT_KEYS = ("ansible_ssh_args", "ansible_ssh_common_args", "ansible_ssh_extra_args")
SSH_CONNECTIONS = (None, "ssh", "smart", "paramiko", "ansible.builtin.ssh")
MOE_KEYS = (
    "address",
    "interface",
    "rdma_devices",
    "mtu",
    "nvlink_domain",
    "host_key",
    "instance_id",
    "image_mirror",
    "image_archive",
)
# For each host its groups and their variables; ten thousand hosts with ten of each take a fifth of it.
MAX_STEPS = 1_000_000
# IPv6's least, and the most that an Ethernet card of any vendor takes.
MTU_LEAST, MTU_MOST = 1280, 9978
_ADDRESS = re.compile(
    r"^[A-Za-z0-9]([A-Za-z0-9_.\-]*[A-Za-z0-9])?$|^[0-9a-fA-F]*:[0-9a-fA-F:.]*:[0-9a-fA-F:.]*$"
)


@dataclass(slots=True)
class _Found:
    """A host while the file is walked: the groups that list it, and its own variables."""

    direct: list[str] = field(default_factory=list)
    own: dict[str, object] = field(default_factory=dict)


@dataclass(slots=True)
class _Walk:
    """Collects hosts over groups; problems carry the file's line."""

    file: str
    document: Document
    groups: Groups
    hosts: dict[str, _Found] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)

    def refuse(self, rule: str, where: tuple[str, ...], what: str, fix: str) -> None:
        """Record a problem at a path of the file."""
        probe = where
        while probe and probe not in self.document.positions:
            probe = probe[:-1]
        line = self.document.positions.get(probe, (None, None))[0]
        self.problems.append(
            Problem(
                rule=rule,
                severity="error",
                field=".".join(where),
                what=what,
                fix=fix,
                file=self.file,
                line=line,
            )
        )

    def group(self, name: str, body: object, where: tuple[str, ...], parent: str | None) -> None:
        """One part of a group: its variables, hosts and children."""
        group = self.groups.add(name, parent)
        if body is None:
            return
        if not isinstance(body, Mapping):
            fix = "Write `hosts:` or `children:` under it."
            self.refuse("wrong-type", where, f"Group {name} is not a map.", fix)
            return
        own = self._map(body, "vars", where)
        self._check_moe(own.get("moe"), (*where, "vars"))
        group.variables = merge_variables(group.variables, own)
        for pattern, values in self._map(body, "hosts", where).items():
            self._pattern(group, str(pattern), values, (*where, "hosts", str(pattern)))
        for child, inner in self._map(body, "children", where).items():
            self.group(str(child), inner, (*where, "children", str(child)), name)

    def _map(
        self, body: Mapping[object, object], key: str, where: tuple[str, ...]
    ) -> Mapping[str, object]:
        """A map of a group; one name alone is a map of that name, as in Ansible."""
        value = body.get(key)
        if isinstance(value, str) and key != "vars":
            return {value: None}
        if value is None or isinstance(value, Mapping):
            return value or {}
        what = f"{key} of group {where[-1]} is not a map."
        self.refuse("wrong-type", (*where, key), what, "Write `name:` per line, without a dash.")
        return {}

    def _pattern(self, group: Group, pattern: str, values: object, here: tuple[str, ...]) -> None:
        """The hosts of one key under `hosts:`."""
        own = dict(values) if isinstance(values, Mapping) else {}
        self._check_moe(own.get("moe"), here)
        names, port = split_port(pattern)
        if port is not None:
            own.setdefault("ansible_port", port)
        hosts = expand_range(names)
        first = next(hosts, None)
        if first is None or "[" in first:
            fix = (
                "Write [first:last] or [first:last:step], two numbers of one width or two letters."
            )
            self.refuse("bad-range", here, f"{pattern} names no hosts.", fix)
            return
        for host in chain([first], hosts):
            if len(self.hosts) >= MAX_HOSTS:
                what = f"{pattern} expands to more than {MAX_HOSTS} hosts."
                self.refuse("too-many-hosts", here, what, "Write a smaller range.")
                return
            found = self.hosts.setdefault(host, _Found())
            self.groups.work.spend(1 + len(found.direct))
            found.own = merge_variables(found.own, own)
            if group.name not in found.direct:
                found.direct.append(group.name)
                group.hosts.append(host)

    def check_beside(self, beside: VariableFiles) -> None:
        """Our keys in the files beside the inventory."""
        own, document = self.file, self.document
        for files in (*beside.groups.values(), *beside.hosts.values()):
            for file in files:
                self.file, self.document = file.file, file.document
                data = file.document.data
                self._check_moe(data.get("moe") if isinstance(data, Mapping) else None, ())
        self.file, self.document = own, document

    def _check_moe(self, moe: object, where: tuple[str, ...]) -> None:
        if moe is None:
            return
        if not isinstance(moe, Mapping):
            fix = f"Its keys are {', '.join(MOE_KEYS)}."
            self.refuse("wrong-type", (*where, "moe"), "moe is not a map.", fix)
            return
        for key, value in moe.items():
            here = (*where, "moe", str(key))
            if key not in MOE_KEYS:
                what = f"There is no key {key} under moe."
                self.refuse("unknown-key", here, what, nearest(str(key), MOE_KEYS))
            elif key == "rdma_devices" and not _is_list_of_text(value):
                self.refuse(
                    "wrong-type", here, f"{value!r} is not a list of names.", "Write [mlx5_0:1]."
                )
            elif key == "mtu":
                self._check_mtu(value, here)
            elif any(is_template(one) for one in (value if isinstance(value, list) else [value])):
                what = f"{value!r} is a template, and only Ansible can fill it in."
                self.refuse("template-value", here, what, "Write the value.")
            elif key != "rdma_devices" and not isinstance(value, str | None):
                self.refuse("wrong-type", here, f"{value!r} is not text.", "Write it in quotes.")

    def _check_mtu(self, value: object, where: tuple[str, ...]) -> None:
        is_size = isinstance(value, int) and not isinstance(value, bool)
        if value is not None and not (is_size and MTU_LEAST <= int(str(value)) <= MTU_MOST):
            what = f"{value!r} is no MTU."
            fix = f"Write a number of bytes from {MTU_LEAST} to {MTU_MOST}, such as 9000."
            self.refuse("wrong-value", where, what, fix)


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
        return _inventory(_Walk(file, document, Groups(Work(MAX_STEPS))), beside)
    except TooMuchWorkError as error:
        what = f"The inventory is not read: {error.why}."
        fix = "Write fewer groups of groups, and smaller ranges of hosts."
        problem = Problem(
            rule="too-many-hosts", severity="error", field="", what=what, fix=fix, file=file
        )
        raise ProblemsFound((problem,)) from error


def _inventory(walk: _Walk, beside: VariableFiles) -> Inventory:
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


def _host(name: str, walk: _Walk, beside: VariableFiles) -> InventoryHost:
    found = walk.hosts[name]
    variables = walk.groups.variables_of(found.direct)
    walk.groups.work.spend(1 + len(variables))
    for group in walk.groups.in_precedence(found.direct) if beside.groups else ():
        variables = _with_files(variables, beside.groups.get(group, ()))
    variables = _with_files(merge_variables(variables, found.own), beside.hosts.get(name, ()))
    _refuse_connection(variables, name, walk)
    moe = variables.get("moe")
    own: Mapping[str, object] = moe if isinstance(moe, Mapping) else {}
    address = _text(HOST_KEYS, variables, name, walk) or name
    service = str(own.get("address") or address)
    for value in dict.fromkeys((address, service)):
        if not is_template(value) and not _ADDRESS.match(value):
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


def _with_files(variables: Variables, files: Iterable[VariableFile]) -> Variables:
    """Variables, and those of files that win over them."""
    for file in files:
        data = file.document.data
        variables = merge_variables(variables, data if isinstance(data, Mapping) else {})
    return variables


def _refuse_connection(variables: Mapping[str, object], name: str, walk: _Walk) -> None:
    """Refuse hosts that Ansible would not reach over SSH: `fab` knows no other way."""
    kind = _text(("ansible_connection",), variables, name, walk)
    if kind not in SSH_CONNECTIONS:
        what = f"{name}: ansible_connection is {kind!r}, and `fab` reaches hosts over SSH alone."
        walk.refuse("wrong-value", (name,), what, "Take it out, or take the host out.")


def _port(variables: Mapping[str, object], name: str, walk: _Walk) -> int:
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
    keys: Sequence[str], variables: Mapping[str, object], name: str, walk: _Walk
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


def _words(key: str, variables: Mapping[str, object], name: str, walk: _Walk) -> tuple[str, ...]:
    try:
        return tuple(shlex.split(_text((key,), variables, name, walk) or ""))
    except ValueError as error:
        what = f"{name}: {key} cannot be split into words: {error}."
        walk.refuse("wrong-value", (name,), what, "Close the quotation.")
        return ()


def _is_list_of_text(value: object) -> bool:
    return value is None or (
        isinstance(value, list) and all(isinstance(item, str) for item in value)
    )


def _refuse_twice(hosts: tuple[InventoryHost, ...], walk: _Walk) -> None:
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
