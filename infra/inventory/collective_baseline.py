"""What groups of hosts reached when they added up for the first time: the cluster's own baseline, in the facts file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedCollective:
    """What one group reached.

    Args:
        group: as the plan that was measured calls it, for people.
        addresses: service addresses of its hosts, in rank order.
        num_ranks: devices that added up.
        backend: of torch.distributed.
        bus_gb_s: bandwidth of the bus in GB/s.
        runtime: image or environment that it ran in, for people.
    """

    group: str
    addresses: tuple[str, ...]
    num_ranks: int
    backend: str
    bus_gb_s: float
    runtime: str

    def is_of(self, other: RecordedCollective) -> bool:
        """Whether both are of the same devices, added up in the same way."""
        key = (self.addresses, self.num_ranks, self.backend)
        return key == (other.addresses, other.num_ranks, other.backend)

    def as_document(self) -> dict[str, object]:
        """The entry of the file."""
        return {
            "group": self.group,
            "addresses": list(self.addresses),
            "num_ranks": self.num_ranks,
            "backend": self.backend,
            "bus_gb_s": self.bus_gb_s,
            "runtime": self.runtime,
        }


def read_collective(entry: object) -> RecordedCollective | None:
    """The entry of the file; None where it is not whole."""
    row = entry if isinstance(entry, Mapping) else {}
    addresses, num_ranks, gb_s = row.get("addresses"), row.get("num_ranks"), row.get("bus_gb_s")
    texts = [row.get(key) for key in ("group", "backend", "runtime")]
    if not isinstance(addresses, list) or not all(isinstance(text, str) for text in texts):
        return None
    if not isinstance(num_ranks, int) or not isinstance(gb_s, int | float) or gb_s <= 0:
        return None
    return RecordedCollective(
        group=str(row["group"]),
        addresses=tuple(str(address) for address in addresses),
        num_ranks=num_ranks,
        backend=str(row["backend"]),
        bus_gb_s=float(gb_s),
        runtime=str(row["runtime"]),
    )
