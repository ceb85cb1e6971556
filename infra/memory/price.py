"""What the machines of a plan cost, where a price is published: bought whole, used in part."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from infra.catalog.instance_types import CapacityKind
from infra.catalog.prices import Bundle, Price, PriceList
from infra.memory.cluster_price import ClusterCost

HOURS_PER_DAY = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class Purchase:
    """Machines of one type as they are sold.

    Args:
        sold_as: name of the bundle, or of the instance type.
        num_units: how many of these are bought.
        num_machines: in all of them.
        num_used: machines that the plan takes.
        usd_per_hour: of all units.
    """

    sold_as: str
    num_units: int
    num_machines: int
    num_used: int
    usd_per_hour: float


@dataclass(frozen=True, slots=True, kw_only=True)
class HourlyPrice:
    """What has to be bought for a plan.

    Args:
        kind: how it is bought; None for machines that AWS does not rent.
        purchases: one for each instance type; () when a price is not published.
        cluster: what a cluster of the stack's own costs beside these; () without one.
        list_date: of the price list, ISO 8601; None without a price.
        why: what is bought, or why no price is known.
    """

    kind: CapacityKind | None
    purchases: tuple[Purchase, ...]
    cluster: tuple[ClusterCost, ...]
    list_date: str | None
    why: str

    @property
    def usd_per_hour(self) -> float | None:
        """USD of everything that is bought, a cluster included; None when a price is not published."""
        cluster = self.cluster_usd_per_hour
        if not self.purchases or cluster is None:
            return None
        return sum(each.usd_per_hour for each in self.purchases) + cluster

    @property
    def cluster_usd_per_hour(self) -> float | None:
        """USD of the cluster beside its nodes with accelerators; None when a price is not published."""
        known = [each.usd_per_hour for each in self.cluster if each.usd_per_hour is not None]
        return sum(known) if len(known) == len(self.cluster) else None

    @property
    def num_bought(self) -> int:
        """Machines in everything that is bought."""
        return sum(each.num_machines for each in self.purchases)

    @property
    def num_used(self) -> int:
        """Machines that the plan takes of them."""
        return sum(each.num_used for each in self.purchases)

    @property
    def idle_usd_per_hour(self) -> float:
        """USD of machines that are bought and not used."""
        return sum(
            each.usd_per_hour * (1 - each.num_used / each.num_machines) for each in self.purchases
        )

    @property
    def saved_usd_per_hour(self) -> float:
        """USD that giving back all but the weights saves: what is reserved is charged whether it runs or not."""
        whole = self.usd_per_hour if self.kind == "on-demand" else self.cluster_usd_per_hour
        return whole or 0.0


def no_price(why: str) -> HourlyPrice:
    """Machines without a published price, and the reason."""
    return HourlyPrice(kind=None, purchases=(), cluster=(), list_date=None, why=why)


def hourly_price(
    num_hosts: Mapping[str, int],
    kind: CapacityKind,
    prices: PriceList,
    *,
    num_reserved: int | None = None,
    cluster: tuple[ClusterCost, ...] = (),
) -> HourlyPrice:
    """The price of some instances, bundles bought whole, and of the cluster around them.

    Args:
        num_hosts: by instance type.
        kind: how they are bought.
        prices: the published list.
        num_reserved: machines of the reservation that is held; None for as few as the instances need.
        cluster: of the stack's own; () without one.
    """
    purchases = []
    for instance_type, count in sorted(num_hosts.items()):
        offers = [p for p in prices.prices if (p.instance_type, p.kind) == (instance_type, kind)]
        if not offers:
            return no_price(f"no published price for {instance_type} {kind}")
        purchases.append(
            min(
                (_purchase(offer, count, max(count, num_reserved or 0)) for offer in offers),
                key=lambda choice: (choice.usd_per_hour, choice.num_units),
            )
        )
    list_date = str(prices.sources[0].checked)
    bought = ", ".join(
        f"{each.num_units} × {each.sold_as} {kind} at {each.usd_per_hour / each.num_units:,.2f}"
        for each in purchases
    )
    return HourlyPrice(
        kind=kind,
        purchases=tuple(purchases),
        cluster=cluster,
        list_date=list_date,
        why="; ".join((f"{bought}; list of {list_date}", *map(_cluster_words, cluster))),
    )


def _cluster_words(cost: ClusterCost) -> str:
    usd = "?" if cost.usd_per_hour is None else f"{cost.usd_per_hour:,.2f}"
    return f"{cost.what} at {usd} ({cost.why})"


def _purchase(offer: Price, num_used: int, num_wanted: int) -> Purchase:
    """An offer, as often as it is bought for so many machines."""
    if isinstance(offer.per, Bundle):
        sold_as, size = offer.per.name, offer.per.instances
    else:
        sold_as, size = offer.instance_type, 1
    num_units = math.ceil(num_wanted / size)
    return Purchase(
        sold_as=sold_as,
        num_units=num_units,
        num_machines=num_units * size,
        num_used=num_used,
        usd_per_hour=num_units * offer.usd_per_hour,
    )
