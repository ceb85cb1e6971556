"""Rules about memory and lengths."""

from __future__ import annotations

from collections.abc import Iterator

from infra.checks.speculation import step_tokens
from infra.checks.view import Finding, PlanView
from infra.engines.command_line import as_int
from infra.memory.kv_cache import OVERHEAD_GIB, Room, request_gib
from infra.memory.weights import GIB, Layout, weight_bytes_per_device
from infra.plan.process import Process

# Some figures are vendors' nominal ones, and the overhead was measured once: a shortfall below this share of the KV
# budget only warns. GB200 with TP4 at vLLM 0.17.0's defaults was published, and comes out 0.6 GiB short.
TOLERANCE = 0.1
UNSAID = 1 << 40  # no limit that matters


def context_within_model(view: PlanView) -> Iterator[Finding]:
    """The longest request is no longer than the model's context."""
    shape = view.checkpoint.shape if view.checkpoint else None
    if shape is None:
        return
    for process in view.variants:
        length = _max_length(view, process)
        if length > shape.max_context:
            what = f"max_model_len {length} is greater than the model's {shape.max_context}."
            fix = f"Use at most {shape.max_context}."
            yield Finding(
                field=f"roles.{process.role}.max_model_len", what=what, fix=fix, process=process.id
            )


def batch_holds_sequences(view: PlanView) -> Iterator[Finding]:
    """A batch has room for one step of every sequence, and for a whole prompt when it is not chunked."""
    if view.family != "vllm":
        return
    for process in view.variants:
        flags = view.flags(process)
        tokens = as_int(flags.get("max-num-batched-tokens"), UNSAID)
        sequences = max(as_int(flags.get("max-num-seqs"), 0), 1)
        field = f"roles.{process.role}.max_num_batched_tokens"
        step = step_tokens(view, process)
        if tokens < sequences * step:
            drafted = f" x {step} (draft tokens + 1)" if step > 1 else ""
            what = f"max_num_batched_tokens {tokens} is smaller than max_num_seqs {sequences}{drafted}."
            fix = f"Use at least {sequences * step}."
            yield Finding(field=field, what=what, fix=fix, process=process.id)
        length = _max_length(view, process)
        if flags.get("enable-chunked-prefill") is False and tokens < length:
            what = f"Without chunked prefill max_num_batched_tokens {tokens} must hold max_model_len {length}."
            yield Finding(field=field, what=what, fix=f"Use at least {length}.", process=process.id)


def weights_fit(view: PlanView) -> Iterator[Finding]:
    """Weights are smaller than what the engine may use of a device."""
    for process in view.variants:
        room = device_room(view, process)
        if room is not None and room.left_gib <= 0:
            what = f"{room.weights_gib:.1f} GiB of weights per device do not fit {room.usable_gib:.1f} GiB."
            fix = "Use more devices per replica, expert parallel, or a smaller checkpoint."
            yield Finding(field=f"roles.{process.role}", what=what, fix=fix, process=process.id)


def memory_share_possible(view: PlanView) -> Iterator[Finding]:
    """The share of a device's memory lies above 0 and is no more than 1."""
    for process in view.variants:
        for flag in ("gpu-memory-utilization", "mem-fraction-static"):
            share = view.flags(process).get(flag)
            if isinstance(share, float | int) and not 0 < share <= 1:
                what = f"--{flag} is {share}: the share of a device's memory."
                field = f"roles.{process.role}.gpu_memory_utilization"
                fix = "Use a number above 0 and up to 1."
                yield Finding(field=field, what=what, fix=fix, process=process.id)


def kv_cache_fits(view: PlanView) -> Iterator[Finding]:
    """Beside weights and the usual overhead a full-length request fits, or falls short by `TOLERANCE` at most."""
    for process, needed, budget in _requests(view):
        if needed - budget > TOLERANCE * max(budget, 0.0):
            yield _shortfall(view, process, needed, budget)


def kv_cache_fits_exactly(view: PlanView) -> Iterator[Finding]:
    """Beside weights and the usual overhead a full-length request fits, without any tolerance."""
    for process, needed, budget in _requests(view):
        if 0 < needed - budget <= TOLERANCE * budget:
            yield _shortfall(view, process, needed, budget)


def device_room(view: PlanView, process: Process) -> Room | None:
    """Memory of one device of a process; None when the checkpoint's shape is unknown."""
    checkpoint = view.checkpoint
    if checkpoint is None or checkpoint.shape is None:
        return None
    layout = layout_of(view, process)
    accelerator = view.accelerators[process.host]
    flag = "mem-fraction-static" if view.family == "sglang" else "gpu-memory-utilization"
    given = view.flags(process).get(flag)
    share = float(str(view.release.gpu_memory_utilization if given is None else given))
    return Room(
        usable_gib=accelerator.memory_mib / 1024 * share,
        weights_gib=weight_bytes_per_device(checkpoint, layout) / GIB,
    )


def layout_of(view: PlanView, process: Process) -> Layout:
    """The parallel layout of a process's replica."""
    flags = view.flags(process)
    data = view.readings[process.id].group_size
    if view.family == "sglang" and flags.get("enable-dp-attention"):
        data = 1
    sglang_copies = view.family == "sglang" and not flags.get("enable-dp-attention")
    return Layout(
        tensor=view.size(process, "tensor-parallel-size"),
        pipeline=view.size(process, "pipeline-parallel-size"),
        data=1 if sglang_copies else data,
        expert_parallel=bool(flags.get("enable-expert-parallel")),
        vision_on_every_device=flags.get("mm-encoder-tp-mode") == "data",
    )


def _requests(view: PlanView) -> Iterator[tuple[Process, float, float]]:
    """Per role: its first process, GiB of one full-length request, GiB left for KV; not where weights do not fit."""
    shape = view.checkpoint.shape if view.checkpoint else None
    if shape is None:
        return
    for process in view.variants:
        room = device_room(view, process)
        if room is None or room.left_gib <= 0:
            continue
        flags = view.flags(process)
        needed = request_gib(
            shape,
            _max_length(view, process),
            kv_cache_dtype=str(flags.get("kv-cache-dtype", "auto")),
            decode_context_parallel=view.size(process, "decode-context-parallel-size"),
        )
        yield process, needed, room.left_gib - OVERHEAD_GIB


def _shortfall(view: PlanView, process: Process, needed: float, budget: float) -> Finding:
    length = _max_length(view, process)
    what = (
        f"{max(budget, 0.0):.1f} GiB per device are left for KV beside weights and {OVERHEAD_GIB:.0f} GiB of "
        f"overhead; one request of {length} tokens needs {needed:.1f} GiB."
    )
    fix = "Lower max_model_len, raise gpu_memory_utilization, or use more devices per replica."
    return Finding(
        field=f"roles.{process.role}.max_model_len", what=what, fix=fix, process=process.id
    )


def _max_length(view: PlanView, process: Process) -> int:
    """The longest request: the flag's, or the model's context."""
    flag = "context-length" if view.family == "sglang" else "max-model-len"
    shape = view.checkpoint.shape if view.checkpoint else None
    return as_int(view.flags(process).get(flag), shape.max_context if shape else 0)
