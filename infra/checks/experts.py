"""Rules about expert parallelism: transports between experts, balancing, overlapped batches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from infra.catalog.schema import Vendor
from infra.checks.rule_releases import releases_of
from infra.checks.view import Finding, PlanView
from infra.engines.command_line import as_int, as_map
from infra.plan.process import Process

# vllm distributed/device_communicators/all2all.py@0.22.1, sglang docs/advanced_features/expert_parallelism.md: what
# each back end is built on.
BACKEND_VENDORS: tuple[tuple[str, Vendor], ...] = (
    ("deepep", "nvidia"),
    ("flashinfer", "nvidia"),
    ("nixl_ep", "nvidia"),
    ("moonep", "nvidia"),
    ("megamoe", "nvidia"),
    ("pplx", "nvidia"),
    ("mori", "amd"),
    ("ascend_", "ascend"),
)
# By the engine's own spelling: what the engine names the transport by.
TRANSPORT_FLAGS = ("all2all-backend", "moe-a2a-backend")
OVERLAPPING = ("deepep_low_latency", "deepep_high_throughput")


def all2all_backend_runs(view: PlanView) -> Iterator[Finding]:
    """The transport between experts is built for the accelerator."""
    for process in view.variants:
        flags = view.flags(process)
        name = next((flag for flag in TRANSPORT_FLAGS if flags.get(flag)), "")
        backend = str(flags.get(name) or "")
        needed = next((v for start, v in BACKEND_VENDORS if backend.startswith(start)), None)
        accelerator = view.accelerator(process)
        if needed is not None and accelerator.vendor != needed:
            what = f"{name} {backend} needs {needed} devices; {accelerator.id} is {accelerator.vendor}."
            fix = "Leave it out: the default runs on every accelerator."
            field = f"roles.{process.role}.flags.{name}"
            yield Finding(field=field, what=what, fix=fix, process=process.id)


def overlapped_batches_transport(view: PlanView) -> Iterator[Finding]:
    """Dual-batch overlap runs on a DeepEP transport alone; vllm-ascend has switched it off since 0.22."""
    for process in view.variants:
        flags = view.flags(process)
        backend = flags.get("all2all-backend")
        overlaps = bool(flags.get("enable-dbo")) or as_int(flags.get("ubatch-size"), 0) > 1
        if overlaps and backend not in OVERLAPPING:
            what = f"Dual-batch overlap needs a DeepEP transport; all2all-backend is {backend or 'the default'}."
            fix = f"Use all2all-backend {' or '.join(OVERLAPPING)}, or remove enable-dbo."
            field = f"roles.{process.role}.flags.enable-dbo"
            yield Finding(field=field, what=what, fix=fix, process=process.id)


def expert_balancing_possible(view: PlanView) -> Iterator[Finding]:
    """Balanced experts, copies among them, are shared evenly by more than one device, and by no Ascend device."""
    for process in view.variants:
        flags, field = view.flags(process), f"roles.{process.role}.flags.enable-eplb"
        redundant = as_int(as_map(flags.get("eplb-config")).get("num_redundant_experts"), 0)
        devices = view.size(process, "tensor-parallel-size") * view.readings[process.id].group_size
        what = fix = ""
        if not flags.get("enable-eplb"):
            if redundant:
                what = f"num_redundant_experts is {redundant} and expert load balancing is off."
                fix = "Add enable-eplb, or remove eplb-config."
        elif view.accelerator(process).vendor == "ascend":
            what = "vLLM's expert load balancing does not run on Ascend."
            fix = "Use additional-config eplb_config with DYNAMIC_EPLB=true."
        elif not flags.get("enable-expert-parallel"):
            what, fix = "EPLB needs expert parallelism.", "Set expert_parallel: true."
        elif devices <= 1:
            what = "EPLB needs tensor or data parallelism above 1."
            fix = "Remove enable-eplb."
        else:
            what, fix = _uneven(view, redundant, devices, "num_redundant_experts")
        if what:
            yield Finding(field=field, what=what, fix=fix, process=process.id)


def sglang_experts_even(view: PlanView) -> Iterator[Finding]:
    """SGLang's experts, copies among them, are shared evenly by the devices of --ep-size."""
    flag = "ep-num-redundant-experts"
    for process in view.variants:
        flags = view.flags(process)
        copies = as_int(flags.get(flag), 0)
        # a transport between experts takes all devices; joining later has a layout of its own
        sharing = "tensor" if flags.get("moe-a2a-backend", "none") != "none" else "expert"
        devices = view.size(process, f"{sharing}-parallel-size")
        if copies and not flags.get("elastic-ep-join-mode"):
            what, fix = _uneven(view, copies, devices, f"--{flag}")
            if what:
                field = f"roles.{process.role}.flags.{flag}"
                yield Finding(field=field, what=what, fix=fix, process=process.id)


def _uneven(view: PlanView, copies: int, devices: int, told_by: str) -> tuple[str, str]:
    """(what is wrong, fix) where experts and their copies cannot be shared evenly; empty where they can."""
    shape = view.checkpoint.shape if view.checkpoint else None
    if shape is None or (shape.num_experts + copies) % devices == 0:
        return "", ""
    what = f"{shape.num_experts} experts and {copies} copies are not shared evenly by {devices} devices ({told_by})."
    fewest = -shape.num_experts % devices
    more = f"{fewest} and a multiple" if fewest else "a multiple"
    return what, f"Use {fewest}, or {more} of {devices}."


# Of each low-latency transport of SGLang that takes no more tokens than its buffer holds, and does not look before: the
# variable that sizes the buffer, tokens per rank (srt/layers/moe/token_dispatcher/{deepep,mooncake,nixl}.py@0.5.9,
# 0.5.14, 0.5.16, 0.5.23). pplx, mori, flashinfer and deepep_v2 look by themselves (arg_groups/moe_hook.py@0.5.23).
DISPATCH_BUFFERS: Mapping[str, str] = {
    "deepep": "SGLANG_DEEPEP_NUM_MAX_DISPATCH_TOKENS_PER_RANK",
    "mooncake": "SGLANG_MOONCAKE_EP_NUM_MAX_DISPATCH_TOKENS_PER_RANK",
    "nixl": "SGLANG_NIXL_EP_NUM_MAX_DISPATCH_TOKENS_PER_RANK",
}
# Releases that sgl-project/sglang#29942 saw end at so many drafts; a published command for 0.5.8 goes past them.
VERIFIES_WIDE = releases_of("sglang", since="0.5.16")
DEFAULT_BUFFER, LARGEST_BUFFER = 128, 1024
DEFAULT_CHUNK = 8192  # server_args.py@0.5.9, where no chunk size is named
# DeepGEMM's kernel moves the tokens itself, and the transport's buffer is not used.
MEGA_MOE = "SGLANG_OPT_USE_DEEPGEMM_MEGA_MOE"


def dispatch_buffers_hold(view: PlanView) -> Iterator[Finding]:
    """What SGLang hands to a low-latency transport at once fits the buffer that its variable sizes."""
    for process in view.variants:
        flags, env = view.flags(process), process.env
        backend, mode = str(flags.get("moe-a2a-backend") or ""), flags.get("deepep-mode")
        name = DISPATCH_BUFFERS.get(backend)
        if name is None or env.get(MEGA_MOE, "0") not in ("", "0", "false", "False"):
            continue
        holds = as_int(env.get(name), DEFAULT_BUFFER)
        field = f"roles.{process.role}.env.{name}"
        if holds > LARGEST_BUFFER:
            what = f"{name} is {holds}; the kernels count no more than {LARGEST_BUFFER}."
            fix = f"Use at most {LARGEST_BUFFER}, and smaller batches per rank."
            yield Finding(field=field, what=what, fix=fix, process=process.id)
            continue
        for flag, tokens, words in _handed_over(view, process):
            if tokens > holds:
                told = "" if name in env else " by default"
                way = f"moe-a2a-backend {backend}" + (f", deepep-mode {mode}" if mode else "")
                what = (
                    f"{words} {tokens} tokens on each rank, and {name} is {holds}{told}: the transport ends "
                    f"the engine at more ({way})."
                )
                fix = f"Raise {name} to {tokens}, or lower --{flag}."
                if tokens > LARGEST_BUFFER:
                    fix = f"Lower --{flag}: {LARGEST_BUFFER} is the most that {name} may be."
                yield Finding(
                    field=f"roles.{process.role}.flags.{flag}",
                    what=what,
                    fix=fix,
                    process=process.id,
                )


def _handed_over(view: PlanView, process: Process) -> Iterator[tuple[str, int, str]]:
    """(flag, tokens per rank, in words) of batches that go the low-latency way: decode's, and with that mode all."""
    flags = view.flags(process)
    mode = str(flags.get("deepep-mode") or "auto")
    ranks = view.size(process, "data-parallel-size") if flags.get("enable-dp-attention") else 1
    share = view.attention_tensor(process)
    # a batch that is verified has all drafts of each request (decode_cuda_graph_runner.py@0.5.16, captured_req_width)
    drafts = 1
    if flags.get("speculative-algorithm") and view.is_among(VERIFIES_WIDE):
        drafts = max(as_int(flags.get("speculative-num-draft-tokens"), 1), 1)
    listed = flags.get("cuda-graph-bs")  # these, and no others up to a largest
    sizes = [as_int(each, 0) for each in (listed if isinstance(listed, (list, tuple)) else ())]
    graphs = max(sizes, default=as_int(flags.get("cuda-graph-max-bs"), 0))
    if flags.get("max-running-requests") is not None:
        graphs = min(graphs, as_int(flags.get("max-running-requests"), graphs) // ranks)
    if mode != "normal" and process.role != "prefill" and not flags.get("disable-cuda-graph"):
        flag = "cuda-graph-bs" if sizes else "cuda-graph-max-bs"
        yield flag, graphs * drafts // share, "The largest captured batch has"
    if mode == "low_latency" and process.role != "decode":
        chunk = as_int(flags.get("chunked-prefill-size"), DEFAULT_CHUNK)
        yield "chunked-prefill-size", chunk // ranks // share, "A chunk of a prompt has"
