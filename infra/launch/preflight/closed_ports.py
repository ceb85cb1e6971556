"""Which planned ports hosts cannot dial, asked when a start has failed: a firewall has no words of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from ipaddress import ip_address

from infra.catalog.load import Catalog
from infra.errors import HostsFailed
from infra.launch.deployment import Deployment
from infra.launch.fleet import Request, ask_all
from infra.launch.preflight.mutual_dials import ask_reach, reach_requests
from infra.launch.preflight.network_checks import find_unreachable
from infra.launch.preflight.observed import ObservedHost, read_observed
from infra.launch.preflight.reach_report import DialResult, Reached, read_reached
from infra.launch.preflight.scene import Scene
from infra.render.dialing import PlannedDial, planned_dials

# How a dial ends that is dropped on its way, or answered by somebody on it: nothing comes, or ICMP's unreachable and
# prohibited as Linux has them (net/ipv4/icmp.c icmp_err_convert, net/ipv6/icmp.c tab_unreach).
STOPPED = frozenset(
    {
        "timed out",
        "Connection timed out",
        "No route to host",
        "Network is unreachable",
        "Permission denied",
    }
)
# nft's and iptables' `reject` say so, too; but any kernel does where nobody listens (any more).
REFUSED = "Connection refused"


def closed_ports(deployment: Deployment, catalog: Catalog) -> list[str]:
    """A sentence for each port on which somebody listens and that peers must dial and cannot, and what opens it.

    Engines that have not failed go on starting, and bind some of their ports when they have loaded. So unlike a
    preflight nobody listens in their place, and only what listens already is dialled, without a word. Nor are
    samples of a range dialled: what listens there is an engine's, on an address of its own choice.

    Nothing where hosts cannot be asked, or no host dials another one.
    """
    planned = [one for one in planned_dials(deployment.plan) if one.purpose == "planned"]
    try:
        scene = look_at_listeners(deployment, catalog, planned)
        listening = {
            (host, row["port"]) for host, seen in scene.hosts.items() for row in seen.listening
        }
        dials = [one for one in planned if (one.host, one.port) in listening]
        if not dials:
            return []
        reports = ask_reach(deployment, reach_requests(scene, dials, deployment.nonce))
        results = read_reached(dials, reports).dials
        refused = [one.dial for one in results if one.error == REFUSED]
        after = look_at_listeners(deployment, catalog, refused)
    except HostsFailed:
        return []
    closed = tuple(one for one in results if _is_stopped(one, scene, after))
    found = find_unreachable(replace(scene, reached=Reached(dials=closed, unopened={})))
    return [f"{one.host}: {one.observed}. {one.fix}".rstrip(".") for one in found]


def look_at_listeners(
    deployment: Deployment, catalog: Catalog, dials: Sequence[PlannedDial]
) -> Scene:
    """Who listens on the ports that are dialled, on every host that has one."""
    ports: dict[str, set[int]] = {}
    for dial in dials:
        ports.setdefault(dial.host, set()).add(dial.port)
    looks: dict[str, Request] = {
        host: {"operation": "listening", "ports": sorted(wanted)} for host, wanted in ports.items()
    }
    told = ask_all(deployment.fleet, looks, timeout_s=deployment.limits.ask_s) if looks else {}
    return Scene(
        plan=deployment.plan,
        catalog=catalog,
        depth="full",
        hosts={
            host: read_observed(host, {}, sent_s=0.0, received_s=0.0, also={"listening": report})
            for host, report in told.items()
        },
        running=frozenset(),
        recorded={},
    )


def _is_stopped(result: DialResult, before: Scene, after: Scene) -> bool:
    """Whether somebody on the way, and not the listener's own kernel, kept a dial from connecting.

    A refusal counts where one socket took what came to that address before and after the dial: it listened all the
    while, and its kernel would not have refused. Otherwise an engine has just ended, or listens on another address.
    """
    if result.error != REFUSED:
        return result.error in STOPPED
    dial = result.dial
    address = before.plan.host(dial.host).address
    first, last = (_sockets(one.hosts, dial, address) for one in (before, after))
    return bool(first & last)


def _sockets(hosts: Mapping[str, ObservedHost], dial: PlannedDial, address: str) -> set[object]:
    """The sockets that take what is dialled, by inode."""
    rows = hosts[dial.host].listening
    return {row["inode"] for row in rows if row["port"] == dial.port and _takes(row, address)}


def _takes(row: Mapping[str, object], address: str) -> bool:
    """Whether a listener surely takes what comes to an address: `::` may or may not take IPv4 as well."""
    try:
        dialled, own = ip_address(address), ip_address(str(row["address"]))
    except ValueError:  # a name, which may lead anywhere
        return False
    return own == dialled or (own.version == dialled.version and own.is_unspecified)
