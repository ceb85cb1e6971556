"""Every kind of AWS stack through the real engine: made, looked at again, and destroyed but for its weights.

What all of them register is held to golden files by tests/provision/test_golden_resources.py. Of stacks that register
the same but for their name, the first goes through the engine.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from infra.catalog.load import Catalog
from infra.plan.compile import resolve_topology
from infra.rehearsal.cloud.scratch_project import ScratchProject
from infra.spec.load import PROJECT, load_stack, stack_names
from tests.rehearsal.cloud.command import (
    BUCKET_KINDS,
    Pulumi,
    destroy_all_but_weights,
    edit_stack,
    kinds_left,
)
from tests.rehearsal.cloud.spying import Spy

pytestmark = [
    pytest.mark.pulumi,
    pytest.mark.slow,  # three operations of the real engine for each stack
]


def registered(stack: str) -> str:
    """What a stack is configured with and registers, but for its name; of one without golden file, that it is new."""
    golden = PROJECT / "tests" / "golden" / "cloud" / f"{stack}.json"
    if not golden.exists():
        return stack
    config = PROJECT / "stacks" / f"Pulumi.{stack}.yaml"
    return (config.read_text("utf-8") + golden.read_text("utf-8")).replace(stack, "")


ON_AWS = [name for name in stack_names() if load_stack(name).spec.platform == "aws-ec2"]
FIRST_OF_ITS_KIND = {registered(name): name for name in reversed(ON_AWS)}
SPY = Spy({"hf_token": "hf_notForAnybodysEyes", "api_key": "sk-norForThoseOfClients"})


@pytest.mark.parametrize("stack", sorted(FIRST_OF_ITS_KIND.values()))
def test_a_stack_is_made_once_and_destroyed_but_for_its_weights(
    make_project: Callable[..., ScratchProject], catalog: Catalog, stack: str
) -> None:
    project = make_project(stack)
    edit_stack(project.folder, stack, secrets={name: {"env": name.upper()} for name in SPY.values})
    values = {name.upper(): value for name, value in SPY.values.items()}
    pulumi = Pulumi(project.folder, {**project.environment, **values}, stack)
    assert pulumi("stack", "init").returncode == 0

    made = pulumi.steps("up")
    assert set(made) == {"create"}
    _, topology = resolve_topology(load_stack(stack), catalog)
    hosts = {f"Instance {host.name}" for host in topology.hosts}
    assert {name for name in made["create"] if name.startswith("Instance ")} == hosts

    # what stands is looked at, and then what is wanted compared with it
    assert set(pulumi.changes("up", "--refresh")) == {"same"}
    # hosts are told their secrets by `fab up`, and the cloud is not
    assert SPY.sees_under(*pulumi.written, project.cloud) == {}
    assert SPY.sees_in("".join(pulumi.said)) == set()

    destroy_all_but_weights(pulumi)
    assert kinds_left(project.cloud) == BUCKET_KINDS
