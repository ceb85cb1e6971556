"""Agents that are started while this side still loads and computes what they will be asked."""

from __future__ import annotations

import collections
import threading
from collections.abc import Sequence

from infra.inventory.hosts import InventoryHost
from infra.remote.agent_session import AgentSession
from infra.remote.connecting import SshOptions
from infra.remote.host import SshHost
from infra.remote.openings import MAX_OPENINGS
from infra.remote.ssh_target import resolve_target


class EarlyAgents:
    """Hosts that let us in and start their agents, each in its own time; whoever asks one waits for it.

    A host that cannot be reached says so to whoever asks it first, and to nobody else.
    """

    def __init__(
        self, hosts: Sequence[InventoryHost], options: SshOptions, operations: Sequence[str]
    ) -> None:
        """Begin.

        Args:
            hosts: of an inventory.
            options: how they are reached.
            operations: what will be asked first; agents load it at once.

        Raises:
            StackError: a host's ssh arguments are wrong.
        """
        self.options = options
        self._opened = {
            host: SshHost(
                resolve_target(host, options.defaults, options.resources.ssh_config), options
            )
            for host in hosts
        }
        self._sessions = {
            host: AgentSession(opened, options.sudo) for host, opened in self._opened.items()
        }
        self._starts = collections.deque(
            each.prepare(operations) for each in self._sessions.values()
        )
        # Of an executor the interpreter would wait at its end, for hosts that nobody asks any more.
        for _ in range(min(MAX_OPENINGS, len(self._starts))):
            threading.Thread(target=self._start_all, name="early", daemon=True).start()

    @property
    def are_waiting(self) -> bool:
        """Whether any of them has not been taken."""
        return bool(self._sessions)

    def take(self, host: InventoryHost) -> tuple[SshHost, AgentSession] | None:
        """A host's connection and agent, once; who takes them hangs up."""
        session = self._sessions.pop(host, None)
        return None if session is None else (self._opened.pop(host), session)

    def close(self) -> None:
        """Hang up on the hosts that nobody has taken; one that is only being connected to ends by its own limits."""
        if self._sessions:
            self._starts.clear()
        for host, session in self._sessions.items():
            if session.is_settled:
                self._opened[host].close()
        self.options.resources.close()

    def _start_all(self) -> None:
        while True:
            try:
                start = self._starts.popleft()
            except IndexError:
                return
            start()
