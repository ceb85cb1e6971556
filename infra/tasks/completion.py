"""The completion of what a task says: commands on its stack and its hosts, made such that they can be typed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from infra.tasks.host_names import BothNames, machines_of
from infra.tasks.options import Options

if TYPE_CHECKING:  # half of the tasks reach no host
    from infra.inventory.hosts import InventoryHost

MARKS = ("--stack ", "ssh ")  # of commands about a stack, and on a host


class Completion:
    """Completes texts with the choice of a task, and with the hosts that it reaches once it does.

    It knows the hosts longer than the task: what failed there is told when the task has let go of them.

    Args:
        choice: the options that chose the stack, asked for anew for each text: what a rehearsal chooses follows from
            how far it has come.
    """

    def __init__(self, choice: Callable[[], Options]) -> None:
        """Know no host."""
        self._choice = choice
        self._hosts: dict[str, InventoryHost] = {}
        self.named = BothNames()

    def reach(self, hosts: Mapping[str, InventoryHost]) -> None:
        """From here on complete commands on these hosts, too; by the names that the task calls them.

        Where that name is the plan's and the inventory has another one, texts name such a host by both (`named`).
        """
        self._hosts.update(hosts)
        self.named.learn(machines_of(hosts))

    def __call__(self, text: str) -> str:
        """The text with every command as it is to be typed."""
        if not any(mark in text for mark in MARKS):
            return text
        # Most of what tasks say is no command, and what chooses a stack takes longer to load than many a task.
        from infra.tasks.typable import completed  # noqa: PLC0415

        return completed(self._choice(), self._hosts, text)
