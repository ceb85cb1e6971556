"""What a host's tuning profile wants of it, completed by what follows from the plan."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from infra.catalog.load import Catalog
from infra.catalog.schema import TuningItem, TuningKind, TuningProfile
from infra.errors import StackError
from infra.plan.process import Plan, Process
from infra.render.reserved_ports import (
    RESERVED_PORTS_ID,
    hccl_ports_to_reserve,
    ports_to_reserve,
    reserved_ports_text,
)

JEMALLOC_ID = "jemalloc"
PRELOAD = "LD_PRELOAD"
USABLE = "usable"


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedTuning:
    """One tuning item as a host shall have it.

    Args:
        want: the value; None is read and left alone.
        details: further keys of its kind.
    """

    id: str
    kind: TuningKind
    target: str
    want: str | None
    why: str
    details: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuning:
    """The profile of a stack's hosts, and the ids of items that the stack switches on beyond it."""

    profile: TuningProfile
    enable: tuple[str, ...] = field(default=())


def profile_tuning(tuning: Tuning) -> Iterable[WantedTuning]:
    """What a profile wants of any host of its kind, whatever is to run there.

    Raises:
        StackError: an item is switched on that the profile lacks.
    """
    known = {item.id for item in tuning.profile.items}
    for name in tuning.enable:
        if name not in known:
            what = f"The profile {tuning.profile.id} has no item {name}."
            raise StackError("tuning.enable", what, f"It has {', '.join(sorted(known))}.")
    for item in tuning.profile.items:
        want, why = _wanted(item, is_named=item.id in tuning.enable)
        yield _complete(item, want, why)


def node_tuning(tuning: Tuning) -> Iterable[WantedTuning]:
    """What a profile wants of a node of a Kubernetes cluster; what follows from the plan is the pods' own.

    Raises:
        StackError: an item is switched on that the profile lacks.
    """
    left = {item.id: item.left_on_nodes for item in tuning.profile.items if item.left_on_nodes}
    for wanted in profile_tuning(tuning):
        reason = left.get(wanted.id)
        yield wanted if reason is None else replace(wanted, want=None, why=f"Left alone. {reason}")


def plan_tuning(tuning: Tuning, plan: Plan, host: str, catalog: Catalog) -> Iterable[WantedTuning]:
    """What the profile wants, with reserved ports, IMEX nodes and preloaded libraries of the plan.

    Raises:
        StackError: an item is switched on that the profile lacks.
    """
    processes = plan.on_host(host)
    ports = ports_to_reserve(processes)
    if catalog.accelerator(plan.host(host).accelerator).vendor == "ascend":
        ports |= hccl_ports_to_reserve(processes)
    has_ports = False
    for wanted in profile_tuning(tuning):
        if wanted.kind == "reserved-ports" and wanted.want is not None:
            has_ports = True
            yield _with_want(wanted, reserved_ports_text(wanted.want, ports))
        elif wanted.kind == "imex-nodes":
            yield _with_want(wanted, _imex_nodes(plan, host, catalog))
        elif wanted.id != JEMALLOC_ID:
            yield wanted
        else:
            yield _preloaded(plan, processes) or wanted
    if ports and not has_ports:
        yield WantedTuning(
            id=RESERVED_PORTS_ID,
            kind="reserved-ports",
            target=RESERVED_PORTS_ID,
            want=reserved_ports_text("", ports),
            why="The kernel must not give these ports of the stack to outgoing connections.",
            details={"needs": "live", "tolerate_absent": False},
        )


def _wanted(item: TuningItem, *, is_named: bool) -> tuple[str | None, str]:
    """What the stack wants of an item, and why."""
    if is_named:
        return (item.opt_in if item.opt_in is not None else item.want), item.why
    if item.enabled:
        return item.want, item.why
    return None, f"Left alone unless tuning.enable names it. {item.why}"


def _complete(item: TuningItem, want: str | None, why: str) -> WantedTuning:
    details: dict[str, object] = {"needs": item.needs, "tolerate_absent": item.tolerate_absent}
    if item.at_least:
        details["at_least"] = True
    is_file = item.kind == "login-limits"
    if is_file:
        details["content"] = item.want
    return WantedTuning(
        id=item.id,
        kind=item.kind,
        target=item.target or item.id,
        want=None if is_file else want,
        why=why,
        details=details,
    )


def _with_want(wanted: WantedTuning, want: str | None) -> WantedTuning:
    return WantedTuning(
        id=wanted.id,
        kind=wanted.kind,
        target=wanted.target,
        want=want,
        why=wanted.why,
        details=wanted.details,
    )


def _imex_nodes(plan: Plan, host: str, catalog: Catalog) -> str | None:
    """The addresses of all hosts whose memory the host's devices share over NVLink; None for it alone."""
    own = plan.host(host)
    shared = [other.address for other in plan.hosts if other.accelerator == own.accelerator]
    spans_hosts = catalog.accelerator(own.accelerator).fabric.num_devices > own.num_devices
    return ",".join(shared) if spans_hosts and len(shared) > 1 else None


def _preloaded(plan: Plan, processes: Sequence[Process]) -> WantedTuning | None:
    """The library that processes of a host preload, to be proven where it is used; None for none."""
    libraries = [
        word
        for process in processes
        for word in process.env_prepend.get(PRELOAD, "").split(":")
        if word
    ]
    if not libraries:
        return None
    image = {"runtime": plan.runtime, "reference": plan.engine.image}
    place = "the engine's image" if plan.runtime != "native" else "the host"
    return WantedTuning(
        id=JEMALLOC_ID,
        kind="preload",
        target=libraries[0],
        want=USABLE,
        why=f"Engines preload it: it must exist in {place} and suit the kernel's page size.",
        details={
            "needs": "live",
            "tolerate_absent": plan.runtime != "native",
            **(image if plan.runtime != "native" else {}),
        },
    )
