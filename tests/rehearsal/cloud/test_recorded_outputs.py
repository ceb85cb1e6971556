"""What the emulated cloud computes looks as the real provider's recordings do."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

import pytest

from infra.rehearsal.cloud import operations
from infra.rehearsal.cloud.identity_kinds import PROFILE, ROLE
from infra.rehearsal.cloud.machine_kinds import TEMPLATE
from infra.rehearsal.cloud.network_kinds import (
    ADDRESS,
    ASSOCIATION,
    INTERNET_GATEWAY,
    NAT_GATEWAY,
    ROUTE,
    ROUTE_TABLE,
    SECURITY_GROUP,
    SUBNET,
    VPC,
)
from infra.rehearsal.cloud.package_types import resource_type
from infra.rehearsal.cloud.recorded_outputs import FILE, constant_outputs
from infra.rehearsal.cloud.storage_kinds import BUCKET
from tests.rehearsal.cloud.own_cluster import trust

if TYPE_CHECKING:
    from infra.rehearsal.cloud.store import Resource
    from tests.rehearsal.cloud.conftest import Cloud

# How the outputs look that differ from resource to resource, by type and name.
SHAPES: Mapping[str, Mapping[str, object]] = {
    token: recorded.get("shape", {})
    for token, recorded in json.loads(FILE.read_text(encoding="utf-8"))["types"].items()
}
RECORDED = [token for token in operations.KINDS if constant_outputs(token, "") or SHAPES.get(token)]
OURS = (
    *(VPC, SUBNET, INTERNET_GATEWAY, ROUTE_TABLE, ASSOCIATION, ROUTE, ADDRESS, NAT_GATEWAY),
    *(SECURITY_GROUP, ROLE, PROFILE, TEMPLATE, BUCKET),
)
PLACES = {"{hex}": r"[0-9a-f]{8,17}", "{account}": r"\d{12}", "{region}": r"[a-z]+-[a-z]+-\d"}


def pattern(shape: object, identity: str) -> str:
    """The shape as an expression."""
    text = re.escape(str(shape))
    for place, expression in {**PLACES, "{id}": re.escape(identity)}.items():
        text = text.replace(re.escape(place), expression)
    return text


@pytest.fixture
def made(cloud: Cloud) -> dict[str, Resource]:
    """One resource of every type that was recorded and that our programs make."""
    subnet, group = cloud.network()
    vpc = str(subnet.inputs["vpcId"])
    gateway = cloud.make(INTERNET_GATEWAY, vpcId=vpc)
    table = cloud.make(ROUTE_TABLE, vpcId=vpc)
    address = cloud.make(ADDRESS, domain="vpc")
    way = {"destinationCidrBlock": "0.0.0.0/0", "gatewayId": gateway.id}
    role = cloud.make(ROLE, assumeRolePolicy=trust("ec2.amazonaws.com"))
    found = [
        *(subnet, group, gateway, table, address, role),
        cloud.make(ASSOCIATION, routeTableId=table.id, subnetId=subnet.id),
        cloud.make(ROUTE, routeTableId=table.id, **way),
        cloud.make(NAT_GATEWAY, subnetId=subnet.id, allocationId=address.id),
        cloud.make(PROFILE, role=role.id),
        cloud.template(subnet, group),
        cloud.make(BUCKET),
        cloud.make(VPC, cidrBlock="10.7.0.0/16"),
    ]
    return {each.type: each for each in found}


def test_every_type_of_ours_that_was_recorded_is_looked_at() -> None:
    assert set(OURS) <= set(RECORDED)


@pytest.mark.parametrize("token", OURS)
def test_outputs_look_as_they_were_recorded(made: dict[str, Resource], token: str) -> None:
    resource = made[token]
    for name, value in constant_outputs(token, "us-east-1").items():
        if name not in resource.inputs and name not in ("latestVersion", "defaultVersion"):
            assert resource.outputs[name] == value, name
    for name, shape in SHAPES[token].items():
        assert re.fullmatch(pattern(shape, resource.id), str(resource.outputs[name])), name


@pytest.mark.parametrize("token", RECORDED)
def test_what_was_recorded_is_what_the_package_declares(token: str) -> None:
    recorded = {**constant_outputs(token, "us-east-1"), **SHAPES[token]}
    assert set(recorded) <= resource_type(token).outputs
