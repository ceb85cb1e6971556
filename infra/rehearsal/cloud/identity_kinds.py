"""Identities of the emulated cloud: roles, their policies, instance profiles."""

from __future__ import annotations

import json
from collections.abc import Mapping

from infra.rehearsal.cloud.kind import Kind, Link, Made, RefusedError, Request
from infra.rehearsal.cloud.world import MANAGED_POLICIES

ROLE = "aws:iam/role:Role"
ROLE_POLICY = "aws:iam/rolePolicy:RolePolicy"
ATTACHMENT = "aws:iam/rolePolicyAttachment:RolePolicyAttachment"
PROFILE = "aws:iam/instanceProfile:InstanceProfile"

_OF_ROLE = Link(path="role", token=ROLE, code="NoSuchEntity")


def _check_document(text: str) -> None:
    try:
        document = json.loads(text)
    except json.JSONDecodeError as error:
        raise RefusedError(
            "MalformedPolicyDocument", f"The policy is not JSON: {error}."
        ) from error
    statements = document.get("Statement") if isinstance(document, dict) else None
    if not isinstance(statements, list) or not all(
        "Effect" in each and "Action" in each for each in statements
    ):
        raise RefusedError("MalformedPolicyDocument", "Every statement needs Effect and Action.")


def _make_role(request: Request) -> Made:
    _check_document(request.text("assumeRolePolicy"))
    name = _new_name(request, ROLE, "Role")
    arn = f"arn:aws:iam::{request.account_id}:role/{name}"
    return Made(id=name, computed={"arn": arn, "uniqueId": f"AROA{request.digits.upper()}"})


def _make_profile(request: Request) -> Made:
    name = _new_name(request, PROFILE, "Instance Profile")
    arn = f"arn:aws:iam::{request.account_id}:instance-profile/{name}"
    return Made(id=name, computed={"arn": arn, "uniqueId": f"AIPA{request.digits.upper()}"})


def _make_role_policy(request: Request) -> Made:
    _check_document(request.text("policy"))
    return Made(id=f"{request.text('role')}:{request.text('name')}", computed={})


def _make_attachment(request: Request) -> Made:
    policy = request.text("policyArn")
    if policy.rpartition("/")[2] not in MANAGED_POLICIES or ":iam::aws:policy/" not in policy:
        raise RefusedError("NoSuchEntity", f"Policy {policy} does not exist or is not attachable.")
    return Made(id=f"{request.text('role')}-{request.digits}", computed={})


def _new_name(request: Request, token: str, noun: str) -> str:
    name = request.text("name")
    if any(other.inputs.get("name") == name for other in request.others(token)):
        raise RefusedError("EntityAlreadyExists", f"{noun} with name {name} already exists.")
    return name


KINDS: Mapping[str, Kind] = {
    ROLE: Kind(noun="IAM Role", make=_make_role, auto_name="name"),
    ROLE_POLICY: Kind(
        noun="IAM Role Policy",
        make=_make_role_policy,
        auto_name="name",
        links=(_OF_ROLE,),
    ),
    ATTACHMENT: Kind(
        noun="IAM Role Policy Attachment",
        make=_make_attachment,
        links=(_OF_ROLE,),
    ),
    PROFILE: Kind(
        noun="IAM Instance Profile",
        make=_make_profile,
        auto_name="name",
        links=(_OF_ROLE,),
    ),
}
