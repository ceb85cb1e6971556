"""A stack in a Kubernetes cluster that exists: looked at first, then every object of the plan in one namespace."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pulumi
import pulumi_kubernetes as kubernetes
from pulumi import ResourceOptions
from pulumi_kubernetes import apps, core, policy
from pulumi_kubernetes.apiextensions import CustomResource

from infra.agent.bundle import texts_in
from infra.catalog.load import Catalog
from infra.checks.judge import judge_stack
from infra.errors import ProblemsFound, StackError
from infra.inventory.pods import INTERFACE
from infra.plan.compile import compile_stack
from infra.plan.process import Plan
from infra.plan.topology import Topology
from infra.provision.cluster_config import (
    ClusterAccess,
    ClusterDemand,
    read_cluster,
    read_cluster_values,
)
from infra.provision.cluster_rules import (
    DOMAIN_DEFINITION,
    LWS_DEFINITION,
    NodeDemand,
    is_lent,
    judge_cluster,
)
from infra.provision.cluster_survey import survey_cluster
from infra.provision.inventory_output import HostRecord, inventory_document
from infra.provision.secret_values import secret_values
from infra.render.cluster_facts import ClusterFacts
from infra.render.pod_documents import PodObject, pod_documents, secret_name, stack_labels
from infra.spec.load import PROJECT, LoadedStack

# The router has endpoints when engines have loaded, which takes longer than Pulumi waits.
NO_WAIT = {"pulumi.com/skipAwait": "true"}
_WAITED_FOR_BY_NOBODY = frozenset({"Deployment", "Service", "PersistentVolumeClaim"})
_WORKLOADS = frozenset({"LeaderWorkerSet", "Deployment"})


@dataclass(frozen=True, slots=True, kw_only=True)
class _Decided:
    """What was decided before anything is registered."""

    plan: Plan
    access: ClusterAccess
    facts: ClusterFacts
    objects: tuple[PodObject, ...]
    secrets: Mapping[str, str]
    makes_namespace: bool


def provision_existing_kubernetes(
    stack: LoadedStack, topology: Topology, catalog: Catalog
) -> dict[str, object]:
    """Register the objects of a stack; returns the inventory document, whose hosts are pods.

    Raises:
        InfraError: the stack, the configuration or the cluster is wrong; nothing was registered.
    """
    decided = _decide(stack, catalog)
    _Workload(topology.stack, decided)
    records = {
        host.name: HostRecord(
            address=host.address,
            instance_id=None,
            user=None,
            proxy_command=None,
            host_key=None,
            interface=INTERFACE,
            rdma_devices=(),
        )
        for host in decided.plan.hosts
    }
    return inventory_document(
        topology,
        records,
        weights={
            "storage": stack.spec.weights.storage or "local",
            "path": stack.spec.weights.path,
        },
        port=stack.spec.port,
        url=f"http://{_clients(decided.objects)}.{decided.facts.namespace}:{stack.spec.port}",
    )


def _decide(stack: LoadedStack, catalog: Catalog) -> _Decided:
    """Everything that can be refused, the cluster's own state included."""
    _refuse_unmade(stack)
    plan = compile_stack(stack, catalog=catalog).plan
    _refuse_problems(plan, stack, catalog)
    spans_hosts = plan.num_hosts > 1
    demand = ClusterDemand(stack=stack.name, weights=stack.spec.weights, spans_hosts=spans_hosts)
    access, facts = read_cluster(read_cluster_values(), demand)
    launcher = texts_in(str(PROJECT / "infra" / "agent"))["pod_launch"]
    objects = pod_documents(plan, cluster=facts, catalog=catalog, launcher=launcher)
    secrets = secret_values(plan.secrets)
    nodes = NodeDemand(
        stack=stack.name,
        context=access.context,
        accelerator=catalog.accelerator(plan.hosts[0].accelerator),
        num_hosts=plan.num_hosts,
        needs_domain=any(each.kind == "ComputeDomain" for each in objects),
    )
    found = survey_cluster(access, facts, (LWS_DEFINITION, DOMAIN_DEFINITION))
    problems = judge_cluster(found, facts, nodes)
    if problems:
        raise ProblemsFound(tuple(problems))
    return _Decided(
        plan=plan,
        access=access,
        facts=facts,
        objects=objects,
        secrets=secrets,
        makes_namespace=not is_lent(found, stack.name),
    )


def _refuse_unmade(stack: LoadedStack) -> None:
    """What a stack may ask for and is not made on a cluster that exists."""
    spec = stack.spec
    if spec.kubernetes.workload != "leader-worker-set":
        what = f"{spec.kubernetes.workload} cannot be made yet."
        raise StackError(
            f"{stack.file} kubernetes.workload", what, "Write leader-worker-set: a set per replica."
        )
    if spec.ingress != "none":
        what = "A cluster that exists has its own way in; none is made."
        raise StackError(
            f"{stack.file} ingress", what, "Remove the field and route to the stack's service."
        )
    accelerators = {role.accelerator for _, role in spec.roles.items()} - {None}
    if len(accelerators | {spec.accelerator or spec.defaults.accelerator} - {None}) > 1:
        what = "Roles on different accelerators need node selectors of their own, which are not there yet."
        raise StackError(f"{stack.file} roles", what, "Use one accelerator for all roles.")


def _refuse_problems(plan: Plan, stack: LoadedStack, catalog: Catalog) -> None:
    """Judge a plan with every rule, as `fab up` does; what does not refuse it is logged."""
    problems = judge_stack(plan, stack, catalog)
    errors = tuple(problem for problem in problems if problem.blocks)
    if errors:
        raise ProblemsFound(errors)
    for problem in problems:
        pulumi.log.warn(str(problem))


class _Workload(pulumi.ComponentResource):
    """Every object of one stack in its namespace."""

    def __init__(self, name: str, decided: _Decided) -> None:
        super().__init__("moe-infra:kubernetes:Workload", name)
        own = ResourceOptions(parent=self)
        provider = kubernetes.Provider(
            "cluster",
            kubeconfig=decided.access.kubeconfig,
            context=decided.access.context,
            opts=own,
        )
        options = ResourceOptions(parent=self, provider=provider)
        first: list[pulumi.Resource] = []
        if decided.makes_namespace:
            metadata = {"name": decided.facts.namespace, "labels": stack_labels(name)}
            first.append(core.v1.Namespace("namespace", metadata=metadata, opts=options))
        if decided.secrets:
            first.append(_secret(name, decided, _after(options, first)))
        self._register(decided.objects, options, first)
        self.register_outputs({})

    def _register(
        self,
        objects: Sequence[PodObject],
        options: ResourceOptions,
        first: Sequence[pulumi.Resource],
    ) -> None:
        """All objects; workloads behind everything that their pods name."""
        named = [each for each in objects if each.kind not in _WORKLOADS]
        made = [*first, *(_make(each, _after(options, first)) for each in named)]
        for each in objects:
            if each.kind in _WORKLOADS:
                _make(each, _after(options, made))


def _after(options: ResourceOptions, others: Sequence[pulumi.Resource]) -> ResourceOptions:
    return ResourceOptions.merge(options, ResourceOptions(depends_on=list(others)))


def _secret(stack: str, decided: _Decided, options: ResourceOptions) -> core.v1.Secret:
    metadata = {
        "name": secret_name(stack),
        "namespace": decided.facts.namespace,
        "labels": stack_labels(stack),
    }
    values = pulumi.Output.secret(dict(decided.secrets))
    return core.v1.Secret("secrets", metadata=metadata, string_data=values, opts=options)


def _make(found: PodObject, options: ResourceOptions) -> pulumi.Resource:
    """One object as the resource of its kind."""
    document: dict[str, Any] = dict(found.document)
    metadata = dict(document["metadata"])
    if found.kind in _WAITED_FOR_BY_NOBODY:
        metadata["annotations"] = {**metadata.get("annotations", {}), **NO_WAIT}
    rest = {key: value for key, value in document.items() if key in ("spec", "data", "immutable")}
    make = _KINDS.get(found.kind)
    if make is not None:
        return make(found.name, metadata=metadata, opts=options, **rest)
    own: pulumi.Resource = CustomResource(
        found.name,
        api_version=document["apiVersion"],
        kind=document["kind"],
        metadata=metadata,
        opts=options,
        **rest,
    )
    return own


_KINDS: Mapping[str, Callable[..., pulumi.Resource]] = {
    "ConfigMap": core.v1.ConfigMap,
    "Deployment": apps.v1.Deployment,
    "PersistentVolume": core.v1.PersistentVolume,
    "PersistentVolumeClaim": core.v1.PersistentVolumeClaim,
    "PodDisruptionBudget": policy.v1.PodDisruptionBudget,
    "Service": core.v1.Service,
}


def _clients(objects: Sequence[PodObject]) -> str:
    """The name of the service that clients use."""
    service: Any = next(each.document for each in objects if each.kind == "Service")
    return str(service["metadata"]["name"])
