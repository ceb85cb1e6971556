"""What a cluster of a stack's own on EKS costs beside its nodes with accelerators."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date

from infra.catalog.eks import SystemNodes
from infra.catalog.prices import PriceList
from infra.catalog.schema import Architecture


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterDay:
    """A cluster on a day: what its control plane costs follows from both.

    Args:
        kubernetes_version: minor version (`1.35`).
    """

    kubernetes_version: str
    day: date


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterCost:
    """One thing of a cluster that is charged by the hour, as long as it stands.

    Args:
        what: words for it.
        usd_per_hour: None when its price is not published.
        why: how the price was chosen, or why there is none.
    """

    what: str
    usd_per_hour: float | None
    why: str


def cluster_costs(
    cluster: ClusterDay, nodes: SystemNodes, architecture: Architecture, prices: PriceList
) -> tuple[ClusterCost, ...]:
    """The control plane and the system nodes of a cluster, each with its price or without one.

    Args:
        cluster: with its version.
        nodes: beside those with accelerators.
        architecture: of the hosts, which is the system nodes', too.
        prices: the published list.
    """
    return (_control_plane(cluster, prices), _system_nodes(nodes, architecture, prices))


def _control_plane(cluster: ClusterDay, prices: PriceList) -> ClusterCost:
    what, version = "control plane", cluster.kubernetes_version
    support, usd = prices.kubernetes_support.get(version), prices.control_plane_usd_per_hour
    if support is None:
        why = f"no published end of support for Kubernetes {version}"
        return ClusterCost(what=what, usd_per_hour=None, why=why)
    if cluster.day <= support.standard:
        why = f"Kubernetes {version}, standard support until {support.standard}"
        return ClusterCost(what=what, usd_per_hour=usd.standard, why=why)
    if cluster.day <= support.extended:
        why = f"Kubernetes {version}, extended support until {support.extended}"
        return ClusterCost(what=what, usd_per_hour=usd.extended, why=why)
    why = f"EKS ended Kubernetes {version} on {support.extended}"
    return ClusterCost(what=what, usd_per_hour=None, why=why)


def _system_nodes(nodes: SystemNodes, architecture: Architecture, prices: PriceList) -> ClusterCost:
    name, what = nodes.of(architecture).instance_type, f"{nodes.count} system nodes"
    usd = prices.system_nodes_usd_per_hour.get(name)
    if usd is None:
        why = f"no published price for {name} on-demand"
        return ClusterCost(what=what, usd_per_hour=None, why=why)
    why = f"{nodes.count} × {name} on-demand at {usd:,.4f}"
    return ClusterCost(what=what, usd_per_hour=nodes.count * usd, why=why)
