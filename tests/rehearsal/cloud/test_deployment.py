"""The real command line and language host against the emulated cloud."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from infra.errors import HostsFailed, PrerequisiteError
from infra.provision.outputs import read_outputs
from infra.rehearsal.cloud.deployment import bring_up, provision_in_emulated_cloud
from infra.rehearsal.cloud.scratch_project import ScratchProject
from infra.rehearsal.cloud.store import read_account, write_account
from infra.rehearsal.cloud.world import PARAMETERS
from infra.spec.load import PROJECT
from tests.rehearsal.cloud.command import (
    BUCKET_KINDS,
    STACK,
    Pulumi,
    destroy_all_but_weights,
    kinds_left,
    resources,
)
from tests.rehearsal.cloud.warm_python import WarmPython

pytestmark = pytest.mark.pulumi
HOSTS = ["prefill-0", "prefill-1", "decode-0", "decode-1", "decode-2", "decode-3"]


def say_nothing(_: str) -> None:
    pass


def project_status() -> str:
    """What git knows of changes in the files that Pulumi would write to."""
    words = ("git", "status", "--porcelain", "--", "Pulumi.yaml", "stacks", "infra/__main__.py")
    return subprocess.run(words, cwd=PROJECT, capture_output=True, text=True, check=True).stdout


@pytest.mark.slow  # several updates by the real engine
def test_the_life_of_a_stack(pulumi_bin: Path, warm_python: WarmPython, tmp_path: Path) -> None:
    before = project_status()
    said: list[str] = []
    config = {"owner": "team-a"}
    result = provision_in_emulated_cloud(
        STACK, tmp_path, pulumi_bin=pulumi_bin, config=config, say=said.append
    )
    inventory = result.outputs["inventory"]
    assert isinstance(inventory, dict)
    assert [host["name"] for host in inventory["hosts"]] == HOSTS
    assert sorted(line.split()[0] for line in said) == sorted(HOSTS)
    assert read_outputs(STACK, result.pulumi_dir, result.pulumi_env) == result.outputs

    # the first operation was in a Python of its own, as an operator's all are
    warm_python.put_environment(result.pulumi_dir / ".venv")
    pulumi, cloud = Pulumi(result.pulumi_dir, result.pulumi_env), tmp_path / "cloud"
    # a newer image, with another root device, replaces no machine that runs
    account = read_account(cloud)
    newer = dict.fromkeys(PARAMETERS, "ami-0123456789abcdef0")
    images = {"ami-0123456789abcdef0": "aarch64"}
    write_account(cloud, replace(account, parameters=newer, images=images))
    assert set(pulumi.changes("up", "--refresh")) == {"same"}

    # drift: an instance is gone, a property of the network was changed by hand
    gone, *_ = resources(cloud, "Instance")
    name = json.loads(gone.read_text())["urn"].rpartition("::")[2]
    gone.unlink()
    change_by_hand(cloud, "Vpc", "enableDnsHostnames", value=False)
    seen = pulumi.changes("refresh")
    assert (seen["delete"], seen["update"]) == (1, 1)
    # it is mended; that another team owns all of it is written on what stands, and makes no other machine
    assert pulumi("config", "set", "owner", "team-b").returncode == 0
    steps = pulumi.steps("up")
    assert set(steps) == {"create", "same", "update"}
    assert steps["create"] == {f"Instance {name}"}
    standing = {f"Instance {each}" for each in HOSTS if each != name}
    assert {"Vpc vpc", *standing} <= steps["update"]
    assert {"LaunchTemplate prefill", "LaunchTemplate decode"} <= steps["same"]
    assert len(resources(cloud, "Instance")) == len(HOSTS)
    (path,) = resources(cloud, "Vpc")
    assert json.loads(path.read_text())["outputs"]["enableDnsHostnames"] is True

    refused = pulumi("destroy", "--yes", "--skip-preview")
    assert refused.returncode != 0
    assert "cannot be deleted\nbecause it is protected" in refused.stdout.replace("    ", "")
    destroy_all_but_weights(pulumi)
    assert resources(cloud, "Instance") == resources(cloud, "Vpc") == []
    assert len(resources(cloud, "Bucket")) == 1

    # once unprotected, weights leave the state and stay in the account
    assert pulumi("state", "unprotect", "--all", "--yes").returncode == 0
    ended = pulumi("destroy", "--yes", "--skip-preview")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert kinds_left(cloud) == BUCKET_KINDS
    state = json.loads(pulumi("stack", "export").stdout)
    assert state["deployment"].get("resources", []) == []
    assert project_status() == before


def change_by_hand(cloud: Path, kind: str, name: str, *, value: object) -> None:
    """Change a property of the only resource of a kind behind the engine's back."""
    (path,) = resources(cloud, kind)
    document = json.loads(path.read_text())
    document["inputs"][name] = document["outputs"][name] = value
    path.write_text(json.dumps(document))


@pytest.mark.slow  # the real engine
def test_preview_tells_what_would_be_made(make_project: Callable[..., ScratchProject]) -> None:
    project = make_project()
    pulumi = Pulumi(project.folder, project.environment)
    assert pulumi("stack", "init").returncode == 0
    done = pulumi("preview")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "aws:ec2:Instance" in done.stdout
    assert "decode-3" in done.stdout
    assert "EMULATION" in done.stdout
    assert not (project.cloud / "resources").exists()


@pytest.mark.slow  # several updates by the real engine
def test_capacity_that_runs_out_leaves_a_state_that_the_next_up_finishes(
    make_project: Callable[..., ScratchProject],
) -> None:
    project = make_project()
    account = read_account(project.cloud)
    write_account(project.cloud, replace(account, instances_before_capacity_runs_out=4))
    with pytest.raises(HostsFailed, match="InsufficientInstanceCapacity") as caught:
        bring_up(project, say_nothing)
    assert "Traceback" not in str(caught.value)
    assert len(resources(project.cloud, "Instance")) == 4
    write_account(project.cloud, account)
    outputs = bring_up(project, say_nothing)
    assert len(resources(project.cloud, "Instance")) == len(HOSTS)
    inventory = outputs["inventory"]
    assert isinstance(inventory, dict)
    assert len({host["instance_id"] for host in inventory["hosts"]}) == len(HOSTS)


@pytest.mark.slow  # the real engine
def test_wrong_account_facts_are_one_message_and_nothing_is_made(
    make_project: Callable[..., ScratchProject],
) -> None:
    project = make_project(key_name="nobody-s", reservation_id="cr-00000000000000001")
    with pytest.raises(HostsFailed) as caught:
        bring_up(project, say_nothing)
    said = str(caught.value)
    assert "pulumi config set reservation_id cr-0123456789abcdef0 --stack gb200-2p1d" in said
    assert "pulumi config set key_name my-key --stack gb200-2p1d" in said
    assert "Traceback" not in said
    assert not (project.cloud / "resources").exists()


@pytest.mark.slow  # the real engine
def test_a_misspelt_property_is_refused_as_the_provider_would(
    make_project: Callable[..., ScratchProject],
) -> None:
    project = make_project()
    program = """
import pulumi
pulumi.CustomResource("aws:ec2/vpc:Vpc", "mine", {"cidrBlok": "10.0.0.0/16"})
"""
    (project.folder / "infra" / "__main__.py").write_text(program)
    with pytest.raises(HostsFailed) as caught:
        bring_up(project, say_nothing)
    assert 'Did you mean "cidrBlock"?' in str(caught.value)


@pytest.mark.slow  # the real engine, twice
def test_a_missing_passphrase_is_one_message(make_project: Callable[..., ScratchProject]) -> None:
    project = make_project("h200-tp8")
    assert Pulumi(project.folder, project.environment, "h200-tp8")("stack", "init").returncode == 0
    environment = {**project.environment}
    del environment["PULUMI_CONFIG_PASSPHRASE"]
    done = Pulumi(project.folder, environment, "h200-tp8")("up", "--yes")
    assert done.returncode != 0
    assert "PULUMI_CONFIG_PASSPHRASE" in done.stderr
    assert "Traceback" not in done.stdout + done.stderr


@pytest.mark.slow  # the real engine
def test_a_stack_that_was_not_created_is_one_message(
    make_project: Callable[..., ScratchProject],
) -> None:
    project = make_project()
    done = Pulumi(project.folder, project.environment)("up", "--yes")
    assert done.returncode != 0
    assert "no stack named 'gb200-2p1d' found" in done.stderr
    with pytest.raises(PrerequisiteError, match="scripts/init-stack gb200-2p1d"):
        read_outputs(STACK, project.folder, project.environment)


@pytest.mark.slow  # the real engine
def test_existing_hosts_are_exported_and_fab_is_next(
    make_project: Callable[..., ScratchProject],
) -> None:
    project = make_project("a3-2p1d")
    inventories = project.folder / "ansible" / "inventory"
    inventories.mkdir(parents=True)
    example = PROJECT / "ansible" / "inventory" / "examples" / "a3-2p1d.yml"
    (inventories / "a3-2p1d.yml").write_text(example.read_text())
    pulumi = Pulumi(project.folder, project.environment, "a3-2p1d")
    assert pulumi("stack", "init").returncode == 0
    done = pulumi("up", "--yes", "--skip-preview")
    assert "Next: fab up --stack a3-2p1d" in done.stdout
    inventory = read_outputs("a3-2p1d", project.folder, project.environment)["inventory"]
    assert isinstance(inventory, dict)
    assert [host["name"] for host in inventory["hosts"]] == [
        "prefill-0",
        "prefill-1",
        "decode-0",
        "decode-1",
    ]
    assert not (project.cloud / "resources").exists()


@pytest.mark.slow  # several updates by the real engine
def test_a_file_outside_of_stacks_is_provisioned_under_its_name(
    make_project: Callable[..., ScratchProject], tmp_path: Path
) -> None:
    spec_file = tmp_path / "mine.yaml"
    fields = {"capacity": {"kind": "odcr"}, "ingress": "internal-load-balancer"}
    spec_file.write_text(yaml.safe_dump({"extends": "h200-2n-tp16", **fields}))
    project = make_project("mine", spec_file)
    inventory = bring_up(project, say_nothing)["inventory"]
    assert isinstance(inventory, dict)
    assert inventory["stack"] == "mine"
    assert [host["name"] for host in inventory["hosts"]] == ["unified-0", "unified-1"]
    assert ".elb.us-east-1.amazonaws.com:8000" in inventory["router"]["url"]

    # Both machines are named to be launched anew; the reservation holds two and has no spare.
    pulumi = Pulumi(project.folder, project.environment, "mine")
    hosts = "unified-0,unified-1"
    assert pulumi("config", "set", "replace_machines", hosts).returncode == 0
    assert pulumi("config", "set", "root_volume_gib", "400").returncode == 0
    changed = pulumi.changes("up")
    # the template in place; both machines, and the load balancer's target at the router's new address
    assert (changed["update"], changed["replace"]) == (1, 3)
    assert len(resources(project.cloud, "Instance")) == 2
