"""The processes of a foreign file put on hosts and into groups: a plan as `fab plan` would print it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from infra.catalog.load import Catalog
from infra.engines.capabilities import CAPABILITIES
from infra.engines.reading import Reading
from infra.engines.registry import ENGINES
from infra.plan.foreign.assumed import Facts
from infra.plan.foreign.mounts import plan_mounts
from infra.plan.foreign.places import (
    Draft,
    Team,
    address_hosts,
    gather_teams,
    local_devices,
    meeting_place,
    name_hosts,
    node_of,
    put_on_hosts,
)
from infra.plan.foreign.seats import ENOUGH_DEVICES, Seat
from infra.plan.foreign.source import Recipe
from infra.plan.process import Connect, Plan, PlanEngine, PlanHost, Process
from infra.spec.stack import Runtime

_ROLES = ("unified", "prefill", "decode", "router")


@dataclass(frozen=True, slots=True, kw_only=True)
class Assembled:
    """A plan and where its processes come from.

    Args:
        seats: by process id.
        incomplete: groups of which the file holds a part only.
        told_hosts: those whose address the file says.
    """

    plan: Plan
    seats: Mapping[str, Seat]
    incomplete: frozenset[str]
    told_hosts: frozenset[str]

    @property
    def knows_addresses(self) -> bool:
        """Whether the file says where every host is."""
        return all(host.name in self.told_hosts for host in self.plan.hosts)


def assemble(
    name: str, recipe: Recipe, seats: Sequence[Seat], facts: Facts, catalog: Catalog
) -> Assembled:
    """The plan of a foreign file's processes, before the gate: without its hash.

    Args:
        name: the plan's stack name.
        recipe: the file.
        seats: at least one engine among them.
        facts: release, accelerator, checkpoint.
        catalog: what is known.
    """
    engines = [seat for seat in seats if seat.kind == "engine"]
    routers = [seat for seat in seats if seat.kind == "router"]
    drafts = put_on_hosts(engines, routers)
    teams = gather_teams(engines)
    names = name_hosts(drafts)
    addresses, told_hosts = address_hosts(drafts, names, recipe)
    place = {id(seat): draft.key for draft in drafts for seat in draft.seats}
    plan_hosts = tuple(
        replace(
            _plan_host(draft, names, addresses, (facts, recipe)),
            networks=_networks(draft, catalog),
        )
        for draft in drafts
    )
    ordered = [
        (seat, f"{team.role}/{index}", index)
        for role in _ROLES[:-1]
        for index, team in enumerate(team for team in teams if team.role == role)
        for seat in sorted(team.seats, key=_order)
    ] + [(seat, "router/0", 0) for seat in routers]
    num_devices = {host.name: host.num_devices for host in plan_hosts}
    found: dict[str, Seat] = {}
    rows: list[tuple[Process, Reading]] = []
    counts: dict[str, int] = {}
    for seat, group, replica in ordered:
        host = names[place[id(seat)]]
        index = counts.get(host, 0)
        counts[host] = index + 1
        process_id = (
            f"{host}/{index}" if seat.kind == "engine" else f"router/{len(found) - len(engines)}"
        )
        reading = _read(seat, facts, catalog, num_devices[host])
        found[process_id] = seat
        rows.append(
            (_process(process_id, seat, reading, (group, replica, host, addresses[host])), reading)
        )
    plan = _plan(name, plan_hosts, _connected(rows, addresses), facts, engines)
    incomplete = {
        f"{t.role}/{i}"
        for r in _ROLES
        for i, t in enumerate(t for t in teams if t.role == r)
        if not t.is_whole and not _is_whole_set(t, addresses, place, names)
    }
    return Assembled(
        plan=plan, seats=found, incomplete=frozenset(incomplete), told_hosts=told_hosts
    )


def _is_whole_set(
    team: Team, addresses: Mapping[str, str], place: Mapping[int, str], names: Mapping[str, str]
) -> bool:
    """Whether a group is a set of pods that meet at one of their own: its controller tells others of no such place."""
    hosts = {names[place[id(seat)]] for seat in team.seats}
    told = {where[0] for seat in team.seats if (where := meeting_place(seat.reading)) is not None}
    in_pods = all(
        seat.launch.container is not None and seat.launch.container.runtime == "kubernetes"
        for seat in team.seats
    )
    is_set = team.name is not None and len(hosts) > 1 and in_pods
    return is_set and len(told) == 1 and told <= {addresses[host] for host in hosts}


def _order(seat: Seat) -> tuple[int, int]:
    ranks = seat.reading.dp_ranks
    return (node_of(seat.reading)[0], ranks[0] if ranks else 0)


def _plan_host(
    draft: Draft,
    names: Mapping[str, str],
    addresses: Mapping[str, str],
    known: tuple[Facts, Recipe],
) -> PlanHost:
    facts, recipe = known
    host = names[draft.key]
    engines = [seat for seat in draft.seats if seat.kind == "engine"]
    return PlanHost(
        name=host,
        roles=tuple(dict.fromkeys(seat.role for seat in engines)),
        address=addresses[host],
        accelerator=facts.accelerator.id,
        num_devices=_num_devices(engines, facts, recipe),
    )


def _networks(draft: Draft, catalog: Catalog) -> tuple[str, ...]:
    """The networks that the file says a host has: its pod asks the plugin, or who starts its container names one."""
    boxes = [box for seat in draft.seats if (box := seat.launch.container) is not None]
    asked = {name for box in boxes for name in box.resources}
    told = {(name, word.text) for box in boxes for name, word in box.outside.items()}
    return tuple(
        network.id
        for network in catalog.networks()
        if network.pod_resource in asked or told & network.chosen_by.items()
    )


def _num_devices(engines: Sequence[Seat], facts: Facts, recipe: Recipe) -> int:
    """What the file says, else the accelerator's hosts have, else what the processes ask for."""
    told = [
        c.num_devices for s in engines if (c := s.launch.container) and c.num_devices is not None
    ]
    is_lent = recipe.uses_ray and not _stays_on_its_host(engines, facts)
    if told and not is_lent:
        return max(told)
    if recipe.devices_per_host is not None:
        return recipe.devices_per_host
    if "accelerator" not in facts.unknown and not is_lent:
        return facts.accelerator.devices_per_host
    asked = [d + 1 for seat in engines for d in seat.reading.devices]
    return max(
        [*asked, *(local_devices(seat) for seat in engines), facts.accelerator.devices_per_host]
    )


def _stays_on_its_host(engines: Sequence[Seat], facts: Facts) -> bool:
    """Whether a Ray cluster lends engines nothing: vLLM on NVIDIA asks it for devices only where it is told to.

    Where it is not, a world beyond the host's devices is refused (vllm config/parallel.py@0.17.0, 0.22.1, 0.33.0).
    """
    flags = ("distributed-executor-backend", "data-parallel-backend")
    is_told = any(seat.reading.flags.get(name) == "ray" for seat in engines for name in flags)
    is_known = facts.release_named is not None and bool(facts.judged_on)
    is_vllm = facts.release.engine == "vllm" and facts.accelerator.vendor == "nvidia"
    return is_vllm and is_known and not is_told and not any(seat.is_partly_open for seat in engines)


def _read(seat: Seat, facts: Facts, catalog: Catalog, num_devices: int) -> Reading:
    if seat.kind == "router" or num_devices >= ENOUGH_DEVICES:
        return seat.reading
    flags = catalog.flags(facts.release.flags_catalogue)
    engine = ENGINES[facts.release.engine]
    return engine.read(seat.argv, seat.env, num_devices=num_devices, flags=flags)


def _process(
    process_id: str, seat: Seat, reading: Reading, place: tuple[str, int, str, str]
) -> Process:
    group, replica, host, address = place
    mounts = seat.launch.container.mounts if seat.launch.container else ()
    port = reading.http_port
    return Process(
        id=process_id,
        kind="router" if seat.kind == "router" else "engine",
        group=group,
        host=host,
        role=seat.role,
        replica=replica,
        dp_ranks=reading.dp_ranks,
        devices=reading.devices,
        endpoint=None if port is None else f"http://{address}:{port}",
        binds=reading.binds,
        connects=(),
        env={n: v for n, v in seat.env.items() if n not in seat.launch.prepended},
        env_prepend={n: v for n, v in seat.env.items() if n in seat.launch.prepended},
        mounts=plan_mounts(mounts),
        argv=seat.argv,
        flag_origins={},
        env_origins={},
    )


def _connected(
    rows: Sequence[tuple[Process, Reading]], addresses: Mapping[str, str]
) -> tuple[Process, ...]:
    """Dials resolved to process ids, as a compiled plan has them."""
    owners = {
        (addresses[process.host], bind.port + i): process.id
        for process, reading in rows
        if process.kind == "engine"
        for bind in reading.binds
        for i in range(min(bind.count, ENOUGH_DEVICES))
    }
    return tuple(
        replace(
            process,
            connects=tuple(
                Connect(
                    name=d.name,
                    to=owners.get((d.address, d.port), f"{d.address}:{d.port}"),
                    port=d.port,
                )
                for d in reading.dials
            ),
        )
        for process, reading in rows
    )


def _plan(
    name: str,
    hosts: tuple[PlanHost, ...],
    processes: tuple[Process, ...],
    facts: Facts,
    engines: Sequence[Seat],
) -> Plan:
    container = engines[0].launch.container
    kind = container.runtime if container else "native"
    runtime: Runtime = "podman" if kind == "podman" else "native" if kind == "native" else "docker"
    model = next((str(v) for s in engines if (v := _model(s.reading))), "")
    return Plan(
        stack=name,
        hash="",
        model=facts.checkpoint.repository if facts.checkpoint else model,
        checkpoint=facts.checkpoint.id if facts.checkpoint else "",
        platform="existing-kubernetes" if kind == "kubernetes" else "existing-hosts",
        runtime=runtime,
        tuning=facts.accelerator.tuning,
        engine=PlanEngine(
            name=facts.release.engine,
            version=facts.release.version,
            image=facts.image,
            entrypoint=(),
        ),
        weights_path="/models",
        secrets={},
        hosts=hosts,
        processes=processes,
        capabilities=_capabilities(engines, facts),
    )


def _model(reading: Reading) -> object:
    return reading.flags.get("model") or reading.flags.get("model-path")


def _capabilities(engines: Sequence[Seat], facts: Facts) -> tuple[str, ...]:
    """What clients may ask for, by the flags of every engine."""
    supported = {"chat", "stream"}
    flags = [seat.reading.flags for seat in engines]
    if facts.checkpoint and facts.checkpoint.shape and facts.checkpoint.shape.vision:
        supported |= {"vision"} if not any(f.get("language-model-only") for f in flags) else set()
    is_sglang = facts.release.engine == "sglang"
    if all(
        "tool-call-parser" in f and (is_sglang or f.get("enable-auto-tool-choice")) for f in flags
    ):
        supported.add("tools")
    if all("reasoning-parser" in f for f in flags):
        supported.add("reasoning")
    return tuple(name for name in CAPABILITIES if name in supported)


def stack_name(text: str) -> str:
    """A file's name as a stack's: lower case, letters, digits, dots and dashes, at most 64."""
    name = re.sub(r"[^a-z0-9.]+", "-", text.lower()).strip("-.")[:64].rstrip("-.")
    return name or "imported"
