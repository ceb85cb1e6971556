"""The rules: each takes a resource, or all of them, and yields a sentence for every violation.

Inputs are judged, so that a violation is seen in `pulumi preview`, before anything is made. Nothing here
knows Pulumi: `analyzer` brings the resources.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from infra.catalog.instance_types import instance_type_names, read_instance_type
from infra.provision.address_blocks import is_the_world
from infra.provision.policy import machines, roles
from infra.provision.policy.declared import (
    UNKNOWN,
    Declared,
    Findings,
    map_of,
    statements_of,
    text_of,
    texts_of,
)

INGRESS_RULE = "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule"
EGRESS_RULE = "aws:vpc/securityGroupEgressRule:SecurityGroupEgressRule"
OLD_RULE = "aws:ec2/securityGroupRule:SecurityGroupRule"
SECURITY_GROUP = "aws:ec2/securityGroup:SecurityGroup"
TEMPLATE = machines.TEMPLATE
INSTANCE = machines.INSTANCE
VOLUME = "aws:ebs/volume:Volume"
SUBNET = "aws:ec2/subnet:Subnet"
BUCKET = "aws:s3/bucket:Bucket"
BUCKET_POLICY = "aws:s3/bucketPolicy:BucketPolicy"
LUSTRE = "aws:fsx/lustreFileSystem:LustreFileSystem"
ASSOCIATION = "aws:fsx/dataRepositoryAssociation:DataRepositoryAssociation"
EFS = "aws:efs/fileSystem:FileSystem"
EFS_POLICY = "aws:efs/fileSystemPolicy:FileSystemPolicy"
CLUSTER = "aws:eks/cluster:Cluster"
LOAD_BALANCER = "aws:lb/loadBalancer:LoadBalancer"

ANY_PROTOCOL = "-1"
TLS_ALONE = "aws:SecureTransport"
CAPACITY_TAG = machines.CAPACITY_TAG
REQUIRED_TAGS = ("Name", "moe-infra:stack")
ONLY_RESERVED = "capacity-reservations-only"
# Types of ours that take tags; pulumi-aws says which, and a test holds the two against each other.
TAGGED = frozenset(
    {
        *(INGRESS_RULE, EGRESS_RULE, SECURITY_GROUP, TEMPLATE, INSTANCE, SUBNET, BUCKET, LUSTRE),
        *(ASSOCIATION, EFS, LOAD_BALANCER, VOLUME, CLUSTER),
        "aws:cloudwatch/eventRule:EventRule",
        "aws:ec2/eip:Eip",
        "aws:ec2/internetGateway:InternetGateway",
        "aws:ec2/natGateway:NatGateway",
        "aws:ec2/placementGroup:PlacementGroup",
        "aws:ec2/routeTable:RouteTable",
        "aws:ec2/vpc:Vpc",
        "aws:ec2/vpcEndpoint:VpcEndpoint",
        "aws:eks/accessEntry:AccessEntry",
        "aws:eks/addon:Addon",
        machines.NODE_GROUP,
        "aws:eks/podIdentityAssociation:PodIdentityAssociation",
        "aws:iam/instanceProfile:InstanceProfile",
        roles.ROLE,
        "aws:kms/key:Key",
        "aws:lb/listener:Listener",
        "aws:lb/targetGroup:TargetGroup",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class OneRule:
    """A rule about single resources."""

    name: str
    description: str
    judge: Callable[[Declared], Findings]


@dataclass(frozen=True, slots=True, kw_only=True)
class AllRule:
    """A rule about all resources of a stack together; findings come with the resource they are about."""

    name: str
    description: str
    judge: Callable[[Sequence[Declared]], Iterator[tuple[Declared, str]]]


def find_open_ports(resource: Declared) -> Findings:
    """Rules that let everybody in."""
    blocks: list[str] = []
    if resource.type == INGRESS_RULE:
        blocks = [resource.text("cidrIpv4"), resource.text("cidrIpv6")]
    elif resource.type == OLD_RULE and resource.text("type") == "ingress":
        blocks = texts_of(resource.properties, "cidrBlocks", "ipv6CidrBlocks")
    elif resource.type == SECURITY_GROUP:
        for row in resource.rows("ingress"):
            blocks += texts_of(row, "cidrBlocks", "ipv6CidrBlocks")
    for block in blocks:
        if is_the_world(block):
            yield f"{block} may dial it; engines and routers answer whoever reaches them. Name your own network."
    if resource.type == CLUSTER:
        yield from _open_api(resource.map("vpcConfig"))
    if resource.type == LOAD_BALANCER and resource.text("internal") != "true":
        yield "It faces the internet: set internal."


def _open_api(network: Mapping[str, object]) -> Findings:
    """A cluster's API that everybody may dial: AWS opens it unless it is told otherwise."""
    blocks = texts_of(network, "publicAccessCidrs")
    is_open = not blocks or any(map(is_the_world, blocks))
    is_unknown = network.get("publicAccessCidrs") is UNKNOWN
    if is_open and not is_unknown and text_of(network, "endpointPublicAccess") != "false":
        yield "Everybody may dial the cluster's API: name your own blocks in publicAccessCidrs, or make it private."


def find_plain_secrets(resource: Declared) -> Findings:
    """Clusters whose secrets are not encrypted with a key of the account's own."""
    if resource.type == CLUSTER:
        encrypted = texts_of(resource.map("encryptionConfig"), "resources")
        if "secrets" not in encrypted:
            yield "Its secrets are not encrypted with a key of yours: set encryptionConfig for secrets."


def find_old_metadata(resource: Declared) -> Findings:
    """Machines whose instance credentials can be had without a session token (IMDSv1)."""
    given = resource.map("metadataOptions")
    is_safe = text_of(given, "httpTokens") == "required"
    stands_alone = resource.type == INSTANCE and not resource.map("launchTemplate")
    if (resource.type == TEMPLATE or stands_alone) and not is_safe:
        yield "IMDSv1 answers: set metadataOptions.httpTokens to required."
    elif resource.type == INSTANCE and given and not is_safe:
        yield "It overrides its template's metadataOptions and lets IMDSv1 answer."


def find_plain_volumes(resource: Declared) -> Findings:
    """Volumes and file systems that are not encrypted; Lustre and buckets always are."""
    if resource.type in (VOLUME, EFS) and resource.text("encrypted") != "true":
        yield "It is not encrypted: set encrypted."
    if resource.type == TEMPLATE:
        mappings = [row for row in resource.rows("blockDeviceMappings") if map_of(row, "ebs")]
        if not mappings:
            yield "It maps no root volume, so the image decides whether that is encrypted."
        for row in mappings:
            if text_of(map_of(row, "ebs"), "encrypted") != "true":
                yield f"Volume {text_of(row, 'deviceName')} is not encrypted."
    if resource.type == INSTANCE:
        for name in ("rootBlockDevice", "ebsBlockDevices"):
            rows = [resource.map(name)] if resource.map(name) else list(resource.rows(name))
            if any(text_of(row, "encrypted") != "true" for row in rows):
                yield f"{name} is not encrypted."


def find_public_addresses(resource: Declared) -> Findings:
    """Machines that ask for a public address, and subnets that give one to each."""
    asks = resource.type == INSTANCE and resource.text("associatePublicIpAddress") == "true"
    if resource.type == TEMPLATE:
        rows = resource.rows("networkInterfaces")
        asks = any(text_of(row, "associatePublicIpAddress") == "true" for row in rows)
    if asks:
        yield "It asks for a public address; hosts are reached inside their network."
    if resource.type == SUBNET and resource.text("mapPublicIpOnLaunch") == "true":
        yield "Every machine in it would get a public address."


def find_missing_tags(resource: Declared, further: Sequence[str] = ()) -> Findings:
    """Resources that do not say whose they are."""
    if resource.type not in TAGGED:
        return
    tags = resource.map("tags")
    missing = [tag for tag in (*REQUIRED_TAGS, *further) if tags.get(tag) in (None, "")]
    if missing:
        yield f"It lacks the tags {', '.join(missing)}."


def find_unprotected_weights(resource: Declared) -> Findings:
    """What holds weights, and would go with a `pulumi destroy`."""
    if resource.type in (BUCKET, LUSTRE, ASSOCIATION, EFS) and not resource.is_protected:
        yield "It holds weights and is not protected: protect and retain_on_delete belong to it."


def find_untargeted_reservations(resource: Declared) -> Findings:
    """Launch templates whose machines should come from a reservation, and would be bought beside it or refused."""
    if resource.type != TEMPLATE:
        return
    capacity = text_of(resource.map("tags"), CAPACITY_TAG) or "on-demand"
    name = resource.text("instanceType")
    known = read_instance_type(name).capacity_kinds if name in instance_type_names() else ()
    if capacity == "on-demand" and (not known or "on-demand" in known):
        return
    specification = resource.map("capacityReservationSpecification")
    target = map_of(specification, "capacityReservationTarget")
    if not target:
        yield f"{name} is {capacity} capacity and targets no reservation: it would be bought on demand, or refused."
    elif text_of(specification, "capacityReservationPreference") != ONLY_RESERVED:
        yield f"A launch outside the reservation is allowed: set capacityReservationPreference to {ONLY_RESERVED}."
    if capacity in ("capacity-block", "ultraserver"):
        if text_of(resource.map("instanceMarketOptions"), "marketType") != "capacity-block":
            yield "A capacity block is entered with instanceMarketOptions.marketType capacity-block."
        if text_of(resource.map("placement"), "groupName"):
            yield "A capacity block places its machines itself: a placement group is refused."


def find_mute_groups(resources: Sequence[Declared]) -> Iterator[tuple[Declared, str]]:
    """Security groups of launch templates' EFA interfaces whose members may not exchange any traffic, in and out."""
    groups = {
        (group.type, group.name): group
        for template in resources
        if template.type == TEMPLATE and _has_efa(template)
        for group in template.refers_to.get("networkInterfaces", ())
        if group.type == SECURITY_GROUP
    }
    for group in groups.values():
        for token, direction in ((INGRESS_RULE, "in from"), (EGRESS_RULE, "out to")):
            if not any(_is_self_rule(rule, group, token) for rule in resources):
                yield (
                    group,
                    f"Its members have EFA devices and no rule lets all traffic {direction} the group itself.",
                )


def find_plain_transport(resources: Sequence[Declared]) -> Iterator[tuple[Declared, str]]:
    """Buckets and shared file systems that answer without TLS; what a policy says may not be known yet."""
    for token, policy_token, key in (
        (BUCKET, BUCKET_POLICY, "bucket"),
        (EFS, EFS_POLICY, "fileSystemId"),
    ):
        policies = [each for each in resources if each.type == policy_token]
        for kept in (each for each in resources if each.type == token):
            texts = [each.properties.get("policy") for each in policies if each.is_from(key, kept)]
            if not any(text is UNKNOWN or _denies_plain(str(text)) for text in texts):
                yield (
                    kept,
                    f"It answers without TLS: give it a policy that denies where {TLS_ALONE} is false.",
                )


ONE_RULES: tuple[OneRule, ...] = (
    OneRule(
        name="no-ingress-from-the-world",
        description="Nothing lets everybody in, and load balancers are internal.",
        judge=find_open_ports,
    ),
    OneRule(
        name="imds-v2", description="Instance metadata wants a token.", judge=find_old_metadata
    ),
    OneRule(
        name="encrypted-volumes",
        description="Volumes and file systems are encrypted.",
        judge=find_plain_volumes,
    ),
    OneRule(
        name="encrypted-secrets",
        description="A cluster's secrets are encrypted with a key of the account.",
        judge=find_plain_secrets,
    ),
    OneRule(
        name="no-public-address",
        description="Hosts have no public address.",
        judge=find_public_addresses,
    ),
    OneRule(
        name="narrow-roles",
        description="Roles name what they may do, and with what.",
        judge=roles.find_wide_roles,
    ),
    OneRule(
        name="protected-weights",
        description="What holds weights is protected from deletion.",
        judge=find_unprotected_weights,
    ),
    OneRule(
        name="machines-stand",
        description="Another version of a launch template replaces no machine that is not named.",
        judge=machines.find_replaceable,
    ),
    OneRule(
        name="reservation-targeted",
        description="Launch templates for machines of a reservation launch into it and nowhere else.",
        judge=find_untargeted_reservations,
    ),
)
TAG_RULE = "required-tags"
TAG_DESCRIPTION = "Every resource says whose it is."
ALL_RULES: tuple[AllRule, ...] = (
    AllRule(
        name="protected-machines",
        description="Machines on reserved capacity are protected from deletion.",
        judge=machines.find_unprotected,
    ),
    AllRule(
        name="tls-alone",
        description="Buckets and shared file systems answer over TLS alone.",
        judge=find_plain_transport,
    ),
    AllRule(
        name="efa-self-rules",
        description="Groups of launch templates' EFA interfaces let their members exchange any traffic.",
        judge=find_mute_groups,
    ),
)


def _has_efa(template: Declared) -> bool:
    return any(
        text_of(row, "interfaceType") in ("efa", "efa-only")
        for row in template.rows("networkInterfaces")
    )


def _is_self_rule(rule: Declared, group: Declared, token: str) -> bool:
    return (
        rule.type == token
        and rule.text("ipProtocol") == ANY_PROTOCOL
        and rule.is_from("securityGroupId", group)
        and rule.is_from("referencedSecurityGroupId", group)
    )


def _denies_plain(policy: str) -> bool:
    """Whether a statement of a policy document denies what comes without TLS, whoever asks."""
    wanted = {"Bool": {TLS_ALONE: "false"}}
    return any(
        each.get("Effect") == "Deny"
        and each.get("Condition") == wanted
        and each.get("Principal") in ("*", {"AWS": "*"})
        for each in statements_of(policy)
    )
