"""Rules about ports, addresses and the router's list of endpoints."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple
from urllib.parse import urlsplit

from infra.catalog.schema import Vendor
from infra.checks.view import Finding, PlanView
from infra.engines.port_settings import port_setting


class Service(NamedTuple):
    """Ports, first to last, that something else on a host of a vendor listens on, unless a variable moves it."""

    name: str
    vendor: Vendor
    first: int
    last: int
    moved_by: str


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
SERVICES = (
    Service(
        "NCCL's RAS thread", "nvidia", 28028, 28028, "NCCL_RAS_ADDR"
    ),  # nccl ras, NCCL_RAS_ADDR
    Service("the DCGM exporter", "nvidia", 9400, 9400, ""),  # dcgm-exporter README
    Service(
        "HCCL", "ascend", 60000, 60031, "HCCL_IF_BASE_PORT"
    ),  # CANN environment variables, HCCL_IF_BASE_PORT
)
# By what a follower dials: the flags that say where.
_LEADER_FLAGS: Mapping[str, tuple[str, ...]] = {
    "dp_rpc": ("data-parallel-address", "data-parallel-rpc-port"),
    "master": ("master-addr", "master-port"),
    "dist": ("dist-init-addr",),
}


def ports_distinct(view: PlanView) -> Iterator[Finding]:
    """No (address, port) is bound twice."""
    if len(view.claimed) == len(view.claims):
        return
    owner: dict[tuple[str, int], tuple[str, str]] = {}
    for process in view.plan.processes:
        address = view.addresses[process.host]
        for bind in view.readings[process.id].binds:
            for port in range(bind.port, bind.port + bind.count):
                first = owner.setdefault((address, port), (process.id, bind.name))
                if first != (process.id, bind.name):
                    what = f"{address}:{port} is claimed by {first[1]} of {first[0]} and {bind.name} of {process.id}."
                    settings = {port_setting(name, view.family) for name in (first[1], bind.name)}
                    fix = f"Change {' or '.join(sorted(settings))}, or put the processes on different hosts."
                    yield Finding(field="port", what=what, fix=fix, process=process.id)
                    break


def ports_valid(view: PlanView) -> Iterator[Finding]:
    """Every port lies within 1 to 65535."""
    for process in view.plan.processes:
        for bind in view.readings[process.id].binds:
            last = bind.port + bind.count - 1
            if bind.port < 1 or last > 65535:  # noqa: PLR2004 - the range of TCP ports
                what = (
                    f"{bind.name} ports {bind.port}-{last} of {process.id} leave the range 1-65535."
                )
                yield Finding(field="port", what=what, fix="Use lower ports.", process=process.id)


def service_ports_left(view: PlanView) -> Iterator[Finding]:
    """Ports of daemons and libraries that such hosts run are left to them."""
    services = {
        host: [service for service in SERVICES if service.vendor == accelerator.vendor]
        for host, accelerator in view.accelerators.items()
    }
    for process in view.engines:
        for bind in view.readings[process.id].binds:
            for service in services[process.host]:
                meets = bind.port <= service.last and bind.port + bind.count > service.first
                if meets and service.moved_by not in process.env:
                    what = f"{bind.name} of {process.id} takes {bind.port}, which {service.name} takes on such hosts."
                    fix = f"Choose another {port_setting(bind.name, view.family)}."
                    yield Finding(field="port", what=what, fix=fix, process=process.id)


def connects_answered(view: PlanView) -> Iterator[Finding]:
    """Everything that a process dials is bound by a process of the plan."""
    for process in view.engines:
        for dial in view.readings[process.id].dials:
            if (dial.address, dial.port) in view.claimed:
                continue
            leader = next(
                (p for p in view.groups.get(process.group, ()) if view.readings[p.id].is_leader),
                None,
            )
            where = (
                f"{leader.id} is on {view.addresses[leader.host]}"
                if leader
                else "no process holds rank 0"
            )
            what = f"{process.id} dials {dial.name} at {dial.address}:{dial.port}; nobody listens there ({where})."
            settings = " and ".join(_LEADER_FLAGS.get(dial.name, ("address", "port")))
            fix = (
                f"Followers would wait 5 minutes and fail; give all ranks the {settings} of rank 0."
            )
            yield Finding(field=f"roles.{process.role}", what=what, fix=fix, process=process.id)


def leader_address_own(view: PlanView) -> Iterator[Finding]:
    """The data-parallel address is one that the host of rank 0 can bind and that peers reach."""
    for process in view.engines:
        reading = view.readings[process.id]
        if not reading.is_leader or not any(
            bind.name in {"dp_rpc", "master"} for bind in reading.binds
        ):
            continue
        flags = reading.flags
        address = str(flags.get("data-parallel-address") or flags.get("master-addr") or "127.0.0.1")
        own = view.addresses[process.host]
        hosts = {member.host for member in view.groups[process.group]}
        if address != own and (len(hosts) > 1 or address not in {"127.0.0.1", "localhost"}):
            what = f"{address} is not an address of {process.host} ({own}); rank 0 binds it."
            fix = f"Use {own} on every rank of {process.group}."
            yield Finding(field=f"roles.{process.role}", what=what, fix=fix, process=process.id)


def side_channel_reachable(view: PlanView) -> Iterator[Finding]:
    """NIXL binds and advertises one address: the process's own, never localhost or 0.0.0.0."""
    for process in view.where(lambda each: view.kv_connector(each) == "NixlConnector"):
        host = process.env.get("VLLM_NIXL_SIDE_CHANNEL_HOST", "localhost")
        own = view.addresses[process.host]
        if not view.is_own_address(process, host):
            what = f"VLLM_NIXL_SIDE_CHANNEL_HOST is {host} on {process.host}; the decoder dials what is advertised."
            yield Finding(field="kv_transfer", what=what, fix=f"Use {own}.", process=process.id)


def host_variables_own(view: PlanView) -> Iterator[Finding]:
    """Variables that name this host's address are this host's."""
    for process in view.engines:
        own = view.addresses[process.host]
        for name in ("VLLM_HOST_IP", "HCCL_IF_IP"):
            value = process.env.get(name)
            if value is not None and not view.is_own_address(process, value):
                what = f"{name}={value} is not the address of {process.host} ({own})."
                yield Finding(
                    field=f"roles.{process.role}.env",
                    what=what,
                    fix=f"Use {own}.",
                    process=process.id,
                )


def router_lists_endpoints(view: PlanView) -> Iterator[Finding]:
    """The router lists every endpoint of every role, and no other."""
    for router in view.routers:
        reading = view.readings[router.id]
        dialled = {(dial.address, dial.port) for dial in reading.dials if dial.name == "http"}
        served = {
            claim.place: claim.process
            for claim in view.http_claims
            if view.answers_requests(claim.process)
        }
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
            yield Finding(field="router", what=what, fix=fix, process=router.id)
        yield from _bootstraps_served(view, router.id)
        yield from _roles_not_swapped(view, router.id, reading.flags)


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


def _bootstraps_served(view: PlanView, router: str) -> Iterator[Finding]:
    """The port that a router hands to decode is where a prefill process of that address waits for it."""
    dials = [dial for dial in view.readings[router].dials if dial.name == "bootstrap"]
    if not dials:
        return
    served = dict.fromkeys(claim.place for claim in view.claims if claim.name == "bootstrap")
    for dial in dials:
        if (dial.address, dial.port) not in served:
            ports = ", ".join(str(port) for address, port in served if address == dial.address)
            what = f"The router sends decode to bootstrap port {dial.port} of {dial.address}, where no prefill waits."
            fix = f"Write {ports} behind that --prefill." if ports else "Leave the port out."
            yield Finding(field="router", what=what, fix=fix, process=router)


def _roles_not_swapped(view: PlanView, router: str, flags: object) -> Iterator[Finding]:
    if not isinstance(flags, dict):
        return
    role_of = {process.endpoint: process.role for process in view.engines if process.endpoint}
    for role in ("prefill", "decode"):
        for url in flags.get(role) or ():
            actual = role_of.get(str(url)) or role_of.get(_origin(str(url)))
            if actual is not None and actual != role:
                what = f"The router lists {url} as {role}; it is a {actual} process."
                yield Finding(
                    field="router", what=what, fix=f"List it as {actual}.", process=router
                )


def _origin(url: str) -> str:
    """`http://host:port` of a URL that may carry a path or capitals; the URL itself where its port is no number."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return url
    return f"http://{parts.hostname}:{port}"
