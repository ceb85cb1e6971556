"""The rule about roles: what they may do is named, and so is what they may do it with."""

from __future__ import annotations

import re
from collections.abc import Mapping

from infra.provision.policy.declared import Declared, Findings, statements_of, text_of, texts_of

ROLE_POLICY = "aws:iam/rolePolicy:RolePolicy"
ATTACHMENT = "aws:iam/rolePolicyAttachment:RolePolicyAttachment"
ROLE = "aws:iam/role:Role"
# What holds a policy document, and what attaches one by its name (pulumi-aws 7, module iam).
POLICIES = (
    ROLE_POLICY,
    "aws:iam/policy:Policy",
    "aws:iam/userPolicy:UserPolicy",
    "aws:iam/groupPolicy:GroupPolicy",
)
ATTACHMENTS = (
    ATTACHMENT,
    "aws:iam/policyAttachment:PolicyAttachment",
    "aws:iam/userPolicyAttachment:UserPolicyAttachment",
    "aws:iam/groupPolicyAttachment:GroupPolicyAttachment",
    "aws:iam/rolePolicyAttachmentsExclusive:RolePolicyAttachmentsExclusive",
)
# Policies of AWS's own by which a machine would do, or read, far more than it is for.
WIDE_POLICY = re.compile(
    r"AdministratorAccess|PowerUserAccess|FullAccess$|ReadOnlyAccess$|^AmazonSSMManagedInstanceCore$"
)


def find_wide_roles(resource: Declared) -> Findings:
    """Roles that may do everything with a service, or read objects and parameters of the whole account."""
    for arn in _attached(resource):
        name = arn.rpartition("/")[2]
        if WIDE_POLICY.search(name):
            yield f"{name} gives more than a host needs: name the actions and what they are of."
    for policy in _policies(resource):
        for each in statements_of(policy):
            if each.get("Effect") == "Allow" and (what := _wide(each)):
                yield f"It allows {what}: name what it is for."


def _attached(resource: Declared) -> list[str]:
    """ARNs of the policies that a resource attaches to roles."""
    if resource.type in ATTACHMENTS:
        return [resource.text("policyArn"), *texts_of(resource.properties, "policyArns")]
    return texts_of(resource.properties, "managedPolicyArns") if resource.type == ROLE else []


def _policies(resource: Declared) -> list[str]:
    """The policy documents that a resource gives to roles, users or groups."""
    if resource.type in POLICIES:
        return [resource.text("policy")]
    if resource.type == ROLE:
        return [text_of(each, "policy") for each in resource.rows("inlinePolicies")]
    return []


def _wide(statement: Mapping[str, object]) -> str:
    """What an allowing statement gives beyond what it can be for, in words; "" for one that names both.

    What `NotAction` and `NotResource` leave is everything else (IAM, "JSON policy elements").
    """
    resources = _words(statement.get("Resource"))
    on = ", ".join(resources) or "nothing"
    if spared := _words(statement.get("NotResource")):
        on = f"everything but {', '.join(spared)}"
    if excepted := _words(statement.get("NotAction")):
        return f"all but {', '.join(excepted)} on {on}"
    actions = _words(statement.get("Action"))
    wide = [action for action in actions if _is_any(action)]
    reading = [each for each in actions if each.lower().startswith(("s3:", "ssm:get"))]
    told = wide or (reading if spared or any(map(_is_everything, resources)) else [])
    return f"{', '.join(told)} on {on}" if told else ""


def _is_any(action: str) -> bool:
    """Whether wildcards stand for actions of a service, or for services."""
    return action.endswith("*") or "*" in action.partition(":")[0]


def _is_everything(resource: str) -> bool:
    """Whether a resource is everything of a service in the account: `*`, `arn:aws:s3:::*`."""
    return not resource.rpartition(":")[2].strip("*/")


def _words(value: object) -> list[str]:
    """Words that stand alone or in a list."""
    return [str(each) for each in (value if isinstance(value, list) else [value] if value else [])]
