"""What a stack's machines cost, said before the first resource: by the catalogue's dated prices, as `fab estimate`."""

from __future__ import annotations

import pulumi

from infra.catalog.prices import read_prices
from infra.memory.cluster_price import ClusterCost
from infra.memory.price import hourly_price
from infra.provision.aws.capacity import CapacityPlan
from infra.render.purchases import cost_sentence


def tell_cost(
    capacity: CapacityPlan, num_reserved: int | None, cluster: tuple[ClusterCost, ...] = ()
) -> None:
    """Tell the operator what the machines cost, and what of it is idle.

    Args:
        capacity: what is launched.
        num_reserved: machines of the reservation; None without one, or where nobody may look at it.
        cluster: what the stack's own cluster costs beside them; () without one.
    """
    price = hourly_price(
        capacity.num_machines,
        capacity.kind,
        read_prices(),
        num_reserved=num_reserved,
        cluster=cluster,
    )
    pulumi.log.info(cost_sentence(price))
