"""A stack in a Kubernetes cluster that exists: looked at first, then every object of the plan in one namespace."""

from __future__ import annotations

from dataclasses import dataclass, replace

from infra.provision.cluster.config import (
    ClusterAccess,
    ClusterDemand,
    read_cluster,
    read_cluster_values,
)
from infra.provision.cluster.rules import (
    DOMAIN_DEFINITION,
    LWS_DEFINITION,
    UNIT_DEFINITION,
    NodeDemand,
    is_lent,
    judge_cluster,
    judge_networks,
)
from infra.provision.cluster.survey import survey_cluster
from infra.provision.cluster.workload import (
    ClusterApi,
    Workload,
    WorkloadContent,
    judged_pods,
    pod_inventory,
    workload_content,
)
from infra.provision.judged_stack import refuse_or_warn
from infra.provision.platform import Declared
from infra.render.pod_sets import sets_ports


@dataclass(frozen=True, slots=True, kw_only=True)
class Decided:
    """How the cluster is reached, and the objects of the stack in it."""

    access: ClusterAccess
    content: WorkloadContent


def decide(declared: Declared) -> Decided:
    """Everything that can be refused, the cluster's own state included.

    Raises:
        InfraError: the stack, the configuration or the cluster is wrong.
    """
    stack, catalog = declared.stack, declared.catalog
    plan = judged_pods(stack, catalog)
    spans_hosts = plan.num_hosts > 1
    demand = ClusterDemand(stack=stack.name, weights=stack.spec.weights, spans_hosts=spans_hosts)
    access, facts = read_cluster(read_cluster_values(), demand)
    content = workload_content(stack, plan, facts, catalog)
    nodes = NodeDemand(
        stack=stack.name,
        context=access.context,
        accelerator=catalog.accelerator(plan.hosts[0].accelerator),
        num_hosts=plan.num_hosts,
        needs_domain=any(each.kind == "ComputeDomain" for each in content.objects),
        is_unit=stack.spec.kubernetes.workload == "disaggregated-set",
        sets_ports=any(map(sets_ports, content.objects)),
    )
    found = survey_cluster(access, facts, (LWS_DEFINITION, UNIT_DEFINITION, DOMAIN_DEFINITION))
    networks = judge_networks(plan, stack, facts, catalog)
    refuse_or_warn([*judge_cluster(found, facts, nodes), *networks])
    content = replace(content, makes_namespace=not is_lent(found, stack.name))
    return Decided(access=access, content=content)


def make(declared: Declared, decided: Decided) -> dict[str, object]:
    """Register the objects of a stack; returns the inventory document, whose hosts are pods."""
    topology, weights = declared.topology, declared.stack.spec.weights
    arguments = {"kubeconfig": decided.access.kubeconfig, "context": decided.access.context}
    Workload(topology.stack, decided.content, ClusterApi(provider=None, arguments=arguments))
    place = {"storage": weights.storage or "local", "path": weights.path}
    return pod_inventory(declared.stack, topology, decided.content, weights=place)
