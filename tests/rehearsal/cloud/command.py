"""The real Pulumi command line in a scratch project."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

STACK = "gb200-2p1d"
EKS_STACK = "eks-b200-tp8"
# What outlives everything else of a stack that keeps its weights in a bucket.
BUCKET_KINDS = [
    "Bucket",
    "BucketLifecycleConfiguration",
    "BucketPolicy",
    "BucketPublicAccessBlock",
    "BucketVersioning",
]


def resources(cloud: Path, kind: str) -> list[Path]:
    """The files of an emulated account's resources of a kind (`Instance`)."""
    return sorted((cloud / "resources" / kind).glob("*.json"))


def kinds_left(cloud: Path) -> list[str]:
    """The kind of each resource that an emulated account holds, sorted."""
    return sorted(path.parent.name for path in (cloud / "resources").glob("*/*.json"))


def edit_stack(folder: Path, stack: str, **fields: object) -> None:
    """What an operator changes in the file of a stack of a scratch project."""
    own = folder / "stacks" / f"{stack}.yaml"
    document = yaml.safe_load(own.read_text(encoding="utf-8"))
    own.write_text(yaml.safe_dump({**document, **fields}), encoding="utf-8")


def waits(state: Mapping[str, Any]) -> dict[str, dict[str, float]]:
    """How long the engine waits for resources of an exported state: seconds by kind of change, by `Type name`."""
    found = {}
    for each in state["deployment"]["resources"]:
        seconds = each.get("customTimeouts") or {}
        if seconds:
            name = f"{each['type'].rpartition(':')[2]} {each['urn'].rpartition('::')[2]}"
            found[name] = {kind: value for kind, value in seconds.items() if value}
    return found


@dataclass(frozen=True)
class Pulumi:
    """The command line in a scratch project; `said` is all that it has printed."""

    folder: Path
    environment: Mapping[str, str]
    stack: str = STACK
    limit_s: float = 120
    said: list[str] = field(default_factory=list)

    @property
    def written(self) -> tuple[Path, ...]:
        """The folders that it writes to: configuration, state with its history, what the engine keeps for itself."""
        state = Path(self.environment["PULUMI_BACKEND_URL"].removeprefix("file://"))
        return self.folder, state, Path(self.environment["PULUMI_HOME"])

    def __call__(self, *words: str) -> subprocess.CompletedProcess[str]:
        command = ("pulumi", *words, "--stack", self.stack, "--non-interactive", "--color", "never")
        try:
            done = subprocess.run(
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
        self.said.extend((done.stdout, done.stderr))
        return done

    def changes(self, *words: str) -> dict[str, int]:
        """The counts of a finished operation, by kind of change."""
        (summary,) = (each["summaryEvent"] for each in self._run(*words) if "summaryEvent" in each)
        counts: dict[str, int] = summary["resourceChanges"]
        return counts

    def steps(self, *words: str) -> dict[str, set[str]]:
        """The resources that a finished operation came to, as `Type name`, by what it did to them."""
        found: dict[str, set[str]] = {}
        for event in self._run(*words):
            if "resOutputsEvent" in event:
                told = event["resOutputsEvent"]["metadata"]
                name = f"{told['type'].rpartition(':')[2]} {told['urn'].rpartition('::')[2]}"
                found.setdefault(told["op"], set()).add(name)
        return found

    def _run(self, *words: str) -> list[dict[str, Any]]:
        """The events of an operation that ends well."""
        done = self(*words, "--json", "--yes", "--skip-preview")
        told = [line for line in done.stdout.splitlines() if '"severity":"debug"' not in line]
        assert done.returncode == 0, "\n".join(told) + done.stderr
        return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def lift_deletion_protection(cloud: Path, name: str) -> None:
    """What `aws eks update-cluster-config --no-deletion-protection` does."""
    (path,) = (each for each in resources(cloud, "Cluster") if each.stem == name)
    document = json.loads(path.read_text())
    for part in ("inputs", "outputs"):
        document[part]["deletionProtection"] = False
    path.write_text(json.dumps(document))


def destroy_all_but_weights(pulumi: Pulumi) -> None:
    """What an operator types at the end of a reservation: machines first, protected or not."""
    for words in (
        ("--ignore-protect", "--target-dependents", "--target", "**:Instance::**"),
        ("--exclude-protected",),
    ):
        done = pulumi("destroy", "--yes", "--skip-preview", *words)
        assert done.returncode == 0, done.stdout + done.stderr
