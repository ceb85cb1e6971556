"""The checkpoint on disk: its configuration, its files, and what it means for memory."""

from __future__ import annotations

import json
import os
import re
from typing import Any, NamedTuple

from .failures import Failed, invalid

# vllm model_executor/model_loader/__init__.py 0.22.1, and what vllm-ascend registers.
LOADERS = (
    "auto", "hf", "bitsandbytes", "dummy", "fastsafetensors", "gguf", "instanttensor", "mistral", "modelexpress",
    "npcache", "pt", "runai_streamer", "runai_streamer_sharded", "safetensors", "sharded_state", "tensorizer",
    "netloader", "rfork",
)  # fmt: skip


class Checkpoint(NamedTuple):
    """What an engine learns from a checkpoint folder."""

    path: str
    model_type: str
    architecture: str
    num_heads: int
    num_kv_heads: int
    num_layers: int
    num_experts: int
    max_position: int
    vocabulary: int
    is_mla: bool
    has_vision: bool
    quantization: str | None
    kv_bytes_per_token: int
    total_bytes: int
    expert_bytes: int


def read_checkpoint(path: str, environ: dict[str, str]) -> Checkpoint:
    """Read the configuration of a checkpoint; the weights are checked by ``check_weights``.

    Raises:
        Failed: vLLM's own error about a model that is not there.
    """
    config_path = os.path.join(path, "config.json")
    if not os.path.isfile(config_path):
        raise _not_found(path, environ)
    with open(config_path, encoding="utf-8") as file:
        config = json.load(file)
    manifest = _read_manifest(path)
    text = config.get("text_config", config)
    layers = int(text.get("num_hidden_layers", 1))
    heads = int(text.get("num_attention_heads", 1))
    kv_heads = int(text.get("num_key_value_heads", heads))
    is_mla = "kv_lora_rank" in text
    if is_mla:
        width = int(text["kv_lora_rank"]) + int(text.get("qk_rope_head_dim", 0))
    else:
        width = 2 * kv_heads * int(text.get("head_dim", text.get("hidden_size", heads) // heads))
    return Checkpoint(
        path=path,
        model_type=str(text.get("model_type", config.get("model_type", ""))),
        architecture=(config.get("architectures") or ["unknown"])[0],
        num_heads=heads,
        num_kv_heads=kv_heads,
        num_layers=layers,
        num_experts=int(text.get("n_routed_experts", text.get("num_experts", 0)) or 0),
        max_position=int(text.get("max_position_embeddings", 4096)),
        vocabulary=int(text.get("vocab_size", 0)),
        is_mla=is_mla,
        has_vision="vision_config" in config,
        quantization=_quantization(path, config, text),
        kv_bytes_per_token=layers * width * 2,
        total_bytes=sum(int(item["size_bytes"]) for item in manifest.get("files", [])),
        expert_bytes=int(manifest.get("expert_bytes", 0)),
    )


def check_loader(name: str) -> None:
    """Check that there is a loader of this name.

    Raises:
        Failed: vLLM's own ValueError, of a worker.
    """
    if name not in LOADERS:
        raise Failed("ValueError", f"Load format `{name}` is not supported", "EngineCore")


def check_weights(path: str) -> None:
    """Check that every weight file of the manifest is there in full.

    Raises:
        Failed: the loader's own error.
    """
    names = [
        (item["name"], int(item["size_bytes"]))
        for item in _read_manifest(path).get("files", [])
        if item["name"].endswith(".safetensors")
    ]
    sizes = {name: _size(os.path.join(path, name)) for name, _ in names}
    missing = [name for name, _ in names if sizes[name] is None]
    if names and len(missing) == len(names):
        raise Failed("RuntimeError", f"Cannot find any model weights with `{path}`", "EngineCore")
    if missing:
        raise Failed(
            "ValueError",
            f"Following weights were not initialized from checkpoint: {{{missing[0]!r}, ...}} "
            f"({len(missing)} of {len(names)} files of the index are missing)",
            process="EngineCore",
        )
    for name, wanted in names:
        if (sizes[name] or 0) < wanted:
            raise Failed(
                "safetensors_rust.SafetensorError",
                "Error while deserializing header: incomplete metadata, file not fully covered "
                f"({os.path.join(path, name)})",
                process="EngineCore",
            )


def num_shards(path: str) -> int:
    """Return the number of weight files, for the progress lines."""
    files = _read_manifest(path).get("files", [])
    return sum(1 for item in files if item["name"].endswith(".safetensors"))


def _read_manifest(path: str) -> dict[str, Any]:
    try:
        with open(os.path.join(path, "manifest.json"), encoding="utf-8") as file:
            document: dict[str, Any] = json.load(file)
    except (OSError, ValueError) as error:
        message = f"{path} has no manifest.json to judge its files by: {error}"
        raise Failed("moe-infra rehearsal", message, process="") from error
    return document


def _size(path: str) -> int | None:
    try:
        return os.stat(path).st_size
    except OSError:
        return None


def _quantization(path: str, config: dict[str, Any], text: dict[str, Any]) -> str | None:
    section = config.get("quantization_config") or text.get("quantization_config") or {}
    method = section.get("quant_method")
    algorithm = str(section.get("quant_algo", "")).upper()
    if method == "modelopt" and algorithm == "NVFP4":
        return "modelopt_fp4"
    if method is None and os.path.isfile(os.path.join(path, "quant_model_description.json")):
        return "ascend"
    return method


def check_architecture(checkpoint: Checkpoint, known: frozenset[str]) -> None:
    """Check that a release knows the model's class.

    Raises:
        Failed: Transformers' words, which come first.
    """
    if checkpoint.architecture in known:
        return
    raise invalid(
        "ModelConfig",
        f"The checkpoint you are trying to load has model type `{checkpoint.model_type}` but Transformers does not "
        "recognize this architecture. This could be because of an issue with the checkpoint, or because your version "
        "of Transformers is out of date.\n\nYou can update Transformers with the command `pip install --upgrade "
        "transformers`. If this does not work, and the checkpoint is very new, then there may not be a release "
        "version that supports this model yet. In this case, you can get the most up-to-date code by installing "
        "Transformers from source with the command `pip install git+https://github.com/huggingface/transformers.git`",
    )


def _not_found(path: str, environ: dict[str, str]) -> Failed:
    is_offline = environ.get("HF_HUB_OFFLINE", "0") in ("1", "true", "True", "ON", "YES")
    if is_offline and not os.path.exists(path):
        return _not_cached(path)
    if path.startswith(("/", ".", "~")) or path.count("/") > 1 or os.path.isdir(path):
        return invalid(
            "ModelConfig",
            f"Invalid repository ID or local directory specified: '{path}'.\n"
            "Please verify the following requirements:\n"
            "1. Provide a valid Hugging Face repository ID.\n"
            "2. Specify a local directory that contains a recognized configuration file.\n"
            "   - For Hugging Face models: ensure the presence of a 'config.json'.\n"
            "   - For Mistral models: ensure the presence of a 'params.json'.\n",
        )
    return Failed(
        "OSError",
        "We couldn't connect to 'https://huggingface.co' to load the files, and couldn't find them "
        f"in the cached files. Can't load the configuration of '{path}'.\nCheck your internet "
        "connection or see how to run the library in offline mode.",
    )


def _not_cached(path: str) -> Failed:
    """Offline whatever is no file or folder is looked for as a repository (arg_utils.py 0.22.1)."""
    if not re.fullmatch(r"[\w.-]+(?:/[\w.-]+)?", path):
        return Failed(
            "huggingface_hub.errors.HFValidationError",
            f"Repo id must be in the form 'repo_name' or 'namespace/repo_name': '{path}'. "
            "Use `repo_type` argument if needed.",
        )
    return Failed(
        "huggingface_hub.errors.LocalEntryNotFoundError",
        "Cannot find an appropriate cached snapshot folder for the specified revision on the "
        "local disk and outgoing traffic has been disabled. To enable repo look-ups and "
        "downloads online, pass 'local_files_only=False' as input.",
    )
