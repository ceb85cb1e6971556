"""Objects of the emulated clusters' API: kept as files beside the cloud's resources.

It stands in for the provider's side of an API server and for nothing behind it: no pod is scheduled, no chart read.
What it does hold a program to is the order: a cluster that answers, a node for what a chart starts, a namespace, and
the definition of an object before the object (charts bring them).
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from infra.rehearsal.cloud.cluster_kinds import CLUSTER, NODE_GROUP
from infra.rehearsal.cloud.kind import RefusedError
from infra.rehearsal.cloud.store import Resource, Store, digits
from infra.rehearsal.cloud.wire import UNKNOWN

RELEASE = "kubernetes:helm.sh/v3:Release"
NAMESPACE = "kubernetes:core/v1:Namespace"
CONFIG_MAP = "kubernetes:core/v1:ConfigMap"
_STANDING = frozenset({"default", "kube-system", "kube-public"})
_OF_NO_NAMESPACE = frozenset({NAMESPACE, "kubernetes:core/v1:PersistentVolume", RELEASE})
# API group → the chart that brings its definitions (the last word of its address).
_DEFINED_BY: Mapping[str, str] = {
    "leaderworkerset.x-k8s.io": "lws",
    "disaggregatedset.x-k8s.io": "lws",
    "resource.nvidia.com": "nvidia-dra-driver-gpu",
}
_UNCHANGING = ("kind", "apiVersion", "immutable")


def object_changes(
    token: str, old: Mapping[str, object], new: Mapping[str, object]
) -> tuple[list[str], list[str]]:
    """The properties that differ, and those among them that make another object."""
    names = sorted(name for name in {*old, *new} if old.get(name) != new.get(name))
    replaced = [name for name in names if name in _UNCHANGING]
    if token == RELEASE:
        replaced = [name for name in names if name in {"name", "namespace"}]
    elif _place(token, old) != _place(token, new):
        replaced.append("metadata")
    if token == CONFIG_MAP and old.get("immutable") is True:
        replaced += [name for name in names if name == "data"]
    return names, replaced


def create_object(
    store: Store, kubeconfig: str, urn: str, token: str, inputs: dict[str, object]
) -> Resource:
    """Make an object in the cluster that a kubeconfig names.

    Raises:
        RefusedError: there is no such cluster, the object cannot be in it yet, or one of its name is.
    """
    cluster, identity = _cluster(store, kubeconfig), _identity(urn, token, inputs)
    is_standing = token == NAMESPACE and identity in _STANDING
    if is_standing or store.get(token, f"{cluster}:{identity}") is not None:
        _refuse_second(token, identity)
    return put_object(store, kubeconfig, urn, token, inputs)


def put_object(
    store: Store, kubeconfig: str, urn: str, token: str, inputs: dict[str, object]
) -> Resource:
    """Write an object into the cluster that a kubeconfig names, over the one of its name.

    Raises:
        RefusedError: there is no such cluster, or the object cannot be in it yet.
    """
    cluster, identity = _cluster(store, kubeconfig), _identity(urn, token, inputs)
    objects = [each for each in store.all() if each.hidden.get("cluster") == cluster]
    _check(token, _place(token, inputs)[0], objects, store, cluster)
    resource = Resource(
        type=token,
        id=f"{cluster}:{identity}",
        urn=urn,
        inputs=inputs,
        outputs={**inputs, "id": identity, **_status(token)},
        hidden={"cluster": cluster},
    )
    store.put(resource)
    return resource


def _refuse_second(token: str, identity: str) -> None:
    if token == RELEASE:
        raise RefusedError("AlreadyExists", f"the name of a release is still in use: {identity}")
    raise RefusedError("AlreadyExists", f'{token.rpartition(":")[2]} "{identity}" already exists')


def _check(token: str, namespace: str, objects: list[Resource], store: Store, cluster: str) -> None:
    releases = [each for each in objects if each.type == RELEASE]
    if token not in _OF_NO_NAMESPACE:
        there = {_place(each.type, each.inputs)[1] for each in objects if each.type == NAMESPACE}
        there |= {str(each.inputs.get("namespace")) for each in releases}
        if namespace not in there | _STANDING:
            raise RefusedError("NotFound", f'namespaces "{namespace}" not found')
    group = token.split(":")[1].partition("/")[0]
    chart = _DEFINED_BY.get(group)
    charts = {str(each.inputs.get("chart")).rpartition("/")[2] for each in releases}
    if chart is not None and chart not in charts:
        kind = token.rpartition(":")[2]
        raise RefusedError("NoKindMatch", f'no matches for kind "{kind}" in group "{group}"')
    if token == RELEASE and not any(
        each.inputs.get("clusterName") == cluster and not each.inputs.get("taints")
        for each in store.of_type(NODE_GROUP)
    ):
        raise RefusedError("DeadlineExceeded", "no node takes the chart's pods")


def _cluster(store: Store, kubeconfig: str) -> str:
    """The name of the cluster whose endpoint a kubeconfig names.

    Raises:
        RefusedError: there is none.
    """
    try:
        server = json.loads(kubeconfig)["clusters"][0]["cluster"]["server"]
    except (ValueError, KeyError, IndexError, TypeError) as error:
        raise RefusedError("InvalidConfig", "the kubeconfig names no server") from error
    for each in store.of_type(CLUSTER):
        if each.outputs.get("endpoint") == server:
            return each.id
    raise RefusedError("Unreachable", f"configured Kubernetes cluster is unreachable: {server}")


def _identity(urn: str, token: str, inputs: Mapping[str, object]) -> str:
    """`NAMESPACE/NAME`, or the name alone; one that has none gets it from its URN."""
    namespace, name = _place(token, inputs)
    name = name or f"{urn.rpartition('::')[2]}-{digits(urn)[:8]}"
    return f"{namespace}/{name}" if namespace else name


def _place(token: str, inputs: Mapping[str, object]) -> tuple[str, str]:
    """Namespace and name; empty where there is none."""
    metadata = inputs if token == RELEASE else inputs.get("metadata")
    if not isinstance(metadata, Mapping):
        return "", ""
    found = [str(metadata.get(key) or "") for key in ("namespace", "name")]
    namespace = "" if token in _OF_NO_NAMESPACE - {RELEASE} else found[0] or "default"
    return namespace, "" if found[1] == UNKNOWN else found[1]


def _status(token: str) -> dict[str, object]:
    return {"status": {"status": "deployed"}} if token == RELEASE else {}
