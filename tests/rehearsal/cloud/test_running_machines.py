"""What instances and nodes of groups share in the emulated cloud: a reservation's instances, a subnet's addresses."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from infra.rehearsal.cloud.cluster_kinds import NODE_GROUP
from infra.rehearsal.cloud.kind import RefusedError
from infra.rehearsal.cloud.lookups import look_up
from infra.rehearsal.cloud.operations import delete, update
from tests.rehearsal.cloud.conftest import BLOCK, interface
from tests.rehearsal.cloud.own_cluster import ENTERED, Eks

if TYPE_CHECKING:
    from infra.rehearsal.cloud.store import Resource
    from tests.rehearsal.cloud.conftest import Cloud

ON_DEMAND: dict[str, Any] = {
    "capacityReservationSpecification": None,
    "instanceMarketOptions": None,
}
ROOM = 11  # addresses of a /28 without those that AWS keeps


class Nodes:
    """Groups of nodes in a cluster, all of one template.

    Args:
        cloud: the account.
        size: prefix length of the subnet that they stand in.
        cards: network interfaces of a node that take an address each.
        changed: properties of the template.
    """

    def __init__(self, cloud: Cloud, *, size: int = 24, cards: int = 1, **changed: Any) -> None:
        self.cloud, self.eks = cloud, Eks(cloud)
        self.eks.cluster()
        self.subnet = self.eks.subnet(4, "use1-az2", size)
        self.is_block = "instanceMarketOptions" not in changed
        row = {**interface(self.subnet, self.eks.group), "subnetId": None}
        rows = [{**row, "networkCardIndex": card} for card in range(cards)]
        self.template = self.eks.template(networkInterfaces=rows, **changed)

    def inputs(self, count: int) -> dict[str, Any]:
        return self.eks.group_inputs(
            self.template,
            subnetIds=[self.subnet.id],
            capacityType="CAPACITY_BLOCK" if self.is_block else "ON_DEMAND",
            scalingConfig={"desiredSize": count, "minSize": 0, "maxSize": 99},
        )

    def make(self, count: int) -> Resource:
        return self.cloud.make(NODE_GROUP, **self.inputs(count))

    def refusal(self, count: int) -> str:
        return self.cloud.refusal(NODE_GROUP, **self.inputs(count))

    def resize(self, group: Resource, count: int) -> Resource:
        sizes = {"desiredSize": count, "minSize": 0, "maxSize": 99}
        inputs = {**group.inputs, "scalingConfig": sizes}
        return update(self.cloud.store, "us-east-1", group.id, group.urn, inputs)

    def host_template(self) -> Resource:
        """What an instance beside the nodes is launched from."""
        entered = ENTERED if self.is_block else {}
        return self.cloud.template(self.subnet, self.eks.group, **entered)


def hold(cloud: Cloud, num_instances: int) -> None:
    """Let the account's block hold so many instances."""
    block = replace(cloud.store.account.reservations[BLOCK], num_instances=num_instances)
    cloud.store.account = replace(cloud.store.account, reservations={BLOCK: block})


def num_free(cloud: Cloud, subnet: Resource) -> object:
    """What the cloud answers when it is asked for a subnet's free addresses."""
    answer = look_up(cloud.store, "us-east-1", "aws:ec2/getSubnet:getSubnet", {"id": subnet.id})
    return answer["availableIpAddressCount"]


def machine_ids(cloud: Cloud, filters: dict[str, str]) -> list[str]:
    """Ids of the machines that pass filters."""
    rows = [{"name": name, "values": [value]} for name, value in filters.items()]
    asked = {"filters": rows}
    answer = look_up(cloud.store, "us-east-1", "aws:ec2/getInstances:getInstances", asked)
    assert isinstance(answer["ids"], list)
    return answer["ids"]


@pytest.mark.parametrize(("size", "fits"), [(2, True), (3, False)])
def test_a_group_takes_no_more_than_its_block_holds(cloud: Cloud, size: int, fits: bool) -> None:
    hold(cloud, 2)
    nodes = Nodes(cloud)
    if fits:
        assert nodes.make(size)
    else:
        said = nodes.refusal(size)
        assert "AsgInstanceLaunchFailures" in said
        assert "It holds 2 instances; 0 are in use by others" in said


def test_groups_and_instances_share_a_block(cloud: Cloud) -> None:
    hold(cloud, 3)
    nodes = Nodes(cloud)
    launched = nodes.host_template()
    host = cloud.launch(launched)
    nodes.make(1)
    assert "It holds 3 instances; 2 are in use by others" in nodes.refusal(2)
    cloud.launch(launched)
    assert "ReservationCapacityExceeded" in cloud.launch_refusal(launched)
    assert "3 are in use by others" in nodes.refusal(1)
    delete(cloud.store, host.id, host.urn)
    group = nodes.make(1)
    assert "ReservationCapacityExceeded" in cloud.launch_refusal(launched)
    delete(cloud.store, group.id, group.urn)
    assert cloud.launch(launched)


def test_a_group_grows_into_what_its_block_has_left(cloud: Cloud) -> None:
    hold(cloud, 3)
    nodes = Nodes(cloud)
    group = nodes.make(1)
    cloud.launch(nodes.host_template())
    with pytest.raises(RefusedError, match="It holds 3 instances; 1 are in use by others"):
        nodes.resize(group, 3)
    grown = nodes.resize(group, 2)
    assert nodes.resize(grown, 2).hidden == grown.hidden  # its own are not counted against it
    nodes.resize(grown, 0)
    assert nodes.make(2)


@pytest.mark.parametrize(
    ("cards", "size", "fits"), [(1, ROOM, True), (1, ROOM + 1, False), (2, 5, True), (2, 6, False)]
)
def test_a_group_takes_the_addresses_of_its_nodes_interfaces(
    cloud: Cloud, cards: int, size: int, fits: bool
) -> None:
    nodes = Nodes(cloud, size=28, cards=cards, **ON_DEMAND)
    assert num_free(cloud, nodes.subnet) == ROOM
    if fits:
        nodes.make(size)
        assert num_free(cloud, nodes.subnet) == ROOM - cards * size
    else:
        assert "InsufficientFreeAddresses" in nodes.refusal(size)
        assert num_free(cloud, nodes.subnet) == ROOM


def test_groups_and_instances_share_the_addresses_of_a_subnet(cloud: Cloud) -> None:
    nodes = Nodes(cloud, size=28, **ON_DEMAND)
    launched = nodes.host_template()
    cloud.launch(launched)
    group = nodes.make(ROOM - 1)
    assert num_free(cloud, nodes.subnet) == 0
    assert "InsufficientFreeAddressesInSubnet" in cloud.launch_refusal(launched)
    smaller = nodes.resize(group, ROOM - 2)
    cloud.launch(launched)
    with pytest.raises(RefusedError, match="InsufficientFreeAddresses"):
        nodes.resize(smaller, ROOM - 1)
    delete(cloud.store, smaller.id, smaller.urn)
    assert num_free(cloud, nodes.subnet) == ROOM - 2


def test_nodes_are_found_among_the_machines_of_a_subnet_by_their_templates_tags(
    cloud: Cloud,
) -> None:
    tags = {"moe-infra:stack": "mine"}
    specification = [{"resourceType": "instance", "tags": tags}]
    nodes = Nodes(cloud, tagSpecifications=specification, **ON_DEMAND)
    nodes.make(2)
    cloud.launch(nodes.host_template())
    place = {"subnet-id": nodes.subnet.id}
    assert len(machine_ids(cloud, place)) == 3
    assert len(machine_ids(cloud, {**place, "tag:moe-infra:stack": "mine"})) == 2
