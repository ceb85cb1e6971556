"""Who may dial which ports of a host, read from the plan; pure. `firewall` makes rules of it."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from infra.engines.network_names import hccl_host_ports
from infra.engines.reading import Bind
from infra.errors import StackError
from infra.plan.ports import EPHEMERAL_FIRST, EPHEMERAL_LAST, STAGING_BLOCK
from infra.plan.process import Firewall, Plan, Process
from infra.render.dialing import (
    KV_BINDS,
    MOONCAKE_FIRST,
    MOONCAKE_LAST,
    planned_dials,
    speaks_mooncake,
)
from infra.render.supervision import plan_watch_port

# Mooncake's transport of Ascend devices: 20000 + device * R up, R = 1000 in v0.3.7.post2 and 100 from v0.3.8
# (source: AscendDirectTransport, vllm-ascend's P/D page; checked 2026-11-20). Above it the ephemeral range begins.
ASCEND_FIRST, ASCEND_LAST = 20000, EPHEMERAL_FIRST - 1
# A plan document may name more; what binds them does not start.
PORT_LAST = 65535


@dataclass(frozen=True, slots=True, kw_only=True)
class Opening:
    """Ports of a host and who may dial them; all others may not.

    Args:
        first: the first port.
        last: the last port.
        name: what they are for.
        hosts: of the plan, in its order, without the host itself.
        networks: beside them, as the stack writes them.
        is_own: whether a process of the plan, or the stack's watcher, listens on these very ports. Else it is a range
            that others of the host may use, too.
    """

    first: int
    last: int
    name: str
    hosts: tuple[str, ...]
    networks: tuple[str, ...]
    is_own: bool


def openings(plan: Plan, host: str) -> tuple[Opening, ...]:
    """What a host keeps closed and to whom it opens it, ports ascending, own ports first.

    Raises:
        StackError: the plan closes no hosts, or an address of it is a name.
    """
    if plan.firewall is None:
        message = f"{plan.stack} closes no hosts"
        raise AssertionError(message)
    for each in plan.hosts:
        _refuse_name(each.name, each.address)
    dialling: dict[int, set[str]] = {}
    for dial in planned_dials(plan):
        if dial.host == host and dial.purpose == "planned":
            dialling.setdefault(dial.port, set()).add(dial.caller)
    return _Reach(plan, plan.firewall, host, dialling).openings()


@dataclass(frozen=True, slots=True)
class _Reach:
    """One host of a plan.

    Args:
        dialling: by port of the host, the hosts that command lines, KV caches and watchers make dial it.
    """

    plan: Plan
    allowed: Firewall
    host: str
    dialling: Mapping[int, set[str]]

    def openings(self) -> tuple[Opening, ...]:
        """Own ports, each once, then ranges."""
        return (*_merged([*self._binds(), self._watch()]), *self._ranges())

    def _binds(self) -> Iterator[Opening]:
        entrances = {process.id for process in self.plan.entrances}
        for process in self.plan.on_host(self.host):
            for bind in process.binds:
                is_entrance = process.id in entrances and _serves_at(process, bind)
                networks = self.allowed.clients if is_entrance else ()
                if bind.name == "prometheus" or (process.kind == "engine" and bind.name == "http"):
                    networks = (*networks, *self.allowed.monitors)
                callers = self._all_hosts() if is_entrance else self._callers(process, bind)
                for port in range(bind.port, min(bind.port + bind.count, PORT_LAST + 1)):
                    yield Opening(
                        first=port,
                        last=port,
                        name=f"{process.kind} {bind.name}",
                        hosts=self._named(callers | self.dialling.get(port, set())),
                        networks=networks,
                        is_own=True,
                    )

    def _callers(self, process: Process, bind: Bind) -> set[str]:
        """Who may dial a port beside those that command lines name."""
        if process.kind != "engine":
            return set()
        if bind.name == "http":  # a pair is proven from the host of the rank (launch/proof)
            return self._other_role(process)
        if bind.name == "kv_events":
            return {each.host for each in self.plan.processes if each.kind == "router"}
        of_pair = self._other_role(process) if bind.name in KV_BINDS else set()
        return self._group(process) | of_pair

    def _watch(self) -> Opening:
        port = plan_watch_port(self.plan)
        hosts = self._named(self.dialling.get(port, set()))
        return Opening(first=port, last=port, name="watcher", hosts=hosts, networks=(), is_own=True)

    def _ranges(self) -> Iterator[Opening]:
        """Where engines and the stager choose a port at start."""
        staging = (STAGING_BLOCK.first, STAGING_BLOCK.last)
        yield self._range(staging, "staging", self._all_hosts())
        engines = [each for each in self.plan.on_host(self.host) if each.kind == "engine"]
        group = {name for each in engines for name in self._group(each)}
        other = {name for each in engines for name in self._other_role(each)}
        if any(map(speaks_mooncake, engines)):
            yield self._range((MOONCAKE_FIRST, MOONCAKE_LAST), "mooncake rpc", other)
            if self.plan.engine.name == "vllm-ascend":
                yield self._range((ASCEND_FIRST, ASCEND_LAST), "ascend transport", other)
        if engines:
            span = (EPHEMERAL_FIRST, EPHEMERAL_LAST)
            yield self._range(span, "ports that engines choose", group | other)
        if self.plan.engine.name == "vllm-ascend":
            ports = {port for each in engines for port in hccl_host_ports(each.env)}
            yield from _merged(
                [
                    self._range((port, port), "hccl", group)
                    for port in ports
                    if not _is_ephemeral(port)
                ]
            )

    def _range(self, span: tuple[int, int], name: str, hosts: set[str]) -> Opening:
        return Opening(
            first=span[0],
            last=span[1],
            name=name,
            hosts=self._named(hosts),
            networks=(),
            is_own=False,
        )

    def _group(self, process: Process) -> set[str]:
        return {each.host for each in self.plan.processes if each.group == process.group}

    def _other_role(self, process: Process) -> set[str]:
        return {
            each.host
            for each in self.plan.processes
            if each.kind == "engine" and each.role != process.role
        }

    def _all_hosts(self) -> set[str]:
        return {each.name for each in self.plan.hosts}

    def _named(self, hosts: set[str]) -> tuple[str, ...]:
        return tuple(
            each.name for each in self.plan.hosts if each.name in hosts and each.name != self.host
        )


def _serves_at(process: Process, bind: Bind) -> bool:
    """Whether the process's endpoint is one of the ports of a bind."""
    port = int((process.endpoint or ":0").rpartition(":")[2])
    return bind.port <= port < bind.port + bind.count


def _is_ephemeral(port: int) -> bool:
    return EPHEMERAL_FIRST <= port <= EPHEMERAL_LAST


def _merged(found: Sequence[Opening]) -> list[Opening]:
    """Each port once, open to the callers of all that bind it; then neighbours that are alike as one."""
    ports: dict[int, Opening] = {}
    for one in found:
        before = ports.get(one.first, one)
        ports[one.first] = replace(
            before,
            hosts=tuple(dict.fromkeys((*before.hosts, *one.hosts))),
            networks=tuple(dict.fromkeys((*before.networks, *one.networks))),
        )
    runs: list[Opening] = []
    for port, one in sorted(ports.items()):
        longer = replace(runs[-1], last=port) if runs and runs[-1].last == port - 1 else None
        if longer is not None and longer == replace(one, first=longer.first):
            runs[-1] = longer
        else:
            runs.append(one)
    return runs


def _refuse_name(host: str, address: str) -> None:
    try:
        ipaddress.ip_address(address)
    except ValueError as error:
        what = f"firewall: plan lets in addresses, and {address} is a name."
        raise StackError(
            host, what, "Write its address as moe.address in the inventory."
        ) from error
