"""A deployment: its plan, its hosts and how long things may take."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field, replace

from infra.inventory.hosts import InventoryHost
from infra.launch.fleet import Clock, Fleet
from infra.plan.edge import CERTIFICATE, KEYS
from infra.plan.endpoints import Endpoints
from infra.plan.process import Plan, Process
from infra.render.host_paths import unit_name
from infra.render.items import HostState
from infra.spec.edge_keys import parse_keys

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How long things may take, in seconds.

    Args:
        ready_s: from the start of the engines until every rank has proven itself.
        router_s: from the router's start until a request has gone through it.
        ask_s: one request to an agent.
        pull_s: one request that may pull an image.
        first_proof_s: the first attempt at a proof; each further one may take twice as long.
        longest_proof_s: and never longer than this.
        first_poll_s: pause between two looks at the start.
        longest_poll_s: pause between two looks later on.
        progress_s: between two lines about the waiting.
        settle_s: how long a rank may be silent after others of its group have answered.
    """

    ready_s: float = 1800.0
    router_s: float = 120.0
    ask_s: float = 60.0
    pull_s: float = 3700.0
    first_proof_s: float = 15.0
    longest_proof_s: float = 120.0
    first_poll_s: float = 0.25
    longest_poll_s: float = 3.0
    progress_s: float = 10.0
    settle_s: float = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How work on hosts waits and speaks."""

    limits: Limits
    clock: Clock
    say: Say


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """How a client asks the edge.

    Args:
        headers: with a key.
        certificate: PEM, what the edge shows; None where clients speak no TLS.
    """

    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    certificate: str | None = None


def client_of(secrets: Mapping[str, str]) -> Client:
    """A client with the first key of the edge's.

    Args:
        secrets: as the operator has them, by name.

    Raises:
        StackError: the keys are none.
    """
    keys = secrets.get(KEYS)
    headers = {} if keys is None else {"Authorization": f"Bearer {parse_keys(keys)[0].key}"}
    return Client(headers=headers, certificate=secrets.get(CERTIFICATE))


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployment:
    """What `up` and `verify` work on.

    Args:
        states: host state by host, in plan order.
        headers: for every request to an engine, e.g. the API key's.
        client: for every request to an edge.
        say: where lines about the work go.
        nonce: new for every run.
        spares: hosts of the fleet that the plan does not use; an earlier release may have.
        agree: told the groups that are to be stopped for another release, before anything is changed; it raises where
            that is not to be.
        decided: called when nothing speaks against what is to be done with it any more, before anything is changed.
        hang_up: closes the connections to the hosts, so that the next request opens others.
        leaving: hosts of the fleet that are cleared before the plan's are written.
        forces: checks that the operator overrules, by name.
        declared: the inventory's entries of the plan's hosts, by the plan's names; {} where none are at hand.
    """

    plan: Plan
    states: Mapping[str, HostState]
    endpoints: Endpoints
    fleet: Fleet
    clock: Clock
    limits: Limits
    headers: Mapping[str, str] = field(repr=False)
    say: Say
    nonce: str
    spares: tuple[str, ...] = ()
    leaving: tuple[str, ...] = ()
    agree: Callable[[Sequence[str]], None] = lambda _groups: None
    decided: Callable[[], None] = lambda: None
    hang_up: Callable[[], None] = lambda: None
    forces: tuple[str, ...] = ()
    declared: Mapping[str, InventoryHost] = field(default_factory=dict)
    client: Client = field(default_factory=Client)

    def engines(self) -> tuple[Process, ...]:
        """The engine processes, in plan order."""
        return tuple(process for process in self.plan.processes if process.kind == "engine")

    def asks(self, process: Process) -> dict[str, object]:
        """What a step of a probe that asks a process holds beside its address and body."""
        if process.kind != "edge":
            return {"headers": dict(self.headers)}
        return {"headers": dict(self.client.headers), "certificate": self.client.certificate}

    def units(self, kind: str | None = None) -> dict[str, dict[str, str]]:
        """Process id by unit, by host: of one kind or (None) of all."""
        found: dict[str, dict[str, str]] = {}
        for process in self.plan.processes:
            if kind in (None, process.kind):
                found.setdefault(process.host, {})[unit_name(self.plan.stack, process)] = process.id
        return found


def without_hosts(deployment: Deployment, hosts: Container[str]) -> Deployment:
    """What is left of a deployment without some hosts: groups live as one, so those with a part there go as a whole."""
    gone = {process.group for process in deployment.plan.processes if process.host in hosts}
    if not gone:
        return deployment
    plan, endpoints = deployment.plan, deployment.endpoints
    router, edge = endpoints.router, endpoints.edge
    return replace(
        deployment,
        plan=replace(plan, processes=tuple(p for p in plan.processes if p.group not in gone)),
        states={name: state for name, state in deployment.states.items() if name not in hosts},
        endpoints=replace(
            endpoints,
            ranks=tuple(rank for rank in endpoints.ranks if rank.group not in gone),
            router=None if router is None or router.group in gone else router,
            edge=None if edge is None or edge.group in gone else edge,
        ),
    )
