"""A stack on a cluster of its own: EKS, then the same workload as in any cluster."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pulumi
import pulumi_kubernetes as kubernetes
from pulumi import ResourceOptions
from pulumi_aws import ec2, eks

from infra.catalog.figures import read_loading_rates
from infra.plan.topology import Topology
from infra.provision.aws.block_notice import BlockNotice
from infra.provision.aws.eks.access import AccessSettings, EksAccess
from infra.provision.aws.eks.cluster import ClusterSettings, EksCluster
from infra.provision.aws.eks.decision import Decided, decide_cluster
from infra.provision.aws.eks.nodes import AcceleratorGroup, AcceleratorNodes, Place, SystemGroup
from infra.provision.aws.eks.pods import DNS_NAME, FILE_SYSTEM, MOUNT_NAME, SOURCE
from infra.provision.aws.eks.software import EksSoftware
from infra.provision.aws.eks.template import keeps_template
from infra.provision.aws.first_boot import LUSTRE_FOLDER, mount_script
from infra.provision.aws.host_access import WeightsRead
from infra.provision.aws.stack_network import NetworkSettings, StackNetwork
from infra.provision.aws.weight_rules import Loading, loading_warnings
from infra.provision.aws.weight_store import WeightStore, reading_key
from infra.provision.cluster.workload import ClusterApi, Workload, pod_inventory
from infra.provision.platform import Declared
from infra.spec.load import LoadedStack


@dataclass(frozen=True, slots=True, kw_only=True)
class _Made:
    """The components that nodes and pods are put into."""

    network: StackNetwork
    weights: WeightStore
    access: EksAccess
    cluster: EksCluster


def decide(declared: Declared) -> Decided:
    """Everything that can be refused, before the first resource.

    Raises:
        InfraError: the stack or the account's configuration is wrong, or the account lacks what they name.
    """
    return decide_cluster(declared.stack, declared.topology, declared.catalog)


def make(declared: Declared, decided: Decided) -> pulumi.Output[dict[str, object]]:
    """Register a cluster and the objects of a stack in it; returns the inventory document, whose hosts are pods."""
    stack, topology = declared.stack, declared.topology
    loading = Loading(
        size_bytes=declared.size_bytes,
        num_hosts=decided.capacity.num_hosts,
        target_s=stack.spec.weights.load_target_s,
    )
    lustre = decided.account.lustre
    for warning in loading_warnings(decided.store.storage, lustre, loading, read_loading_rates()):
        pulumi.log.warn(warning)
    made = _make_cluster(topology.stack, decided)
    if decided.notice is not None:
        BlockNotice(topology.stack, decided.notice, decided.tags)
    nodes = _nodes(decided, made)
    provider = kubernetes.Provider(
        "cluster",
        kubeconfig=made.cluster.kubeconfig,
        # by its name it is the same cluster, whatever else of the kubeconfig changes
        cluster_identifier=made.cluster.cluster.arn,
        opts=ResourceOptions(parent=made.cluster, depends_on=list(made.cluster.reachable)),
    )
    software = EksSoftware(
        topology.stack,
        decided.charts,
        provider,
        values=decided.chart_values,
        cluster=made.cluster.cluster,
        ready=nodes,
    )
    content = replace(decided.content, late=late_texts(made.weights))
    Workload(
        topology.stack,
        content,
        ClusterApi(provider=provider, arguments={}),
        cluster=made.cluster.cluster,
        ready=(*software.last, *_pod_identity(decided, made)),
    )
    return _inventory(stack, topology, decided, made)


def late_texts(weights: WeightStore) -> dict[str, pulumi.Input[str]]:
    """What stands in the places of `weights_volume`, once the weight store is made."""
    late: dict[str, pulumi.Input[str]] = {}
    source = weights.place.get("source")
    if source is not None:
        late[SOURCE] = pulumi.Output.from_input(source).apply(str)
    if weights.lustre is not None:
        system = weights.lustre
        late[FILE_SYSTEM], late[DNS_NAME] = system.id, system.dns_name
        # the driver puts the two together as they are: the bucket's objects lie below this folder
        late[MOUNT_NAME] = pulumi.Output.concat(system.mount_name, "/", LUSTRE_FOLDER)
    return late


def _make_cluster(name: str, decided: Decided) -> _Made:
    """Network, weights, roles and the control plane with what nodes wait for."""
    settings = NetworkSettings(
        account=decided.account,
        zone=decided.survey.zone,
        subnet=decided.survey.subnet,
        gateway_subnet=None,
        outlives_hosts=decided.store.storage == "fsx-lustre",
        tags=decided.tags,
        control_zones=decided.cluster.zones,
        # nodes are reached through the cluster's API
        services=(),
    )
    network = StackNetwork(name, settings)
    weights = WeightStore(name, decided.store, network)
    # a file system reads the bucket itself: no pod does
    bucket_arn = weights.bucket_arn if decided.content.facts.service_account else None
    read = WeightsRead(
        bucket_arn=bucket_arn,
        prefix=decided.store.prefix,
        key_arn=reading_key(decided.store, decided.survey.bucket_key),
    )
    region = decided.account.region
    access = EksAccess(name, AccessSettings(tags=decided.tags, region=region, read=read))
    standing, version = decided.cluster.standing, decided.facts.kubernetes_version
    wanted = ClusterSettings(
        name=name,
        region=region,
        facts=decided.facts,
        subnet_ids=network.control_subnet_ids or decided.facts.control_subnet_ids,
        addons=decided.addons,
        addon_versions=decided.cluster.addon_versions,
        kept_addons=frozenset(
            each.name for each in decided.addons if standing.keeps_addon(each.name, version)
        ),
        keeps_kubernetes=standing.keeps_kubernetes(decided.facts),
        is_protected=decided.capacity.kind != "on-demand",
        tags=decided.tags,
    )
    cluster = EksCluster(name, wanted, access)
    return _Made(network=network, weights=weights, access=access, cluster=cluster)


def _nodes(decided: Decided, made: _Made) -> tuple[pulumi.Resource, ...]:
    """Both node groups, and the add-ons that want nodes; returns all that software waits for."""
    parts, instance_type = decided.parts, decided.instance_type
    subnets = made.network.control_subnet_ids or decided.facts.control_subnet_ids
    standing, version = decided.cluster.standing, decided.facts.kubernetes_version
    place = Place(
        cluster=made.cluster.cluster,
        subnet_id=subnets[0],
        role_arn=made.access.node_arn,
        group_ids=(),
        release=decided.cluster.image_releases.get("standard"),
        keeps_release=standing.keeps_release("system", version),
        keeps_template=False,
        key_arn=decided.account.kms_key_arn,
        keeps_key=standing.has_nodes("system"),
        ready=(*made.cluster.ready, *made.network.way_out),
    )
    node = parts.system_nodes.of(instance_type.architecture)
    system = SystemGroup("system", parts.system_nodes, node, place, decided.tags)
    group_ids = (made.network.host_group_id, made.cluster.group_id)
    there = replace(
        place,
        subnet_id=made.network.subnet_id,
        group_ids=group_ids,
        release=decided.cluster.image_releases.get("nvidia"),
        keeps_release=standing.keeps_release("accelerators", version),
        keeps_template=keeps_template(standing, decided.capacity),
        keeps_key=standing.has_nodes("accelerators"),
        ready=(*place.ready, *made.network.member_rules),
    )
    accelerators = AcceleratorGroup(
        "accelerators", _machines(decided, made.network), there, decided.tags
    )
    return (system.group, accelerators.group, *made.cluster.add_rest(system.group))


def _machines(decided: Decided, network: StackNetwork) -> AcceleratorNodes:
    capacity, account = decided.capacity, decided.account
    placement = None
    if capacity.wants_placement_group:
        tags, child = decided.tags.of("nodes"), ResourceOptions(parent=network)
        placement = ec2.PlacementGroup("nodes", strategy="cluster", tags=tags, opts=child)
    source = account.weights_mount if decided.store.storage == "shared-mount" else None
    return AcceleratorNodes(
        instance_type=decided.instance_type,
        interfaces=decided.instance_type.interfaces(capacity.layout),
        count=capacity.num_hosts,
        capacity=capacity.kind,
        reservation_id=account.reservation_id,
        image=decided.parts.images[decided.instance_type.architecture],
        volume_gib=account.root_volume_gib,
        mount_script=mount_script(decided.store.path, source) if source else None,
        placement_group=placement.name if placement else None,
    )


def _pod_identity(decided: Decided, made: _Made) -> tuple[pulumi.Resource, ...]:
    """What lets pods with engines read the bucket, where they do."""
    account = decided.content.facts.service_account
    if not account or made.access.weights_arn is None:
        return ()
    association = eks.PodIdentityAssociation(
        "engines",
        cluster_name=made.cluster.cluster.name,
        namespace=decided.facts.namespace,
        service_account=account,
        role_arn=made.access.weights_arn,
        tags=decided.tags.of("engines"),
        opts=ResourceOptions(parent=made.cluster),
    )
    return (association,)


def _inventory(
    stack: LoadedStack, topology: Topology, decided: Decided, made: _Made
) -> pulumi.Output[dict[str, object]]:
    """The inventory document, known when the cluster is."""
    name, region = topology.stack, decided.account.region
    cluster = {
        "name": name,
        "region": region,
        "log_in": f"aws eks update-kubeconfig --name {name} --region {region}",
    }
    own = made.cluster.cluster
    return pulumi.Output.all(weights=made.weights.place, arn=own.arn, version=own.version).apply(
        lambda known: {
            **pod_inventory(stack, topology, decided.content, weights=known["weights"]),
            "cluster": {
                **cluster,
                "kubernetes_version": known["version"],
                "arn": known["arn"],
            },
        }
    )
