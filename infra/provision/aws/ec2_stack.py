"""Machines, network and weight storage of one stack on EC2."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pulumi
from pulumi import ResourceOptions
from pulumi_aws import ec2

from infra.catalog.figures import read_loading_rates
from infra.errors import Problem, ProblemsFound
from infra.plan.topology import Topology, TopologyHost
from infra.provision.aws.account import Account, Demand, read_account, read_values
from infra.provision.aws.block_notice import BlockNotice, NoticeSettings, notice_settings
from infra.provision.aws.capacity import CapacityPlan, plan_capacity
from infra.provision.aws.first_boot import instance_store_script, mount_script, user_data
from infra.provision.aws.found import certificate_problems
from infra.provision.aws.host_access import HostAccess, WeightsRead
from infra.provision.aws.ingress import Ingress, IngressSettings
from infra.provision.aws.node_group import NodeGroup, NodeSettings, Surroundings
from infra.provision.aws.nvlink_domains import warn_of_several_domains
from infra.provision.aws.purchase import tell_cost
from infra.provision.aws.stack_network import NetworkSettings, StackNetwork
from infra.provision.aws.standing_machines import (
    WantedMachines,
    find_standing,
    standing_problems,
    unknown_host_problems,
)
from infra.provision.aws.survey import Survey, survey_account
from infra.provision.aws.weight_rules import (
    Loading,
    change_problems,
    loading_warnings,
    storage_problems,
)
from infra.provision.aws.weight_store import (
    StoreSettings,
    WeightStore,
    choose_store,
    reading_key,
    wanted_store,
)
from infra.provision.inventory_output import HostRecord, inventory_document
from infra.provision.judged_stack import judged_plan
from infra.provision.naming import Tags
from infra.provision.platform import Declared
from infra.provision.previous import read_previous_weights
from infra.spec.stack import ExistingIngress, StackSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Decided:
    """What was decided before anything is registered."""

    topology: Topology
    spec: StackSpec
    capacity: CapacityPlan
    account: Account
    store: StoreSettings
    survey: Survey
    tags: Tags
    notice: NoticeSettings | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Made:
    """The components that machines are put into."""

    network: StackNetwork
    weights: WeightStore
    access: HostAccess


def decide(declared: Declared) -> Decided:
    """Everything that can be refused, before the first resource.

    Raises:
        InfraError: the stack or the account's configuration is wrong, or the account lacks what they name.
    """
    stack, topology = declared.stack, declared.topology
    judged_plan(stack, declared.catalog)
    spec, name = stack.spec, topology.stack
    capacity = plan_capacity(topology, spec.capacity)
    standing_weights = read_previous_weights(name)
    demand = Demand(
        stack=name,
        capacity=capacity.kind,
        num_hosts=capacity.num_hosts,
        num_addresses=capacity.num_addresses,
        uses_lustre=spec.weights.storage == "fsx-lustre",
        wants_load_balancer=spec.ingress == "internal-load-balancer",
        quotas=capacity.quotas,
        speaks_tls=spec.scheme == "https",
    )
    account = read_account(read_values(), demand)
    tags = Tags(stack=name, further=account.tags)
    store = choose_store(spec.weights, account, tags)
    existing = spec.ingress.existing if isinstance(spec.ingress, ExistingIngress) else None
    instance_types = tuple(capacity.instance_types.values())
    survey = survey_account(
        account, demand, instance_types, bucket=store.bucket, load_balancer=existing
    )
    problems = (
        *storage_problems(spec.weights, survey.zone, name),
        *certificate_problems(
            account,
            has_ingress=spec.ingress != "none",
            speaks_tls=demand.speaks_tls,
            stack=name,
        ),
        *change_problems(standing_weights, wanted_store(store), stack=name),
        *_machine_problems(topology, account, capacity, survey, _known_weights(store, account)),
    )
    if problems:
        raise ProblemsFound(problems)
    warn_of_several_domains(topology, survey.reservation)
    tell_cost(capacity, survey.num_reserved)
    return Decided(
        topology=topology,
        spec=spec,
        capacity=capacity,
        account=account,
        store=store,
        survey=survey,
        tags=tags,
        notice=notice_settings(account, demand, survey.reservation),
    )


def make(declared: Declared, decided: Decided) -> pulumi.Output[dict[str, object]]:
    """Register the resources of a stack; returns the inventory document."""
    _warn_of_slow_loading(decided, declared.size_bytes)
    topology = decided.topology
    name = topology.stack
    settings = NetworkSettings(
        account=decided.account,
        zone=decided.survey.zone,
        subnet=decided.survey.subnet,
        gateway_subnet=decided.survey.gateway_subnet,
        outlives_hosts=decided.store.storage == "fsx-lustre",
        tags=decided.tags,
    )
    network = StackNetwork(name, settings)
    weights = WeightStore(name, decided.store, network)
    read = WeightsRead(
        bucket_arn=weights.bucket_arn,
        prefix=decided.store.prefix,
        key_arn=reading_key(decided.store, decided.survey.bucket_key),
    )
    access = HostAccess(name, tags=decided.tags, read=read)
    if decided.notice is not None:
        BlockNotice(name, decided.notice, decided.tags)
    instances = _launch(decided, _Made(network=network, weights=weights, access=access))
    url = _ingress(decided, settings, network, instances[topology.router_host])
    return _inventory(decided, instances, weights, url)


def _known_weights(store: StoreSettings, account: Account) -> dict[str, str]:
    """What first boot is told of the weights, as far as it is known before a file system is made."""
    is_shared = store.storage == "shared-mount"
    if store.storage == "local" or (is_shared and account.weights_mount is None):
        return {}  # the image has made the place
    mount = {"weights_mount": account.weights_mount or ""} if is_shared else {}
    return {"weights.path": store.path, **mount}


def _machine_problems(
    topology: Topology,
    account: Account,
    capacity: CapacityPlan,
    survey: Survey,
    weights: Mapping[str, str],
) -> Iterator[Problem]:
    """Why machines that stand would have to go, and hosts to replace that are none."""
    name, groups = topology.stack, _hosts_by_group(topology)
    hosts = [host.name for host in topology.hosts]
    yield from unknown_host_problems(account.replace_machines, hosts, name)
    standing, unasked = find_standing(name, groups)
    yield from unasked
    for each in standing:
        wanted = WantedMachines(
            instance_type=capacity.instance_type(groups[each.group][0]),
            account=account,
            capacity=capacity,
            zone=survey.zone,
            stack=name,
            weights=weights,
        )
        yield from standing_problems(each, wanted)


def _warn_of_slow_loading(decided: Decided, size_bytes: int) -> None:
    loading = Loading(
        size_bytes=size_bytes,
        num_hosts=len(decided.topology.hosts),
        target_s=decided.spec.weights.load_target_s,
    )
    for warning in loading_warnings(
        decided.store.storage, decided.account.lustre, loading, read_loading_rates()
    ):
        pulumi.log.warn(warning)


def _launch(decided: Decided, made: _Made) -> dict[str, ec2.Instance]:
    """The node groups of all roles; returns the instances by host name."""
    placement = _placement_group(decided, made.network)
    instances: dict[str, ec2.Instance] = {}
    for name, hosts in _hosts_by_group(decided.topology).items():
        instance_type = decided.capacity.instance_type(hosts[0])
        settings = NodeSettings(
            instance_type=instance_type,
            interfaces=instance_type.interfaces(decided.capacity.layout),
            capacity=decided.capacity.kind,
            account=decided.account,
            replicas=_replicas_by_host(decided.topology),
            tags=decided.tags,
        )
        surroundings = Surroundings(
            image=decided.survey.images[instance_type.id],
            subnet_id=made.network.subnet_id,
            group_id=made.network.host_group_id,
            profile_arn=made.access.profile_arn,
            placement_group=placement.name if placement else None,
            user_data=_first_boot(decided, made.weights),
            ready=(*made.network.way_out, made.access.session_manager),
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


def _replicas_by_host(topology: Topology) -> dict[str, tuple[str, ...]]:
    """The replicas on each host, by its name, in the topology's order."""
    found: dict[str, tuple[str, ...]] = {}
    for group in topology.groups:
        for host in group.hosts:
            found[host] = (*found.get(host, ()), group.name)
    return found


def _placement_group(decided: Decided, network: StackNetwork) -> ec2.PlacementGroup | None:
    """A cluster placement group for machines bought on demand, None for reserved ones."""
    if not decided.capacity.wants_placement_group:
        return None
    tags = decided.tags.of("hosts")
    return ec2.PlacementGroup(
        "hosts", strategy="cluster", tags=tags, opts=ResourceOptions(parent=network)
    )


def _first_boot(decided: Decided, weights: WeightStore) -> pulumi.Input[str] | None:
    path = decided.store.path
    if decided.store.storage == "s3-to-nvme":
        return user_data(instance_store_script(path))
    if weights.mount is None:
        return None
    mount = pulumi.Output.from_input(weights.mount)
    return mount.apply(lambda source: user_data(mount_script(path, source)))


def _ingress(
    decided: Decided,
    network_settings: NetworkSettings,
    network: StackNetwork,
    router: ec2.Instance,
) -> pulumi.Input[str] | None:
    """The URL that clients use, None when they call the router's host."""
    if decided.spec.ingress == "none":
        return None
    settings = IngressSettings(
        port=decided.spec.port,
        clients=decided.account.clients or network_settings.blocks,
        existing=decided.survey.load_balancer,
        tags=decided.tags,
        scheme="https" if decided.account.certificate_arn else decided.spec.scheme,
        certificate_arn=decided.account.certificate_arn,
        name=decided.account.clients_name,
        has_edge=decided.spec.edge is not None,
    )
    return Ingress(decided.topology.stack, settings, network, router).url


def _inventory(
    decided: Decided,
    instances: Mapping[str, ec2.Instance],
    weights: WeightStore,
    url: pulumi.Input[str] | None,
) -> pulumi.Output[dict[str, object]]:
    """The inventory document, known when every machine is."""
    reached = {
        name: pulumi.Output.all(id=instance.id, address=instance.private_ip)
        for name, instance in instances.items()
    }
    return pulumi.Output.all(hosts=reached, weights=weights.place, url=url).apply(
        lambda known: inventory_document(
            decided.topology,
            {
                host.name: _record(decided, host, known["hosts"][host.name])
                for host in decided.topology.hosts
            },
            weights=known["weights"],
            spec=decided.spec,
            url=known["url"],
        )
    )


def _record(decided: Decided, host: TopologyHost, known: Mapping[str, str]) -> HostRecord:
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
