"""Rules about which checkpoint, accelerator, engine release and router go together."""

from __future__ import annotations

import re
from collections.abc import Iterator

from infra.catalog.schema import Checkpoint
from infra.checks.rule_releases import releases_of
from infra.checks.view import Finding, PlanView
from infra.engines.command_line import as_map
from infra.plan.process import Process
from infra.spec.stack import CLOUD_NAMES, CLOUDS

# Eagle3 drafts for Kimi load from vLLM 0.18.0 on (config/speculative.py@0.17.0, 0.18.0).
WITHOUT_EAGLE3 = releases_of("vllm", "vllm-ascend", before="0.18.0")
MOST_SHOWN = 300


def flags_known(view: PlanView) -> Iterator[Finding]:
    """The pinned release's parser accepts every word."""
    seen: set[tuple[str, str, str]] = set()
    for process in view.plan.processes:
        for word, reason in view.readings[process.id].unknown:
            key = (process.role, word, reason)
            if key in seen:
                continue
            seen.add(key)
            tool = view.plan.engine.name if process.kind == "engine" else process.argv[0]
            version = view.plan.engine.version if process.kind == "engine" else ""
            what = f"{tool} {version} rejects {_cut(word)}: {_cut(reason)}.".replace("  ", " ")
            name = _flag_named(word, reason)
            field = "router" if process.kind == "router" else f"roles.{process.role}.flags.{name}"
            fix = f"Flags of the release: infra/catalog/packages/{_catalogue(view, process)}.json."
            yield Finding(field=field, what=what, fix=fix, process=process.id)


def _cut(text: str) -> str:
    """A text as a message has room for it: its beginning and its end, which says why."""
    return (
        text
        if len(text) <= MOST_SHOWN
        else f"{text[: MOST_SHOWN // 2]} … {text[-MOST_SHOWN // 2 :]}"
    )


def _catalogue(view: PlanView, process: Process) -> str:
    """The stem of the file that has the flags of a process's program."""
    router = view.router_name(process) if process.kind == "router" else None
    own = view.catalog.router(router).flags_catalogue if router else None
    return own or view.release.flags_catalogue


def _flag_named(word: str, reason: str) -> str:
    """The flag that a rejection is about: of a wrong value the parser says whose it is."""
    named = re.match(r"argument (?:-\w+/)?--([^\s:,/=]+)", reason)
    return named[1] if named else word.partition("=")[0].lstrip("-")


def engine_runs_on_vendor(view: PlanView) -> Iterator[Finding]:
    """The engine's release runs on the vendor's chips."""
    for host in view.plan.hosts:
        vendor = view.accelerators[host.name].vendor
        if vendor not in view.release.vendors:
            what = f"{view.release.engine} does not run on {host.accelerator} ({vendor})."
            right = " or ".join(view.catalog.engines_for(vendor))
            yield Finding(field="engine.name", what=what, fix=f"Use {right} there.")
            return


def checkpoint_runs_on_accelerator(view: PlanView) -> Iterator[Finding]:
    """The accelerator's generation has kernels for the checkpoint's quantisation."""
    checkpoint = view.checkpoint
    if checkpoint is None:
        return
    for name in dict.fromkeys(host.accelerator for host in view.plan.hosts):
        accelerator = view.catalog.accelerator(name)
        if accelerator.generation not in checkpoint.generations:
            others = [
                other
                for other in view.catalog.ids("checkpoints")
                if (entry := view.catalog.checkpoint(other)).kind == "model"
                and accelerator.generation in entry.generations
            ]
            what = f"{checkpoint.id} ({checkpoint.quantization}) does not run on {name} ({accelerator.generation})."
            fix = (
                f"Use {' or '.join(others)} on {name}."
                if others
                else f"Use another accelerator than {name}."
            )
            yield Finding(field="checkpoint", what=what, fix=fix)


def cloud_rents_accelerator(view: PlanView) -> Iterator[Finding]:
    """On a cloud, every accelerator is one that the cloud rents."""
    cloud = CLOUDS.get(view.plan.platform)
    if cloud is None:
        return
    for name in dict.fromkeys(host.accelerator for host in view.plan.hosts):
        if cloud not in view.catalog.accelerator(name).instances:
            fix = "Set platform: existing-hosts and write an inventory."
            yield Finding(field="platform", what=f"{CLOUD_NAMES[cloud]} rents no {name}.", fix=fix)


def image_exists(view: PlanView) -> Iterator[Finding]:
    """The release has an image for every accelerator, unless it runs natively."""
    if view.plan.runtime == "native" or view.plan.engine.image:
        return
    names = ", ".join(dict.fromkeys(host.accelerator for host in view.plan.hosts))
    what = (
        f"{view.release.engine} {view.release.version} has no image for {names} in the catalogue."
    )
    yield Finding(field="engine.image", what=what, fix="Name one with engine.image.")


def one_image_for_all(view: PlanView) -> Iterator[Finding]:
    """All accelerators of a plan run one image, unless the stack names one itself."""
    if view.plan.runtime == "native":
        return
    images = {}
    for name in dict.fromkeys(host.accelerator for host in view.plan.hosts):
        image = next((i for i in view.release.images if name in i.accelerators), None)
        images[image.reference if image else ""] = name
    if len(images) > 1 and view.plan.engine.image in images:
        what = f"Roles need different images: {', '.join(sorted(images))}."
        yield Finding(
            field="roles", what=what, fix="Use accelerators of one image, or set engine.image."
        )


def router_speaks_engine(view: PlanView) -> Iterator[Finding]:
    """Each router knows the engines that it was written for."""
    engine, roles = view.release.engine, {process.role for process in view.engines}
    for router in view.routers:
        release = view.catalog.router_of(router.argv)
        if release is None:
            continue
        name = release.id
        right = " or ".join(other for other in view.catalog.routers_for(engine) if other != name)
        if engine not in release.engines:
            what = f"{name} does not speak to {engine}."
            yield Finding(field="router.name", what=what, fix=f"Use {right}.", process=router.id)
        elif name == "vllm-router" and "MooncakeConnectorV1" in {
            view.kv_config(process).get("kv_connector") for process in view.leaders
        }:
            what = "vllm-router waits for Mooncake's bootstrap server; vllm-ascend's connector has none."
            yield Finding(
                field="router.name", what=what, fix="Use ascend-proxy.", process=router.id
            )
        elif release.needs_disaggregation and "prefill" not in roles:
            what = f"{name} only serves prefill and decode."
            yield Finding(field="router.name", what=what, fix=f"Use {right}.", process=router.id)


def architectures_registered(view: PlanView) -> Iterator[Finding]:
    """The release registers the architecture of the checkpoint, and that of its draft."""
    known = view.catalog.package(view.release.flags_catalogue).models
    asked: list[tuple[str, Checkpoint | None, str | None]] = [("checkpoint", view.checkpoint, None)]
    asked += [("draft", view.draft(process), process.id) for process in view.variants]
    seen = set()
    for field, checkpoint, process in asked:
        if (
            checkpoint is None
            or checkpoint.architecture is None
            or checkpoint.id in seen
            or not known
        ):
            continue
        seen.add(checkpoint.id)
        if checkpoint.architecture not in known:
            release = f"{view.release.engine} {view.release.version}"
            what = f"{release} registers no {checkpoint.architecture}, which {checkpoint.id} is."
            fix = f"Use another {field}, or a later engine.version."
            yield Finding(field=field, what=what, fix=fix, process=process)


def draft_runs_on_accelerator(view: PlanView) -> Iterator[Finding]:
    """SGLang's speculation with Kimi's drafts runs on NVIDIA devices."""
    for process in view.variants:
        drafts = "speculative-draft-model-path" in view.flags(process)
        accelerator = view.accelerator(process)
        if drafts and accelerator.vendor == "amd":
            what = f"SGLang does not speculate with this draft on {accelerator.id} (AMD)."
            fix = "Remove draft."
            yield Finding(field="draft", what=what, fix=fix, process=process.id)


def draft_fits_checkpoint(view: PlanView) -> Iterator[Finding]:
    """A draft was trained for the checkpoint, and the release loads it; no draft serves by itself."""
    if view.checkpoint is not None and view.checkpoint.kind == "draft":
        models = [
            name
            for name in view.catalog.ids("checkpoints")
            if view.catalog.checkpoint(name).kind == "model"
        ]
        what = f"{view.checkpoint.id} is a draft: it cannot serve alone."
        fix = f"Write {' or '.join(models)}, and {view.checkpoint.id} under `draft:`."
        yield Finding(field="checkpoint", what=what, fix=fix)
        return
    for process in view.variants:
        config = as_map(view.flags(process).get("speculative-config"))
        path = str(
            config.get("model") or view.flags(process).get("speculative-draft-model-path") or ""
        )
        draft_id = path.split("/")[-2] if path.count("/") > 1 else ""
        if draft_id not in view.catalog.ids("checkpoints") or view.checkpoint is None:
            continue
        draft = view.catalog.checkpoint(draft_id)
        if draft.kind != "draft":
            what = f"{draft_id} is no draft: it is a model of its own."
            fix = "Use a draft of this checkpoint."
            yield Finding(field="draft.checkpoint", what=what, fix=fix, process=process.id)
            continue
        if draft.draft_of and view.checkpoint.id not in draft.draft_of:
            what = f"{draft_id} is a draft of {', '.join(draft.draft_of)}, not of {view.checkpoint.id}."
            yield Finding(
                field="draft.checkpoint",
                what=what,
                fix="Use a draft of this checkpoint.",
                process=process.id,
            )
        if draft.draft_method == "eagle3" and view.is_among(WITHOUT_EAGLE3):
            what = f"Eagle3 for Kimi needs vLLM 0.18.0 or later; this is {view.release.version}."
            yield Finding(
                field="draft",
                what=what,
                fix="Remove draft, or raise engine.version.",
                process=process.id,
            )
            return


def aiter_heads(view: PlanView) -> Iterator[Finding]:
    """AITER's MLA kernel takes 16 or 128 heads per device up to vLLM 0.17.1, multiples of 16 before SGLang 0.5.11."""
    shape = view.checkpoint.shape if view.checkpoint else None
    if shape is None:
        return
    for process in view.variants:
        if view.accelerators[process.host].vendor != "amd":
            continue
        tensor = view.attention_tensor(process)
        heads = shape.num_attention_heads // tensor
        uses_aiter = (
            process.env.get("VLLM_ROCM_USE_AITER") == "1"
            or view.size(process, "block-size", 16) == 1
        )
        if view.family == "vllm" and uses_aiter and heads not in {16, 128}:
            version = view.release.version
            what = f"TP={tensor} gives {heads} heads per device; AITER MLA of vLLM {version} takes 16 or 128."
            fix = "Use tensor_parallel: 4, or vLLM 0.18.0 or later."
            yield Finding(
                field=f"roles.{process.role}.tensor_parallel",
                what=what,
                fix=fix,
                process=process.id,
            )
        if view.family == "sglang" and heads % 16:
            what = (
                f"TP={tensor} gives {heads} heads per device; SGLang on AMD needs a multiple of 16."
            )
            fix = "Use tensor_parallel: 4 or less, data-parallel attention, or SGLang 0.5.11 or later."
            yield Finding(
                field=f"roles.{process.role}.tensor_parallel",
                what=what,
                fix=fix,
                process=process.id,
            )
