"""What SGLang's ServerArgs say of attention back ends that have no kernels for the device."""

from __future__ import annotations

from .command_line import Arguments
from .failures import Failed
from .parallel import Version
from .world import BLACKWELL, World

HOPPER = frozenset({"h20", "h200"})
BOTH, PREFILL, DECODE = (
    "attention_backend",
    "prefill_attention_backend",
    "decode_attention_backend",
)
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
    if world.accelerator in BLACKWELL:
        return
    for name, places, text in BLACKWELL_ALONE:
        if any(args[place] == name for place in places):
            is_alias = name == "tokenspeed_mla" and version >= SINCE_ALIAS
            raise Failed("ValueError", CUTEDSL if is_alias else text, process="")
    text = _refused_mha(args, version, is_hopper=world.accelerator in HOPPER)
    if text:
        raise Failed("ValueError", text, process="")


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
