"""A host of the inventory, connected: what `SshFleet` does for all of them, for a test of one."""

from __future__ import annotations

from infra.inventory.hosts import InventoryHost
from infra.remote.connecting import SshOptions
from infra.remote.host import SshHost
from infra.remote.ssh_target import resolve_target


def open_host(host: InventoryHost, options: SshOptions) -> SshHost:
    """A connected host of the inventory.

    Raises:
        StackError: its ssh arguments are wrong.
        HostsFailed: by its subclass, why there is no connection.
    """
    opened = SshHost(resolve_target(host, options.defaults, options.resources.ssh_config), options)
    opened.open()
    return opened
