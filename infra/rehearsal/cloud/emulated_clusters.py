"""What a program has made of clusters in the emulated cloud: their objects, and nodes as their kubelets would tell."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from infra.rehearsal.cloud.cluster_kinds import NODE_GROUP, map_of
from infra.rehearsal.cloud.cluster_objects import NAMESPACE, RELEASE
from infra.rehearsal.cloud.interface_rules import read_interfaces
from infra.rehearsal.cloud.machine_kinds import TEMPLATE
from infra.rehearsal.cloud.store import Resource, Store
from infra.render.cluster_facts import EFA_RESOURCE

# How EKS words a taint's effect, and how Kubernetes does (EKS API Reference, `Taint`).
_EFFECTS = {
    "NO_SCHEDULE": "NoSchedule",
    "NO_EXECUTE": "NoExecute",
    "PREFER_NO_SCHEDULE": "PreferNoSchedule",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class StoodUpGroup:
    """A managed node group that runs.

    Args:
        instance_type: of its launch template.
        resources: by the name under which AWS's device plugin offers them.
        taints: documents of the Kubernetes API.
    """

    name: str
    instance_type: str
    count: int
    labels: Mapping[str, str]
    resources: Mapping[str, str]
    taints: tuple[Mapping[str, str], ...]


def stood_up_groups(cloud: Store) -> Iterator[StoodUpGroup]:
    """Every managed node group of the account."""
    for group in cloud.of_type(NODE_GROUP):
        template = _template(cloud, group)
        devices = sum(each.has_efa for each in read_interfaces(template.get("networkInterfaces")))
        taints = group.inputs.get("taints")
        yield StoodUpGroup(
            name=str(group.inputs["nodeGroupName"]),
            instance_type=str(template["instanceType"]),
            count=int(str(map_of(group.inputs["scalingConfig"])["desiredSize"])),
            labels={name: str(text) for name, text in map_of(group.inputs.get("labels")).items()},
            resources={EFA_RESOURCE: str(devices)} if devices else {},
            taints=tuple(map(_taint, taints if isinstance(taints, list) else ())),
        )


def objects_in(cloud: Store) -> list[dict[str, Any]]:
    """The objects of all clusters, namespaces first; without charts, which are not of the Kubernetes API."""
    made = [
        each
        for each in cloud.all()
        if each.type.startswith("kubernetes:") and each.type != RELEASE and "cluster" in each.hidden
    ]
    made.sort(key=lambda each: each.type != NAMESPACE)
    return [each.inputs for each in made]


def _template(cloud: Store, group: Resource) -> Mapping[str, object]:
    named = map_of(group.inputs["launchTemplate"])
    template = cloud.get(TEMPLATE, str(named["id"]))
    if template is None:
        raise AssertionError(named)  # the emulated cloud makes no group without its template
    return map_of(map_of(template.hidden["versions"])[str(named["version"])])


def _taint(document: Mapping[str, str]) -> dict[str, str]:
    return {
        "key": document["key"],
        "value": document.get("value", ""),
        "effect": _EFFECTS[document["effect"]],
    }
