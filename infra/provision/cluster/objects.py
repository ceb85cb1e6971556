"""Every object of a stack in a cluster, as documents: `pulumi up` registers them, `fab render` writes them."""

from __future__ import annotations

from infra.agent.condensing import texts_in
from infra.catalog.load import Catalog
from infra.errors import StackError
from infra.plan.process import Plan
from infra.provision.cluster.tuning import tuning_objects
from infra.render.cluster_facts import ClusterFacts
from infra.render.pod_documents import pod_documents
from infra.render.pod_objects import PodObject, stack_labels
from infra.render.pod_processes import Document
from infra.spec.load import PROJECT, LoadedStack

# A namespace of ours admits what engines need of a node: its folders, locked memory, and for tuning everything.
ADMITTED = {"pod-security.kubernetes.io/enforce": "privileged"}


def stack_objects(
    stack: LoadedStack, plan: Plan, facts: ClusterFacts, catalog: Catalog
) -> tuple[PodObject, ...]:
    """The objects of a stack, but its namespace and the Secret, whose values no document holds.

    Raises:
        StackError: an object cannot be made.
    """
    objects = pod_documents(
        plan,
        workload=stack.spec.kubernetes.workload,
        cluster=facts,
        catalog=catalog,
        launcher=texts_in(str(PROJECT / "infra" / "agent"))["pod_launch"],
    )
    return (*tuning_objects(stack, plan, facts, catalog), *objects)


def namespace_metadata(stack: str, facts: ClusterFacts) -> Document:
    """Metadata of the namespace that is made for a stack."""
    return {"name": facts.namespace, "labels": {**facts.labels, **stack_labels(stack), **ADMITTED}}


def refuse_unmade(stack: LoadedStack) -> None:
    """What a stack may ask for and is not made in pods.

    Raises:
        StackError: it asks for it.
    """
    spec = stack.spec
    if spec.ingress != "none":
        what = "A cluster has its own way in; none is made."
        raise StackError(
            f"{stack.file} ingress", what, "Remove the field and route to the stack's service."
        )
    accelerators = {role.accelerator for _, role in spec.roles.items()} - {None}
    if len(accelerators | {spec.accelerator or spec.defaults.accelerator} - {None}) > 1:
        what = "Roles on different accelerators need node selectors of their own, which are not there yet."
        raise StackError(f"{stack.file} roles", what, "Use one accelerator for all roles.")
