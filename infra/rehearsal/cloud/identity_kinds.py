"""Identities of the emulated cloud: roles, their policies, instance profiles.

Refusals follow the IAM User Guide, "JSON policy element reference"; their words are those of the API.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from infra.rehearsal.cloud.kind import Kind, Link, Made, RefusedError, Request
from infra.rehearsal.cloud.store import Store
from infra.rehearsal.cloud.world import MANAGED_POLICIES

ROLE = "aws:iam/role:Role"
ROLE_POLICY = "aws:iam/rolePolicy:RolePolicy"
ATTACHMENT = "aws:iam/rolePolicyAttachment:RolePolicyAttachment"
PROFILE = "aws:iam/instanceProfile:InstanceProfile"

BAD_DOCUMENT = "MalformedPolicyDocument"
_VERSIONS = ("2008-10-17", "2012-10-17")
_OF_ROLE = Link(path="role", token=ROLE, code="NoSuchEntity")


def trusted_actions(store: Store, arn: str) -> Mapping[str, frozenset[str]]:
    """What each service may do by the trust policy of a role, by the service's name."""
    roles = (each for each in store.of_type(ROLE) if each.outputs.get("arn") == arn)
    found: dict[str, frozenset[str]] = {}
    for role in roles:
        for each in _statements(str(role.inputs.get("assumeRolePolicy"))):
            principal = each.get("Principal")
            services = _listed(principal.get("Service") if isinstance(principal, dict) else None)
            for service in services if each["Effect"] == "Allow" else ():
                found[service] = found.get(service, frozenset()) | {*_listed(each["Action"])}
    return found


def check_resource_policy(text: str, code: str) -> None:
    """A policy of a bucket or a file system says who, and of what (IAM User Guide).

    Raises:
        RefusedError: with the service's own code.
    """
    try:
        statements = _statements(text)
    except RefusedError as error:
        raise RefusedError(code, error.sentence) from error
    for each in statements:
        for name in ("Principal", "Resource"):
            if name not in each and f"Not{name}" not in each:
                raise RefusedError(code, f"Missing required field {name}")


def _statements(text: str) -> list[dict[str, object]]:
    """The statements of a policy document.

    Raises:
        RefusedError: it is none.
    """
    try:
        document = json.loads(text)
    except json.JSONDecodeError as error:
        raise RefusedError(BAD_DOCUMENT, f"The policy is not JSON: {error}.") from error
    found = document.get("Statement") if isinstance(document, dict) else None
    rows = found if isinstance(found, list) else [found]
    statements = [each for each in rows if isinstance(each, dict)]
    if (
        not rows
        or len(statements) < len(rows)
        or not all(
            each.get("Effect") in ("Allow", "Deny") and "Action" in each for each in statements
        )
    ):
        raise RefusedError(BAD_DOCUMENT, "Every statement needs Effect and Action.")
    if document.get("Version", _VERSIONS[0]) not in _VERSIONS:
        raise RefusedError(BAD_DOCUMENT, "The policy must contain a valid version string")
    for each in statements:
        if not all(action == "*" or ":" in action for action in _listed(each["Action"])):
            what = "Actions/Conditions must be prefaced by a vendor, e.g., iam, sdb, ec2, etc."
            raise RefusedError(BAD_DOCUMENT, what)
    return statements


def _listed(value: object) -> list[str]:
    """Words that stand alone or in a list."""
    return [str(each) for each in (value if isinstance(value, list) else [value] if value else [])]


def _check_trust(text: str) -> None:
    """A trust policy says who, and of nothing else than the role itself."""
    for each in _statements(text):
        if "Principal" not in each:
            raise RefusedError(BAD_DOCUMENT, "Missing required field Principal")
        if "Resource" in each:
            raise RefusedError(BAD_DOCUMENT, "Has prohibited field Resource")


def _check_permissions(text: str) -> None:
    """A policy of a role says of what, and never who."""
    for each in _statements(text):
        if "Principal" in each:
            raise RefusedError(BAD_DOCUMENT, "Policy document should not specify a principal.")
        resources = _listed(each.get("Resource") or each.get("NotResource"))
        if not resources:
            raise RefusedError(BAD_DOCUMENT, "Policy statement must contain resources.")
        for resource in resources:
            if resource != "*" and not resource.startswith("arn:"):
                what = f'Resource {resource} must be in ARN format or "*".'
                raise RefusedError(BAD_DOCUMENT, what)


def _make_role(request: Request) -> Made:
    _check_trust(request.text("assumeRolePolicy"))
    name = _new_name(request, ROLE, "Role")
    arn = f"arn:aws:iam::{request.account_id}:role/{name}"
    return Made(id=name, computed={"arn": arn, "uniqueId": f"AROA{request.digits.upper()}"})


def _make_profile(request: Request) -> Made:
    name = _new_name(request, PROFILE, "Instance Profile")
    arn = f"arn:aws:iam::{request.account_id}:instance-profile/{name}"
    return Made(id=name, computed={"arn": arn, "uniqueId": f"AIPA{request.digits.upper()}"})


def _make_role_policy(request: Request) -> Made:
    _check_permissions(request.text("policy"))
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
