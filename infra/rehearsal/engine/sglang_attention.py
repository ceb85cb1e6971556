"""What SGLang says of attention back ends: its ServerArgs of the device, its workers of the model and of the draft."""

from __future__ import annotations

from .catalogue import read_names
from .command_line import Arguments
from .failures import Failed
from .parallel import Version
from .world import World

BOTH, PREFILL, DECODE, DRAFT = (
    "attention_backend",
    "prefill_attention_backend",
    "decode_attention_backend",
    "speculative_draft_attention_backend",
)
# What drafts through srt/speculative/draft_utils.py.
DRAFTING = ("EAGLE", "EAGLE3", "NEXTN", "STANDALONE")
FA3 = "FlashAttention v3 Backend requires SM>=80 and SM<=90. Please use `--attention-backend flashinfer`."
WORKER = "Scheduler"
SINCE_ROLES = (0, 5, 10)  # of trtllm_mha, decode runs on Hopper from here on
SINCE_HOPPER_PREFILL = (0, 5, 23)  # 0.5.16 lacks it; releases between were not read
CUTEDSL = "CuteDSL MLA backend is only supported on Blackwell GPUs (SM100). Please use a different backend."
# tokenspeed_mla is then a name of cutedsl_mla (srt/arg_groups/serving_hook.py)
SINCE_ALIAS = (0, 5, 23)
# Name, where it counts, and what is said off Blackwell (srt/server_args.py@0.5.9, 0.5.14; overrides.py@0.5.16, 0.5.23).
BLACKWELL_ALONE = (
    (
        "trtllm_mla",
        (BOTH, DECODE),
        "TRTLLM MLA backend is only supported on Blackwell GPUs (SM100/SM12x). Please use a different backend.",
    ),
    (
        "tokenspeed_mla",
        (BOTH, DECODE),
        "tokenspeed_mla backend is only supported on Blackwell GPUs (SM100/SM12x).",
    ),
    ("cutedsl_mla", (BOTH, PREFILL, DECODE), CUTEDSL),
)
OLD_MHA = "TRTLLM MHA backend is only supported on Blackwell GPUs (SM100). Please use a different backend."
PREFILL_MHA = (
    "TRTLLM MHA backend for prefill is only supported on Blackwell GPUs (SM100). "
    "Please use a different prefill backend."
)
NEW_PREFILL_MHA = (
    "TRTLLM MHA backend for prefill requires Hopper (SM90), Blackwell (SM100), or SM120 GPUs. "
    "Please use a different prefill backend."
)
DECODE_MHA = (
    "TRTLLM MHA backend for decode is only supported on Hopper (SM90), Blackwell (SM100) and (SM120) GPUs. "
    "Please use a different decode backend."
)


def check_attention(args: Arguments, version: Version, world: World) -> None:
    """Check the attention back ends that are asked for by name.

    Raises:
        Failed: SGLang's own ValueError.
    """
    if world.is_blackwell:
        return
    for name, places, text in BLACKWELL_ALONE:
        if any(args[place] == name for place in places):
            is_alias = name == "tokenspeed_mla" and version >= SINCE_ALIAS
            raise Failed("ValueError", CUTEDSL if is_alias else text, process="")
    text = _refused_mha(args, version, is_hopper=world.is_hopper)
    if text:
        raise Failed("ValueError", text, process="")


def check_attention_of_workers(
    args: Arguments, release: str, world: World, *, is_mla: bool
) -> None:
    """Check what workers build when the weights are loaded: for the target, then for the draft.

    Raises:
        Failed: SGLang's own ValueError or AssertionError, of a scheduler.
    """
    decode, prefill = args[DECODE] or args[BOTH], args[PREFILL] or args[BOTH]
    drafts = args["speculative_algorithm"] in DRAFTING
    draft = args[DRAFT] if drafts else None
    has_fa3 = world.vendor != "nvidia" or world.is_hopper
    takes_another = args["kv_cache_dtype"] == "fp8_e5m2"
    if is_mla and "trtllm_mha" in (decode, prefill):
        raise Failed(
            "ValueError", "trtllm_mha backend can only be used with non-MLA models.", WORKER
        )
    if not has_fa3 and (("fa3" in (decode, prefill) and not takes_another) or draft == "fa3"):
        raise Failed("AssertionError", FA3, WORKER)
    if not drafts:
        return
    if draft and draft not in read_names("sglang", release, "attention_backends"):
        raise Failed("ValueError", f"Invalid attention backend: {draft}", WORKER)
    known = read_names("sglang", release, "draft_attention_backends")
    decodes = draft or decode
    if decodes and decodes not in known and args["speculative_num_steps"] != 1:
        message = f"EAGLE is not supported in decode attention backend {decodes}"
        raise Failed("ValueError", message, WORKER)
    extends = draft or (decode if args["speculative_attention_mode"] == "decode" else prefill)
    if extends and extends not in known:
        raise Failed("ValueError", f"EAGLE is not supported in attention backend {extends}", WORKER)


def _refused_mha(args: Arguments, version: Version, *, is_hopper: bool) -> str:
    """What is said of trtllm_mha off Blackwell; empty where it runs."""
    if version < SINCE_ROLES:
        is_asked = "trtllm_mha" in (args[BOTH], args[PREFILL], args[DECODE])
        return OLD_MHA if is_asked else ""
    prefill, decode = args[PREFILL] or args[BOTH], args[DECODE] or args[BOTH]
    prefills_on_hopper = version >= SINCE_HOPPER_PREFILL
    if prefill == "trtllm_mha" and not (is_hopper and prefills_on_hopper):
        return NEW_PREFILL_MHA if prefills_on_hopper else PREFILL_MHA
    return DECODE_MHA if decode == "trtllm_mha" and not is_hopper else ""
