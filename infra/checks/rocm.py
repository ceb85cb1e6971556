"""Rules about what vLLM's kernels for AMD do not bear."""

from __future__ import annotations

from collections.abc import Iterator

from infra.checks.attention_choice import chosen_backend, named_backend
from infra.checks.rule_releases import releases_of
from infra.checks.view import Finding, PlanView
from infra.engines.command_line import as_map
from infra.plan.process import Process

CRASHES = "cdna3"  # the crash that the AMD guide names is of MI300X and MI325X
VSKIP = "AITER_ENABLE_VSKIP"
# vLLM's switches of AITER's fused MoE, and what they are where they are not set (vllm envs.py@0.17.0, 0.22.1, 0.33.0).
FUSED_MOE = {"VLLM_ROCM_USE_AITER": "0", "VLLM_ROCM_USE_AITER_MOE": "1"}
# The guide is of this time; upstream's tests of offloading on ROCm cover FlashAttention alone.
UNTRIED_OFFLOADING = releases_of("vllm", before="0.18.0")
AITER_MLA = "ROCM_AITER_MLA"
# Connectors of vLLM that keep KV in the host's memory.
OFFLOADING = (
    "OffloadingConnector",
    "LMCacheConnectorV1",
    "LMCacheMPConnector",
    "SimpleCPUOffloadConnector",
)


def aiter_without_vskip(view: PlanView) -> Iterator[Finding]:
    """On MI300X and MI325X, AITER's fused MoE runs without VSKIP: on is its default, and crashes starts."""
    for process in view.variants:
        accelerator = view.accelerator(process)
        has_moe = all(_is_on(process, name, default) for name, default in FUSED_MOE.items())
        if accelerator.generation != CRASHES or not has_moe or process.env.get(VSKIP) == "0":
            continue
        value = process.env.get(VSKIP)
        if value is not None and "$" in value:
            continue  # a shell fills it in
        said = f"{VSKIP} is {value}" if value is not None else f"{VSKIP} is not set, which means on"
        what = (
            f"{said}: AITER's fused MoE, which VLLM_ROCM_USE_AITER turns on, then crashes at start "
        )
        what += f"on {accelerator.id}."
        field = f"roles.{process.role}.env.{VSKIP}"
        fix = f'Add env: {{{VSKIP}: "0"}}.'
        yield Finding(field=field, what=what, fix=fix, process=process.id)


def offloading_tried(view: PlanView) -> Iterator[Finding]:
    """KV of latent attention stays on the devices, where nobody has shown that its offloading works on AMD."""
    if view.checkpoint is None or view.checkpoint.shape is None:
        return  # a shape is always one of latent attention
    for process in view.variants:
        asked = _offloading(view, process)
        if asked is None or view.accelerator(process).vendor != "amd":
            continue
        release = f"{view.release.engine} {view.release.version}"
        what = f"--{asked} moves the KV of {view.checkpoint.id} to the host, which the AMD guide calls impossible with "
        what += f"its latent attention; {release} starts with it, and is untried."
        field = f"roles.{process.role}.flags.{asked}"
        yield Finding(field=field, what=what, fix="Remove it.", process=process.id)


def fp8_cache_tried(view: PlanView) -> Iterator[Finding]:
    """FP8 KV is not asked of AITER's latent attention before its class names the type, for nothing compares them."""
    known = view.catalog.package(view.release.flags_catalogue).attention_backends
    for process in view.variants:
        if view.accelerator(process).vendor != "amd":
            continue
        choice = chosen_backend(view, process)
        name = named_backend(view, process) or (choice.name if choice else "")
        dtype = str(view.flags(process).get("kv-cache-dtype") or "auto")
        backend = known.get(name)
        if name != AITER_MLA or not dtype.startswith("fp8") or backend is None:
            continue
        if dtype in (backend.kv_cache_dtypes or ()):
            continue
        release = f"{view.release.engine} {view.release.version}"
        what = f"{name} of {release} does not name {dtype} among the KV types that it reads, and the AMD guide "
        what += "calls FP8 KV unsupported."
        field = f"roles.{process.role}.flags.kv-cache-dtype"
        fix = "Leave it out, or take vLLM 0.18.0 or later."
        yield Finding(field=field, what=what, fix=fix, process=process.id)


def _offloading(view: PlanView, process: Process) -> str | None:
    """The flag that asks for KV in the host's memory; None without any."""
    if view.flags(process).get("kv-offloading-size"):
        return "kv-offloading-size"
    config = view.kv_config(process)
    inner = view.kv_extra(process).get("connectors")
    rows = [config, *map(as_map, inner if isinstance(inner, list) else [])]
    has_one = any(row.get("kv_connector") in OFFLOADING for row in rows)
    return "kv-transfer-config" if has_one else None


def _is_on(process: Process, name: str, default: str) -> bool:
    return process.env.get(name, default).lower() in ("1", "true")
