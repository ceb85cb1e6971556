"""The attention back end that a vLLM process asks for, or that vLLM takes by itself, and what speaks against one.

Sources: vllm platforms/cuda.py, platforms/rocm.py, v1/attention/backend.py (`validate_configuration`),
v1/attention/ops/flashmla.py@0.17.0 to 0.33.0; what a back end takes is in the catalogue (`infra/catalog/packages/`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from infra.catalog.packages import AttentionBackend
from infra.catalog.schema import Accelerator, Vendor
from infra.checks.view import PlanView
from infra.engines.command_line import as_int, as_map
from infra.plan.process import Process

# vLLM's names of the platforms; its plugin for Ascend chooses a back end of its own, whatever is asked for.
PLATFORMS: Mapping[Vendor, str] = {"nvidia": "cuda", "amd": "rocm"}
# Dense multi-head latent attention, first choice first: of compute capability 10, of others, of ROCm with AITER.
ON_BLACKWELL = ("FLASHINFER_MLA", "CUTLASS_MLA", "FLASH_ATTN_MLA", "FLASHMLA", "TRITON_MLA")
ON_OTHERS = ("FLASH_ATTN_MLA", "FLASHMLA", "FLASHINFER_MLA", "TRITON_MLA")
WITH_AITER = ("ROCM_AITER_MLA", "TRITON_MLA", "ROCM_AITER_TRITON_MLA")
WITHOUT_AITER = ("TRITON_MLA",)
# Its class names Blackwell, too; its library computes dense attention on Hopper alone.
HOPPER_ALONE, HOPPER = "FLASHMLA", "9.0"
NO_BLOCKS, NO_KV_DTYPE, NO_HOPPER = (
    "block_size not supported",
    "kv_cache_dtype not supported",
    "FlashMLA Dense is only supported on Hopper devices.",
)
# From these releases on a block size that is asked for is held against the back end, and not the other way round.
BLOCKS_SINCE = {"cuda": (0, 18, 0), "rocm": (0, 20, 0)}
# Before, ROCm held nothing against a back end but blocks of one token.
ROCM_CHECKS_SINCE = (0, 18, 0)
# From this release on a back end without decode contexts is passed over; before, its workers fail.
CONTEXTS_SINCE = (0, 33, 0)
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
    accelerator, version = view.accelerator(process), view.version()
    platform = PLATFORMS[accelerator.vendor]
    backend = view.catalog.package(view.release.flags_catalogue).attention_backends[name]
    if platform == "rocm" and version < ROCM_CHECKS_SINCE:
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
    elif platform == "cuda" and name == HOPPER_ALONE and capability not in (None, HOPPER):
        found.append(NO_HOPPER)
    contexts = view.size(process, "decode-context-parallel-size")
    if version >= CONTEXTS_SINCE and contexts > 1 and not backend.returns_lse:
        found.append("DCP not supported")
    return tuple(found)


def _takes_kv_dtype(view: PlanView, process: Process, backend: AttentionBackend) -> bool:
    """Whether a back end reads the KV type that is asked for; yes where its class does not tell."""
    dtype = str(view.flags(process).get("kv-cache-dtype") or "auto")
    return backend.kv_cache_dtypes is None or "$" in dtype or dtype in backend.kv_cache_dtypes


def _takes_blocks(view: PlanView, process: Process, backend: AttentionBackend) -> bool:
    """Whether one of a back end's sizes divides the block that is asked for, where the release compares them."""
    block = as_int(view.flags(process).get("block-size"), 0)
    since = BLOCKS_SINCE[PLATFORMS[view.accelerator(process).vendor]]
    if block < 1 or backend.block_sizes is None or view.version() < since:
        return True
    return any(block % size == 0 for size in backend.block_sizes)


def _order(
    view: PlanView, process: Process, accelerator: Accelerator
) -> tuple[tuple[str, ...], str]:
    """The release's order of choice, and what it comes from."""
    if accelerator.vendor == "nvidia":
        is_blackwell = str(accelerator.compute_capability).startswith("10.")
        return (ON_BLACKWELL if is_blackwell else ON_OTHERS), f"on {accelerator.id}"
    found = {name: process.env.get(name, default) for name, default in AITER_SWITCHES.items()}
    is_on = all(value.lower() in ("1", "true") for value in found.values())
    why = ", ".join(f"{name}={value}" for name, value in found.items())
    is_single = as_int(view.flags(process).get("block-size"), 0) == 1
    if view.version() < ROCM_CHECKS_SINCE and is_single:
        return WITH_AITER, "with --block-size 1"
    return (WITH_AITER if is_on else WITHOUT_AITER), why
