"""Rules about how a vLLM process is told its place: load-balancing modes, nodes, API servers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from infra.checks.rule_releases import releases_of
from infra.checks.view import Finding, PlanView
from infra.engines.command_line import as_int
from infra.plan.process import Process

MODE_FLAGS = (
    "data-parallel-multi-port-external-lb",
    "data-parallel-external-lb",
    "data-parallel-hybrid-lb",
)
NODE_EXECUTORS = ("mp", "uni", "external_launcher")
# vllm engine/arg_utils.py@0.27.1, 0.33.0
NODES_HOLD_CONTEXTS = releases_of("vllm", "vllm-ascend", since="0.33.0")


def one_mode(view: PlanView) -> Iterator[Finding]:
    """A process has one load-balancing mode, and the flags that the mode needs."""
    for process in view.where(lambda each: any(_mode_problems(view.flags(each)))):
        for what, fix in _mode_problems(view.flags(process)):
            field = f"roles.{process.role}.load_balancing"
            yield Finding(field=field, what=f"{process.id} {what}", fix=fix, process=process.id)


def _mode_problems(flags: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    modes = {name for name in MODE_FLAGS if flags.get(name)}
    rank, local = flags.get("data-parallel-rank"), flags.get("data-parallel-size-local")
    if rank is not None:
        modes.add("data-parallel-external-lb")
    starts = flags.get("data-parallel-start-rank") is not None and not flags.get("headless")
    if starts and "data-parallel-multi-port-external-lb" not in modes:
        modes.add("data-parallel-hybrid-lb")
    if len(modes) > 1:
        listed = ", ".join(f"--{mode}" for mode in sorted(modes))
        yield f"asks for several load-balancing modes ({listed}).", "Keep one of them."
        return
    one_rank = as_int(flags.get("data-parallel-size"), 1) == 1
    if flags.get("data-parallel-hybrid-lb") and one_rank and as_int(flags.get("nnodes"), 1) > 1:
        yield "has --data-parallel-hybrid-lb and one rank over several nodes.", "Remove it."
    if "data-parallel-external-lb" not in modes:
        return
    if rank is None and (one_rank or as_int(flags.get("nnodes"), 1) == 1):
        yield "has --data-parallel-external-lb and no rank.", "Add --data-parallel-rank."
    elif local is not None and as_int(local, 1) != 1:
        what = f"holds one rank and is told --data-parallel-size-local {local}."
        yield what, "Leave --data-parallel-size-local out."


def node_place(view: PlanView) -> Iterator[Finding]:
    """A process that spans nodes has a rank below their number, a divisible world, and a fitting executor."""
    has_contexts = view.is_among(NODES_HOLD_CONTEXTS)
    for process in view.where(lambda each: as_int(view.flags(each).get("nnodes"), 1) > 1):
        flags = view.flags(process)
        nodes, node = as_int(flags.get("nnodes"), 1), as_int(flags.get("node-rank"), 0)
        executor = flags.get("distributed-executor-backend")
        world = view.size(process, "tensor-parallel-size") * view.readings[process.id].group_size
        world *= view.size(process, "pipeline-parallel-size")
        if has_contexts:
            world *= view.size(process, "prefill-context-parallel-size")
        if not 0 <= node < nodes:
            yield _of_role(
                process, f"--node-rank {node} is not below --nnodes {nodes}.", "Count from 0."
            )
        if world % nodes:
            what = f"{world} devices do not spread evenly over --nnodes {nodes}."
            yield _of_role(process, what, "Use a number of nodes that divides the devices.")
        if executor not in (None, *NODE_EXECUTORS):
            what = f"--distributed-executor-backend {executor} does not span nodes with --nnodes."
            yield _of_role(process, what, f"Use {' or '.join(NODE_EXECUTORS)}, or leave it out.")


def local_ranks_within_group(view: PlanView) -> Iterator[Finding]:
    """A process holds no more ranks than its group has."""
    for process in view.where(lambda each: "data-parallel-size-local" in view.flags(each)):
        local = as_int(view.flags(process).get("data-parallel-size-local"), 1)
        size = view.readings[process.id].group_size
        if local > size:
            what = f"--data-parallel-size-local {local} is more than the group's {size} ranks."
            yield _of_role(process, what, f"Use at most {size}.")


def api_servers_possible(view: PlanView) -> Iterator[Finding]:
    """API servers are counted only where one is started, and once per multi-port host."""
    for process in view.where(lambda each: "api-server-count" in view.flags(each)):
        flags = view.flags(process)
        count = as_int(flags.get("api-server-count"), 0)
        if count and flags.get("headless"):
            what = f"{process.id} is headless and asks for {count} API servers."
            yield _of_role(process, what, "Remove --api-server-count there.")
        elif count > 1 and flags.get("data-parallel-multi-port-external-lb"):
            what = f"multi-port starts one API server per rank; {process.id} asks for {count}."
            yield _of_role(process, what, "Remove --api-server-count.")


def leader_names_no_start(view: PlanView) -> Iterator[Finding]:
    """Since vLLM 0.28 a start rank, 0 among them, makes a process with an API server a hybrid balancer.

    The leader of internal load balancing then refuses its headless followers. It takes rank 0 when it names none.
    0.22.1 takes a start rank of 0 for none, 0.33.0 does not; vllm-ascend#16204 met it at 0.28.
    """
    for group, members in view.groups.items():
        follower = next((p for p in members if view.flags(p).get("headless")), None)
        for process in members:
            flags = view.flags(process)
            start = flags.get("data-parallel-start-rank")
            if follower is None or start is None or flags.get("headless"):
                continue
            what = (
                f"{process.id} names start rank {start} and serves HTTP: {group} is then hybrid, and refuses "
                f"{follower.id}, which is headless."
            )
            fix = "Leave --data-parallel-start-rank out on the leader."
            yield _of_role(process, what, fix)


def ray_spreads_ranks(view: PlanView) -> Iterator[Finding]:
    """Ray's workers leave the host only where Ray also places the data-parallel ranks."""
    num_devices = {host.name: host.num_devices for host in view.plan.hosts}
    for process in view.variants:
        flags, data = view.flags(process), view.readings[process.id].group_size
        by_ray = flags.get("distributed-executor-backend") == "ray"
        if not by_ray or data < 2 or flags.get("data-parallel-backend") == "ray":  # noqa: PLR2004 - a group of several
            continue
        layout = view.readings[process.id].extra.get("parallel")
        needed = getattr(layout, "local_devices", 0)
        if needed > num_devices[process.host]:
            what = (
                f"{process.id} starts its ranks on {needed} devices of {process.host}, which has "
                f"{num_devices[process.host]}: without --data-parallel-backend ray all of them meet at 127.0.0.1."
            )
            fix = "Add --data-parallel-backend ray beside --distributed-executor-backend ray."
            yield _of_role(process, what, fix)


def _of_role(process: Process, what: str, fix: str) -> Finding:
    return Finding(field=f"roles.{process.role}", what=what, fix=fix, process=process.id)
