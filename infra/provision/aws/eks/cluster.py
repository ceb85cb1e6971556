"""A cluster on EKS: control plane, who may reach and administer it, and the add-ons that EKS keeps."""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Mapping
from dataclasses import dataclass

import pulumi
from pulumi import ResourceOptions
from pulumi_aws import eks, vpc

from infra.catalog.eks import ClusterAddon
from infra.provision.aws.eks.access import PODS, EksAccess
from infra.provision.aws.eks.config import EksFacts, admin_name
from infra.provision.aws.naming import partition
from infra.provision.naming import Tags

API_PORT = 443
ADMIN_POLICY = "AmazonEKSClusterAdminPolicy"
# The API server's own log is large and says little of who did what.
LOGS = ("audit", "authenticator")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSettings:
    """Everything that a cluster is made from.

    Args:
        subnet_ids: of the control plane, in two zones.
        addon_versions: by add-on; one that is left out takes the cloud's default.
        kept_addons: those that stay as they are: their versions follow the cluster's, not the day's.
        keeps_kubernetes: whether the control plane stays at the version that it has.
        is_protected: whether EKS refuses to delete it until somebody has lifted that.
    """

    name: str
    region: str
    facts: EksFacts
    subnet_ids: tuple[pulumi.Input[str], ...]
    addons: tuple[ClusterAddon, ...]
    addon_versions: Mapping[str, str]
    kept_addons: frozenset[str]
    keeps_kubernetes: bool
    is_protected: bool
    tags: Tags


class EksCluster(pulumi.ComponentResource):
    """The control plane, its access entries, and the add-ons without which no node becomes ready.

    `ready` is what nodes wait for, `reachable` what the API's first caller does; `group_id` the security group that
    control plane and nodes share; `kubeconfig` a document that logs in through the AWS command line. `add_rest` makes
    the add-ons that want nodes.
    """

    def __init__(self, name: str, settings: ClusterSettings, access: EksAccess) -> None:
        super().__init__("moe-infra:cluster:EksCluster", name)
        self._settings, self._access = settings, access
        self._child = ResourceOptions(parent=self)
        self.cluster = self._control_plane()
        self.group_id = self.cluster.vpc_config.cluster_security_group_id
        self.kubeconfig = kubeconfig(self.cluster, settings.region)
        self.reachable: tuple[pulumi.Resource, ...] = tuple(map(self._admin, settings.facts.admins))
        if not settings.facts.is_dialled_publicly:
            self.reachable += (self._let_in(settings.facts.api_from),)
        self.ready = tuple(self._addon(each, ()) for each in settings.addons if each.before_nodes)
        self.register_outputs({})

    def add_rest(self, nodes: pulumi.Resource) -> tuple[pulumi.Resource, ...]:
        """The add-ons whose pods want a node."""
        rest = (each for each in self._settings.addons if not each.before_nodes)
        return tuple(self._addon(each, (nodes,)) for each in rest)

    def _control_plane(self) -> eks.Cluster:
        settings, access = self._settings, self._access
        facts = settings.facts
        return eks.Cluster(
            "cluster",
            name=settings.name,
            version=facts.kubernetes_version,
            role_arn=access.control_plane_arn,
            vpc_config={
                "subnet_ids": list(settings.subnet_ids),
                "endpoint_private_access": True,
                "endpoint_public_access": facts.is_dialled_publicly,
                "public_access_cidrs": [str(facts.api_from)] if facts.is_dialled_publicly else None,
            },
            access_config={
                "authentication_mode": "API",
                # whoever made the cluster would be an administrator of whom nothing shows
                "bootstrap_cluster_creator_admin_permissions": False,
            },
            encryption_config={"provider": {"key_arn": access.key_arn}, "resources": ["secrets"]},
            bootstrap_self_managed_addons=False,
            deletion_protection=settings.is_protected,
            upgrade_policy={"support_type": facts.support},
            enabled_cluster_log_types=list(LOGS),
            tags=settings.tags.of("cluster"),
            opts=ResourceOptions(
                parent=self,
                depends_on=list(access.ready),
                ignore_changes=["version"] if settings.keeps_kubernetes else [],
            ),
        )

    def _admin(self, arn: str) -> eks.AccessPolicyAssociation:
        """A role that may do everything in the cluster."""
        name = admin_name(arn)
        entry = eks.AccessEntry(
            name,
            cluster_name=self.cluster.name,
            principal_arn=arn,
            tags=self._settings.tags.of(name),
            opts=self._child,
        )
        place = partition(self._settings.region)
        return eks.AccessPolicyAssociation(
            name,
            cluster_name=self.cluster.name,
            principal_arn=entry.principal_arn,
            policy_arn=f"arn:{place}:eks::aws:cluster-access-policy/{ADMIN_POLICY}",
            access_scope={"type": "cluster"},
            opts=self._child,
        )

    def _let_in(self, block: ipaddress.IPv4Network) -> vpc.SecurityGroupIngressRule:
        """Let a private block dial the API inside the network."""
        return vpc.SecurityGroupIngressRule(
            "api-in",
            security_group_id=self.group_id,
            cidr_ipv4=str(block),
            ip_protocol="tcp",
            from_port=API_PORT,
            to_port=API_PORT,
            tags=self._settings.tags.of("api-in"),
            opts=self._child,
        )

    def _addon(self, addon: ClusterAddon, after: tuple[pulumi.Resource, ...]) -> eks.Addon:
        identities = None
        if addon.policy is not None and addon.service_account is not None:
            role, attached = self._access.role(addon.name, PODS, (addon.policy,))
            identities = [{"role_arn": role.arn, "service_account": addon.service_account}]
            after = (*after, *attached)
        return eks.Addon(
            addon.name,
            cluster_name=self.cluster.name,
            addon_name=addon.name,
            addon_version=self._settings.addon_versions.get(addon.name),
            configuration_values=json.dumps(addon.values, sort_keys=True) if addon.values else None,
            pod_identity_associations=identities,
            resolve_conflicts_on_create="OVERWRITE",
            resolve_conflicts_on_update="OVERWRITE",
            tags=self._settings.tags.of(addon.name),
            opts=ResourceOptions(
                parent=self,
                depends_on=list(after),
                ignore_changes=["addonVersion"] if addon.name in self._settings.kept_addons else [],
            ),
        )


def kubeconfig(cluster: eks.Cluster, region: str) -> pulumi.Output[str]:
    """A kubeconfig that asks the AWS command line for a token whenever one is wanted: it holds no secret."""
    return pulumi.Output.all(
        name=cluster.name,
        endpoint=cluster.endpoint,
        certificate=cluster.certificate_authority.data,
    ).apply(lambda known: json.dumps(kubeconfig_document(region=region, **known), sort_keys=True))


def kubeconfig_document(
    *, name: str, endpoint: str, certificate: str, region: str
) -> dict[str, object]:
    """The document, for a cluster by name, endpoint and certificate authority (base64)."""
    command = ["eks", "get-token", "--cluster-name", name, "--region", region, "--output", "json"]
    login = {
        "apiVersion": "client.authentication.k8s.io/v1beta1",
        "command": "aws",
        "args": command,
        "interactiveMode": "Never",
    }
    server = {"server": endpoint, "certificate-authority-data": certificate}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": server}],
        "users": [{"name": name, "user": {"exec": login}}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
        "current-context": name,
    }
