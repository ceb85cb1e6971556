"""Rules about who is let in: where clients dial, and which of them is asked for a key."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Iterator
from typing import Literal

from infra.catalog.access import EngineAccess
from infra.catalog.read_releases import read_release
from infra.checks.view import Finding, PlanView
from infra.engines.credentials import credentials_of
from infra.engines.routers import LOOPBACK
from infra.plan.process import Process
from infra.spec.stack import KUBERNETES

Reach = Literal["public", "open"]

# RFC 5737, RFC 3849, and the benchmarking range of RFC 2544: an address of these stands in for one that is not known.
_STAND_INS = tuple(
    map(
        ipaddress.ip_network,
        ("192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24", "198.18.0.0/15", "2001:db8::/32"),
    )
)
_NUM_NAMED = 3


def public_entrances(view: PlanView) -> Iterator[Finding]:
    """What listens on a public address lets in nobody who has no key."""
    for process in _entrances(view, "public"):
        where = f"serves on {view.addresses[process.host]}, a public address"
        fix = "Add an `edge:`, which asks for a key on every path; or give the host a private address."
        yield _finding(view, process, where, fix)


def open_entrances(view: PlanView) -> Iterator[Finding]:
    """What more than its own host reaches lets in nobody who has no key, unless its network is known to be closed."""
    for process in _entrances(view, "open"):
        if view.plan.platform in KUBERNETES:
            where = "is reached by every pod of the cluster through its Service"
        elif is_stand_in(view.addresses[process.host]):
            where = "is reached through a load balancer by whoever its network lets in"
        else:
            where = f"serves on {view.addresses[process.host]}, which other machines reach"
        ways = "write `firewall: plan` and `clients:`"
        if view.plan.platform in KUBERNETES:
            ways = "waive this where the network is closed to others"
        elif view.plan.firewall is not None:
            ways = "let `clients:` name your networks, and not everybody's"
        fix = f"Add an `edge:`, which asks for a key on every path; or {ways}."
        yield _finding(view, process, where, fix)


def engines_have_key(view: PlanView) -> bool:
    """Whether an engine of the plan asks for a key anywhere."""
    declared = {each.name for each in credentials_of(view.plan.engine.name, view.plan.secrets)}
    return "api_key" in declared or any(
        "VLLM_API_KEY" in process.env or view.flags(process).get("api-key")
        for process in view.variants
    )


def _entrances(view: PlanView, reach: Reach) -> Iterator[Process]:
    """The processes that clients dial, where the dial is as open as that and anybody is let in; one engine for all.

    Behind routers that nobody comes through, engines are dialled, too: whoever reaches their ports goes round.
    """
    if _asks_at_the_door(view):
        return
    open_routers = [
        process
        for process in view.routers
        if _reach(view, process) is not None and _who_is_let_in(view, process) is not None
    ]
    if open_routers:
        yield from (process for process in open_routers if _reach(view, process) == reach)
        return
    for process in _engines_behind(view) if view.routers else view.plan.entrances:
        if _reach(view, process) == reach and _who_is_let_in(view, process) is not None:
            yield process
            return


def _engines_behind(view: PlanView) -> Iterator[Process]:
    """Engines behind a router that other hosts may dial; a load balancer passes on to the router alone."""
    if view.plan.platform in KUBERNETES:
        return
    for process in view.engines:
        is_served = process.endpoint is not None and LOOPBACK not in process.endpoint
        if is_served and not is_stand_in(view.addresses[process.host]):
            yield process


def _asks_at_the_door(view: PlanView) -> bool:
    """Whether strangers end before the router: an edge asks every client for a key."""
    return any(process.kind == "edge" for process in view.plan.processes)


def _reach(view: PlanView, process: Process) -> Reach | None:
    """From where a process is dialled; None for its own host alone, and where no inventory says its address."""
    spec = view.surroundings.spec
    if view.plan.platform in KUBERNETES:
        return "open"
    if view.plan.firewall is not None and not _are_everybody(view.plan.firewall.clients):
        return None  # its network is closed to all but the clients that are named
    text = view.addresses[process.host]
    if is_stand_in(text):
        return "open" if spec is not None and spec.ingress != "none" else None
    try:
        address = ipaddress.ip_address(text)
    except ValueError:  # a name
        return None if text == "localhost" else "open"
    if address.is_loopback:
        return None
    return "public" if address.is_global else "open"


def _are_everybody(networks: Iterable[str]) -> bool:
    """Whether networks hold all addresses of a kind, be it in halves."""
    found = [ipaddress.ip_network(each) for each in networks]
    v4 = [each for each in found if isinstance(each, ipaddress.IPv4Network)]
    v6 = [each for each in found if isinstance(each, ipaddress.IPv6Network)]
    return any(each.prefixlen == 0 for each in ipaddress.collapse_addresses(v4)) or any(
        each.prefixlen == 0 for each in ipaddress.collapse_addresses(v6)
    )


def is_stand_in(text: str) -> bool:
    """Whether an address stands in for one that is not known."""
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return False
    return any(address in network for network in _STAND_INS)


def _finding(view: PlanView, process: Process, where: str, fix: str) -> Finding:
    who = _who_is_let_in(view, process)
    return Finding(
        field="edge", what=f"{process.id} {where}, and {who}.", fix=fix, process=process.id
    )


def _who_is_let_in(view: PlanView, process: Process) -> str | None:
    """What a stranger may do at a process, as the end of a sentence; None where every path asks for a key."""
    return _at_router(view, process) if process.kind == "router" else _at_engine(view, process)


def _at_router(view: PlanView, process: Process) -> str | None:
    router, flags = view.catalog.router_of(process.argv), view.readings[process.id].flags
    has_key = bool(flags.get("api-key"))
    if router is None:
        return None if has_key else "its command tells of no key that it asks clients for"
    access = router.access
    if access.client_key == "flag" and has_key:
        return None
    mode = " in prefill/decode mode" if flags.get("prefill") else ""
    said = [f"{router.id}{mode} asks clients for no key"]
    if access.sends_own_key and engines_have_key(view):
        said.append("it gives the engines its own for every client")
    if access.passes_any_post:
        said.append(
            f"a POST to any path passes to the engines ({_named(_engine_access(view).open_paths)})"
        )
    if access.control_paths:
        said.append(f"its own {_named(access.control_paths)} obey anybody")
    return "; ".join(said)


def _at_engine(view: PlanView, process: Process) -> str | None:
    release = view.release
    has_flag = bool(view.flags(process).get("api-key"))
    if release.family == "sglang" and has_flag:
        return None
    access = _engine_access(view)
    open_paths, guarded = access.open_paths, access.key_guards
    if guarded and (has_flag or engines_have_key(view)):
        return f"{release.engine} asks for a key on {', '.join(guarded)} alone: {_named(open_paths)} answer anybody"
    return (
        f"{release.engine} asks nobody for a key: {_named((*guarded, *open_paths))} answer anybody"
    )


def _engine_access(view: PlanView) -> EngineAccess:
    """Whom the engine's HTTP server lets in; vllm-ascend's server is that of its vLLM."""
    release = view.release
    if release.access is None and release.base_version is not None:
        release = read_release(view.catalog, "vllm", release.base_version)
    return release.access or EngineAccess(key_guards=(), open_paths=())


def _named(paths: tuple[str, ...]) -> str:
    return ", ".join(paths[:_NUM_NAMED]) + (", …" if len(paths) > _NUM_NAMED else "")
