"""Starts a container's first process, passes its output and signals on, and sees it end."""

from __future__ import annotations

import os
import resource
import select
import sys

from . import linux
from .container_capabilities import CAPABILITIES
from .container_environment import resolve_program
from .container_root import RootPlan, enter_root
from .documents import format_document, parse_document
from .failures import Refusal

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal as _signal
    from typing import Any
else:
    import _signal  # the C module beneath `signal`, which would import `enum`

FORWARDED_SIGNALS = (
    _signal.SIGHUP, _signal.SIGINT, _signal.SIGQUIT, _signal.SIGUSR1, _signal.SIGUSR2, _signal.SIGTERM,
)  # fmt: skip
CHUNK_BYTES = 65536
CONVENTION_SIGNALLED = 128


class ContainerLaunch:
    """All that the first process of a container needs."""

    __slots__ = (
        "capabilities",
        "control_group",
        "engine_program",
        "gains_nothing",
        "host_name",
        "identity",
        "image",
        "keeps_input",
        "limits",
        "log_path",
        "namespaces",
        "plan",
        "preload_warnings",
        "terminal",
        "variables",
        "words",
        "working_folder",
    )

    def __init__(self, plan: RootPlan, image: dict[str, Any], words: list[str]) -> None:
        """Take root, image and command; the rest is set by `container_run`."""
        self.plan = plan
        self.image = image
        self.words = words
        self.engine_program = ""
        self.variables: dict[str, str] = {}
        self.preload_warnings = ""
        self.identity: tuple[int, int, list[int]] = (0, 0, [])
        self.capabilities: frozenset[str] = frozenset()
        self.gains_nothing = False
        self.limits: list[tuple[int, int, int]] = []
        self.namespaces = linux.CLONE_NEWNS
        self.host_name = ""
        self.working_folder = "/"
        self.control_group = ""
        self.terminal = False
        self.keeps_input = False
        self.log_path = ""


class RunningContainer:
    """A started first process: its id and the ends of its output, standard output first."""

    __slots__ = ("launch", "outputs", "pid")

    def __init__(self, launch: ContainerLaunch, pid: int, outputs: tuple[int, ...]) -> None:
        """Take what `start_process` made."""
        self.launch = launch
        self.pid = pid
        self.outputs = outputs


def start_process(launch: ContainerLaunch) -> RunningContainer:
    """Start a container and return once its program runs.

    Raises:
        Refusal: what the runtime refuses inside the container: mounts, users, the program.
    """
    status_reader, status_writer = os.pipe()
    pipes = () if launch.terminal else (os.pipe(), os.pipe())
    pid = os.fork()
    if pid == 0:
        _become_container(launch, status_writer, tuple(writer for _, writer in pipes))
    os.close(status_writer)
    for _, writer in pipes:
        os.close(writer)
    report = _read_all(status_reader)
    os.close(status_reader)
    if report:
        os.waitpid(pid, 0)
        _remove_control_group(launch.control_group)
        facts = parse_document(report.decode())
        raise Refusal(facts.pop("situation"), **facts)
    return RunningContainer(launch, pid, tuple(reader for reader, _ in pipes))


def forward_signals(container: RunningContainer) -> None:
    """Pass the signals of this process on to the container, as `--sig-proxy` does."""

    def pass_on(number: int, _frame: object) -> None:
        try:
            os.kill(container.pid, number)
        except ProcessLookupError:
            return

    for number in FORWARDED_SIGNALS:
        _signal.signal(number, pass_on)


def await_end(container: RunningContainer, *, passes_output: bool) -> int:
    """Pass output on until the first process ends, end what it left, and return its exit code."""
    if container.outputs:
        _relay(container, passes_output=passes_output)
    _, status = os.waitpid(container.pid, 0)
    _end_group(container)
    _remove_control_group(container.launch.control_group)
    if os.WIFSIGNALED(status):
        return CONVENTION_SIGNALLED + os.WTERMSIG(status)
    return os.WEXITSTATUS(status)


def _become_container(
    launch: ContainerLaunch, status_writer: int, output_writers: tuple[int, ...]
) -> None:
    """Turn this forked process into the container's program; never return."""
    try:
        for number in FORWARDED_SIGNALS:
            _signal.signal(number, _signal.SIG_DFL)
        _signal.signal(_signal.SIGPIPE, _signal.SIG_DFL)
        _connect_streams(launch, output_writers)
        if not launch.terminal:
            os.setsid()
        _join_control_group(launch.control_group)
        linux.unshare(launch.namespaces)
        enter_root(launch.plan)
        _enter_namespaces(launch)
        words = resolve_program(launch.words, launch.image, launch.engine_program)
        _take_identity(launch)
        if launch.preload_warnings:
            os.write(2, launch.preload_warnings.encode())
        os.execve(words[0], words, launch.variables)  # noqa: S606  it is what a container does
    except Refusal as refusal:
        report: dict[str, str] = {"situation": refusal.situation, **refusal.facts}
    except OSError as error:
        reason = f"{error.filename or 'start'}: {error.strerror or error}".lower()
        report = {"situation": "start_failed", "reason": reason}
    os.write(status_writer, format_document(report).encode())
    os._exit(CONVENTION_SIGNALLED)


def _connect_streams(launch: ContainerLaunch, output_writers: tuple[int, ...]) -> None:
    """Give the process its standard streams; without -i its input is empty."""
    for descriptor, writer in enumerate(output_writers, start=1):
        os.dup2(writer, descriptor)
    if not launch.keeps_input:
        empty = os.open("/dev/null", os.O_RDONLY)
        os.dup2(empty, 0)


def _enter_namespaces(launch: ContainerLaunch) -> None:
    """Set up what is the container's own beside its file system."""
    if launch.namespaces & linux.CLONE_NEWUTS:
        linux.set_host_name(launch.host_name)
    if launch.namespaces & linux.CLONE_NEWNET:
        linux.raise_loopback()
    os.makedirs(launch.working_folder, exist_ok=True)
    os.chdir(launch.working_folder)


def _take_identity(launch: ContainerLaunch) -> None:
    """Take limits, capabilities, groups and user, in the order that still has the right to each."""
    for number, soft, hard in launch.limits:
        try:
            resource.setrlimit(number, (soft, hard))
        except (ValueError, PermissionError):
            # not root of the machine: the most that this process may have
            most = resource.getrlimit(number)[1]
            resource.setrlimit(number, (most, most))
    linux.keep_capabilities({CAPABILITIES.index(name) for name in launch.capabilities})
    if launch.gains_nothing:
        linux.gain_nothing()
    user, group, further = launch.identity
    if (user, group, further) != (0, 0, []):
        os.setgroups(further)
        os.setgid(group)
        os.setuid(user)


def _relay(container: RunningContainer, *, passes_output: bool) -> None:
    """Copy output to the log and to this process' own streams until the first process has ended."""
    log = -1
    if container.launch.log_path:
        try:
            log = os.open(container.launch.log_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        except FileNotFoundError:  # the container has been removed already
            log = -1
    process = os.pidfd_open(container.pid)
    poller = select.poll()
    poller.register(process, select.POLLIN)
    for reader in container.outputs:
        os.set_blocking(reader, False)
        poller.register(reader, select.POLLIN)
    sources = {reader: number for number, reader in enumerate(container.outputs, start=1)}
    has_ended = False
    while not has_ended:
        ready = [descriptor for descriptor, _ in poller.poll()]
        has_ended = process in ready
        for reader in list(sources) if has_ended else [item for item in ready if item in sources]:
            targets = [log] if log >= 0 else []
            targets += [sources[reader]] if passes_output else []
            if not _copy_available(reader, targets):
                poller.unregister(reader)
                del sources[reader]
    for descriptor in (log, process):
        if descriptor >= 0:
            os.close(descriptor)


def _copy_available(reader: int, targets: list[int]) -> bool:
    """Copy what can be read now, and return whether more may come."""
    while True:
        try:
            chunk = os.read(reader, CHUNK_BYTES)
        except BlockingIOError:
            return True
        if not chunk:
            return False
        for target in targets:
            try:
                _write_all(target, chunk)
            except OSError:
                # nobody reads the client's output any more; the container goes on
                continue


def _write_all(target: int, chunk: bytes) -> None:
    """Write all of a chunk."""
    while chunk:
        chunk = chunk[os.write(target, chunk) :]


def _read_all(reader: int) -> bytes:
    """Read until the other side closes."""
    content = b""
    while True:
        chunk = os.read(reader, CHUNK_BYTES)
        if not chunk:
            return content
        content += chunk


def _join_control_group(folder: str) -> None:
    """Leave the client's control group, so that stopping its unit signals the client alone."""
    if not folder:
        return
    try:
        os.makedirs(folder, exist_ok=True)
        with open(folder + "/cgroup.procs", "w", encoding="ascii") as file:
            file.write("0")
    except OSError:
        # a host without a writable cgroup tree: the container stays where its client is
        return


def _end_group(container: RunningContainer) -> None:
    """End what the first process left running, as the end of a PID namespace does."""
    group = container.launch.control_group
    try:
        with open(group + "/cgroup.kill", "w", encoding="ascii") as file:
            file.write("1")
    except OSError:
        if not container.launch.terminal:
            try:
                os.killpg(container.pid, _signal.SIGKILL)
            except ProcessLookupError:
                return


def _remove_control_group(folder: str) -> None:
    """Remove a container's control group when it is empty."""
    try:
        if folder:
            os.rmdir(folder)
    except OSError:
        # its last processes are still ending; the next boot starts with an empty tree
        return


def flush_streams() -> None:
    """Write out what Python still holds before the process forks or ends abruptly."""
    sys.stdout.flush()
    sys.stderr.flush()
