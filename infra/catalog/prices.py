"""What a machine costs: figures for estimates alone, with their dates."""

from datetime import date
from functools import cache
from typing import Literal

from pydantic import StrictInt, StrictStr

from infra.catalog.figures import read_figures
from infra.catalog.instance_types import CapacityKind
from infra.catalog.sourced import Entry, SourcedEntry


class Bundle(Entry):
    """Instances that are sold together."""

    name: StrictStr
    instances: StrictInt


class Price(Entry):
    """USD per hour of one instance, or of a bundle of them."""

    instance_type: StrictStr
    kind: CapacityKind
    per: Literal["instance"] | Bundle
    usd_per_hour: float


class ControlPlanePrice(Entry):
    """USD per hour of a control plane on EKS, by the support that its Kubernetes version has."""

    standard: float
    extended: float


class SupportEnds(Entry):
    """The last days on which EKS supports a Kubernetes version; `extended` costs more."""

    standard: date
    extended: date


class PriceList(SourcedEntry):
    """`prices.yaml`.

    Args:
        kubernetes_support: by minor version (`1.35`).
        system_nodes_usd_per_hour: on demand, by instance type.
    """

    prices: tuple[Price, ...]
    control_plane_usd_per_hour: ControlPlanePrice
    kubernetes_support: dict[StrictStr, SupportEnds]
    system_nodes_usd_per_hour: dict[StrictStr, float]


@cache
def read_prices() -> PriceList:
    """The prices of `prices.yaml`.

    Raises:
        CatalogueError: the file is wrong.
    """
    return read_figures("prices.yaml", PriceList)
