"""A plan as rules see it: every process read by its engine, beside the facts of the catalogue."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

from infra.catalog.fields import FieldCatalogue
from infra.catalog.flags import FlagCatalogue
from infra.catalog.load import Catalog
from infra.catalog.read_releases import read_release
from infra.catalog.schema import Accelerator, Checkpoint, Release
from infra.catalog.versions import version_numbers
from infra.engines.command_line import as_int, as_map
from infra.engines.own_settings import OWN_FLAGS, OWN_VARIABLES
from infra.engines.reading import Reading
from infra.engines.registry import ENGINES
from infra.engines.routers import read_router
from infra.inventory.pods import OWN_ADDRESS
from infra.plan.process import Plan, Process
from infra.spec.stack import KUBERNETES, StackSpec

Severity = Literal["error", "warning"]

@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What a rule found.

    Args:
        field: dotted stack field that would mend it (`roles.decode.tensor_parallel`).
        what: the fact with its numbers.
        fix: what to write instead.
        process: the process it was seen on, None for the plan as a whole.
    """

    field: str
    what: str
    fix: str
    process: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One rule. `check` yields nothing for a plan that is right.

    Args:
        source: where it was read, file and version.
        releases: the engine releases that it holds for.
    """

    severity: Severity
    source: str
    check: Callable[[PlanView], Iterator[Finding]]
    releases: str = "all"


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What a plan does not hold, and some rules read.

    Args:
        spec: the stack that the plan was compiled from; None for a plan document or an imported recipe.
        silence_s: by process id, after how many seconds without an answer its pod is killed.
    """

    spec: StackSpec | None = None
    silence_s: Mapping[str, int] = field(default_factory=dict)


NOTHING_MORE = Surroundings()


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
        first: dict[object, Process] = {}
        for process in self.engines:
            flags = self.readings[process.id].flags
            # equal words are read once, so their values are one object
            told = tuple(id(value) for name, value in flags.items() if name not in OWN_FLAGS)
            env = tuple(pair for pair in process.env.items() if pair[0] not in OWN_VARIABLES)
            first.setdefault((process.role, told, env), process)
        return tuple(first.values())

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
    def family(self) -> Literal["vllm", "sglang"]:
        """Whose flags the engine speaks."""
        return "sglang" if self.plan.engine.name == "sglang" else "vllm"

    def flags(self, process: Process) -> Mapping[str, object]:
        """Parsed flags of a process."""
        return self.readings[process.id].flags

    def in_effect(self, process: Process, name: str) -> object:
        """What a flag of a process is, or the release's default where it is left out; None for what is off."""
        fact = self.catalog.flags(self.release.flags_catalogue).by_name.get(name)
        default = None if fact is None else fact.default
        value = self.flags(process).get(name)
        if isinstance(value, Mapping) and isinstance(default, Mapping):
            return {**default, **value}
        return (default if value is None else value) or None

    def size(self, process: Process, name: str, default: int = 1) -> int:
        """A whole-number flag of a process, no less than 1 where it counts from one."""
        value = as_int(self.flags(process).get(name), default)
        return max(value, 1) if default == 1 else value

    def kv_config(self, process: Process) -> Mapping[str, object]:
        """The map of vLLM's `--kv-transfer-config`."""
        return as_map(self.flags(process).get("kv-transfer-config"))

    @cached_property
    def fields(self) -> FieldCatalogue | None:
        """What the release's JSON flags may hold; None where it has none."""
        return self.catalog.fields(self.release.flags_catalogue)

    def answers_requests(self, process: Process) -> bool:
        """Whether a process takes requests for a model: none that is headless, or behind the first node of its server.

        vLLM reads no rank of a node where there is one node; SGLang takes any but 0 for a follower.
        """
        spans = self.family == "sglang" or self.size(process, "nnodes") > 1
        follows = spans and self.size(process, "node-rank", 0) > 0
        return not follows and not self.flags(process).get("headless")

    def ignores_overlap(self) -> bool:
        """Whether the engine puts dual-batch overlap back to off: vllm-ascend since 0.22 (platform.py@0.22.1rc1)."""
        return self.release.engine == "vllm-ascend" and self.version() >= (0, 22, 0)

    def accelerator(self, process: Process) -> Accelerator:
        """The accelerator that a process runs on."""
        return self.accelerators[process.host]

    def router_name(self, process: Process) -> str | None:
        """The catalogue's id of the router whose program a process starts with; None for one that is unknown."""
        return _router_name(process, self.catalog)

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
        else:
            readings[process.id] = engine.read(
                process.argv, process.env, num_devices=num_devices.get(process.host, 0), flags=flags
            )
    checkpoint = _checkpoint(plan, catalog)
    return PlanView(plan, catalog, readings, release, checkpoint, surroundings)


def _router_flags(process: Process, catalog: Catalog) -> FlagCatalogue | None:
    """The flag catalogue of the router whose program a process starts with."""
    name = _router_name(process, catalog)
    catalogue = catalog.router(name).flags_catalogue if name else None
    return catalog.flags(catalogue) if catalogue else None


def _router_name(process: Process, catalog: Catalog) -> str | None:
    for name in catalog.ids("routers"):
        program = catalog.router(name).program
        if process.argv[: len(program)] == program:
            return name
    return None


def _checkpoint(plan: Plan, catalog: Catalog) -> Checkpoint | None:
    return (
        catalog.checkpoint(plan.checkpoint)
        if plan.checkpoint in catalog.ids("checkpoints")
        else None
    )
