"""What a file system of weights keeps in the account, and a launch that is finished in a full subnet: real engine."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from infra.errors import HostsFailed
from infra.rehearsal.cloud.deployment import bring_up
from infra.rehearsal.cloud.scratch_project import ScratchProject
from infra.rehearsal.cloud.store import Store, read_account, write_account
from tests.provision.belongings import their_network
from tests.rehearsal.cloud.command import BUCKET_KINDS, Pulumi, kinds_left, resources, waits

pytestmark = [
    pytest.mark.pulumi,
    pytest.mark.slow,  # several updates by the real engine
]
Make = Callable[..., ScratchProject]
# The file system, its source, and the network without which it would answer nobody.
KEPT_WITH_LUSTRE = [
    *BUCKET_KINDS,
    *("DataRepositoryAssociation", "LustreFileSystem"),
    *("SecurityGroup", "SecurityGroupEgressRule", "SecurityGroupIngressRule", "Subnet", "Vpc"),
]


def say_nothing(_: str) -> None:
    pass


def own_stack(tmp_path: Path, base: str, **fields: object) -> Path:
    spec_file = tmp_path / "mine.yaml"
    spec_file.write_text(yaml.safe_dump({"extends": base, **fields}))
    return spec_file


def test_a_file_system_keeps_the_network_that_it_stands_in(
    make_project: Make, tmp_path: Path
) -> None:
    weights = {"path": "/models", "storage": "fsx-lustre"}
    project = make_project("mine", own_stack(tmp_path, "h200-tp8", weights=weights))
    bring_up(project, say_nothing)
    pulumi = Pulumi(project.folder, project.environment, "mine")
    for _ in range(2):  # the second finds nothing to do
        done = pulumi("destroy", "--yes", "--skip-preview", "--exclude-protected")
        assert done.returncode == 0, done.stdout + done.stderr
        assert kinds_left(project.cloud) == KEPT_WITH_LUSTRE
    again = pulumi.changes("up")
    assert again["create"] > again["same"]
    state = json.loads(pulumi("stack", "export").stdout)
    assert waits(state) == {
        "Instance unified-0": {"create": 1800, "delete": 3600},
        "LustreFileSystem weights": {"create": 3600, "update": 21600},
    }

    assert pulumi("state", "unprotect", "--all", "--yes").returncode == 0
    ended = pulumi("destroy", "--yes", "--skip-preview")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert kinds_left(project.cloud) == KEPT_WITH_LUSTRE
    state = json.loads(pulumi("stack", "export").stdout)
    assert state["deployment"].get("resources", []) == []


def test_hosts_of_a_first_up_that_failed_are_not_counted_twice(
    make_project: Make, tmp_path: Path
) -> None:
    capacity = {"kind": "on-demand", "network_layout": "maximum"}  # four addresses a host
    project = make_project("mine", own_stack(tmp_path, "h200-2n-tp16", capacity=capacity))
    account = read_account(project.cloud)
    write_account(project.cloud, replace(account, instances_before_capacity_runs_out=1))
    region, zone = "us-east-1", "use1-az1"
    subnet, *_ = their_network(Store(project.cloud), region=region, zones=(zone,), size=28)
    pulumi = Pulumi(project.folder, project.environment, "mine")
    assert pulumi("stack", "init").returncode == 0
    assert pulumi("config", "set", "subnet_id", subnet.id).returncode == 0
    with pytest.raises(HostsFailed, match="InsufficientInstanceCapacity"):
        bring_up(project, say_nothing)
    assert (
        len(resources(project.cloud, "Instance")) == 1
    )  # 7 of 11 addresses are free, 8 were wanted
    write_account(project.cloud, account)
    bring_up(project, say_nothing)
    assert len(resources(project.cloud, "Instance")) == 2
