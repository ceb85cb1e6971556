"""Every change of a standing stack, with the real engine: preview announces what `up` does (docs/changing.md)."""

from __future__ import annotations

import json
import re
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from infra.rehearsal.cloud.scratch_project import RESERVATION, ScratchProject
from infra.rehearsal.cloud.store import Store, read_account, write_account
from infra.spec.load import PROJECT
from tests.provision.belongings import their_network
from tests.rehearsal.cloud.command import Pulumi
from tests.rehearsal.cloud.operations_page import NEXT
from tests.rehearsal.cloud.refusing import started

PAGE = PROJECT / "docs" / "changing.md"
CASES = yaml.safe_load((PROJECT / "tests" / "cases" / "changes_on_aws.yaml").read_text("utf-8"))
MACHINES = "aws:ec2/instance:Instance"
# what the engine does to a resource, in the table's words; a replacement is three steps, of which one is counted
WORDS = {
    "create": "made",
    "update": "changed in place",
    "replace": "replaced",
    "delete": "taken away",
}
HEAD = """\
# What changing this costs

Written by `pytest tests/rehearsal/cloud/test_what_changing_costs.py --update-golden`. The stack `{stack}` stands, with
six machines of a reservation, when each change is made. `pulumi preview` and `pulumi up` of the real engine then did
this in the emulated cloud, and both did the same. Every key of `Pulumi.yaml` that a stack on EC2 reads is here.

| change | machines | everything else |
|---|---|---|
"""


@dataclass(frozen=True)
class Standing:
    """A stack that stands, and how it was when it had just come up."""

    project: ScratchProject
    pulumi: Pulumi
    kept: Path

    def restore(self) -> None:
        """Everything as it was: project, account and state."""
        scratch = self.project.folder.parent
        for each in self.kept.iterdir():
            shutil.rmtree(scratch / each.name)
            shutil.copytree(each, scratch / each.name, symlinks=True)


@pytest.fixture
def standing(make_project: Callable[..., ScratchProject], tmp_path: Path) -> Standing:
    project = make_project(CASES["stack"])
    pulumi = started(project)
    done = pulumi("up", "--yes", "--skip-preview")
    assert done.returncode == 0, done.stdout + done.stderr
    account = read_account(project.cloud)
    account = replace(
        account,
        key_pairs=(*account.key_pairs, "another"),
        buckets=(*account.buckets, "their-weights"),
        images={**account.images, "ami-0123456789abcdef0": "aarch64"},
        reservations={**account.reservations, NEXT: account.reservations[RESERVATION]},
    )
    write_account(project.cloud, account)
    scratch, kept = project.folder.parent, tmp_path / "kept"
    kept.mkdir()
    for each in scratch.iterdir():
        if each.is_dir() and each.name != "bin":
            shutil.copytree(each, kept / each.name, symlinks=True)
    return Standing(project, pulumi, kept)


@pytest.mark.pulumi
@pytest.mark.slow  # two operations of the real engine for each of thirty changes
def test_preview_announces_what_up_does_and_the_page_says_so(
    standing: Standing, *, update_golden: bool
) -> None:
    rows = [
        *(change_config(standing, key, value) for key, value in CASES["config"].items()),
        *(change_fields(standing, name, fields) for name, fields in CASES["fields"].items()),
    ]
    text = HEAD.format(stack=CASES["stack"]) + "".join(f"| {' | '.join(row)} |\n" for row in rows)
    if update_golden:
        PAGE.write_text(text, encoding="utf-8")
    assert PAGE.read_text(encoding="utf-8") == text, "run this test with --update-golden"


def test_every_key_has_its_change() -> None:
    declared = set(yaml.safe_load((PROJECT / "Pulumi.yaml").read_text("utf-8"))["config"])
    assert declared == {*CASES["config"], *CASES["not_read"]}


def change_config(standing: Standing, key: str, value: str) -> tuple[str, str, str]:
    """What another value of `pulumi config` does."""
    standing.restore()
    if value == "theirs":
        zones = (read_account_zone(standing),)
        subnet, *_ = their_network(Store(standing.project.cloud), region="us-east-1", zones=zones)
        value = subnet.id
    assert standing.pulumi("config", "set", key, value).returncode == 0
    return (f"`{key}`", *did(standing))


def change_fields(standing: Standing, name: str, fields: Mapping[str, Any]) -> tuple[str, str, str]:
    """What other fields of the stack file do."""
    standing.restore()
    path = standing.project.folder / "stacks" / f"{standing.project.stack}.yaml"
    document = merged(yaml.safe_load(path.read_text("utf-8")), fields)
    path.write_text(yaml.safe_dump(document), encoding="utf-8")
    return (f"`{name}`", *did(standing))


def merged(old: Any, new: Any) -> Any:
    """A document with other values where `new` has some."""
    if not isinstance(old, dict) or not isinstance(new, dict):
        return new
    return {**old, **{key: merged(old.get(key), value) for key, value in new.items()}}


def read_account_zone(standing: Standing) -> str:
    """The zone that the stack's machines stand in."""
    config = standing.project.folder / "stacks" / f"Pulumi.{standing.project.stack}.yaml"
    return str(yaml.safe_load(config.read_text("utf-8"))["config"]["moe-infra:zone_id"])


def did(standing: Standing) -> tuple[str, str]:
    """(of machines, of everything else): what `up` did, after preview had announced the same."""
    before = {path: path.read_bytes() for path in standing.project.cloud.rglob("*.json")}
    announced = steps_of_preview(standing.pulumi)
    happened = steps_of_up(standing.pulumi)
    assert happened == announced
    if isinstance(happened, str):
        after = {path: path.read_bytes() for path in standing.project.cloud.rglob("*.json")}
        assert after == before, "refused, and something was made"
        return f"refused: `{happened}`", "nothing"
    return told(happened, machines=True), told(happened, machines=False)


def steps_of_preview(pulumi: Pulumi) -> Counter[tuple[str, str]] | str:
    """(kind, what) → how many, or the rule that refuses."""
    done = pulumi("preview", "--json")
    document = json.loads(done.stdout)
    if done.returncode != 0:
        return refused_by(document["diagnostics"])
    steps = document["steps"]
    return counted((each["op"], each["urn"].split("::")[2].rpartition("$")[2]) for each in steps)


def steps_of_up(pulumi: Pulumi) -> Counter[tuple[str, str]] | str:
    """The same of what was done."""
    done = pulumi("up", "--json", "--yes", "--skip-preview")
    events = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode != 0:
        return refused_by([each["diagnosticEvent"] for each in events if "diagnosticEvent" in each])
    told = [each["resourcePreEvent"]["metadata"] for each in events if "resourcePreEvent" in each]
    return counted((each["op"], each["type"]) for each in told)


def counted(steps: Iterator[tuple[str, str]]) -> Counter[tuple[str, str]]:
    return Counter((op, kind) for op, kind in steps if op in WORDS and ":" in kind)


def refused_by(diagnostics: Sequence[Mapping[str, str]]) -> str:
    """The rule by which the program refused; a fault of the cloud is no refusal."""
    said = "\n".join(each["message"] for each in diagnostics if each["severity"] == "error")
    found = re.findall(r"\[([a-z]+(?:-[a-z]+)+)\]", said)
    if "because it is protected" in said:
        found.append("protected")
    assert found, said
    assert "Traceback" not in said
    return "`, `".join(dict.fromkeys(found))


def told(steps: Counter[tuple[str, str]], *, machines: bool) -> str:
    """In words, by what was done."""
    parts = []
    for op, word in WORDS.items():
        kinds = {k: n for (o, k), n in steps.items() if o == op and (k == MACHINES) == machines}
        if not kinds:
            continue
        names = ", ".join(f"{n} {k.rpartition(':')[2]}" for k, n in sorted(kinds.items()))
        parts.append(f"{sum(kinds.values())} {word}" if machines else f"{word}: {names}")
    return "; ".join(parts) or "nothing"
