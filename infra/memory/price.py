"""What the machines of a plan cost per hour, where a price is published."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from infra.catalog.figures import Bundle, Price, PriceList
from infra.catalog.instance_types import CapacityKind


@dataclass(frozen=True, slots=True, kw_only=True)
class HourlyPrice:
    """USD per hour of all that has to be bought, None when a price is not published; `why` says what is bought."""

    usd_per_hour: float | None
    why: str


def hourly_price(
    num_hosts: Mapping[str, int], kind: CapacityKind, prices: PriceList
) -> HourlyPrice:
    """The price of some instances, bundles bought whole.

    Args:
        num_hosts: by instance type.
        kind: how they are bought.
        prices: the published list.
    """
    total, bought = 0.0, []
    for instance_type, count in sorted(num_hosts.items()):
        offers = [p for p in prices.prices if (p.instance_type, p.kind) == (instance_type, kind)]
        if not offers:
            why = f"no published price for {instance_type} {kind}"
            return HourlyPrice(usd_per_hour=None, why=why)
        units, offer = min(
            ((_units(offer, count), offer) for offer in offers),
            key=lambda choice: (choice[0] * choice[1].usd_per_hour, choice[0]),
        )
        total += units * offer.usd_per_hour
        name = offer.per.name if isinstance(offer.per, Bundle) else instance_type
        bought.append(f"{units} × {name} {kind} at {offer.usd_per_hour:,.2f}")
    as_of = prices.sources[0].checked
    return HourlyPrice(usd_per_hour=total, why=f"{', '.join(bought)}; list of {as_of}")


def _units(offer: Price, num_instances: int) -> int:
    """How many times an offer is bought for some instances."""
    return (
        math.ceil(num_instances / offer.per.instances)
        if isinstance(offer.per, Bundle)
        else num_instances
    )
