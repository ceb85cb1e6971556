from __future__ import annotations

import base64
import ipaddress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from infra.rehearsal.cloud.machine_kinds import INSTANCE, TEMPLATE
from infra.rehearsal.cloud.network_kinds import ZONE_GROUP
from infra.rehearsal.cloud.operations import update
from infra.rehearsal.cloud.store import OwnKey, Store, read_account, write_account

if TYPE_CHECKING:
    from tests.rehearsal.cloud.conftest import Cloud

ARM_IMAGE = "ami-000000000000000e3"
BLOCK = "cr-0000000000000000b"


def entering(reservation: str, market: str = "capacity-block") -> dict[str, object]:
    target = {"capacityReservationTarget": {"capacityReservationId": reservation}}
    return {
        "capacityReservationSpecification": target,
        "instanceMarketOptions": {"marketType": market},
    }


def test_an_instance_gets_an_address_of_its_subnet(cloud: Cloud) -> None:
    subnet, group = cloud.network()
    template = cloud.template(subnet, group)
    addresses = {str(cloud.launch(template).outputs["privateIp"]) for _ in range(8)}
    block = ipaddress.ip_network("10.0.0.0/24")
    assert len(addresses) == 8
    assert all(ipaddress.ip_address(each) in block for each in addresses)


@pytest.mark.parametrize("state", ["Enabled", "Disabled", ""])
def test_a_disk_wants_a_key_that_is_there_and_on(cloud: Cloud, state: str) -> None:
    arn = "arn:aws:kms:us-east-1:000000000000:key/mine"
    keys = {arn: OwnKey(state=state)} if state else {}
    cloud.store.account = replace(cloud.store.account, keys=keys)
    subnet, group = cloud.network()
    disk = {"deviceName": "/dev/xvda", "ebs": {"encrypted": "true", "kmsKeyId": arn}}
    template = cloud.template(subnet, group, blockDeviceMappings=[disk])
    if state == "Enabled":
        assert cloud.launch(template)
    else:
        assert "InvalidKMSKey" in cloud.launch_refusal(template)


def test_addresses_run_out(cloud: Cloud) -> None:
    subnet, group = cloud.network(block="10.0.0.0/28")
    template = cloud.template(subnet, group)
    for _ in range(11):
        cloud.launch(template)
    assert "InsufficientFreeAddressesInSubnet" in cloud.launch_refusal(template)


@pytest.mark.parametrize(
    ("changed", "code"),
    [
        ({"instanceType": "p5en.49xlarge"}, "Invalid value 'p5en.49xlarge' for InstanceType"),
        ({"instanceType": "p6e-gb200.36xlarge", "imageId": ARM_IMAGE}, "Unsupported"),
        ({"imageId": "ami-1"}, "InvalidAMIID.NotFound"),
        ({"imageId": ARM_IMAGE}, "does not match"),
        ({"keyName": "theirs"}, "InvalidKeyPair.NotFound"),
        (entering("cr-1"), "InvalidCapacityReservationId.NotFound"),
        (entering(BLOCK), "in zone use1-az2, the subnet in use1-az1"),
        (
            {"instanceMarketOptions": {"marketType": "capacity-block"}},
            "needs a capacity reservation",
        ),
    ],
)
def test_a_launch_that_cannot_be_is_refused(
    cloud: Cloud, changed: dict[str, object], code: str
) -> None:
    subnet, group = cloud.network()
    assert code in cloud.launch_refusal(cloud.template(subnet, group, **changed))


def test_a_reservation_holds_so_many_instances_of_its_own_type(cloud: Cloud) -> None:
    subnet, group = cloud.network(zone="use1-az2")
    template = cloud.template(subnet, group, **entering(BLOCK))
    cloud.launch(template)
    assert "ReservationCapacityExceeded" in cloud.launch_refusal(template)
    wrong = cloud.template(subnet, group, **entering(BLOCK), instanceType="p5e.48xlarge")
    assert "Unsupported" in cloud.launch_refusal(wrong)
    market = cloud.template(subnet, group, **entering(BLOCK, "spot"))
    assert "does not fit a reservation of kind capacity-block" in cloud.launch_refusal(market)


def test_a_capacity_block_takes_no_placement_group(cloud: Cloud) -> None:
    subnet, group = cloud.network(zone="use1-az2")
    placement = {"groupName": cloud.placement_group().id}
    template = cloud.template(subnet, group, **entering(BLOCK), placement=placement)
    assert "Capacity Blocks do not support placement groups" in cloud.launch_refusal(template)


def test_gb200_is_launched_into_its_ultraserver(cloud: Cloud) -> None:
    cloud.make(ZONE_GROUP, groupName="us-east-1-dfw-2", optInStatus="opted-in")
    subnet, group = cloud.network(zone="use1-dfw2-az1")
    changed = {"instanceType": "p6e-gb200.36xlarge", "imageId": ARM_IMAGE}
    alone = cloud.template(subnet, group, **changed)
    assert "into a capacity block only" in cloud.launch_refusal(alone)
    cloud.launch(cloud.template(subnet, group, **changed, **entering("cr-0000000000000000c")))


@pytest.mark.parametrize("missing", ["subnetId", "securityGroups", "groupName", "profile"])
def test_a_template_names_what_exists(cloud: Cloud, missing: str) -> None:
    subnet, group = cloud.network()
    row: dict[str, object] = {"subnetId": subnet.id, "securityGroups": [group.id]}
    inputs: dict[str, object] = {"networkInterfaces": [row]}
    if missing == "groupName":
        inputs["placement"] = {"groupName": "nowhere"}
    elif missing == "profile":
        inputs["iamInstanceProfile"] = {"arn": "arn:aws:iam::000000000000:instance-profile/x"}
    else:
        row[missing] = ["sg-0"] if missing == "securityGroups" else "subnet-0"
    assert "does not exist" in cloud.refusal(TEMPLATE, **inputs)


def test_an_unknown_template_version_is_refused(cloud: Cloud) -> None:
    subnet, group = cloud.network()
    template = cloud.template(subnet, group)
    said = cloud.refusal(INSTANCE, launchTemplate={"id": template.id, "version": "2"})
    assert "VersionNotFound" in said


@pytest.mark.parametrize(
    ("changed", "version"),
    [
        ({"tags": {"owner": "another"}}, 1),
        ({"keyName": None}, 2),
        ({"tagSpecifications": [{"resourceType": "volume", "tags": {"owner": "another"}}]}, 2),
    ],
)
def test_a_template_has_another_version_for_what_machines_are_made_from(
    cloud: Cloud, changed: dict[str, object], version: int
) -> None:
    template = cloud.template(*cloud.network())
    inputs = {**template.inputs, **changed}
    made = update(cloud.store, "us-east-1", template.id, template.urn, inputs)
    assert made.outputs["latestVersion"] == version


def test_capacity_runs_out_where_the_account_says_so(cloud: Cloud) -> None:
    account = replace(read_account(cloud.folder), instances_before_capacity_runs_out=1)
    write_account(cloud.folder, account)
    cloud.store = Store(cloud.folder)
    subnet, group = cloud.network()
    template = cloud.template(subnet, group)
    cloud.launch(template)
    assert "InsufficientInstanceCapacity" in cloud.launch_refusal(template)


def test_everything_is_on_disk(cloud: Cloud, tmp_path: Path) -> None:
    subnet, group = cloud.network()
    instance = cloud.launch(cloud.template(subnet, group))
    again = Store(tmp_path)
    assert again.get(INSTANCE, instance.id) == instance
    assert len(again.all()) == len(cloud.store.all())


def test_user_data_and_the_name_of_a_template_have_limits(cloud: Cloud) -> None:
    subnet, group = cloud.network()
    largest, larger = (base64.b64encode(bytes(size)).decode() for size in (16384, 16385))
    cloud.template(subnet, group, name="mine", userData=largest)
    inputs = {"imageId": ARM_IMAGE, "instanceType": "p5en.48xlarge"}
    assert "limited to 16384 bytes" in cloud.refusal(TEMPLATE, **inputs, userData=larger)
    assert "already in use" in cloud.refusal(TEMPLATE, **inputs, name="mine")
