"""What an operator gets wrong about an AWS account, typed at the real command line: one message, nothing made."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml

from infra.rehearsal.cloud.deployment import bring_up
from infra.rehearsal.cloud.scratch_project import RESERVATION
from infra.rehearsal.cloud.store import Store
from tests.provision.belongings import their_network
from tests.rehearsal.cloud.command import STACK, kinds_left
from tests.rehearsal.cloud.refusing import refusal, reserve, started

if TYPE_CHECKING:
    from collections.abc import Callable

    from infra.rehearsal.cloud.scratch_project import ScratchProject

    Make = Callable[..., ScratchProject]

pytestmark = [
    pytest.mark.pulumi,
    pytest.mark.slow,  # several previews by the real engine
]


def test_what_is_wrong_with_a_reservation_is_told_before_anything_is_made(
    make_project: Make,
) -> None:
    project = make_project()
    pulumi = started(project)
    key = "moe-infra:reservation_id"
    fix = f"pulumi config set reservation_id cr-0123456789abcdef0 --stack {STACK}"
    for value, said in (
        ("", "Not set: the capacity reservation"),
        ("reservation-7", "reservation-7 is not the capacity reservation"),
        ("cr-00000000000000001", "There is no ultraserver reservation cr-00000000000000001"),
    ):
        told = refusal(pulumi, project.cloud, {key: value})
        assert said in told
        assert fix in told
    reserve(project, instance_type="p5en.48xlarge")
    told = refusal(pulumi, project.cloud, {key: RESERVATION})
    assert "holds p5en.48xlarge; gb200-2p1d needs p6e-gb200.36xlarge" in told
    reserve(project, instance_type="p6e-gb200.36xlarge", zone_id="use1-az2")
    assert "is in us-east-1b" in refusal(pulumi, project.cloud, {})

    reserve(project, zone_id="use1-dfw2-az1", state="scheduled", start="2026-12-01T11:30:00Z")
    early = pulumi("preview")
    assert early.returncode == 0, early.stdout
    assert "begins at 2026-12-01T11:30:00Z" in early.stdout
    launched = pulumi("up", "--yes", "--skip-preview")
    assert launched.returncode != 0
    assert "Until then pulumi preview works" in launched.stdout
    assert not (project.cloud / "resources").exists()


def test_zones_and_networks_that_cannot_hold_the_hosts(make_project: Make, tmp_path: Path) -> None:
    spec_file = tmp_path / "mine.yaml"
    fields = {
        "extends": "h200-tp8",
        "accelerator": "b300",
        "capacity": {"kind": "on-demand", "network_layout": "maximum"},
        "roles": {"unified": {"replicas": 4}},
        "router": {"name": "vllm-router"},
    }
    spec_file.write_text(yaml.safe_dump(fields))
    project = make_project("mine", spec_file)
    pulumi = started(project)
    told = refusal(pulumi, project.cloud, {"moe-infra:vpc_cidr": "10.0.0.0/25"})
    assert "10.0.0.0/25 leaves 59 addresses to hosts; they take 68" in told
    assert "pulumi config set vpc_cidr 10.64.0.0/16 --stack mine" in told
    network = {"moe-infra:vpc_cidr": "10.0.0.0/16"}
    told = refusal(pulumi, project.cloud, {**network, "moe-infra:zone_id": "use1-az9"})
    assert "There is no zone use1-az9 in us-east-1" in told
    east = {"aws:region": "us-east-2", "moe-infra:zone_id": "use2-az1"}
    told = refusal(pulumi, project.cloud, east)
    assert "us-east-2 offers no p6-b300.48xlarge to this account" in told


def test_ways_of_buying_values_that_hide_nothing_and_subnets_that_are_too_small(
    make_project: Make, tmp_path: Path
) -> None:
    spec_file = tmp_path / "mine.yaml"
    bought = {"accelerator": "b300", "capacity": {"kind": "on-demand", "network_layout": "maximum"}}
    spec_file.write_text(yaml.safe_dump({"extends": "h200-tp8", **bought}))
    project = make_project("mine", spec_file)
    pulumi = started(project)
    subnet, *_ = their_network(
        Store(project.cloud), region="us-east-1", zones=("use1-az1",), size=28
    )

    def told(**config: str) -> str:
        words = [f"--config=moe-infra:{key}={value}" for key, value in config.items()]
        done = pulumi("preview", *words)
        assert done.returncode != 0, done.stdout
        assert "Traceback" not in done.stdout + done.stderr
        assert set(kinds_left(project.cloud)) == {"Subnet", "Vpc"}
        return " ".join(done.stdout.split())

    said = told(subnet_id=subnet.id, zone_id="us-east-1a")
    assert "us-east-1a is not the zone id" in said
    assert "pulumi config set zone_id use1-az1 --stack mine" in said
    pulumi("config", "set", "zone_id", "use1-az1")
    said = told(subnet_id=subnet.id)
    assert "has 11 free addresses; hosts take 17" in said
    pulumi("config", "rm", "subnet_id")

    assert pulumi("config", "set", "owner", "hush", "--secret").returncode == 0
    assert "pulumi config set owner VALUE --plaintext --stack mine" in told()
    assert pulumi("config", "set", "owner", "hush", "--plaintext").returncode == 0
    own = project.folder / "stacks" / "mine.yaml"
    document = yaml.safe_load(own.read_text())
    for fields, what in (
        ({"accelerator": "gb200"}, "p6e-gb200.36xlarge is not sold as on-demand. Use ultraserver"),
        ({"accelerator": "mi355x"}, "AWS rents no mi355x"),
    ):
        own.write_text(yaml.safe_dump({**document, **fields}))
        assert what in told()


def test_lustre_is_refused_by_its_size_and_later_by_what_stands(
    make_project: Make, tmp_path: Path
) -> None:
    spec_file = tmp_path / "mine.yaml"
    weights = {"path": "/models", "storage": "fsx-lustre", "load_target_s": 100}
    spec_file.write_text(yaml.safe_dump({"extends": "h200-tp8", "weights": weights}))
    project = make_project("mine", spec_file, fsx_efa="true")
    pulumi = started(project)
    told = refusal(pulumi, project.cloud, {"moe-infra:fsx_capacity_gib": "5000"})
    assert "pulumi config set fsx_capacity_gib 9600 --stack mine" in told

    assert pulumi("config", "set", "fsx_capacity_gib", "9600").returncode == 0
    said: list[str] = []
    bring_up(project, said.append)
    for key, value, what in (
        ("fsx_capacity_gib", "4800", "never shrinks: it holds 9600 GiB"),
        ("fsx_efa", "false", "Whether a file system speaks EFA is settled"),
    ):
        done = pulumi("preview", f"--config=moe-infra:{key}={value}")
        assert done.returncode != 0
        assert what in " ".join(done.stdout.split())
        pulumi("config", "set", key, {"fsx_capacity_gib": "9600", "fsx_efa": "true"}[key])
    slow = pulumi("preview")
    assert slow.returncode == 0
    assert "weights.load_target_s is 100 s" not in slow.stdout  # 9.4 GB/s read them in 63 s
