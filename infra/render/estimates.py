"""One plan's estimate: what its roles hold, how long until they answer, what the machines cost."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from infra.catalog.eks import read_eks_parts
from infra.catalog.figures import StorageKind, read_loading_rates
from infra.catalog.instance_types import CapacityKind, read_instance_type
from infra.catalog.lustre_sizes import LustreSettings
from infra.catalog.prices import read_prices
from infra.checks.capacity import device_memory_of, engine_load
from infra.checks.view import PlanView
from infra.memory.cluster_price import ClusterCost, ClusterDay, cluster_costs
from infra.memory.device import EngineLoad
from infra.memory.estimate import RoleEstimate, RoleLoad, estimate_role
from infra.memory.price import HourlyPrice, hourly_price, no_price
from infra.memory.time_to_ready import Delivery, TimeToReady, time_to_ready
from infra.plan.process import Process
from infra.spec.stack import CLOUD_NAMES, Cloud


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What a plan does not say and an estimate needs.

    Args:
        storage: what holds the weights; None for the hosts' own disks.
        lustre: the file system, where the storage is one.
        request_tokens: length of the requests to count; None for the longest that each role admits.
        cloud: that the machines are rented from; None where they are yours.
        capacity: how they are bought; None for the first way each is sold.
        num_reserved: machines of the reservation that is held; None for no more than are needed.
        cluster: of the stack's own on EKS, on the day of the estimate; None without one.
    """

    storage: StorageKind | None
    lustre: LustreSettings | None
    request_tokens: int | None
    cloud: Cloud | None
    capacity: CapacityKind | None
    num_reserved: int | None
    cluster: ClusterDay | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """Everything that is said about one layout.

    Args:
        name: the stack, or the fields that were written over it.
        roles: in the order of the plan; () when the checkpoint's shape is unknown.
        checkpoint_gb: weights and draft on disk, 1 GB = 10^9 bytes.
    """

    name: str
    checkpoint: str
    accelerators: str
    engine: str
    roles: tuple[RoleEstimate, ...]
    checkpoint_gb: float
    num_hosts: int
    num_devices: int
    ready: TimeToReady
    price: HourlyPrice


def estimate_plan(name: str, view: PlanView, surroundings: Surroundings) -> Estimate | None:
    """The estimate of a plan; None when its checkpoint is not in the catalogue."""
    roles = _role_loads(view)
    if not roles:
        return None
    plan, first = view.plan, roles[0].load
    size_bytes = first.checkpoint.size_bytes + (first.draft.size_bytes if first.draft else 0)
    delivery = Delivery(
        storage=surroundings.storage,
        size_bytes=size_bytes,
        num_hosts=len(plan.hosts),
        load_format=str(first.flags.get("load-format", "auto")),
        family=first.family,
        lustre=surroundings.lustre,
    )
    found = (estimate_role(role, surroundings.request_tokens) for role in roles)
    return Estimate(
        name=name,
        checkpoint=plan.checkpoint,
        accelerators=" + ".join(dict.fromkeys(host.accelerator for host in plan.hosts)),
        engine=f"{plan.engine.name} {plan.engine.version}",
        roles=tuple(estimate for estimate in found if estimate is not None),
        checkpoint_gb=size_bytes / 1e9,
        num_hosts=len(plan.hosts),
        num_devices=sum(role.num_devices for role in roles),
        ready=time_to_ready(delivery, read_loading_rates()),
        price=_price(view, surroundings),
    )


def estimate_document(estimate: Estimate) -> dict[str, object]:
    """What `--json` says of one layout; sizes in GiB (2^30), `checkpoint_gb` in 10^9 bytes."""
    ready, price = estimate.ready, estimate.price
    return {
        "roles": [_role_document(role) for role in estimate.roles],
        "checkpoint_gb": round(estimate.checkpoint_gb, 3),
        "ready_minutes": None if ready.minutes is None else round(ready.minutes, 2),
        "usd_per_hour": price.usd_per_hour,
        "checkpoint": estimate.checkpoint,
        "accelerator": estimate.accelerators,
        "engine": estimate.engine,
        "hosts": estimate.num_hosts,
        "devices": estimate.num_devices,
        "ready": {
            "copy_s": ready.copy_s,
            "load_s": ready.load_s,
            "start_s": ready.start_s,
            "why": ready.why,
        },
        "price": price.why,
    }


def _role_document(role: RoleEstimate) -> dict[str, object]:
    memory = role.memory
    return {
        "role": role.load.role,
        "weights_gib_per_device": round(memory.weights_gib, 2),
        "kv_gib_per_device": round(memory.kv_gib, 2),
        "kv_tokens": role.kv_tokens,
        "max_context": role.max_context,
        "processes": role.load.num_processes,
        "devices": role.load.num_devices,
        "hosts": role.load.num_hosts,
        "ranks": role.load.num_ranks,
        "memory_gib_per_device": round(memory.total_gib, 2),
        "usable_gib_per_device": round(memory.usable_gib, 2),
        "draft_gib_per_device": round(memory.draft_gib, 2),
        "overhead_gib_per_device": round(memory.overhead_gib, 2),
        "longest_request": role.longest_request,
        "fits": role.fits,
        "request_tokens": role.request_tokens,
        "concurrent_requests": role.concurrent_requests,
    }


def _role_loads(view: PlanView) -> tuple[RoleLoad, ...]:
    """Each role's fullest process, with the counts of the role; () for an unknown checkpoint."""
    found = []
    for role in dict.fromkeys(process.role for process in view.engines):
        members = [process for process in view.engines if process.role == role]
        load = _fullest(view, [process for process in view.variants if process.role == role])
        if load is None:
            return ()
        found.append(
            RoleLoad(
                role=role,
                load=load,
                num_ranks=len({(m.replica, rank) for m in members for rank in m.dp_ranks}),
                num_processes=len(members),
                num_devices=sum(len(member.devices) for member in members),
                num_hosts=len({member.host for member in members}),
            )
        )
    return tuple(found)


def _fullest(view: PlanView, processes: list[Process]) -> EngineLoad | None:
    """The load of the process that has least left for KV."""
    left = []
    for process in processes:
        load, memory = engine_load(view, process), device_memory_of(view, process)
        if load is not None:
            left.append((memory.kv_gib if memory else 0.0, load))
    return min(left, key=lambda pair: pair[0])[1] if left else None


def _price(view: PlanView, surroundings: Surroundings) -> HourlyPrice:
    """What the hosts cost, where AWS rents them."""
    if surroundings.cloud is None:
        return no_price("the hosts are yours: no price is known")
    if surroundings.cloud != "aws":
        return no_price(
            f"the catalogue has no price of {CLOUD_NAMES[surroundings.cloud]}'s machines"
        )
    types = Counter(view.accelerators[host.name].instances.get("aws") for host in view.plan.hosts)
    if None in types:
        return no_price("AWS does not rent this accelerator")
    counts = {str(name): count for name, count in types.items()}
    kind = surroundings.capacity or read_instance_type(next(iter(counts))).capacity_kinds[0]
    return hourly_price(
        counts,
        kind,
        read_prices(),
        num_reserved=surroundings.num_reserved,
        cluster=_cluster_costs(view, surroundings.cluster),
    )


def _cluster_costs(view: PlanView, cluster: ClusterDay | None) -> tuple[ClusterCost, ...]:
    """What a cluster around the hosts costs; its system nodes have their architecture."""
    if cluster is None:
        return ()
    architecture = view.accelerators[view.plan.hosts[0].name].architecture
    return cluster_costs(cluster, read_eks_parts().system_nodes, architecture, read_prices())
