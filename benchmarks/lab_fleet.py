"""Lab hosts for benchmarks, reached without a proxy: the controller runs inside the lab's own network.

Connections then cost what TCP costs. `slow_link` puts a user-space link with a delay between the
controller and the hosts: sch_netem is no part of every kernel.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from infra.rehearsal.lab import registry
from infra.rehearsal.lab.client import Lab
from infra.rehearsal.lab.hosts import LabHost, LabUser
from infra.rehearsal.lab.starting import start_lab

USER = "op"
BOOT_LIMIT_S = 300.0
_SLOW_LINK = Path(__file__).with_name("slow_link.py")


@dataclass(frozen=True, slots=True, kw_only=True)
class LabFleet:
    """Running hosts and how a controller reaches them.

    Args:
        lab: the lab.
        hosts: name and address, in order.
        folder: for the benchmark's files; goes with the lab.
        enter: words that put a command into the lab's network.
        ssh_config: plain, without a proxy; curve25519 for every client.
    """

    lab: Lab
    hosts: dict[str, str]
    folder: Path
    enter: tuple[str, ...]
    ssh_config: Path

    def first(self, count: int) -> dict[str, str]:
        """The first hosts."""
        return dict(list(self.hosts.items())[:count])


@contextlib.contextmanager
def lab_fleet(names: tuple[str, ...]) -> Iterator[LabFleet]:
    """Boot hosts of these names; they end with the block."""
    hosts = [
        LabHost(name=name, address=_address(i), users=(LabUser(name=USER),))
        for i, name in enumerate(names)
    ]
    with tempfile.TemporaryDirectory(prefix="moe-bench-") as scratch:
        folder = Path(scratch)
        with start_lab(folder / "lab", hosts) as lab:
            lab.wait_ready(BOOT_LIMIT_S)
            config = folder / "ssh_config"
            config.write_text(_direct_config(lab, hosts))
            yield LabFleet(
                lab=lab,
                hosts={host.name: host.address for host in hosts},
                folder=folder,
                enter=("nsenter", f"--net=/proc/{_inside(folder / 'lab')}/ns/net", "--"),
                ssh_config=config,
            )


@contextlib.contextmanager
def slow_link(
    fleet: LabFleet, one_way_ms: float, log: Path = Path(os.devnull)
) -> Iterator[tuple[str, ...]]:
    """A network behind a link with this delay; yields the words that put a command into it.

    Args:
        fleet: the hosts on the other side.
        one_way_ms: the delay.
        log: what gets a line for every packet; see `slow_link.py`.
    """
    link = subprocess.Popen(
        [*fleet.enter, sys.executable, str(_SLOW_LINK), str(one_way_ms), str(log)],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        pid = int(link.stdout.readline()) if link.stdout is not None else 0
        yield ("nsenter", f"--net=/proc/{pid}/ns/net", "--")
    finally:
        link.send_signal(signal.SIGTERM)
        link.wait()


def inventory_text(fleet: LabFleet, groups: dict[str, tuple[str, ...]]) -> str:
    """The Ansible inventory of some hosts, by group."""
    lines = ["all:", "  children:"]
    for group, names in groups.items():
        lines += [f"    {group}:", "      hosts:"]
        for name in names:
            lines += [
                f"        {name}:",
                f"          ansible_host: {fleet.hosts[name]}",
                f"          ansible_user: {USER}",
                f"          ansible_ssh_common_args: -F {fleet.ssh_config}",
            ]
    return "\n".join(lines) + "\n"


def _address(number: int) -> str:
    """Documentation addresses; benchmarking ones beyond 200 hosts, as the project itself does."""
    return f"198.18.{number // 250}.{number % 250 + 1}"


def _inside(directory: Path) -> int:
    """A process of the lab in the network that is the hosts' router: the first that left this machine's."""
    entry = next(each for each in registry.read_entries() if Path(each.directory) == directory)
    mine = Path("/proc/self/ns/net").stat().st_ino
    pids = [entry.pid]
    while pids:
        pid = pids.pop(0)
        if Path(f"/proc/{pid}/ns/net").stat().st_ino != mine:
            return pid
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        pids += [int(child) for child in children]
    raise AssertionError("the lab has no network of its own")


def _direct_config(lab: Lab, hosts: list[LabHost]) -> str:
    folder = lab.ssh_config.parent
    parts = [
        f"Host {host.name} {host.address}\n  HostName {host.address}\n  User {USER}\n"
        for host in hosts
    ]
    parts.append(
        "Host *\n"
        f"  IdentityFile {folder}/id_ed25519\n"
        f"  UserKnownHostsFile {folder}/known_hosts\n"
        "  IdentitiesOnly yes\n  GlobalKnownHostsFile /dev/null\n  StrictHostKeyChecking yes\n"
        "  UpdateHostKeys no\n  PasswordAuthentication no\n  KexAlgorithms curve25519-sha256\n"
    )
    return "".join(parts)
