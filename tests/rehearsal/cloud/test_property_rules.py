from __future__ import annotations

from collections.abc import Mapping

import pulumi_aws
import pytest

from infra.rehearsal.cloud import operations
from infra.rehearsal.cloud.package_types import (
    ListOf,
    MapOf,
    ObjectOf,
    UnknownTypeError,
    nested_properties,
    package_version,
    resource_type,
)
from infra.rehearsal.cloud.property_rules import property_failures
from infra.rehearsal.cloud.wire import UNKNOWN

TEMPLATE = "aws:ec2/launchTemplate:LaunchTemplate"


def reasons(token: str, **inputs: object) -> dict[str, str]:
    return dict(property_failures(inputs, resource_type(token).inputs))


@pytest.mark.parametrize("token", operations.KINDS)
def test_every_emulated_type_is_one_of_the_package(token: str) -> None:
    found = resource_type(token)
    assert found.inputs
    assert {"arn", "id", "region", "name", "tags"} & set(found.outputs) or found.outputs


@pytest.mark.parametrize("token", operations.KINDS)
def test_what_links_are_properties_of_the_package(token: str) -> None:
    kind, declared = operations.KINDS[token], resource_type(token).inputs
    assert {link.path.partition(".")[0].removesuffix("[]") for link in kind.links} <= set(declared)
    assert kind.auto_name is None or kind.auto_name in declared


def test_types_are_read_from_the_source() -> None:
    inputs = resource_type(TEMPLATE).inputs
    rows = inputs["networkInterfaces"].type
    assert isinstance(rows, ListOf)
    assert isinstance(rows.element, ObjectOf)
    assert nested_properties(rows.element)["networkCardIndex"].type == "integer"
    assert inputs["tags"].type == MapOf("text")
    assert inputs["updateDefaultVersion"].type == "truth"
    assert (
        resource_type("aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule")
        .inputs["ipProtocol"]
        .is_required
    )
    assert (
        package_version() == pulumi_aws.__version__ if hasattr(pulumi_aws, "__version__") else True
    )


@pytest.mark.parametrize("token", ["aws:ec2/vpcs:Vpcs", "aws:ec2/vpc:Vcp", "gcp:compute:Network"])
def test_a_type_that_the_package_does_not_have_is_an_error(token: str) -> None:
    with pytest.raises(UnknownTypeError):
        resource_type(token)


@pytest.mark.parametrize(
    ("inputs", "path", "said"),
    [
        ({"imageID": "ami-1"}, "imageID", 'Did you mean "imageId"?'),
        ({"networkInterfaces": {"deviceIndex": 0}}, "networkInterfaces", "a list is required"),
        (
            {"networkInterfaces": [{"deviceIndx": 0}]},
            "networkInterfaces[0].deviceIndx",
            'Did you mean "networkInterfaces[0].deviceIndex"?',
        ),
        (
            {"networkInterfaces": [{"deviceIndex": "first"}]},
            "networkInterfaces[0].deviceIndex",
            "is not a integer",
        ),
        ({"metadataOptions": "required"}, "metadataOptions", "an object is required"),
        ({"tags": ["a"]}, "tags", "a map is required"),
        ({"updateDefaultVersion": "often"}, "updateDefaultVersion", "is not a truth"),
    ],
)
def test_wrong_inputs_are_named_by_their_path(
    inputs: Mapping[str, object], path: str, said: str
) -> None:
    found = reasons(TEMPLATE, **inputs)
    assert said.rpartition(".")[2] in found[path] or said in found[path]


def test_a_missing_required_argument_is_named() -> None:
    found = reasons("aws:ec2/subnet:Subnet", cidrBlock="10.0.0.0/24")
    assert found == {"vpcId": 'Missing required argument. The argument "vpcId" is required'}


def test_what_a_preview_does_not_know_is_no_error() -> None:
    assert reasons(TEMPLATE, networkInterfaces=UNKNOWN, imageId=UNKNOWN, tags=UNKNOWN) == {}


def test_a_type_that_is_not_emulated_says_so() -> None:
    failures = operations.check("aws:sqs/queue:Queue", "urn:x::y::aws:sqs/queue:Queue::q", {}, {})
    assert "does not know aws:sqs/queue:Queue" in failures[0][1]
