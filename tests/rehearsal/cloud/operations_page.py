"""The pages of docs/operations-cloud.md, typed as they stand: real command line, emulated cloud."""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from infra.rehearsal.cloud.scratch_project import ScratchProject
from infra.spec.load import PROJECT
from infra.tasks.table import GROUPS
from tests.fab_process import run_fab
from tests.rehearsal.cloud.command import lift_deletion_protection, resources

PAGES = (PROJECT / "docs" / "operations-cloud.md").read_text(encoding="utf-8")
NEXT = "cr-0fedcba9876543210"  # bought for the time after the first reservation
OTHERS = ("aws", "kubectl")  # command lines that nothing answers here


def page(title: str, *, on: str = "AWS") -> list[str]:
    """The commands of a page, in order: its indented lines, without what is behind a `#`."""
    (text,) = [part.partition("\n")[2] for part in _parts(on) if part.partition("\n")[0] == title]
    text = text.partition("\n## ")[0]
    return [
        line.strip().partition("  #")[0] for line in text.splitlines() if line.startswith("    ")
    ]


def titles(on: str) -> list[str]:
    """The pages about AWS, or EKS."""
    return [part.partition("\n")[0] for part in _parts(on)]


def _parts(on: str) -> list[str]:
    return PAGES.split(f"\n## On {on}: ")[1:]


@dataclass
class Typist:
    """Types commands of a page in a scratch project, and keeps what was said.

    Args:
        names: what stands for the capital words of a page.
        elsewhere: commands of `fab` that need hosts: only that they can be typed is looked at; and those of others.
    """

    project: ScratchProject
    names: Mapping[str, str]
    said: dict[str, str] = field(default_factory=dict)
    elsewhere: list[str] = field(default_factory=list)

    def type(self, lines: Sequence[str]) -> None:
        """Type lines one after the other; each must end well."""
        for line in lines:
            words = [self._meant(word) for word in shlex.split(line)]
            if words[0] in OTHERS or (words[0] == "fab" and words[1] != "inventory"):
                if words[0] == "fab":
                    assert_can_be_typed(words[1:])
                if "--no-deletion-protection" in words:
                    lift_deletion_protection(self.project.cloud, words[words.index("--name") + 1])
                self.elsewhere.append(shlex.join(words))
                continue
            done = self.run(words)
            assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
            self.said[line] = done.stdout + done.stderr

    def run(self, words: Sequence[str]) -> subprocess.CompletedProcess[str]:
        """Run one command in the project's folder; `fab` anywhere."""
        environment = dict(self.project.environment)
        if words[0] == "fab":
            to = ("--to", str(self.project.folder / "inventory.yml"))
            return run_fab(*words[1:], *to, environment=environment)
        return subprocess.run(
            self._command(list(words)),
            cwd=self.project.folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    def _meant(self, word: str) -> str:
        return self.names.get(word, word)

    def _command(self, words: list[str]) -> list[str]:
        if words[0] == "scripts/init-stack":  # what the script runs once everything is installed
            return ["pulumi", "stack", "init", words[1], "--no-select", "--non-interactive"]
        if words[:2] in (["pulumi", "up"], ["pulumi", "destroy"], ["pulumi", "refresh"]):
            return [*words, "--yes", "--skip-preview", "--non-interactive", "--color", "never"]
        return [*words, "--non-interactive", "--color", "never"]


def assert_can_be_typed(words: Sequence[str]) -> None:
    """The task and its options are ones that `fab` has."""
    entries = {entry.name: entry for _, group in GROUPS for entry in group}
    known = {f"--{option.name}" for option in entries[words[0]].options}
    assert {word for word in words if word.startswith("--")} <= known, words


def set_up(typist: Typist) -> None:
    """What the first page has typed before anything is made."""
    lines = page("a first deployment")
    typist.type([line for line in lines if line.startswith(("scripts", "pulumi config"))])


def instances(typist: Typist) -> set[str]:
    """The ids of the machines that stand."""
    return {path.stem for path in resources(typist.project.cloud, "Instance")}
