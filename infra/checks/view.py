"""A plan as rules see it: every process read by its engine, beside the facts of the catalogue."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, NamedTuple

from infra.catalog.fields import FieldCatalogue
from infra.catalog.flags import EnvironmentNames, FlagCatalogue, FlagFact
from infra.catalog.load import Catalog
from infra.catalog.read_releases import read_release
from infra.catalog.schema import Accelerator, Checkpoint, Family, Release
from infra.catalog.versions import version_numbers
from infra.checks.kinds import Kinds, find_kinds, find_variants
from infra.checks.rule_releases import EVERY, Releases, is_among
from infra.engines.command_line import as_int, as_map
from infra.engines.reading import Reading
from infra.engines.registry import ENGINES
from infra.engines.routers import read_router
from infra.inventory.pods import OWN_ADDRESS
from infra.plan.process import Plan, Process
from infra.spec.stack import KUBERNETES, StackSpec

Severity = Literal["error", "warning"]


class Finding(NamedTuple):
    """What a rule found.

    Args:
        field: dotted stack field that would mend it (`roles.decode.tensor_parallel`).
        what: the fact with its numbers.
        fix: what to write instead.
        process: the process it was seen on, None for the plan as a whole.
        holds_anywhere: whether it is so whatever the addresses of hosts are, and whatever else of a group there is.
    """

    field: str
    what: str
    fix: str
    process: str | None = None
    holds_anywhere: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One rule.

    Args:
        source: where it was read, file and version.
        check: yields nothing for a plan that is right. It asks for no release that the whole rule depends on:
            `findings` has done so.
        releases: the engine releases that it holds for.
        parts: releases that a part of it holds for, by what the part is about; `check` asks the plan for these.
    """

    severity: Severity
    source: str
    check: Callable[[PlanView], Iterator[Finding]]
    releases: Releases = EVERY
    parts: Mapping[str, Releases] = field(default_factory=dict)

    def findings(self, view: PlanView) -> Iterator[Finding]:
        """What it finds in a plan; nothing where it does not hold for the plan's release."""
        if view.is_among(self.releases):
            yield from self.check(view)


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretFile:
    """A file of the operator's machine that a secret is read from.

    Args:
        flaw: why nothing can be read, or what is read is no such secret, as the end of a sentence.
        fix: how to mend the second, "" for the first.
        is_shared: whether other users of that machine may read it.
    """

    path: str
    flaw: str | None
    fix: str
    is_shared: bool


class Share(NamedTuple):
    """A container that asks for a number of devices, and the processes that run in it."""

    num_devices: int
    processes: tuple[str, ...]


class Nodes(NamedTuple):
    """Something of an imported file that asks for hosts.

    Args:
        by: what asks, in the file's words.
        used: hosts on which an engine starts; None where the engines' own flags say.
        devices: of each host that it asks for, None where it does not say.
    """

    by: str
    asked: int
    used: int | None
    devices: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What a plan does not hold, and some rules read.

    Args:
        spec: the stack that the plan was compiled from; None for a plan document or an imported recipe.
        silence_s: by process id, after how many seconds without an answer its pod is killed.
        secret_files: by name of the secret, where the operator's machine was looked at.
        secrets_elsewhere: names of secrets whose files lie elsewhere than beside or below the plan's document.
        named_release: the engine's, as an imported recipe names it; it may be none that the catalogue has read.
        partly_open: ids of processes that may be given more than is known: a file leaves words of theirs open.
        shared_bytes: by process id, what its container's shared memory holds, where that is bounded.
        shares: containers that ask for a number of devices.
        nodes: what asks for a number of hosts.
        told_hosts: hosts whose address is known; None for all.
        ports_open: ids of processes whose ports depend on what a file leaves open.
        releases: by process id, what its container's image names.
        bridged: ids of processes whose containers have a network that ends at their host.
        without_names: ids of processes that do not know a cluster's names.
        leads_in_turn: ids of processes that others are created behind, when they answer that they are ready.
        own_networks: ids of processes whose containers have ports of their own, which a host may show as others.
    """

    spec: StackSpec | None = None
    silence_s: Mapping[str, int] = field(default_factory=dict)
    secret_files: Mapping[str, SecretFile] = field(default_factory=dict)
    secrets_elsewhere: frozenset[str] = frozenset()
    named_release: str | None = None
    partly_open: frozenset[str] = frozenset()
    shared_bytes: Mapping[str, int] = field(default_factory=dict)
    shares: tuple[Share, ...] = ()
    nodes: tuple[Nodes, ...] = ()
    told_hosts: frozenset[str] | None = None
    ports_open: frozenset[str] = frozenset()
    own_networks: frozenset[str] = frozenset()
    releases: Mapping[str, str] = field(default_factory=dict)
    bridged: frozenset[str] = frozenset()
    without_names: frozenset[str] = frozenset()
    leads_in_turn: frozenset[str] = frozenset()


NOTHING_MORE = Surroundings()


Place = tuple[str, int]
"""An address and a port."""


class Claim(NamedTuple):
    """A process listens somewhere, for what `name` says."""

    place: Place
    name: str
    process: Process


@dataclass(frozen=True)
class PlanView:
    """A plan, its readings, and the catalogue entries it names."""

    plan: Plan
    catalog: Catalog
    readings: Mapping[str, Reading]
    release: Release
    checkpoint: Checkpoint | None
    surroundings: Surroundings = NOTHING_MORE

    @cached_property
    def engines(self) -> tuple[Process, ...]:
        """Engine processes in plan order."""
        return tuple(process for process in self.plan.processes if process.kind == "engine")

    @cached_property
    def routers(self) -> tuple[Process, ...]:
        """Router processes."""
        return tuple(process for process in self.plan.processes if process.kind == "router")

    @cached_property
    def groups(self) -> Mapping[str, tuple[Process, ...]]:
        """Engine processes by group, in plan order."""
        found: dict[str, list[Process]] = {}
        for process in self.engines:
            found.setdefault(process.group, []).append(process)
        return {name: tuple(members) for name, members in found.items()}

    @cached_property
    def leaders(self) -> tuple[Process, ...]:
        """The first process of each role: what only depends on the role is judged on it."""
        first: dict[str, Process] = {}
        for process in self.engines:
            first.setdefault(process.role, process)
        return tuple(first.values())

    @cached_property
    def variants(self) -> tuple[Process, ...]:
        """One engine process of each set that differ in rank, address, device or port alone.

        What depends on nothing else is judged on these: of 10,000 ranks there are a handful.
        """
        return find_variants(self.kinds.spelt, self.readings)

    @cached_property
    def kinds(self) -> Kinds:
        """Engine processes that are alike but for what is each one's own."""
        return find_kinds(self.engines, self.readings)

    def where(self, test: Callable[[Process], object]) -> Iterator[Process]:
        """Engine processes that a test picks, in plan order.

        Args:
            test: asked of one process of each kind, so about nothing that is a process's own: no rank, address,
                device, port or host.
        """
        chosen = {first.id for first in self.kinds.first if test(first)}
        if chosen:
            yield from (each for each in self.engines if self.kinds.of[each.id].id in chosen)

    def are_alike(self, processes: Sequence[Process]) -> bool:
        """Whether processes are all of one kind."""
        return len({self.kinds.of[process.id].id for process in processes}) == 1

    @cached_property
    def claims(self) -> tuple[Claim, ...]:
        """Every (address, port) that a process listens on, by process in plan order."""
        return tuple(
            Claim((self.addresses[process.host], port), bind.name, process)
            for process in self.plan.processes
            for bind in self.readings[process.id].binds
            for port in range(bind.port, bind.port + bind.count)
        )

    @cached_property
    def http_claims(self) -> tuple[Claim, ...]:
        """Where engines serve HTTP."""
        return tuple(
            claim
            for claim in self.claims
            if claim.name == "http" and claim.process.kind == "engine"
        )

    @cached_property
    def claimed(self) -> frozenset[Place]:
        """Where anybody listens."""
        return frozenset(claim.place for claim in self.claims)

    @cached_property
    def accelerators(self) -> Mapping[str, Accelerator]:
        """The accelerator of each host."""
        return {host.name: self.catalog.accelerator(host.accelerator) for host in self.plan.hosts}

    @cached_property
    def addresses(self) -> Mapping[str, str]:
        """The address of each host."""
        return {host.name: host.address for host in self.plan.hosts}

    def is_own_address(self, process: Process, value: str) -> bool:
        """Whether a process that binds `value` listens where its host is."""
        return value == self.addresses[process.host] or (
            self.plan.platform in KUBERNETES and value == OWN_ADDRESS
        )

    @property
    def family(self) -> Family:
        """Whose flags the engine speaks."""
        return self.release.family

    def is_among(self, releases: Releases) -> bool:
        """Whether the plan's release is one that a rule, or a part of it, holds for."""
        return is_among(releases, self.release.engine, self.release.version)

    def flags(self, process: Process) -> Mapping[str, object]:
        """Parsed flags of a process."""
        return self.readings[process.id].flags

    @cached_property
    def _known_flags(self) -> Mapping[str, FlagFact]:
        """The release's own flags, by name."""
        return self.catalog.flags(self.release.flags_catalogue).by_name

    def in_effect(self, process: Process, name: str) -> object:
        """What a flag of a process is, or the release's default where it is left out; None for what is off."""
        fact = self._known_flags.get(name)
        default = None if fact is None else fact.default
        value = self.flags(process).get(name)
        if isinstance(value, Mapping) and isinstance(default, Mapping):
            return {**default, **value}
        return (default if value is None else value) or None

    def size(self, process: Process, name: str, default: int = 1) -> int:
        """A whole-number flag of a process, no less than 1 where it counts from one."""
        value = as_int(self.flags(process).get(name), default)
        return max(value, 1) if default == 1 else value

    def attention_tensor(self, process: Process) -> int:
        """Over how many devices attention is split: SGLang's attention ranks have a copy each."""
        tensor = self.size(process, "tensor-parallel-size")
        if not self.flags(process).get("enable-dp-attention"):
            return tensor
        return max(tensor // self.size(process, "data-parallel-size"), 1)

    def kv_config(self, process: Process) -> Mapping[str, object]:
        """The map of vLLM's `--kv-transfer-config`."""
        return as_map(self.flags(process).get("kv-transfer-config"))

    def kv_extra(self, process: Process) -> Mapping[str, object]:
        """What vLLM's `--kv-transfer-config` tells its connector."""
        return as_map(self.kv_config(process).get("kv_connector_extra_config"))

    def kv_connector(self, process: Process) -> object:
        """The connector of vLLM's `--kv-transfer-config`, None without one."""
        return self.kv_config(process).get("kv_connector")

    @cached_property
    def fields(self) -> FieldCatalogue | None:
        """What the release's JSON flags may hold; None where it has none."""
        return self.catalog.fields(self.release.flags_catalogue)

    @cached_property
    def environment(self) -> EnvironmentNames:
        """The variables that the release reads."""
        return self.catalog.environment_names(self.release.envs_catalogues)

    def answers_requests(self, process: Process) -> bool:
        """Whether a process is an engine's that takes requests for a model."""
        return process.kind == "engine" and self.readings[process.id].takes_requests

    def accelerator(self, process: Process) -> Accelerator:
        """The accelerator that a process runs on."""
        return self.accelerators[process.host]

    def router_name(self, process: Process) -> str | None:
        """The catalogue's id of the router whose program a process starts with; None for one that is unknown."""
        router = self.catalog.router_of(process.argv)
        return router.id if router else None

    def draft(self, process: Process) -> Checkpoint | None:
        """The draft model of a process, by its folder or repository; None without one, or for one that is unknown."""
        flags = self.flags(process)
        config = as_map(flags.get("speculative-config"))
        named = str(config.get("model") or flags.get("speculative-draft-model-path") or "")
        parts = named.split("/")
        for name in self.catalog.ids("checkpoints") if named else ():
            if name in parts or self.catalog.checkpoint(name).repository == named:
                return self.catalog.checkpoint(name)
        return None

    def version(self) -> tuple[int, int, int]:
        """The release that decides vLLM's or SGLang's behaviour, as numbers."""
        return version_numbers(self.release.base_version or self.release.version)


def view_plan(plan: Plan, catalog: Catalog, surroundings: Surroundings = NOTHING_MORE) -> PlanView:
    """Read every process of a plan.

    Raises:
        UnknownIdError: the plan names an engine release, accelerator or checkpoint that the catalogue lacks.
    """
    release = read_release(catalog, plan.engine.name, plan.engine.version)
    flags = catalog.flags(release.flags_catalogue)
    engine = ENGINES[release.engine]
    num_devices = {host.name: host.num_devices for host in plan.hosts}
    readings: dict[str, Reading] = {}
    for process in plan.processes:
        if process.kind == "router":
            readings[process.id] = read_router(process.argv, _router_flags(process, catalog))
        elif process.kind == "edge":
            # its words name a file alone, which is made of the plan
            readings[process.id] = Reading(
                flags={}, unknown=(), http_port=process.binds[0].port, binds=process.binds, dials=()
            )
        else:
            readings[process.id] = engine.read(
                process.argv, process.env, num_devices=num_devices.get(process.host, 0), flags=flags
            )
    checkpoint = _checkpoint(plan, catalog)
    return PlanView(plan, catalog, readings, release, checkpoint, surroundings)


def _router_flags(process: Process, catalog: Catalog) -> FlagCatalogue | None:
    """The flag catalogue of the router whose program a process starts with."""
    router = catalog.router_of(process.argv)
    catalogue = router.flags_catalogue if router else None
    return catalog.flags(catalogue) if catalogue else None


def _checkpoint(plan: Plan, catalog: Catalog) -> Checkpoint | None:
    return (
        catalog.checkpoint(plan.checkpoint)
        if plan.checkpoint in catalog.ids("checkpoints")
        else None
    )
