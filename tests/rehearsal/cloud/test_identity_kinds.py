"""Which policies the emulated cloud refuses, as IAM does."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from infra.rehearsal.cloud import operations
from infra.rehearsal.cloud.identity_kinds import ROLE, ROLE_POLICY, trusted_actions
from tests.rehearsal.cloud.own_cluster import trust

if TYPE_CHECKING:
    from tests.rehearsal.cloud.conftest import Cloud

READ = {"Effect": "Allow", "Action": ["s3:GetObject"], "Resource": ["arn:aws:s3:::weights/*"]}
TAKE = {
    "Effect": "Allow",
    "Action": "sts:AssumeRole",
    "Principal": {"Service": "ec2.amazonaws.com"},
}


def document(statement: dict[str, Any], **changed: object) -> str:
    """A policy of one statement, without what is changed to None."""
    whole = {**statement, **changed}
    kept = {key: value for key, value in whole.items() if value is not None}
    return json.dumps({"Version": "2012-10-17", "Statement": [kept]})


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"Principal": None}, "Missing required field Principal"),
        ({"Resource": "*"}, "Has prohibited field Resource"),
        ({"Effect": "Permit"}, "needs Effect and Action"),
        ({"Action": "AssumeRole"}, "prefaced by a vendor"),
    ],
)
def test_a_trust_policy_says_who_and_nothing_else(
    cloud: Cloud, changed: dict[str, object], says: str
) -> None:
    assert says in cloud.refusal(ROLE, assumeRolePolicy=document(TAKE, **changed))


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"Resource": None}, "must contain resources"),
        ({"Resource": "weights"}, "must be in ARN format"),
        ({"Principal": "*"}, "should not specify a principal"),
    ],
)
def test_a_policy_of_a_role_says_of_what_and_never_who(
    cloud: Cloud, changed: dict[str, object], says: str
) -> None:
    role = cloud.make(ROLE, assumeRolePolicy=document(TAKE))
    assert says in cloud.refusal(ROLE_POLICY, role=role.id, policy=document(READ, **changed))
    assert cloud.make(ROLE_POLICY, role=role.id, policy=document(READ))


def test_a_policy_is_one(cloud: Cloud) -> None:
    for text in ("{", "[]", '{"Statement": []}', '{"Version": "1", "Statement": []}'):
        assert "MalformedPolicyDocument" in cloud.refusal(ROLE, assumeRolePolicy=text)


def test_services_may_do_what_a_trust_policy_allows(cloud: Cloud) -> None:
    role = cloud.make(
        ROLE, assumeRolePolicy=trust("eks.amazonaws.com", actions=("sts:TagSession",))
    )
    found = trusted_actions(cloud.store, str(role.outputs["arn"]))
    assert found == {"eks.amazonaws.com": {"sts:TagSession"}}
    assert not trusted_actions(cloud.store, "arn:of-nobody")


def test_a_name_that_the_program_leaves_out_has_limits_as_its_own() -> None:
    for length, count in ((50, 0), (60, 1)):
        urn = f"urn:pulumi:test::moe-infra::{ROLE}::{'x' * length}"
        failures = operations.check(ROLE, urn, {"assumeRolePolicy": document(TAKE)}, {})
        assert [path for path, _ in failures] == ["name"] * count
