"""Hosts that are connected to and answer in this process: `SshFleet`'s own way of asking, without SSH."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from infra.inventory.hosts import InventoryHost
from infra.launch.fleet import Report, Request, SshFleet
from infra.remote.agent_session import AgentSession
from infra.remote.connecting import SshOptions
from infra.remote.early_agents import EarlyAgents
from infra.remote.host import SshHost

Answer = Callable[[str, Request], Report]


@dataclass(frozen=True)
class _Host:
    name: str

    def close(self) -> None:
        """Nothing is open."""


@dataclass(frozen=True)
class _Agent:
    name: str
    answer: Answer

    def ask(self, request: Request, *, timeout_s: float) -> Report:
        assert timeout_s > 0
        return self.answer(self.name, request)


class _AtHand(EarlyAgents):
    """Agents that were started before anybody asks."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer

    def take(self, host: InventoryHost) -> tuple[SshHost, AgentSession]:
        own = _Host(host.name), _Agent(host.name, self._answer)
        return cast("tuple[SshHost, AgentSession]", own)


def fleet_at_hand(names: Sequence[str], answer: Answer) -> SshFleet:
    """A fleet of hosts that are connected to.

    Args:
        names: theirs.
        answer: what a host says to a request, in a thread of its own; raises one of ours where it fails.
    """
    hosts: Mapping[str, InventoryHost] = {name: _inventory_host(name) for name in names}
    return SshFleet(hosts, SshOptions(), early=_AtHand(answer))


def _inventory_host(name: str) -> InventoryHost:
    return InventoryHost(
        name=name,
        groups=(),
        address="127.0.0.1",
        service_address="127.0.0.1",
        port=22,
        user="root",
        private_key_file=None,
        ssh_arguments=(),
        host_key=None,
        interface="lo",
        rdma_devices=(),
        instance_id=None,
    )
