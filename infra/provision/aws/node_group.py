"""The machines of one role: a launch template and its instances."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pulumi
from pulumi import CustomTimeouts, ResourceOptions
from pulumi_aws import ec2

from infra.catalog.instance_types import CapacityKind, InstanceType
from infra.catalog.network_cards import NetworkInterface
from infra.plan.topology import TopologyHost
from infra.provision.aws.account import Account
from infra.provision.aws.found import FoundImage
from infra.provision.aws.launch_template import (
    KEPT_TAGS,
    METADATA,
    USUAL_ROOT_DEVICE,
    capacity_arguments,
    network_interface,
    root_volume,
)
from infra.provision.naming import Tags

# Large machines come and go slowly, and a replacement waits until the old one is gone: the provider's own 10 and 20
# minutes (ec2_instance.go, Timeouts) would end it in the middle.
MACHINE_WAIT = CustomTimeouts(create="30m", delete="60m")


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSettings:
    """What the machines of one role have in common.

    Args:
        replicas: by host name, the replicas that run there: `decode/0`.
    """

    instance_type: InstanceType
    interfaces: tuple[NetworkInterface, ...]
    capacity: CapacityKind
    account: Account
    replicas: Mapping[str, tuple[str, ...]]
    tags: Tags


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What other components made, and the machines are put into.

    Args:
        image: changes to it are ignored unless the operator pinned it.
        placement_group: name, None where machines are placed by their reservation.
        ready: what must be there before the first boot.
    """

    image: FoundImage
    subnet_id: pulumi.Input[str]
    group_id: pulumi.Input[str]
    profile_arn: pulumi.Input[str]
    placement_group: pulumi.Input[str] | None
    user_data: pulumi.Input[str] | None
    ready: tuple[pulumi.Resource, ...]


class NodeGroup(pulumi.ComponentResource):
    """One launch template and one instance per host, named as the topology names it.

    Another version of the template is for machines to come. Machines that stand keep theirs, unless the operator named
    them (`replace_machines`). A replacement gives the machine back before it takes another one: a reservation has no
    spare.
    `instances` maps host names to instances, in the topology's order.
    """

    def __init__(
        self,
        name: str,
        hosts: tuple[TopologyHost, ...],
        settings: NodeSettings,
        surroundings: Surroundings,
    ) -> None:
        super().__init__("moe-infra:hosts:NodeGroup", name)
        template = self._launch_template(name, settings, surroundings)
        self.instances = {
            host.name: self._instance(host, template, settings, surroundings) for host in hosts
        }
        self.register_outputs({})

    def _instance(
        self,
        host: TopologyHost,
        template: ec2.LaunchTemplate,
        settings: NodeSettings,
        surroundings: Surroundings,
    ) -> ec2.Instance:
        tags = settings.tags.of(
            host.name,
            host=host.name,
            roles="+".join(host.roles),
            replicas="+".join(settings.replicas[host.name]),
        )
        is_replaced = host.name in settings.account.replace_machines
        return ec2.Instance(
            host.name,
            launch_template={"id": template.id, "version": template.latest_version.apply(str)},
            tags=tags,
            volume_tags=tags,  # changed in place; the template's would make another machine
            opts=ResourceOptions(
                parent=self,
                depends_on=list(surroundings.ready),
                delete_before_replace=True,
                ignore_changes=[] if is_replaced else ["launchTemplate"],
                custom_timeouts=MACHINE_WAIT,
                protect=settings.capacity != "on-demand" and not is_replaced,
            ),
        )

    def _launch_template(
        self, name: str, settings: NodeSettings, surroundings: Surroundings
    ) -> ec2.LaunchTemplate:
        # A "latest" image would make every preview a rolling replacement of reserved machines; so would
        # the name that it gives to its root device.
        moving = [] if settings.account.ami else ["imageId", "blockDeviceMappings[0].deviceName"]
        return ec2.LaunchTemplate(
            name,
            image_id=surroundings.image.id,
            instance_type=settings.instance_type.id,
            key_name=settings.account.key_name,
            user_data=surroundings.user_data,
            iam_instance_profile={"arn": surroundings.profile_arn},
            metadata_options=METADATA,
            block_device_mappings=[
                root_volume(
                    settings.account.root_volume_gib,
                    settings.account.kms_key_arn,
                    surroundings.image.root_device or USUAL_ROOT_DEVICE,
                )
            ],
            network_interfaces=[
                network_interface(
                    each, groups=(surroundings.group_id,), subnet_id=surroundings.subnet_id
                )
                for each in settings.interfaces
            ],
            placement={"group_name": surroundings.placement_group}
            if surroundings.placement_group
            else None,
            tag_specifications=[
                {
                    "resource_type": "network-interface",
                    "tags": settings.tags.lasting(name, roles=name),
                }
            ],
            update_default_version=True,
            # by its capacity the policy pack knows whether a reservation has to be targeted
            tags=settings.tags.of(name, roles=name, capacity=settings.capacity),
            opts=ResourceOptions(parent=self, ignore_changes=[*moving, *KEPT_TAGS]),
            **capacity_arguments(settings.capacity, settings.account.reservation_id),
        )
