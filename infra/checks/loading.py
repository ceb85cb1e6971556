"""Rules about how engines read their checkpoint from where it lies."""

from __future__ import annotations

from collections.abc import Iterator

from infra.checks.rule_releases import releases_of
from infra.checks.view import Finding, PlanView
from infra.spec.stack import EngineName

# Storage behind a network, where each page that a rank touches is a request of its own.
FAR = ("shared-mount", "fsx-lustre", "efs")
# From 0.20.0 vLLM reads files ahead by itself where the host's memory holds them: of NFS (vllm#37673), later of Lustre,
# too (vllm#39422, 2026-04).
MAPPING = releases_of("sglang") + releases_of("vllm", "vllm-ascend", before="0.20.0")
MAPPED_FORMATS = ("auto", "safetensors")
READS_AHEAD = "weight-loader-prefetch-checkpoints"
READS_WHOLE = "weight-loader-disable-mmap"
STRATEGY = "safetensors-load-strategy"
NAMES: dict[EngineName, str] = {"vllm": "vLLM", "vllm-ascend": "vLLM", "sglang": "SGLang"}


def far_weights_are_read_whole(view: PlanView) -> Iterator[Finding]:
    """Weights behind a network are read whole or ahead: files that are mapped come page by page."""
    spec = view.surroundings.spec
    storage = spec.weights.storage if spec is not None else None
    if storage not in FAR:
        return
    for process in view.leaders:
        flags = view.flags(process)
        if str(flags.get("load-format") or "auto") not in MAPPED_FORMATS:
            continue
        if view.family == "sglang":
            is_mapped = not (flags.get(READS_AHEAD) or flags.get(READS_WHOLE))
            known = view.catalog.flags(view.release.flags_catalogue).by_name
            word = f"{READS_AHEAD if READS_AHEAD in known else READS_WHOLE}: true"
        else:
            is_mapped = view.in_effect(process, STRATEGY) == "lazy"
            word = f"{STRATEGY}: eager"
        if is_mapped:
            what = f"{NAMES[view.release.engine]} maps the files of {storage}, and they come page by page."
            fix = f"Write roles.{process.role}.flags: {{{word}}}, where a host's memory holds the checkpoint."
            field = f"roles.{process.role}.flags.{word.partition(':')[0]}"
            yield Finding(field=field, what=what, fix=fix, process=process.id)
