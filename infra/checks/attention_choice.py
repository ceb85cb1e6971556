"""The attention back end that a vLLM process asks for, or that vLLM takes by itself, and what speaks against one.

Sources: vllm platforms/cuda.py, platforms/rocm.py, v1/attention/backend.py (`validate_configuration`),
v1/attention/ops/flashmla.py@0.17.0 to 0.33.0; what a back end takes is in the catalogue (`infra/catalog/packages/`), as
is the order in which they are tried (`infra/catalog/attention/`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from infra.catalog.attention_orders import attention_orders
from infra.catalog.packages import AttentionBackend
from infra.catalog.schema import Accelerator, Vendor
from infra.checks.rule_releases import releases_of
from infra.checks.view import PlanView
from infra.engines.command_line import as_int, as_map
from infra.plan.process import Process

# vLLM's names of the platforms; its plugin for Ascend chooses a back end of its own, whatever is asked for.
PLATFORMS: Mapping[Vendor, str] = {"nvidia": "cuda", "amd": "rocm"}
HOPPER = "9.0"  # compute capability
NO_BLOCKS, NO_KV_DTYPE, NO_HOPPER = (
    "block_size not supported",
    "kv_cache_dtype not supported",
    "FlashMLA Dense is only supported on Hopper devices.",
)
# Where a block size that is asked for is held against the back end, and not the other way round.
CUDA_COMPARES_BLOCKS = releases_of("vllm", since="0.18.0")
ROCM_COMPARES_BLOCKS = releases_of("vllm", since="0.20.0")
COMPARES_BLOCKS = {"cuda": CUDA_COMPARES_BLOCKS, "rocm": ROCM_COMPARES_BLOCKS}
# Where ROCm holds nothing against a back end but blocks of one token.
ROCM_COMPARES_NOTHING = releases_of("vllm", before="0.18.0")
# Where a back end without decode contexts is passed over; before, its workers fail.
PASSES_OVER_CONTEXTS = releases_of("vllm", since="0.33.0")
AITER_SWITCHES = {"VLLM_ROCM_USE_AITER": "0", "VLLM_ROCM_USE_AITER_MLA": "1"}


class Choice(NamedTuple):
    """What vLLM takes by itself.

    Args:
        name: in capitals; empty where nothing is left.
        why: what made it this one.
        passed_over: of those before it, or of all: name → what speaks against it.
    """

    name: str
    why: str
    passed_over: Mapping[str, tuple[str, ...]]


def named_backend(view: PlanView, process: Process) -> str:
    """The back end that a process asks for, in capitals; empty where it leaves that to vLLM."""
    flags = view.flags(process)
    value = flags.get("attention-backend") or as_map(flags.get("attention-config")).get("backend")
    name = str(value or "").upper()
    return "" if name == "AUTO" else name


def chosen_backend(view: PlanView, process: Process) -> Choice | None:
    """What vLLM takes by itself; None where one is asked for, or nobody knows."""
    accelerator = view.accelerator(process)
    known = view.catalog.package(view.release.flags_catalogue).attention_backends
    is_plain = view.checkpoint is not None and view.checkpoint.shape is not None
    if view.release.engine != "vllm" or not (known and is_plain) or named_backend(view, process):
        return None
    if accelerator.vendor not in PLATFORMS or "VLLM_BATCH_INVARIANT" in process.env:
        return None
    if any("$" in process.env.get(name, "") for name in AITER_SWITCHES):
        return None  # a shell fills it in
    order, why = _order(view, process, accelerator)
    passed_over: dict[str, tuple[str, ...]] = {}
    for name in order:
        backend = known.get(name)
        against = ("not registered",) if backend is None else objections(view, process, name)
        if not against:
            return Choice(name, why, passed_over)
        passed_over[name] = against
    return Choice("", why, passed_over)


def objections(view: PlanView, process: Process, name: str) -> tuple[str, ...]:
    """What speaks against a registered back end of dense latent attention, in vLLM's words; () where nothing does."""
    accelerator = view.accelerator(process)
    platform = PLATFORMS[accelerator.vendor]
    backend = view.catalog.package(view.release.flags_catalogue).attention_backends[name]
    if platform == "rocm" and view.is_among(ROCM_COMPARES_NOTHING):
        is_single = as_int(view.flags(process).get("block-size"), 0) == 1
        return (NO_BLOCKS,) if name == "TRITON_MLA" and is_single else ()
    found = []
    if not _takes_kv_dtype(view, process, backend):
        found.append(NO_KV_DTYPE)
    if not _takes_blocks(view, process, backend):
        found.append(NO_BLOCKS)
    capability, limits = accelerator.compute_capability, backend.capabilities
    if platform == "cuda" and limits is not None and capability not in (None, *limits):
        found.append("compute capability not supported")
    elif platform == "cuda" and capability not in (None, HOPPER):
        found += [NO_HOPPER] if name in attention_orders().dense_on_hopper_alone else []
    contexts = view.size(process, "decode-context-parallel-size")
    if contexts > 1 and not backend.returns_lse and view.is_among(PASSES_OVER_CONTEXTS):
        found.append("DCP not supported")
    return tuple(found)


def _takes_kv_dtype(view: PlanView, process: Process, backend: AttentionBackend) -> bool:
    """Whether a back end reads the KV type that is asked for; yes where its class does not tell."""
    dtype = str(view.flags(process).get("kv-cache-dtype") or "auto")
    return backend.kv_cache_dtypes is None or "$" in dtype or dtype in backend.kv_cache_dtypes


def _takes_blocks(view: PlanView, process: Process, backend: AttentionBackend) -> bool:
    """Whether one of a back end's sizes divides the block that is asked for, where the release compares them."""
    block = as_int(view.flags(process).get("block-size"), 0)
    comparing = COMPARES_BLOCKS[PLATFORMS[view.accelerator(process).vendor]]
    if block < 1 or backend.block_sizes is None or not view.is_among(comparing):
        return True
    return any(block % size == 0 for size in backend.block_sizes)


def _order(
    view: PlanView, process: Process, accelerator: Accelerator
) -> tuple[tuple[str, ...], str]:
    """The release's order of choice, and what it comes from."""
    orders = attention_orders().orders
    if accelerator.vendor == "nvidia":
        is_blackwell = str(accelerator.compute_capability).startswith("10.")
        return orders["blackwell" if is_blackwell else "cuda"], f"on {accelerator.id}"
    found = {name: process.env.get(name, default) for name, default in AITER_SWITCHES.items()}
    is_on = all(value.lower() in ("1", "true") for value in found.values())
    why = ", ".join(f"{name}={value}" for name, value in found.items())
    is_single = as_int(view.flags(process).get("block-size"), 0) == 1
    if is_single and view.is_among(ROCM_COMPARES_NOTHING):
        return orders["rocm-aiter"], "with --block-size 1"
    return orders["rocm-aiter" if is_on else "rocm"], why
