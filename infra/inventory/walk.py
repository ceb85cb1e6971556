"""An Ansible YAML inventory walked in the order of its file: groups, hosts and their own variables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import chain

from infra.errors import Problem
from infra.inventory.groups import Group, Groups, merge_variables
from infra.inventory.host_ranges import MAX_HOSTS, expand_range, split_port
from infra.inventory.values import is_template
from infra.inventory.variable_files import VariableFiles
from infra.spec.nearest import nearest
from infra.spec.yaml_source import Document

PRIORITY = "ansible_group_priority"
SECTIONS = ("vars", "hosts", "children")
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
# IPv6's least, and the most that an Ethernet card of any vendor takes.
MTU_LEAST, MTU_MOST = 1280, 9978


@dataclass(slots=True)
class Found:
    """A host while the file is walked: the groups that list it, and its own variables."""

    direct: list[str] = field(default_factory=list)
    own: dict[str, object] = field(default_factory=dict)


@dataclass(slots=True)
class Walk:
    """Collects hosts over groups; problems carry the file's line."""

    file: str
    document: Document
    groups: Groups
    hosts: dict[str, Found] = field(default_factory=dict)
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
        for section in body:  # in the order of the file, as in Ansible: what comes later wins
            for key, values in self._section(body, section, where).items():
                here = (*where, str(section), str(key))
                if section == "vars":
                    self._variable(group, str(key), values, here)
                elif section == "hosts":
                    self._pattern(group, str(key), values, here)
                else:
                    self.group(str(key), values, here, name)

    def _variable(self, group: Group, name: str, value: object, here: tuple[str, ...]) -> None:
        if name == PRIORITY:
            group.priority = self._priority(value, here)
        elif name == "moe":
            self._check_moe(value, here[:-1])
        group.variables = merge_variables(group.variables, {name: value})

    def _priority(self, value: object, where: tuple[str, ...]) -> int:
        """What Ansible makes of a group's priority: `'10'` is ten, 1.9 is one."""
        try:
            return int(value) if isinstance(value, int | float | str) else int(str(value))
        except (ValueError, OverflowError):
            self.refuse("wrong-value", where, f"{value!r} is no priority.", "Write a whole number.")
            return 1

    def _section(
        self, body: Mapping[object, object], key: object, where: tuple[str, ...]
    ) -> Mapping[str, object]:
        """A map of a group; one name alone is a map of that name, as in Ansible, which passes over other sections."""
        value = body.get(key) if key in SECTIONS else None
        if isinstance(value, str) and key != "vars":
            return {value: None}
        if value is None or isinstance(value, Mapping):
            return value or {}
        what = f"{key} of group {where[-1]} is not a map."
        self.refuse(
            "wrong-type", (*where, str(key)), what, "Write `name:` per line, without a dash."
        )
        return {}

    def _pattern(self, group: Group, pattern: str, values: object, here: tuple[str, ...]) -> None:
        """The hosts of one key under `hosts:`."""
        if values and not isinstance(values, Mapping):
            fix = "Write `NAME: VALUE` under it, such as `ansible_host: ADDRESS`."
            self.refuse("wrong-type", here, f"What stands behind {pattern} is no map.", fix)
            return
        own = dict(values) if isinstance(values, Mapping) else {}
        self._check_moe(own.get("moe"), here)
        names, port = split_port(pattern)
        # A port behind a name holds for a host that is new there, as in Ansible.
        first_own = own if port is None else {"ansible_port": port, **own}
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
            known = self.hosts.get(host)
            found = self.hosts.setdefault(host, Found())
            self.groups.work.spend(1 + len(found.direct))
            found.own = merge_variables(found.own, own if known else first_own)
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


def _is_list_of_text(value: object) -> bool:
    return value is None or (
        isinstance(value, list) and all(isinstance(item, str) for item in value)
    )
