"""Managed node groups: the machines with accelerators, on the capacity that the stack names, and a few beside them."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass

import pulumi
from pulumi import CustomTimeouts, ResourceOptions
from pulumi_aws import ec2, eks

from infra.catalog.eks import SystemNode, SystemNodes
from infra.catalog.instance_types import CapacityKind, InstanceType
from infra.catalog.network_cards import NetworkInterface
from infra.provision.aws.eks.rules import MAX_PODS
from infra.provision.aws.launch_template import (
    KEPT_KEY,
    KEPT_SPEED,
    KEPT_TAGS,
    METADATA,
    capacity_arguments,
    network_interface,
    root_volume,
)
from infra.provision.naming import POOL, POOL_LABEL, Tags

# Nodes with accelerators carry it: no other pod comes there by accident.
TAINT = "nvidia.com/gpu"
_BOUNDARY = "moe-infra"
CAPACITY_TYPES: dict[CapacityKind, str] = {
    "on-demand": "ON_DEMAND",
    "odcr": "ON_DEMAND",
    "capacity-block": "CAPACITY_BLOCK",
    "ultraserver": "CAPACITY_BLOCK",
}

# Instead of 60 minutes (node_group.go, Timeouts): an update takes one node after the other, each gone before the next.
NODES_WAIT = CustomTimeouts(update="12h")


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where the nodes of a group stand, and as what they come into the cluster.

    Args:
        subnet_id: in the zone of the capacity.
        group_ids: security groups of each interface; empty for the cluster's own.
        release: of the image; None for the newest.
        keeps_release: whether nodes that run keep theirs: a newer one replaces none, another Kubernetes version all.
        keeps_template: whether nodes that run keep their launch template: those of a block cannot be changed.
        key_arn: that root volumes are encrypted with; None for AWS's own.
        keeps_key: whether nodes run: another key would be another version of the template, and replace them.
        ready: what must be there before the first node.
    """

    cluster: eks.Cluster
    subnet_id: pulumi.Input[str]
    role_arn: pulumi.Input[str]
    group_ids: tuple[pulumi.Input[str], ...]
    release: str | None
    keeps_release: bool
    keeps_template: bool
    key_arn: str | None
    keeps_key: bool
    ready: tuple[pulumi.Resource, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceleratorNodes:
    """The machines of one accelerator.

    Args:
        mount_script: what first boot runs before the node joins; None for nothing.
        placement_group: name, None where machines are placed by their reservation.
    """

    instance_type: InstanceType
    interfaces: tuple[NetworkInterface, ...]
    count: int
    capacity: CapacityKind
    reservation_id: str | None
    image: str
    volume_gib: int
    mount_script: str | None
    placement_group: pulumi.Input[str] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Nodes:
    """What groups differ in.

    Args:
        image: type of the image, as EKS names it.
        user_data: what first boot is told, in base64.
        interfaces: empty for the one that EKS gives to a node.
        placement_group: name, None for none.
        is_repaired: whether EKS reboots and replaces broken nodes by itself.
    """

    count: int
    instance_type: str
    image: str
    volume_gib: int
    user_data: str
    interfaces: tuple[NetworkInterface, ...]
    capacity: CapacityKind
    reservation_id: str | None
    placement_group: pulumi.Input[str] | None
    is_repaired: bool
    labels: Mapping[str, str]
    taints: tuple[eks.NodeGroupTaintArgsDict, ...]


class AcceleratorGroup(pulumi.ComponentResource):
    """The nodes with accelerators: as many as the stack has hosts, no more and no fewer.

    EKS refuses a template that names subnets or an instance profile, and groups of a capacity block without a template
    (EKS User Guide, "Customize managed nodes with launch templates", "Create a managed node group with Capacity
    Blocks"). A change gives a node back before it takes another one: a reservation has no spare.
    """

    def __init__(self, name: str, nodes: AcceleratorNodes, place: Place, tags: Tags) -> None:
        super().__init__("moe-infra:nodes:AcceleratorGroup", name)
        made_of = _Nodes(
            count=nodes.count,
            instance_type=nodes.instance_type.id,
            image=nodes.image,
            volume_gib=nodes.volume_gib,
            user_data=user_data(node_config(has_disks=True), nodes.mount_script),
            interfaces=nodes.interfaces,
            capacity=nodes.capacity,
            reservation_id=nodes.reservation_id,
            placement_group=nodes.placement_group,
            # A repair replaces nodes for most reasons, and only reason by reason can it be told otherwise (EKS User
            # Guide, "Automatically repair nodes in EKS clusters", checked 2026-11-27). A node that is replaced has lost
            # the weights on its disks, and its capacity may not come again. The agent's conditions tell the operator.
            is_repaired=False,
            labels={POOL_LABEL: POOL},
            taints=({"key": TAINT, "value": "present", "effect": "NO_SCHEDULE"},),
        )
        self.group = _node_group(self, name, made_of, place, tags)
        self.register_outputs({})


class SystemGroup(pulumi.ComponentResource):
    """Nodes for all beside engines: names, controllers, the router. They stay when accelerators are given back."""

    def __init__(
        self, name: str, nodes: SystemNodes, node: SystemNode, place: Place, tags: Tags
    ) -> None:
        super().__init__("moe-infra:nodes:SystemGroup", name)
        made_of = _Nodes(
            count=nodes.count,
            instance_type=node.instance_type,
            image=node.image,
            volume_gib=nodes.volume_gib,
            user_data=user_data(node_config(has_disks=False), None),
            interfaces=(),
            capacity="on-demand",
            reservation_id=None,
            placement_group=None,
            is_repaired=True,
            labels={},
            taints=(),
        )
        self.group = _node_group(self, name, made_of, place, tags)
        self.register_outputs({})


def node_config(*, has_disks: bool) -> str:
    """The node's part of its configuration; EKS adds the cluster's.

    Args:
        has_disks: whether its own disks are joined: images, pods' files and weights then lie on them.
    """
    spec: dict[str, object] = {"kubelet": {"config": {"maxPods": MAX_PODS}}}
    if has_disks:
        spec["instance"] = {"localStorage": {"strategy": "RAID0"}}
    document = {"apiVersion": "node.eks.aws/v1alpha1", "kind": "NodeConfig", "spec": spec}
    return json.dumps(document, indent=1)


def user_data(config: str, script: str | None) -> str:
    """User data as managed node groups take it: a document of several parts, in base64."""
    parts = [("application/node.eks.aws", config)]
    if script is not None:
        parts.append(("text/x-shellscript", script))
    lines = ["MIME-Version: 1.0", f'Content-Type: multipart/mixed; boundary="{_BOUNDARY}"', ""]
    for kind, text in parts:
        lines += [f"--{_BOUNDARY}", f"Content-Type: {kind}", "", text.rstrip(), ""]
    lines += [f"--{_BOUNDARY}--", ""]
    return base64.b64encode("\n".join(lines).encode()).decode()


def _node_group(
    parent: pulumi.Resource, name: str, nodes: _Nodes, place: Place, tags: Tags
) -> eks.NodeGroup:
    template = _launch_template(parent, name, nodes, place, tags)
    return eks.NodeGroup(
        name,
        cluster_name=place.cluster.name,
        node_role_arn=place.role_arn,
        subnet_ids=[place.subnet_id],
        version=place.cluster.version,
        release_version=place.release,
        ami_type=nodes.image,
        capacity_type=CAPACITY_TYPES[nodes.capacity],
        scaling_config={
            "desired_size": nodes.count,
            # before the end of a block, EKS itself brings its nodes to none
            "min_size": 0 if CAPACITY_TYPES[nodes.capacity] == "CAPACITY_BLOCK" else nodes.count,
            "max_size": nodes.count,
        },
        launch_template={"id": template.id, "version": template.latest_version.apply(str)},
        node_repair_config={"enabled": nodes.is_repaired},
        update_config={"max_unavailable": 1, "update_strategy": "MINIMAL"},
        labels=nodes.labels or None,
        taints=nodes.taints or None,
        tags=tags.of(name),
        opts=ResourceOptions(
            parent=parent,
            depends_on=list(place.ready),
            ignore_changes=[
                *(["releaseVersion"] if place.keeps_release else []),
                *(["launchTemplate"] if place.keeps_template else []),
            ],
            delete_before_replace=True,
            custom_timeouts=NODES_WAIT,
            protect=nodes.capacity != "on-demand",
        ),
    )


def _launch_template(
    parent: pulumi.Resource, name: str, nodes: _Nodes, place: Place, tags: Tags
) -> ec2.LaunchTemplate:
    # by its capacity the policy pack knows whether a reservation has to be targeted
    named = {"capacity": nodes.capacity}
    interfaces = [
        network_interface(each, groups=place.group_ids, subnet_id=None) for each in nodes.interfaces
    ]
    return ec2.LaunchTemplate(
        name,
        instance_type=nodes.instance_type,
        user_data=nodes.user_data,
        metadata_options=METADATA,
        block_device_mappings=[root_volume(nodes.volume_gib, place.key_arn)],
        network_interfaces=interfaces or None,
        placement={"group_name": nodes.placement_group} if nodes.placement_group else None,
        tag_specifications=_tagged(tags.lasting(name, **named)),
        update_default_version=True,
        tags=tags.of(name, **named),
        opts=ResourceOptions(
            parent=parent,
            ignore_changes=[*KEPT_SPEED, *KEPT_TAGS, *([KEPT_KEY] if place.keeps_key else [])],
        ),
        **capacity_arguments(nodes.capacity, nodes.reservation_id),
    )


def _tagged(tags: dict[str, str]) -> list[ec2.LaunchTemplateTagSpecificationArgs]:
    """What nodes get as they are made; tags that change later would replace them."""
    return [
        ec2.LaunchTemplateTagSpecificationArgs(resource_type=kind, tags=tags)
        for kind in ("instance", "volume", "network-interface")
    ]
