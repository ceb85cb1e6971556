"""The real `fab rehearse` as a subprocess, and what it leaves on the machine, looked at from outside."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from infra.rehearsal.lab import registry
from infra.spec.load import PROJECT
from tests.fab_process import FAB, run_fab

__all__ = [
    "FAB",
    "Done",
    "Shell",
    "end",
    "mentioning",
    "mounts",
    "process_tree",
    "program_of",
    "wait_for",
]
LIMIT_S = 120.0
GONE_LIMIT_S = 5.0
CGROUP_ROOTS = (Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/unified"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """A command that has ended."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> dict[str, Any]:
        """The one JSON document on standard output."""
        assert self.out.count("\n") == 1, self.out + self.err
        document: dict[str, Any] = json.loads(self.out)
        return document

    def refused(self, code: int, *said: str) -> None:
        """It left with this code, saying this, in a message that is no traceback."""
        assert self.code == code, self.err
        assert "\nTraceback" not in self.err  # an engine's own stands indented, in its log
        for words in said:
            assert words in self.err, self.err


@dataclass(frozen=True, slots=True)
class Shell:
    """Where commands are typed; all of their temporary files lie in one folder, so that they can be told.

    Args:
        temporary: TMPDIR of every command.
        environment: further variables.
        seen: process ids of commands' whole trees, as far as looked at, with their start times.
        labs: ids of the labs of those commands.
    """

    temporary: Path
    environment: dict[str, str] = field(default_factory=dict)
    seen: dict[int, int] = field(default_factory=dict)
    labs: set[str] = field(default_factory=set)

    def fab(self, *words: str, limit_s: float = LIMIT_S) -> Done:
        """Run `fab` to its end."""
        done = run_fab(*words, environment=self.variables(), own_session=True, timeout_s=limit_s)
        return Done(code=done.returncode, out=done.stdout, err=done.stderr)

    def run(self, *words: str) -> Done:
        """Run a program to its end."""
        process = self.start(*words)
        try:
            out, err = process.communicate(timeout=LIMIT_S)
        except BaseException:
            process.kill()
            process.communicate()
            raise
        return Done(code=process.returncode, out=out, err=err)

    def start(self, *words: str) -> subprocess.Popen[str]:
        """Start a program in a process group of its own, without a terminal or standard input."""
        return subprocess.Popen(
            words,
            cwd=PROJECT,
            env=self.variables(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def variables(self) -> dict[str, str]:
        """The environment of every command."""
        return {**os.environ, "TMPDIR": str(self.temporary), **self.environment}

    def entries(self) -> list[registry.LabEntry]:
        """The rehearsals that were started here and are registered."""
        return [e for e in registry.read_entries() if e.directory.startswith(str(self.temporary))]

    def look(self, process: subprocess.Popen[str]) -> frozenset[str]:
        """Remember every process and lab of a command that runs; the words of its programs."""
        tree = process_tree(process.pid)
        self.seen.update({pid: registry.start_ticks(pid) or 0 for pid in tree})
        self.labs.update(entry.id for entry in self.entries())
        return frozenset(filter(None, map(program_of, tree)))

    def left(self) -> list[str]:
        """What of everything that was started here is still there."""
        alive = {pid for pid, ticks in self.seen.items() if registry.start_ticks(pid) == ticks}
        alive.update(mentioning(str(self.temporary)))
        found = [f"process {pid}: {program_of(pid)}" for pid in sorted(alive)]
        found += [line for line in mounts() if str(self.temporary) in line]
        # a walk, unlike a glob, does not mind what goes away meanwhile
        found += [
            f"{folder}/{name}" for folder, _, names in os.walk(self.temporary) for name in names
        ]
        self.labs.update(entry.id for entry in self.entries())
        for lab in self.labs:
            places = [registry.control_socket(lab).parent]
            places += [root / f"moe-lab-{lab}" for root in CGROUP_ROOTS]
            found += [str(place) for place in places if place.exists()]
        return found

    def assert_nothing_left(self, *, empty_folders: bool = False) -> None:
        """Everything that was started here goes within moments.

        Args:
            empty_folders: whether those may stay, as after SIGKILL.
        """

        def what() -> list[str]:
            folders = [] if empty_folders else [str(path) for path in self.temporary.iterdir()]
            return self.left() + folders

        deadline = time.monotonic() + GONE_LIMIT_S
        while what() and time.monotonic() < deadline:
            time.sleep(0.05)
        assert what() == []


def wait_for(process: subprocess.Popen[str], words: str) -> str:
    """Read what a command says until a line holds the words; everything so far."""
    said = ""
    assert process.stderr is not None
    for line in process.stderr:
        said += line
        if words in line:
            return said
    message = f"it ended without {words!r}: {said}"
    raise AssertionError(message)


def end(process: subprocess.Popen[str], number: signal.Signals) -> Done:
    """Send a signal, to the whole group where a terminal would, and wait for the end."""
    if number in {signal.SIGINT, signal.SIGHUP}:
        os.killpg(process.pid, number)
    else:
        process.send_signal(number)
    out, err = process.communicate(timeout=30)
    return Done(code=process.returncode, out=out, err=err)


def process_tree(root: int) -> frozenset[int]:
    """A process and all of its descendants."""
    parents: dict[int, int] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            parents[int(folder.name)] = int(fields[1])
    tree = {root}
    while True:
        more = {pid for pid, parent in parents.items() if parent in tree} - tree
        if not more:
            return frozenset(tree)
        tree |= more


def program_of(pid: int) -> str:
    """A process's words; empty when it has gone."""
    try:
        return (
            Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        )
    except OSError:
        return ""


def mentioning(words: str) -> list[int]:
    """Processes that were started with these words among their arguments or variables."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            said = (folder / "cmdline").read_bytes() + (folder / "environ").read_bytes()
            if words.encode() in said and int(folder.name) != os.getpid():
                found.append(int(folder.name))
    return found


def mounts() -> list[str]:
    """Every mount that this machine shows."""
    return Path("/proc/mounts").read_text().splitlines()
