"""Rules about what a container, pod or job is given: shared memory, devices and hosts that nothing uses."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from infra.checks.view import Finding, PlanView
from infra.engines.command_line import as_int
from infra.plan.process import Process

# What docker, podman and pods give by themselves: NCCL's and RCCL's segments of several workers do not fit (NCCL user
# guide, troubleshooting, shared memory).
TOO_LITTLE_SHARED = 64 << 20
# HCCL is not known to need it, and what runs on no accelerator has no such library.
WITH_NCCL = ("nvidia", "amd")


def shared_memory_enough(view: PlanView) -> Iterator[Finding]:
    """A container in which several workers of a rank run has more shared memory than the 64 MiB of a default."""
    given = view.surroundings.shared_bytes
    for process in view.engines:
        size = given.get(process.id)
        if size is None or size > TOO_LITTLE_SHARED or process.env.get("NCCL_SHM_DISABLE") == "1":
            continue
        workers = _workers(view, process)
        if workers > 1 and view.accelerator(process).vendor in WITH_NCCL:
            what = (
                f"{process.id} runs {workers} workers of one rank, and its container's /dev/shm holds "
                f"{size >> 20} MiB: NCCL has no space left for its segments."
            )
            fix = "Add --ipc=host or --shm-size=16g; in a pod mount an emptyDir of medium Memory on /dev/shm."
            yield Finding(
                field=f"roles.{process.role}.shared_memory", what=what, fix=fix, process=process.id
            )


def _workers(view: PlanView, process: Process) -> int:
    """Workers of one rank in the container: they share a communicator."""
    extra = view.readings[process.id].extra
    layout = extra.get("parallel") or extra.get("layout")
    local = as_int(getattr(layout, "local_devices", 1), 1)
    of_rank = view.size(process, "tensor-parallel-size") * view.size(
        process, "pipeline-parallel-size"
    )
    return min(local, of_rank)


def devices_used(view: PlanView) -> Iterator[Finding]:
    """Devices that a container asks for are used by the processes in it."""
    processes = {process.id: process for process in view.engines}
    for share in view.surroundings.shares:
        members = [processes[name] for name in share.processes if name in processes]
        taken = _devices(view, members)
        if members and taken < share.num_devices and not any(map(_is_lent, members)):
            first = members[0]
            what = (
                f"{first.id} asks for {share.num_devices} devices and uses {taken}: "
                "the others stay idle, and nobody else gets them."
            )
            fix = f"Raise --tensor-parallel-size, or ask for {taken}."
            field = f"roles.{first.role}.tensor_parallel"
            yield Finding(field=field, what=what, fix=fix, process=first.id)

    for nodes in view.surroundings.nodes:
        # one command may stand for as many hosts as run it
        num_hosts = min(nodes.asked, _spanned(view) or 1)
        taken = _devices(view, view.engines)
        if (
            nodes.devices
            and taken < nodes.devices * num_hosts
            and not any(map(_is_lent, view.engines))
        ):
            what = f"{nodes.by} asks for {nodes.devices} devices on each of {num_hosts} hosts, and engines use {taken}."
            fix = "Raise --tensor-parallel-size, or ask for fewer."
            yield Finding(field="hosts", what=what, fix=fix)


def _devices(view: PlanView, processes: Sequence[Process]) -> int:
    """How many devices processes take, each of a host once."""
    taken = {(each.host, device) for each in processes for device in view.readings[each.id].devices}
    return len(taken)


def _is_lent(process: Process) -> bool:
    """Whether a process may take devices that its command line does not count."""
    return "ray" in process.argv


def hosts_used(view: PlanView) -> Iterator[Finding]:
    """Hosts that a set of pods or a batch job asks for are used by its engines."""
    for nodes in view.surroundings.nodes:
        used = nodes.used if nodes.used is not None else _spanned(view)
        if used is not None and 0 < used < nodes.asked:
            what = f"{nodes.by} asks for {nodes.asked} hosts, and engines start on {used} of them."
            fix = (
                f"Ask for {used}, or give the engines the others (--nnodes, --data-parallel-size)."
            )
            yield Finding(field="hosts", what=what, fix=fix)


def _spanned(view: PlanView) -> int | None:
    """Hosts that the groups' own flags speak of; None where one stands for as many as run it."""
    counts = [
        max(view.size(member, "nnodes") for member in members) for members in view.groups.values()
    ]
    hosts = {process.host for process in view.engines}
    return max(sum(counts), len(hosts)) if min(counts, default=1) > 1 else None
