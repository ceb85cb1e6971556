"""The real Pulumi command line in a scratch project."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

STACK = "gb200-2p1d"


def resources(cloud: Path, kind: str) -> list[Path]:
    """The files of an emulated account's resources of a kind (`Instance`)."""
    return sorted((cloud / "resources" / kind).glob("*.json"))


def kinds_left(cloud: Path) -> list[str]:
    """The kind of each resource that an emulated account holds, sorted."""
    return sorted(path.parent.name for path in (cloud / "resources").glob("*/*.json"))


@dataclass(frozen=True)
class Pulumi:
    """The command line in a scratch project."""

    folder: Path
    environment: Mapping[str, str]
    stack: str = STACK
    limit_s: float = 120

    def __call__(self, *words: str) -> subprocess.CompletedProcess[str]:
        command = ("pulumi", *words, "--stack", self.stack, "--non-interactive", "--color", "never")
        try:
            return subprocess.run(
                command,
                cwd=self.folder,
                env=dict(self.environment),
                capture_output=True,
                text=True,
                timeout=self.limit_s,
                check=False,
            )
        except subprocess.TimeoutExpired as late:
            said = f"{late.stdout!r} {late.stderr!r}"
            pytest.fail(f"pulumi {words[0]} did not end in {late.timeout} s: {said}")

    def changes(self, *words: str) -> dict[str, int]:
        """The counts of a finished operation, by kind of change."""
        done = self(*words, "--json", "--yes", "--skip-preview")
        told = [line for line in done.stdout.splitlines() if '"severity":"debug"' not in line]
        assert done.returncode == 0, "\n".join(told) + done.stderr
        events = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
        (summary,) = [event["summaryEvent"] for event in events if "summaryEvent" in event]
        counts: dict[str, int] = summary["resourceChanges"]
        return counts
