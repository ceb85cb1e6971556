"""What is told of clusters in the emulated cloud to a real control plane."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from infra.rehearsal.cloud.cluster_kinds import NODE_GROUP
from infra.rehearsal.cloud.cluster_objects import CONFIG_MAP, NAMESPACE, RELEASE
from infra.rehearsal.cloud.emulated_clusters import StoodUpGroup, objects_in, stood_up_groups
from infra.rehearsal.cloud.machine_kinds import TEMPLATE
from infra.rehearsal.cloud.store import Resource, Store

OLD = {"instanceType": "p5.48xlarge"}
NEW = {
    "instanceType": "p5en.48xlarge",
    "networkInterfaces": [
        {"networkCardIndex": 0, "interfaceType": "efa"},
        {"networkCardIndex": 1, "interfaceType": "efa-only"},
        {"networkCardIndex": 1, "deviceIndex": 1, "interfaceType": "interface"},
    ],
}


def put(store: Store, token: str, name: str, *, hidden: Any = None, **inputs: Any) -> None:
    store.put(
        Resource(type=token, id=name, urn=name, inputs=inputs, outputs={}, hidden=hidden or {})
    )


def test_a_group_is_what_its_templates_version_launches(tmp_path: Path) -> None:
    store = Store(tmp_path)
    put(store, TEMPLATE, "lt-0", hidden={"versions": {"1": OLD, "2": NEW}})
    put(
        store,
        NODE_GROUP,
        "mine:accelerators",
        nodeGroupName="accelerators",
        scalingConfig={"desiredSize": 2, "minSize": 0, "maxSize": 2},
        launchTemplate={"id": "lt-0", "version": "2"},
        labels={"moe-infra/pool": "accelerators"},
        taints=[{"key": "nvidia.com/gpu", "value": "present", "effect": "NO_SCHEDULE"}],
    )
    assert list(stood_up_groups(Store(tmp_path))) == [
        StoodUpGroup(
            name="accelerators",
            instance_type="p5en.48xlarge",
            count=2,
            labels={"moe-infra/pool": "accelerators"},
            resources={"vpc.amazonaws.com/efa": "2"},
            taints=({"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"},),
        )
    ]


def test_a_namespace_comes_before_what_is_in_it_and_a_chart_not_at_all(tmp_path: Path) -> None:
    store, cluster = Store(tmp_path), {"cluster": "mine"}
    put(store, CONFIG_MAP, "a", hidden=cluster, kind="ConfigMap", data={"a": "b"})
    put(store, RELEASE, "lws", hidden=cluster, chart="lws")
    put(store, NAMESPACE, "mine", hidden=cluster, kind="Namespace")
    assert [each["kind"] for each in objects_in(store)] == ["Namespace", "ConfigMap"]
