"""Everything about a stack on EKS that can be refused, and all that follows from it, before the first resource."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TypeVar

import pulumi

from infra.catalog.eks import Chart, ClusterAddon, EksParts, Need, read_eks_parts
from infra.catalog.instance_types import InstanceType
from infra.catalog.load import Catalog
from infra.catalog.prices import read_prices
from infra.errors import PrerequisiteError, Problem, ProblemsFound
from infra.memory.cluster_price import ClusterCost, ClusterDay, cluster_costs
from infra.plan.process import Plan
from infra.plan.topology import Topology
from infra.provision.asking import Asking
from infra.provision.aws.account import Account, Demand, read_account, read_values
from infra.provision.aws.block_notice import NoticeSettings, notice_settings
from infra.provision.aws.capacity import CapacityPlan, plan_capacity
from infra.provision.aws.eks.config import (
    EksFacts,
    read_eks,
    read_eks_values,
    small_network_problem,
)
from infra.provision.aws.eks.pods import pod_facts, weights_volume
from infra.provision.aws.eks.rules import (
    POD_ADDRESSES,
    efa_count,
    local_zone_problem,
    storage_problem,
)
from infra.provision.aws.eks.standing import StandingCluster
from infra.provision.aws.eks.survey import AddonDemand, ClusterSurvey, survey_for_cluster
from infra.provision.aws.eks.template import (
    ACCELERATORS,
    block_problems,
    wanted_template,
    warn_of_kept_keys,
)
from infra.provision.aws.first_boot import mount_script
from infra.provision.aws.naming import give_back_nodes
from infra.provision.aws.nvlink_domains import warn_of_several_domains
from infra.provision.aws.purchase import tell_cost
from infra.provision.aws.standing_machines import WantedNetwork, network_problem
from infra.provision.aws.survey import Survey, find_subnet, survey_account
from infra.provision.aws.weight_rules import change_problems, storage_problems
from infra.provision.aws.weight_store import StoreSettings, choose_store, wanted_store
from infra.provision.cluster.workload import WorkloadContent, judged_pods, workload_content
from infra.provision.naming import Tags
from infra.provision.previous import read_previous_weights
from infra.spec.load import LoadedStack

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Decided:
    """What was decided.

    Args:
        instance_type: of every node with accelerators.
        addons: that the cluster gets.
        charts: that are installed in it.
        chart_values: what they are told beyond the catalogue.
    """

    capacity: CapacityPlan
    instance_type: InstanceType
    account: Account
    facts: EksFacts
    parts: EksParts
    store: StoreSettings
    survey: Survey
    cluster: ClusterSurvey
    addons: tuple[ClusterAddon, ...]
    charts: tuple[Chart, ...]
    chart_values: Mapping[str, Mapping[str, object]]
    content: WorkloadContent
    tags: Tags
    notice: NoticeSettings | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wanted:
    """What the stack and its configuration ask for, before anybody is asked."""

    stack: LoadedStack
    plan: Plan
    capacity: CapacityPlan
    instance_type: InstanceType
    account: Account
    facts: EksFacts
    demand: Demand
    parts: EksParts


def decide_cluster(stack: LoadedStack, topology: Topology, catalog: Catalog) -> Decided:
    """Everything that follows from stack, configuration and account.

    Raises:
        InfraError: something is missing, wrong or refused; nothing was registered.
    """
    _need_log_in()
    wanted = _read(stack, topology, judged_pods(stack, catalog))
    tags = Tags(stack=stack.name, further=wanted.account.tags)
    store = choose_store(stack.spec.weights, wanted.account, tags)
    accelerator = catalog.accelerator(wanted.plan.hosts[0].accelerator)
    spans_hosts = wanted.plan.num_hosts > 1
    shares_memory = accelerator.pod is not None and accelerator.pod.domain_label is not None
    needs = _needs(store, spans_hosts=spans_hosts, shares_memory=shares_memory)
    addons = wanted.parts.addons_for(needs)
    survey, cluster = _ask(wanted, store, addons)
    warn_of_several_domains(topology, survey.reservation)
    tell_cost(wanted.capacity, survey.num_reserved, _cluster_costs(wanted, cluster))
    interfaces = wanted.instance_type.interfaces(wanted.capacity.layout)
    size = wanted.account.lustre.capacity_gib
    facts = pod_facts(
        weights_volume(store.storage, store.path, lustre_gib=size, parts=wanted.parts),
        namespace=wanted.facts.namespace,
        node_tuning=wanted.facts.node_tuning,
        labels=wanted.account.tags,
        num_efa=efa_count(interfaces) if spans_hosts else 0,
    )
    facts = replace(facts, node_tuning_image=wanted.facts.node_tuning_image)
    known = {"supportedInstanceLabels": {"values": [wanted.instance_type.id]}}
    return Decided(
        capacity=wanted.capacity,
        instance_type=wanted.instance_type,
        account=wanted.account,
        facts=cluster.facts,
        parts=wanted.parts,
        store=store,
        survey=survey,
        cluster=cluster,
        addons=addons,
        charts=wanted.parts.charts_for(needs),
        chart_values={"efa-device-plugin": known},
        content=workload_content(stack, wanted.plan, facts, catalog),
        notice=notice_settings(wanted.account, wanted.demand, survey.reservation),
        tags=tags,
    )


def _need_log_in() -> None:
    """Refuse to make a cluster that nobody here could log in to: its tokens come from the AWS command line."""
    if shutil.which("aws") is None:
        what = (
            "There is no `aws` on PATH, by which Pulumi logs in to the cluster once that is made."
        )
        fix = "Install the AWS command line (docs.aws.amazon.com/cli). Nothing was created."
        raise PrerequisiteError("PATH", what, fix)


def _read(stack: LoadedStack, topology: Topology, plan: Plan) -> _Wanted:
    """The configuration; all that is missing or wrong in it at once."""
    name, spec = stack.name, stack.spec
    capacity = plan_capacity(topology, spec.capacity)
    demand = Demand(
        stack=name,
        capacity=capacity.kind,
        num_hosts=capacity.num_hosts,
        num_addresses=capacity.num_addresses + POD_ADDRESSES * capacity.num_hosts,
        uses_lustre=spec.weights.storage == "fsx-lustre",
        wants_load_balancer=False,
        quotas=capacity.quotas,
        has_login=False,
    )
    problems: list[Problem] = []
    account = _kept(problems, lambda: read_account(read_values(), demand))
    facts = _kept(problems, lambda: read_eks(read_eks_values(), name))
    if account is not None:
        problems += _some(
            small_network_problem(account, name),
            storage_problem(spec.weights, account.weights_mount, name),
        )
    if problems or account is None or facts is None:
        raise ProblemsFound(tuple(dict.fromkeys(problems)))  # some keys are read by both
    return _Wanted(
        stack=stack,
        plan=plan,
        capacity=capacity,
        instance_type=capacity.instance_type(topology.hosts[0]),
        account=account,
        facts=facts,
        demand=demand,
        parts=read_eks_parts(),
    )


def _cluster_costs(wanted: _Wanted, cluster: ClusterSurvey) -> tuple[ClusterCost, ...]:
    """What the cluster costs beside its nodes with accelerators, today and at the version that it will have."""
    day = datetime.now(UTC).date()
    version = cluster.facts.kubernetes_version
    return cluster_costs(
        ClusterDay(kubernetes_version=version, day=day),
        wanted.parts.system_nodes,
        wanted.instance_type.architecture,
        read_prices(),
    )


def _needs(store: StoreSettings, *, spans_hosts: bool, shares_memory: bool) -> frozenset[Need]:
    needs: set[Need] = {"efa"} if spans_hosts else set()
    if store.storage == "fsx-lustre":
        needs.add("lustre")
    if spans_hosts and shares_memory:
        needs.add("domain")
    return frozenset(needs)


def _ask(
    wanted: _Wanted, store: StoreSettings, addons: tuple[ClusterAddon, ...]
) -> tuple[Survey, ClusterSurvey]:
    """The account, looked at; all that does not fit at once."""
    name, spec, account = wanted.stack.name, wanted.stack.spec, wanted.account
    problems: list[Problem] = []
    survey = _kept(
        problems,
        lambda: survey_account(
            account,
            wanted.demand,
            (wanted.instance_type,),
            bucket=store.bucket,
            load_balancer=None,
        ),
    )
    demand = AddonDemand(
        stack=name,
        capacity=wanted.capacity.kind,
        architecture=wanted.instance_type.architecture,
        addons=addons,
        parts=wanted.parts,
    )
    zone = survey.zone if survey is not None else None
    hosts = survey.subnet if survey is not None else None
    cluster = survey_for_cluster(account, wanted.facts, demand, zone, hosts)
    problems += cluster.problems
    mount = (account.weights_mount or "") if spec.weights.storage == "shared-mount" else ""
    template = wanted_template(
        account,
        wanted.capacity,
        wanted.instance_type,
        mount_script(store.path, mount) if mount else None,
    )
    warn_of_kept_keys(cluster.standing, wanted.capacity, account, name)
    problems += block_problems(cluster.standing, wanted.capacity, template, name)
    if zone is not None:
        network = WantedNetwork(account=account, zone=zone, stack=name)
        problems += _some(_moved_network(cluster.standing, network))
        local = local_zone_problem(zone, spec.waive, name)
        if local is not None:
            pulumi.log.warn(str(local))
        problems += storage_problems(spec.weights, zone, name)
    problems += change_problems(read_previous_weights(name), wanted_store(store), stack=name)
    if problems or survey is None:
        raise ProblemsFound(tuple(problems))
    return survey, cluster


def _moved_network(standing: StandingCluster, wanted: WantedNetwork) -> Problem | None:
    """Another network under a cluster and its nodes that stand."""
    group = standing.groups.get(ACCELERATORS)
    if group is None or not group.subnet_ids:
        return None
    subnet = find_subnet(Asking(wanted.stack), "subnet_id", group.subnet_ids[0])
    stands = f"Cluster {wanted.stack} and its nodes stand"
    return network_problem(stands, subnet, wanted, f"`{give_back_nodes(wanted.stack)}`")


def _kept(problems: list[Problem], question: Callable[[], _T]) -> _T | None:
    """The answer; None when it is a list of problems, which is kept."""
    try:
        return question()
    except ProblemsFound as found:
        problems += found.problems
        return None


def _some(*problems: Problem | None) -> list[Problem]:
    return [problem for problem in problems if problem is not None]
