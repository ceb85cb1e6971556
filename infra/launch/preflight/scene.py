"""What the checks judge: the plan, the catalogue, and every host as it was observed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from infra.catalog.load import Catalog
from infra.catalog.schema import Accelerator
from infra.engines.network_names import interfaces_named, rdma_devices_named
from infra.errors import InfraError
from infra.inventory.collective_baseline import RecordedCollective
from infra.inventory.facts_file import RecordedHost
from infra.inventory.hosts import InventoryHost
from infra.launch.preflight.evidence import Answer, FileText
from infra.launch.preflight.finding import Severity
from infra.launch.preflight.observed import ObservedHost, Told
from infra.launch.preflight.reach_report import Reached
from infra.plan.process import Plan, Process
from infra.render.release_record import RecordedProcess

Depth = Literal["light", "full"]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRun:
    """The collective of a group that spans hosts.

    Args:
        told: how it ended on each of its hosts; {} where it was not run.
        why_not: why it was not run, "" where it was.
        first: what to do first, for it to be run.
    """

    told: Mapping[str, Told]
    why_not: str = ""
    first: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """Facts beside what the plan wants.

    Args:
        depth: `light` is what `up` asks for: no tool of a vendor, no dial between hosts.
        hosts: by plan name; those that never answered are missing.
        away: hosts that did not answer, or not to the end, and why; they are asked no more.
        running: ids of the plan's processes whose units run already.
        ours: processes of an earlier release of the stack that run, by host: what they hold is free for us.
        reached: what became of the dials between hosts, None when there were none.
        pings: how pings between Ascend devices ended, by (host, device, "PEER ADDRESS").
        imex: the last look at the IMEX domain of each host that was polled.
        collectives: how a test over all devices of a host ended, by host, where one was run.
        group_runs: the collective of each group that spans hosts, by group, once it is known whether it is run.
        recorded: what the facts file says of each host.
        baselines: what the facts file says of groups that added up.
        declared: the inventory's entries, by the plan's names.
    """

    plan: Plan
    catalog: Catalog
    depth: Depth
    hosts: Mapping[str, ObservedHost]
    running: frozenset[str]
    recorded: Mapping[str, RecordedHost]
    ours: Mapping[str, tuple[RecordedProcess, ...]] = field(default_factory=dict)
    reached: Reached | None = None
    pings: Mapping[tuple[str, int, str], Told] = field(default_factory=dict)
    imex: Mapping[str, str] = field(default_factory=dict)
    collectives: Mapping[str, Told] = field(default_factory=dict)
    group_runs: Mapping[str, GroupRun] = field(default_factory=dict)
    declared: Mapping[str, InventoryHost] = field(default_factory=dict)
    baselines: tuple[RecordedCollective, ...] = ()
    away: Mapping[str, InfraError] = field(default_factory=dict)

    def accelerator(self, host: str) -> Accelerator:
        """What a host carries, from the catalogue."""
        return self.catalog.accelerator(self.plan.host(host).accelerator)

    @property
    def engine_hosts(self) -> tuple[str, ...]:
        """The hosts that run an engine, in plan order, without those that never answered."""
        return tuple(name for name in self._planned_for_engines() if not self.is_unseen(name))

    @property
    def spans_hosts(self) -> bool:
        """Whether engines on several hosts talk to each other."""
        return len(self._planned_for_engines()) > 1

    def hosts_of_vendor(self, vendor: str) -> tuple[str, ...]:
        """The engine hosts with accelerators of a vendor."""
        return tuple(h for h in self.engine_hosts if self.accelerator(h).vendor == vendor)

    def waiting(self, host: str) -> tuple[Process, ...]:
        """The processes of a host that do not run yet."""
        return tuple(p for p in self.plan.on_host(host) if p.id not in self.running)

    def interfaces(self, host: str) -> tuple[str, ...]:
        """The interfaces that the processes of a host are told to use."""
        named = [n for p in self.plan.on_host(host) for n in interfaces_named(p.env)]
        return tuple(dict.fromkeys(named))

    def rdma_devices(self, host: str) -> tuple[str, ...]:
        """The HCAs that the processes of a host are told to use, and the rails that the inventory declares."""
        named = [n for p in self.plan.on_host(host) for n in rdma_devices_named(p.env)]
        return tuple(dict.fromkeys((*named, *self.rails(host))))

    def rails(self, host: str) -> tuple[str, ...]:
        """The rails that the inventory declares of a host: what was found is no declaration."""
        entry = self.declared.get(host)
        return entry.rdma_devices if entry is not None and entry.rdma_origin == "inventory" else ()

    def declared_mtu(self, host: str) -> int | None:
        """The size of packets that the inventory declares, None without."""
        return self.declared[host].mtu if host in self.declared else None

    def groups(self) -> dict[str, tuple[str, ...]]:
        """The hosts of each engine group, in plan order, without those that never answered."""
        found: dict[str, list[str]] = {}
        for process in self.plan.processes:
            if process.kind == "engine" and not self.is_unseen(process.host):
                found.setdefault(process.group, []).append(process.host)
        return {group: tuple(dict.fromkeys(hosts)) for group, hosts in found.items()}

    def is_unseen(self, host: str) -> bool:
        """Whether nothing at all is known of a host, for it never answered."""
        return host in self.away and host not in self.hosts

    def _planned_for_engines(self) -> tuple[str, ...]:
        named = {process.host for process in self.plan.processes if process.kind == "engine"}
        return tuple(host.name for host in self.plan.hosts if host.name in named)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """What a check has against a host; see `Finding` for the words."""

    host: str
    severity: Severity
    observed: str
    fix: str
    wanted: str | None = None


def nothing(_scene: Scene, _host: str) -> tuple[Answer, ...]:
    """The evidence of a check that asks for none, or says itself what it could not read."""
    return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One check.

    Args:
        wanted: what it wants, for findings that do not say it themselves.
        find: what it has against hosts.
        applies: the hosts that it judges; those without a trouble pass.
        needs: the answers and files of a host that it rests on; one that cannot be read is a warning, never a pass.
        depth: `light` runs always, `full` only in `fab preflight`.
    """

    wanted: str
    find: Callable[[Scene], Iterator[Trouble]]
    applies: Callable[[Scene], tuple[str, ...]]
    needs: Callable[[Scene, str], Iterable[Answer | FileText]] = nothing
    depth: Depth = "light"


def everywhere(scene: Scene) -> tuple[str, ...]:
    """Every host of the plan that has answered."""
    return tuple(host.name for host in scene.plan.hosts if not scene.is_unseen(host.name))


def in_plan(scene: Scene) -> tuple[str, ...]:
    """Every host of the plan, whether it answers or not."""
    return tuple(host.name for host in scene.plan.hosts)


def on_engines(scene: Scene) -> tuple[str, ...]:
    """Every host that runs an engine."""
    return scene.engine_hosts


def on_peers(scene: Scene) -> tuple[str, ...]:
    """Every host of a plan with several."""
    return everywhere(scene) if len(scene.plan.hosts) > 1 else ()


def odd_ones(values: Mapping[str, str]) -> tuple[str, str, dict[str, str]]:
    """Which hosts differ from the most common value.

    Args:
        values: by host.

    Returns:
        The common value (of a tie the one seen first), the first host that has it, the others' values.
    """
    counts: dict[str, int] = {}
    for value in values.values():
        counts[value] = counts.get(value, 0) + 1
    usual = max(counts, key=lambda value: counts[value]) if counts else ""
    example = next((host for host, value in values.items() if value == usual), "")
    return usual, example, {host: value for host, value in values.items() if value != usual}


def unequal(values: Mapping[str, str], fix: str, severity: Severity = "block") -> Iterator[Trouble]:
    """A trouble for every host that differs from the most common value."""
    usual, example, odd = odd_ones(values)
    for host, value in odd.items():
        yield Trouble(
            host=host,
            severity=severity,
            observed=f"{value}, while {example} has {usual}",
            wanted="the same on every host",
            fix=fix,
        )


def drained_tuning(scene: Scene) -> str:
    """What to type for an item of the profile that needs a drained host."""
    stack = scene.plan.stack
    return f"`fab down --stack {stack}`, then `fab tune-hosts --stack {stack} --allow drain`"
