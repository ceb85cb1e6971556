"""Folders that stand in for checkpoints: what configuration code reads of one, and no weights; no hub is asked.

A `config.json` is put together here, from the shape in the catalogue and from what the published ones of the Kimi K2
family have in common; the tokenizer is four words. So an answer holds for this configuration, not for a download.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path

from infra.catalog.load import Catalog
from infra.catalog.schema import Checkpoint, ModelShape
from infra.errors import StackError

# What config.json of moonshotai/Kimi-K2.5 (its text_config) and Kimi-K2-Thinking says beside the shape; 2026-11-20.
_TEXT: Mapping[str, object] = {
    "attention_bias": False,
    "attention_dropout": 0.0,
    "aux_loss_alpha": 0.001,
    "bos_token_id": 163584,
    "eos_token_id": 163586,
    "hidden_act": "silu",
    "initializer_range": 0.02,
    "model_type": "kimi_k2",
    "moe_layer_freq": 1,
    "n_group": 1,
    "norm_topk_prob": True,
    "num_nextn_predict_layers": 0,
    "pad_token_id": 163839,
    "rms_norm_eps": 1e-05,
    "rope_scaling": {
        "beta_fast": 32.0,
        "beta_slow": 1.0,
        "factor": 64.0,
        "mscale": 1.0,
        "mscale_all_dim": 1.0,
        "original_max_position_embeddings": 4096,
        "type": "yarn",
    },
    "rope_theta": 50000.0,
    "routed_scaling_factor": 2.827,
    "scoring_func": "sigmoid",
    "seq_aux": True,
    "tie_word_embeddings": False,
    "topk_group": 1,
    "topk_method": "noaux_tc",
    "torch_dtype": "bfloat16",
    "use_cache": True,
}
_VISION: Mapping[str, object] = {
    "init_pos_emb_height": 64,
    "init_pos_emb_time": 4,
    "init_pos_emb_width": 64,
    "merge_kernel_size": [2, 2],
    "merge_type": "sd2_tpool",
    "mm_hidden_size": 1152,
    "mm_projector_type": "patchmerger",
    "patch_size": 14,
    "pos_emb_type": "divided_fixed",
    "projector_hidden_act": "gelu",
    "projector_ln_eps": 1e-05,
    "text_hidden_size": 7168,
    "video_attn_type": "spatial_temporal",
    "vt_hidden_size": 1152,
    "vt_intermediate_size": 4304,
    "vt_num_attention_heads": 16,
    "vt_num_hidden_layers": 27,
}
# What vLLM's own processor of their pictures reads of preprocessor_config.json when it configures itself, from 0.33 on.
_PICTURES: Mapping[str, object] = {
    "media_proc_cfg": {
        "image_mean": [0.5, 0.5, 0.5],
        "image_std": [0.5, 0.5, 0.5],
        "merge_kernel_size": 2,
        "patch_size": 14,
        "temporal_merge_kernel_size": 4,
    }
}
_UNQUANTIZED = [
    "lm_head",
    "re:.*self_attn.*",
    "re:.*shared_experts.*",
    r"re:.*mlp\.(gate|up|gate_up|down)_proj.*",
]
_QUANTIZATION: Mapping[str, Mapping[str, object]] = {
    "int4": {
        "config_groups": {
            "group_0": {
                "input_activations": None,
                "output_activations": None,
                "targets": ["Linear"],
                "weights": {
                    "actorder": None,
                    "block_structure": None,
                    "dynamic": False,
                    "group_size": 32,
                    "num_bits": 4,
                    "observer": "minmax",
                    "observer_kwargs": {},
                    "strategy": "group",
                    "symmetric": True,
                    "type": "int",
                },
            }
        },
        "format": "pack-quantized",
        "global_compression_ratio": None,
        "ignore": _UNQUANTIZED,
        "kv_cache_scheme": None,
        "quant_method": "compressed-tensors",
        "quantization_status": "compressed",
    },
    "nvfp4": {
        "config_groups": {
            "group_0": {
                "input_activations": {
                    "dynamic": False,
                    "group_size": 16,
                    "num_bits": 4,
                    "type": "float",
                },
                "targets": ["Linear"],
                "weights": {"dynamic": False, "group_size": 16, "num_bits": 4, "type": "float"},
            }
        },
        "ignore": ["lm_head", "*self_attn*", "*shared_experts*", "vision_tower*", "mm_projector*"],
        "producer": {"name": "modelopt", "version": "0.41.0"},
        "quant_algo": "NVFP4",
        "quant_method": "modelopt",
    },
}
_ARCHITECTURES = {"kimi_k25": "KimiK25ForConditionalGeneration", "kimi_k2": "DeepseekV3ForCausalLM"}
# The one-layer heads of lightseekorg/kimi-k2.5-eagle3 and its kin; config.json, 2026-11-20.
_DRAFT: Mapping[str, object] = {
    "architectures": ["LlamaForCausalLMEagle3"],
    "bos_token_id": 163584,
    "draft_vocab_size": 163840,
    "eos_token_id": 163586,
    "head_dim": 112,
    "hidden_act": "silu",
    "hidden_size": 7168,
    "intermediate_size": 18432,
    "max_position_embeddings": 262144,
    "model_type": "llama",
    "num_attention_heads": 64,
    "num_hidden_layers": 1,
    "num_key_value_heads": 64,
    "rms_norm_eps": 1e-05,
    "rope_theta": 50000.0,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "vocab_size": 163840,
}
# A few words: configuration code looks whether the marks of a reasoning parser are tokens.
_TOKENIZER: Mapping[str, object] = {
    "version": "1.0",
    "added_tokens": [],
    "decoder": None,
    "model": {
        "type": "WordLevel",
        "unk_token": "[UNK]",
        "vocab": {"[UNK]": 0, "<think>": 1, "</think>": 2, "hello": 3},
    },
    "normalizer": None,
    "padding": None,
    "post_processor": None,
    "pre_tokenizer": {"type": "WhitespaceSplit"},
    "truncation": None,
}
# K2-Thinking brings its configuration class along; the class is the one that transformers ships.
_REMOTE_CODE = "configuration_deepseek.py"
_REMOTE_TEXT = """\
from transformers import DeepseekV3Config as _Shipped


class DeepseekV3Config(_Shipped):
    model_type = "kimi_k2"
"""


def write_checkpoints(folder: Path, names: Iterable[str], catalog: Catalog) -> None:
    """These checkpoints of the catalogue as `<folder>/<id>/<revision>/`.

    Raises:
        StackError: the catalogue has no shape of one that is a model.
    """
    for name in names:
        checkpoint = catalog.checkpoint(name)
        place = folder / name / checkpoint.revision
        place.mkdir(parents=True, exist_ok=True)
        for file, text in checkpoint_files(checkpoint).items():
            (place / file).write_text(text, encoding="utf-8")


def checkpoint_files(checkpoint: Checkpoint) -> dict[str, str]:
    """File name → text of what configuration code reads of a checkpoint.

    Raises:
        StackError: the catalogue has no shape of it, and it is no draft.
    """
    if checkpoint.shape is not None:
        config = _config(checkpoint, checkpoint.shape)
    elif checkpoint.kind == "draft":
        config = dict(_DRAFT)
    else:
        raise StackError(
            f"verify-engines {checkpoint.id}",
            "The catalogue has no `shape` of it: no config.json can be written.",
            f"Give infra/catalog/checkpoints/{checkpoint.id}.yaml a shape.",
        )
    files = {"config.json": _text(config)}
    files["tokenizer.json"] = _text(_TOKENIZER)
    files["tokenizer_config.json"] = _text({"tokenizer_class": "PreTrainedTokenizerFast"})
    if checkpoint.shape is not None and checkpoint.shape.vision is not None:
        files["preprocessor_config.json"] = _text(_PICTURES)
    if "auto_map" in config:
        files[_REMOTE_CODE] = _REMOTE_TEXT
    if checkpoint.quantization == "nvfp4":
        files["hf_quant_config.json"] = _text(
            {
                "quantization": {
                    "quant_algo": "NVFP4",
                    "kv_cache_quant_algo": "FP8",
                    "group_size": 16,
                }
            }
        )
    if checkpoint.quantization == "w4a8":
        files["quant_model_description.json"] = _text(
            {"model_quant_type": "W4A8_DYNAMIC", "version": "1.0.0"}
        )
    return files


def _config(checkpoint: Checkpoint, shape: ModelShape) -> dict[str, object]:
    text: dict[str, object] = {**_TEXT, **_shape_part(shape)}
    quantization = _QUANTIZATION.get(checkpoint.quantization)
    quantized = {} if quantization is None else {"quantization_config": dict(quantization)}
    head = {"architectures": [_ARCHITECTURES[shape.model_type]]}
    if shape.vision is None:
        remote = {"auto_map": {"AutoConfig": "configuration_deepseek.DeepseekV3Config"}}
        return {**head, **remote, **text, **quantized}
    return {
        **head,
        "bos_token_id": _TEXT["bos_token_id"],
        "eos_token_id": _TEXT["eos_token_id"],
        "media_placeholder_token_id": 163605,
        "model_type": shape.model_type,
        "text_config": {**text, "architectures": ["DeepseekV3ForCausalLM"], **quantized},
        "torch_dtype": "bfloat16",
        "vision_config": dict(_VISION),
        **quantized,
    }


def _shape_part(shape: ModelShape) -> dict[str, object]:
    return {
        "first_k_dense_replace": shape.num_dense_layers,
        "hidden_size": shape.hidden_size,
        "intermediate_size": shape.intermediate_size,
        "kv_lora_rank": shape.kv_lora_rank,
        "max_position_embeddings": shape.max_context,
        "moe_intermediate_size": shape.moe_intermediate_size,
        "n_routed_experts": shape.num_experts,
        "n_shared_experts": shape.num_shared_experts,
        "num_attention_heads": shape.num_attention_heads,
        "num_experts_per_tok": shape.num_experts_per_token,
        "num_hidden_layers": shape.num_layers,
        "num_key_value_heads": shape.num_attention_heads,
        "q_lora_rank": shape.q_lora_rank,
        "qk_nope_head_dim": shape.qk_nope_head_dim,
        "qk_rope_head_dim": shape.qk_rope_head_dim,
        "v_head_dim": shape.v_head_dim,
        "vocab_size": shape.vocab_size,
    }


def _text(document: object) -> str:
    return json.dumps(document, indent=1, sort_keys=True) + "\n"
