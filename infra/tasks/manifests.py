"""The Kubernetes manifests of a stack in pods: the objects that `pulumi up` would register, as `kubectl` reads them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import yaml

from infra.catalog.eks import read_eks_parts
from infra.catalog.load import Catalog
from infra.errors import ProblemsFound
from infra.plan.compile import CompiledStack
from infra.provision.aws.capacity import plan_capacity
from infra.provision.aws.eks.pods import pod_facts, weights_volume
from infra.provision.aws.eks.rules import efa_count
from infra.provision.cluster.config import (
    CLUSTER_CONFIG_NAMES,
    NODE_TUNING,
    ClusterDemand,
    examples_of_missing,
    owner_labels,
    read_cluster,
    workload_problems,
)
from infra.provision.cluster.objects import namespace_metadata, refuse_unmade, stack_objects
from infra.render.cluster_facts import ClusterFacts
from infra.render.pod_objects import secret_name
from infra.tasks.pulumi_config import configured, default_of

_FSX_SIZE = "fsx_capacity_gib"
# How the cluster is reached stands in no object.
_OF_NO_OBJECT = "kubernetes_context"


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifests:
    """What is written.

    Args:
        files: text by path; their names are in the order in which objects are made.
        notes: what is not as `pulumi up` would have it, a line each.
    """

    namespace: str
    files: Mapping[str, str]
    notes: tuple[str, ...]


def manifests_of(compiled: CompiledStack, catalog: Catalog) -> Manifests:
    """The objects of a stack whose processes Kubernetes starts, namespace first.

    Raises:
        InfraError: the stack asks for what is not made in pods, or its configuration is wrong.
    """
    stack, plan = compiled.stack, compiled.plan
    refuse_unmade(stack)
    known = configured(stack.name, (*CLUSTER_CONFIG_NAMES, _FSX_SIZE))
    if plan.platform == "aws-eks":
        facts, notes = _facts_of_own_cluster(compiled, known)
    else:
        facts, notes = _facts_of_a_cluster(compiled, known)
    metadata = namespace_metadata(stack.name, facts)
    documents: list[tuple[str, object]] = []
    # a claim exists before the stack does, in a namespace that is lent to it
    if stack.spec.weights.storage != "pvc":
        own = {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}
        documents.append((f"namespace-{facts.namespace}", own))
    if documents and "namespace" in known:
        note = (
            f"Leave the file of the namespace {facts.namespace} out where it is lent to the stack."
        )
        notes = (*notes, note)
    documents += [
        (f"{each.kind.lower()}-{each.called}", each.document)
        for each in stack_objects(stack, plan, facts, catalog)
    ]
    if plan.secrets:
        keys = ", ".join(sorted(plan.secrets))
        notes = (
            *notes,
            f"Secret {secret_name(stack.name)} ({keys}) is not among them: no value is ever written.",
        )
    width = len(str(len(documents)))
    files = {
        f"kubernetes/{number:0{width}}-{name}.yaml": _text(document)
        for number, (name, document) in enumerate(documents)
    }
    return Manifests(namespace=facts.namespace, files=files, notes=notes)


if TYPE_CHECKING:
    _Emitting = yaml.SafeDumper
else:  # libyaml, where PyYAML was built with it: twenty times as fast, and the same text
    _Emitting = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


class _Dumper(_Emitting):
    """Texts of several lines, as programs and commands are, line by line."""

    def represent_text(self, text: str) -> yaml.ScalarNode:
        """A text, in the style that shows it best."""
        style = "|" if "\n" in text else None
        return self.represent_scalar("tag:yaml.org,2002:str", text, style=style)

    def ignore_aliases(self, data: object) -> bool:
        """Equal parts of a document are all written out."""
        del data
        return True


_Dumper.add_representer(str, _Dumper.represent_text)


def _text(document: object) -> str:
    return yaml.dump(document, Dumper=_Dumper, sort_keys=False, allow_unicode=True)


def _facts_of_a_cluster(
    compiled: CompiledStack, known: Mapping[str, str]
) -> tuple[ClusterFacts, tuple[str, ...]]:
    """A cluster that exists; examples stand for what nobody has configured."""
    demand = ClusterDemand(
        stack=compiled.stack.name,
        weights=compiled.stack.spec.weights,
        spans_hosts=compiled.plan.num_hosts > 1,
    )
    examples = examples_of_missing(known, demand)
    values = {_FSX_SIZE: default_of(_FSX_SIZE), **examples, **known}
    _, facts = read_cluster(values, demand)
    shown = {key: example for key, example in examples.items() if key != _OF_NO_OBJECT}
    notes = tuple(
        f"{key} is not configured; {example} stands for it. Type "
        f"`pulumi config set {key} VALUE --stack {demand.stack}`."
        for key, example in shown.items()
    )
    return facts, notes


def _facts_of_own_cluster(
    compiled: CompiledStack, known: Mapping[str, str]
) -> tuple[ClusterFacts, tuple[str, ...]]:
    """A cluster that is yet to be made; what AWS will name is left open."""
    stack, plan = compiled.stack, compiled.plan
    if problems := workload_problems(stack.name, known):
        raise ProblemsFound(tuple(problems))
    capacity = plan_capacity(compiled.topology, stack.spec.capacity)
    interfaces = capacity.instance_type(compiled.topology.hosts[0]).interfaces(capacity.layout)
    weights = weights_volume(
        stack.spec.weights.storage or "s3-to-nvme",
        stack.spec.weights.path,
        lustre_gib=int(known.get(_FSX_SIZE, default_of(_FSX_SIZE))),
        parts=read_eks_parts(),
    )
    facts = pod_facts(
        weights,
        namespace=known.get("namespace", stack.name),
        node_tuning=NODE_TUNING[known.get("node_tuning", "apply")],
        labels=owner_labels(known),
        num_efa=efa_count(interfaces) if plan.num_hosts > 1 else 0,
    )
    facts = replace(facts, node_tuning_image=known.get("node_tuning_image", ""))
    is_open = weights.kind in {"copy", "lustre"}
    notes = ("What only `pulumi up` learns of the weights stands as <<…>>.",) if is_open else ()
    return facts, notes
