from __future__ import annotations

import json
from collections.abc import Mapping

import pytest

from infra.rehearsal.cloud import operations
from infra.rehearsal.cloud.machine_kinds import PLACEMENT_GROUP, TEMPLATE
from infra.rehearsal.cloud.package_types import (
    ListOf,
    ObjectOf,
    Property,
    ValueType,
    nested_properties,
    resource_type,
)
from infra.rehearsal.cloud.storage_kinds import ELASTIC, LUSTRE, MOUNT_TARGET
from infra.rehearsal.cloud.value_rules import FILE, SHAPES, shape_names, value_failures
from infra.rehearsal.cloud.wire import UNKNOWN

LISTENER = "aws:lb/listener:Listener"
EVERY_PATH = [(token, path) for token, paths in SHAPES.items() for path in paths]


def declared_at(properties: Mapping[str, Property], path: str) -> ValueType:
    """The type that pulumi-aws declares at a property path; a KeyError when it declares none."""
    head, _, rest = path.partition(".")
    found: ValueType = properties[head.removesuffix("[]")].type
    if head.endswith("[]"):
        assert isinstance(found, ListOf), path
        found = found.element
    if not rest:
        return found
    assert isinstance(found, ObjectOf), path
    return declared_at(nested_properties(found), rest)


@pytest.mark.parametrize(("token", "path"), EVERY_PATH)
def test_every_property_that_is_judged_is_one_of_pulumi_aws(token: str, path: str) -> None:
    assert token in operations.KINDS
    assert not isinstance(declared_at(resource_type(token).inputs, path), ListOf | ObjectOf)


def test_the_stored_shapes_are_those_that_are_named_each_with_something_to_judge_by() -> None:
    shapes = json.loads(FILE.read_text(encoding="utf-8"))["shapes"]
    assert tuple(sorted(shapes)) == shape_names()
    assert all(set(shape) - {"type"} for shape in shapes.values())


@pytest.mark.parametrize(
    ("token", "inputs", "path", "said"),
    [
        (PLACEMENT_GROUP, {"strategy": "cloister"}, "strategy", "to be one of cluster, spread"),
        (
            TEMPLATE,
            {"metadataOptions": {"httpTokens": "mandatory"}},
            "metadataOptions.httpTokens",
            'one of optional, required, got "mandatory"',
        ),
        (
            TEMPLATE,
            {"instanceMarketOptions": {"marketType": "capacity_block"}},
            "instanceMarketOptions.marketType",
            "capacity-block",
        ),
        (
            TEMPLATE,
            {
                "blockDeviceMappings": [
                    {"ebs": {"volumeType": "gp3"}},
                    {"ebs": {"volumeType": "gp4"}},
                ]
            },
            "blockDeviceMappings[].ebs.volumeType",
            'got "gp4"',
        ),
        (LUSTRE, {"perUnitStorageThroughput": 2000}, "perUnitStorageThroughput", "at most 1000"),
        (LUSTRE, {"perUnitStorageThroughput": "8"}, "perUnitStorageThroughput", "at least 12"),
        (LUSTRE, {"fileSystemTypeVersion": "new"}, "fileSystemTypeVersion", "to match"),
        (ELASTIC, {"throughputMode": "fast"}, "throughputMode", "bursting, provisioned, elastic"),
        (MOUNT_TARGET, {"subnetId": "subnet-1"}, "subnetId", "at least 15 characters"),
        (MOUNT_TARGET, {"securityGroups": ["group-01234567"]}, "securityGroups[]", "to match"),
        (LISTENER, {"port": 70000}, "port", "at most 65535"),
        (LISTENER, {"port": 0}, "port", "at least 1"),
    ],
)
def test_a_value_that_aws_does_not_know_is_refused(
    token: str, inputs: dict[str, object], path: str, said: str
) -> None:
    ((where, reason),) = value_failures(token, inputs)
    assert where == path
    assert said in reason


@pytest.mark.parametrize(
    ("token", "inputs"),
    [
        (PLACEMENT_GROUP, {"strategy": "cluster"}),
        (PLACEMENT_GROUP, {"strategy": UNKNOWN}),
        (PLACEMENT_GROUP, {}),
        (LISTENER, {"port": 65535, "protocol": "TCP"}),
        (LUSTRE, {"perUnitStorageThroughput": 1000.0, "fileSystemTypeVersion": "2.15"}),
        ("aws:ec2/route:Route", {"anything": "at all"}),
    ],
)
def test_what_aws_takes_and_what_is_not_known_yet_is_let_through(
    token: str, inputs: dict[str, object]
) -> None:
    assert list(value_failures(token, inputs)) == []


def test_a_program_is_told_before_anything_is_made() -> None:
    failures = operations.check(PLACEMENT_GROUP, "urn:a::b::c::mine", {"strategy": "heap"}, {})
    assert [path for path, _ in failures] == ["strategy"]
