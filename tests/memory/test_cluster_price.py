"""A cluster's own costs: by the day and by the version, and nothing guessed."""

from __future__ import annotations

from datetime import date

import pytest

from infra.catalog.eks import SystemNode, read_eks_parts
from infra.catalog.prices import read_prices
from infra.memory.cluster_price import ClusterDay, cluster_costs
from infra.memory.price import hourly_price

PRICES, NODES = read_prices(), read_eks_parts().system_nodes
B200 = {"p6-b200.48xlarge": 1}


def on(year: int, month: int, day: int, version: str = "1.35") -> ClusterDay:
    return ClusterDay(kubernetes_version=version, day=date(year, month, day))


@pytest.mark.parametrize(
    ("cluster", "usd", "why"),
    [
        (on(2026, 11, 22), 0.10, "standard support until 2027-03-27"),
        (on(2027, 3, 27), 0.10, "standard support until 2027-03-27"),
        (on(2027, 3, 28), 0.60, "extended support until 2028-03-27"),
        (on(2026, 11, 22, "1.33"), 0.60, "extended support until 2027-07-29"),
        (on(2027, 7, 30, "1.33"), None, "EKS ended Kubernetes 1.33 on 2027-07-29"),
        (on(2026, 11, 22, "1.99"), None, "no published end of support for Kubernetes 1.99"),
    ],
)
def test_a_control_plane_costs_what_its_version_costs_on_that_day(
    cluster: ClusterDay, usd: float | None, why: str
) -> None:
    plane, _ = cluster_costs(cluster, NODES, "x86_64", PRICES)
    assert (plane.what, plane.usd_per_hour) == ("control plane", usd)
    assert why in plane.why


@pytest.mark.parametrize(("architecture", "usd"), [("x86_64", 0.4032), ("aarch64", 0.3264)])
def test_system_nodes_are_those_of_the_hosts_architecture(architecture: str, usd: float) -> None:
    _, nodes = cluster_costs(on(2026, 11, 22), NODES, architecture, PRICES)  # type: ignore[arg-type]  # of the parameters
    assert nodes.usd_per_hour == pytest.approx(NODES.count * usd)


def test_system_nodes_without_a_published_price_are_not_guessed() -> None:
    other = SystemNode(instance_type="m99.large", image="AL2023_x86_64_STANDARD")
    nodes = NODES.model_copy(update={"x86_64": other})
    costs = cluster_costs(on(2026, 11, 22), nodes, "x86_64", PRICES)
    assert costs[1].usd_per_hour is None
    found = hourly_price(B200, "capacity-block", PRICES, cluster=costs)
    assert found.usd_per_hour is None
    assert "no published price for m99.large on-demand" in found.why


def test_a_cluster_is_charged_beside_a_block_and_ends_with_it() -> None:
    costs = cluster_costs(on(2026, 11, 22), NODES, "x86_64", PRICES)
    beside = 0.10 + 2 * 0.4032
    reserved = hourly_price(B200, "capacity-block", PRICES, cluster=costs)
    assert reserved.usd_per_hour == pytest.approx(98.84 + beside)
    assert reserved.saved_usd_per_hour == pytest.approx(beside)
    assert (reserved.num_bought, reserved.idle_usd_per_hour) == (1, 0.0)
    rented = hourly_price(B200, "on-demand", PRICES, cluster=costs)
    assert rented.saved_usd_per_hour == rented.usd_per_hour == pytest.approx(113.9328 + beside)


def test_every_system_node_and_version_of_the_catalogue_has_its_price() -> None:
    parts = read_eks_parts()
    for version in (parts.kubernetes.version, parts.kubernetes.least):
        assert version in PRICES.kubernetes_support
    for node in (NODES.x86_64, NODES.aarch64):
        assert PRICES.system_nodes_usd_per_hour[node.instance_type] > 0
