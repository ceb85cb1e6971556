"""Hosts with a port as operators type them: `host`, `host:port`, `[address]:port`."""

from __future__ import annotations

import ipaddress
import re

MAX_PORT = 65535
IPV6 = 6
# An address of IPv6 without brackets has no port.
_PLACE = re.compile(r"(?P<host>\[[^\]\s]+\]|[^\[\]\s:]+)(?::(?P<port>[0-9]+))?")


def read_place(text: str) -> tuple[str, int | None] | None:
    """The host without brackets, and its port, None where none is named; None for what is no place."""
    found = _PLACE.fullmatch(f"[{text}]" if _is_bare_ipv6(text) else text)
    if found is None:
        return None
    return found["host"].strip("[]"), int(found["port"]) if found["port"] else None


def is_port(number: int) -> bool:
    """Whether a number is a port that can be dialled."""
    return 0 < number <= MAX_PORT


def _is_bare_ipv6(text: str) -> bool:
    try:
        return ipaddress.ip_address(text).version == IPV6
    except ValueError:
        return False
