"""Rules about memory and lengths."""

from __future__ import annotations

from collections.abc import Iterator

from infra.catalog.instance_types import read_instance_type
from infra.checks.rule_releases import releases_of
from infra.checks.speculation import draft_slots
from infra.checks.view import Finding, PlanView
from infra.engines.command_line import as_int
from infra.memory.device import (
    DeviceMemory,
    EngineLoad,
    device_memory,
    kv_layout,
    longest_request,
)
from infra.memory.kv_cache import request_gib
from infra.plan.process import Process

# Some figures are vendors' nominal ones, and the overhead is a constant (docs/estimates.md): a shortfall below this
# share of the KV budget only warns. GB200 with TP4 at vLLM 0.17.0's defaults was published, and is 0.6 GiB short.
TOLERANCE = 0.1
ONE_BLOCK = 16  # tokens, where an engine runs on what it was not made for: another rule says so
DEFAULT_SWAP_GIB = 4.0  # per device: vllm engine/arg_utils.py@0.17.0
# What vLLM counts from one, as far as the release has it (`ge=1` in config/scheduler.py@0.17.0, 0.22.1, 0.33.0).
COUNTS = (
    "max-num-seqs",
    "max-num-batched-tokens",
    "max-num-partial-prefills",
    "max-long-partial-prefills",
    "max-num-scheduled-tokens",
    "max-num-active-seqs",
    "prefill-schedule-interval",
    "stream-interval",
)
# What a stack has a field for; other flags stand under `flags`.
FIELDS = {
    "max-num-seqs": "max_num_seqs",
    "max-num-batched-tokens": "max_num_batched_tokens",
    "max-model-len": "max_model_len",
}
UNSAID = 1 << 40  # no limit that matters
DRAFTS_TAKE_TOKENS = releases_of("vllm", "vllm-ascend", since="0.20.0")


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


def batches_not_empty(view: PlanView) -> Iterator[Finding]:
    """A batch takes at least one request and one token, and a request has at least one."""
    for process in view.variants:
        for flag in COUNTS:
            count = as_int(view.flags(process).get(flag), 1)
            if count < 1:
                yield _too_small(process, flag, count)
        if view.flags(process).get("max-model-len") == 0:  # -1 is the engine's own choice
            yield _too_small(process, "max-model-len", 0)


def _too_small(process: Process, flag: str, count: int) -> Finding:
    return Finding(
        field=f"roles.{process.role}.{FIELDS.get(flag, f'flags.{flag}')}",
        what=f"--{flag} is {count} on {process.id}.",
        fix="Use 1 or more, or leave it out.",
        process=process.id,
    )


def batch_holds_sequences(view: PlanView) -> Iterator[Finding]:
    """A batch has room for one step of every sequence, and for a whole prompt when it is not chunked."""
    has_slots = view.is_among(DRAFTS_TAKE_TOKENS)
    for process in view.variants:
        flags = view.flags(process)
        tokens = as_int(flags.get("max-num-batched-tokens"), UNSAID)
        sequences = max(as_int(flags.get("max-num-seqs"), 0), 1)
        field = f"roles.{process.role}.max_num_batched_tokens"
        slots = draft_slots(view, process) if has_slots else 0
        if tokens < sequences:
            what = f"max_num_batched_tokens {tokens} is smaller than max_num_seqs {sequences}."
            fix = f"Use at least {sequences}."
            yield Finding(field=field, what=what, fix=fix, process=process.id)
        elif tokens <= sequences * slots:
            what = f"max_num_batched_tokens {tokens} leaves no token to schedule: "
            what += f"drafting takes {slots} for each of {sequences} requests (max_num_seqs)."
            fix = f"Use more than {sequences * slots}, or a smaller max_num_seqs."
            yield Finding(field=field, what=what, fix=fix, process=process.id)
        length = _max_length(view, process)
        if flags.get("enable-chunked-prefill") is False and tokens < length:
            what = f"Without chunked prefill max_num_batched_tokens {tokens} must hold max_model_len {length}."
            fix = f"Use at least {length}, or remove --no-enable-chunked-prefill."
            yield Finding(field=field, what=what, fix=fix, process=process.id)


def weights_fit(view: PlanView) -> Iterator[Finding]:
    """Weights are smaller than what the engine may use of a device."""
    for process in view.variants:
        memory = device_memory_of(view, process)
        if memory is not None and memory.usable_gib <= memory.weights_gib:
            what = f"{memory.weights_gib:.1f} GiB of weights per device do not fit {memory.usable_gib:.1f} GiB."
            fix = f"Use more devices per replica, expert parallel, a smaller checkpoint, or a larger {_share(view)}."
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


def swap_space_fits(view: PlanView) -> Iterator[Finding]:
    """Swap space, which vLLM before 0.18.0 sets aside per device, leaves room for the weights in the page cache."""
    if view.checkpoint is None:
        return
    for process in view.variants:
        name = view.accelerator(process).instances.get("aws")
        if name is None or not view.plan.platform.startswith("aws"):
            continue  # nobody knows the host's memory before it is asked: `fab preflight`
        has_gib = read_instance_type(name).memory_gib
        given = view.flags(process).get("swap-space")
        each_gib = float(given) if isinstance(given, int | float) else DEFAULT_SWAP_GIB
        swap_gib = each_gib * view.plan.host(process.host).num_devices
        cache_gib = view.checkpoint.size_bytes / (1 << 30)
        if swap_gib + cache_gib > has_gib:
            what = (
                f"{swap_gib:.0f} GiB of swap space and {cache_gib:.0f} GiB of weights in the page cache do not fit the "
                f"{has_gib} GiB of a {name}."
            )
            field = f"roles.{process.role}.flags.swap-space"
            yield Finding(
                field=field, what=what, fix="Add flags: {swap-space: 0}.", process=process.id
            )


def kv_cache_fits(view: PlanView) -> Iterator[Finding]:
    """Beside weights, draft and usual overhead a full-length request fits, or falls short by `TOLERANCE` at most."""
    for process, needed, memory in _requests(view):
        if needed - memory.kv_gib > TOLERANCE * max(memory.kv_gib, 0.0):
            yield _shortfall(view, process, needed, memory)


def kv_cache_fits_exactly(view: PlanView) -> Iterator[Finding]:
    """Beside weights, draft and the usual overhead a full-length request fits, without any tolerance."""
    for process, needed, memory in _requests(view):
        if 0 < needed - memory.kv_gib <= TOLERANCE * memory.kv_gib:
            yield _shortfall(view, process, needed, memory)


def engine_load(view: PlanView, process: Process) -> EngineLoad | None:
    """What decides the memory of an engine process; None when the checkpoint is not in the catalogue."""
    if view.checkpoint is None:
        return None
    accelerator = view.accelerator(process)
    return EngineLoad(
        family=view.family,
        flags=view.flags(process),
        group_size=view.readings[process.id].group_size,
        memory_share=view.release.gpu_memory_utilization,
        block_size=view.release.kv_block_tokens.get(accelerator.generation, ONE_BLOCK),
        accelerator=accelerator,
        checkpoint=view.checkpoint,
        draft=view.draft(process),
    )


def device_memory_of(view: PlanView, process: Process) -> DeviceMemory | None:
    """Memory of one device of a process; None when the checkpoint's shape is unknown."""
    load = engine_load(view, process)
    return None if load is None else device_memory(load)


def _share(view: PlanView) -> str:
    """What the engine calls the share of a device's memory that it may use."""
    return "gpu_memory_utilization" if view.family == "vllm" else "mem-fraction-static"


def _requests(view: PlanView) -> Iterator[tuple[Process, float, DeviceMemory]]:
    """Per variant: its process, GiB of one full-length request, its device; not where weights do not fit."""
    for process in view.variants:
        load = engine_load(view, process)
        memory = device_memory(load) if load else None
        shape = load.checkpoint.shape if load else None
        if load is None or memory is None or shape is None:
            continue
        if memory.usable_gib > memory.weights_gib:
            yield process, request_gib(shape, _max_length(view, process), kv_layout(load)), memory


def _shortfall(view: PlanView, process: Process, needed: float, memory: DeviceMemory) -> Finding:
    length = _max_length(view, process)
    draft = f", {memory.draft_gib:.1f} GiB of draft" if memory.draft_gib else ""
    what = (
        f"{max(memory.kv_gib, 0.0):.1f} GiB per device are left for KV beside weights{draft} and "
        f"{memory.overhead_gib:.0f} GiB of overhead; one request of {length} tokens needs {needed:.1f} GiB."
    )
    fix = "Lower max_model_len, raise gpu_memory_utilization, or use more devices per replica."
    return Finding(
        field=f"roles.{process.role}.max_model_len", what=what, fix=fix, process=process.id
    )


def _max_length(view: PlanView, process: Process) -> int:
    """The longest request: the flag's, or the model's context."""
    shape = view.checkpoint.shape if view.checkpoint else None
    return longest_request(view.family, view.flags(process), shape)
