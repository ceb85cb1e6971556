"""What a staging will do, from what was found on the hosts: who hands on to whom, and whether it fits. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from infra.catalog.load import Catalog
from infra.errors import InfraError, StackError
from infra.render.items import HostState
from infra.render.weight_source import WeightSource, weight_source
from infra.spec.weights_source import FIELD

# What must stay free besides the weights: logs, and what others write meanwhile.
ROOM = 1.1
MAX_PEERS = 3
SHARED_STORAGE = ("shared-mount", "fsx-lustre", "efs", "pvc")
_MAX_REVISION = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """One checkpoint that hosts must hold.

    Args:
        target: its folder on a host.
        hosts: who stages it, in plan order; one of them where a mount is shared.
        readers: everybody who must find it in the end.
    """

    id: str
    repository: str
    revision: str
    target: str
    hosts: tuple[str, ...]
    readers: tuple[str, ...]
    source: WeightSource

    @property
    def job(self) -> str:
        """Its name on the hosts: part of a unit's name."""
        kept = "".join(char if char.isalnum() or char in "._-" else "-" for char in self.revision)
        return f"{self.id}-{kept[:_MAX_REVISION]}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A checkpoint on one host before anything is done.

    Args:
        state: absent, partial, damaged, complete, running, or away: the host cannot be asked.
        num_bytes: of it that lie there.
        free_bytes: on that file system, for others than root.
        wrong: what is wrong with it, by the looks of it.
        files: as its manifest lists them, or as its running staging was told.
        status: of the staging that runs or ran last; {} for none.
        error: why the host cannot be asked, None where it can.
    """

    host: str
    state: str
    num_bytes: int = 0
    free_bytes: int = 0
    wrong: tuple[str, ...] = ()
    files: tuple[Mapping[str, object], ...] = field(default=(), repr=False)
    status: Mapping[str, object] = field(default_factory=dict, repr=False)
    error: InfraError | None = None

    @property
    def is_there(self) -> bool:
        """Whether every file is there by its size: complete, or to be read because others than root may write it."""
        return self.state in {"complete", "unverified"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Seat:
    """One host's place in the chain: the nearest peer first."""

    host: str
    peers: tuple[str, ...]


def wanted_checkpoints(
    states: Mapping[str, HostState],
    catalog: Catalog,
    source: str | None,
    *,
    is_shared: bool,
    where: str = FIELD,
) -> tuple[Checkpoint, ...]:
    """Every checkpoint and draft that argument vectors of the hosts name.

    Args:
        states: host state by host, in plan order.
        catalog: knows their repositories.
        source: as in `weights.source`; None for the catalogue's hub.
        is_shared: whether all hosts see one mount, so that one of them stages for all.
        where: the field or option that holds the source.

    Raises:
        StackError: a checkpoint is not in the catalogue, or the source is none.
    """
    readers: dict[str, list[str]] = {}
    for host, state in states.items():
        for item in state.of_groups("weights"):
            readers.setdefault(item.target, []).append(host)
    found = []
    for target, hosts in readers.items():
        name, revision = target.rsplit("/", 2)[1:]
        if name not in catalog.ids("checkpoints"):
            what = f"{name} is not in the catalogue, so nobody knows its repository."
            raise StackError(target, what, "Add infra/catalog/checkpoints/, or stage it by hand.")
        entry = catalog.checkpoint(name)
        found.append(
            Checkpoint(
                id=name,
                repository=entry.repository,
                revision=revision,
                target=target,
                hosts=tuple(hosts[:1] if is_shared else hosts),
                readers=tuple(hosts),
                source=weight_source(source, entry, revision, where),
            )
        )
    return tuple(found)


def chain(found: Sequence[Found], seed: str | None) -> tuple[Seat, ...]:
    """Everybody who takes part, each with the peers it may fetch from.

    First comes who holds it already (one is enough), then who is at it, then who has most of it. A chain and
    no tree: every link then carries the checkpoint once in each direction, whatever the number of hosts.

    Args:
        found: of the hosts that must hold it, in plan order.
        seed: a host that holds it besides them, None for none.
    """
    complete = [one.host for one in found if one.state == "complete"]
    running = [one.host for one in found if one.state == "running"]
    rest = [one for one in found if one.state not in {"complete", "running"}]
    if not rest:
        return ()
    rest.sort(key=lambda one: -one.num_bytes)
    front = [seed] if seed is not None else ([] if running else complete[:1])
    order = [*front, *running, *(one.host for one in rest)]
    seats = []
    for place, host in enumerate(order):
        nearest = order[max(place - MAX_PEERS, 0) : place][::-1]
        first = [] if place == 0 or order[0] in nearest else order[:1]
        seats.append(Seat(host=host, peers=(*nearest, *first)))
    return tuple(seats)


def missing_bytes(found: Found, files: Sequence[Mapping[str, object]]) -> int:
    """Bytes that a host must still write; for a damaged file at least the largest, as which ones is not known yet."""
    sizes = [int(str(file["size_bytes"])) for file in files]
    missing = max(sum(sizes) - found.num_bytes, 0)
    return max(missing, max(sizes, default=0)) if found.state == "damaged" else missing


def short_of_room(needed: Mapping[str, int], free: Mapping[str, int]) -> list[str]:
    """The hosts that cannot take what is missing, with the numbers.

    Args:
        needed: bytes to write, by host.
        free: bytes that are free there.
    """
    return [
        f"{host} needs {giga(int(count * ROOM))} GB and has {giga(free[host])} GB free"
        for host, count in needed.items()
        if count * ROOM > free[host]
    ]


def giga(num_bytes: float) -> str:
    """Bytes as decimal GB: whole from 10 on, else with as many places as say something."""
    value = num_bytes / 1e9
    for limit, places in ((10, 0), (1, 1), (0.01, 2)):
        if value >= limit:
            return f"{value:.{places}f}"
    return f"{value:.4f}" if value else "0"
