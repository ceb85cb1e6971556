"""The objects of a stack in a cluster: the same ones whoever made the cluster."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pulumi
import pulumi_kubernetes as kubernetes
from pulumi import ResourceOptions
from pulumi_kubernetes import apps, core, policy, rbac
from pulumi_kubernetes.apiextensions import CustomResource

from infra.catalog.load import Catalog
from infra.inventory.pods import INTERFACE
from infra.plan.process import Plan
from infra.plan.topology import Topology
from infra.provision.cluster.objects import namespace_metadata, refuse_unmade, stack_objects
from infra.provision.inventory_output import HostRecord, inventory_document
from infra.provision.judged_stack import judged_plan
from infra.provision.secret_values import secret_values
from infra.render.cluster_facts import ClusterFacts
from infra.render.pod_documents import CLIENTS
from infra.render.pod_objects import PodObject, object_metadata, secret_name
from infra.spec.edge_keys import as_hosts_get_them
from infra.spec.load import LoadedStack

# The router has endpoints when engines have loaded, which takes longer than Pulumi waits.
NO_WAIT = {"pulumi.com/skipAwait": "true"}
_WAITED_FOR_BY_NOBODY = frozenset({"Deployment", "Service", "PersistentVolumeClaim"})
# A node that cannot be tuned would hold up everything else; but a deletion waits until nodes are taken back.
AT_ONCE = {"pulumi.com/waitFor": "jsonpath={.metadata.uid}"}
_WORKLOADS = frozenset({"DaemonSet", "LeaderWorkerSet", "DisaggregatedSet", "Deployment"})


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadContent:
    """What a workload is made of, decided before anything is registered.

    Args:
        makes_namespace: whether the stack owns the namespace it lies in.
        late: texts of the objects that are known only when other resources are made, by what stands in their place.
    """

    plan: Plan
    facts: ClusterFacts
    objects: tuple[PodObject, ...]
    secrets: Mapping[str, str]
    makes_namespace: bool
    late: Mapping[str, pulumi.Input[str]]

    @property
    def clients(self) -> str:
        """The name of the service that clients use."""
        return next(each.called for each in self.objects if each.name == CLIENTS)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterApi:
    """How the cluster's API is reached: a provider that exists, or what one is made from."""

    provider: kubernetes.Provider | None
    arguments: Mapping[str, pulumi.Input[str] | None]


class Workload(pulumi.ComponentResource):
    """Every object of one stack in its namespace.

    Args:
        name: the stack's.
        content: its objects.
        api: of the cluster.
        cluster: what goes with everything in it when it is deleted; None for a cluster that is not the stack's.
        ready: what must be there before the first object.
    """

    def __init__(
        self,
        name: str,
        content: WorkloadContent,
        api: ClusterApi,
        *,
        cluster: pulumi.Resource | None = None,
        ready: Sequence[pulumi.Resource] = (),
    ) -> None:
        super().__init__("moe-infra:kubernetes:Workload", name)
        own = ResourceOptions(parent=self)
        provider = api.provider or kubernetes.Provider("cluster", **api.arguments, opts=own)
        options = ResourceOptions(parent=self, provider=provider, deleted_with=cluster)
        self._late = content.late
        first: list[pulumi.Resource] = [*ready]
        if content.makes_namespace:
            metadata = namespace_metadata(name, content.facts)
            options_first = _after(options, first)
            first.append(core.v1.Namespace("namespace", metadata=metadata, opts=options_first))
        if content.secrets:
            first.append(_secret(name, content, _after(options, first)))
        self._register(content.objects, options, first)
        self.register_outputs({})

    def _register(
        self,
        objects: Sequence[PodObject],
        options: ResourceOptions,
        first: Sequence[pulumi.Resource],
    ) -> None:
        """All objects; workloads behind everything that their pods name, and behind what tunes their nodes.

        Behind no more than that: what an object waits for is written into the state at every step of the engine.
        """
        made = [
            (each.called, self._make(each, _after(options, first)))
            for each in objects
            if each.kind not in _WORKLOADS
        ]
        tuning: list[pulumi.Resource] = []
        for each in sorted(objects, key=lambda found: found.kind != "DaemonSet"):
            if each.kind in _WORKLOADS:
                texts = texts_of(each.document)
                named = [resource for name, resource in made if name in texts]
                resource = self._make(each, _after(options, [*first, *named, *tuning]))
                tuning += [resource] if each.kind == "DaemonSet" else []

    def _make(self, found: PodObject, options: ResourceOptions) -> pulumi.Resource:
        """One object as the resource of its kind."""
        document: dict[str, Any] = fill_in(dict(found.document), self._late)
        metadata = dict(document["metadata"])
        if found.kind in _WAITED_FOR_BY_NOBODY:
            metadata["annotations"] = {**metadata.get("annotations", {}), **NO_WAIT}
        if found.kind == "DaemonSet":
            metadata["annotations"] = {**metadata.get("annotations", {}), **AT_ONCE}
        rest = {_ARGUMENTS.get(k, k): v for k, v in document.items() if k not in _HEAD}
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


def judged_pods(stack: LoadedStack, catalog: Catalog) -> Plan:
    """The stack compiled for pods and judged by every rule.

    Raises:
        InfraError: the stack asks for what is not made in pods, or a rule refuses it.
    """
    refuse_unmade(stack)
    return judged_plan(stack, catalog)


def workload_content(
    stack: LoadedStack,
    plan: Plan,
    facts: ClusterFacts,
    catalog: Catalog,
    *,
    late: Mapping[str, pulumi.Input[str]] | None = None,
) -> WorkloadContent:
    """The objects and secrets of a stack's plan, in a namespace of its own.

    Raises:
        InfraError: an object cannot be made, or a secret is not there.
    """
    return WorkloadContent(
        plan=plan,
        facts=facts,
        objects=stack_objects(stack, plan, facts, catalog),
        secrets=as_hosts_get_them(secret_values(plan.secrets)),
        makes_namespace=True,
        late=late or {},
    )


def pod_inventory(
    stack: LoadedStack,
    topology: Topology,
    content: WorkloadContent,
    *,
    weights: Mapping[str, object],
) -> dict[str, object]:
    """The inventory document of a stack in pods: its hosts are they."""
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
        for host in content.plan.hosts
    }
    url = f"{stack.spec.scheme}://{content.clients}.{content.facts.namespace}:{stack.spec.port}"
    return inventory_document(topology, records, weights=weights, spec=stack.spec, url=url)


def fill_in(value: Any, late: Mapping[str, pulumi.Input[str]]) -> Any:
    """A document with what is known late in its places."""
    if isinstance(value, Mapping):
        return {key: fill_in(each, late) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [fill_in(each, late) for each in value]
    return late.get(value, value) if isinstance(value, str) else value


def texts_of(value: Any) -> frozenset[str]:
    """Every text in a document."""
    if isinstance(value, Mapping):
        return frozenset().union(*map(texts_of, value.values()))
    if isinstance(value, list | tuple):
        return frozenset().union(*map(texts_of, value))
    return frozenset({value}) if isinstance(value, str) else frozenset()


def _after(options: ResourceOptions, others: Sequence[pulumi.Resource]) -> ResourceOptions:
    return ResourceOptions.merge(options, ResourceOptions(depends_on=list(others)))


def _secret(stack: str, content: WorkloadContent, options: ResourceOptions) -> core.v1.Secret:
    metadata = object_metadata(stack, content.facts, secret_name(stack))
    values = pulumi.Output.secret(dict(content.secrets))
    return core.v1.Secret("secrets", metadata=metadata, string_data=values, opts=options)


_HEAD = frozenset({"apiVersion", "kind", "metadata"})
_ARGUMENTS = {"roleRef": "role_ref"}
_KINDS: Mapping[str, Callable[..., pulumi.Resource]] = {
    "ConfigMap": core.v1.ConfigMap,
    "DaemonSet": apps.v1.DaemonSet,
    "Deployment": apps.v1.Deployment,
    "PersistentVolume": core.v1.PersistentVolume,
    "PersistentVolumeClaim": core.v1.PersistentVolumeClaim,
    "PodDisruptionBudget": policy.v1.PodDisruptionBudget,
    "Role": rbac.v1.Role,
    "RoleBinding": rbac.v1.RoleBinding,
    "Service": core.v1.Service,
    "ServiceAccount": core.v1.ServiceAccount,
}
