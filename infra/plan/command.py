"""One process's argument vector and environment, joined from what its role shares and its own part."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from infra.catalog.flags import FlagCatalogue
from infra.catalog.schema import Mount
from infra.engines.command_line import spell_flag
from infra.engines.contract import Engine, Part
from infra.engines.settings import Origin, RoleSettings
from infra.inventory.hosts import HostFacts
from infra.spec.stack import RoleName


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

    def with_origins(
        self, common: Mapping[str, Origin], own: Mapping[str, Origin]
    ) -> Mapping[str, Origin]:
        """The common origins and a process's own, one map for all processes with the same ones."""
        key = (id(common), *own, *map(id, own.values()))
        if key not in self._joined:
            self._joined[key] = {**common, **own}
        return self._joined[key]


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
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


def spell_process(role: RoleCommand, own: Part, facts: HostFacts) -> Command:
    """The role's words, then the process's own; variables sorted, templates filled with the host's facts."""
    words, origins = _spell(own, role.catalogue)
    env = dict(role.env)
    for name, template in role.templates:
        value = fill_template(template, facts)
        if value is not None:
            env[name] = value
    env.update((variable.name, variable.value) for variable in own.env)
    return Command(
        argv=role.program + role.words + words,
        env=dict(sorted(env.items())),
        env_prepend=role.env_prepend,
        flag_origins=role.with_origins(role.flag_origins, origins),
        env_origins=role.with_origins(role.env_origins, {v.name: v.origin for v in own.env}),
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


def _spell(part: Part, catalogue: FlagCatalogue) -> tuple[tuple[str, ...], dict[str, Origin]]:
    words: list[str] = []
    origins: dict[str, Origin] = {}
    for flag in part.flags:
        spelt = spell_flag(flag.name, flag.value, catalogue)
        words.extend(spelt)
        origins[spelt[0]] = flag.origin
    return tuple(words), origins
