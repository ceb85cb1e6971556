"""Rules about the attention back end that a command line asks for by name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from infra.catalog.packages import AttentionBackend
from infra.catalog.schema import Accelerator, Vendor
from infra.checks.view import Finding, PlanView
from infra.engines.command_line import as_map
from infra.plan.process import Process

Version = tuple[int, int, int]
Releases = tuple[Version, Version | None]

# vLLM's names of the platforms; its plugin for Ascend chooses a back end of its own, whatever is asked for.
PLATFORMS: Mapping[Vendor, str] = {"nvidia": "cuda", "amd": "rocm"}
BOTH, DECODE, PREFILL = (
    "attention-backend",
    "decode-attention-backend",
    "prefill-attention-backend",
)
EVERY_RELEASE: Releases = ((0, 0, 0), None)


class Limit(NamedTuple):
    """Where SGLang refuses an attention back end before it loads anything.

    Args:
        backend: its name.
        releases: the first, and the first after them; None for no end.
        asked: groups of flags without dashes; of each group the first that is given counts.
        generations: of the accelerators on which it runs.
    """

    backend: str
    releases: Releases
    asked: tuple[tuple[str, ...], ...]
    generations: tuple[str, ...]


# Read in srt/server_args.py of 0.5.8 to 0.5.12, 0.5.14 and 0.5.16, arg_groups/overrides.py of 0.5.16 and 0.5.23 and
# arg_groups/attention_hook.py of 0.5.23. Between the last two nothing was read: what they differ in is not refused.
SGLANG_LIMITS = (
    Limit("trtllm_mla", EVERY_RELEASE, ((BOTH,), (DECODE,)), ("blackwell",)),
    Limit("tokenspeed_mla", EVERY_RELEASE, ((BOTH,), (DECODE,)), ("blackwell",)),
    Limit("cutedsl_mla", EVERY_RELEASE, ((BOTH,), (DECODE,), (PREFILL,)), ("blackwell",)),
    Limit("trtllm_mha", ((0, 0, 0), (0, 5, 10)), ((BOTH,), (DECODE,), (PREFILL,)), ("blackwell",)),
    Limit("trtllm_mha", ((0, 5, 10), None), ((DECODE, BOTH),), ("hopper", "blackwell")),
    Limit("trtllm_mha", ((0, 5, 10), (0, 5, 17)), ((PREFILL, BOTH),), ("blackwell",)),
    Limit("trtllm_mha", ((0, 5, 17), None), ((PREFILL, BOTH),), ("hopper", "blackwell")),
)


def backend_registered(view: PlanView) -> Iterator[Finding]:
    """VLLM's attention back end is one that the release registers with a class; names are read in any case."""
    known = _registered(view)
    usable = sorted(name for name, backend in known.items() if not backend.is_tag)
    for process in view.variants:
        for flag, name in _asked(view, process) if known else ():
            if name not in known:
                what = f"{_release(view)} has no {flag} {name}."
            elif known[name].is_tag:
                what = f"{flag} {name} of {_release(view)} is a tag of vision encoders: no class serves text."
            else:
                continue
            yield _finding(process, flag, what, f"Use one of {', '.join(usable)}, or leave it out.")


def backend_on_accelerator(view: PlanView) -> Iterator[Finding]:
    """The attention back end has kernels for the accelerator, as far as the release's own code says so."""
    for process in view.variants:
        if view.family == "sglang":
            yield from _sglang_on_accelerator(view, process)
            continue
        accelerator = view.accelerator(process)
        platform = PLATFORMS.get(accelerator.vendor)
        for flag, name in _asked(view, process):
            backend = _registered(view).get(name)
            if backend is None or platform is None:
                continue
            limits = backend.capabilities
            is_elsewhere = bool(backend.platforms) and platform not in backend.platforms
            if is_elsewhere and (platform == "cuda" or limits is not None):
                others = " and ".join(backend.platforms)
                what = f"{flag} {name} is for {others}; {accelerator.id} is {accelerator.vendor}."
            elif platform == "cuda" and limits is not None and _lacks(limits, accelerator):
                what = (
                    f"{flag} {name} runs on compute capability {' and '.join(limits)}; "
                    f"{accelerator.id} has {accelerator.compute_capability}."
                )
            else:
                continue
            yield _finding(process, flag, what, _fitting(view, process))


def backend_for_model(view: PlanView) -> Iterator[Finding]:
    """The attention back end computes the kind of attention that the model has."""
    if view.release.engine != "vllm" or view.checkpoint is None or view.checkpoint.shape is None:
        return  # the plugin for Ascend brings its own; a shape is always one of dense multi-head latent attention
    for process in view.variants:
        for flag, name in _asked(view, process):
            backend = _registered(view).get(name)
            if (
                backend is None
                or backend.is_mla is None
                or (backend.is_mla and not backend.is_sparse)
            ):
                continue
            kind = "sparse attention" if backend.is_sparse else "attention without latents"
            what = f"{flag} {name} computes {kind}; {view.checkpoint.id} has dense multi-head latent attention."
            yield _finding(process, flag, what, _fitting(view, process))


def _registered(view: PlanView) -> Mapping[str, AttentionBackend]:
    return view.catalog.package(view.release.flags_catalogue).attention_backends


def _asked(view: PlanView, process: Process) -> Iterator[tuple[str, str]]:
    """(flag with dashes, name in capitals) of what a vLLM process asks for; nothing where it is left to the engine."""
    if view.family != "vllm":
        return
    flags = view.flags(process)
    asked = {
        "attention-backend": flags.get("attention-backend"),
        "attention-config": as_map(flags.get("attention-config")).get("backend"),
    }
    for flag, value in asked.items():
        if isinstance(value, str) and value.lower() != "auto" and "$" not in value:
            yield f"--{flag}", value.upper()


def _lacks(limits: tuple[str, ...], accelerator: Accelerator) -> bool:
    capability = accelerator.compute_capability
    return capability is not None and capability not in limits


def _fitting(view: PlanView, process: Process) -> str:
    """What to write instead: the release's back ends that no rule here finds fault with."""
    accelerator = view.accelerator(process)
    platform = PLATFORMS.get(accelerator.vendor, "")
    wants_mla = view.checkpoint is not None and view.checkpoint.shape is not None
    fitting = sorted(
        name
        for name, backend in _registered(view).items()
        if platform in backend.platforms
        and not backend.is_tag
        and not (backend.capabilities is not None and _lacks(backend.capabilities, accelerator))
        and not (wants_mla and (backend.is_sparse or backend.is_mla is not True))
    )
    return f"Leave it out: the engine chooses. Otherwise use one of {', '.join(fitting)}."


def _sglang_on_accelerator(view: PlanView, process: Process) -> Iterator[Finding]:
    accelerator, flags, version = view.accelerator(process), view.flags(process), view.version()
    found: dict[str, Finding] = {}
    for limit in SGLANG_LIMITS:
        first, after = limit.releases
        if version < first or (after is not None and version >= after):
            continue
        if accelerator.generation in limit.generations:
            continue
        runs_on = " and ".join(name.capitalize() for name in limit.generations)
        own = f"{accelerator.id} is {accelerator.generation}"
        for group in limit.asked:
            flag = next((name for name in group if flags.get(name) is not None), group[-1])
            if flags.get(flag) == limit.backend and flag not in found:
                what = f"--{flag} {limit.backend} runs on {runs_on} alone; {own}."
                fix = "Leave it out: the engine chooses."
                found[flag] = _finding(process, f"--{flag}", what, fix)
    yield from found.values()


def _release(view: PlanView) -> str:
    return f"{view.release.engine} {view.release.version}"


def _finding(process: Process, flag: str, what: str, fix: str) -> Finding:
    field = f"roles.{process.role}.flags.{flag.lstrip('-')}"
    return Finding(field=field, what=what, fix=fix, process=process.id)
