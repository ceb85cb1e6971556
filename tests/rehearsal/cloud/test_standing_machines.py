"""A standing stack that is changed, with the real engine: what preview announces is what `up` does to machines."""

from __future__ import annotations

import base64
import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from infra.provision.naming import give_back_machines
from infra.rehearsal.cloud import operations
from infra.rehearsal.cloud.machine_kinds import TEMPLATE
from infra.rehearsal.cloud.scratch_project import ScratchProject
from infra.rehearsal.cloud.wire import UNKNOWN
from tests.rehearsal.cloud.command import EKS_STACK, STACK, Pulumi, edit_stack, resources
from tests.rehearsal.cloud.conftest import Cloud
from tests.rehearsal.cloud.refusing import started

Make = Callable[..., ScratchProject]


def test_a_preview_does_not_know_the_number_of_a_version_that_is_yet_to_be_made(
    cloud: Cloud,
) -> None:
    template = cloud.template(*cloud.network(), updateDefaultVersion=True)

    def previewed(**changed: object) -> dict[str, object]:
        new = {**template.inputs, **changed}
        return operations.preview_change(TEMPLATE, template.inputs, template.outputs, new)

    assert previewed()["latestVersion"] == 1
    assert previewed(description="x")["latestVersion"] == 1
    assert previewed(keyName="other")["latestVersion"] == UNKNOWN
    assert previewed(keyName="other")["defaultVersion"] == UNKNOWN
    assert previewed(tags={"owner": "me"})["latestVersion"] == UNKNOWN


@pytest.mark.pulumi
@pytest.mark.slow  # a rack comes up, is asked nine things and loses one machine
def test_machines_that_stand_are_replaced_when_they_are_named_and_never_else(
    make_project: Make,
) -> None:
    project = make_project()
    pulumi = started(project)
    ok(pulumi, "up", "--yes", "--skip-preview")
    before = machines(project.cloud)
    assert len(before) == 6

    # what a machine takes at its launch alone
    ok(pulumi, "config", "set", "root_volume_gib", "500")
    for words in (("preview",), ("up", "--yes", "--skip-preview")):
        said = refused(pulumi, *words)
        assert (
            "4 machines of decode were launched with another root_volume_gib (300; now 500)" in said
        )
        assert f"pulumi config set replace_machines decode-0 --stack {STACK}" in said
    assert machines(project.cloud) == before

    # hosts of both groups are named, a wrong name first
    ok(pulumi, "config", "set", "replace_machines", "decode-9,prefill-0")
    said = refused(pulumi, "preview")
    assert "decode-9 is no host of gb200-2p1d" in said
    assert "Did you mean decode-3, decode-2 or decode-1? Type: pulumi config set" in said
    ok(pulumi, "config", "set", "replace_machines", "decode-1,prefill-0")
    assert replaced(pulumi) == 2
    ok(pulumi, "up", "--yes", "--skip-preview")
    now = machines(project.cloud)
    assert {name for name in before if before[name] != now[name]} == {"decode-1", "prefill-0"}

    # the others stay as they are, now that the template says so, too
    ok(pulumi, "config", "rm", "replace_machines")
    assert replaced(pulumi) == 0
    ok(pulumi, "up", "--yes", "--skip-preview")
    assert machines(project.cloud) == now
    assert_nothing_takes_a_machine_by_accident(project, pulumi)


def assert_nothing_takes_a_machine_by_accident(project: ScratchProject, pulumi: Pulumi) -> None:
    """What neither `machines-stand` nor the launch template knows of: the engine refuses it."""
    before = machines(project.cloud)
    urn = machine_urn(pulumi, "prefill-1")
    said = refused(pulumi, "up", "--yes", "--skip-preview", "--replace", urn)
    assert "unable to replace resource" in said
    file = project.folder / "stacks" / f"{STACK}.yaml"
    roles = yaml.safe_load(file.read_text("utf-8"))["roles"]
    fewer = {**roles, "prefill": {**roles["prefill"], "replicas": 1}}
    edit_stack(project.folder, STACK, roles=fewer)
    for words in (("preview",), ("up", "--yes", "--skip-preview")):
        said = refused(pulumi, *words)
        assert "cannot be deleted because it is protected" in said
        assert f"pulumi state unprotect '{urn}'" in said
    assert machines(project.cloud) == before
    ok(pulumi, "state", "unprotect", urn, "--yes")
    ok(pulumi, "up", "--yes", "--skip-preview")
    left = machines(project.cloud)
    assert set(before) - set(left) == {"prefill-1"}
    # destroyed without a word on machines, they stay with what they stand in
    ok(pulumi, "destroy", "--yes", "--skip-preview", "--exclude-protected")
    assert machines(project.cloud) == left
    assert len(resources(project.cloud, "Subnet")) >= 1


def machine_urn(pulumi: Pulumi, host: str) -> str:
    """The URN of a host's instance in the state."""
    rows = json.loads(pulumi("stack", "export").stdout)["deployment"]["resources"]
    (urn,) = (each["urn"] for each in rows if each["urn"].endswith(f":Instance::{host}"))
    return str(urn)


@pytest.mark.pulumi
@pytest.mark.slow  # as above
def test_first_boot_and_networks_take_no_machine_away(make_project: Make) -> None:
    project = make_project()
    pulumi = started(project)
    ok(pulumi, "up", "--yes", "--skip-preview")
    before = machines(project.cloud)

    ok(pulumi, "config", "set", "vpc_cidr", "10.80.0.0/16")
    said = refused(pulumi, "preview")
    assert (
        "stand in 10.64.0.0/17 in use1-dfw2-az1, and the configuration wants 10.80.0.0/17" in said
    )
    assert f"`{give_back_machines(STACK)}`" in said
    ok(pulumi, "config", "rm", "vpc_cidr")

    edit_stack(project.folder, STACK, weights={"path": "/elsewhere"})
    said = refused(pulumi, "preview")
    assert "launched with another weights.path (/models; now /elsewhere)" in said
    edit_stack(project.folder, STACK, weights={"path": "/models"})

    # another first boot, as an older release of this project wrote it, is for machines to come
    for path in resources(project.cloud, "LaunchTemplate"):
        (script,) = set(re.findall(r'"userData": "([^"]+)"', path.read_text()))
        older = base64.b64encode(base64.b64decode(script) + b"# older\n").decode()
        path.write_text(path.read_text().replace(script, older))
    ok(pulumi, "up", "--yes", "--skip-preview", "--refresh")
    assert not any(text.endswith("# older\n") for text in first_boots(project.cloud))
    assert replaced(pulumi) == 0
    assert machines(project.cloud) == before


@pytest.mark.pulumi
@pytest.mark.slow  # a rack and a cluster come up
@pytest.mark.parametrize(
    ("stack", "updated"),
    [(STACK, {"LaunchTemplate prefill", "LaunchTemplate decode"}), (EKS_STACK, set())],
)
def test_machines_with_slow_root_volumes_are_neither_replaced_nor_refused(
    make_project: Make, stack: str, updated: set[str]
) -> None:
    project = make_project(stack)
    pulumi = started(project)
    ok(pulumi, "up", "--yes", "--skip-preview")
    for path in resources(project.cloud, "LaunchTemplate"):
        path.write_text(json.dumps(json.loads(path.read_text(), object_hook=without_speed)))
    ok(pulumi, "refresh", "--yes", "--skip-preview")
    assert replaced(pulumi) == 0
    steps = pulumi.steps("up")
    assert set(steps) <= {"same", "update"}
    assert steps.get("update", set()) == updated


def without_speed(found: dict[str, object]) -> dict[str, object]:
    """A root volume as an older release of this project had it."""
    return {name: value for name, value in found.items() if name not in ("iops", "throughput")}


def machines(cloud: Path) -> dict[str, str]:
    """The instance of each host, by the host's name."""
    found = {}
    for path in resources(cloud, "Instance"):
        (name,) = re.findall(r"::([a-z]+-\d+)\"", path.read_text())
        found[name] = path.stem
    return found


def first_boots(cloud: Path) -> list[str]:
    """The script that machines to come get, of every launch template."""
    found = [json.loads(path.read_text()) for path in resources(cloud, "LaunchTemplate")]
    return [base64.b64decode(each["inputs"]["userData"]).decode() for each in found]


def ok(pulumi: Pulumi, *words: str) -> None:
    done = pulumi(*words)
    assert done.returncode == 0, done.stdout + done.stderr


def refused(pulumi: Pulumi, *words: str) -> str:
    """What a command says that is refused, as one line."""
    done: subprocess.CompletedProcess[str] = pulumi(*words)
    assert done.returncode != 0, done.stdout
    assert "Traceback" not in done.stdout + done.stderr
    return " ".join((done.stdout + done.stderr).split())


def replaced(pulumi: Pulumi) -> int:
    """How many resources a preview says that `up` replaces."""
    done = pulumi("preview", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    return int(json.loads(done.stdout)["changeSummary"].get("replace", 0))
