"""Rules about ports, addresses and the router's list of endpoints."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from infra.catalog.schema import Vendor
from infra.checks.apart import are_apart, has_member_apart, is_loopback, is_own_host
from infra.checks.view import Finding, PlanView
from infra.engines.port_settings import port_setting
from infra.engines.reading import Dial
from infra.engines.sizes import MASKS
from infra.plan.process import Process

_HOST_NAME = re.compile(r"[A-Za-z0-9_](?:[\w-]*\w)?(?:\.[A-Za-z0-9_](?:[\w-]*\w)?)*\.?")
_NUMBERS = re.compile(r"[0-9.]+")


class Service(NamedTuple):
    """Ports, first to last, that something else on a host of a vendor listens on, unless a variable moves it."""

    name: str
    vendor: Vendor
    first: int
    last: int
    moved_by: str


LOOPBACK = "127.0.0.1"
HOST_VARIABLES = ("VLLM_HOST_IP", "HCCL_IF_IP")
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
    """Everything that a process dials is bound by a process of the plan, and for what is dialled."""
    named = named_hosts(view)
    awaited = {
        (bind.name, view.addresses[process.host], bind.port)
        for process in view.engines
        for bind in view.readings[process.id].binds
    }
    for process in view.engines:
        for dial in view.readings[process.id].dials:
            address = named.get(dial.address, dial.address)
            if (dial.name, address, dial.port) in awaited:
                continue
            leader = next(
                (p for p in view.groups.get(process.group, ()) if view.readings[p.id].is_leader),
                None,
            )
            if leader is not None and (sure := _sure_to_miss(view, leader, process, dial)):
                yield sure
                continue
            if is_host_name(address):
                continue
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


def named_hosts(view: PlanView) -> Mapping[str, str]:
    """Host name → address, as far as leaders tell: a leader's own address by name is that of the leader's host.

    Two leaders on different hosts that go by one name tell nothing.
    """
    found: dict[str, set[str]] = {}
    for process in view.engines:
        name = (
            _meeting_address(view.flags(process), "") if view.readings[process.id].is_leader else ""
        )
        if is_host_name(name):
            found.setdefault(name, set()).add(view.addresses[process.host])
    return {name: addresses.pop() for name, addresses in found.items() if len(addresses) == 1}


@lru_cache(maxsize=4096)
def is_host_name(text: str) -> bool:
    """Whether an address is a name that only a resolver could turn into one; localhost is none."""
    return (
        _HOST_NAME.fullmatch(text) is not None
        and _NUMBERS.fullmatch(text) is None
        and text.partition(".")[0].lower() != "localhost"
    )


def _sure_to_miss(view: PlanView, leader: Process, process: Process, dial: Dial) -> Finding | None:
    """A dial that cannot meet rank 0 wherever the hosts are: its own host's, another address, or another port."""
    flags = " and ".join(f"--{name}" for name in _LEADER_FLAGS.get(dial.name, ()))
    if is_own_host(dial.address) and are_apart(view, leader, process):
        at = f"{dial.address}:{dial.port}"
        what = (
            f"{process.id} dials {dial.name} at {at}: its own host, and {leader.id} is on another."
        )
        fix = (
            f"Name an address of the host of rank 0 on every process of {process.group} ({flags})."
        )
    else:
        ports = [b.port for b in view.readings[leader.id].binds if b.name == dial.name]
        named = _meeting_address(view.flags(leader))
        is_other = _is_number(named) and _is_number(dial.address) and named != dial.address
        if not ports or not (is_other or dial.port != ports[0]):
            return None
        what = (
            f"{process.id} dials {dial.name} at {dial.address}:{dial.port}, and nobody listens there: {leader.id} "
            f"binds {named}:{ports[0]}."
        )
        fix = f"Give every process of {process.group} one place to meet ({flags})."
    field = f"roles.{process.role}"
    return Finding(field=field, what=what, fix=fix, process=process.id, holds_anywhere=True)


def _meeting_address(flags: Mapping[str, object], untold: str = LOOPBACK) -> str:
    """Where a process is told that rank 0 is; `untold` where it is told nothing."""
    named = flags.get("data-parallel-address") or flags.get("master-addr")
    return str(named or str(flags.get("dist-init-addr") or "").rpartition(":")[0] or untold)


def _is_number(address: str) -> bool:
    """Whether an address is one that stands for no other: an IPv4 address that is not the host's own."""
    return _NUMBERS.fullmatch(address) is not None and not is_own_host(address)


def leader_address_own(view: PlanView) -> Iterator[Finding]:
    """The data-parallel address is one that the host of rank 0 can bind and that peers reach."""
    for process in view.engines:
        reading = view.readings[process.id]
        if not reading.is_leader or not any(
            bind.name in {"dp_rpc", "master"} for bind in reading.binds
        ):
            continue
        address = _meeting_address(reading.flags)
        own = view.addresses[process.host]
        if is_host_name(address):
            continue
        members = view.groups[process.group]
        hosts = {member.host for member in members}
        if is_loopback(address) and _dials_itself(view, process, members):
            continue  # the follower is told of
        if address != own and (len(hosts) > 1 or address not in {"127.0.0.1", "localhost"}):
            is_sure = is_loopback(address) and has_member_apart(view, process)
            what = f"{address} is not an address of {process.host} ({own}); rank 0 binds it."
            if is_sure:
                what = f"{process.id} waits for {process.group} at {address}, which no other host reaches."
            fix = f"Use {own} on every rank of {process.group}."
            yield Finding(
                field=f"roles.{process.role}",
                what=what,
                fix=fix,
                process=process.id,
                holds_anywhere=is_sure,
            )
        elif len(members) == 1 and _spans_nodes(view, process) and is_own_host(address):
            nodes = view.size(process, "nnodes")
            what = f"{process.id} is one of {nodes} nodes, and each would wait at its own {address} (--master-addr)."
            fix = "Name an address of the host of node 0 on every node."
            yield Finding(
                field=f"roles.{process.role}",
                what=what,
                fix=fix,
                process=process.id,
                holds_anywhere=True,
            )


def _dials_itself(view: PlanView, leader: Process, members: Sequence[Process]) -> bool:
    return any(
        is_own_host(dial.address) and are_apart(view, leader, member)
        for member in members
        for dial in view.readings[member.id].dials
    )


def _spans_nodes(view: PlanView, process: Process) -> bool:
    """Whether other nodes of a process's rank stand on other hosts: none is left devices of this one."""
    return view.size(process, "nnodes") > 1 and not any(name in process.env for name in MASKS)


def _addresses_apart(view: PlanView) -> Iterator[Finding]:
    """Hosts of a group that name one address of their own: one of them is not there."""
    for group, members in view.groups.items():
        if view.are_alike(members):
            continue
        for name in HOST_VARIABLES:
            first = members[0].env.get(name)
            for process in members[1:]:
                value = process.env.get(name)
                if (
                    value == first
                    and _is_number(value or "")
                    and are_apart(view, members[0], process)
                ):
                    what = f"{name}={value} on {members[0].id} and on {process.id} of {group}, which are on two hosts."
                    yield Finding(
                        field=f"roles.{process.role}.env.{name}",
                        what=what,
                        fix="Use the address of the process's host.",
                        process=process.id,
                        holds_anywhere=True,
                    )


def side_channel_reachable(view: PlanView) -> Iterator[Finding]:
    """NIXL binds and advertises one address: the process's own, never localhost or 0.0.0.0."""
    for process in view.where(lambda each: view.kv_connector(each) == "NixlConnector"):
        host = process.env.get("VLLM_NIXL_SIDE_CHANNEL_HOST", "localhost")
        own = view.addresses[process.host]
        if not view.is_own_address(process, host):
            what = f"VLLM_NIXL_SIDE_CHANNEL_HOST is {host} on {process.host}; the decoder dials what is advertised."
            is_sure = is_own_host(host) and _has_peer_apart(view, process)
            yield Finding(
                field="kv_transfer",
                what=what,
                fix=f"Use {own}." if not is_sure else "Use an address of the process's own host.",
                process=process.id,
                holds_anywhere=is_sure,
            )


def _has_peer_apart(view: PlanView, process: Process) -> bool:
    """Whether a process of the other role is on another host for sure; one rank of many may stand for each of them."""
    other = {"prefill": "decode", "decode": "prefill"}.get(process.role)
    members = view.groups[process.group]
    num_ranks = sum(len(view.readings[member.id].dp_ranks) for member in members)
    if num_ranks < view.readings[process.id].group_size:
        return False
    return any(peer.role == other and are_apart(view, process, peer) for peer in view.engines)


def host_variables_own(view: PlanView) -> Iterator[Finding]:
    """Variables that name this host's address are this host's, and no other's of the group."""
    yield from _addresses_apart(view)
    for process in view.engines:
        own = view.addresses[process.host]
        for name in HOST_VARIABLES:
            value = process.env.get(name)
            if value and not is_host_name(value) and not view.is_own_address(process, value):
                what = f"{name}={value} is not the address of {process.host} ({own})."
                is_sure = is_own_host(value) and has_member_apart(view, process)
                yield Finding(
                    field=f"roles.{process.role}.env",
                    what=what,
                    fix=f"Use {own}." if not is_sure else "Use the address of the process's host.",
                    process=process.id,
                    holds_anywhere=is_sure,
                )
