"""From machines that exist to engines that answer: bytes to copy, bytes to load, and what an engine does after that."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from infra.catalog.figures import LoadingRates, StorageKind
from infra.catalog.lustre_sizes import LustreSettings
from infra.catalog.schema import Family

_GB = 1e9
_TIB_PER_GIB = 1 / 1024
# A client without EFA moves 5 Gbit/s with each object storage server, and there is one per 2.4 TiB (FSx for Lustre User
# Guide, performance; checked 2026-11-20).
_TCP_GB_PER_S_PER_SERVER = 5 / 8
_TCP_TIB_PER_SERVER = 2.4
# What one client reads at most, whatever the file system: 100 Gbit/s, and 700 Gbit/s over EFA (the same guide).
_TCP_GB_PER_S, _EFA_GB_PER_S = 100 / 8, 700 / 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """What has to reach every host.

    Args:
        storage: what holds the weights; None for a host's own disk.
        size_bytes: of checkpoint and draft.
        num_hosts: that load at once.
        load_format: the engine's loader.
        lustre: size and tier of the file system, where the storage is one.
    """

    storage: StorageKind | None
    size_bytes: int
    num_hosts: int
    load_format: str
    family: Family
    lustre: LustreSettings | None


class TimeToReady(NamedTuple):
    """Seconds of each part, one after another; None for what nothing is known of, with the reason in `why`."""

    copy_s: float | None
    load_s: float | None
    start_s: float
    why: str

    @property
    def minutes(self) -> float | None:
        """All together, in minutes; None when a part is unknown."""
        if self.copy_s is None or self.load_s is None:
            return None
        return (self.copy_s + self.load_s + self.start_s) / 60


def time_to_ready(delivery: Delivery, rates: LoadingRates) -> TimeToReady:
    """How long until engines answer, from machines whose disks are empty where the storage copies, else filled."""
    storage, size_gb = delivery.storage or "local", delivery.size_bytes / _GB
    copy_rate = rates.copies_gb_per_s.get(storage)
    start_s = rates.start_s[delivery.family]
    if storage in rates.unknown:
        why = f"how fast {storage} is read is not known here"
        return TimeToReady(copy_s=0.0, load_s=None, start_s=start_s, why=why)
    loader = rates.loaders_gb_per_s.get(delivery.load_format)
    if loader is None:
        why = f"no figure for --load-format {delivery.load_format}"
        copy_s = size_gb / copy_rate if copy_rate else 0.0
        return TimeToReady(copy_s=copy_s, load_s=None, start_s=start_s, why=why)
    read, why = _read_rate(delivery, rates)
    slowest = loader if read is None else min(read, loader)
    return TimeToReady(
        copy_s=size_gb / copy_rate if copy_rate else 0.0,
        load_s=size_gb / slowest,
        start_s=start_s,
        why=why if read is not None and read <= loader else f"loader at {loader:g} GB/s a host",
    )


def lustre_gb_per_s(settings: LustreSettings, num_hosts: int) -> float:
    """GB/s that each of some hosts reads from an FSx for Lustre file system at once."""
    tib = settings.capacity_gib * _TIB_PER_GIB
    shared = tib * settings.throughput / 1000 / num_hosts
    if settings.has_efa:
        return min(shared, _EFA_GB_PER_S)
    servers = max(round(tib / _TCP_TIB_PER_SERVER), 1)
    return min(shared, servers * _TCP_GB_PER_S_PER_SERVER, _TCP_GB_PER_S)


def _read_rate(delivery: Delivery, rates: LoadingRates) -> tuple[float | None, str]:
    """GB/s that one host reads from its storage, and why; None for a disk that outruns every loader."""
    if delivery.lustre is not None and delivery.storage == "fsx-lustre":
        rate = lustre_gb_per_s(delivery.lustre, delivery.num_hosts)
        lustre = delivery.lustre
        size = f"{lustre.capacity_gib} GiB at {lustre.throughput} MB/s per TiB"
        return rate, f"FSx for Lustre of {size}: {rate:.2f} GB/s a host"
    rate_known = rates.reads_gb_per_s.get(delivery.storage or "local")
    return rate_known, f"{delivery.storage}: {rate_known} GB/s a host" if rate_known else ""
