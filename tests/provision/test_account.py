from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pulumi
import pytest
import yaml

from infra.errors import ProblemsFound
from infra.provision.aws.account import (
    CONFIG_NAMES,
    Demand,
    gateway_subnet,
    host_subnet,
    read_account,
    read_values,
)
from infra.provision.aws.eks.config import EKS_CONFIG_NAMES, read_eks_values
from infra.provision.cluster.config import CLUSTER_CONFIG_NAMES, read_cluster_values
from infra.provision.config_problems import secret_problems, unknown_key_problems
from infra.provision.gcp.config import NAME as GOOGLE
from infra.spec.load import PROJECT

DEMAND = Demand(
    stack="gb200-2p1d",
    capacity="ultraserver",
    num_hosts=6,
    num_addresses=6,
    uses_lustre=False,
    wants_load_balancer=False,
)
DECLARED = yaml.safe_load((PROJECT / "Pulumi.yaml").read_text(encoding="utf-8"))["config"]
DEFAULTS = {
    f"moe-infra:{name}": str(each["default"]).replace("False", "false")
    for name, each in DECLARED.items()
}
GOOD = {
    **DEFAULTS,
    "aws:region": "us-east-1",
    "moe-infra:zone_id": "use1-dfw2-az1",
    "moe-infra:key_name": "my-key",
    "moe-infra:reservation_id": "cr-0123456789abcdef0",
}


def problems(values: dict[str, str], demand: Demand = DEMAND) -> dict[str, str]:
    with pytest.raises(ProblemsFound) as caught:
        read_account(values, demand)
    return {problem.field: f"{problem.what} {problem.fix}" for problem in caught.value.problems}


def test_pulumi_yaml_declares_exactly_the_keys_that_are_read_each_with_type_and_meaning() -> None:
    assert set(DECLARED) == {*CONFIG_NAMES, *CLUSTER_CONFIG_NAMES, *EKS_CONFIG_NAMES, GOOGLE}
    assert all({"type", "description", "default"} <= set(each) for each in DECLARED.values())


def test_good_values_are_read() -> None:
    account = read_account(GOOD, DEMAND)
    assert (account.region, account.reservation_id) == ("us-east-1", "cr-0123456789abcdef0")
    assert (account.ami, account.ssh_from, account.weights_bucket) == (None, None, None)


def test_everything_that_is_missing_is_told_at_once_with_the_command_to_type() -> None:
    found = problems({**DEFAULTS, "aws:region": ""})
    assert set(found) == {
        "aws:region",
        "moe-infra:zone_id",
        "moe-infra:key_name",
        "moe-infra:reservation_id",
    }
    fix = "Type: pulumi config set reservation_id cr-0123456789abcdef0 --stack gb200-2p1d"
    assert found["moe-infra:reservation_id"].endswith(fix)


def test_what_is_set_as_a_secret_would_be_readable() -> None:
    (problem,) = secret_problems(["moe-infra:owner"], "mine")
    assert problem.fix == "Type: pulumi config set owner VALUE --plaintext --stack mine"


@pytest.mark.parametrize(
    ("key", "near", "typed"),
    [
        ("moe-infra:zoneid", "zone_id", "zoneid"),
        ("moe-infra:zone", "zone_id", "zone"),
        ("moe-infra:reservation", "reservation_id", "reservation"),
        ("moe-infra:region", "aws:region", "region"),
        ("aws:regionn", "aws:region", "aws:regionn"),
        ("moe_infra:zone_id", "zone_id", "moe_infra:zone_id"),
        ("moe-infra:Zone_Id", "zone_id", "Zone_Id"),
    ],
)
def test_a_key_that_nothing_reads_is_named_with_the_nearest(
    key: str, near: str, typed: str
) -> None:
    (problem,) = unknown_key_problems([key, "aws:profile", *GOOD], DECLARED, "mine")
    assert (problem.field, problem.what) == (key, "Nothing reads this key.")
    assert problem.fix.startswith(f"Did you mean {near}")
    assert problem.fix.endswith(f"pulumi config rm {typed} --stack mine")


@pytest.mark.parametrize(
    "key", ["aws:profile", "aws:allowedAccountIds", "kubernetes:context", "pulumi:tags", *GOOD]
)
def test_keys_that_are_read_and_those_of_providers_are_none_of_it(key: str) -> None:
    assert unknown_key_problems([key], DECLARED, "mine") == ()


@pytest.mark.parametrize(
    ("region", "zone"),
    [
        ("us-east-2", "use2-az1"),
        ("us-west-2", "usw2-az1"),
        ("ap-northeast-1", "apne1-az1"),
        ("ap-southeast-2", "apse2-az1"),
        ("eu-central-1", "euc1-az1"),
        ("us-gov-west-1", "usgw1-az1"),
    ],
)
def test_the_zone_that_is_suggested_is_one_of_the_region(region: str, zone: str) -> None:
    wrong = problems({**GOOD, "aws:region": region, "moe-infra:zone_id": f"{region}a"})
    assert f"pulumi config set zone_id {zone} " in wrong["moe-infra:zone_id"]
    missing = problems({**GOOD, "aws:region": region, "moe-infra:zone_id": ""})
    assert f"pulumi config set zone_id {zone} " in missing["moe-infra:zone_id"]


@pytest.mark.parametrize("read", [read_values, read_cluster_values, read_eks_values])
def test_no_reader_takes_a_value_that_is_set_as_a_secret(
    read: Callable[[], dict[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pulumi, "get_stack", lambda: "mine")
    key, values = "moe-infra:owner", {"moe-infra:owner": "team-a"}
    try:
        pulumi.runtime.set_all_config(values, [])
        found = read()
        assert found.get("owner", found.get(key)) == "team-a"
        pulumi.runtime.set_all_config(values, [key])
        with pytest.raises(ProblemsFound) as caught:
            read()
    finally:
        pulumi.runtime.set_all_config({}, [])
    assert [problem.field for problem in caught.value.problems] == [key]


def test_on_demand_machines_need_no_reservation() -> None:
    values = {**GOOD, "moe-infra:reservation_id": ""}
    assert read_account(values, replace(DEMAND, capacity="on-demand")).reservation_id is None


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("aws:region", "Dallas"),
        ("moe-infra:zone_id", "us-east-1a"),
        ("moe-infra:reservation_id", "reservation 7"),
        ("moe-infra:ami", "latest"),
        ("moe-infra:weights_bucket", "My_Bucket"),
        ("moe-infra:ssh_from_cidr", "10.0.0.1/8"),
        ("moe-infra:ssh_from_cidr", "0.0.0.0/0"),
        ("moe-infra:ssh_from_cidr", "128.0.0.0/1"),
        ("moe-infra:clients_cidr", "0.0.0.0/0"),
        ("moe-infra:subnet_id", "vpc-0123456789abcdef0"),
        ("moe-infra:weights_mount", "/srv/models"),
        ("moe-infra:vpc_cidr", "10.0.0.0/8"),
        ("moe-infra:vpc_cidr", "everything"),
        ("moe-infra:root_volume_gib", "75"),
        ("moe-infra:root_volume_gib", "big"),
    ],
)
def test_a_wrong_value_is_named_with_its_key(key: str, value: str) -> None:
    found = problems({**GOOD, key: value})
    assert set(found) == {key}
    assert value in found[key]


def test_a_network_too_small_for_the_hosts_is_refused_with_the_numbers() -> None:
    demand = replace(DEMAND, num_addresses=12)
    found = problems({**GOOD, "moe-infra:vpc_cidr": "10.0.0.0/27"}, demand)
    assert "leaves 11 addresses to hosts; they take 12" in found["moe-infra:vpc_cidr"]


def test_p6_b300_at_its_maximum_takes_seventeen_addresses_a_host() -> None:
    demand = replace(DEMAND, num_hosts=4, num_addresses=4 * 17)
    found = problems({**GOOD, "moe-infra:vpc_cidr": "10.0.0.0/25"}, demand)
    assert "leaves 59 addresses to hosts; they take 68" in found["moe-infra:vpc_cidr"]
    own = {"moe-infra:vpc_cidr": "10.0.0.0/25", "moe-infra:subnet_id": "subnet-01234567"}
    assert read_account({**GOOD, **own}, demand).subnet_id == "subnet-01234567"


def test_a_subnet_of_gateways_goes_with_one_of_hosts() -> None:
    found = problems({**GOOD, "moe-infra:gateway_subnet_id": "subnet-01234567"})
    assert set(found) == {"moe-infra:subnet_id"}


@pytest.mark.parametrize(("standing", "wanted"), [(0, 102), (2, 68), (6, 0), (9, 0)])
def test_hosts_that_run_have_taken_their_addresses(standing: int, wanted: int) -> None:
    demand = replace(DEMAND, num_addresses=6 * 17)
    assert demand.num_new_addresses(standing) == wanted


def test_hosts_and_gateways_share_the_block_of_the_network() -> None:
    network = read_account(GOOD, DEMAND).vpc_cidr
    assert not host_subnet(network).overlaps(gateway_subnet(network))
    assert {host_subnet(network).supernet(), gateway_subnet(network).supernet()} == {network}


def test_a_lustre_size_or_tier_that_does_not_exist_is_refused_with_the_next_one() -> None:
    demand = replace(DEMAND, uses_lustre=True)
    found = problems({**GOOD, "moe-infra:fsx_capacity_gib": "5000"}, demand)
    assert "pulumi config set fsx_capacity_gib 7200" in found["moe-infra:fsx_capacity_gib"]
    found = problems({**GOOD, "moe-infra:fsx_throughput": "300"}, demand)
    assert "pulumi config set fsx_throughput 500" in found["moe-infra:fsx_throughput"]
    assert (
        read_account({**GOOD, "moe-infra:fsx_capacity_gib": "5000"}, DEMAND).lustre.capacity_gib
        == 5000
    )
