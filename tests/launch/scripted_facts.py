"""What healthy hosts of a plan tell of themselves, for tests that change one thing."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping

from infra.engines.network_names import interfaces_named
from infra.launch.preflight.asking import GLOBS
from infra.plan.process import Plan

ANSWERS = {
    "own-name": "{address} STREAM {host}\n",
    "systemd": "systemd 252 (252.39-1~deb12u2)\n",
    "chains": '{{"nftables": []}}',
    "page-size": "4096\n",
    "timedatectl": "NTPSynchronized=yes\n",
    "docker-info": "cgroupfs 2\n",
    # as packaged: what it may have itself is little, and it may raise it
    "docker-limits": "LimitMEMLOCK=8388608\nLimitNOFILE=infinity\nLimitSTACK=infinity\n"
    "         0          0 4294967295\nCapEff:\t000001ffffffffff\n",
    "kernel-log": "## 1203 lines\n",
    "nvidia.apps": "",
}


def facts_report(plan: Plan, host: str, request: Mapping[str, object]) -> dict[str, object]:
    """The agent's report on `facts`, without what was asked along."""
    asked, globs = request.get("commands", []), request.get("globs", [])
    assert isinstance(asked, list)
    assert isinstance(globs, list)
    return {
        "commands": {str(one["id"]): _told(plan, host, str(one["id"])) for one in asked},
        "files": {"/etc/machine-id": f"machine-of-{host}\n", "/proc/swaps": "Filename\tType\n"},
        "paths": globs[len(GLOBS) :],
        "disks": {},
        "writable": {},
        "holders": [],
        "stuck": [],
        "clock": {"now_s": time.time(), "error_s": 0.001},
    }


def interface_of(plan: Plan, host: str) -> str:
    """The interface that the host's processes are told to use."""
    named = [name for p in plan.on_host(host) for name in interfaces_named(p.env)]
    return named[0] if named else "eth0"


def addresses_text(interface: str, address: str, *, mtu: int = 1500, flags: str = "") -> str:
    """`ip -j addr` of a host with one interface."""
    loopback = {"ifname": "lo", "flags": ["LOOPBACK", "UP", "LOWER_UP"], "mtu": 65536}
    own = {
        "ifname": interface,
        "flags": (flags or "BROADCAST UP LOWER_UP").split(),
        "mtu": mtu,
        "addr_info": [{"family": "inet", "local": address, "prefixlen": 24}],
    }
    return json.dumps([{**loopback, "addr_info": [{"local": "127.0.0.1"}]}, own])


def _told(plan: Plan, host: str, name: str) -> dict[str, object]:
    address = plan.host(host).address
    if name == "addresses":
        return succeeded(addresses_text(interface_of(plan, host), address))
    if name.startswith("route:"):
        return succeeded(json.dumps([{"dev": interface_of(plan, host)}]))
    if name.startswith("name:"):  # known to nobody
        return {"exit_code": 2, "stdout": "", "stderr": "", "seconds": 0.01}
    if name in ANSWERS:
        return succeeded(ANSWERS[name].format(address=address, host=host))
    return {"exit_code": None, "stdout": "", "stderr": f"{name}: No such file", "seconds": 0.0}


def succeeded(stdout: str) -> dict[str, object]:
    """A command that printed this."""
    return {"exit_code": 0, "stdout": stdout, "stderr": "", "seconds": 0.01}
