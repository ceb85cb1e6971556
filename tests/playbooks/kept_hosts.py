"""A kept rehearsal, and the real `ansible-playbook` and `fab` typed against its hosts."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from infra.rehearsal.lab.client import Lab
from infra.rehearsal.lab.registry import read_entries
from infra.spec.load import PROJECT
from tests.fab_process import run_fab

PROGRAMS = Path(sys.executable).parent
LIMIT_S = 120
# A master connection would outlive its playbook by a minute, and hosts that go away without a word.
SSH = "-o ControlMaster=no"
_RECAP = re.compile(r"^(\S+)\s+: (ok=.*)$", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """A command that has ended.

    Args:
        out: everything it printed, errors too.
    """

    code: int
    out: str

    def recap(self, host: str) -> dict[str, int]:
        """The counts of a host's line in the recap."""
        for name, counts in _RECAP.findall(self.out):
            if name == host:
                pairs = (word.split("=") for word in counts.split())
                return {word: int(number) for word, number in pairs}
        raise AssertionError(self.out)


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptHosts:
    """The hosts of a kept rehearsal.

    Args:
        choice: what names the stack for `fab`, `--stack NAME` or `--file PATH`.
        temporary: TMPDIR of every command.
        environment: further variables of every command.
    """

    id: str
    choice: tuple[str, str]
    inventory: str
    ssh_config: str
    temporary: Path
    environment: Mapping[str, str]

    def play(
        self,
        name: str,
        *words: str,
        inventory: str | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> Played:
        """Run a playbook of ours from the root of the repository."""
        option, value = self.choice
        chosen = () if inventory else ("-e", f"{option.removeprefix('--')}={value}")
        return self._run(
            str(PROGRAMS / "ansible-playbook"), f"ansible/{name}", "-i", inventory or self.inventory,
            *chosen, *words, environment=environment,
        )  # fmt: skip

    def fab(self, task: str, *words: str) -> Played:
        """Run a task of `fab`."""
        reached = ("--inventory", self.inventory)
        variables = {**os.environ, **self._variables(None)}
        done = run_fab(task, *self.choice, *reached, *words, environment=variables)
        return Played(code=done.returncode, out=done.stdout + done.stderr)

    def on(self, host: str, command: str) -> str:
        """What a command prints as root on a host."""
        done = subprocess.run(
            ["ssh", "-n", "-F", self.ssh_config, host, f"sudo sh -c '{command}'"],
            capture_output=True,
            text=True,
            check=False,
            timeout=LIMIT_S,
        )
        return done.stdout

    def lab(self) -> Lab:
        """The lab, for faults."""
        return Lab(next(entry for entry in read_entries() if entry.id == self.id))

    def _run(self, *words: str, environment: Mapping[str, str] | None = None) -> Played:
        done = subprocess.run(
            words,
            cwd=PROJECT,
            env={**os.environ, **self._variables(environment)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=LIMIT_S,
        )
        return Played(code=done.returncode, out=done.stdout)

    def _variables(self, environment: Mapping[str, str] | None) -> Mapping[str, str]:
        own = {"TMPDIR": str(self.temporary), "ANSIBLE_SSH_ARGS": SSH}
        return {**own, **self.environment, **(environment or {})}


def rehearse(
    choice: tuple[str, str], to_step: str, temporary: Path, environment: Mapping[str, str]
) -> KeptHosts:
    """Hosts as they are after a step, kept until `stop`."""
    done = run_fab("rehearse", *choice, "--keep", "--to-step", to_step, "--json")
    report = json.loads(done.stdout)
    kept = KeptHosts(
        id=report["id"],
        choice=choice,
        inventory=report["inventory"],
        ssh_config=report["ssh_config"],
        temporary=temporary,
        environment=environment,
    )
    if done.returncode != 0:
        stop(kept)  # a rehearsal that failed is kept too
        raise AssertionError(done.stderr)
    return kept


def stop(hosts: KeptHosts) -> None:
    """End the rehearsal."""
    run_fab("rehearse", "--stop", hosts.id)
