"""What the emulated cloud answers when a program asks about clusters."""

from __future__ import annotations

from collections.abc import Mapping

from infra.rehearsal.cloud.cluster_kinds import ADDON, CLUSTER, NODE_GROUP
from infra.rehearsal.cloud.question import Lookup, Question, missing
from infra.rehearsal.cloud.store import Resource
from infra.rehearsal.cloud.world import ADDONS, KUBERNETES_VERSIONS


def _addon_version(question: Question) -> dict[str, object]:
    addon, version = question.text("addonName"), question.text("kubernetesVersion")
    offered = question.store.account.addons.get(addon, ADDONS.get(addon))
    if offered is None or version not in KUBERNETES_VERSIONS:
        raise missing("EKS Add-On version", f"{addon},{version}")
    return {"id": addon, "version": offered}


def _clusters(question: Question) -> dict[str, object]:
    return {"id": question.region, "names": [each.id for each in question.store.of_type(CLUSTER)]}


def _cluster(question: Question) -> dict[str, object]:
    found = question.store.get(CLUSTER, question.text("name"))
    if found is None:
        raise missing("EKS Cluster", question.text("name"))
    return {**found.outputs, "id": found.id, "tags": found.inputs.get("tags") or {}}


def _addon(question: Question) -> dict[str, object]:
    place = f"{question.text('clusterName')}:{question.text('addonName')}"
    found = question.store.get(ADDON, place)
    if found is None:
        raise missing("EKS Add-On", place)
    return {**found.outputs, "id": place}


def _groups_of(question: Question) -> dict[str, Resource]:
    name = question.text("clusterName")
    return {
        str(each.inputs["nodeGroupName"]): each
        for each in question.store.of_type(NODE_GROUP)
        if each.inputs.get("clusterName") == name
    }


def _node_groups(question: Question) -> dict[str, object]:
    return {"id": question.text("clusterName"), "names": sorted(_groups_of(question))}


def _node_group(question: Question) -> dict[str, object]:
    name = question.text("nodeGroupName")
    found = _groups_of(question).get(name)
    if found is None:
        raise missing("EKS Node Group", name)
    template, sizes = found.inputs.get("launchTemplate"), found.inputs.get("scalingConfig")
    return {
        **{key: found.outputs.get(key) for key in ("arn", "version", "releaseVersion")},
        "id": found.id,
        "launchTemplates": [template] if template else [],
        "scalingConfigs": [sizes],
        "subnetIds": found.inputs.get("subnetIds", []),
    }


CLUSTER_LOOKUPS: Mapping[str, Lookup] = {
    "aws:eks/getAddon:getAddon": _addon,
    "aws:eks/getAddonVersion:getAddonVersion": _addon_version,
    "aws:eks/getCluster:getCluster": _cluster,
    "aws:eks/getClusters:getClusters": _clusters,
    "aws:eks/getNodeGroup:getNodeGroup": _node_group,
    "aws:eks/getNodeGroups:getNodeGroups": _node_groups,
}
