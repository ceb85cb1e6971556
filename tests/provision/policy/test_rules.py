"""Each rule both ways: what it refuses, and what stands beside it and is let through."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from infra.provision.policy import machines, roles, rules
from infra.provision.policy.declared import UNKNOWN, Declared
from infra.rehearsal.cloud.operations import KINDS
from infra.rehearsal.cloud.package_types import resource_type

Judge = Callable[[Declared], Iterator[str]]


def declared(kind: str, *, protected: bool = False, **properties: Any) -> Declared:
    return Declared(type=kind, name="mine", properties=properties, is_protected=protected)


def cluster(network: dict[str, Any], **properties: Any) -> Declared:
    return declared(rules.CLUSTER, vpcConfig=network, **properties)


def template(**properties: Any) -> Declared:
    return declared(rules.TEMPLATE, **properties)


def volume(encrypted: str) -> list[dict[str, Any]]:
    return [{"deviceName": "/dev/xvda", "ebs": {"encrypted": encrypted}}]


def gb200(**changed: Any) -> Declared:
    """A launch template that enters its UltraServer as it should, but for what is said."""
    whole = {
        "instanceType": "p6e-gb200.36xlarge",
        "tags": {rules.CAPACITY_TAG: "ultraserver"},
        "capacityReservationSpecification": targeted(rules.ONLY_RESERVED),
        "instanceMarketOptions": {"marketType": "capacity-block"},
    }
    return template(**{**whole, **changed})


def targeted(preference: str) -> dict[str, Any]:
    return {
        "capacityReservationPreference": preference,
        "capacityReservationTarget": {"capacityReservationId": "cr-1"},
    }


def attached(name: str) -> Declared:
    return declared(roles.ATTACHMENT, policyArn=f"arn:aws:iam::aws:policy/{name}")


def stating(kind: str = roles.ROLE_POLICY, **statement: object) -> Declared:
    document = json.dumps({"Statement": {"Effect": "Allow", **statement}})
    if kind == roles.ROLE:
        return declared(kind, inlinePolicies=[{"name": "x", "policy": document}])
    return declared(kind, policy=document)


def allowing(action: object, resource: object, effect: str = "Allow") -> Declared:
    statement = {"Effect": effect, "Action": action, "Resource": resource}
    return declared(roles.ROLE_POLICY, policy=json.dumps({"Statement": statement}))


def launched(**changed: Any) -> Declared:
    return replace(declared(rules.INSTANCE, launchTemplate=LAUNCHED), **changed)


REQUIRED: dict[str, Any] = {"metadataOptions": {"httpTokens": "required"}}
OPTIONAL: dict[str, Any] = {"metadataOptions": {"httpTokens": "optional"}}
LAUNCHED = {"id": UNKNOWN, "version": UNKNOWN}
ADMINISTRATOR = "arn:aws:iam::aws:policy/AdministratorAccess"
TAGS = {"Name": "x", "moe-infra:stack": "mine"}
OWN = "10.0.0.0/8"
ALL = "0.0.0.0/0"
REFUSED: list[tuple[Judge, Declared, str]] = [
    (rules.find_open_ports, declared(rules.INGRESS_RULE, cidrIpv4=ALL), ALL),
    (rules.find_open_ports, declared(rules.INGRESS_RULE, cidrIpv4="128.0.0.0/1"), "128.0.0.0/1"),
    (rules.find_open_ports, declared(rules.INGRESS_RULE, cidrIpv6="::/0"), "::/0"),
    (
        rules.find_open_ports,
        declared(rules.OLD_RULE, type="ingress", cidrBlocks=[OWN, ALL]),
        ALL,
    ),
    (
        rules.find_open_ports,
        declared(rules.SECURITY_GROUP, ingress=[{"ipv6CidrBlocks": ["::/0"]}]),
        "::/0",
    ),
    (rules.find_open_ports, declared(rules.LOAD_BALANCER), "faces the internet"),
    (rules.find_open_ports, declared(rules.LOAD_BALANCER, internal=False), "faces the internet"),
    (rules.find_open_ports, cluster({}), "Everybody may dial"),
    (rules.find_open_ports, cluster({"publicAccessCidrs": [OWN, ALL]}), "Everybody may dial"),
    (rules.find_open_ports, cluster({"publicAccessCidrs": ["0.0.0.0/1"]}), "Everybody may dial"),
    (rules.find_plain_secrets, cluster({}), "not encrypted"),
    (rules.find_plain_secrets, cluster({}, encryptionConfig={"resources": []}), "not encrypted"),
    (rules.find_old_metadata, template(), "IMDSv1 answers"),
    (rules.find_old_metadata, template(**OPTIONAL), "IMDSv1 answers"),
    (rules.find_old_metadata, declared(rules.INSTANCE, ami="ami-1"), "IMDSv1 answers"),
    (
        rules.find_old_metadata,
        declared(rules.INSTANCE, launchTemplate={"id": "lt-1"}, **OPTIONAL),
        "overrides",
    ),
    (rules.find_plain_volumes, template(), "the image decides"),
    (rules.find_plain_volumes, template(blockDeviceMappings=volume("false")), "/dev/xvda"),
    (rules.find_plain_volumes, declared(rules.VOLUME), "set encrypted"),
    (rules.find_plain_volumes, declared(rules.EFS, encrypted=False), "set encrypted"),
    (
        rules.find_plain_volumes,
        declared(rules.INSTANCE, rootBlockDevice={"volumeSize": 8}),
        "rootBlockDevice",
    ),
    (
        rules.find_plain_volumes,
        declared(rules.INSTANCE, ebsBlockDevices=[{"encrypted": True}, {"volumeSize": 8}]),
        "ebsBlockDevices",
    ),
    (
        rules.find_public_addresses,
        template(networkInterfaces=[{"associatePublicIpAddress": "true"}, {"deviceIndex": 1}]),
        "public address",
    ),
    (
        rules.find_public_addresses,
        template(networkInterfaces=[{"associatePublicIpAddress": "true"}]),
        "public address",
    ),
    (
        rules.find_public_addresses,
        declared(rules.INSTANCE, associatePublicIpAddress=True),
        "public address",
    ),
    (
        rules.find_public_addresses,
        declared(rules.SUBNET, mapPublicIpOnLaunch=True),
        "Every machine",
    ),
    (rules.find_missing_tags, declared(rules.BUCKET), "Name, moe-infra:stack"),
    (
        rules.find_missing_tags,
        declared(rules.BUCKET, tags={**TAGS, "moe-infra:stack": ""}),
        "moe-infra:stack",
    ),
    *(
        (rules.find_unprotected_weights, declared(kind), "not protected")
        for kind in (rules.BUCKET, rules.LUSTRE, rules.ASSOCIATION, rules.EFS)
    ),
    (roles.find_wide_roles, attached("AmazonSSMManagedInstanceCore"), "more than a host needs"),
    (roles.find_wide_roles, attached("AmazonS3FullAccess"), "more than a host needs"),
    (roles.find_wide_roles, attached("AmazonS3ReadOnlyAccess"), "more than a host needs"),
    (roles.find_wide_roles, allowing("s3:*", "arn:aws:s3:::mine"), "It allows s3:*"),
    (roles.find_wide_roles, allowing("*", "*"), "It allows * on *"),
    (roles.find_wide_roles, allowing("s3:GetObject", "*"), "It allows s3:GetObject on *"),
    (roles.find_wide_roles, allowing(["ssm:GetParameter"], ["*"]), "It allows ssm:GetParameter"),
    (roles.find_wide_roles, allowing("s3:GetObject", "arn:aws:s3:::*"), "It allows s3:GetObject"),
    (roles.find_wide_roles, allowing("S3:getobject", "*"), "It allows S3:getobject on *"),
    (roles.find_wide_roles, allowing("s3:GetObject", "arn:aws:s3:::*/*"), "on arn:aws:s3:::*/*"),
    (
        roles.find_wide_roles,
        stating(NotAction=["iam:*"], Resource="*"),
        "It allows all but iam:* on *",
    ),
    (
        roles.find_wide_roles,
        stating(Action="s3:GetObject", NotResource="arn:aws:s3:::theirs/*"),
        "on everything but arn:aws:s3:::theirs/*",
    ),
    *(
        (roles.find_wide_roles, stating(kind, Action="s3:*", Resource="*"), "It allows s3:* on *")
        for kind in (*roles.POLICIES, roles.ROLE)
    ),
    *(
        (roles.find_wide_roles, declared(kind, policyArn=ADMINISTRATOR), "more than a host needs")
        for kind in roles.ATTACHMENTS
    ),
    (
        roles.find_wide_roles,
        declared(roles.ROLE, managedPolicyArns=[ADMINISTRATOR]),
        "more than a host needs",
    ),
    (machines.find_replaceable, declared(rules.INSTANCE, launchTemplate=LAUNCHED), "replace it"),
    (
        rules.find_untargeted_reservations,
        gb200(capacityReservationSpecification={}),
        "targets no reservation",
    ),
    (
        rules.find_untargeted_reservations,
        template(instanceType="p6e-gb200.36xlarge"),
        "targets no reservation",
    ),
    (
        rules.find_untargeted_reservations,
        template(instanceType="p5en.48xlarge", tags={rules.CAPACITY_TAG: "odcr"}),
        "targets no reservation",
    ),
    (
        rules.find_untargeted_reservations,
        gb200(capacityReservationSpecification=targeted("open")),
        "outside the reservation",
    ),
    (rules.find_untargeted_reservations, gb200(instanceMarketOptions={}), "marketType"),
    (
        rules.find_untargeted_reservations,
        gb200(placement={"groupName": "hosts"}),
        "placement group",
    ),
]
ODCR = gb200(
    instanceType="p5en.48xlarge",
    tags={rules.CAPACITY_TAG: "odcr"},
    instanceMarketOptions={},
    placement={"groupName": "hosts"},
)
ALLOWED: list[tuple[Judge, Declared]] = [
    (rules.find_open_ports, declared(rules.INGRESS_RULE, cidrIpv4=OWN)),
    (rules.find_open_ports, declared(rules.INGRESS_RULE, referencedSecurityGroupId=UNKNOWN)),
    (rules.find_open_ports, declared(rules.EGRESS_RULE, cidrIpv4=ALL)),
    (rules.find_open_ports, declared(rules.OLD_RULE, type="egress", cidrBlocks=[ALL])),
    (rules.find_open_ports, declared(rules.SECURITY_GROUP, ingress=[{"cidrBlocks": [OWN]}])),
    (rules.find_open_ports, declared(rules.LOAD_BALANCER, internal=True)),
    (rules.find_open_ports, cluster({"publicAccessCidrs": [OWN]})),
    (rules.find_open_ports, cluster({"publicAccessCidrs": UNKNOWN})),
    (rules.find_open_ports, cluster({"endpointPublicAccess": False})),
    (rules.find_plain_secrets, cluster({}, encryptionConfig={"resources": ["secrets"]})),
    (rules.find_old_metadata, template(**REQUIRED)),
    (rules.find_old_metadata, declared(rules.INSTANCE, launchTemplate={"id": UNKNOWN})),
    (rules.find_old_metadata, declared(rules.INSTANCE, ami="ami-1", **REQUIRED)),
    (rules.find_plain_volumes, template(blockDeviceMappings=volume("true"))),
    (rules.find_plain_volumes, declared(rules.VOLUME, encrypted=True)),
    (rules.find_plain_volumes, declared(rules.INSTANCE, rootBlockDevice={"encrypted": True})),
    (rules.find_plain_volumes, declared(rules.INSTANCE)),
    (rules.find_public_addresses, template(networkInterfaces=[{"deviceIndex": 0}] * 2)),
    (
        rules.find_public_addresses,
        template(networkInterfaces=[{"associatePublicIpAddress": "false"}]),
    ),
    (rules.find_public_addresses, declared(rules.SUBNET)),
    (rules.find_missing_tags, declared(rules.BUCKET, tags=TAGS)),
    (rules.find_missing_tags, declared("aws:ec2/route:Route")),
    (rules.find_unprotected_weights, declared(rules.BUCKET, protected=True)),
    (rules.find_unprotected_weights, declared("aws:ec2/vpc:Vpc")),
    (roles.find_wide_roles, attached("AmazonEKSWorkerNodePolicy")),
    (roles.find_wide_roles, allowing("s3:GetObject", "arn:aws:s3:::mine/kimi/*")),
    (roles.find_wide_roles, allowing("ssmmessages:OpenDataChannel", "*")),
    (roles.find_wide_roles, allowing("s3:*", "*", effect="Deny")),
    (roles.find_wide_roles, declared(roles.ROLE_POLICY, policy=UNKNOWN)),
    (
        roles.find_wide_roles,
        declared(roles.ROLE, inlinePolicies=UNKNOWN, managedPolicyArns=UNKNOWN),
    ),
    (
        roles.find_wide_roles,
        declared(
            roles.ROLE,
            assumeRolePolicy=json.dumps({"Statement": {"Effect": "Allow", "Action": "sts:*"}}),
            managedPolicyArns=["arn:aws:iam::aws:policy/AmazonEKSWorkerNodePolicy"],
        ),
    ),
    (roles.find_wide_roles, stating(Effect="Deny", NotAction="s3:GetObject", Resource="*")),
    (machines.find_replaceable, launched(ignores=("launchTemplate",))),
    (machines.find_replaceable, launched(may_go=True)),
    (machines.find_replaceable, declared(rules.INSTANCE, ami="ami-1")),
    (machines.find_replaceable, template()),
    (rules.find_untargeted_reservations, gb200()),
    (rules.find_untargeted_reservations, template(instanceType="p5en.48xlarge")),
    (rules.find_untargeted_reservations, template(instanceType="m7i.large")),
    (rules.find_untargeted_reservations, ODCR),
]


@pytest.mark.parametrize(("judge", "resource", "said"), REFUSED)
def test_a_violation_is_found_and_said_once(judge: Judge, resource: Declared, said: str) -> None:
    (sentence,) = judge(resource)
    assert said in sentence


@pytest.mark.parametrize(("judge", "resource"), ALLOWED)
def test_what_is_right_is_let_through(judge: Judge, resource: Declared) -> None:
    assert list(judge(resource)) == []


def test_every_rule_is_tried_both_ways() -> None:
    known = {rule.judge for rule in rules.ONE_RULES} | {rules.find_missing_tags}
    assert {judge for judge, _, _ in REFUSED} == {judge for judge, _ in ALLOWED} == known


def test_further_tags_can_be_required() -> None:
    (sentence,) = rules.find_missing_tags(declared(rules.BUCKET, tags=TAGS), ("owner",))
    assert "owner" in sentence
    owned = declared(rules.BUCKET, tags={**TAGS, "owner": "me"})
    assert list(rules.find_missing_tags(owned, ("owner",))) == []


def test_the_types_that_take_tags_are_those_of_pulumi_aws() -> None:
    """A type that the stacks use and that takes tags is judged; one that takes none is not."""
    on_aws = [token for token in KINDS if token.startswith("aws:")]
    takes = {token for token in on_aws if "tags" in resource_type(token).inputs}
    assert takes <= rules.TAGGED
    assert all("tags" in resource_type(token).inputs for token in rules.TAGGED)


def standing(kind: str, launch_template: Declared | None = None, **changed: Any) -> Declared:
    """A machine or a group of nodes, launched from a template."""
    found = () if launch_template is None else (launch_template,)
    return replace(declared(kind), refers_to={"launchTemplate": found}, **changed)


BLOCK_NODES = {"capacityType": "CAPACITY_BLOCK"}


@pytest.mark.parametrize(
    ("machine", "said"),
    [
        (standing(rules.INSTANCE, gb200()), "or name it in replace_machines"),
        (standing(rules.INSTANCE, ODCR), "or name it in replace_machines"),
        (standing(rules.INSTANCE, gb200(tags={})), "or name it in replace_machines"),
        (standing(machines.NODE_GROUP, ODCR), "not protected: set protect."),
        (standing(machines.NODE_GROUP, properties=BLOCK_NODES), "not protected: set protect."),
        (standing(machines.NODE_GROUP, properties=BLOCK_NODES, may_go=True), "set protect."),
        (standing(rules.INSTANCE, gb200(), is_protected=True), None),
        (standing(rules.INSTANCE, gb200(), may_go=True), None),
        (standing(rules.INSTANCE, template(instanceType="p5en.48xlarge")), None),
        (standing(rules.INSTANCE), None),
        (standing(machines.NODE_GROUP, properties={"capacityType": "ON_DEMAND"}), None),
        (gb200(), None),
    ],
)
def test_machines_on_reserved_capacity_are_protected(machine: Declared, said: str | None) -> None:
    found = list(machines.find_unprotected([machine]))
    assert [resource for resource, _ in found] == ([machine] if said else [])
    assert all(said in sentence for _, sentence in found if said)


GROUP = Declared(type=rules.SECURITY_GROUP, name="hosts", properties={})
OTHER = Declared(type=rules.SECURITY_GROUP, name="other", properties={})


def self_rule(
    token: str, group: Declared = GROUP, source: Declared = GROUP, protocol: str = "-1"
) -> Declared:
    return Declared(
        type=token,
        name="self",
        properties={"ipProtocol": protocol},
        refers_to={"securityGroupId": (group,), "referencedSecurityGroupId": (source,)},
    )


def efa_template(kind: str = "efa-only") -> Declared:
    return Declared(
        type=rules.TEMPLATE,
        name="hosts",
        properties={"networkInterfaces": [{"interfaceType": "interface"}, {"interfaceType": kind}]},
        refers_to={"networkInterfaces": (GROUP,)},
    )


IN, OUT = self_rule(rules.INGRESS_RULE), self_rule(rules.EGRESS_RULE)


@pytest.mark.parametrize(
    ("others", "directions"),
    [
        ((IN, OUT), []),
        ((IN,), ["out to"]),
        ((OUT,), ["in from"]),
        ((), ["in from", "out to"]),
        ((IN, self_rule(rules.EGRESS_RULE, protocol="tcp")), ["out to"]),
        ((IN, self_rule(rules.EGRESS_RULE, source=OTHER)), ["out to"]),
        ((IN, self_rule(rules.EGRESS_RULE, group=OTHER, source=OTHER)), ["out to"]),
    ],
)
def test_groups_of_efa_interfaces_talk_among_themselves(
    others: tuple[Declared, ...], directions: list[str]
) -> None:
    found = list(rules.find_mute_groups((efa_template(), GROUP, *others)))
    assert [resource for resource, _ in found] == [GROUP for _ in directions]
    assert all(word in said for word, (_, said) in zip(directions, found, strict=True))


def test_a_group_without_efa_interfaces_need_not_talk() -> None:
    assert list(rules.find_mute_groups((efa_template("interface"), GROUP))) == []


@pytest.mark.parametrize(
    ("kind", "policy_kind", "key"),
    [
        (rules.BUCKET, rules.BUCKET_POLICY, "bucket"),
        (rules.EFS, rules.EFS_POLICY, "fileSystemId"),
    ],
)
def test_what_is_kept_answers_over_tls_alone(kind: str, policy_kind: str, key: str) -> None:
    kept, other = declared(kind), Declared(type=kind, name="another", properties={})

    def policy(text: object, of: Declared = kept) -> Declared:
        properties = {"policy": text}
        return Declared(type=policy_kind, name="p", properties=properties, refers_to={key: (of,)})

    statement = {
        "Effect": "Deny",
        "Principal": "*",
        "Condition": {"Bool": {"aws:SecureTransport": "false"}},
    }
    denies = json.dumps({"Statement": [statement]})
    for fine in (denies, UNKNOWN):
        assert list(rules.find_plain_transport((kept, policy(fine)))) == []
    lets_in = [
        policy(json.dumps({"Statement": [{**statement, **changed}]}))
        for changed in (
            {"Effect": "Allow"},
            {"Principal": {"AWS": "arn:aws:iam::123456789012:root"}},
            {"Condition": {"Bool": {"aws:SecureTransport": "true"}}},
        )
    ]
    for open_one in ((), (policy("{}"),), (policy(denies, other),), *((each,) for each in lets_in)):
        ((resource, said),) = rules.find_plain_transport((kept, *open_one))
        assert (resource, "without TLS" in said) == (kept, True)
