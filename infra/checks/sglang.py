"""Rules about what SGLang's server checks when it reads its arguments."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from infra.checks.rule_releases import releases_of
from infra.checks.view import Finding, PlanView
from infra.engines.command_line import as_int

DEFAULT_CHUNK = 8192  # server_args.py@0.5.9, where no chunk size is named
# 0.5.9 is the last release in the catalogue that splits a map of devices at its commas: sglang#20241
MAPS_SPLIT = releases_of("sglang", before="0.5.10")
# Names the place for torch, in place of the flag (srt/environ.py; model_runner.py, init_torch_distributed).
MEETS_ELSEWHERE = "SGLANG_DISTRIBUTED_INIT_METHOD_OVERRIDE"
DRAFTING = ("EAGLE", "EAGLE3", "NEXTN", "STANDALONE")  # what drafts by a model, and takes its sizes


def arguments_agree(view: PlanView) -> Iterator[Finding]:
    """What SGLang's ServerArgs assert about sizes, pages, overlap, drafts, experts and prefill/decode holds."""
    splits_maps = view.is_among(MAPS_SPLIT)
    for process in view.variants:
        for flag, what, fix in _problems(view.flags(process), splits_maps=splits_maps):
            field = f"roles.{process.role}.flags.{flag}"
            yield Finding(field=field, what=what, fix=fix, process=process.id)


def nodes_meet(view: PlanView) -> Iterator[Finding]:
    """SGLang's nodes are counted from 0, and told where they meet: else each waits for the others at itself."""
    for process in view.engines:
        flags = view.flags(process)
        nodes, node = view.size(process, "nnodes"), as_int(flags.get("node-rank"), 0)
        is_told = flags.get("dist-init-addr") is not None or MEETS_ELSEWHERE in process.env
        what = fix = flag = ""
        if nodes > 1 and not 0 <= node < nodes:
            flag, fix = "node-rank", f"Give the nodes the ranks 0 to {nodes - 1}, each once."
            what = f"{process.id} is node {node} of {nodes}, and the last one is {nodes - 1}."
        elif nodes > 1 and not is_told and process.id not in view.surroundings.partly_open:
            flag, fix = "nnodes", "Give every node --dist-init-addr HOST:PORT of node 0."
            what = f"{process.id} is one of {nodes} nodes and has no --dist-init-addr: it waits for them at itself."
        if what:
            field = f"roles.{process.role}.flags.{flag}"
            yield Finding(field=field, what=what, fix=fix, process=process.id)


def _problems(flags: Mapping[str, object], *, splits_maps: bool) -> Iterator[tuple[str, str, str]]:
    """(flag, fact, fix) of each assertion that would fail."""
    tensor, pipeline, nodes, data, page = (
        max(as_int(flags.get(name), 1), 1)
        for name in (
            "tensor-parallel-size",
            "pipeline-parallel-size",
            "nnodes",
            "data-parallel-size",
            "page-size",
        )
    )
    mode = flags.get("disaggregation-mode")
    if tensor * pipeline % nodes:
        what = f"{tensor * pipeline} devices do not spread evenly over {nodes} nodes."
        yield "tp-size", what, "Use a number of nodes that divides the devices."
    chunk = as_int(flags.get("chunked-prefill-size"), DEFAULT_CHUNK)
    chunk //= data if flags.get("enable-dp-attention") else 1
    if chunk > 0 and mode != "decode" and chunk % page:
        what = f"page-size {page} does not divide the chunk of {chunk} tokens."
        yield "page-size", what, "Use a power of two."
    if flags.get("enable-two-batch-overlap") and flags.get("moe-a2a-backend", "none") == "none":
        what = "Two-batch overlap needs a transport between experts."
        yield "enable-two-batch-overlap", what, "Set moe-a2a-backend, or remove it."
    devices = [name.strip() for name in str(flags.get("disaggregation-ib-device") or "").split(",")]
    is_map = devices[0].startswith("{") and not splits_maps
    if _reads_devices(flags) and len(devices) != len(set(devices)) and not is_map:
        what = f"disaggregation-ib-device names a device twice: {', '.join(devices)}."
        yield "disaggregation-ib-device", what, "Name each once."
    decode = as_int(flags.get("disaggregation-decode-tp"), 0)
    if decode and mode == "decode":
        what = "disaggregation-decode-tp is for prefill: it says how wide its decode peers are."
        yield "disaggregation-decode-tp", what, "Remove it there."
    elif decode and mode == "prefill" and max(tensor, decode) % min(tensor, decode):
        what = f"decode's {decode} and prefill's {tensor} tensor-parallel ranks are no multiples of each other."
        yield "disaggregation-decode-tp", what, "Use sizes of which one divides the other."
    address = str(flags.get("dist-init-addr", ":0"))
    if "$" not in address and not address.rpartition(":")[2].isdecimal():
        what = f"--dist-init-addr {address} is no address with a port."
        yield "dist-init-addr", what, "Write HOST:PORT of the first node."
    yield from _draft_problems(flags)
    yield from _balancing_problems(flags, tensor)


def _reads_devices(flags: Mapping[str, object]) -> bool:
    """Whether SGLang looks at the names of RDMA devices: Mooncake alone moves blocks by them."""
    moves_blocks = flags.get("disaggregation-mode") in ("prefill", "decode")
    backend = flags.get("disaggregation-transfer-backend", "mooncake")
    encodes = flags.get("encoder-transfer-backend") == "mooncake"
    return (moves_blocks and backend == "mooncake") or encodes


def _draft_problems(flags: Mapping[str, object]) -> Iterator[tuple[str, str, str]]:
    """The sizes of a draft's tree are chosen by SGLang all together, or by nobody but the operator."""
    if flags.get("speculative-algorithm") not in DRAFTING or flags.get("speculative-adaptive"):
        return
    steps, width, tokens = (
        "speculative-num-steps",
        "speculative-eagle-topk",
        "speculative-num-draft-tokens",
    )
    fix = f"Set --{steps}, --{width} and --{tokens}, or none of them: SGLang then chooses."
    given = " and ".join(f"--{name}" for name in (width, tokens) if flags.get(name) is not None)
    if flags.get(steps) is None and given:
        yield steps, f"{given} stands without --{steps}.", fix
    elif flags.get(steps) is not None and flags.get(width) is None:
        yield width, f"--{steps} stands without --{width}.", fix


def _number_or_many(value: object) -> int:
    """A size; of one that a shell fills in, more than one."""
    return as_int(value, 2)


def _balancing_problems(flags: Mapping[str, object], tensor: int) -> Iterator[tuple[str, str, str]]:
    """Experts are balanced over the devices that share them; a transport between experts takes all."""
    has_transport = flags.get("moe-a2a-backend", "none") != "none"
    devices = tensor if has_transport else _number_or_many(flags.get("expert-parallel-size", 1))
    is_joining = flags.get("elastic-ep-join-mode") == "scale"  # since 0.5.16
    if flags.get("enable-eplb") and devices <= 1 and not is_joining:
        what = f"--enable-eplb balances experts over --ep-size devices, and that is {devices}."
        yield "enable-eplb", what, "Set expert_parallel: true, or remove enable-eplb."
