"""Rules about the attention back end that a command line asks for by name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from infra.catalog.packages import AttentionBackend
from infra.catalog.schema import Accelerator
from infra.checks import sglang_attention
from infra.checks.attention_choice import (
    NO_BLOCKS,
    NO_HOPPER,
    NO_KV_DTYPE,
    PLATFORMS,
    ROCM_COMPARES_NOTHING,
    Choice,
    chosen_backend,
    named_backend,
    objections,
)
from infra.checks.view import Finding, PlanView
from infra.engines.command_line import as_map
from infra.plan.process import Process

MLA_PREFILL = "mla_prefill_backend"


class Asked(NamedTuple):
    """An attention back end that a vLLM process asks for.

    Args:
        flag: with dashes.
        words: the flag, or the key in it, and the name as a finding has them.
        name: in capitals.
        known: the release's back ends of the kind.
    """

    flag: str
    words: str
    name: str
    known: Mapping[str, AttentionBackend]

    @property
    def backend(self) -> AttentionBackend | None:
        """What the release knows of it; None where it has none of this name."""
        return self.known.get(self.name)


def backend_registered(view: PlanView) -> Iterator[Finding]:
    """The attention back end is one that the release registers with a class, or drafts with; vLLM's in any case."""
    for process in view.variants:
        if view.family == "sglang":
            yield from sglang_attention.draft_backend_registered(view, process)
        for asked in _asked(view, process):
            if not asked.known:
                continue
            if asked.backend is None:
                what = f"{_release(view)} has no {asked.words}."
            elif asked.backend.is_tag:
                what = f"{asked.words} of {_release(view)} is a tag of vision encoders: no class serves text."
            else:
                continue
            usable = sorted(name for name, backend in asked.known.items() if not backend.is_tag)
            fix = f"Use one of {', '.join(usable)}, or leave it out."
            yield _finding(process, asked.flag, what, fix)


def backend_on_accelerator(view: PlanView) -> Iterator[Finding]:
    """The attention back end has kernels for the accelerator, as far as the release's own code says so."""
    for process in view.variants:
        if view.family == "sglang":
            yield from sglang_attention.backend_on_accelerator(view, process)
            continue
        accelerator = view.accelerator(process)
        platform = PLATFORMS.get(accelerator.vendor)
        for asked in _asked(view, process):
            backend = asked.backend
            if backend is None or platform is None:
                continue
            limits = backend.capabilities
            is_elsewhere = bool(backend.platforms) and platform not in backend.platforms
            if is_elsewhere and (platform == "cuda" or limits is not None):
                others = " and ".join(backend.platforms)
                what = f"{asked.words} is for {others}; {accelerator.id} is {accelerator.vendor}."
            elif platform == "cuda" and limits is not None and _lacks(limits, accelerator):
                what = (
                    f"{asked.words} runs on compute capability {' and '.join(limits)}; "
                    f"{accelerator.id} has {accelerator.compute_capability}."
                )
            else:
                continue
            yield _finding(process, asked.flag, what, _fitting(view, process, asked))


def backend_for_model(view: PlanView) -> Iterator[Finding]:
    """The attention back end computes the kind of attention that the model has."""
    if view.checkpoint is None or view.checkpoint.shape is None:
        return  # a shape is always one of dense multi-head latent attention
    for process in view.variants:
        if view.family == "sglang":
            yield from sglang_attention.backend_for_model(view, process)
        for asked in _asked(view, process):
            backend = asked.backend
            if (
                backend is None
                or backend.is_mla is None
                or (backend.is_mla and not backend.is_sparse)
            ):
                continue
            kind = "sparse attention" if backend.is_sparse else "attention without latents"
            what = f"{asked.words} computes {kind}; {view.checkpoint.id} has dense multi-head latent attention."
            yield _finding(process, asked.flag, what, _fitting(view, process, asked))


def backend_takes_settings(view: PlanView) -> Iterator[Finding]:
    """The attention back end, asked for or taken by vLLM itself, takes the KV blocks, the KV type, decode contexts."""
    for process in view.variants:
        if view.accelerator(process).vendor not in PLATFORMS:
            continue
        name = named_backend(view, process)
        backend = _dense_backends(view).get(name)
        if backend is not None:
            yield from _refused_when_named(view, process, name, backend)
        choice = chosen_backend(view, process)
        if choice is not None and not choice.name:
            yield _nothing_left(view, process, choice)
        served_by = name or (choice.name if choice else "")
        yield from _without_log_sum_exp(view, process, served_by)
        yield from _fp8_in_old_triton(view, process, served_by)


def _nothing_left(view: PlanView, process: Process, choice: Choice) -> Finding:
    """Settings that every back end objects to which vLLM would take by itself."""
    flags = view.flags(process)
    is_of_blocks = any(NO_BLOCKS in why for why in choice.passed_over.values())
    flag = "--block-size" if is_of_blocks else "--kv-cache-dtype"
    against = "; ".join(f"{name}: {', '.join(why)}" for name, why in choice.passed_over.items())
    asked = f"{flag} {flags.get(flag.lstrip('-'), 'auto')}"
    what = f"{_release(view)} has no attention back end for {asked} ({choice.why}): {against}."
    return _finding(process, flag, what, f"Leave {flag} to the engine.")


def _refused_when_named(
    view: PlanView, process: Process, name: str, backend: AttentionBackend
) -> Iterator[Finding]:
    """What the settings of a process ask of the back end that it names."""
    flags, asked = view.flags(process), f"--attention-backend {name}"
    against = objections(view, process, name)
    if NO_KV_DTYPE in against:
        what = f"{asked} does not read --kv-cache-dtype {flags.get('kv-cache-dtype', 'auto')}."
        fix = f"Use one of {', '.join(backend.kv_cache_dtypes or ())}, or leave the back end to the engine."
        yield _finding(process, "--kv-cache-dtype", what, fix)
    if NO_BLOCKS in against:
        what = f"{asked} does not take --block-size {flags.get('block-size')}: it is no multiple of {_blocks(backend)}."
        fix = f"Use a multiple of {_blocks(backend)}, or leave one of the two to the engine."
        yield _finding(process, "--block-size", what, fix)
    if NO_HOPPER in against:
        what = f"{asked} computes dense attention on Hopper alone; {view.accelerator(process).id} is none."
        yield _finding(process, "--attention-backend", what, "Leave it out: the engine chooses.")


def _fp8_in_old_triton(view: PlanView, process: Process, name: str) -> Iterator[Finding]:
    """FP8 KV on Triton's latent attention, where ROCm holds no KV type against a back end: no worker starts."""
    dtype = str(view.flags(process).get("kv-cache-dtype") or "auto")
    is_rocm = view.accelerator(process).vendor == "amd" and view.is_among(ROCM_COMPARES_NOTHING)
    if name == "TRITON_MLA" and is_rocm and dtype.startswith("fp8"):
        block = view.flags(process).get("block-size", "auto")
        why = (
            "asked for as attention-backend"
            if named_backend(view, process)
            else f"taken with --block-size {block}"
        )
        what = f"{name} of {_release(view)}, {why}, has no FP8 KV cache: "
        what += f"with --kv-cache-dtype {dtype} no worker starts."
        fix = "Leave it out, or take vLLM 0.18.0 or later, whose TRITON_MLA reads it."
        yield _finding(process, "--kv-cache-dtype", what, fix)


def _without_log_sum_exp(view: PlanView, process: Process, name: str) -> Iterator[Finding]:
    """Decode contexts on a back end that gives no log-sum-exp: no worker starts."""
    contexts = view.size(process, "decode-context-parallel-size")
    backend = _dense_backends(view).get(name)
    if contexts <= 1 or backend is None or backend.returns_lse or not backend.impl:
        return
    platform = PLATFORMS[view.accelerator(process).vendor]
    others = [
        f"{other} (a multiple of {_blocks(row)} as block-size)"
        for other, row in sorted(_dense_backends(view).items())
        if row.returns_lse
        and platform in row.platforms
        and set(objections(view, process, other)) <= {NO_BLOCKS}
    ]
    what = (
        f"--decode-context-parallel-size {contexts} needs a log-sum-exp of decode, which {name} of {_release(view)} "
        f"({backend.impl}) does not give: no worker starts."
    )
    instead = f", or ask for {' or '.join(others)} as attention-backend" if others else ""
    field = f"roles.{process.role}.decode_context_parallel"
    yield Finding(field=field, what=what, fix=f"Use 1{instead}.", process=process.id)


def _blocks(backend: AttentionBackend) -> str:
    return " or ".join(str(size) for size in backend.block_sizes or (1,))


def _dense_backends(view: PlanView) -> Mapping[str, AttentionBackend]:
    """The release's back ends of dense multi-head latent attention."""
    known = view.catalog.package(view.release.flags_catalogue).attention_backends
    return {name: row for name, row in known.items() if row.is_mla and not row.is_sparse}


def _asked(view: PlanView, process: Process) -> Iterator[Asked]:
    """What a vLLM process asks for; nothing where it is left to the engine.

    What multi-head latent attention prefills with is asked by nothing but a model that has it.
    """
    if view.family != "vllm":
        return
    flags, package = view.flags(process), view.catalog.package(view.release.flags_catalogue)
    config = as_map(flags.get("attention-config"))
    has_latents = view.checkpoint is not None and view.checkpoint.shape is not None
    prefills = package.mla_prefill_backends if has_latents else {}
    for flag, key, value, known in (
        ("--attention-backend", "", flags.get("attention-backend"), package.attention_backends),
        ("--attention-config", "", config.get("backend"), package.attention_backends),
        ("--attention-config", f" {MLA_PREFILL}", config.get(MLA_PREFILL), prefills),
    ):
        if isinstance(value, str) and "$" not in value and (key or value.lower() != "auto"):
            name = value.upper()
            yield Asked(flag, f"{flag}{key} {name}", name, known)


def _lacks(limits: tuple[str, ...], accelerator: Accelerator) -> bool:
    capability = accelerator.compute_capability
    return capability is not None and capability not in limits


def _fitting(view: PlanView, process: Process, asked: Asked) -> str:
    """What to write instead: the release's back ends of the kind that no rule here finds fault with."""
    accelerator = view.accelerator(process)
    platform = PLATFORMS.get(accelerator.vendor, "")
    is_prefill = MLA_PREFILL in asked.words
    wants_mla = view.checkpoint is not None and view.checkpoint.shape is not None
    fitting = sorted(
        name
        for name, backend in asked.known.items()
        if platform in backend.platforms
        and not backend.is_tag
        and not (backend.capabilities is not None and _lacks(backend.capabilities, accelerator))
        and (is_prefill or not (wants_mla and (backend.is_sparse or backend.is_mla is not True)))
    )
    return f"Leave it out: the engine chooses. Otherwise use one of {', '.join(fitting)}."


def _release(view: PlanView) -> str:
    return f"{view.release.engine} {view.release.version}"


def _finding(process: Process, flag: str, what: str, fix: str) -> Finding:
    field = f"roles.{process.role}.flags.{flag.lstrip('-')}"
    return Finding(field=field, what=what, fix=fix, process=process.id)
