"""Every stack, shipped or small, serves a token through its own front door, all steps of the job included.

Of stacks whose plans are the same on hosts that exist, one is rehearsed.
"""

from __future__ import annotations

import json
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from infra.catalog.load import Catalog
from infra.plan.compile import compile_stack
from infra.plan.document import plan_document
from infra.rehearsal.report import STEPS
from infra.spec.load import PROJECT, load_stack, stack_names
from infra.spec.stack import CLOUD_NAMES, CLOUDS
from tests.rehearsal.command import Done, Shell

# The engines of cpu-1p1d are real: test_real_engines.py.
SMALL = sorted(
    path for path in (PROJECT / "tests" / "stacks").glob("*.yaml") if path.stem != "cpu-1p1d"
)
# The real Pulumi engine costs seconds of processor time; one P/D stack of each cloud and one over hosts stand for the
# others, which are rehearsed as if their hosts existed. tests/rehearsal/cloud/ provisions each instance type.
PROVISIONED = ("gb200-2p1d", "gcp-gb200-2p1d", "h200-2n-tp16")
# In pods they differ, and are tested in tests/kubernetes/.
SAME_ON_HOSTS = {
    "eks-b200-tp8": "b200-sglang-tp8",
    "eks-gb200-2p1d": "gb200-2p1d",
    "k8s-a3-2p1d": "a3-2p1d",
    "k8s-gb200-2p1d": "gb200-2p1d",
}
ON_HOSTS = "platform=existing-hosts"
SIMULATED = {"hosts", "weights", "tune", "start"}


def assert_served(done: Done, name: str, roles: set[str]) -> None:
    assert done.code == 0, done.err
    report = done.document
    assert report["ok"] is True
    assert report["stack"] == name
    assert [step["name"] for step in report["steps"]] == list(STEPS)
    assert all(step["ok"] for step in report["steps"])
    assert {step["name"] for step in report["steps"] if step["simulated"]} >= SIMULATED
    assert 0 < report["first_token_s"] < 120
    assert set(report["served_by"]) == roles
    assert all(report["served_by"].values())


@pytest.mark.lab
@pytest.mark.slow  # forty rehearsals of three seconds and more
@pytest.mark.parametrize(
    "file",
    [
        PROJECT / "stacks" / f"{name}.yaml"
        for name in stack_names()
        if name not in PROVISIONED and name not in SAME_ON_HOSTS
    ]
    + SMALL,
    ids=lambda path: path.stem,
)
def test_a_stack_serves_a_token(file: Path, shell: Shell) -> None:
    spec = load_stack(str(file)).spec
    hosts_exist = ("--set", ON_HOSTS) if spec.platform != "existing-hosts" else ()
    done = shell.fab("rehearse", "--file", str(file), *hosts_exist, "--json")
    assert_served(done, file.stem, set(spec.roles.model_dump(exclude_none=True)))
    shell.assert_nothing_left()


@pytest.mark.parametrize("stack", SAME_ON_HOSTS)
def test_a_stack_that_is_not_rehearsed_is_another_one_but_for_its_name(
    stack: str, catalog: Catalog
) -> None:
    documents = []
    for name in (stack, SAME_ON_HOSTS[stack]):
        document = plan_document(compile_stack(load_stack(name, [ON_HOSTS]), catalog=catalog).plan)
        del document["hash"]  # the name is in it
        documents.append(json.dumps(document).replace(name, "NAME"))
    assert documents[0] == documents[1]
    assert SAME_ON_HOSTS[stack] not in SAME_ON_HOSTS


@pytest.mark.lab
@pytest.mark.pulumi
@pytest.mark.usefixtures("pulumi_is_possible")
@pytest.mark.slow  # provisions with the real engine
def test_provisioned_stacks_are_rehearsed_side_by_side(shell: Shell) -> None:
    before = git_status()
    with ThreadPoolExecutor() as pool:
        all_done = list(
            pool.map(lambda name: shell.fab("rehearse", "--stack", name, "--json"), PROVISIONED)
        )
    for name, done in zip(PROVISIONED, all_done, strict=True):
        roles = load_stack(name).spec.roles.model_dump(exclude_none=True)
        assert_served(done, name, set(roles))
        provision = done.document["steps"][STEPS.index("provision")]
        assert provision["simulated"] is True
        cloud = CLOUD_NAMES[CLOUDS[load_stack(name).spec.platform]]
        assert f"real Pulumi engine, emulated {cloud}" in provision["detail"]
    assert len({done.document["id"] for done in all_done}) == len(PROVISIONED)
    shell.assert_nothing_left()
    assert git_status() == before


def git_status() -> str:
    """What git sees of stacks/ and Pulumi's files, which the engine would write to."""
    return subprocess.run(
        ["git", "status", "--porcelain", "--ignored", "--", "stacks", "Pulumi.yaml", "ansible"],
        cwd=PROJECT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
