"""Items that several owners of one host declare, where they lie, and what a host is before and after."""

from __future__ import annotations

from pathlib import Path

from tests.agent.stubborn_host import StubbornHost

SWAPPINESS = "/proc/sys/vm/swappiness"
BALANCING = "/proc/sys/kernel/numa_balancing"
PORTS = "/proc/sys/net/ipv4/ip_local_reserved_ports"
GOVERNOR = "/sys/devices/system/cpu/cpufreq/policy0/scaling_governor"
SYSCTLS = "/etc/sysctl.d/60-moe-infra.conf"
REQUEST = "/var/lib/moe-infra/tuning/request.json"
SYSTEM_FOLDERS = {"/run", "/var", "/var/lib", "/run/moe-infra", "/run/moe-infra/agent.lock"}

Items = list[dict[str, object]]


def sysctl(name: str, want: str, **keys: object) -> dict[str, object]:
    return {"id": name, "group": "tuning", "kind": "sysctl", "want": want, "why": "w", **keys}


def ports(want: str) -> dict[str, object]:
    name = "net.ipv4.ip_local_reserved_ports"
    return {"id": name, "group": "tuning", "kind": "reserved-ports", "want": want, "why": "w"}


def governor() -> dict[str, object]:
    return {"id": "governor", "kind": "sysfs", "target": GOVERNOR, "want": "performance"}


def value(host: StubbornHost, path: str) -> str:
    return Path(host.path(path)).read_text().strip()


def left(host: StubbornHost, found: dict[str, bytes | str]) -> None:
    """Nothing is on the host but what was found."""
    now = host.contents()
    assert now.keys() - found.keys() <= SYSTEM_FOLDERS
    assert {name: now[name] for name in found} == found
