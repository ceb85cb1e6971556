"""Builds and checks the configuration of ``vllm serve``, in vLLM's own order."""

from __future__ import annotations

import os
from functools import cache

from . import ascend_config, catalogue, kv_transfer, memory, parallel
from .catalogue import JsonFields
from .checkpoint import Checkpoint, check_architecture, read_checkpoint
from .combinations import Look, check_combinations, settings_of
from .command_line import Arguments, Grammar
from .environment import check_internal_port, check_names, check_values, is_on, read_addresses
from .failures import Failed, Refused, in_class, invalid
from .json_fields import UnknownGraphMode, validation_error
from .nixl_hash import compatibility_hash
from .registered_names import (
    check_chat_template,
    check_mla_prefill,
    check_quantization_method,
    check_registered,
)
from .settings import Features, Release, Settings
from .value_checks import (
    check_batches,
    check_configuration_file,
    check_draft_tokens,
    check_executor,
    check_graph_sizes,
    check_memory_share,
    check_model_values,
    check_optimisation,
)
from .vllm_arguments import rewrite
from .vllm_attention import Wanted, attention_backend, uses_aiter
from .world import World

USAGE = "usage: vllm serve [model_tag] [options]\n"
TOP_USAGE = "usage: vllm [-h] [-v]\n            {chat,complete,serve,launch,bench,collect-env,run-batch} ...\n"
# vllm/config/speculative.py@0.17.0; 0.18.0 added deepseek_v2, deepseek_v3, kimi_k2, kimi_k25.
EAGLE3_TYPES = [
    "llama",
    "qwen",
    "minicpm",
    "gpt_oss",
    "hunyuan_vl",
    "hunyuan_v1_dense",
    "afmoe",
    "nemotron_h",
]
MOST_AITER_HEADS = 128


def parse_arguments(argv: list[str], release: Release) -> tuple[Arguments, list[str]]:
    """Parse what follows ``vllm serve``; also return vLLM's warnings.

    Raises:
        Refused: argparse's verdict.
        Failed: an error that vLLM raises while it parses.
    """
    version = release.numbers
    grammar, fields = _grammar(catalogue.catalogue_folder(), release.version)
    check_configuration_file(argv)
    rewritten = rewrite(argv, has_number_suffixes=version >= (0, 20))
    try:
        args, unknown = grammar.parse(rewritten.argv)
    except UnknownGraphMode as error:
        raise Failed("KeyError", repr(str(error)), process="") from error
    if unknown:
        raise Refused(TOP_USAGE, "vllm", f"unrecognized arguments: {' '.join(unknown)}")
    if args["enable_auto_tool_choice"] and not args["tool_call_parser"]:
        message = "Error: --enable-auto-tool-choice requires --tool-call-parser"
        raise Failed("TypeError", message, process="")
    check_chat_template(args["chat_template"])
    speculation = args["speculative_config"]
    if isinstance(speculation, dict):
        problem = validation_error("SpeculativeConfig", speculation, fields.classes)
        if problem is not None:
            raise Failed("pydantic_core._pydantic_core.ValidationError", problem)
    return args, rewritten.warnings


@cache
def _grammar(_folder: str, version: str) -> tuple[Grammar, JsonFields]:
    """What a release in the catalogue's folder understands."""
    fields = catalogue.read_fields(version)
    flags = catalogue.read_flags("vllm", version)
    return Grammar(flags, fields, program="vllm serve", usage=USAGE), fields


def configure(
    args: Arguments, release: Release, world: World, environ: dict[str, str]
) -> tuple[Settings, list[str]]:
    """Return the settings of this process and vLLM's warnings.

    Raises:
        Failed: vLLM or the plugin refuses the configuration.
    """
    version = release.numbers
    if release.engine == "vllm-ascend":
        args = ascend_config.without_overlap(args, version)
    warnings = check_names(
        environ,
        _known_variables(release),
        is_strict=bool(args["fail_on_environ_validation"]),
    )
    check_internal_port(environ, has_ranks=int(args["data_parallel_size"]) > 1)
    _, fields = _grammar(catalogue.catalogue_folder(), release.version)
    check_registered(args, fields, release)
    _check_vendor(release, world)
    check_model_values(args)
    model = args["model_tag"] or args["model"] or "Qwen/Qwen3-0.6B"
    checkpoint = read_checkpoint(model, environ)
    if release.engine == "vllm":
        check_architecture(checkpoint, catalogue.read_architectures(release.version))
    _check_quantization(args, release, checkpoint, world)
    max_model_len = _max_model_len(args, checkpoint, environ)
    place = parallel.resolve(args, version, is_moe=checkpoint.num_experts > 0, world=world)
    _check_swap_space(args, version, world)
    check_memory_share(args)
    _check_speculation(args, version, checkpoint)
    check_batches(args, max_model_len)
    _check_heads(args, version, checkpoint, world, environ)
    parallel.check_microbatching(args)
    kv = kv_transfer.read_kv_transfer(args, fields, _known_connectors(release))
    check_graph_sizes(args)
    check_optimisation(args)
    check_executor(args)
    ascend_config.check_additional(args)
    look = settings_of(args, environ, checkpoint)
    check_combinations("vllm", release.engine, version, look)
    if release.engine == "vllm-ascend":
        view = ascend_config.View(args, place, kv, checkpoint, environ)
        warnings += _check_plugin(view, release, look)
    check_mla_prefill(args, fields, checkpoint, world)
    check_values(environ, catalogue.read_variable_readers(release.version))
    wanted = Wanted(args, version, fields.attention_backends, world, environ)
    agreed = compatibility_hash(args, release, checkpoint, attention_backend(wanted, checkpoint))
    return _settings(
        args, release, (checkpoint, place, kv, max_model_len, agreed), world, environ
    ), warnings


def _check_plugin(view: ascend_config.View, release: Release, look: Look) -> list[str]:
    """The plugin's platform is asked while VllmConfig is built; return its warnings."""
    ascend_config.check_quantization(view.args, view.checkpoint)
    keys = catalogue.read_additional_keys(release.plugin)
    try:
        warnings = ascend_config.check_ascend(view, release.plugin, keys)
        plugin = ascend_config.plugin_version(release.plugin)
        check_combinations("vllm-ascend", release.engine, plugin, look)
    except Failed as failure:
        raise in_class("VllmConfig", failure) from failure
    return warnings


def fit(settings: Settings, args: Arguments, world: World) -> Settings:
    """Return the settings with the size of the KV cache.

    Raises:
        Failed: the weights or one full request do not fit.
    """
    demand = memory.Demand(
        utilisation=settings.utilisation,
        max_model_len=settings.max_model_len,
        is_fitted=args["max_model_len"] == -1,  # v1/core/kv_cache_utils.py, 0.17.0 and later
        cache_dtype=settings.cache_dtype,
        draft_bytes=_draft_bytes(args),
        explicit_kv_bytes=args["kv_cache_memory_bytes"],
    )
    place = settings.parallel
    share = memory.Share(place.tensor, place.pipeline, place.experts_share, place.context)
    tokens = memory.kv_tokens(world, settings.checkpoint, share, demand)
    longest = min(settings.max_model_len, tokens) if demand.is_fitted else settings.max_model_len
    return settings._replace(kv_tokens=tokens, max_model_len=longest)


def _known_variables(release: Release) -> frozenset[str]:
    known = catalogue.read_variables("vllm", release.version)
    if release.engine == "vllm-ascend":
        known |= catalogue.read_variables("vllm-ascend", release.plugin)
    return known


def _known_connectors(release: Release) -> frozenset[str]:
    known = catalogue.read_names("vllm", release.version, "kv_connectors")
    if release.engine == "vllm-ascend":
        known |= catalogue.read_names("vllm-ascend", release.plugin, "kv_connectors")
    return known


def _check_vendor(release: Release, world: World) -> None:
    if (release.engine == "vllm-ascend") != (world.vendor == "ascend"):
        raise Failed(
            "RuntimeError",
            "Failed to infer device type, please set the environment variable "
            "`VLLM_LOGGING_LEVEL=DEBUG` to turn on verbose logging to help debug the issue.",
            process="",
        )


def _check_quantization(
    args: Arguments, release: Release, checkpoint: Checkpoint, world: World
) -> None:
    method = args["quantization"] or checkpoint.quantization
    if (
        args["quantization"]
        and checkpoint.quantization not in (None, "modelopt_fp4")  # that is any of its maker's
        and args["quantization"] not in (checkpoint.quantization, "gguf")
    ):
        raise invalid(
            "ModelConfig",
            "Quantization method specified in the model config "
            f"({checkpoint.quantization}) does not match the quantization method specified in the "
            f"`quantization` argument ({args['quantization']}).",
        )
    _, fields = _grammar(catalogue.catalogue_folder(), release.version)
    check_quantization_method(method, fields, release)
    is_fp4 = "modelopt_fp4" in (method, checkpoint.quantization)
    if is_fp4 and not world.is_blackwell and world.vendor != "ascend":
        raise Failed(
            "RuntimeError",
            "FlashInfer kernels unavailable for ModelOptNvFp4FusedMoE on current platform: NVFP4 "
            f"weights need a Blackwell device, this is {world.accelerator}.",
            process="EngineCore",
        )


def _max_model_len(args: Arguments, checkpoint: Checkpoint, environ: dict[str, str]) -> int:
    wanted = args["max_model_len"]
    if wanted is None or wanted == -1:
        return checkpoint.max_position
    if wanted > checkpoint.max_position and not is_on(environ, "VLLM_ALLOW_LONG_MAX_MODEL_LEN"):
        raise invalid(
            "ModelConfig",
            f"User-specified max_model_len ({wanted}) is greater than the derived max_model_len "
            f"(max_position_embeddings={float(checkpoint.max_position)} or model_max_length=None in model's "
            "config.json). To allow overriding this maximum, set the env var "
            "VLLM_ALLOW_LONG_MAX_MODEL_LEN=1. VLLM_ALLOW_LONG_MAX_MODEL_LEN must be used with extreme caution. If "
            "the model uses relative position encoding (RoPE), positions exceeding derived_max_model_len lead to "
            "nan. If the model uses absolute position encoding, positions exceeding derived_max_model_len will "
            "cause a CUDA array out-of-bounds error.",
        )
    return int(wanted)


def _check_swap_space(args: Arguments, version: parallel.Version, world: World) -> None:
    if version >= (0, 18) or args["swap_space"] is None or world.host_memory_gib is None:
        return
    wanted = float(args["swap_space"]) * int(args["tensor_parallel_size"])
    if wanted > 0.7 * world.host_memory_gib:
        raise invalid(
            "VllmConfig",
            f"Too large swap space. {wanted:.1f} GiB out of the {world.host_memory_gib:.2f} GiB total CPU "
            "memory is allocated for the swap space.",
        )


def _check_speculation(args: Arguments, version: parallel.Version, checkpoint: Checkpoint) -> None:
    config = args["speculative_config"]
    if not isinstance(config, dict):
        return
    tokens = config.get("num_speculative_tokens")
    if config.get("model") is None and config.get("method") not in (
        "ngram",
        "mtp",
        "dspark",
        "suffix",
        "ngram_gpu",
        "extract_hidden_states",
    ):
        raise invalid(
            "SpeculativeConfig",
            "num_speculative_tokens was provided but without speculative model.",
        )
    if config.get("model") and tokens is None:
        raise invalid(
            "SpeculativeConfig",
            "A speculative model was provided, but `num_speculative_tokens` was not provided",
        )
    if tokens is None and config.get("method") in ("ngram", "ngram_gpu"):
        raise invalid(
            "SpeculativeConfig",
            "num_speculative_tokens must be provided with speculative model unless the draft model config contains "
            "an n_predict parameter.",
        )
    check_draft_tokens(tokens)
    if config.get("model"):
        read_checkpoint(config["model"], dict(os.environ))
    is_kimi = not any(name in checkpoint.model_type for name in EAGLE3_TYPES)
    if config.get("method") == "eagle3" and version < (0, 18) and is_kimi:
        raise invalid(
            "SpeculativeConfig",
            f"eagle3 is only supported for {EAGLE3_TYPES} models. Got "
            f"self.target_model_config.hf_text_config.model_type={checkpoint.model_type!r}",
        )


def _draft_model(args: Arguments) -> str | None:
    config = args["speculative_config"]
    return config.get("model") if isinstance(config, dict) else None


def _check_heads(
    args: Arguments,
    version: parallel.Version,
    checkpoint: Checkpoint,
    world: World,
    environ: dict[str, str],
) -> None:
    heads, tensor = checkpoint.num_heads, int(args["tensor_parallel_size"])
    if heads % tensor:
        raise invalid(
            "SpeculativeConfig" if _draft_model(args) else "VllmConfig",
            f"Total number of attention heads ({heads}) must be divisible by tensor parallel size "
            f"({tensor}).",
        )
    if world.vendor != "amd" or not checkpoint.is_mla:
        return
    per_device = heads // tensor
    is_aiter = uses_aiter(args, version, environ)
    if version < (0, 18):
        is_supported = per_device in (16, 128)
    elif version < (0, 22):
        is_supported = per_device in (4, 8) or (
            per_device % 16 == 0 and per_device <= MOST_AITER_HEADS
        )
    else:
        is_supported = 16 % per_device == 0 or per_device % 16 == 0
    if is_aiter and not is_supported:
        raise Failed(
            "AssertionError",
            "Aiter MLA only supports 16 or 128 number of heads.\n"
            f"Provided {per_device} number of heads.\nTry adjusting tensor_parallel_size value.",
            process="EngineCore",
        )


def _settings(
    args: Arguments,
    release: Release,
    parts: tuple[Checkpoint, parallel.Parallel, kv_transfer.KvTransfer | None, int, str],
    world: World,
    environ: dict[str, str],
) -> Settings:
    checkpoint, place, kv, max_model_len, agreed = parts
    keys = args["api_key"] or ([environ["VLLM_API_KEY"]] if environ.get("VLLM_API_KEY") else [])
    names = args["served_model_name"] or [checkpoint.path]
    return Settings(
        release=release,
        checkpoint=checkpoint,
        served_names=tuple(names),
        host=args["host"] or "0.0.0.0",
        port=args["port"],
        supervisor_port=args["data_parallel_supervisor_port"]
        if place.mode == "multi-port"
        else None,
        parallel=place,
        addresses=read_addresses(environ, world.address),
        kv=kv,
        features=Features(
            tool_parser=args["tool_call_parser"],
            has_auto_tools=bool(args["enable_auto_tool_choice"]),
            reasoning_parser=args["reasoning_parser"] or None,
            has_images=checkpoint.has_vision and not args["language_model_only"],
            takes_templates=bool(args["trust_request_chat_template"]),
            api_keys=tuple(keys),
            has_metrics=not args["disable_log_stats"],
        ),
        max_model_len=max_model_len,
        utilisation=float(args["gpu_memory_utilization"]),
        cache_dtype=args["kv_cache_dtype"],
        block_size=int(args["block_size"] or (64 if checkpoint.is_mla else 16)),
        kv_tokens=0,
        compatibility_hash=agreed,
        shown={},
    )


def _draft_bytes(args: Arguments) -> int:
    model = _draft_model(args)
    return read_checkpoint(model, dict(os.environ)).total_bytes if model else 0
