"""The emulated API of clusters: what has to be there before an object is."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from infra.provision.aws.eks.cluster import kubeconfig_document
from infra.rehearsal.cloud.cluster_kinds import CLUSTER, NODE_GROUP
from infra.rehearsal.cloud.cluster_objects import (
    CONFIG_MAP,
    NAMESPACE,
    RELEASE,
    create_object,
    object_changes,
    put_object,
)
from infra.rehearsal.cloud.kind import RefusedError
from infra.rehearsal.cloud.store import Resource, Store

if TYPE_CHECKING:
    from pathlib import Path

SERVER = "https://one.gr7.us-east-1.eks.amazonaws.com"
SET = "kubernetes:leaderworkerset.x-k8s.io/v1:LeaderWorkerSet"
LWS = {"name": "lws", "namespace": "lws-system", "chart": "oci://registry.k8s.io/lws/charts/lws"}


def kubeconfig(server: str = SERVER) -> str:
    document = kubeconfig_document(
        name="one", endpoint=server, certificate="bm9uZQ==", region="us-east-1"
    )
    return json.dumps(document)


def put(store: Store, token: str, **inputs: Any) -> Resource:
    return create_object(store, kubeconfig(), f"urn:pulumi:a::b::{token}::x", token, inputs)


def in_namespace(name: str = "mine") -> dict[str, Any]:
    return {"metadata": {"name": "x", "namespace": name}}


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """An account with a cluster `one` and a node group that anything can run on."""
    found = Store(tmp_path)
    standing: tuple[tuple[str, dict[str, object], dict[str, object]], ...] = (
        (CLUSTER, {"name": "one"}, {"endpoint": SERVER}),
        (NODE_GROUP, {"clusterName": "one"}, {}),
    )
    for token, inputs, outputs in standing:
        found.put(Resource(type=token, id="one", urn="", inputs=inputs, outputs=outputs, hidden={}))
    return found


def test_what_another_plugin_deletes_in_the_same_moment_is_passed_over(
    store: Store, tmp_path: Path
) -> None:
    gone = tmp_path / "resources" / "ConfigMap" / "gone.json"
    gone.parent.mkdir()
    gone.symlink_to(tmp_path / "deleted")  # listed, and not there when it is read
    assert [each.type for each in Store(tmp_path).all()] == [each.type for each in store.all()]


def test_an_object_lies_in_the_cluster_that_the_kubeconfig_names(store: Store) -> None:
    made = put(store, NAMESPACE, metadata={"name": "mine"})
    assert (made.id, made.hidden) == ("one:mine", {"cluster": "one"})
    with pytest.raises(RefusedError, match="unreachable: https://two"):
        put_object(store, kubeconfig("https://two"), "urn:pulumi:a::b::c::x", NAMESPACE, {})
    with pytest.raises(RefusedError, match="names no server"):
        put_object(store, "", "urn:pulumi:a::b::c::x", NAMESPACE, {})


def test_a_namespace_comes_first(store: Store) -> None:
    with pytest.raises(RefusedError, match='namespaces "mine" not found'):
        put(store, CONFIG_MAP, **in_namespace())
    put(store, NAMESPACE, metadata={"name": "mine"})
    assert put(store, CONFIG_MAP, **in_namespace()).id == "one:mine/x"


@pytest.mark.parametrize(
    ("token", "inputs"),
    [
        (CONFIG_MAP, in_namespace("default")),
        (NAMESPACE, {"metadata": {"name": "mine"}}),
        (RELEASE, LWS),
    ],
)
def test_a_second_object_of_one_name_is_refused_and_a_change_is_not(
    store: Store, token: str, inputs: dict[str, Any]
) -> None:
    first = put(store, token, **inputs)
    with pytest.raises(RefusedError, match="AlreadyExists"):
        put(store, token, **inputs)
    changed = put_object(store, kubeconfig(), first.urn, token, {**inputs, "more": "yes"})
    assert changed.id == first.id
    assert [each.inputs for each in store.of_type(token)] == [{**inputs, "more": "yes"}]


def test_a_namespace_that_every_cluster_has_cannot_be_made(store: Store) -> None:
    with pytest.raises(RefusedError, match='Namespace "kube-system" already exists'):
        put(store, NAMESPACE, metadata={"name": "kube-system"})


def test_a_definition_comes_with_its_chart(store: Store) -> None:
    put(store, NAMESPACE, metadata={"name": "mine"})
    with pytest.raises(RefusedError, match='no matches for kind "LeaderWorkerSet"'):
        put(store, SET, **in_namespace())
    put(store, RELEASE, **LWS)
    assert put(store, SET, **in_namespace())


def test_a_chart_wants_a_node_that_its_pods_tolerate(store: Store) -> None:
    taints = [{"key": "nvidia.com/gpu", "effect": "NO_SCHEDULE"}]
    (nodes,) = store.of_type(NODE_GROUP)
    nodes.inputs["taints"] = taints
    with pytest.raises(RefusedError, match="no node takes the chart's pods"):
        put(store, RELEASE, **LWS)


@pytest.mark.parametrize(
    ("token", "old", "new", "replaced"),
    [
        (NAMESPACE, {"metadata": {"name": "a"}}, {"metadata": {"name": "b"}}, ["metadata"]),
        (SET, {**in_namespace(), "spec": 1}, {**in_namespace(), "spec": 2}, []),
        (SET, in_namespace("a"), in_namespace("b"), ["metadata"]),
        (RELEASE, {**LWS, "version": "1"}, {**LWS, "version": "2"}, []),
        (RELEASE, LWS, {**LWS, "namespace": "other"}, ["namespace"]),
        (CONFIG_MAP, {"immutable": True, "data": {}}, {"immutable": True, "data": {"a": ""}}, ["data"]),
    ],
)  # fmt: skip
def test_what_makes_another_object(
    token: str, old: dict[str, Any], new: dict[str, Any], replaced: list[str]
) -> None:
    assert object_changes(token, old, new)[1] == replaced
