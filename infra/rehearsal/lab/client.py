"""A lab as its user holds it: what can be done to its hosts from outside, without SSH."""

from __future__ import annotations

import contextlib
import http.client
import os
import select
import signal
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from infra.rehearsal.lab import control, keys, registry, ssh_files
from infra.rehearsal.lab.errors import HostsNotReady, LabError, UnknownHost, explain
from infra.rehearsal.lab.hosts import HostStatus, LabHost, Strangers, host_to_document
from infra.rehearsal.lab.knob_server import KnobWrite
from infra.rehearsal.lab.knobs import Fault
from infra.rehearsal.lab.prerequisites import limit_notice

REQUEST_LIMIT_S = 60.0
STOP_LIMIT_S = 30.0
CONSOLE_LINES = 10
HALF_OF_MEMORY = "50%"
_LOOK_EVERY_S = 0.02


class Lab:
    """A running lab. As a context manager it is stopped at the end, unless it was kept.

    Args:
        entry: how the registry knows it.
    """

    def __init__(self, entry: registry.LabEntry) -> None:
        self.id = entry.id
        self.directory = Path(entry.directory)
        self.supervisor_pid = entry.pid
        self.notices: tuple[str, ...] = ()
        self._pidfd = os.pidfd_open(entry.pid)
        self._control = registry.control_socket(entry.id)
        self._is_kept = entry.kept

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if not self._is_kept:
            self.stop()

    @property
    def ssh_config(self) -> Path:
        """For `ssh -F`, Fabric and Ansible; hosts are named as in the plan, and by address."""
        return self.directory / ssh_files.CONFIG

    def boot(
        self, hosts: Sequence[LabHost], *, disk: str = HALF_OF_MEMORY, strangers: Strangers = "no"
    ) -> None:
        """Build all hosts and power them on; once per lab. Does not wait: see `wait_ready`.

        Args:
            hosts: all of them.
            disk: what their files may take together, as `size=` of a tmpfs (`512m`, `50%`).
            strangers: whether their users, root among them, are nobody on this machine.

        Raises:
            LabError: it cannot be done; the lab is gone then.
        """
        host_keys = {host.name: keys.make_key() for host in hosts}
        login_key = keys.make_key()
        try:
            _refuse_doubles(hosts)
            ssh_files.write_ssh_files(
                self.directory, self._control, tuple(hosts), host_keys, login_key
            )
            answer = self._ask(
                "boot",
                hosts=[host_to_document(host) for host in hosts],
                keys={name: (key.private, key.public) for name, key in host_keys.items()},
                login_key=login_key.public,
                disk=disk,
                strangers=strangers,
            )
        except OSError as error:
            self.stop()
            raise explain(error, str(self.directory)) from error
        except BaseException:
            self.stop()
            raise
        self.notices = tuple(filter(None, (*answer["notices"], limit_notice())))

    def status(self) -> tuple[HostStatus, ...]:
        """Every host as it is now, in the order of `boot`."""
        return tuple(HostStatus(**one) for one in self._ask("status")["hosts"])

    def wait_ready(self, deadline_s: float) -> tuple[HostStatus, ...]:
        """Wait until no host is booting any more.

        Args:
            deadline_s: how long to wait, in seconds.

        Raises:
            HostsNotReady: in that time they did not come up, or one failed; with its console.
        """
        try:
            answer = self._ask("settled", limit_s=deadline_s)
            hosts = tuple(HostStatus(**one) for one in answer["hosts"])
        except TimeoutError:
            hosts = self.status()
        late = [host for host in hosts if host.state not in ("ready", "off")]
        if not late:
            return hosts
        console = self.read_console(late[0].name).decode(errors="replace").splitlines()
        states = ", ".join(f"{host.name} ({host.last_end or host.state})" for host in late)
        raise HostsNotReady(
            f"simulated hosts {states}",
            f"{len(late)} of {len(hosts)} do not answer on port 22 after {deadline_s:g} s.",
            f"{late[0].name} says: " + (" | ".join(console[-CONSOLE_LINES:]) or "nothing"),
        )

    def wait_reboot(self, host: str, num_boots: int, deadline_s: float) -> HostStatus:
        """Wait until a host has booted once more and answers.

        Args:
            host: its name.
            num_boots: `boots` of its status before.
            deadline_s: how long to wait, in seconds.

        Raises:
            HostsNotReady: in that time it did not.
        """
        deadline = time.monotonic() + deadline_s
        while True:
            status = next(one for one in self.status() if one.name == host)
            if status.boots > num_boots and status.state == "ready":
                return status
            if time.monotonic() > deadline:
                break
            time.sleep(_LOOK_EVERY_S)
        raise HostsNotReady(
            f"simulated host {host}",
            f"has not booted again within {deadline_s:g} s (state {status.state}).",
            "See its console (read_console) and who was to reboot it.",
        )

    def keep(self) -> None:
        """Let the lab outlive this process; `stop_lab` ends it."""
        self._ask("keep")
        self._is_kept = True

    def stop(self) -> None:
        """End all processes of the lab and remove everything of it, its folder included.

        Raises:
            LabError: it did not end.
        """
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._pidfd, signal.SIGTERM)
        poll = select.poll()
        poll.register(self._pidfd, select.POLLIN)
        if not poll.poll(STOP_LIMIT_S * 1000):
            raise LabError(
                f"lab {self.id}",
                f"did not end within {STOP_LIMIT_S:g} s.",
                f"kill -9 {self.supervisor_pid}; the next start removes what is left.",
            )
        with contextlib.suppress(ChildProcessError):  # not ours: it was attached to
            os.waitpid(self.supervisor_pid, 0)

    def end_with_lab(self, pid: int) -> None:
        """Have a process of this machine killed when the lab ends, however that comes about."""
        pidfd = os.pidfd_open(pid)
        try:
            self._ask("end-with-lab", files=(pidfd,))
        finally:
            os.close(pidfd)

    def cut(self, host: str, *, carrier: bool = False) -> None:
        """Lose all packets to and from a host; with `carrier` its interface goes down too."""
        self._ask("network", host=host, action="no-carrier" if carrier else "silent")

    def heal(self, host: str) -> None:
        """Undo `cut`."""
        self._ask("network", host=host, action="heal")

    def power_off(self, host: str) -> None:
        """Pull the plug; the disk keeps what it has."""
        self._ask("power", host=host, action="off")

    def start(self, host: str) -> None:
        """Power on, over the same disk."""
        self._ask("power", host=host, action="start")

    def reset(self, host: str) -> None:
        """Pull the plug and put it back."""
        self._ask("power", host=host, action="reset")

    def freeze(self, host: str) -> None:
        """Stop every process of a host; its ports still accept."""
        self._ask("freeze", host=host, is_frozen=True)

    def thaw(self, host: str) -> None:
        """Undo `freeze`."""
        self._ask("freeze", host=host, is_frozen=False)

    def inject(self, host: str, knob: str, fault: Fault | None) -> None:
        """Make writes to a knob fail (an errno's name) or change nothing (`sticky`); None heals.

        Args:
            host: its name.
            knob: path on the host, or sysctl name.
            fault: how.
        """
        self._ask("inject", host=host, path=knob, fault=fault)

    def knob_log(self, host: str | None = None) -> tuple[KnobWrite, ...]:
        """Every write to a knob of one host or of all, oldest first, boot-time writes included."""
        return tuple(KnobWrite(**one) for one in self._ask("knob-log", host=host)["writes"])

    def open_file(self, host: str, path: str, flags: int, mode: int = 0o644) -> int:
        """A descriptor of a host's file; powered-off hosts have all but /run, /tmp and the like.

        Of /proc it shows what belongs to the opener, not to the host (`/proc/sys/net`, `/proc/self`):
        `run` a program for that.

        Raises:
            OSError: as open(2) on the host would.
        """
        _, files = self._exchange("open", host=host, path=path, flags=flags, mode=mode)
        return files[0]

    def read_file(self, host: str, path: str) -> bytes:
        """A file's content."""
        with os.fdopen(self.open_file(host, path, os.O_RDONLY), "rb") as file:
            return file.read()

    def write_file(self, host: str, path: str, content: bytes, mode: int = 0o644) -> None:
        """Make or replace a file; its folder exists."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
        with os.fdopen(self.open_file(host, path, flags, mode), "wb") as file:
            file.write(content)

    def append_file(self, host: str, path: str, content: bytes) -> None:
        """Add to a file's end; it exists."""
        with os.fdopen(self.open_file(host, path, os.O_WRONLY | os.O_APPEND), "ab") as file:
            file.write(content)

    def read_console(self, host: str) -> bytes:
        """What the host's PID 1 has printed, over all boots; nothing is normal."""
        try:
            return self.read_file(host, "console")
        except FileNotFoundError:
            return b""

    def run(
        self,
        host: str,
        argv: Sequence[str],
        *,
        stdin: bytes = b"",
        environment: Mapping[str, str] | None = None,
        limit_s: float = REQUEST_LIMIT_S,
    ) -> subprocess.CompletedProcess[bytes]:
        """Run a program as root in a host's namespaces, without SSH.

        Raises:
            LabError: it did not end in time (and was killed), or the host is off.
        """
        files = [os.memfd_create(name) for name in ("stdin", "stdout", "stderr")]
        try:
            os.write(files[0], stdin)
            os.lseek(files[0], 0, os.SEEK_SET)
            answer = self._ask(
                "run",
                files=files,
                limit_s=limit_s,
                host=host,
                argv=list(argv),
                environment=dict(environment or {}),
            )
            stdout, stderr = (_content(descriptor) for descriptor in files[1:])
        except TimeoutError as error:
            raise LabError(
                f"host {host}",
                f"{argv[0]} did not end within {limit_s:g} s.",
                "Give it more time, or see what it waits for (processes).",
            ) from error
        finally:
            for descriptor in files:
                os.close(descriptor)
        return subprocess.CompletedProcess(list(argv), answer["exit_code"], stdout, stderr)

    def processes(self, host: str) -> tuple[tuple[int, tuple[str, ...]], ...]:
        """Process id, as the host counts, and argument vector of everything that runs there."""
        return tuple(
            (one["pid"], tuple(one["argv"]))
            for one in self._ask("processes", host=host)["processes"]
        )

    def dial(self, host: str, port: int, timeout_s: float = 5.0) -> socket.socket:
        """A TCP connection to a host (by name or address) from the lab's network.

        Raises:
            OSError: as connect(2) would: refused, or timed out.
        """
        _, files = self._exchange("dial", host=host, port=port, timeout_s=timeout_s)
        return socket.socket(fileno=files[0])

    def http(self, host: str, port: int, timeout_s: float = 10.0) -> http.client.HTTPConnection:
        """An HTTP connection to a host, already open."""
        connection = http.client.HTTPConnection(host, port, timeout=timeout_s)
        connection.sock = self.dial(host, port, timeout_s)
        connection.sock.settimeout(timeout_s)
        return connection

    def _ask(
        self,
        operation: str,
        *,
        files: Sequence[int] = (),
        limit_s: float = REQUEST_LIMIT_S,
        **details: Any,
    ) -> dict[str, Any]:
        return self._exchange(operation, files=files, limit_s=limit_s, **details)[0]

    def _exchange(
        self,
        operation: str,
        *,
        files: Sequence[int] = (),
        limit_s: float = REQUEST_LIMIT_S,
        **details: Any,
    ) -> tuple[dict[str, Any], list[int]]:
        """One request and its answer, with the descriptors that came along."""
        try:
            with control.connect(self._control, limit_s) as channel:
                control.send(channel, {"operation": operation, **details}, files)
                answer, received = control.receive(channel)
        except (FileNotFoundError, ConnectionError) as error:
            raise _gone(self.id) from error
        if answer is None:
            raise _gone(self.id)
        if "error" in answer:
            _raise(answer["error"])
        return answer, received


def _gone(lab_id: str) -> LabError:
    return LabError(f"lab {lab_id}", "does not answer: it has ended.", "Start another one.")


def _raise(error: Mapping[str, Any]) -> None:
    number: int = error["errno"] or 0
    if number:
        raise OSError(number, os.strerror(number), error["where"])
    kind = UnknownHost if error["is_unknown_host"] else LabError
    raise kind(error["where"], error["what"], error["fix"])


def _refuse_doubles(hosts: Sequence[LabHost]) -> None:
    for what in ("name", "address"):
        values = [getattr(host, what) for host in hosts]
        doubles = sorted({value for value in values if values.count(value) > 1})
        if doubles:
            raise LabError(
                f"host {doubles[0]}",
                f"stands {values.count(doubles[0])} times in this lab by its {what}.",
                f"Give every host a {what} of its own.",
            )


def _content(descriptor: int) -> bytes:
    os.lseek(descriptor, 0, os.SEEK_SET)
    with os.fdopen(os.dup(descriptor), "rb") as file:
        return file.read()
