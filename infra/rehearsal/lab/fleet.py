"""The hosts of a lab as they run: booting, dying, rebooting, cut off, frozen."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from infra.rehearsal.lab import boot, cgroups, connecting, layers, linux, network, user_range
from infra.rehearsal.lab.errors import LabError, UnknownHost
from infra.rehearsal.lab.hosts import HostKey, HostState, HostStatus, LabHost, Link, Strangers
from infra.rehearsal.lab.knob_server import KnobClient, start_knob_server
from infra.rehearsal.lab.loop import READ, Loop

SSH_PORT = 22
MACHINE_ROOT = Path("/")
_ENDS: Mapping[int, str] = {  # how the kernel tells of reboot(2) in a process namespace
    signal.SIGHUP: "reboot",
    signal.SIGINT: "poweroff",
    signal.SIGKILL: "power cut",
}
_PROBE_EVERY_S = 0.015
_PROBE_LIMIT_S = 1.0


@dataclass(slots=True, kw_only=True)
class RunningHost:
    """One host and what is known of it now."""

    host: LabHost
    number: int
    root: Path
    state: HostState = "off"
    link: Link = "up"
    pid: int = 0
    boots: int = 0
    booted_at: float = 0.0
    ready_after_s: float | None = None
    is_frozen: bool = False
    last_end: str = ""
    boot_id: str = ""
    cgroup: int = -1
    first_process: boot.FirstProcess | None = None
    is_to_start_again: bool = False
    on_end: list[Callable[[], None]] = field(default_factory=list)

    @property
    def status(self) -> HostStatus:
        """What the lab's user may know."""
        return HostStatus(
            name=self.host.name,
            address=self.host.address,
            state=self.state,
            link=self.link,
            boots=self.boots,
            boot_id=self.boot_id,
            ready_after_s=self.ready_after_s,
            is_frozen=self.is_frozen,
            last_end=self.last_end,
        )

    @property
    def cable(self) -> str:
        """The router's end; a new name at every boot, as the old one may linger."""
        return f"v{self.number}b{self.boots}"

    @property
    def group_name(self) -> str:
        """The cgroup of the present boot."""
        return f"{self.host.name}.{self.boots}"


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildOrder:
    """What all hosts of a lab share.

    Args:
        disk: size of the tmpfs that holds their files, as mount(8) takes it.
        strangers: whether their users are nobody on the machine.
    """

    disk: str
    strangers: Strangers


class Fleet:
    """All hosts of a lab.

    Args:
        loop: where processes and descriptors are waited for.
        directory: a folder for the hosts' files.
        group: descriptor of the lab's cgroup.
    """

    def __init__(self, loop: Loop, directory: Path, group: int) -> None:
        self.hosts: dict[str, RunningHost] = {}
        self.knobs: KnobClient
        self._loop = loop
        self._directory = directory
        self._group = group
        self._on_change: list[Callable[[], None]] = []
        self._users: int | None = None

    def build(
        self,
        hosts: tuple[LabHost, ...],
        keys: Mapping[str, HostKey],
        login_key: str,
        order: BuildOrder,
    ) -> str:
        """Make the files, knobs and network of all hosts, and power them on.

        Args:
            hosts: in the order of the plan.
            keys: host key by host name.
            login_key: public key that every account accepts.
            order: what else they share.

        Returns:
            What is not as it was wished, in words; empty where all is.
        """
        disk_folder = self._directory / "hosts"
        disk_folder.mkdir()
        linux.mount(
            "moe-lab", disk_folder, "tmpfs", linux.MountFlag.NONE, f"mode=755,size={order.disk}"
        )
        common = disk_folder / ".common"
        layers.write_common_layer(common, MACHINE_ROOT, hosts)
        machine, told = self._machine_root(disk_folder, order.strangers)
        if self._users is not None:
            user_range.give_away(common)
        knobs = self._directory / "knobs"
        knobs.mkdir()
        owner = 0 if self._users is None else user_range.FIRST
        self.knobs = start_knob_server(hosts, knobs, owner)
        network.start_router(tuple(host.address for host in hosts))
        for number, host in enumerate(hosts):
            folder = disk_folder / host.name
            for part in ("upper", "work", "root"):
                (folder / part).mkdir(parents=True)
            layers.write_host_layer(
                folder / "upper", MACHINE_ROOT, host, keys[host.name], login_key
            )
            if self._users is not None:
                user_range.give_away(folder)
            options = (
                f"lowerdir={common}:{machine},upperdir={folder / 'upper'},workdir={folder / 'work'}"
            )
            linux.mount("overlay", folder / "root", "overlay", linux.MountFlag.NONE, options)
            self.hosts[host.name] = RunningHost(host=host, number=number, root=folder / "root")
        self.start(tuple(self.hosts.values()))
        return told

    def _machine_root(self, disk_folder: Path, strangers: Strangers) -> tuple[Path, str]:
        """The root file system below all hosts, under its owners or a range's; and why not a range's, where it may be.

        Raises:
            LabError: a range's is needed, and this machine cannot.
        """
        if strangers == "no":
            return MACHINE_ROOT, ""
        shown = disk_folder / ".machine"
        shown.mkdir()
        try:
            users = user_range.open_range()
            user_range.show_with_owners(MACHINE_ROOT, shown, users)
        except LabError as error:
            if strangers == "yes":
                raise
            return MACHINE_ROOT, f"root on the hosts is root here: {error.where} {error.what}"
        self._users = users
        return shown, ""

    def own(self, descriptor: int) -> None:
        """Make a file that the lab made on a host the host's own root's."""
        if self._users is not None and os.fstat(descriptor).st_uid == 0:
            os.fchown(descriptor, user_range.FIRST, user_range.FIRST)

    def find(self, name: str) -> RunningHost:
        """The host of that name or address.

        Raises:
            UnknownHost: there is none.
        """
        for running in self.hosts.values():
            if name in (running.host.name, running.host.address):
                return running
        known = ", ".join(self.hosts) or "none yet"
        raise UnknownHost(f"host {name}", "is not in this lab.", f"Hosts: {known}.")

    def start(self, hosts: tuple[RunningHost, ...]) -> None:
        """Power hosts on; those that run already stay as they are."""
        for running in hosts:
            running.is_to_start_again |= running.pid != 0 and running.state == "off"
        starting = [running for running in hosts if not running.pid]
        if not starting:
            return
        for running in starting:
            self._fork(running)
        network.plug_in(
            {
                running.cable: (
                    running.host.address,
                    network.hardware_address(running.number),
                    running.pid,
                )
                for running in starting
            }
        )
        for running in starting:
            first = running.first_process
            if first is not None:
                os.write(first.go, b"x")
                os.close(first.go)

    def power_off(self, running: RunningHost, then: Callable[[], None]) -> None:
        """Pull the plug, nothing on the host hears of it; `then` is called when all is dead."""
        if not running.pid:
            then()
            return
        running.state = "off"
        running.on_end.append(then)
        network.remove(running.cable)  # first, so that no peer is told that connections end
        os.kill(running.pid, signal.SIGKILL)

    def reset(self, running: RunningHost, then: Callable[[], None]) -> None:
        """Pull the plug and put it back; `then` is called in between."""
        if running.pid:
            running.is_to_start_again = True
            self.power_off(running, then)
            running.state = "rebooting"
        else:
            self.start((running,))
            then()

    def freeze(self, running: RunningHost, *, is_frozen: bool) -> None:
        """Stop or continue every process of a host; its network stack goes on."""
        running.is_frozen = is_frozen
        cgroups.write(running.cgroup, "cgroup.freeze", "1" if is_frozen else "0")

    def cut(self, running: RunningHost, *, carrier: bool) -> None:
        """Take a host off the network."""
        network.cut(running.host.address)
        if carrier and running.pid:
            network.unplug(running.cable)
        running.link = "no-carrier" if carrier else "silent"

    def heal(self, running: RunningHost) -> None:
        """Put a host that was cut back on the network."""
        if running.link == "no-carrier" and running.pid:
            network.replug(running.host.address, running.cable)
        if running.link != "up":
            network.heal(running.host.address)
            running.link = "up"

    def when_settled(self, call: Callable[[], None]) -> None:
        """Call once, when no host is booting."""
        self._on_change.append(call)
        self._announce()

    def _fork(self, running: RunningHost) -> None:
        running.boots += 1
        running.state, running.booted_at, running.ready_after_s = "booting", time.monotonic(), None
        running.is_frozen = running.is_to_start_again = False
        name = running.host.name
        running.boot_id = self.knobs.ask("boot", host=name)
        running.cgroup = cgroups.make(self._group, running.group_name)
        if self._users is not None:
            cgroups.delegate(running.cgroup, user_range.FIRST)
        order = boot.BootOrder(
            host=running.host,
            root=running.root,
            knobs=self._directory / "knobs" / name,
            cgroup=running.cgroup,
            console=running.root.parent / "console",
            users=self._users,
        )
        first = boot.fork_host(order)
        running.first_process, running.pid = first, first.pid
        self._loop.on_exit(first.pid, lambda status: self._ended(running, status))
        self._loop.watch(first.report, READ, lambda: self._hear(running, first))

    def _hear(self, running: RunningHost, first: boot.FirstProcess) -> None:
        """Take what a host's first process reports."""
        report = os.read(first.report, 4096)
        if report == boot.CONFIGURED:
            network.reactivate(running.cable)
            self._probe(running, running.boots)
            return
        self._loop.forget(first.report)
        os.close(first.report)
        if report:
            running.state = "failed"
            running.last_end = report.removeprefix(boot.CONFIGURED).decode(errors="replace")
            self._announce()

    def _probe(self, running: RunningHost, boots: int) -> None:
        """Look every few milliseconds whether sshd answers, until it does."""

        def again() -> None:
            if running.state == "booting" and running.boots == boots:
                self._loop.call_later(_PROBE_EVERY_S, lambda: self._probe(running, boots))

        def greeted(greeting: bytes) -> None:
            if not greeting.startswith(b"SSH-"):
                again()
            elif running.state == "booting" and running.boots == boots:
                running.state = "ready"
                running.ready_after_s = time.monotonic() - running.booted_at
                self._announce()

        def connected(result: socket.socket | OSError) -> None:
            if isinstance(result, OSError):
                again()
            else:
                connecting.read_banner(self._loop, result, _PROBE_LIMIT_S, greeted)

        target = (running.host.address, SSH_PORT)
        connecting.connect(self._loop, target, _PROBE_LIMIT_S, connected)

    def _ended(self, running: RunningHost, status: int) -> None:
        """A host's PID 1 has ended: by reboot(2), by poweroff, or by us."""
        number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
        running.pid = 0
        network.remove(running.cable)
        os.close(running.cgroup)
        cgroups.remove(self._group, running.group_name)
        if running.state != "failed":
            running.last_end = _ENDS.get(number, f"wait status {status}")
            running.state = "off" if number in _ENDS else "failed"
        if number == signal.SIGHUP or running.is_to_start_again:
            running.state = "rebooting"
            self._loop.call_later(running.host.boot_delay_s, lambda: self._start_again(running))
        waiting, running.on_end = running.on_end, []
        for call in waiting:
            call()
        self._announce()

    def _start_again(self, running: RunningHost) -> None:
        try:
            self.start((running,))
        except (OSError, subprocess.SubprocessError) as error:
            running.state, running.last_end = "failed", str(error)
            self._announce()

    def _announce(self) -> None:
        if any(running.state in ("booting", "rebooting") for running in self.hosts.values()):
            return
        waiting, self._on_change = self._on_change, []
        for call in waiting:
            call()
