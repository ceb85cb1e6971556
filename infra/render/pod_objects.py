"""Objects of the Kubernetes API as documents, and what all objects of one stack have in common."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from infra.catalog.load import Catalog
from infra.errors import StackError
from infra.plan.endpoints import Endpoints
from infra.plan.process import Plan
from infra.render.cluster_facts import ClusterFacts
from infra.render.pod_processes import Document
from infra.spec.stack import Workload

# What etcd takes of one object (kubernetes.io, ConfigMap: 1 MiB), less some for metadata.
MAX_CONFIG_BYTES = 1_000_000
# k8s.io/apimachinery pkg/api/validation (TotalAnnotationSizeLimitB), pkg/util/validation (LabelValueMaxLength), and
# etcd's --max-request-bytes, 1.5 MiB with all that the API server adds; checked 2026-11-26.
MAX_OBJECT_BYTES, MAX_ANNOTATION_BYTES, MAX_LABEL = 1_000_000, 262_144, 63


@dataclass(frozen=True, slots=True, kw_only=True)
class PodObject:
    """One object of the API.

    Args:
        name: stable, while `metadata.name` may follow the content.
    """

    name: str
    document: Document

    @property
    def kind(self) -> str:
        """Its kind."""
        return str(self.document["kind"])

    @property
    def called(self) -> str:
        """Its name in the cluster."""
        metadata = self.document["metadata"]
        return str(metadata["name"]) if isinstance(metadata, dict) else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodStack:
    """What all objects of one stack are made from.

    Args:
        workload: what carries the groups.
        launcher: text of `infra/agent/pod_launch.py`.
    """

    plan: Plan
    workload: Workload
    cluster: ClusterFacts
    catalog: Catalog
    launcher: str
    endpoints: Endpoints

    @property
    def is_unit(self) -> bool:
        """Whether one DisaggregatedSet carries all groups."""
        return self.workload == "disaggregated-set"

    @property
    def spans_hosts(self) -> bool:
        """Whether its engines run on more than one host."""
        return len({p.host for p in self.plan.processes if p.kind == "engine"}) > 1

    def metadata(self, name: str, labels: Mapping[str, str] | None = None) -> Document:
        """Metadata of an object, and of what others know it by."""
        return object_metadata(self.plan.stack, self.cluster, name, labels)


def stack_labels(stack: str) -> dict[str, str]:
    """Labels of every object of a stack, and of its pods."""
    return {"app.kubernetes.io/instance": stack, "app.kubernetes.io/managed-by": "moe-infra"}


def part_labels(role: str, replica: int | None) -> dict[str, str]:
    """Labels that say which part of a stack an object or a pod is; `replica` is None where it is several."""
    found = {"moe-infra/role": role}
    return found if replica is None else {**found, "moe-infra/replica": str(replica)}


def secret_name(stack: str) -> str:
    """The Secret with what a stack declares under `secrets`."""
    return f"{stack}-secrets"


def object_metadata(
    stack: str, cluster: ClusterFacts, name: str, labels: Mapping[str, str] | None = None
) -> Document:
    """Metadata of an object in the stack's namespace; the owner's labels stand on objects and never on pods.

    A pod's labels cannot change while it runs: a new cost centre would begin every engine again.
    """
    return {
        "name": name,
        "namespace": cluster.namespace,
        "labels": {**cluster.labels, **stack_labels(stack), **(labels or {})},
    }


def make_object(
    name: str, api: str, kind: str, metadata: Document, spec: Mapping[str, object]
) -> PodObject:
    """An object with a specification."""
    document: Document = {"apiVersion": api, "kind": kind, "metadata": metadata, "spec": dict(spec)}
    return PodObject(name=name, document=document)


def launcher_map(stack: PodStack) -> PodObject:
    """The launcher of every pod: one object, which a stack of many groups would else carry in each."""
    metadata = stack.metadata(f"{stack.plan.stack}-launcher")
    return hashed_map("launcher", metadata, {"launch.py": stack.launcher}, "The launcher")


def hashed_map(name: str, metadata: Document, data: Mapping[str, str], about: str) -> PodObject:
    """A ConfigMap whose name in the cluster follows its content: other content makes other pods.

    Args:
        name: stable.
        metadata: whose name gets the content's hash.
        data: text by file.
        about: what the text is, for the message.

    Raises:
        StackError: it is larger than an object may be.
    """
    size = sum(len(text.encode()) for text in data.values())
    if size > MAX_CONFIG_BYTES:
        what = f"{about} take {size} bytes; a ConfigMap holds {MAX_CONFIG_BYTES}."
        raise StackError(f"ConfigMap {metadata['name']}", what, "Make the group smaller.")
    digest = hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()[:8]
    return PodObject(
        name=name,
        document={
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {**metadata, "name": f"{metadata['name']}-{digest}"},
            "immutable": True,
            "data": dict(data),
        },
    )


def refuse_large(objects: Iterable[PodObject]) -> None:
    """Refuse objects that no cluster would take, before any is made.

    Raises:
        StackError: an object, its annotations or a label is longer than the API takes.
    """
    for one in objects:
        size = len(json.dumps(one.document, separators=(",", ":")).encode())
        if size > MAX_OBJECT_BYTES:
            raise _too_large(
                one, f"It has {size} bytes; {MAX_OBJECT_BYTES} are the most of an object."
            )
        for metadata in _metadata(one.document):
            annotations, labels = metadata.get("annotations"), metadata.get("labels")
            size = sum(len(str(text).encode()) for pair in _pairs(annotations) for text in pair)
            if size > MAX_ANNOTATION_BYTES:
                what = f"Its annotations have {size} bytes; {MAX_ANNOTATION_BYTES} are the most."
                raise _too_large(one, what)
            for name, value in _pairs(labels):
                if len(str(value)) > MAX_LABEL:
                    raise _too_large(one, f"Its label {name} has more than {MAX_LABEL} characters.")


def _metadata(value: object) -> Iterator[Mapping[str, object]]:
    """The metadata of an object, and of the templates in it."""
    if isinstance(value, Mapping):
        own = value.get("metadata")
        if isinstance(own, Mapping):
            yield own
        for inner in value.values():
            yield from _metadata(inner)


def _pairs(value: object) -> Iterable[tuple[object, object]]:
    return value.items() if isinstance(value, Mapping) else ()


def _too_large(one: PodObject, what: str) -> StackError:
    fix = "Shorten flags and variables of the roles, or names."
    return StackError(f"{one.kind} {one.called}", what, fix)
