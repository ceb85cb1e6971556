"""The addresses of Ascend devices on their own network: one per device, known from the host's."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

IPV4_OCTETS = 4
FIRST_OCTET = 29


def device_address(host_address: str, index: int) -> str:
    """Return the address of a device's own port: 29, the host's last two octets, 1 + its index."""
    octets = host_address.split(".")
    return f"{FIRST_OCTET}.{octets[2]}.{octets[3]}.{index + 1}"


def virtual_address(host: dict[str, Any], index: int) -> str:
    """Return the address of a device's virtual port in a super-pod, 192.168 and its SDID."""
    octets = host["address"].split(".")
    return f"192.{128 + int(octets[2]) % 128}.{octets[3]}.{index + 1}"


def network_mask(host: dict[str, Any]) -> str:
    """Return the mask of the device network."""
    return "255.255.0.0" if is_super_pod(host) else "255.255.255.0"


def is_super_pod(host: dict[str, Any]) -> bool:
    """Return whether the host's devices are dies of a super-pod."""
    return bool(host["fabric_spans_hosts"])


def answers(host: dict[str, Any], address: str) -> bool:
    """Return whether a device address answers a ping from this host.

    The other hosts are those of `imex_nodes` or `peers` in `host.json`; without either every address of the
    scheme answers, but those under `faults.unreachable` never do.
    """
    octets = address.split(".")
    if len(octets) != IPV4_OCTETS or not all(octet.isdigit() for octet in octets):
        return False
    if address in ((host.get("faults") or {}).get("unreachable") or ()):
        return False
    peers = host.get("peers")
    if peers is None:
        return octets[0] in (str(FIRST_OCTET), "192")
    known = []
    for peer in [host["address"], *peers]:
        other = dict(host, address=peer)
        known += [device_address(peer, index) for index in range(host["num_devices"])]
        known += [virtual_address(other, index) for index in range(host["num_devices"])]
    return address in known
