"""The streamed operation `evidence`: what tells why ranks fail or hang, as a tar archive without secrets.

host/…              units, kernel log, what NCCL says of its jobs, connections, memory, tools of the vendor, rendered
                    files, and what the RDMA cards count, twice
ranks/<process>/…   unit, journal, container, and every process: status, limits, stack, wait channel,
                    environment, Python stacks where py-spy is installed
"""

import contextlib
import glob
import io
import os
import tarfile
import time
from typing import Callable, Dict, List, Optional, Tuple

from ..at_once import each_at_once
from ..facts.abandoned import within
from ..group.evidence import FOLDER as KEPT
from ..host import Host, Refused
from ..journal.lines import stamp
from ..journal.reading import ALL, read_tails
from .card_counters import CardCounters
from .masking import Mask, known_secrets, secret_values
from .nccl_ras import LIMIT_S, ask_ras, ras_addresses
from .record import Process, read_record, recorded_processes
from .unit_processes import UnitProcesses, container_of, find_processes, read_variables

JOURNAL_LINES = 20000
KERNEL_LINES = 5000
TOOL_S = 8.0
DEFAULT_S = 45.0
# systemd and two runtimes are asked; disks and mounts are read.
FIND_S = 32.0
FILE_S = 5.0
# For the environments of all processes together. The kernel reads them, and command lines, under a lock that a process
# in a wedged driver may hold for ever: of one that does not answer here neither is read again, nor by py-spy.
VARIABLES_S = 2.0
MAX_AT_ONCE = 256
MAX_FILE_BYTES = 1 << 22
MAX_PIDS = 64
PROC_FILES = ("status", "limits", "stack", "wchan")
# What each vendor's tools know of a fault; those that are not installed say so in one line.
TOOLS = (
    ("nvidia-smi", ["nvidia-smi", "-q"]),
    ("nvidia-smi-nvlink", ["nvidia-smi", "nvlink", "-e"]),
    ("nvidia-imex-ctl", ["nvidia-imex-ctl", "-N", "-j"]),
    ("amd-smi", ["amd-smi", "metric", "--json"]),
    ("rocm-smi-xgmi", ["rocm-smi", "--showxgmierr"]),
    ("npu-smi", ["npu-smi", "info"]),
    ("ibv_devinfo", ["ibv_devinfo"]),
)
# Of each Ascend device's network: packets with their errors, and when its link went up and down.
HCCN_TOPICS = ("-stat", "-link_stat")
HOST_COMMANDS = (
    ("connections.txt", ["ss", "-tnpi"]),
    ("processes.txt", ["ps", "-eo", "pid,ppid,stat,wchan:24,etime,rss,args"]),
    ("disks.txt", ["df", "-h"]),
    ("clock.txt", ["timedatectl", "show"]),
)
CARDS = "host/rdma-counters.txt"
HOST_FILES = ("/proc/meminfo", "/proc/loadavg", "/proc/cmdline", "/proc/version")

Write = Callable[[bytes], None]


def stream(request: Dict[str, object], host: Host, write: Write) -> Dict[str, object]:
    """Send the archive; the report says what was left out for want of time.

    Raises:
        Refused: the record is damaged.
    """
    record = str(request.get("record"))
    folder = os.path.dirname(record)
    rows = recorded_processes(read_record(host, record))
    until = time.monotonic() + float(str(request.get("collect_s") or DEFAULT_S))
    counters = CardCounters(host, until)
    mask = Mask(known_secrets(host, os.path.join(folder, "credentials")))
    sink = _Sink(write)
    with tarfile.open(mode="w|gz", fileobj=sink) as archive:
        collection = _Collection(host, archive, mask, until)
        collection.ranks(rows)
        collection.kernel()
        collection.collectives()
        collection.files("host/files", folder)
        # what the watcher has kept of earlier runs
        collection.files("host/earlier", os.path.join(KEPT, os.path.basename(folder)))
        collection.cards(counters)
        collection.host()
    return {
        "schema_version": 1,
        "processes": [{"id": row["id"], "role": row["role"]} for row in rows],
        "left_out": collection.left_out,
    }


class _Sink(io.RawIOBase):
    """Passes an archive on as it is written."""

    def __init__(self, write: Write) -> None:
        super().__init__()
        self._write = write

    def write(self, data: object) -> int:
        piece = bytes(memoryview(data))  # type: ignore[arg-type]  # any buffer
        self._write(piece)
        return len(piece)


class _Collection:
    """Puts one thing after the other into the archive, what tells most first, until the time is over."""

    def __init__(self, host: Host, archive: tarfile.TarFile, mask: Mask, until: float) -> None:
        self._host, self._archive, self._mask, self._until = host, archive, mask, until
        self._ras: List[str] = []
        self.left_out: List[str] = []

    def ranks(self, rows: List[Process]) -> None:
        """Every recorded process."""
        units = [str(row["unit"]) for row in rows]
        try:
            limit_s = min(FIND_S, self._left_s())
            found = within(limit_s, lambda: find_processes(self._host, units))
        except Refused as error:
            self._give_up("host/processes-of-units.txt", str(error))
            found = {}
        variables = self._variables([pid for each in found.values() for pid in each.pids])
        self._ras = ras_addresses(variables.values())
        for each in variables.values():
            self._mask.learn(secret_values(each))
        for row in rows:
            place = "ranks/{}".format(str(row["id"]).replace("/", "_"))
            self._rank(place, str(row["unit"]), found.get(str(row["unit"])), variables)
        for row in rows:
            place = "ranks/{}".format(str(row["id"]).replace("/", "_"))
            self._journal(place, str(row["unit"]))

    def kernel(self) -> None:
        """The kernel's log of this boot: Xid, out of memory, links."""
        argv = ["journalctl", "-k", "-b", "-q", "--no-pager", "-o", "short-iso-precise", "--utc"]
        self._command("host/kernel.log", [*argv, "-n", str(KERNEL_LINES)])

    def files(self, place: str, folder: str) -> None:
        """The files below a folder of this host; no credentials."""
        if self._is_over(place):
            return
        base = self._host.path(folder)
        try:
            paths = within(min(FILE_S, self._left_s()), lambda: _files_below(base))
        except Refused:
            self.left_out.append(place)
            return
        for path in paths:
            self._file("{}/{}".format(place, os.path.relpath(path, base)), path)

    def cards(self, counters: CardCounters) -> None:
        """What RDMA cards have counted, beside what they had when the collection began; nothing without a card."""
        if self._is_over(CARDS):
            return
        text = counters.again()
        if text:
            self._add(CARDS, text.encode())

    def collectives(self) -> None:
        """What NCCL says of the jobs of this host's ranks; one place speaks for all that share it."""
        for address in self._ras:
            name = "host/nccl-ras-{}.txt".format(address.rpartition(":")[2])
            if not self._is_over(name):
                self._add(name, ask_ras(address, min(LIMIT_S, self._left_s())))

    def host(self) -> None:
        """The state of the host, and what its vendor's tools say."""
        for path in HOST_FILES:
            self._file("host/" + os.path.basename(path) + ".txt", self._host.path(path))
        for name, argv in HOST_COMMANDS:
            self._command("host/" + name, argv)
        for name, argv in TOOLS:
            self._command("host/tools/{}.txt".format(name), argv)
        # one after another: several at once are refused as busy
        for device in self._ascend_devices():
            for topic in HCCN_TOPICS:
                argv = ["hccn_tool", "-i", device, topic, "-g"]
                self._command("host/tools/hccn{}-{}.txt".format(topic, device), argv)

    def _ascend_devices(self) -> List[str]:
        """Indices of this host's Ascend devices."""
        names = glob.glob(self._host.path("/dev/davinci[0-9]*"))
        return sorted((name.rpartition("davinci")[2] for name in names), key=int)

    def _rank(
        self,
        place: str,
        unit: str,
        found: Optional[UnitProcesses],
        variables: Dict[int, Dict[bytes, bytes]],
    ) -> None:
        self._command(place + "/unit.txt", ["systemctl", "status", "-l", "-n", "0", "--", unit])
        container = container_of(unit)
        if container is not None:  # also one that was kept because it failed
            for runtime in ("docker", "podman"):
                self._command(
                    "{}/{}.json".format(place, runtime),
                    [runtime, "inspect", container],
                    if_it_works=True,
                )
        for pid in (found.pids if found is not None else [])[:MAX_PIDS]:
            folder = "{}/{}".format(place, pid)
            for name in PROC_FILES:
                self._file(
                    "{}/{}".format(folder, name), self._host.path("/proc/{}/{}".format(pid, name))
                )
            if pid not in variables:
                self._give_up(folder + "/environ", "no answer within {:g} s".format(VARIABLES_S))
                continue
            self._file(folder + "/cmdline", self._host.path("/proc/{}/cmdline".format(pid)))
            self._add(folder + "/environ", self._mask.environment(variables[pid]))
            argv = ["py-spy", "dump", "--nonblocking", "--pid", str(pid)]
            self._command(folder + "/py-spy.txt", argv, if_it_works=True)

    def _variables(self, pids: List[int]) -> Dict[int, Dict[bytes, bytes]]:
        """The environment of each process that answers."""
        found: List[Tuple[int, Dict[bytes, bytes]]] = []

        def read(pid: int) -> None:
            found.append((pid, read_variables(self._host, pid)))

        with contextlib.suppress(Refused):  # who is not among them has not answered
            within(VARIABLES_S, lambda: each_at_once(read, pids, MAX_AT_ONCE))
        return dict(list(found))

    def _journal(self, place: str, unit: str) -> None:
        if self._is_over(place + "/journal.txt"):
            return
        try:
            tails = read_tails(self._host, [unit], JOURNAL_LINES, ALL, None).units
        except Refused as error:
            self._add(place + "/journal.txt", str(error).encode())
            return
        lines = [
            stamp(time_us).encode() + b" " + message
            for tail in tails
            for time_us, message in zip(tail.times, tail.messages)
        ]
        self._add(place + "/journal.txt", b"\n".join(lines) + b"\n")

    def _command(self, name: str, argv: List[str], *, if_it_works: bool = False) -> None:
        """The output of a program; one that is not there is one line, or nothing."""
        if self._is_over(name):
            return
        done = self._host.run(argv, min(TOOL_S, self._left_s()))
        if if_it_works and done.exit_code != 0:
            return
        text = done.stdout if done.exit_code == 0 else done.stdout + done.stderr
        self._add(name, text.encode())

    def _file(self, name: str, path: str) -> None:
        if self._is_over(name):
            return
        try:
            text = within(min(FILE_S, self._left_s()), lambda: _read_file(path))
        except OSError as error:
            text = (error.strerror or "").encode()
        except Refused as error:
            self._give_up(name, str(error))
            return
        self._add(name, text)

    def _give_up(self, name: str, why: str) -> None:
        """Say in its place, and in the report, that something did not answer."""
        self.left_out.append(name)
        self._add(name, why.encode())

    def _add(self, name: str, content: bytes) -> None:
        masked = self._mask.text(content)
        member = tarfile.TarInfo(name)
        member.size, member.mtime, member.mode = len(masked), int(time.time()), 0o600
        self._archive.addfile(member, io.BytesIO(masked))

    def _left_s(self) -> float:
        return max(0.0, self._until - time.monotonic())

    def _is_over(self, name: str) -> bool:
        """Whether there is no time left; what is left out is noted."""
        if time.monotonic() < self._until:
            return False
        self.left_out.append(name)
        return True


def _files_below(base: str) -> List[str]:
    """Where they lie, in order; no credentials."""
    paths = []
    for where, folders, names in os.walk(base):
        folders[:] = sorted(name for name in folders if name != "credentials")
        paths += [os.path.join(where, name) for name in sorted(names)]
    return paths


def _read_file(path: str) -> bytes:
    with open(path, "rb") as content:
        text = content.read(MAX_FILE_BYTES)
    # where it is cut, half a secret may stand that nothing knows
    return text if len(text) < MAX_FILE_BYTES else text[: text.rfind(b"\n") + 1]
