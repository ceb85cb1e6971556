"""What SGLang says of the attention back ends that are named: which there are, where they run, what they compute."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from infra.catalog.schema import Vendor
from infra.checks.rule_releases import Releases, releases_of
from infra.checks.view import Finding, PlanView
from infra.engines.command_line import as_int
from infra.plan.process import Process

BOTH, DECODE, PREFILL, DRAFT = (
    "attention-backend",
    "decode-attention-backend",
    "prefill-attention-backend",
    "speculative-draft-attention-backend",
)
ON_EVERY = releases_of("sglang")
BEFORE_10, SINCE_10 = releases_of("sglang", before="0.5.10"), releases_of("sglang", since="0.5.10")
SINCE_10_BEFORE_17 = releases_of("sglang", since="0.5.10", before="0.5.17")
SINCE_17 = releases_of("sglang", since="0.5.17")
# Algorithms whose draft model attends through srt/speculative/draft_utils.py; DFLASH and others choose for themselves.
DRAFTING = ("EAGLE", "EAGLE3", "NEXTN", "STANDALONE")
DEFAULT_MODE = "prefill"
# An architecture of 0.5.23 brings this one, and its draft never reaches the table of draft_utils.py.
BESIDE_THE_TABLE = "qsa"


class Limit(NamedTuple):
    """Where SGLang refuses an attention back end by the device.

    Args:
        backend: its name.
        releases: those that refuse it.
        asked: groups of flags without dashes; of each group the first that is given counts.
        generations: of the accelerators on which it runs.
        vendor: whose devices are judged; None for all.
        of_catalogue: whether models that are not in the catalogue are passed: SGLang replaces what some ask for.
    """

    backend: str
    releases: Releases
    asked: tuple[tuple[str, ...], ...]
    generations: tuple[str, ...]
    vendor: Vendor | None = None
    of_catalogue: bool = False


# Read in srt/server_args.py of 0.5.8 to 0.5.12, 0.5.14 and 0.5.16, arg_groups/overrides.py of 0.5.16 and 0.5.23 and
# arg_groups/attention_hook.py of 0.5.23. Between the last two nothing was read: what they differ in is not refused.
# fa3: layers/attention/attention_registry.py of the same releases, where AMD's capability 9.4 passes.
LIMITS = (
    Limit("trtllm_mla", ON_EVERY, ((BOTH,), (DECODE,)), ("blackwell",)),
    Limit("tokenspeed_mla", ON_EVERY, ((BOTH,), (DECODE,)), ("blackwell",)),
    Limit("cutedsl_mla", ON_EVERY, ((BOTH,), (DECODE,), (PREFILL,)), ("blackwell",)),
    Limit("trtllm_mha", BEFORE_10, ((BOTH,), (DECODE,), (PREFILL,)), ("blackwell",)),
    Limit("trtllm_mha", SINCE_10, ((DECODE, BOTH),), ("hopper", "blackwell")),
    Limit("trtllm_mha", SINCE_10_BEFORE_17, ((PREFILL, BOTH),), ("blackwell",)),
    Limit("trtllm_mha", SINCE_17, ((PREFILL, BOTH),), ("hopper", "blackwell")),
    Limit("fa3", ON_EVERY, ((DRAFT,),), ("hopper",), "nvidia"),
    Limit(
        "fa3",
        ON_EVERY,
        ((DECODE, BOTH), (PREFILL, BOTH)),
        ("hopper",),
        "nvidia",
        of_catalogue=True,
    ),
)
# With this cache SGLang takes another back end for fa3, and says so (_handle_attention_backend_compatibility).
CACHE_WITHOUT_FA3 = "fp8_e5m2"
# Refused where attention has latents, by attention_registry.py of 0.5.8 to 0.5.23 (the second from 0.5.23).
WITHOUT_LATENTS = ("trtllm_mha", "hpc_ops")


def draft_backend_registered(view: PlanView, process: Process) -> Iterator[Finding]:
    """What a draft attends through is a back end that the release drafts with."""
    package = view.catalog.package(view.release.flags_catalogue)
    registered = package.names("attention_backends")
    drafting = package.names("draft_attention_backends")
    flags = view.flags(process)
    if not _drafts(flags) or not drafting:
        return
    knows_model = _knows_model(view)
    if not knows_model and BESIDE_THE_TABLE in registered:
        drafting |= registered
    release = f"{view.release.engine} {view.release.version}"
    given = flags.get(DRAFT)
    if given is not None:
        asked = {DRAFT: given} if given not in drafting & registered else {}
    else:
        asked = dict(_inherited(flags)) if knows_model else {}
    for flag, name in asked.items():
        if "$" in str(name) or (flag != DRAFT and name in drafting):
            continue
        what = f"{release} does not draft with --{flag} {name}."
        usable = ", ".join(sorted(drafting & registered))
        yield _finding(process, flag, what, f"Set --{DRAFT} to one of {usable}.")


def backend_on_accelerator(view: PlanView, process: Process) -> Iterator[Finding]:
    """The back ends that are named have kernels for the accelerator, as far as SGLang says so before it serves."""
    accelerator, flags = view.accelerator(process), view.flags(process)
    found: dict[str, Finding] = {}
    for limit in LIMITS:
        if accelerator.generation in limit.generations or not _applies(limit, view, process):
            continue
        runs_on = " and ".join(name.capitalize() for name in limit.generations)
        own = f"{accelerator.id} is {accelerator.generation}"
        for group in limit.asked:
            flag = next((name for name in group if flags.get(name) is not None), group[-1])
            is_used = flag != DRAFT or _drafts(flags)
            if flags.get(flag) == limit.backend and is_used and flag not in found:
                what = f"--{flag} {limit.backend} runs on {runs_on} alone; {own}."
                found[flag] = _finding(process, flag, what, "Leave it out: the engine chooses.")
    yield from found.values()


def backend_for_model(view: PlanView, process: Process) -> Iterator[Finding]:
    """None of them is refused for a model whose attention has latents, as every shape of the catalogue has."""
    flags = view.flags(process)
    for flag in dict.fromkeys(_first_given(flags, own, BOTH) for own in (DECODE, PREFILL)):
        name = flags.get(flag)
        if name in WITHOUT_LATENTS and view.checkpoint is not None:
            model = f"{view.checkpoint.id} has multi-head latent attention"
            what = f"--{flag} {name} computes attention without latents; {model}."
            yield _finding(process, flag, what, "Leave it out: the engine chooses.")


def _applies(limit: Limit, view: PlanView, process: Process) -> bool:
    is_of_vendor = limit.vendor in (None, view.accelerator(process).vendor)
    if limit.of_catalogue and (
        not _knows_model(view) or view.flags(process).get("kv-cache-dtype") == CACHE_WITHOUT_FA3
    ):
        return False
    return is_of_vendor and view.is_among(limit.releases)


def _knows_model(view: PlanView) -> bool:
    return view.checkpoint is not None and view.checkpoint.shape is not None


def _drafts(flags: Mapping[str, object]) -> bool:
    return flags.get("speculative-algorithm") in DRAFTING


def _inherited(flags: Mapping[str, object]) -> Iterator[tuple[str, object]]:
    """(flag, name) of what a draft attends through where none is named for it: as the target decodes, and extends."""
    mode = flags.get("speculative-attention-mode", DEFAULT_MODE)
    several = as_int(flags.get("speculative-num-steps"), 0) != 1
    for own, is_used in ((DECODE, several), (PREFILL if mode == "prefill" else DECODE, True)):
        flag = _first_given(flags, own, BOTH)
        if is_used and flags.get(flag) is not None:
            yield flag, flags[flag]


def _first_given(flags: Mapping[str, object], own: str, common: str) -> str:
    return own if flags.get(own) is not None else common


def _finding(process: Process, flag: str, what: str, fix: str) -> Finding:
    return Finding(
        field=f"roles.{process.role}.flags.{flag}", what=what, fix=fix, process=process.id
    )
