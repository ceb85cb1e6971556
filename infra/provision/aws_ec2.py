"""Machines, network and weight storage of one stack on EC2."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pulumi
import pulumi_aws as aws
from pulumi import ResourceOptions
from pulumi_aws import ec2, ssm

from infra.catalog.instance_types import InstanceType
from infra.errors import StackError
from infra.plan.topology import Topology, TopologyHost
from infra.provision.account import Account, Demand, read_account, read_values
from infra.provision.capacity import CapacityPlan, plan_capacity
from infra.provision.cluster_network import ClusterNetwork, NetworkSettings
from infra.provision.first_boot import instance_store_script, lustre_script, user_data
from infra.provision.host_access import HostAccess, WeightsRead
from infra.provision.interface_layout import lay_out_interfaces
from infra.provision.inventory_output import HostRecord, inventory_document
from infra.provision.naming import Tags
from infra.provision.node_group import NodeGroup, NodeSettings, Surroundings
from infra.provision.weight_store import StoreSettings, WeightStore, choose_store
from infra.provision.zone import Zone
from infra.spec.load import LoadedStack
from infra.spec.stack import StackSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class _Decided:
    """What was decided before anything is registered."""

    topology: Topology
    spec: StackSpec
    capacity: CapacityPlan
    account: Account
    store: StoreSettings
    zone: Zone
    tags: Tags


@dataclass(frozen=True, slots=True, kw_only=True)
class _Made:
    """The components that machines are put into."""

    network: ClusterNetwork
    weights: WeightStore
    access: HostAccess


def provision_aws_ec2(stack: LoadedStack, topology: Topology) -> pulumi.Output[dict[str, object]]:
    """Register the resources of a stack; returns the inventory document.

    Raises:
        InfraError: the stack or the account's configuration is wrong; nothing was registered.
    """
    decided = _decide(stack, topology)
    name = topology.stack
    network = ClusterNetwork(
        name, NetworkSettings(account=decided.account, zone=decided.zone, tags=decided.tags)
    )
    weights = WeightStore(name, decided.store, network)
    read = WeightsRead(bucket_arn=weights.bucket_arn, prefix=decided.store.prefix)
    access = HostAccess(name, tags=decided.tags, region=decided.account.region, read=read)
    instances = _launch(decided, _Made(network=network, weights=weights, access=access))
    return _inventory(decided, instances, weights)


def _decide(stack: LoadedStack, topology: Topology) -> _Decided:
    """Everything that can be refused, before the first resource."""
    spec = stack.spec
    if spec.ingress != "none":
        what = "Only `ingress: none` can be provisioned yet."
        raise StackError(
            f"{stack.file} ingress", what, "Remove the field and reach the router inside the VPC."
        )
    capacity = plan_capacity(topology, spec.capacity)
    demand = Demand(
        stack=topology.stack,
        capacity=capacity.kind,
        num_addresses=capacity.num_addresses,
        uses_lustre=spec.weights.storage == "fsx-lustre",
    )
    account = read_account(read_values(), demand)
    tags = Tags(stack=topology.stack, further=account.tags)
    return _Decided(
        topology=topology,
        spec=spec,
        capacity=capacity,
        account=account,
        store=choose_store(spec.weights, account, tags),
        zone=_find_zone(account, topology.stack),
        tags=tags,
    )


def _find_zone(account: Account, stack: str) -> Zone:
    """The zone of the capacity, asked of the cloud; a Local Zone need not be opted into yet."""
    try:
        found = aws.get_availability_zone(zone_id=account.zone_id, all_availability_zones=True)
    except Exception as error:  # the SDK raises a bare Exception with the provider's message
        what = (
            f"{account.region} has no zone {account.zone_id}, or the cloud did not answer: {error}"
        )
        fix = f"Type: pulumi config set zone_id ZONE --stack {stack}"
        raise StackError("moe-infra:zone_id", what, fix) from error
    is_local = found.zone_type == "local-zone"
    return Zone(
        zone_id=account.zone_id,
        group=found.group_name,
        parent_zone_id=found.parent_zone_id if is_local else None,
    )


def _launch(decided: _Decided, made: _Made) -> dict[str, ec2.Instance]:
    """The node groups of all roles; returns the instances by host name."""
    placement = _placement_group(decided, made.network)
    instances: dict[str, ec2.Instance] = {}
    for name, hosts in _hosts_by_group(decided.topology).items():
        instance_type = decided.capacity.instance_type(hosts[0])
        settings = NodeSettings(
            instance_type=instance_type,
            interfaces=lay_out_interfaces(instance_type, decided.capacity.layout),
            capacity=decided.capacity.kind,
            account=decided.account,
            tags=decided.tags,
        )
        surroundings = Surroundings(
            image_id=decided.account.ami or _current_image(instance_type),
            subnet_id=made.network.subnet_id,
            group_id=made.network.host_group_id,
            profile_arn=made.access.profile_arn,
            placement_group=placement.name if placement else None,
            user_data=_first_boot(decided, made.weights),
            ready=(made.network.way_out, made.access.session_manager),
        )
        instances |= NodeGroup(name, hosts, settings, surroundings).instances
    return instances


def _hosts_by_group(topology: Topology) -> dict[str, tuple[TopologyHost, ...]]:
    """Hosts with the same roles, under the roles' names; a launch template is made for each."""
    groups: dict[str, tuple[TopologyHost, ...]] = {}
    for host in topology.hosts:
        name = "-".join(host.roles)
        groups[name] = (*groups.get(name, ()), host)
    return groups


def _placement_group(decided: _Decided, network: ClusterNetwork) -> ec2.PlacementGroup | None:
    """A cluster placement group for machines bought on demand, None for reserved ones."""
    if not decided.capacity.wants_placement_group:
        return None
    tags = decided.tags.of("hosts")
    return ec2.PlacementGroup(
        "hosts", strategy="cluster", tags=tags, opts=ResourceOptions(parent=network)
    )


def _current_image(instance_type: InstanceType) -> str:
    """The image id that the instance type's public parameter names today."""
    return str(ssm.get_parameter(name=instance_type.image.ssm_parameter).value)


def _first_boot(decided: _Decided, weights: WeightStore) -> pulumi.Input[str] | None:
    path = decided.store.path
    if decided.store.storage == "s3-to-nvme":
        return user_data(instance_store_script(path))
    if weights.file_system is None:
        return None
    return pulumi.Output.all(weights.file_system.dns_name, weights.file_system.mount_name).apply(
        lambda mount: user_data(lustre_script(path, mount[0], mount[1]))
    )


def _inventory(
    decided: _Decided, instances: Mapping[str, ec2.Instance], weights: WeightStore
) -> pulumi.Output[dict[str, object]]:
    """The inventory document, known when every machine is."""
    reached = {
        name: pulumi.Output.all(id=instance.id, address=instance.private_ip)
        for name, instance in instances.items()
    }
    return pulumi.Output.all(hosts=reached, weights=weights.place).apply(
        lambda known: inventory_document(
            decided.topology,
            {
                host.name: _record(decided, host, known["hosts"][host.name])
                for host in decided.topology.hosts
            },
            weights=known["weights"],
            port=decided.spec.port,
        )
    )


def _record(decided: _Decided, host: TopologyHost, known: Mapping[str, str]) -> HostRecord:
    account = decided.account
    proxy = None if account.ssh_from else session_manager_proxy(known["id"], account.region)
    return HostRecord(
        address=known["address"],
        instance_id=known["id"],
        user=account.user or decided.capacity.instance_type(host).image.user,
        proxy_command=proxy,
        host_key=None,
        interface=account.interface,
        # EFA devices are named after their PCI slots; hosts tell, not the cloud.
        rdma_devices=(),
    )


def session_manager_proxy(instance_id: str, region: str) -> str:
    """The command through which SSH reaches an instance without an open port (`%p`: the port)."""
    return (
        f"aws ssm start-session --target {instance_id} --region {region}"
        " --document-name AWS-StartSSHSession --parameters portNumber=%p"
    )
