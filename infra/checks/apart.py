"""What is sure about places where a plan does not know every host's address: who cannot share one, what is its own."""

from __future__ import annotations

import ipaddress

from infra.checks.view import PlanView
from infra.plan.process import Process

# What a process binds to hear on every address; dialled, it is the dialler's own host.
UNSPECIFIED = ("0.0.0.0", "::")  # noqa: S104


def are_apart(view: PlanView, first: Process, second: Process) -> bool:
    """Whether two processes stand on different hosts for sure: they take one device, or bind one port.

    A file that is imported may show processes of one host as if each had its own.
    """
    if first.host == second.host:
        return False
    ours, theirs = view.readings[first.id], view.readings[second.id]
    if set(ours.devices) & set(theirs.devices):
        return True
    return any(
        one.port < other.port + other.count and other.port < one.port + one.count
        for one in ours.binds
        for other in theirs.binds
    )


def has_member_apart(view: PlanView, process: Process) -> bool:
    """Whether a process of the same group stands on another host for sure."""
    return any(are_apart(view, process, member) for member in view.groups[process.group])


def is_own_host(address: str) -> bool:
    """Whether an address is each host's own: loopback, or none in particular."""
    return address in UNSPECIFIED or is_loopback(address)


def is_loopback(address: str) -> bool:
    """Whether only the host itself reaches an address."""
    if address == "localhost":
        return True
    if ":" not in address and not address.startswith("127."):
        return False  # of ten thousand addresses hardly one is looked at closer
    try:
        return ipaddress.ip_address(address.strip("[]")).is_loopback
    except ValueError:
        return False  # a name, or an expression that a pod expands
