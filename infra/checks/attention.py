"""Rules about the attention back end that a command line asks for by name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from infra.catalog.packages import AttentionBackend
from infra.catalog.schema import Accelerator, Vendor
from infra.checks import sglang_attention
from infra.checks.view import Finding, PlanView
from infra.engines.command_line import as_map
from infra.plan.process import Process

# vLLM's names of the platforms; its plugin for Ascend chooses a back end of its own, whatever is asked for.
PLATFORMS: Mapping[Vendor, str] = {"nvidia": "cuda", "amd": "rocm"}
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
        if view.release.engine != "vllm":
            continue  # the plugin for Ascend brings its own
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
