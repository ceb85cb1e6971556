"""Checks of NVLink between hosts: the fabric's state, its domains against groups and inventory, the IMEX daemons."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from infra.launch.preflight import nvidia
from infra.launch.preflight.accelerators import tool_problem
from infra.launch.preflight.finding import host_names
from infra.launch.preflight.gpu_checks import nvidia_hosts
from infra.launch.preflight.observed import ObservedHost
from infra.launch.preflight.recording import nvlink_domain
from infra.launch.preflight.scene import Scene, Trouble, drained_tuning, odd_ones

MAX_NAMED = 4
IMEX_CHANNEL = "/dev/nvidia-caps-imex-channels/channel0"
IMEX_NODES = "/etc/nvidia-imex/nodes_config.cfg"


def rack_hosts(scene: Scene) -> tuple[str, ...]:
    """Engine hosts whose NVLink domain reaches beyond them, when the stack uses it."""
    if not scene.spans_hosts:
        return ()
    return tuple(host for host in nvidia_hosts(scene) if scene.accelerator(host).fabric_spans_hosts)


def domain_of(scene: Scene, host: str) -> str | None:
    """The NVLink domain of a host: what its GPUs say, else what the inventory says; None where neither does.

    Where the inventory alone tells it, GPUs of another host that it puts in the same one say what that is called.
    """
    found = _told_domain(scene, host)
    entry = scene.declared.get(host)
    if found is not None or entry is None or entry.nvlink_domain is None:
        return found
    named = (
        other for other, one in scene.declared.items() if one.nvlink_domain == entry.nvlink_domain
    )
    told = (_told_domain(scene, other) for other in named)
    return next((domain for domain in told if domain is not None), entry.nvlink_domain)


def _told_domain(scene: Scene, host: str) -> str | None:
    return nvlink_domain(scene.hosts[host]) if host in scene.hosts else None


def domain_hosts(scene: Scene) -> dict[str, tuple[str, ...]]:
    """By rack host of the plan, those that are not known to lie in another NVLink domain, itself among them."""
    domains = {host: domain_of(scene, host) for host in rack_hosts(scene)}
    return {
        host: tuple(
            other for other, there in domains.items() if None in (domain, there) or there == domain
        )
        for host, domain in domains.items()
    }


def find_fabric_faults(scene: Scene) -> Iterator[Trouble]:
    """GPUs whose NVLink fabric is not complete: NCCL then falls back to the network in silence."""
    for name in nvidia_hosts(scene):
        sections = nvidia.parse_fabric(scene.hosts[name].text("nvidia.query") or "")
        needs_rack = name in rack_hosts(scene)
        if needs_rack and not sections:
            said = "nvidia-smi -q tells nothing of a fabric"
            fix = f"ssh {name} nvidia-smi -q; use a driver that knows the rack's fabric."
            yield Trouble(host=name, severity="block", observed=said, fix=fix)
        for index, one in enumerate(sections):
            if one.state in ("", "N/A") and not needs_rack:
                continue
            if one.state != "Completed" or one.status not in ("", "Success"):
                said = f"fabric of GPU {index}: state {one.state or 'none'}, status {one.status or 'none'}"
            elif needs_rack and one.cluster_uuid in ("", "N/A", nvidia.NO_CLUSTER):
                said = f"fabric of GPU {index} belongs to no cluster"
            else:
                continue
            fix = f"ssh {name} sudo systemctl restart nvidia-fabricmanager   # on a rack: the switch's NMX"
            yield Trouble(host=name, severity="block", observed=said, fix=fix)
            break


def find_groups_over_domains(scene: Scene) -> Iterator[Trouble]:
    """Groups whose hosts lie in several NVLink domains: their collectives would leave NVLink without a word."""
    racks = rack_hosts(scene)
    for group, hosts in scene.groups().items():
        domains: dict[str, list[str]] = {}
        for host in hosts:
            domain = domain_of(scene, host) if host in racks else None
            if domain is not None:
                domains.setdefault(_shown(scene, host, domain), []).append(host)
        if len(domains) < 2:  # noqa: PLR2004 - one domain is what is wanted
            continue
        words = " and ".join(f"{name} ({host_names(members)})" for name, members in domains.items())
        most = max(domains.values(), key=len)
        for host in (
            host for members in domains.values() if members is not most for host in members
        ):
            yield Trouble(
                host=host,
                severity="block",
                observed=f"group {group} spans {len(domains)} NVLink domains: {words}",
                wanted="every host of a group in one NVLink domain",
                fix="Order the inventory so that each group's hosts are of one rack: see moe.nvlink_domain. "
                "Machines of EC2: launch them from a reservation of one UltraServer.",
            )


def find_mistaken_domains(scene: Scene) -> Iterator[Trouble]:
    """Hosts whose GPUs are not in the domain that the inventory declares of them."""
    declared: dict[str, dict[str, str]] = {}
    for host in rack_hosts(scene):
        name = declared_domain(scene, host)
        found = nvlink_domain(scene.hosts[host]) if name is not None else None
        if name is not None and found is not None:
            declared.setdefault(name, {})[host] = found
    for name, hosts in declared.items():
        usual, example, odd = odd_ones(hosts)
        for host, found in odd.items():
            yield Trouble(
                host=host,
                severity="block",
                observed=f"declared in {name}, and its GPUs are in {found}, while {example} is in {usual}",
                wanted=f"the domain of {name}",
                fix=f"Write the right moe.nvlink_domain of {host} in the inventory, or use another tray.",
            )


def find_imex_faults(scene: Scene) -> Iterator[Trouble]:
    """Trays whose IMEX domain is not whole: memory of other trays cannot be mapped."""
    lists = {name: _imex_list(scene.hosts[name]) for name in rack_hosts(scene)}
    domains = domain_hosts(scene)
    for name, nodes in lists.items():
        host = scene.hosts[name]
        said = _imex_fault(scene, name, domains[name])
        if said is None and IMEX_CHANNEL not in host.paths:
            said = f"there is no {IMEX_CHANNEL}"
        if said is not None:
            fix = f"ssh {name} sudo systemctl restart nvidia-imex   # needs a drain; the node list must be one on all"
            yield Trouble(host=name, severity="block", observed=said, fix=fix)
        mates = frozenset(domains[name])
        strangers = [
            other
            for other in domains
            if other not in mates and scene.plan.host(other).address in nodes
        ]
        if strangers:
            yield Trouble(
                host=name,
                severity="block",
                observed=f"{IMEX_NODES} names {host_names(strangers)} of another NVLink domain",
                wanted="the nodes of its own NVLink domain",
                fix=f"Take them out of {IMEX_NODES} on {name}, then restart nvidia-imex on all of the domain.",
            )
    by_domain: dict[str | None, dict[str, tuple[str, ...]]] = {}
    for name, nodes in lists.items():
        by_domain.setdefault(domain_of(scene, name), {})[name] = nodes
    for own in by_domain.values():
        yield from _different_lists(scene, own)


def _different_lists(scene: Scene, lists: dict[str, tuple[str, ...]]) -> Iterator[Trouble]:
    texts = {name: f"nodes {', '.join(nodes)}" for name, nodes in lists.items() if nodes}
    _, example, odd = odd_ones(texts)
    for name in odd:
        only = sorted(set(lists[example]) ^ set(lists[name]))
        yield Trouble(
            host=name,
            severity="block",
            observed=f"{IMEX_NODES} differs from {example}'s in {', '.join(only[:MAX_NAMED])}",
            wanted="one list on every tray of the domain",
            fix=f"{drained_tuning(scene)}; or copy the list, and restart nvidia-imex everywhere.",
        )


def _imex_fault(scene: Scene, name: str, mates: Sequence[str]) -> str | None:
    host = scene.hosts[name]
    told = host.commands.get("nvidia.imex")
    if told is None:
        return None
    if (problem := tool_problem(told, "nvidia-imex-ctl")) is not None:
        return problem
    domain = nvidia.parse_imex(scene.imex.get(name, told.stdout))
    if domain is None:
        return "nvidia-imex-ctl -N -j tells no domain"
    names = {host.address: host.name for host in scene.plan.hosts}
    waiting = [
        f"{names.get(node, node)} {state}"
        for node, state in domain.nodes.items()
        if state != "READY"
    ]
    if waiting:
        return f"IMEX node {', '.join(waiting[:MAX_NAMED])}"
    missing = [one for one in mates if scene.plan.host(one).address not in domain.nodes]
    if missing:
        return f"its IMEX domain lacks {', '.join(missing[:MAX_NAMED])}"
    return f"IMEX: {domain.unconnected[0]}" if domain.unconnected else None


def _imex_list(host: ObservedHost) -> tuple[str, ...]:
    lines = [line.strip() for line in host.files.get(IMEX_NODES, "").splitlines()]
    return tuple(sorted(line for line in lines if line and not line.startswith("#")))


def declared_domain(scene: Scene, host: str) -> str | None:
    """The NVLink domain that the inventory itself names of a host; None without, or where it was found."""
    entry = scene.declared.get(host)
    is_written = entry is not None and entry.domain_origin == "inventory"
    return entry.nvlink_domain if is_written and entry is not None else None


def _shown(scene: Scene, host: str, domain: str) -> str:
    """A domain by the name that people gave it, with what its GPUs call it."""
    name = declared_domain(scene, host)
    return domain if name in (None, domain) else f"{name} = {domain}"
