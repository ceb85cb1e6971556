"""One process's argument vector and environment: what its role shares, its own part, what its group shares."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from infra.catalog.flags import FlagCatalogue
from infra.catalog.schema import Mount
from infra.engines.command_line import spell_flag
from infra.engines.contract import Engine, Part
from infra.engines.settings import Origin, RoleSettings
from infra.inventory.hosts import HostFacts
from infra.spec.stack import RoleName

# What a variable's value may hold of the host that its process runs on.
PLACEHOLDERS = ("address", "interface", "rdma_devices")
_PLACEHOLDER = re.compile(r"\{([a-z_]+)\}")


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleCommand:
    """What is spelt once per role. `templates` are variables that wait for a host's facts."""

    catalogue: FlagCatalogue
    program: tuple[str, ...]
    words: tuple[str, ...]
    flag_origins: Mapping[str, Origin]
    env: Mapping[str, str]
    templates: tuple[tuple[str, str], ...]
    env_prepend: Mapping[str, str]
    env_origins: Mapping[str, Origin]
    mounts: tuple[Mount, ...]
    _joined: dict[tuple[object, ...], Mapping[str, Origin]] = field(default_factory=dict)
    _filled: dict[HostFacts, Mapping[str, str]] = field(default_factory=dict)

    def with_origins(
        self, common: Mapping[str, Origin], own: Mapping[str, Origin], group: Mapping[str, Origin]
    ) -> Mapping[str, Origin]:
        """The common origins, a process's own and its group's, one map for all processes with the same ones."""
        key = (id(common), *own, *map(id, own.values()), *group, *map(id, group.values()))
        if key not in self._joined:
            self._joined[key] = {**common, **own, **group}
        return self._joined[key]

    def env_on(self, facts: HostFacts) -> Mapping[str, str]:
        """The role's variables on a host, sorted; templates filled once for all of its processes."""
        if facts not in self._filled:
            values = {name: fill_template(template, facts) for name, template in self.templates}
            told = {name: value for name, value in values.items() if value is not None}
            self._filled[facts] = dict(sorted({**self.env, **told}.items()))
        return self._filled[facts]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupCommand:
    """What is spelt once per group, beside what its role shares."""

    role: RoleCommand
    words: tuple[str, ...]
    flag_origins: Mapping[str, Origin]
    env: Mapping[str, str]
    env_origins: Mapping[str, Origin]


class Command(NamedTuple):
    """A process's whole command. Origins are by argv word (`--port`) and by variable."""

    argv: tuple[str, ...]
    env: Mapping[str, str]
    env_prepend: Mapping[str, str]
    flag_origins: Mapping[str, Origin]
    env_origins: Mapping[str, Origin]


def spell_role(
    engine: Engine,
    settings: RoleSettings,
    peers: Mapping[RoleName, RoleSettings],
    catalogue: FlagCatalogue,
) -> RoleCommand:
    """The common part of a role, spelt for the release of that catalogue."""
    part = engine.common_part(settings, peers)
    words, origins = _spell(part, catalogue)
    return RoleCommand(
        catalogue=catalogue,
        program=engine.program(settings),
        words=words,
        flag_origins=origins,
        env={v.name: v.value for v in part.env if "{" not in v.value},
        templates=tuple((v.name, v.value) for v in part.env if "{" in v.value),
        env_prepend={v.name: v.value for v in part.env_prepend},
        env_origins={v.name: v.origin for v in (*part.env, *part.env_prepend)},
        mounts=tuple({mount.target: mount for mount in part.mounts}.values()),
    )


def spell_group(role: RoleCommand, part: Part) -> GroupCommand:
    """The part of a group, spelt for the release of its role."""
    words, origins = _spell(part, role.catalogue)
    return GroupCommand(
        role=role,
        words=words,
        flag_origins=origins,
        env={v.name: v.value for v in part.env},
        env_origins={v.name: v.origin for v in part.env},
    )


def spell_process(group: GroupCommand, own: Part, facts: HostFacts) -> Command:
    """The role's words, the process's own, its group's; variables sorted, templates filled with the host's facts."""
    role = group.role
    words, origins = _spell(own, role.catalogue)
    env = {**role.env_on(facts), **group.env}
    env.update((variable.name, variable.value) for variable in own.env)
    env_origins = {variable.name: variable.origin for variable in own.env}
    return Command(
        argv=role.program + role.words + words + group.words,
        env=dict(sorted(env.items())),
        env_prepend=role.env_prepend,
        flag_origins=role.with_origins(role.flag_origins, origins, group.flag_origins),
        env_origins=role.with_origins(role.env_origins, env_origins, group.env_origins),
    )


def fill_template(template: str, facts: HostFacts) -> str | None:
    """A value with `{address}`, `{interface}`, `{rdma_devices}` replaced; None when one is not declared."""
    if "{rdma_devices}" in template and not facts.rdma_devices:
        return None
    return (
        template.replace("{address}", facts.address)
        .replace("{interface}", facts.interface)
        .replace("{rdma_devices}", ",".join(facts.rdma_devices))
    )


def unknown_placeholders(template: str) -> tuple[str, ...]:
    """The words in braces that stand for nothing."""
    return tuple(word for word in _PLACEHOLDER.findall(template) if word not in PLACEHOLDERS)


def _spell(part: Part, catalogue: FlagCatalogue) -> tuple[tuple[str, ...], dict[str, Origin]]:
    words: list[str] = []
    origins: dict[str, Origin] = {}
    for flag in part.flags:
        spelt = spell_flag(flag.name, flag.value, catalogue)
        words.extend(spelt)
        origins[spelt[0]] = flag.origin
    return tuple(words), origins
