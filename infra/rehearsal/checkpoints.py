"""Simulated checkpoints: the real configuration and manifest, weight files of true size that hold nothing.

The tiny model alone is whole: real engines load it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass

from infra.catalog.load import Catalog
from infra.catalog.schema import Checkpoint, ModelShape
from infra.engines.command_line import as_map
from infra.plan.process import Plan
from infra.rehearsal import tiny_model

ARCHITECTURES = {"kimi_k25": "KimiK25ForConditionalGeneration", "kimi_k2": "DeepseekV3ForCausalLM"}
_QUANTIZATION_CONFIG: Mapping[str, Mapping[str, str]] = {
    "int4": {"quant_method": "compressed-tensors"},
    "nvfp4": {"quant_method": "modelopt", "quant_algo": "NVFP4"},
}
MANIFEST = "manifest.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedCheckpoint:
    """One checkpoint's folder on a host.

    Args:
        path: the folder that argument vectors name.
        contents: file name → bytes of what is really there.
        weight_files: file name → size in bytes of what reads as zeros.
    """

    path: str
    contents: Mapping[str, bytes]
    weight_files: Mapping[str, int]


def checkpoints_of(plan: Plan, catalog: Catalog) -> tuple[SimulatedCheckpoint, ...]:
    """Every checkpoint and draft that the plan's command lines name, by path."""
    paths = {
        path for process in plan.processes for path in _named_paths(process.argv, plan.weights_path)
    }
    found = []
    for path in sorted(paths):
        name, _, revision = path.removeprefix(f"{plan.weights_path}/").partition("/")
        if name in catalog.ids("checkpoints") and revision:
            found.append(simulate_checkpoint(catalog.checkpoint(name), path, revision))
    return tuple(found)


def simulate_checkpoint(checkpoint: Checkpoint, path: str, revision: str) -> SimulatedCheckpoint:
    """The folder of one checkpoint at one revision."""
    if checkpoint.id == tiny_model.CHECKPOINT:
        return SimulatedCheckpoint(path=path, contents=tiny_model.files(), weight_files={})
    each, rest = divmod(checkpoint.size_bytes, checkpoint.num_files)
    count = checkpoint.num_files
    weight_files = {
        f"model-{index:05d}-of-{count:05d}.safetensors": each + (rest if index == count else 0)
        for index in range(1, count + 1)
    }
    documents = {"config.json": _text(_config(checkpoint))}
    if checkpoint.quantization == "w4a8":
        documents["quant_model_description.json"] = _text({"model_quant_type": "W4A8_DYNAMIC"})
    contents = {name: text.encode() for name, text in documents.items()}
    rows = [
        {"name": name, "size_bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
        for name, data in contents.items()
    ]
    rows += [{"name": name, "size_bytes": size} for name, size in weight_files.items()]
    manifest = {
        "schema_version": 1,
        "repository": checkpoint.repository,
        "revision": revision,
        "files": rows,
        "expert_bytes": checkpoint.expert_bytes,
    }
    contents[MANIFEST] = _text(manifest).encode()
    return SimulatedCheckpoint(path=path, contents=contents, weight_files=weight_files)


def _named_paths(argv: tuple[str, ...], root: str) -> list[str]:
    """Words of an argument vector that lie under the weights' path, behind `=` and inside JSON values too."""
    words = [
        word.partition("=")[2] if word.startswith("--") and "=" in word else word for word in argv
    ]
    paths = [word for word in words if word.startswith(f"{root}/")]
    for word in words:
        if word.startswith("{"):
            model = as_map(json.loads(word)).get("model")
            if isinstance(model, str) and model.startswith(f"{root}/"):
                paths.append(model)
    return paths


def _config(checkpoint: Checkpoint) -> dict[str, object]:
    """`config.json` as the hub's, as far as engines read it."""
    if checkpoint.shape is None:
        return {
            "architectures": ["LlamaForCausalLMEagle3"],
            "model_type": "llama",
            "num_hidden_layers": 1,
            "num_attention_heads": 64,
            "num_key_value_heads": 64,
            "hidden_size": 7168,
            "max_position_embeddings": 262144,
            "torch_dtype": "bfloat16",
        }
    text = {**_text_config(checkpoint.shape)}
    if checkpoint.quantization in _QUANTIZATION_CONFIG:
        text["quantization_config"] = dict(_QUANTIZATION_CONFIG[checkpoint.quantization])
    architecture = ARCHITECTURES.get(checkpoint.shape.model_type, checkpoint.shape.model_type)
    if checkpoint.shape.vision is None:
        return {"architectures": [architecture], "torch_dtype": "bfloat16", **text}
    return {
        "architectures": [architecture],
        "model_type": checkpoint.shape.model_type,
        "torch_dtype": "bfloat16",
        "text_config": text,
        "vision_config": {"model_type": "moonvit", "num_hidden_layers": 27, "hidden_size": 1152},
        **(
            {"quantization_config": text["quantization_config"]}
            if "quantization_config" in text
            else {}
        ),
    }


def _text_config(shape: ModelShape) -> dict[str, object]:
    return {
        "model_type": "kimi_k2",
        "num_hidden_layers": shape.num_layers,
        "first_k_dense_replace": shape.num_dense_layers,
        "hidden_size": shape.hidden_size,
        "num_attention_heads": shape.num_attention_heads,
        "num_key_value_heads": shape.num_attention_heads,
        "q_lora_rank": shape.q_lora_rank,
        "kv_lora_rank": shape.kv_lora_rank,
        "qk_rope_head_dim": shape.qk_rope_head_dim,
        "qk_nope_head_dim": shape.qk_nope_head_dim,
        "v_head_dim": shape.v_head_dim,
        "n_routed_experts": shape.num_experts,
        "num_experts_per_tok": shape.num_experts_per_token,
        "n_shared_experts": shape.num_shared_experts,
        "moe_intermediate_size": shape.moe_intermediate_size,
        "intermediate_size": shape.intermediate_size,
        "vocab_size": shape.vocab_size,
        "max_position_embeddings": shape.max_context,
    }


def _text(document: object) -> str:
    return json.dumps(document, indent=1, sort_keys=True) + "\n"
