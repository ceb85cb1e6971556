"""Checks between hosts: interfaces, routes, reachability, packet sizes, clocks, HCAs, recorded facts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from infra.launch.name_lists import listed
from infra.launch.preflight import linux
from infra.launch.preflight.evidence import why_unseen
from infra.launch.preflight.linux import Interface
from infra.launch.preflight.observed import ObservedHost
from infra.launch.preflight.rdma import Port, read_ports
from infra.launch.preflight.reach_report import DialResult
from infra.launch.preflight.recording import observed_record
from infra.launch.preflight.scene import Scene, Trouble, odd_ones, unequal
from infra.remote.failures import MAY_BE_GONE

# Clocks further apart spoil signatures and the merging of logs (facts: hosts 1.1).
WARN_APART_S = 0.05
BLOCK_APART_S = 1.0


def find_silent_hosts(scene: Scene) -> Iterator[Trouble]:
    """Hosts that cannot be asked: nothing more is known of them."""
    for name, error in scene.away.items():
        fix = error.fix
        if isinstance(error, MAY_BE_GONE):
            fix += f" For a machine that is gone: `fab replace-host {name} NEW --stack {scene.plan.stack}`."
        yield Trouble(host=name, severity="block", observed=error.what.removesuffix("."), fix=fix)


def find_wrong_interface(scene: Scene) -> Iterator[Trouble]:
    """Interfaces that engines are told to use and that are not there, are down, or carry another address."""
    for name, host in scene.hosts.items():
        known = {one.name: one for one in linux.parse_interfaces(host.text("addresses") or "")}
        address = scene.plan.host(name).address
        carrier = next((one.name for one in known.values() if address in one.addresses), None)
        if not known:
            yield Trouble(
                host=name,
                severity="warn",
                observed=f"its interfaces cannot be read: {_last_words(host, 'addresses')}",
                fix=f"ssh {name} ip -j addr   # iproute2 5 or newer",
            )
        for wanted in scene.interfaces(name) if known else ():
            said = _interface_fault(wanted, known, address)
            if said is not None:
                has = f"; {carrier} carries {address}" if carrier and carrier != wanted else ""
                yield Trouble(
                    host=name,
                    severity="block",
                    observed=said + has,
                    wanted=f"{wanted}, which carries {address}",
                    fix=f"`fab facts --stack {scene.plan.stack}`, or write moe.interface of {name} in the inventory.",
                )


def find_unequal_mtu(scene: Scene) -> Iterator[Trouble]:
    """Hosts whose interface takes packets of another size."""
    sizes = {}
    for name, host in scene.hosts.items():
        address = scene.plan.host(name).address
        for one in linux.parse_interfaces(host.text("addresses") or ""):
            if address in one.addresses:
                sizes[name] = f"MTU {one.mtu} on {one.name}"
    usual, example, odd = odd_ones({name: text.split()[1] for name, text in sizes.items()})
    for name in odd:
        interface = sizes[name].rpartition(" ")[2]
        yield Trouble(
            host=name,
            severity="warn",
            observed=f"{sizes[name]}, while {example} has {usual}",
            wanted="one MTU on all hosts",
            fix=f"ssh {name} sudo ip link set {interface} mtu {usual}",
        )


def find_wrong_route(scene: Scene) -> Iterator[Trouble]:
    """Peers that are reached by another interface than engines are told to use."""
    for name, host in scene.hosts.items():
        wanted = scene.interfaces(name)
        for peer in scene.plan.hosts:
            device = linux.parse_route(host.text(f"route:{peer.name}") or "")
            if peer.name == name or not wanted or device is None or device in wanted:
                continue
            yield Trouble(
                host=name,
                severity="block",
                observed=f"the route to {peer.name} ({peer.address}) leaves by {device}",
                wanted=f"by {', '.join(wanted)}",
                fix=f"Mend the routes of {name}, or write moe.interface: {device} in the inventory.",
            )


def find_unreachable(scene: Scene) -> Iterator[Trouble]:
    """Ports that a peer will dial and cannot."""
    dials = scene.reached.dials if scene.reached is not None else ()
    unopened = scene.reached.unopened if scene.reached is not None else {}
    yield from _undialled(scene)
    failed: dict[tuple[str, str, str], list[DialResult]] = {}
    for result in dials:
        dial = result.dial
        if result.error is None or (
            dial.purpose == "sampled" and (dial.host, dial.port) in unopened
        ):
            continue
        failed.setdefault((dial.host, dial.name, result.error), []).append(result)
    for (name, what, error), results in failed.items():
        callers = list(dict.fromkeys(result.dial.caller for result in results))
        ports = sorted({result.dial.port for result in results})
        first = results[0].dial
        means = (
            f"{first.process}'s {what}" if first.purpose == "planned" else f"{what} range, a sample"
        )
        is_sure = first.purpose == "planned" or what == "ephemeral"
        yield Trouble(
            host=name,
            severity="block" if is_sure else "warn",
            observed=f"port {_ports(ports)} ({means}) cannot be reached from {listed(callers)}: {error}",
            fix=f"Open it on {name}, and on what lies between: sudo nft list ruleset; security groups.",
        )


def _undialled(scene: Scene) -> Iterator[Trouble]:
    """A note of what could not be tried: one end of it does not answer, or an engine there loads."""
    left: dict[tuple[str, str], int] = {}
    loading: dict[tuple[str, str], set[int]] = {}
    for dial in scene.reached.undialled if scene.reached is not None else ():
        for name, peer in ((dial.caller, dial.host), (dial.host, dial.caller)):
            if peer in scene.away and name not in scene.away:
                left[name, peer] = left.get((name, peer), 0) + 1
        if not {dial.caller, dial.host} & set(scene.away):
            loading.setdefault((dial.host, dial.process), set()).add(dial.port)
    for (name, peer), count in left.items():
        said = f"not dialled: {count} ports of or from {peer}, which cannot be asked"
        yield Trouble(host=name, severity="pass", observed=said, fix="")
    for (name, process), ports in loading.items():
        said = f"not dialled: port {_ports(sorted(ports))}, which {process} runs for and has not opened yet"
        yield Trouble(host=name, severity="pass", observed=said, fix="")


def find_small_packets(scene: Scene) -> Iterator[Trouble]:
    """Peers to which full-sized packets get lost: everything small works, and the first large transfer hangs."""
    for result in scene.reached.dials if scene.reached is not None else ():
        if result.whole is False:
            size = f" (the kernel thinks {result.path_mtu} bytes fit)" if result.path_mtu else ""
            yield Trouble(
                host=result.dial.caller,
                severity="block",
                observed=f"full-sized packets to {result.dial.host} get lost{size}",
                fix="Give every interface and switch port between them one MTU; try: "
                f"ping -M do -s 8972 {result.dial.host}",
            )


def find_mistaken_hosts(scene: Scene) -> Iterator[Trouble]:
    """Addresses at which another host answers: two machines with one address, or a stale name."""
    seen = set()
    for result in scene.reached.dials if scene.reached is not None else ():
        answered, dial = result.answered_by, result.dial
        if answered is None or answered == dial.host or (dial.caller, dial.host) in seen:
            continue
        seen.add((dial.caller, dial.host))
        yield Trouble(
            host=dial.caller,
            severity="block",
            observed=f"at {dial.host}'s address {answered} answers",
            fix="Two machines share an address, or the inventory names the wrong one.",
        )


def find_clocks_apart(scene: Scene) -> Iterator[Trouble]:
    """Hosts whose clock is certainly away from the others': what the readings leave open is not held against them."""
    certain = _certainly_apart(scene)
    for name, host in scene.hosts.items():
        if host.clock is None and name not in certain:
            said = "cannot be told: it does not tell the time"
            fix = f"ssh {name} date +%s.%N"
            yield Trouble(host=name, severity="warn", observed=said, fix=fix)
    for name, apart in certain.items():
        if apart >= WARN_APART_S:
            yield Trouble(
                host=name,
                severity="block" if apart >= BLOCK_APART_S else "warn",
                observed=f"its clock is at least {apart:.3g} s away from the other hosts'",
                wanted=f"at most {BLOCK_APART_S:g} s",
                fix=f"ssh {name} sudo timedatectl set-ntp true   # then: chronyc makestep",
            )


def find_unsynchronised(scene: Scene) -> Iterator[Trouble]:
    """Hosts whose clock nobody keeps right."""
    for name, host in scene.hosts.items():
        offset = linux.parse_chrony_offset(host.text("chrony") or "")
        synchronised = linux.parse_synchronised(host.text("timedatectl") or "")
        fix = f"ssh {name} sudo timedatectl set-ntp true"
        if offset is not None and abs(offset) > WARN_APART_S:
            severe = abs(offset) > BLOCK_APART_S
            said = f"chrony says that the clock is {offset:+.3f} s off"
            yield Trouble(host=name, severity="block" if severe else "warn", observed=said, fix=fix)
        elif offset is None and synchronised is False:
            said = "no time service has synchronised the clock"
            yield Trouble(host=name, severity="warn", observed=said, fix=fix)
        elif offset is None and synchronised is None:
            why = " and ".join(
                why_unseen(host.commands.get(name_of), program)
                for name_of, program in (("timedatectl", "timedatectl"), ("chrony", "chronyc"))
            )
            said = f"cannot be told: {why}"
            fix = f"ssh {name} timedatectl   # or what the host's own time service offers"
            yield Trouble(host=name, severity="warn", observed=said, fix=fix)


def find_wrong_rdma(scene: Scene) -> Iterator[Trouble]:
    """HCAs that engines are told to use and that are not there, not active, slow, or without a GID."""
    rates: dict[str, list[str]] = {}
    for name, host in scene.hosts.items():
        ports = {port.name: port for port in read_ports(host.files)}
        for wanted in scene.rdma_devices(name):
            port = ports.get(wanted if ":" in wanted else f"{wanted}:1")
            said = _port_fault(wanted, port)
            if said is not None:
                yield Trouble(
                    host=name,
                    severity="block",
                    observed=said,
                    wanted=f"{wanted} active",
                    fix=f"ssh {name} ibstat; write moe.rdma_devices of {name} in the inventory.",
                )
            elif port is not None:
                rates.setdefault(name, []).append(port.rate)
    shown = {name: ", ".join(sorted(set(each))) for name, each in rates.items()}
    yield from unequal(
        shown, "See the cable and the switch port: ibstat, mlxlink -d DEVICE.", "warn"
    )


def find_stale_facts(scene: Scene) -> Iterator[Trouble]:
    """Hosts that are no longer what the facts file says: names in the plan may be wrong."""
    for name, recorded in scene.recorded.items():
        host = scene.hosts.get(name)
        if host is None:
            continue
        now = observed_record(host, scene.plan.host(name).address)
        pairs = {
            "machine": (recorded.machine_id, now.machine_id),
            "driver": (recorded.driver, now.driver),
            "HCAs": (" ".join(recorded.rdma_devices), " ".join(now.rdma_devices)),
            "GIDs": (_spelt(recorded.gids), _spelt(now.gids)),
        }
        if linux.parse_interfaces(host.text("addresses") or ""):
            pairs["interface"] = (recorded.interface, now.interface)
        if now.nvlink_domain and recorded.nvlink_domain:  # the light look asks no tool
            pairs["NVLink domain"] = (recorded.nvlink_domain, now.nvlink_domain)
        differing = [
            f"{what} {after or 'none'} (recorded {before or 'none'})"
            for what, (before, after) in pairs.items()
            if before != after
        ]
        if differing:
            yield Trouble(
                host=name,
                severity="block",
                observed="; ".join(differing),
                fix=f"fab facts --stack {scene.plan.stack}",
            )


def _certainly_apart(scene: Scene) -> dict[str, float]:
    """Seconds that each host's clock is away from the middle one, at least."""
    seen = {
        name: (host.clock.at_least_s, host.clock.at_most_s)
        for name, host in scene.hosts.items()
        if host.clock is not None
    }
    bounds = _measured_clocks(scene) or seen
    if len(bounds) < 2:  # noqa: PLR2004 - one clock is not apart from itself
        return {}
    usual = bounds[_usual_clock(bounds, seen)]
    return {name: max(low - usual[1], usual[0] - high, 0.0) for name, (low, high) in bounds.items()}


def _usual_clock(
    bounds: Mapping[str, tuple[float, float]], seen: Mapping[str, tuple[float, float]]
) -> str:
    """The host whose clock the others are held against: the middle one, of two the nearer to the operator's."""
    if len(bounds) == 2 and len(seen) == 2:  # noqa: PLR2004 - as the docstring says
        return min(seen, key=lambda name: abs(sum(seen[name])))
    ordered = sorted(bounds, key=lambda name: sum(bounds[name]))
    return ordered[(len(ordered) - 1) // 2]


def _measured_clocks(scene: Scene) -> dict[str, tuple[float, float]]:
    """Bounds of each clock against the first host's, from what hosts told each other; empty unless all are known.

    That is a hundred times as exact as what the operator's machine saw of each.
    """
    links: dict[str, dict[str, tuple[float, float]]] = {}
    for result in scene.reached.dials if scene.reached is not None else ():
        if result.ahead_s is not None and result.error_s is not None:
            caller, peer = result.dial.caller, result.dial.host
            links.setdefault(caller, {})[peer] = (result.ahead_s, result.error_s)
            links.setdefault(peer, {}).setdefault(caller, (-result.ahead_s, result.error_s))
    first = next(iter(scene.hosts), "")
    known = {first: (0.0, 0.0)}
    waiting = [first]
    while waiting:
        host = waiting.pop(0)
        ahead_s, error_s = known[host]
        for peer, (more_s, also_s) in links.get(host, {}).items():
            if peer not in known:
                known[peer] = (ahead_s + more_s, error_s + also_s)
                waiting.append(peer)
    if len(known) < len(scene.hosts):
        return {}
    return {name: (ahead - error, ahead + error) for name, (ahead, error) in known.items()}


def _interface_fault(wanted: str, known: Mapping[str, Interface], address: str) -> str | None:
    found = known.get(wanted)
    if found is None:
        return f"there is no interface {wanted}"
    if not found.is_up or not found.has_carrier:
        return f"{wanted} is {'without carrier' if found.is_up else 'down'}"
    return None if address in found.addresses else f"{wanted} does not carry {address}"


def _port_fault(wanted: str, port: Port | None) -> str | None:
    if port is None:
        return f"there is no HCA {wanted}"
    if not port.is_active:
        return f"{wanted} is {port.state}, {port.physical_state}"
    if port.link_layer == "Ethernet" and port.gid_index is None:
        return f"{wanted} has no RoCE v2 GID with an IPv4 address"
    return None


def _spelt(gids: Mapping[str, int]) -> str:
    return " ".join(f"{name}={index}" for name, index in sorted(gids.items()))


def _ports(ports: list[int]) -> str:
    if len(ports) > 1 and ports[-1] - ports[0] == len(ports) - 1:
        return f"{ports[0]}-{ports[-1]}"
    return listed([str(port) for port in ports])


def _last_words(host: ObservedHost, command: str) -> str:
    told = host.commands.get(command)
    return told.last_words if told is not None else "it was not asked"
