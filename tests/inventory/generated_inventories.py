"""Ansible YAML inventories from a seed: what people write, and the corners of YAML and of Ansible's precedence."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import TypeVar

T = TypeVar("T")

GROUPS = ("p", "q", "r", "B", "decode", "prefill", "unified", "ungrouped", "a-b", "z9")
HOSTS = (
    "a",
    "b",
    "c1",
    "node.example.com",
    "h[1:3]",
    "h[01:03]",
    "h[2:4]",
    "r[a:c]",
    "R[y:B]",
    "s[0:6:3]",
    "s[:2]",
    "m[1:2]-[a:b]",
    "w[08:11]",
    "x:2222",
    "x",
    "y[1:2]:2200",
    "192.0.2.7",
    "192.0.2.8:2022",
    "2001:db8::7",
    "under_score:22",
    "decode",
)
# Scalars of YAML 1.1 as people mean them, and as it reads them.
TEXTS = (
    "root",
    "'root'",
    "10",
    "'10'",
    "010",
    "0x1f",
    "0b11",
    "1_000",
    "1:30",
    "1e3",
    "1.0e+3",
    ".5",
    "yes",
    "No",
    "'on'",
    "~",
    "null",
    "''",
    "!unsafe '{{ x }}'",
    "!unsafe plain",
    "2026-11-26",
    "*user",
    '"tab\\tbed"',
    ">-\n          folded\n          text",
)
PORTS = ("22", "'23'", "024", "'025'", "0x16", "2_6", "1:0", "~", "*port")
ODD_PORTS = ("22.0", "' 22 '", "yes", "70000", "'²²'", "{}")
PRIORITIES = (
    *("10", "'10'", "-1", "'-1'", "1.9", "yes", "' 7 '", "0x10", "010", "'010'", "5", "'1_0'"),
)
ODD_PRIORITIES = ("'1.5'", "high", "~", "[]", ".nan")
ARGUMENTS = (
    "-o ConnectTimeout=5",
    "'-F /etc/ssh/rack -o \"ProxyCommand=nc %h %p\"'",
    "~",
    "''",
    "-J bastion",
)
USER = ("ansible_user", "ansible_ssh_user", "ansible_user", "ansible_user")
PORT = ("ansible_port", "ansible_ssh_port", "ansible_port")
KEY = ("ansible_ssh_private_key_file", "ansible_private_key_file")
WORDS = ("ansible_ssh_common_args", "ansible_ssh_extra_args", "ansible_ssh_args")
MOE = ("interface: eth{}", "rdma_devices: [mlx5_{}:1]", "nvlink_domain: rack{}", "mtu: 900{}")


class Inventory:
    """One inventory: files by path below its folder."""

    def __init__(self, seed: int) -> None:
        """Write it."""
        self._chance = random.Random(seed)  # noqa: S311 - the same for ever
        self._num_hosts = 0
        self._groups = self._chance.sample(GROUPS, self._chance.randint(1, 6))
        self.files: Mapping[str, str] = {"hosts.yml": self._file(), **dict(self._beside())}

    def _file(self) -> str:
        """The inventory itself; an anchor for each value that an alias may stand for."""
        head = (
            "all:\n  vars:\n    anchors:\n    - &user anchored\n    - &port 2022\n    - &common {"
            + (", ".join(self._variables(num=2, at_once=True)) + "}\n")
        )
        head += "".join(f"    {line}\n" for line in self._variables(is_group=True))
        lines = []
        if self._maybe(0.3):
            lines += ["  hosts:", *self._hosts("    ")]
        lines.append("  children:")
        for name in self._groups:
            lines += self._group(name, "    ", 0)
        for name in self._groups:  # and once more, outside of `all`
            if self._maybe(0.15):
                lines += self._group(name, "", 0)
        return head + "\n".join(lines) + "\n"

    def _group(self, name: str, indent: str, depth: int) -> list[str]:
        if self._maybe(0.1):
            return [f"{indent}{name}:{self._pick(('', ' ~', ' {}'))}"]
        inner = indent + "  "
        parts = []
        if self._maybe(0.6):
            parts.append([f"{inner}vars:", *self._map(inner + "  ", is_group=True)])
        if self._maybe(0.7):
            parts.append([f"{inner}hosts:", *self._hosts(inner + "  ")])
        if depth < 3 and self._maybe(0.4):
            children = [each for each in self._groups if each > name and each != "ungrouped"]
            if children:
                some = self._chance.sample(children, min(2, len(children)))
                nested = [self._group(each, inner + "  ", depth + 1) for each in some]
                parts.append([f"{inner}children:", *(line for each in nested for line in each)])
        self._chance.shuffle(parts)
        return [f"{indent}{name}:", *(line for part in parts for line in part)]

    def _hosts(self, indent: str) -> list[str]:
        if self._maybe(0.05):
            return []
        lines = []
        for pattern in self._chance.sample(HOSTS, self._chance.randint(1, 4)):
            shown = f'"{pattern}"'
            if self._maybe(0.5):
                lines.append(f"{indent}{shown}:{self._pick(('', ' ~', ' {}'))}")
                continue
            lines += [f"{indent}{shown}:", *self._map(indent + "  ", is_host="[" not in pattern)]
        return lines

    def _map(self, indent: str, *, is_group: bool = False, is_host: bool = False) -> list[str]:
        lines = self._variables(is_group=is_group)
        if is_host and self._maybe(0.4):
            self._num_hosts += 1
            lines.append(f"ansible_host: 198.51.100.{self._num_hosts}")
        if self._maybe(0.15):
            lines.append("<<: *common")
            self._chance.shuffle(lines)
        return [f"{indent}{line}" for line in lines or ["other: {a: 1}"]]

    def _variables(
        self, *, num: int = 3, is_group: bool = False, at_once: bool = False
    ) -> list[str]:
        """Lines `name: value`, none twice."""
        found = {}
        for _ in range(self._chance.randint(0, num)):
            names, values = self._pick(
                ((USER, TEXTS), (PORT, PORTS), (KEY, ("/keys/id", "~")), (WORDS, ARGUMENTS))
            )
            odd = ODD_PORTS if names is PORT and self._maybe(0.04) else values
            found[self._pick(names)] = self._pick(odd)
        if at_once:
            return [f"{name}: root" for name in found if name in USER]
        if is_group and self._maybe(0.5):
            found["ansible_group_priority"] = self._pick(
                ODD_PRIORITIES if self._maybe(0.03) else PRIORITIES
            )
        if self._maybe(0.3):
            entry = self._pick(MOE).format(self._chance.randint(0, 9))
            found["moe"] = f"{{{entry}}}" if self._maybe(0.9) else "~"
        return [f"{name}: {value}" for name, value in found.items()]

    def _beside(self) -> list[tuple[str, str]]:
        """Files of variables; of one name several, of which Ansible takes one."""
        found = []
        for folder, names in (("group_vars", ("all", *GROUPS)), ("host_vars", ("a", "h1", "x"))):
            for name in names:
                if not self._maybe(0.2):
                    continue
                ending = self._pick(("", ".yml", ".yaml", ".json", "/one.yml", "/two.yaml"))
                lines = [line for line in self._variables() if "*" not in line and ">" not in line]
                found.append((f"{folder}/{name}{ending}", "\n".join(["other: 1", *lines]) + "\n"))
        return found

    def _maybe(self, share: float) -> bool:
        return self._chance.random() < share

    def _pick(self, some: tuple[T, ...]) -> T:
        return self._chance.choice(some)
