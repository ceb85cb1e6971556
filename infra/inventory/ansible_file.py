"""An ordinary Ansible YAML inventory read: groups, ranges, variables, and our keys under `moe:`."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from infra.errors import Problem, ProblemsFound
from infra.inventory.hosts import Inventory, InventoryHost
from infra.spec.load import nearest
from infra.spec.yaml_source import Document, read_yaml

MOE_KEYS = ("address", "interface", "rdma_devices", "host_key", "instance_id")
_RANGE = re.compile(r"\[(?P<first>[0-9]+|[a-z]):(?P<last>[0-9]+|[a-z])(:(?P<step>[0-9]+))?\]")
_ADDRESS = re.compile(r"^[A-Za-z0-9]([A-Za-z0-9.\-]*[A-Za-z0-9])?$|^[0-9a-fA-F:]+$")
_MAX_HOSTS = 20_000


@dataclass(slots=True)
class _Found:
    """A host while groups are walked: later and inner groups win, and its own variables over all groups'."""

    groups: list[str] = field(default_factory=list)
    variables: dict[str, object] = field(default_factory=dict)
    own: dict[str, object] = field(default_factory=dict)
    line: int | None = None


@dataclass(slots=True)
class _Walk:
    """Collects hosts over groups; problems carry the file's line."""

    file: str
    document: Document
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

    def group(
        self,
        name: str,
        body: object,
        where: tuple[str, ...],
        parents: tuple[str, ...],
        inherited: Mapping[str, object],
    ) -> None:
        """One group: its variables, hosts and children."""
        if body is None:
            return
        if not isinstance(body, Mapping):
            self.refuse(
                "wrong-type",
                where,
                f"Group {name} is not a map.",
                "Write `hosts:` or `children:` under it.",
            )
            return
        own = body.get("vars")
        variables = _merge_variables(inherited, own if isinstance(own, Mapping) else {})
        self._check_moe(own.get("moe") if isinstance(own, Mapping) else None, (*where, "vars"))
        chain = (*parents, name)
        hosts = body.get("hosts")
        for pattern, values in (hosts if isinstance(hosts, Mapping) else {}).items():
            here = (*where, "hosts", str(pattern))
            own_values = values if isinstance(values, Mapping) else {}
            self._check_moe(own_values.get("moe"), here)
            for host in expand_range(str(pattern)):
                if len(self.hosts) >= _MAX_HOSTS:
                    what = f"{pattern} expands to more than {_MAX_HOSTS} hosts."
                    self.refuse("too-many-hosts", here, what, "Write a smaller range.")
                    return
                found = self.hosts.setdefault(host, _Found())
                found.variables = _merge_variables(found.variables, variables)
                found.own = _merge_variables(found.own, own_values)
                found.groups.extend(group for group in chain if group not in found.groups)
                found.line = found.line or self.document.positions.get(here, (None, None))[0]
        children = body.get("children")
        for child, inner in (children if isinstance(children, Mapping) else {}).items():
            self.group(str(child), inner, (*where, "children", str(child)), chain, variables)

    def _check_moe(self, moe: object, where: tuple[str, ...]) -> None:
        if moe is None:
            return
        if not isinstance(moe, Mapping):
            self.refuse(
                "wrong-type",
                (*where, "moe"),
                "moe is not a map.",
                f"Its keys are {', '.join(MOE_KEYS)}.",
            )
            return
        for key in moe:
            if key not in MOE_KEYS:
                what = f"There is no key {key} under moe."
                self.refuse(
                    "unknown-key", (*where, "moe", str(key)), what, nearest(str(key), MOE_KEYS)
                )


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
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        what = f"The inventory cannot be read: {error}."
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
    document, problems = read_yaml(text, file)
    if problems:
        raise ProblemsFound(tuple(_without_stack_hint(problem) for problem in problems))
    walk = _Walk(file, document)
    if isinstance(document.data, Mapping):
        for name, body in document.data.items():
            walk.group(str(name), body, (str(name),), (), {})
    hosts = tuple(_host(name, found, walk) for name, found in walk.hosts.items())
    if not hosts and not walk.problems:
        walk.refuse(
            "empty-inventory",
            (),
            "The inventory has no hosts.",
            "List them under `all: children: <role>: hosts:`.",
        )
    _refuse_twice(hosts, walk)
    if walk.problems:
        raise ProblemsFound(tuple(walk.problems))
    return Inventory(path=file, hosts=hosts)


def expand_range(pattern: str) -> Iterator[str]:
    """`rack[01:03]` → rack01, rack02, rack03, as Ansible expands it; letters too."""
    match = _RANGE.search(pattern)
    if match is None:
        yield pattern
        return
    first, last, step = match["first"], match["last"], max(int(match["step"] or 1), 1)
    head, tail = pattern[: match.start()], pattern[match.end() :]
    if first.isdigit() and last.isdigit():
        middle = [
            str(n).zfill(len(first))
            for n in range(int(first), min(int(last), _MAX_HOSTS) + 1, step)
        ]
    else:
        middle = [chr(n) for n in range(ord(first), ord(last) + 1, step)]
    for part in middle:
        yield from expand_range(f"{head}{part}{tail}")


def _merge_variables(outer: Mapping[str, object], inner: Mapping[str, object]) -> dict[str, object]:
    """Inner variables win; `moe` maps merge key by key."""
    merged = {**outer, **inner}
    first, second = outer.get("moe"), inner.get("moe")
    if isinstance(first, Mapping) and isinstance(second, Mapping):
        merged["moe"] = {**first, **second}
    return merged


def _host(name: str, found: _Found, walk: _Walk) -> InventoryHost:
    variables = _merge_variables(found.variables, found.own)
    moe = variables.get("moe")
    own: Mapping[str, object] = moe if isinstance(moe, Mapping) else {}
    address = str(variables.get("ansible_host") or name)
    service = str(own.get("address") or address)
    for value in (address, service):
        if not _ADDRESS.match(value):
            walk.refuse(
                "wrong-value",
                (name,),
                f"{name}: {value!r} is no address.",
                "Write an IP address or a host name.",
            )
    rdma = own.get("rdma_devices")
    return InventoryHost(
        name=name,
        groups=tuple(group for group in found.groups if group != "all"),
        address=address,
        service_address=service,
        port=_port(variables.get("ansible_port"), name, walk),
        user=_text(variables.get("ansible_user")),
        private_key_file=_text(variables.get("ansible_ssh_private_key_file")),
        ssh_arguments=tuple(shlex.split(str(variables.get("ansible_ssh_common_args") or ""))),
        host_key=_text(own.get("host_key")),
        interface=str(own.get("interface") or "eth0"),
        rdma_devices=tuple(str(device) for device in rdma) if isinstance(rdma, list) else (),
        instance_id=_text(own.get("instance_id")),
    )


def _port(value: object, name: str, walk: _Walk) -> int:
    if value is None:
        return 22
    if isinstance(value, int) and 0 < value < 65536:  # noqa: PLR2004 - the range of TCP ports
        return value
    walk.refuse(
        "wrong-value",
        (name,),
        f"{name}: ansible_port {value!r} is no port.",
        "Write a number from 1 to 65535.",
    )
    return 22


def _text(value: object) -> str | None:
    return None if value is None else str(value)


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
