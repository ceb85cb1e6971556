"""Rules about ranks, sizes and devices of a group."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from infra.checks.rule_releases import releases_of
from infra.checks.view import Finding, PlanView
from infra.engines.command_line import as_int
from infra.engines.memory_flags import MemoryFlags
from infra.plan.process import Process

# More devices than any group is wide.
MAX_WIDTH = 4_096
# Read in config/parallel.py: 0.17.0 to 0.25.1 hold decode contexts against tensor ranks alone; 0.26.0, 0.27.1 and
# 0.33.0 (run) against prefill contexts where there are any.
PREFILL_CONTEXTS = releases_of("vllm", "vllm-ascend", since="0.26.0")
SIZE_FLAGS = (
    "tensor-parallel-size",
    "pipeline-parallel-size",
    "data-parallel-size",
    "decode-context-parallel-size",
    "nnodes",
)
# What says which ranks a process holds.
PLACE_FLAGS = (
    "data-parallel-rank",
    "data-parallel-start-rank",
    "data-parallel-size-local",
    "node-rank",
)
MOST_TOLD = 4
# Its main starts a server whatever it is told of that (0.17.0, 0.22.1; 0.33.0 entrypoints/launchers/api_server).
API_SERVER = "vllm.entrypoints.openai.api_server"


def sizes_positive(view: PlanView) -> Iterator[Finding]:
    """Parallel sizes count from one."""
    for process in view.where(lambda each: min(_sizes(view, each).values()) < 1):
        for name, given in _sizes(view, process).items():
            if given < 1:
                what = f"--{name} is {given} on {process.id}."
                field = f"roles.{process.role}.{name.removesuffix('-size').replace('-', '_')}"
                yield Finding(field=field, what=what, fix="Use 1 or more.", process=process.id)


def _sizes(view: PlanView, process: Process) -> dict[str, int]:
    return {name: as_int(view.flags(process).get(name), 1) for name in SIZE_FLAGS}


def heads_divisible(view: PlanView) -> Iterator[Finding]:
    """Attention heads are split evenly over the tensor-parallel ranks that share them."""
    shape = view.checkpoint.shape if view.checkpoint else None
    if shape is None or view.checkpoint is None:
        return
    heads = shape.num_attention_heads
    for process in view.variants:
        tensor = view.size(process, "tensor-parallel-size")
        sharing = view.attention_tensor(process)
        # what data parallelism leaves over is told of data_parallel
        if heads % sharing and tensor % sharing == 0:
            allowed = _divisors(heads)
            what = f"{sharing} does not divide {heads} attention heads ({view.checkpoint.id})."
            fix = f"Use one of {allowed}."
            if sharing != tensor:
                what = f"{tensor} devices for {tensor // sharing} attention ranks: {what}"
                fix = f"Use a tensor_parallel that is one of {allowed} times data_parallel."
            yield Finding(
                field=f"roles.{process.role}.tensor_parallel",
                what=what,
                fix=fix,
                process=process.id,
            )


def context_parallel_divides(view: PlanView) -> Iterator[Finding]:
    """Decode context parallel splits the tensor-parallel group."""
    has_prefill_contexts = view.is_among(PREFILL_CONTEXTS)
    for process in view.variants:
        tensor = view.size(process, "tensor-parallel-size")
        context = view.size(process, "decode-context-parallel-size")
        # without them only tensor ranks are split
        prefill = view.size(process, "prefill-context-parallel-size") if has_prefill_contexts else 1
        if prefill > 1 and context not in (1, prefill, tensor * prefill):
            what = (
                f"decode_context_parallel {context} does not fit prefill-context-parallel-size {prefill} "
                f"and tensor_parallel {tensor}."
            )
            field = f"roles.{process.role}.decode_context_parallel"
            fix = f"Use one of 1, {prefill}, {tensor * prefill}."
            yield Finding(field=field, what=what, fix=fix, process=process.id)
        elif prefill == 1 and context > 1 and tensor % context:
            what = f"decode_context_parallel {context} does not divide tensor_parallel {tensor}."
            allowed = _divisors(tensor)
            field = f"roles.{process.role}.decode_context_parallel"
            yield Finding(field=field, what=what, fix=f"Use one of {allowed}.", process=process.id)


def ranks_complete(view: PlanView) -> Iterator[Finding]:
    """Every data-parallel rank of a group runs exactly once."""
    for group, members in view.groups.items():
        sizes = {view.readings[p.id].group_size for p in members}
        size = max(sizes)
        held = sorted(rank for p in members for rank in view.readings[p.id].dp_ranks)
        if len(sizes) == 1 and held == list(range(size)):
            continue
        counted = Counter(held)
        field = f"roles.{members[0].role}.data_parallel"
        if len(sizes) > 1:
            what = f"{group}: processes disagree on the data-parallel size: {', '.join(map(str, sorted(sizes)))}."
            yield Finding(
                field=field,
                what=what,
                fix="Give every rank of the group the same size.",
                process=members[0].id,
            )
        missing = [rank for rank in range(size) if not counted[rank]]
        twice = [rank for rank, times in counted.items() if times > 1]
        beyond = sorted(rank for rank in counted if rank >= size)
        for ranks, verb in (
            (missing, "not launched"),
            (twice, "launched twice"),
            (beyond, "beyond the group's size"),
        ):
            if ranks:
                listed = ", ".join(map(str, sorted(ranks)[:8]))
                holders = [p for p in members if set(view.readings[p.id].dp_ranks) & set(ranks)]
                culprit = (*holders, *members)[0].id
                what = f"{group}: rank{'s' * (len(ranks) > 1)} {listed} of {size} {verb}{_places(view, holders)}."
                told = (
                    "node-rank" if view.family == "sglang" else "data-parallel-rank or -start-rank"
                )
                fix = f"Launch each rank 0 to {size - 1} once ({told}): the handshake waits 5 minutes and fails."
                yield Finding(field=field, what=what, fix=fix, process=culprit)


def _places(view: PlanView, holders: Sequence[Process]) -> str:
    """The flags by which processes hold their ranks, with the values; of the first few of them."""
    told = [
        f"{process.id} has --{name} {value}"
        for process in holders
        for name in PLACE_FLAGS
        if (value := view.flags(process).get(name)) is not None
    ]
    return f" ({'; '.join(told[:MOST_TOLD])})" if told else ""


def headless_followers(view: PlanView) -> Iterator[Finding]:
    """Followers of internal load balancing are headless; processes of other modes and leaders are not."""
    for process in view.where(lambda each: _is_told_to_follow(view.flags(each))):
        flags, reading = view.flags(process), view.readings[process.id]
        headless = bool(flags.get("headless"))
        external = "data-parallel-rank" in flags or bool(flags.get("data-parallel-hybrid-lb"))
        spans = view.size(process, "nnodes") > 1 and view.size(process, "node-rank", 0) > 0
        field = f"roles.{process.role}.load_balancing"
        leads = 0 in reading.dp_ranks and not _has_front(view, process)
        if headless and API_SERVER in process.argv[:3]:
            what = f"{process.id} starts {API_SERVER}, which does not read --headless: it serves HTTP, as rank 0 does."
            yield Finding(
                field=field, what=what, fix="Start it with `vllm serve`.", process=process.id
            )
        elif headless and (external or (leads and not spans)):
            what = f"{process.id} is headless, and its mode needs an API server here."
            yield Finding(field=field, what=what, fix="Remove --headless.", process=process.id)
        if not headless and spans:
            what = f"{process.id} is node {view.size(process, 'node-rank', 0)} and not headless."
            yield Finding(
                field=field,
                what=what,
                fix="Add --headless: only node 0 serves HTTP.",
                process=process.id,
            )
    for group, members in view.groups.items():
        yield from _as_leader_wants(view, group, members)


def _as_leader_wants(view: PlanView, group: str, members: Sequence[Process]) -> Iterator[Finding]:
    """Rank 0 refuses at the handshake who serves HTTP beside internal balancing, or does not beside another mode.

    A start rank without --headless makes a process a hybrid balancer, whatever rank 0 is (v1/engine/utils.py@0.22.1).
    """
    lead = next((p for p in members if _mode(view, p) is not None and _leads(view, p)), None)
    if lead is None or view.are_alike(members):
        return
    is_internal = _mode(view, lead) == "internal"
    field = f"roles.{lead.role}.load_balancing"
    for process in members:
        headless = bool(view.flags(process).get("headless"))
        has_ranks = bool(view.readings[process.id].dp_ranks)
        if process is lead or not has_ranks or headless == is_internal:
            continue
        if is_internal:
            what = f"{process.id} is not headless, and {lead.id} balances for all ranks of {group}: it refuses them."
            fix = "Add --headless, or --data-parallel-hybrid-lb to every process of the group."
            yield Finding(field=field, what=what, fix=fix, process=process.id)
        elif _mode(view, process) == "internal":
            what = f"{process.id} is headless, and {lead.id} leaves the ranks of other hosts to their own API servers."
            fix = "Remove --headless, and give the process the mode of rank 0."
            yield Finding(field=field, what=what, fix=fix, process=process.id)


def _leads(view: PlanView, process: Process) -> bool:
    """Whether a process serves HTTP, and holds rank 0 or is the front of ranks on other hosts."""
    reading = view.readings[process.id]
    return not reading.flags.get("headless") and (reading.is_leader or not reading.dp_ranks)


def _mode(view: PlanView, process: Process) -> str | None:
    """How a process takes part in balancing over ranks; None for what is no part of that."""
    mode = getattr(view.readings[process.id].extra.get("parallel"), "mode", None)
    return None if mode in ("single", "multi-node") else mode


def _is_told_to_follow(flags: Mapping[str, object]) -> bool:
    """Whether a process is told that it may not be the first of its group."""
    return bool(flags.keys() & {"headless", "nnodes", "data-parallel-size-local"})


def _has_front(view: PlanView, process: Process) -> bool:
    """Whether another process of the group serves HTTP and no rank: `--data-parallel-size-local 0`."""
    return any(
        not view.flags(other).get("headless") and not view.readings[other.id].dp_ranks
        for other in view.groups[process.group]
    )


def hybrid_local_size(view: PlanView) -> Iterator[Finding]:
    """Hybrid load balancing is told how many ranks a host has; multi-port has at least two of them.

    With one rank or all ranks on a host the engine takes the external or the internal mode by itself.
    """
    for process in view.variants:
        flags = view.flags(process)
        local = view.size(process, "data-parallel-size-local", 0)
        field = f"roles.{process.role}.load_balancing"
        is_inferred = view.size(process, "nnodes") > 1
        if flags.get("data-parallel-hybrid-lb") and not local and not is_inferred:
            what = "--data-parallel-hybrid-lb needs --data-parallel-size-local."
            fix = "Give the number of ranks on this host."
            yield Finding(field=field, what=what, fix=fix, process=process.id)
        if flags.get("data-parallel-multi-port-external-lb") and local < 2:  # noqa: PLR2004 - the engine's bound
            what = f"multi-port needs at least two ranks per host; --data-parallel-size-local is {local}."
            fix = "Give it two or more, or use external."
            yield Finding(field=field, what=what, fix=fix, process=process.id)


def sglang_data_parallel(view: PlanView) -> Iterator[Finding]:
    """SGLang spreads ranks over hosts only with data-parallel attention; there they share the tensor-parallel group."""
    for process in view.variants:
        tensor = view.size(process, "tensor-parallel-size")
        data = view.size(process, "data-parallel-size")
        field = f"roles.{process.role}.data_parallel"
        has_attention = bool(view.flags(process).get("enable-dp-attention"))
        if data > 1 and view.size(process, "nnodes") > 1 and not has_attention:
            what = f"{data} ranks of SGLang over several hosts need data-parallel attention."
            fix = "Add flags: {enable-dp-attention: true}, or use `replicas` and a router."
            yield Finding(field=field, what=what, fix=fix, process=process.id)
        if has_attention and tensor % data:
            what = f"data_parallel {data} does not divide tensor_parallel {tensor}: attention ranks share its devices."
            fix = f"Use one of {_divisors(tensor)}."
            yield Finding(field=field, what=what, fix=fix, process=process.id)


def devices_disjoint(view: PlanView) -> Iterator[Finding]:
    """No device belongs to two processes, none is beyond the host's, and each process has all it needs.

    Engines of several groups may share one where each is told how much of its memory it may use.
    """
    taken: dict[tuple[str, int], list[Process]] = {}
    num_devices = {host.name: host.num_devices for host in view.plan.hosts}
    for process in view.engines:
        devices = view.readings[process.id].devices
        field = f"roles.{process.role}"
        for device in devices:
            if device >= num_devices[process.host]:
                what = f"{process.host} has {num_devices[process.host]} devices; device {device} does not exist."
                yield Finding(
                    field=field,
                    what=what,
                    fix="Lower the parallel sizes or the mask.",
                    process=process.id,
                )
            others = taken.setdefault((process.host, device), [])
            others.append(process)
            if len(others) > 1 and not _share_memory(view, others):
                other = others[0].id
                what = f"{other} and {process.id} both take device {device} of {process.host}."
                yield Finding(
                    field=field,
                    what=what,
                    fix="Give each process devices of its own.",
                    process=process.id,
                )
        yield from _enough_devices(view, process, devices, num_devices[process.host])


def _share_memory(view: PlanView, processes: Sequence[Process]) -> bool:
    """Whether each is told a share of a device's memory, and all of them leave some of it.

    The collectives of one group take no device twice, and HCCL binds a port on each (vllm-ascend#405).
    """
    shares = [MemoryFlags(view.family, view.flags(each)).device_share for each in processes]
    told = [share for share in shares if share is not None]
    are_apart = len({each.group for each in processes}) == len(processes)
    has_room = len(told) == len(shares) and 0 < sum(told) < 1
    return has_room and are_apart and view.accelerator(processes[0]).vendor != "ascend"


def _enough_devices(
    view: PlanView, process: Process, devices: tuple[int, ...], available: int
) -> Iterator[Finding]:
    if view.flags(process).get("distributed-executor-backend") == "ray":
        return  # its cluster lends devices of other hosts
    extra = view.readings[process.id].extra
    layout = extra.get("parallel") or extra.get("layout")
    needed = getattr(layout, "local_devices", len(devices))
    if len(devices) < needed:
        has = f"{len(devices)} of {available}"
        what = (
            f"World size ({needed}) is larger than the devices that {process.id} may use ({has})."
        )
        fix = "Raise the mask or lower tensor_parallel; a rank that spans hosts needs --nnodes."
        yield Finding(
            field=f"roles.{process.role}.tensor_parallel", what=what, fix=fix, process=process.id
        )


def _divisors(number: int) -> str:
    """What divides a number, up to the widest group of devices that there is."""
    return ", ".join(str(n) for n in range(1, min(number, MAX_WIDTH) + 1) if number % n == 0)
