"""Clusters of the emulated cloud: control planes, add-ons, access entries, Pod Identity.

Refusals follow the EKS User Guide: "Subnet requirements and considerations", "Pod Identity", checked 2026-11-22;
those of what is there already the errors of the EKS API Reference (`ResourceInUseException`).
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator, Mapping

from infra.rehearsal.cloud.encryption_keys import known_keys
from infra.rehearsal.cloud.identity_kinds import ROLE, trusted_actions
from infra.rehearsal.cloud.kind import Kind, Link, Made, RefusedError, Request, values_at
from infra.rehearsal.cloud.network_kinds import SECURITY_GROUP, SUBNET
from infra.rehearsal.cloud.store import Resource, Store, digits
from infra.rehearsal.cloud.world import (
    ADDONS,
    KUBERNETES_VERSIONS,
    NO_CONTROL_PLANE,
    ZONES,
)

CLUSTER = "aws:eks/cluster:Cluster"
NODE_GROUP = "aws:eks/nodeGroup:NodeGroup"
ADDON = "aws:eks/addon:Addon"
ACCESS_ENTRY = "aws:eks/accessEntry:AccessEntry"
ACCESS_POLICY = "aws:eks/accessPolicyAssociation:AccessPolicyAssociation"
POD_IDENTITY = "aws:eks/podIdentityAssociation:PodIdentityAssociation"

IN_CLUSTER = Link(
    path="clusterName", token=CLUSTER, handle="name", code="ResourceNotFoundException"
)
# What there is one of in an account or a cluster, by the properties that tell it from others.
ONE_EACH: Mapping[str, tuple[str, ...]] = {
    CLUSTER: ("name",),
    NODE_GROUP: ("clusterName", "nodeGroupName"),
    ADDON: ("clusterName", "addonName"),
    ACCESS_ENTRY: ("clusterName", "principalArn"),
    POD_IDENTITY: ("clusterName", "namespace", "serviceAccount"),
}
_LEAST_ZONES = 2
_OF_PODS = {"sts:AssumeRole", "sts:TagSession"}  # EKS User Guide, "EKS Pod Identity role"
BAD = "InvalidParameterException"


def refuse_second(request: Request, token: str) -> None:
    """Nothing, or `RefusedError`: EKS has one of these already, whoever made it."""
    names = ONE_EACH.get(token, ())
    own = [request.text(name) for name in names]
    for other in request.others(token) if names else ():
        if [other.inputs.get(name) for name in names] == own:
            what = f"{token.rpartition(':')[2]} already exists with name: {'/'.join(own)}"
            raise RefusedError("ResourceInUseException", what)


def eks_arn(request: Request, noun: str, name: str) -> str:
    """The ARN of a resource of EKS."""
    return f"arn:aws:eks:{request.region}:{request.account_id}:{noun}/{name}"


def _make_cluster(request: Request) -> Made:
    version, name = request.text("version"), request.text("name")
    if version not in KUBERNETES_VERSIONS:
        raise RefusedError(BAD, f"unsupported Kubernetes version {version}")
    for sentence in (*_cluster_refusals(request), *_role_refusals(request)):
        raise RefusedError(BAD, sentence)
    old = request.old
    group = old.hidden["group"] if old else _cluster_group(request)
    vpc_config = {
        **map_of(request.inputs.get("vpcConfig")),
        "clusterSecurityGroupId": group,
        "vpcId": _vpc_of(request),
    }
    authority = base64.b64encode(f"certificate of {name}".encode()).decode()
    computed = {
        "arn": eks_arn(request, "cluster", name),
        "vpcConfig": vpc_config,
        "endpoint": f"https://{digits(name).upper()}.gr7.{request.region}.eks.amazonaws.com",
        "certificateAuthority": {"data": authority},
        "platformVersion": "eks.1",
        "createdAt": "2026-01-01T00:00:00Z",
    }
    return Made(id=name, computed=computed, hidden={"group": group})


def _cluster_refusals(request: Request) -> Iterator[str]:
    subnets = [
        found
        for value in values_at(request.inputs, "vpcConfig.subnetIds[]")
        if (found := request.store.get(SUBNET, str(value))) is not None
    ]
    zones = {str(each.outputs["availabilityZoneId"]) for each in subnets}
    for zone_id in sorted(zones):
        if zone_id in NO_CONTROL_PLANE or ZONES[zone_id].type == "local-zone":
            yield f"Cannot create cluster: {zone_id} does not support a control plane."
    if len(zones) < _LEAST_ZONES:
        yield "Subnets specified must be in at least two different AZs"
    if len({each.inputs.get("vpcId") for each in subnets}) > 1:
        yield "Subnets must be in one VPC."
    vpc_config = map_of(request.inputs.get("vpcConfig"))
    support = next(values_at(request.inputs, "upgradePolicy.supportType"), "EXTENDED")
    if support not in ("STANDARD", "EXTENDED"):
        yield f"supportType {support} is not valid."
    is_public = vpc_config.get("endpointPublicAccess", True) is True
    if not is_public and vpc_config.get("endpointPrivateAccess") is not True:
        yield "Private and public endpoint access cannot be disabled at the same time."
    if not is_public and vpc_config.get("publicAccessCidrs"):
        yield "publicAccessCidrs is not supported when public access is disabled."
    keys = known_keys(request.store)
    for arn in values_at(request.inputs, "encryptionConfig.provider.keyArn"):
        if arn not in keys:
            yield f"The keyArn in encryptionConfig provider {arn} is invalid."


def _role_refusals(request: Request) -> Iterator[str]:
    arn = request.text("roleArn")
    if "sts:AssumeRole" not in trusted_actions(request.store, arn).get("eks.amazonaws.com", ()):
        yield (
            f"Role with arn: {arn}, could not be assumed because it does not exist or the trusted entity is not "
            "correct"
        )


def _vpc_of(request: Request) -> object:
    first = next(values_at(request.inputs, "vpcConfig.subnetIds[]"), "")
    subnet = request.store.get(SUBNET, str(first))
    return subnet.inputs.get("vpcId") if subnet is not None else None


def _cluster_group(request: Request) -> str:
    """The security group that EKS makes for control plane and nodes."""
    identity = f"sg-{digits(request.digits + 'cluster')}"
    urn = f"{request.urn}/cluster-security-group"
    inputs: dict[str, object] = {
        "name": f"eks-cluster-sg-{request.text('name')}",
        "vpcId": _vpc_of(request),
    }
    request.store.put(
        Resource(
            type=SECURITY_GROUP,
            id=identity,
            urn=urn,
            inputs=inputs,
            outputs={"id": identity, **inputs},
            hidden={"digits": request.digits, "owner": request.text("name")},
        )
    )
    return identity


def _belongings(store: Store, cluster: Resource) -> list[Resource]:
    """The cluster's own security group, and every object of its API."""
    return [
        each
        for each in store.all()
        if each.hidden.get("owner") == cluster.id or each.hidden.get("cluster") == cluster.id
    ]


def _protection(cluster: Resource) -> RefusedError | None:
    """EKS User Guide, "Protect EKS clusters from accidental deletion", checked 2026-11-27; its sentence is ours."""
    if cluster.inputs.get("deletionProtection") is not True:
        return None
    what = f"Cluster {cluster.id} has deletion protection turned on."
    return RefusedError("InvalidRequestException", what)


def _make_addon(request: Request) -> Made:
    cluster, name = cluster_of(request), request.text("addonName")
    offered = ADDONS.get(name)
    if offered is None:
        raise RefusedError(BAD, f"Addon {name} specified is not supported.")
    version = request.text("addonVersion") or offered
    if not re.fullmatch(r"v\d+\.\d+\.\d+-eksbuild\.\d+", version):
        raise RefusedError(BAD, f"Addon version {version} is not supported.")
    _json(request.text("configurationValues"))
    needs_nodes = name in {"coredns", "aws-fsx-csi-driver"}
    groups = [
        each
        for each in request.others(NODE_GROUP)
        if each.inputs.get("clusterName") == cluster.inputs.get("name")
    ]
    if needs_nodes and not groups:
        raise RefusedError("InsufficientNumberOfReplicas", f"{name} has no node to run on.")
    place = f"{request.text('clusterName')}/{name}"
    computed = {"arn": eks_arn(request, "addon", place), "addonVersion": version}
    return Made(id=place.replace("/", ":"), computed=computed)


def _json(text: str) -> None:
    try:
        json.loads(text or "{}")
    except json.JSONDecodeError as error:
        raise RefusedError(BAD, f"ConfigurationValue is not JSON: {error}.") from error


def _make_access_entry(request: Request) -> Made:
    arn = request.text("principalArn")
    if not re.fullmatch(r"arn:aws[a-z-]*:iam::\d{12}:(role|user)/.+", arn):
        raise RefusedError(BAD, f"The specified principalArn {arn} is invalid.")
    identity = f"{request.text('clusterName')}:{arn}"
    computed: dict[str, object] = {"userName": arn, "type": "STANDARD", "kubernetesGroups": []}
    computed["accessEntryArn"] = eks_arn(request, "access-entry", f"{identity}/{request.digits}")
    return Made(id=identity, computed=computed)


def _make_access_policy(request: Request) -> Made:
    cluster, arn = request.text("clusterName"), request.text("principalArn")
    if not any(
        (each.inputs.get("clusterName"), each.inputs.get("principalArn")) == (cluster, arn)
        for each in request.others(ACCESS_ENTRY)
    ):
        raise RefusedError("ResourceNotFoundException", f"{arn} has no access entry in {cluster}.")
    return Made(id=f"{cluster}#{arn}#{request.text('policyArn')}", computed={})


def _make_pod_identity(request: Request) -> Made:
    role = request.text("roleArn")
    if not trusted_actions(request.store, role).get("pods.eks.amazonaws.com", set()) >= _OF_PODS:
        what = f"Trust policy of {role} lets pods.eks.amazonaws.com not do {', '.join(sorted(_OF_PODS))}."
        raise RefusedError(BAD, what)
    identity = f"a-{request.digits}"
    place = f"{request.text('clusterName')}/{identity}"
    arn = eks_arn(request, "podidentityassociation", place)
    return Made(id=place, computed={"associationArn": arn, "associationId": identity})


def cluster_of(request: Request) -> Resource:
    """The cluster that `clusterName` names; links have seen that there is one."""
    name = request.text("clusterName")
    return next(each for each in request.store.of_type(CLUSTER) if each.inputs.get("name") == name)


def map_of(value: object) -> Mapping[str, object]:
    """A value as a map, empty when it is none."""
    return value if isinstance(value, Mapping) else {}


KINDS: Mapping[str, Kind] = {
    CLUSTER: Kind(
        noun="EKS Cluster",
        make=_make_cluster,
        auto_name="name",
        belongings=_belongings,
        keeps=_protection,
        links=(
            Link(path="vpcConfig.subnetIds[]", token=SUBNET, code=BAD),
            Link(path="roleArn", token=ROLE, handle="arn", code=BAD),
        ),
    ),
    ADDON: Kind(
        noun="EKS Add-On",
        make=_make_addon,
        links=(
            IN_CLUSTER,
            Link(path="podIdentityAssociations[].roleArn", token=ROLE, handle="arn", code=BAD),
        ),
    ),
    ACCESS_ENTRY: Kind(
        noun="EKS Access Entry",
        make=_make_access_entry,
        links=(IN_CLUSTER,),
    ),
    ACCESS_POLICY: Kind(
        noun="EKS Access Policy Association",
        make=_make_access_policy,
        links=(IN_CLUSTER,),
    ),
    POD_IDENTITY: Kind(
        noun="EKS Pod Identity Association",
        make=_make_pod_identity,
        links=(IN_CLUSTER, Link(path="roleArn", token=ROLE, handle="arn", code=BAD)),
    ),
}
