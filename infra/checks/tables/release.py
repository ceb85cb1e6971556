"""Rules about what the pinned release, its images and its accelerators take."""

from __future__ import annotations

from collections.abc import Mapping

from infra.checks import (
    attention,
    attention_choice,
    combinations,
    compatibility,
    pairing,
    recipes,
    rocm,
    settings,
    sglang,
    surroundings,
)
from infra.checks.rule_releases import releases_of
from infra.checks.view import Rule

RELEASE_RULES: Mapping[str, Rule] = {
    "unknown-flag": Rule(
        severity="error", source="infra/catalog/packages/", check=compatibility.flags_known
    ),
    "json-flag-value": Rule(
        severity="error",
        source="infra/catalog/packages/; vllm config/*.py",
        releases=releases_of("vllm", "vllm-ascend"),
        check=settings.json_values_known,
    ),
    "parser-name": Rule(
        severity="error",
        source="infra/catalog/packages/",
        releases=releases_of("vllm", "vllm-ascend"),
        check=settings.parsers_registered,
    ),
    "quantization-method": Rule(
        severity="error",
        source="infra/catalog/packages/; vllm config/model.py _verify_quantization@0.17.0, 0.22.1 (run); "
        "sglang srt/configs/model_config.py _verify_quantization@0.5.9",
        check=settings.quantization_registered,
    ),
    "quantization-ignored": Rule(
        severity="warning",
        source="vllm model_executor/layers/quantization/modelopt.py, config/model.py@0.17.0, 0.22.1",
        releases=releases_of("vllm"),
        check=settings.quantization_counts,
    ),
    "attention-backend": Rule(
        severity="error",
        source="infra/catalog/packages/; vllm config/attention.py@0.17.0, 0.21.0 to 0.33.0; "
        "sglang srt/speculative/draft_utils.py, srt/layers/attention/attention_registry.py@0.5.8 to 0.5.23",
        check=attention.backend_registered,
    ),
    "attention-accelerator": Rule(
        severity="error",
        source="infra/catalog/packages/; vllm platforms/, v1/attention/backends/ (mla/prefill/ from 0.21.0); "
        "sglang srt/server_args.py@0.5.8 to 0.5.16, srt/arg_groups/attention_hook.py@0.5.23, "
        "srt/layers/attention/attention_registry.py@0.5.8 to 0.5.23",
        releases=releases_of("vllm", "sglang"),
        check=attention.backend_on_accelerator,
    ),
    "attention-model": Rule(
        severity="error",
        source="infra/catalog/packages/; vllm v1/attention/backend.py validate_configuration@0.17.0, 0.22.1; "
        "sglang srt/layers/attention/attention_registry.py@0.5.8 to 0.5.23",
        releases=releases_of("vllm", "sglang"),
        check=attention.backend_for_model,
    ),
    "attention-settings": Rule(
        severity="error",
        source="infra/catalog/packages/; vllm platforms/cuda.py, platforms/rocm.py, v1/attention/backend.py, "
        "v1/worker/cp_utils.py@0.17.0 to 0.33.0",
        releases=releases_of("vllm"),
        parts={
            "block sizes on CUDA": attention_choice.CUDA_COMPARES_BLOCKS,
            "block sizes on ROCm": attention_choice.ROCM_COMPARES_BLOCKS,
            "nothing on ROCm but blocks of one token": attention_choice.ROCM_COMPARES_NOTHING,
            "back ends without decode contexts are passed over": attention_choice.PASSES_OVER_CONTEXTS,
        },
        check=attention.backend_takes_settings,
    ),
    "flag-combination": Rule(
        severity="error",
        source="infra/catalog/combinations/; vllm config/, engine/arg_utils.py@0.17.0 to 0.33.0; "
        "sglang srt/server_args.py@0.5.8 to 0.5.16, srt/arg_groups/@0.5.14 to 0.5.23; "
        "vllm_ascend/platform.py, ascend_config.py, utils.py@0.17.0rc1 to 0.26.0rc1",
        check=combinations.settings_combine,
    ),
    "model-path": Rule(
        severity="error",
        source="vllm transformers_utils/config.py@0.22.1; sglang srt/server_args.py@0.5.9",
        check=pairing.model_path_given,
    ),
    "server-arguments": Rule(
        severity="error",
        source="sglang srt/server_args.py@0.5.9, arg_groups/*_hook.py@0.5.23; 0.5.9 (run; tests/cases/verdicts/)",
        releases=releases_of("sglang"),
        parts={"a device map is split at its commas": sglang.MAPS_SPLIT},
        check=sglang.arguments_agree,
    ),
    "chat-template": Rule(
        severity="error",
        source="sglang srt/parser/conversation.py, managers/template_manager.py@0.5.9, 0.5.23; vllm 0.17.0 (run)",
        check=settings.chat_template_exists,
    ),
    "unseen-settings": Rule(
        severity="warning",
        source="vllm utils/argparse_utils.py@0.22.1; sglang srt/server_args_config_parser.py@0.5.9",
        check=settings.configuration_in_argv,
    ),
    "served-name-colon": Rule(
        severity="error",
        source="sglang srt/server_args.py@0.5.9, 0.5.23",
        releases=releases_of("sglang"),
        check=settings.served_name_plain,
    ),
    "unread-variable": Rule(
        severity="warning", source="infra/catalog/packages/", check=surroundings.variables_read
    ),
    "ignored-value": Rule(
        severity="warning",
        source="infra/catalog/packages/; sglang srt/environ.py EnvField@0.5.9, 0.5.23",
        releases=releases_of("sglang"),
        check=surroundings.values_counted,
    ),
    "port-variable": Rule(
        severity="error",
        source="vllm envs.py, v1/engine/core.py, v1/executor/multiproc_executor.py@0.17.0, 0.22.1, 0.33.0",
        releases=releases_of("vllm", "vllm-ascend"),
        check=surroundings.port_variables_numbers,
    ),
    "variable-value": Rule(
        severity="error",
        source="infra/catalog/packages/; vllm envs.py enable_envs_cache, v1/engine/core.py, "
        "v1/executor/multiproc_executor.py@0.17.0 to 0.33.0",
        releases=releases_of("vllm", "vllm-ascend"),
        check=surroundings.variables_readable,
    ),
    "internal-port": Rule(
        severity="error",
        source="vllm envs.py get_vllm_port@0.22.1; vllm#34199",
        releases=releases_of("vllm", "vllm-ascend"),
        check=surroundings.internal_port_number,
    ),
    "socket-interface": Rule(
        severity="error",
        source="gloo transport/tcp/device.cc; aws-samples/aws-do-eks#51; AMD-AGI/Primus#1063; NVIDIA/nccl#286",
        check=surroundings.interfaces_named,
    ),
    "library-architecture": Rule(
        severity="error",
        source="vLLM-Ascend guide Kimi-K2.5; vLLM recipe Kimi-K2.5",
        check=surroundings.libraries_for_architecture,
    ),
    "image-architecture": Rule(
        severity="error",
        source="infra/catalog/accelerators/, tags of vllm/vllm-openai",
        check=surroundings.image_for_architecture,
    ),
    "engine-vendor": Rule(
        severity="error",
        source="vllm and sglang platforms/",
        check=compatibility.engine_runs_on_vendor,
    ),
    "checkpoint-accelerator": Rule(
        severity="error",
        source="model cards; vLLM recipe Kimi-K2.5; SGLang cookbook",
        check=compatibility.checkpoint_runs_on_accelerator,
    ),
    "accelerator-not-rented": Rule(
        severity="error",
        source="AWS instance types, Google machine types, infra/catalog/accelerators/",
        check=compatibility.cloud_rents_accelerator,
    ),
    "missing-image": Rule(
        severity="error", source="infra/catalog/engines/", check=compatibility.image_exists
    ),
    "different-images": Rule(
        severity="error", source="infra/catalog/engines/", check=compatibility.one_image_for_all
    ),
    "recipe-release": Rule(
        severity="warning", source="infra/catalog/recipes/", check=recipes.recipe_for_release
    ),
    "no-recipe": Rule(
        severity="warning", source="infra/catalog/recipes/", check=recipes.recipe_for_role
    ),
    "router-engine": Rule(
        severity="error",
        source="vllm-router 0.1.17; sglang-router 0.3.2",
        check=compatibility.router_speaks_engine,
    ),
    "draft-checkpoint": Rule(
        severity="error",
        source="vllm config/speculative.py@0.17.0, 0.18.0",
        parts={"no Eagle3 for Kimi": compatibility.WITHOUT_EAGLE3},
        check=compatibility.draft_fits_checkpoint,
    ),
    "model-architecture": Rule(
        severity="error",
        source="infra/catalog/packages/; config.json of the checkpoints",
        check=compatibility.architectures_registered,
    ),
    "draft-accelerator": Rule(
        severity="error",
        source="SGLang cookbook, KimiK25ConfigGenerator at commit fe41c7f",
        releases=releases_of("sglang"),
        check=compatibility.draft_runs_on_accelerator,
    ),
    "aiter-vskip": Rule(
        severity="warning",
        source="AMD guide Kimi-K2.5, Crash on Startup; ROCm/aiter csrc/py_itfs_cu/asm_fmoe.cu (on but for 0)",
        releases=releases_of("vllm"),
        check=rocm.aiter_without_vskip,
    ),
    "fp8-cache-untried": Rule(
        severity="warning",
        source="infra/catalog/packages/; AMD guide Kimi-K2.5, FP8 KV Cache Not Supported; vllm pull request 35850",
        releases=attention_choice.ROCM_COMPARES_NOTHING,
        check=rocm.fp8_cache_tried,
    ),
    "latent-offloading": Rule(
        severity="warning",
        source="AMD guide Kimi-K2.5, KV Cache Offloading Not Supported; vllm v1/kv_offload/worker/cpu_gpu.py@0.17.0",
        releases=rocm.UNTRIED_OFFLOADING,
        check=rocm.offloading_tried,
    ),
    "aiter-heads": Rule(
        severity="error",
        source="vllm rocm_aiter_mla.py@0.17.1, 0.18.0; SGLang cookbook; "
        "sglang srt/layers/attention/aiter_backend.py@0.5.9 to 0.5.12, 0.5.16",
        releases=(*releases_of("vllm", before="0.18.0"), *releases_of("sglang", before="0.5.11")),
        check=compatibility.aiter_heads,
    ),
}
