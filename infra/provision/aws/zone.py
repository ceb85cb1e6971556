"""Facts of the availability zone that holds the capacity."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from infra.errors import Problem
from infra.provision.config_problems import account_problem

_INITIALS = {
    "northeast": "ne",
    "northwest": "nw",
    "southeast": "se",
    "southwest": "sw",
}


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


def unseen_zone_problem(zone_id: str, stack: str) -> Problem:
    """A zone that the operator may not look at: subnets need its name, and nobody else tells the name."""
    what = f"Zone {zone_id} was not looked at, and every subnet needs the zone's name."
    fix = "Let your role do ec2:DescribeAvailabilityZones, and start again."
    return replace(account_problem("moe-infra:zone_id", what, "", stack), fix=fix)


def zone_example(region: str | None) -> str:
    """A zone id of a region as AWS makes them: `us-east-2` has `use2-az1`, `ap-northeast-1` has `apne1-az1`.

    Source: AWS, "Availability Zone IDs for your AWS resources" (its table of regions and ids; checked 2026-11-26).
    """
    is_region = re.fullmatch(r"[a-z]{2}(-[a-z]+)+-\d+", region or "") is not None
    first, *words = (region if region and is_region else "us-east-1").split("-")
    initials = "".join(_INITIALS.get(word, word[:1]) for word in words[:-1])
    return f"{first}{initials}{words[-1]}-az1"
