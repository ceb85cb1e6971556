"""Facts of the availability zone that holds the capacity."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Zone:
    """A zone of a region.

    Args:
        zone_id: the same in every account, unlike the letter of its name.
        name: with the letter of this account.
        group: what is opted into as a whole, e.g. `us-east-1-dfw-2`.
        parent_zone_id: for a Local Zone the ordinary zone that it hangs on, else None.
    """

    zone_id: str
    name: str
    group: str
    parent_zone_id: str | None

    @property
    def is_local(self) -> bool:
        """Whether it is a Local Zone, which must be opted into."""
        return self.parent_zone_id is not None

    @property
    def gateway_zone_id(self) -> str:
        """The zone for what a Local Zone does not offer: NAT gateway, endpoints, load balancers."""
        return self.parent_zone_id or self.zone_id
