"""Rules about what JSON flags hold and which names the release registers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath

from infra.checks.view import Finding, PlanView
from infra.engines.json_values import value_problems
from infra.plan.process import Process

# By engine and the catalogue's word for a checkpoint's quantisation: what is taken for it where its config.json names
# the first (vllm config/model.py _verify_quantization@0.17.0, 0.22.1, run with each method, GGUF is read from another
# file; sglang srt/configs/model_config.py _verify_quantization@0.5.9, srt/layers/quantization/modelopt_quant.py).
OWN_METHODS: Mapping[tuple[str, str], tuple[str, ...]] = {
    ("vllm", "int4"): ("compressed-tensors", "gguf"),
    ("sglang", "int4"): ("compressed-tensors", "w8a8_int8", "w8a8_fp8"),
    ("sglang", "nvfp4"): ("modelopt_fp4", "modelopt", "modelopt_fp8", "petit_nvfp4"),
}
# What vLLM takes, whatever is asked for (ModelOptNvFp4Config.override_quantization_method@0.17.0, 0.22.1).
OVERRIDING: Mapping[str, tuple[str, ...]] = {"nvfp4": ("modelopt_fp4", "modelopt")}


def json_values_known(view: PlanView) -> Iterator[Finding]:
    """Keys and values inside JSON flags are ones that the release's configuration classes take."""
    if view.fields is None:
        return
    for process in view.variants:
        for name, value in view.flags(process).items():
            for path, reason in value_problems(name, value, view.fields):
                what = f"{view.plan.engine.name} {view.plan.engine.version} rejects --{path}: {reason}."
                fix = f"Fields of the release: infra/catalog/packages/{view.release.flags_catalogue}.json."
                field = f"roles.{process.role}.flags.{name}"
                yield Finding(field=field, what=what, fix=fix, process=process.id)


def parsers_registered(view: PlanView) -> Iterator[Finding]:
    """Tool and reasoning parsers are ones that the release registers; automatic tool choice has one."""
    if view.fields is None:
        return
    for process in view.variants:
        flags = view.flags(process)
        tool = flags.get("tool-call-parser")
        is_used = bool(flags.get("enable-auto-tool-choice"))
        if is_used and tool is None:
            what = "--enable-auto-tool-choice needs --tool-call-parser."
            fix = "Add it, or remove the former."
            field = f"roles.{process.role}.flags.tool-call-parser"
            yield Finding(field=field, what=what, fix=fix, process=process.id)
        yield from _unregistered(view, process, "reasoning-parser", view.fields.reasoning_parsers)
    for process in _calling_tools(view):
        yield from _unregistered(view, process, "tool-call-parser", view.fields.tool_call_parsers)


def _calling_tools(view: PlanView) -> Iterator[Process]:
    """One process of each role and tool parser that looks the parser up: a headless one does not."""
    seen: set[tuple[str, str]] = set()
    for process in view.where(lambda each: view.flags(each).get("enable-auto-tool-choice")):
        # as text: a hand-edited plan may have a map there
        key = (process.role, str(view.flags(process).get("tool-call-parser")))
        if key not in seen and view.answers_requests(process):
            seen.add(key)
            yield process


def _unregistered(
    view: PlanView, process: Process, name: str, known: frozenset[str]
) -> Iterator[Finding]:
    value = view.flags(process).get(name)
    if value is not None and str(value) not in known:
        what = f"{view.plan.engine.name} {view.plan.engine.version} has no {name} {value}."
        field = f"roles.{process.role}.flags.{name}"
        fix = f"Use one of {', '.join(sorted(known))}."
        yield Finding(field=field, what=what, fix=fix, process=process.id)


def quantization_registered(view: PlanView) -> Iterator[Finding]:
    """The quantisation method is one that the release registers and the checkpoint has; `ascend` is the plugin's."""
    kinds = view.fields.flag_kinds.get("quantization", ()) if view.fields else ()
    known = {kind.removeprefix("literal:") for kind in kinds if kind.startswith("literal:")}
    if view.release.engine == "vllm-ascend":
        known.add("ascend")
    for process in view.variants:
        method = view.flags(process).get("quantization")
        if method is not None and known and str(method) not in known:
            what = f"{view.release.engine} {view.release.version} knows no quantisation {method}."
            field = f"roles.{process.role}.flags.quantization"
            fix = "Leave it out (the checkpoint says which), or name one of the release's."
            yield Finding(field=field, what=what, fix=fix, process=process.id)
        else:
            yield from _other_than_checkpoint(view, process, method)


def _other_than_checkpoint(view: PlanView, process: Process, method: object) -> Iterator[Finding]:
    """A method that the checkpoint's own configuration contradicts."""
    quantization = view.checkpoint.quantization if view.checkpoint else ""
    named = OWN_METHODS.get((view.release.engine, quantization))
    if method is None or named is None or str(method) in named:
        return
    what = f"--quantization is {method}, and {view.plan.checkpoint} says {named[0]} of itself."
    field = f"roles.{process.role}.flags.quantization"
    fix = "Leave it out: the checkpoint says which."
    yield Finding(field=field, what=what, fix=fix, process=process.id)


def quantization_counts(view: PlanView) -> Iterator[Finding]:
    """A quantisation method that is asked for is the one that vLLM then uses: some checkpoints override every wish."""
    named = OVERRIDING.get(view.checkpoint.quantization, ()) if view.checkpoint else ()
    for process in view.variants if named else ():
        method = view.flags(process).get("quantization")
        if method is None or str(method) in (*named, "gguf"):
            continue
        what = f"--quantization {method} has no effect: {view.plan.checkpoint} says {named[0]} of itself, "
        what += "and vLLM takes that."
        fix = "Leave it out: the checkpoint says which."
        field = f"roles.{process.role}.flags.quantization"
        yield Finding(field=field, what=what, fix=fix, process=process.id)


def chat_template_exists(view: PlanView) -> Iterator[Finding]:
    """A chat template is a path; for SGLang also a built-in name, for vLLM also the template's own text.

    vLLM takes any file that exists, and those of its own folder: what may be one has a suffix or a slash.
    """
    names = view.release.chat_templates
    is_vllm = view.family == "vllm"
    for process in view.variants:
        value = str(view.flags(process).get("chat-template") or "")
        suffix = PurePosixPath(value).suffix
        is_path = "/" in value or (bool(suffix) if is_vllm else suffix in (".jinja", ".json"))
        is_text = is_vllm and any(mark in value for mark in "{}\n")
        if value and value not in names and not is_path and not is_text:
            release = f"{view.release.engine} {view.release.version}"
            what = f"Chat template {value} is neither built into {release} nor a path."
            fix = "Leave it out (the checkpoint brings its own), or write a path."
            field = f"roles.{process.role}.flags.chat-template"
            yield Finding(field=field, what=what, fix=fix, process=process.id)


def served_name_plain(view: PlanView) -> Iterator[Finding]:
    """SGLang's served model name has no colon: it separates a model from its adapter."""
    for process in view.variants:
        name = str(view.flags(process).get("served-model-name") or "")
        if ":" in name:
            what = f"The served model name {name} holds a colon, which SGLang keeps for adapters."
            field = f"roles.{process.role}.flags.served-model-name"
            yield Finding(field=field, what=what, fix="Use another name.", process=process.id)


def configuration_in_argv(view: PlanView) -> Iterator[Finding]:
    """What an engine is told stands on its command line: a file of settings is read by nobody here."""
    for process in view.variants:
        file = view.flags(process).get("config")
        if file is not None:
            what = f"--config {file} sets flags that no rule and no estimate sees."
            fix = "Write them as flags."
            field = f"roles.{process.role}.flags.config"
            yield Finding(field=field, what=what, fix=fix, process=process.id)
