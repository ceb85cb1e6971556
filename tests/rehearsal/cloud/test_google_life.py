"""A stack on Google through the real engine: made, looked at again, changed, and given back."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable
from dataclasses import replace

import pytest

from infra.rehearsal.cloud.google_world import PROJECT
from infra.rehearsal.cloud.scratch_project import KEY_NAME, SSH_KEY, ScratchProject
from infra.rehearsal.cloud.store import read_account, write_account
from tests.rehearsal.cloud.command import Pulumi, edit_stack, kinds_left, resources
from tests.rehearsal.cloud.operations_page import Typist, page, titles
from tests.rehearsal.cloud.refusing import started

STACK = "gcp-gb200-2p1d"
pytestmark = [
    pytest.mark.pulumi,
    pytest.mark.slow,  # a dozen operations of the real engine
]


def machines(project: ScratchProject) -> dict[str, str]:
    """The number that each machine got at its launch, by host."""
    rows = [json.loads(path.read_text("utf-8")) for path in resources(project.cloud, "Instance")]
    return {row["inputs"]["labels"]["moe-infra-host"]: row["outputs"]["instanceId"] for row in rows}


def set_fact(pulumi: Pulumi, key: str, value: str) -> None:
    assert pulumi("config", "set", "--path", f"gcp.{key}", value).returncode == 0


def refused(pulumi: Pulumi) -> str:
    """What preview says, and `up` with the same words."""
    preview, up = pulumi("preview"), pulumi("up", "--yes", "--skip-preview")
    assert preview.returncode != 0
    assert up.returncode != 0
    told = (preview.stdout + preview.stderr).splitlines()
    said = [line.strip() for line in told if "[machines-stand]" in line]
    assert said
    assert all(line in up.stdout + up.stderr for line in said)
    return "\n".join(said)


def test_a_stack_lives_and_no_change_takes_a_machine_by_accident(
    make_project: Callable[..., ScratchProject],
) -> None:
    project = make_project(STACK)
    pulumi = started(project)
    made = pulumi.steps("up")
    assert set(made) == {"create"}
    assert len([name for name in made["create"] if name.startswith("Instance ")]) == 6
    assert set(pulumi.steps("up")) == {"same"}
    launched = machines(project)

    # what a machine takes at its launch alone, its network, its place
    for key, value, what, old in (
        ("root_volume_gib", "200", "6 machines (prefill-0, …) were launched with 300 GiB", "300"),
        ("vpc_cidr", "10.80.0.0/16", "Machines stand in 10.64.0.0/17", "10.64.0.0/16"),
        ("zone", "us-east1-d", "stand in zone us-central1-a", "us-central1-a"),
    ):
        set_fact(pulumi, key, value)
        assert what in refused(pulumi)
        set_fact(pulumi, key, old)

    # what changes in place
    assert pulumi("config", "set", "owner", "me").returncode == 0
    set_fact(pulumi, "ssh_from_cidr", "192.0.2.0/24")
    set_fact(pulumi, "root_volume_gib", "500")  # grows on the machines that stand
    assert set(pulumi.steps("up")) == {"same", "update"}
    assert machines(project) == launched

    # a newer image of the family, with a name that somebody has left in the configuration
    family = "ubuntu-accelerator-2404-arm64-with-nvidia-580"
    account = read_account(project.cloud)
    write_account(project.cloud, replace(account, parameters={family: "v20261231"}))
    set_fact(pulumi, "replace_machines", "decode-1")
    assert set(pulumi.steps("up")) <= {"same", "update"}
    assert pulumi("config", "rm", "--path", "gcp.replace_machines").returncode == 0
    assert machines(project) == launched

    # a key that nothing reads goes by the command that the refusal names
    set_fact(pulumi, "zones", "us-central1-a")
    said = pulumi("preview")
    command = re.search(r"Type: (pulumi config rm --path .*) --stack", said.stdout + said.stderr)
    assert command is not None
    assert pulumi(*shlex.split(command[1])[1:]).returncode == 0

    # two more replicas: machines that stand keep their domain, the policy of the new ones is another one or theirs
    bought = replace(account.reservations[KEY_NAME], num_instances=40)
    write_account(project.cloud, replace(account, reservations={KEY_NAME: bought}))
    edit_stack(project.folder, STACK, roles={"decode": {"replicas": 5}})
    steps = pulumi.steps("up")
    assert steps["create"] >= {"ResourcePolicy domain-1", "Instance decode-19"}
    assert {
        host: number for host, number in machines(project).items() if host in launched
    } == launched
    assert not any(name.startswith("Instance") for name in steps.get("update", ()))

    # machines go first, protected or not, and then all else
    assert pulumi("destroy", "--yes", "--skip-preview").returncode != 0
    assert len(machines(project)) == 22
    words = ("--ignore-protect", "--target-dependents", "--target", "**:Instance::**")
    assert pulumi("destroy", "--yes", "--skip-preview", *words).returncode == 0
    assert pulumi("destroy", "--yes", "--skip-preview").returncode == 0
    assert kinds_left(project.cloud) == []


def test_a_machine_that_is_named_is_replaced_and_no_other(
    make_project: Callable[..., ScratchProject],
) -> None:
    project = make_project(STACK)
    pulumi = started(project)
    pulumi.steps("up")
    launched = machines(project)
    write_account(
        project.cloud, replace(read_account(project.cloud), images={"my-image": "aarch64"})
    )
    set_fact(pulumi, "image", f"projects/{PROJECT}/global/images/my-image")
    assert "6 machines (prefill-0, …) were launched with another image" in refused(pulumi)

    set_fact(pulumi, "replace_machines", "decode-1")
    steps = pulumi.steps("up")
    assert steps["delete-replaced"] == steps["create-replacement"] == {"Instance decode-1"}
    now = machines(project)
    assert {host for host in launched if launched[host] != now[host]} == {"decode-1"}

    # the others keep theirs until they are named, too
    assert set(pulumi.steps("up")) == {"same"}
    set_fact(pulumi, "replace_machines", ",".join(sorted(set(launched) - {"decode-1"})))
    pulumi.steps("up")
    assert pulumi("config", "rm", "--path", "gcp.replace_machines").returncode == 0
    assert set(pulumi.steps("up")) == {"same"}
    after = machines(project)
    assert after["decode-1"] == now["decode-1"]
    assert not set(after.values()) & (set(now.values()) - {now["decode-1"]})


def test_the_pages_of_operations_are_typed_as_they_stand(
    make_project: Callable[..., ScratchProject],
) -> None:
    project = make_project(STACK)
    zone = read_account(project.cloud).reservations[KEY_NAME].zone_id
    write_account(
        project.cloud, replace(read_account(project.cloud), images={"my-image": "aarch64"})
    )
    names = {
        "PROJECT": PROJECT,
        "ZONE": zone,
        "RESERVATION": KEY_NAME,
        "LOGIN:PUBLIC KEY": SSH_KEY,
        "IMAGE": f"projects/{PROJECT}/global/images/my-image",
    }
    typist = Typist(project, names)
    assert titles("Google") == [
        "a first deployment",
        "machines launched anew",
        "the end of a reservation",
    ]
    typist.type(page("a first deployment", on="Google"))
    launched = machines(project)
    assert len(launched) == 6
    typist.type(page("machines launched anew", on="Google"))
    now = machines(project)
    assert {host for host in launched if launched[host] != now[host]} == {"decode-1"}
    assert "5 machines" in refused(Pulumi(project.folder, project.environment, STACK))
    typist.type(page("the end of a reservation", on="Google"))
    assert kinds_left(project.cloud) == []
