"""A plan for people: what all processes share once, then one line per process."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence

from infra.engines.settings import Origin
from infra.plan.process import Plan, Process

Words = tuple[str, ...]


def plan_listing(plan: Plan, *, documentation_addresses: bool) -> str:
    """What `fab plan` prints.

    Args:
        plan: the plan.
        documentation_addresses: whether addresses are examples; then the listing says so.
    """
    lines = [*_head(plan, documentation_addresses=documentation_addresses), "", *_hosts(plan)]
    engines = [process for process in plan.processes if process.kind == "engine"]
    for role in dict.fromkeys(process.role for process in engines):
        members = [process for process in engines if process.role == role]
        lines += ["", *_role(role, members)]
    for process in plan.processes:
        if process.kind == "router":
            lines += ["", *_router(process)]
        elif process.kind == "edge":
            lines += ["", *_edge(plan, process)]
    return "\n".join(lines) + "\n"


def plan_explanation(plan: Plan, *, documentation_addresses: bool) -> str:
    """What `fab plan --explain` prints: the origin of every flag and variable, once per distinct value."""
    lines: list[str] = []
    if documentation_addresses:
        lines.append(
            "Addresses and interface names (eth0) are placeholders: no inventory was given."
        )
    for role in dict.fromkeys(process.role for process in plan.processes):
        members = [process for process in plan.processes if process.role == role]
        lines += ["", f"{role}: {_count(len(members), 'process', 'processes')}"]
        lines += _explained(
            "flag", [(p, group_flags(p.argv)) for p in members], lambda p: p.flag_origins
        )
        lines += _explained(
            "variable",
            [
                (p, [(name, value) for name, value in (*p.env.items(), *p.env_prepend.items())])
                for p in members
            ],
            lambda p: p.env_origins,
        )
    return "\n".join(lines).lstrip("\n") + "\n"


def group_flags(argv: Sequence[str]) -> list[tuple[str, str]]:
    """(flag, its words) pairs of an argument vector; the program's words come under an empty flag."""
    pairs: list[tuple[str, list[str]]] = [("", [])]
    for word in argv:
        if word.startswith("--"):
            pairs.append((word, []))
        else:
            pairs[-1][1].append(word)
    return [(flag, shlex.join(words)) for flag, words in pairs if flag or words]


def _head(plan: Plan, *, documentation_addresses: bool) -> list[str]:
    num_devices = sum(len(process.devices) for process in plan.processes)
    num_engines = sum(1 for process in plan.processes if process.kind == "engine")
    num_hosts = _count(plan.num_hosts, "host", "hosts")
    processes = _count(num_engines, "engine process", "engine processes")
    note = "  (documentation addresses: no inventory)" if documentation_addresses else ""
    image = plan.engine.image if plan.runtime != "native" else "no image"
    return [
        f"{plan.stack}  {plan.model} ({plan.checkpoint})",
        f"engine     {plan.engine.name} {plan.engine.version}, {plan.runtime}, {image}",
        f"platform   {plan.platform}, tuning {plan.tuning}, weights under {plan.weights_path}",
        f"size       {num_hosts}, {num_devices} devices, {processes}",
        f"serves     {', '.join(plan.capabilities)}",
        f"plan       {plan.hash[:12]}{note}",
    ]


def _hosts(plan: Plan) -> list[str]:
    width = max(len(host.name) for host in plan.hosts)
    address_width = max(len(host.address) for host in plan.hosts)
    lines = ["hosts"]
    for host in plan.hosts:
        here = plan.on_host(host.name)
        used = sum(len(process.devices) for process in here)
        lines.append(
            f"  {host.name:<{width}}  {host.address:<{address_width}}  {host.num_devices} x {host.accelerator}"
            f" ({used} used)  {_count(len(here), 'process', 'processes')}"
        )
    return lines


def _role(role: str, members: Sequence[Process]) -> list[str]:
    common = _shared_pairs([group_flags(process.argv) for process in members])
    common_env = _shared_pairs([list(process.env.items()) for process in members])
    prepend = _shared_pairs([list(process.env_prepend.items()) for process in members])
    lines = [f"{role}: {_count(len(members), 'process', 'processes')}, in common"]
    lines += [f"  {name}={value}" for name, value in common_env]
    lines += [f"  {name}={value}:…" for name, value in prepend]
    lines += [f"  {words}" for flag, words in common if not flag]
    lines += [f"    {flag} {words}".rstrip() for flag, words in common if flag]
    lines.append(f"{role}: each process")
    rows = [_columns(process, common, common_env) for process in members]
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]) - 1)]
    for row in rows:
        cells = [f"{cell:<{width}}" for cell, width in zip(row[:-1], widths, strict=True)]
        lines.append(f"  {'  '.join(cells)}  {row[-1]}".rstrip())
    return lines


def _columns(
    process: Process, common: list[tuple[str, str]], common_env: list[tuple[str, str]]
) -> tuple[str, ...]:
    """Id, group, ranks, devices, ports, and what only this process has."""
    own = [pair for pair in group_flags(process.argv) if pair not in common]
    own_env = [pair for pair in process.env.items() if pair not in common_env]
    words = [f"{name}={value}" for name, value in own_env] + [
        f"{flag} {value}".rstrip() for flag, value in own
    ]
    ranks = f"rank {_span(process.dp_ranks)}" if process.dp_ranks else "follower"
    return (
        process.id,
        process.group,
        ranks,
        f"dev {_span(process.devices)}",
        _ports(process),
        " ".join(words),
    )


def _ports(process: Process) -> str:
    binds = " ".join(
        f"{bind.name}:{bind.port}" + (f"-{bind.port + bind.count - 1}" if bind.count > 1 else "")
        for bind in process.binds
    )
    dials = "".join(f" →{connect.to}:{connect.port}" for connect in process.connects)
    return f"[{binds}{dials}]"


def _router(router: Process) -> list[str]:
    lines = [f"router: {router.id} on {router.host}, {router.endpoint} {_ports_only(router)}"]
    repeated: dict[str, list[str]] = {}
    for flag, words in group_flags(router.argv):
        repeated.setdefault(flag, []).append(words)
    for flag, values in repeated.items():
        if len(values) > 1:
            lines.append(f"  {flag} ({len(values)} times)")
            lines += [f"    {value}" for value in values]
        else:
            lines.append(f"  {flag} {values[0]}".rstrip() if flag else f"  {values[0]}")
    return lines


def _edge(plan: Plan, edge: Process) -> list[str]:
    """What clients dial, what it lets through, and where it goes on to."""
    to = ", ".join(f"{connect.to}:{connect.port}" for connect in edge.connects)
    lines = [f"edge: {edge.id} on {edge.host}, {edge.endpoint} {_ports_only(edge)} →{to}"]
    lines.append(f"  {shlex.join(edge.argv)}")
    if plan.edge is not None:
        lines.append(f"  lets through, with a key: {' '.join(plan.edge.allow)}")
        lines.append(
            f"  connections of one address without a key: {plan.edge.connections_per_address}"
        )
        lines.append(f"  requests of one key at once: {plan.edge.connections_per_key}")
    return lines


def _ports_only(process: Process) -> str:
    return "[" + " ".join(f"{bind.name}:{bind.port}" for bind in process.binds) + "]"


def _shared_pairs(rows: Sequence[Sequence[tuple[str, str]]]) -> list[tuple[str, str]]:
    """Pairs that every row has, in the order of the first."""
    others = [set(row) for row in rows[1:]]
    return [pair for pair in rows[0] if all(pair in row for row in others)]


def _explained(
    noun: str,
    rows: Iterable[tuple[Process, Sequence[tuple[str, str]]]],
    origins_of: Callable[[Process], Mapping[str, Origin]],
) -> list[str]:
    members = list(rows)
    found: dict[tuple[str, str], list[Process]] = {}
    origins: dict[tuple[str, str], Origin] = {}
    for process, pairs in members:
        for name, value in pairs:
            if not name:
                continue
            found.setdefault((name, value), []).append(process)
            origin = origins_of(process).get(name)
            if origin is not None:
                origins[name, value] = origin
    lines = []
    for (name, value), processes in found.items():
        who = "all" if len(processes) == len(members) else _who(processes)
        origin = origins.get((name, value))
        lines.append(
            f"  {noun} {name} {value}".rstrip()
            + f"  [{who}]  ← {origin or 'unknown (imported plan)'}"
        )
    return lines


def _who(processes: Sequence[Process]) -> str:
    first = processes[0].id
    return first if len(processes) == 1 else f"{first} and {len(processes) - 1} more"


def _span(numbers: Sequence[int]) -> str:
    """`0-3` for consecutive numbers, else a list."""
    if not numbers:
        return "-"
    if len(numbers) > 1 and tuple(numbers) == tuple(range(numbers[0], numbers[-1] + 1)):
        return f"{numbers[0]}-{numbers[-1]}"
    return ",".join(map(str, numbers))


def _count(number: int, one: str, many: str) -> str:
    return f"{number} {one if number == 1 else many}"
