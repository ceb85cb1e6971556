"""Every change of a standing stack, with the real engine: preview announces what `up` does (docs/changing*.md)."""

from __future__ import annotations

import json
import re
import shutil
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from infra.rehearsal.cloud.scratch_project import RESERVATION, ScratchProject
from infra.rehearsal.cloud.store import OwnKey, Store, read_account, write_account
from infra.spec.load import PROJECT
from tests.provision.belongings import their_network
from tests.rehearsal.cloud.command import Pulumi, resources
from tests.rehearsal.cloud.operations_page import NEXT
from tests.rehearsal.cloud.refusing import started

CASES = {
    path.stem.removeprefix("changes_on_"): yaml.safe_load(path.read_text("utf-8"))
    for path in sorted((PROJECT / "tests" / "cases").glob("changes_on_*.yaml"))
}
# what the engine does to a resource, in the table's words; a replacement is three steps, of which one is counted
WORDS = {
    "create": "made",
    "update": "changed in place",
    "replace": "replaced",
    "delete": "taken away",
}
HEAD = """\
# {title}

Written by `pytest tests/rehearsal/cloud/test_what_changing_costs.py --update-golden`. The stack `{stack}` stands, with
{stands}, when each change is made. `pulumi preview` and `pulumi up` of the real engine then did
this in the emulated cloud, and both did the same. Every key of `Pulumi.yaml` that such a stack reads is here.

| change | {machines} | everything else |
|---|---|---|
"""


# (operation, type) → how many; or the rule that refused
Steps = Counter[tuple[str, str]] | str


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


@pytest.fixture(params=sorted(CASES))
def platform(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def standing(
    make_project: Callable[..., ScratchProject], tmp_path: Path, platform: str
) -> Standing:
    project = make_project(CASES[platform]["stack"])
    pulumi = started(project)
    done = pulumi("up", "--yes", "--skip-preview")
    assert done.returncode == 0, done.stdout + done.stderr
    account = read_account(project.cloud)
    account = replace(
        account,
        key_pairs=(*account.key_pairs, "another"),
        buckets=(*account.buckets, "their-weights"),
        keys={str(CASES[platform]["config"]["kms_key_arn"]): OwnKey()},
        topics=("capacity-ends",),
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
    standing: Standing, platform: str, *, update_golden: bool
) -> None:
    cases = CASES[platform]
    page = PROJECT / "docs" / cases["page"]
    rows = [
        *((key, change_config(standing, key, value)) for key, value in cases["config"].items()),
        *((name, change_fields(standing, name, each)) for name, each in cases["fields"].items()),
    ]
    text = HEAD.format_map(cases) + "".join(
        f"| `{name}` | {' | '.join(told(steps, cases['kinds']))} |\n" for name, steps in rows
    )
    if update_golden:
        page.write_text(text, encoding="utf-8")
    assert page.read_text(encoding="utf-8") == text, "run this test with --update-golden"


@pytest.mark.parametrize("platform", sorted(CASES))
def test_every_key_has_its_change(platform: str) -> None:
    declared = set(yaml.safe_load((PROJECT / "Pulumi.yaml").read_text("utf-8"))["config"])
    assert declared == {*CASES[platform]["config"], *CASES[platform]["not_read"]}


def change_config(standing: Standing, key: str, value: str) -> Steps:
    """What another value of `pulumi config` does."""
    standing.restore()
    if value == "theirs":
        region, zone = place_of(standing)
        subnet, *_ = their_network(Store(standing.project.cloud), region=region, zones=(zone,))
        value = subnet.id
    assert standing.pulumi("config", "set", key, value).returncode == 0
    return did(standing)


def change_fields(standing: Standing, name: str, fields: Mapping[str, Any]) -> Steps:
    """What other fields of the stack file do."""
    standing.restore()
    path = standing.project.folder / "stacks" / f"{standing.project.stack}.yaml"
    document = merged(yaml.safe_load(path.read_text("utf-8")), fields)
    path.write_text(yaml.safe_dump(document), encoding="utf-8")
    return did(standing)


def merged(old: Any, new: Any) -> Any:
    """A document with other values where `new` has some."""
    if not isinstance(old, dict) or not isinstance(new, dict):
        return new
    return {**old, **{key: merged(old.get(key), value) for key, value in new.items()}}


def place_of(standing: Standing) -> tuple[str, str]:
    """Region and zone that the stack's machines stand in."""
    config = standing.project.folder / "stacks" / f"Pulumi.{standing.project.stack}.yaml"
    values = yaml.safe_load(config.read_text("utf-8"))["config"]
    return str(values["aws:region"]), str(values["moe-infra:zone_id"])


def did(standing: Standing) -> Steps:
    """What `up` did, after preview had announced the same."""
    before = {path: path.read_bytes() for path in standing.project.cloud.rglob("*.json")}
    announced = steps_of_preview(standing.pulumi)
    happened = steps_of_up(standing.pulumi)
    assert happened == announced
    if isinstance(happened, str):
        after = {path: path.read_bytes() for path in standing.project.cloud.rglob("*.json")}
        assert after == before, "refused, and something was made"
    return happened


def steps_of_preview(pulumi: Pulumi) -> Steps:
    """(kind, what) → how many, or the rule that refuses."""
    done = pulumi("preview", "--json")
    document = json.loads(done.stdout)
    if done.returncode != 0:
        return refused_by(document["diagnostics"])
    steps = document["steps"]
    return counted((each["op"], each["urn"].split("::")[2].rpartition("$")[2]) for each in steps)


def steps_of_up(pulumi: Pulumi) -> Steps:
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


def told(steps: Steps, machines: Collection[str]) -> tuple[str, str]:
    """(of machines, of everything else): what was done, in words."""
    if isinstance(steps, str):
        return f"refused: `{steps}`", "nothing"
    own = Counter({step: n for step, n in steps.items() if step[1] in machines})
    counts = [
        f"{n} {WORDS[op]}" for op in WORDS if (n := sum(own[step] for step in own if step[0] == op))
    ]
    rest = [f"{word}: {names}" for op, word in WORDS.items() if (names := _named(steps - own, op))]
    return "; ".join(counts) or "nothing", "; ".join(rest) or "nothing"


def _named(steps: Counter[tuple[str, str]], op: str) -> str:
    kinds = sorted((kind, n) for (each, kind), n in steps.items() if each == op)
    return ", ".join(f"{n} {kind.rpartition(':')[2]}" for kind, n in kinds)


@pytest.mark.pulumi
@pytest.mark.slow  # four operations of the real engine
def test_a_network_in_which_no_machine_stands_yet_may_change_and_change_back(
    make_project: Callable[..., ScratchProject],
) -> None:
    project = make_project()
    pulumi, account = started(project), read_account(project.cloud)
    write_account(project.cloud, replace(account, instances_before_capacity_runs_out=0))
    for block in ("10.64.0.0/16", "10.80.0.0/16", "10.64.0.0/16"):
        assert pulumi("config", "set", "vpc_cidr", block).returncode == 0
        done = pulumi("up", "--yes", "--skip-preview")
        said = done.stdout + done.stderr
        assert done.returncode != 0
        assert "InsufficientInstanceCapacity" in said
        assert "AlreadyAssociated" not in said
    write_account(project.cloud, account)
    done = pulumi("up", "--yes", "--skip-preview")
    assert done.returncode == 0, done.stdout + done.stderr
    left = [
        len(resources(project.cloud, each)) for each in ("Vpc", "NatGateway", "Eip", "Instance")
    ]
    assert left == [1, 1, 1, 6]
    assert set(pulumi.changes("up")) == {"same"}
