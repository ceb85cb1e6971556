"""Rules about ranks, sizes and devices of a group."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from infra.checks.rule_releases import releases_of
from infra.checks.view import Finding, PlanView
from infra.engines.command_line import as_int
from infra.plan.process import Process

# More devices than any group is wide.
MAX_WIDTH = 4_096
# Equal on all ranks: vLLM hashes every ParallelConfig field but ranks, addresses, ports, nodes, executors and back ends
# of launching, and refuses a rank whose hash differs (vllm config/parallel.py compute_hash, v1/engine/utils.py@0.22.1).
HASHED_FLAGS = (
    "tensor-parallel-size",
    "pipeline-parallel-size",
    "data-parallel-size",
    "decode-context-parallel-size",
    "prefill-context-parallel-size",
    "enable-expert-parallel",
    "all2all-backend",
    "enable-eplb",
    "eplb-config",
    "expert-placement-strategy",
    "disable-nccl-for-dp-synchronization",
    "enable-dbo",
    "ubatch-size",
    "dbo-decode-token-threshold",
    "dbo-prefill-token-threshold",
    "cp-kv-cache-interleave-size",
    "dcp-kv-cache-interleave-size",
)
# Of these, what says whether batches overlap; the plugin puts it back to off since 0.22 (platform.py@0.22.1rc1).
OVERLAP_FLAGS = ("enable-dbo", "ubatch-size")
OVERLAPS = (*releases_of("vllm"), *releases_of("vllm-ascend", before="0.22.0"))

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


def group_flags_equal(view: PlanView) -> Iterator[Finding]:
    """What vLLM hashes in its handshake is equal on all ranks of a group."""
    ignored = () if view.is_among(OVERLAPS) else OVERLAP_FLAGS
    hashed = [name for name in HASHED_FLAGS if name not in ignored]
    for group, members in view.groups.items():
        if view.are_alike(members):
            continue
        first = view.flags(members[0])
        for process in members[1:]:
            flags = view.flags(process)
            for name in hashed:
                if flags.get(name) == first.get(name):
                    continue
                if view.in_effect(members[0], name) != view.in_effect(process, name):
                    what = f"{group}: --{name} is {first.get(name)} on {members[0].id} and {flags.get(name)} here."
                    fix = "Give all ranks of a group the same parallel flags: the handshake compares their hash."
                    field = f"roles.{process.role}.flags"
                    yield Finding(field=field, what=what, fix=fix, process=process.id)


def headless_followers(view: PlanView) -> Iterator[Finding]:
    """Followers of internal load balancing are headless; processes of other modes and leaders are not."""
    for process in view.where(lambda each: _is_told_to_follow(view.flags(each))):
        flags, reading = view.flags(process), view.readings[process.id]
        headless = bool(flags.get("headless"))
        external = "data-parallel-rank" in flags or bool(flags.get("data-parallel-hybrid-lb"))
        follows = reading.group_size > 1 and not external and 0 not in reading.dp_ranks
        spans = view.size(process, "nnodes") > 1 and view.size(process, "node-rank", 0) > 0
        field = f"roles.{process.role}.load_balancing"
        leads = 0 in reading.dp_ranks and not _has_front(view, process)
        if headless and (external or (leads and not spans)):
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
        if (
            follows
            and reading.dp_ranks
            and not headless
            and "data-parallel-size-local" in flags
            and "data-parallel-start-rank" not in flags
        ):
            what = f"{process.id} names no start rank and does not hold rank 0."
            yield Finding(
                field=field,
                what=what,
                fix="Add --headless --data-parallel-start-rank.",
                process=process.id,
            )


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
    """No device belongs to two processes, none is beyond the host's, and each process has all it needs."""
    taken: dict[tuple[str, int], str] = {}
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
            other = taken.setdefault((process.host, device), process.id)
            if other != process.id:
                what = f"{other} and {process.id} both take device {device} of {process.host}."
                yield Finding(
                    field=field,
                    what=what,
                    fix="Give each process devices of its own.",
                    process=process.id,
                )
        yield from _enough_devices(view, process, devices, num_devices[process.host])


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
