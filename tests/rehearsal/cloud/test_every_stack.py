"""Every AWS stack through the real engine: made, looked at again, and destroyed but for its weights."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from infra.rehearsal.cloud.deployment import bring_up
from infra.rehearsal.cloud.scratch_project import ScratchProject
from infra.spec.load import PROJECT, load_stack
from tests.rehearsal.cloud.command import Pulumi, kinds_left

pytestmark = [
    pytest.mark.pulumi,
    pytest.mark.slow,  # three operations of the real engine for each stack
]
ON_AWS = sorted(
    path.stem
    for path in (PROJECT / "stacks").glob("[a-z]*.yaml")
    if load_stack(path.stem).spec.platform == "aws-ec2"
)
TOKEN = "hf_notForAnybodysEyes"


@pytest.mark.parametrize("stack", ON_AWS)
def test_a_stack_is_made_once_and_destroyed_but_for_its_weights(
    make_project: Callable[..., ScratchProject], tmp_path: Path, stack: str
) -> None:
    project = make_project(stack)
    project = replace(project, environment={**project.environment, "HF_TOKEN": TOKEN})
    said: list[str] = []
    inventory = bring_up(project, said.append)["inventory"]
    assert isinstance(inventory, dict)
    assert len(said) == len(inventory["hosts"])
    pulumi = Pulumi(project.folder, project.environment, stack)

    # what stands is looked at, and then what is wanted compared with it
    assert set(pulumi.changes("up", "--refresh")) == {"same"}
    states = [path for path in (tmp_path / "scratch" / "state").rglob("*") if path.is_file()]
    assert states
    assert not [path for path in states if TOKEN in path.read_text(errors="replace")]

    destroyed = pulumi("destroy", "--yes", "--skip-preview", "--exclude-protected")
    assert destroyed.returncode == 0, destroyed.stdout + destroyed.stderr
    assert kinds_left(project.cloud) == ["Bucket", "BucketPublicAccessBlock"]
