"""Rules about a router's list of endpoints: whom it dials, and what they are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import pairwise
from urllib.parse import urlsplit

from infra.checks.apart import is_own_host
from infra.checks.network import is_host_name, named_hosts
from infra.checks.view import Finding, Place, PlanView
from infra.plan.process import Process

# By role, the flag of both router wheels that lists an endpoint.
LISTS: Mapping[str, str] = {
    "prefill": "--prefill",
    "decode": "--decode",
    "unified": "--worker-urls",
}
# By router of the catalogue: the numbers that take a sign, and of sglang-router those that it reads only with another
# history back end. Each whole number was given -1 (sglang-router 0.3.2, vllm-router 0.1.17, run 2026-11-22).
SIGNED_NUMBERS: Mapping[str, frozenset[str]] = {
    "vllm-router": frozenset(),
    "sglang-router": frozenset(
        {
            "max-concurrent-requests",
            "rate-limit-tokens-per-second",
            "oracle-pool-max",
            "oracle-pool-min",
            "oracle-pool-timeout-secs",
            "postgres-pool-max",
            "redis-pool-max",
            "redis-retention-days",
        }
    ),
}


def router_lists_endpoints(view: PlanView) -> Iterator[Finding]:
    """The router lists every endpoint of every role, and no other; one listed by name alone is not looked up."""
    named = named_hosts(view)
    for router in view.routers:
        dialled = {
            (named.get(dial.address, dial.address), dial.port)
            for dial in view.readings[router.id].dials
            if dial.name == "http"
        }
        yield from _bootstraps_served(view, router)
        yield from _roles_not_swapped(view, router)
        if any(is_host_name(address) for address, _ in dialled):
            continue
        dialled = {_seen_from(view, router, place) for place in dialled}
        served = {
            claim.place: claim.process
            for claim in view.http_claims
            if view.answers_requests(claim.process)
        }
        unheard = _sure_to_miss(view, router, dialled, served)
        for address, port in sorted(served.keys() - dialled):
            process, url = served[address, port], f"http://{address}:{port}"
            what = f"The router misses {url} ({process.id})."
            fix = "List every endpoint of both roles."
            if view.router_name(router) in SIGNED_NUMBERS:
                fix = f"Add {LISTS.get(process.role, LISTS['unified'])} {url}."
            yield Finding(field="router", what=what, fix=fix, process=router.id)
        for address, port in sorted(dialled - served.keys()):
            what = f"The router lists http://{address}:{port}, where no process serves."
            fix = "Remove it, or give the process that is meant this port."
            is_sure = (address, port) in unheard
            if is_sure:
                what += f" Engines serve on {', '.join(sorted({str(p) for _, p in served}))}."
            yield Finding(
                field="router", what=what, fix=fix, process=router.id, holds_anywhere=is_sure
            )


def router_numbers_unsigned(view: PlanView) -> Iterator[Finding]:
    """Whole numbers of the two router wheels are counts, seconds or ports from 0 up, but for those with a sign."""
    for router in view.routers:
        signed = SIGNED_NUMBERS.get(view.router_name(router) or "")
        if signed is None:
            continue
        for name, value in view.flags(router).items():
            if isinstance(value, int) and value < 0 and name not in signed:
                what = f"{view.router_name(router)} takes no --{name} below zero: {value}."
                fix = "Write a whole number from 0 up."
                yield Finding(field="router", what=what, fix=fix, process=router.id)


def _seen_from(view: PlanView, router: Process, place: Place) -> Place:
    """A place as others name it: loopback is the router's own host."""
    address, port = place
    return (view.addresses[router.host] if is_own_host(address) else address, port)


def _knows(view: PlanView, process: Process) -> bool:
    """Whether the address of a process's host is known, and not made up for a file that leaves it open."""
    told = view.surroundings.told_hosts
    return told is None or process.host in told


def _meant(view: PlanView, router: Process, dialled: Place) -> tuple[tuple[Process, ...], bool]:
    """(engines that a place which a router dials may be, whether it can be no other).

    Where a file leaves open where its hosts are, it may be each that serves on that port; the file has no other where
    it has as many engines as the router lists.
    """
    address, port = _seen_from(view, router, dialled)
    at_home = is_own_host(dialled[0])
    claims = [claim for claim in view.http_claims if claim.place[1] == port]
    sure = [
        claim.process
        for claim in claims
        if claim.place[0] == address
        and (_knows(view, claim.process) or (at_home and claim.process.host == router.host))
    ]
    told = view.surroundings.told_hosts
    if sure or at_home or is_host_name(address) or told is None:
        return tuple(sure), bool(sure)
    if address in {view.addresses[p.host] for p in view.engines if _knows(view, p)}:
        return (), False
    listed = {dial for dial in view.readings[router.id].dials if dial.name == "http"}
    leading = [process for process in view.engines if view.answers_requests(process)]
    return tuple(claim.process for claim in claims), len(listed) == len(leading)


def _are_ports_read(view: PlanView, *processes: Process) -> bool:
    """Whether all of them listen and dial where their words say: no variable is open, no container has other ports."""
    around = view.surroundings
    return not {each.id for each in processes} & (around.ports_open | around.own_networks)


def _sure_to_miss(
    view: PlanView, router: Process, dialled: set[Place], served: Mapping[Place, Process]
) -> set[Place]:
    """What a router dials where nobody can serve, wherever the hosts are.

    A host that is known serves on another port than is dialled there; or, of hosts that are not known, as many ports
    are dialled as served, and they are others.
    """
    if not _are_ports_read(view, router, *served.values()):
        return set()
    unmet, unheard = dialled - served.keys(), served.keys() - dialled
    known = {place[0] for place in unheard if _knows(view, served[place])}
    if known or any(_knows(view, process) for process in served.values()):
        return {place for place in unmet if place[0] in known}
    if len(dialled) != len(served):
        return set()
    others = Counter(port for _, port in dialled) - Counter(port for _, port in served)
    return {place for place in unmet if place[1] in others}


def _bootstraps_served(view: PlanView, router: Process) -> Iterator[Finding]:
    """The port that a router hands to decode is where the prefill process that is listed before it waits for it."""
    dials = view.readings[router.id].dials
    served = dict.fromkeys(claim.place for claim in view.claims if claim.name == "bootstrap")
    for before, dial in pairwise(dials):
        if dial.name != "bootstrap" or (dial.address, dial.port) in served:
            continue
        if is_host_name(dial.address):
            continue
        found, is_sure = _meant(view, router, (before.address, before.port))
        waiting = {
            bind.port: process
            for process in found
            for bind in view.readings[process.id].binds
            if bind.name == "bootstrap"
        }
        if dial.port in waiting:
            continue
        ports = ", ".join(map(str, waiting)) or ", ".join(
            str(port) for address, port in served if address == dial.address
        )
        what = f"The router sends decode to bootstrap port {dial.port} of {dial.address}, where no prefill waits."
        fix = f"Write {ports} behind that --prefill." if ports else "Leave the port out."
        is_sure = is_sure and bool(waiting) and _are_ports_read(view, router, *found)
        yield Finding(field="router", what=what, fix=fix, process=router.id, holds_anywhere=is_sure)


def _roles_not_swapped(view: PlanView, router: Process) -> Iterator[Finding]:
    flags = view.readings[router.id].flags
    for role in ("prefill", "decode"):
        urls = flags.get(role)
        for url in urls if isinstance(urls, tuple) else ():
            found, is_sure = _meant(view, router, _place_of(str(url)))
            actual = {process.role for process in found}
            if len(actual) == 1 and role not in actual:
                (other,) = actual
                what = f"The router lists {url} as {role}; it is a {other} process."
                is_told = all(_is_told_its_role(view, process) for process in found)
                yield Finding(
                    field="router",
                    what=what,
                    fix=f"List it as {other}, or start it as {role}.",
                    process=router.id,
                    holds_anywhere=is_sure and is_told and _are_ports_read(view, router, *found),
                )


def _is_told_its_role(view: PlanView, process: Process) -> bool:
    """Whether its own words say it, and not where it stands in a file."""
    told = (view.flags(process).get("disaggregation-mode"), view.kv_config(process).get("kv_role"))
    return bool(set(told) & {"prefill", "decode", "kv_producer", "kv_consumer"})


def _place_of(url: str) -> Place:
    """Host and port of a URL that may carry a path or capitals; port 0 where it has none that is a number."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return (url, 0)
    return (parts.hostname or "", port or 80)
