"""A mixture-of-experts model of a few megabytes with random weights, that a real engine loads and serves.

    python -m infra.rehearsal.tiny_model FOLDER

The same bytes every time. It says nothing sensible; it has what real ones have: experts, a router of tokens, grouped
attention, a tokenizer, a chat template. Its shape is Qwen3's, since vLLM has no latent attention on processors.
"""

from __future__ import annotations

import hashlib
import json
import random
import struct
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

CHECKPOINT = "tiny-qwen3-moe"
REPOSITORY = "moe-infra/tiny-qwen3-moe"
WEIGHTS = "model.safetensors"
MANIFEST = "manifest.json"

_SEED = 20261122
_HIDDEN, _LAYERS, _VOCABULARY, _CONTEXT = 128, 2, 512, 2048
_HEADS, _KV_HEADS, _HEAD_DIM = 4, 2, 64
_EXPERTS, _EXPERTS_PER_TOKEN, _EXPERT_WIDTH = 4, 2, 128
_BF16_BYTES = 2
_STEPS = 256  # different values of a random weight
_SPREAD = 0.08  # the largest random weight
# Wide enough that the words that end an answer, which weigh nothing, are never drawn.
_OUTPUT_SPREAD = 4.0

_END, _UNKNOWN, _START, _STOP = "<|endoftext|>", "<|unknown|>", "<|im_start|>", "<|im_end|>"
_SPECIAL = (_END, _UNKNOWN, _START, _STOP)
_CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|> {{ message['role'] }} {{ message['content'] }} <|im_end|> "
    "{% endfor %}{% if add_generation_prompt %}<|im_start|> assistant {% endif %}"
)


def files() -> Mapping[str, bytes]:
    """Every file of the checkpoint's folder, by name; `manifest.json` names and measures the others."""
    found = {
        "config.json": _text(_config()),
        "tokenizer.json": _text(_tokenizer()),
        "tokenizer_config.json": _text(_tokenizer_config()),
        WEIGHTS: _safetensors(),
    }
    rows = [{"name": name, "size_bytes": len(content)} for name, content in found.items()]
    manifest = {
        "schema_version": 1,
        "repository": REPOSITORY,
        "revision": _revision(found),
        "files": rows,
        "expert_bytes": expert_bytes(),
    }
    return {**found, MANIFEST: _text(manifest)}


def revision() -> str:
    """40 hexadecimal digits that change with any byte of the checkpoint."""
    return str(json.loads(files()[MANIFEST])["revision"])


def expert_bytes() -> int:
    """Bytes of the weights that lie in routed experts."""
    return _LAYERS * _EXPERTS * 3 * _HIDDEN * _EXPERT_WIDTH * _BF16_BYTES


def write(folder: Path) -> None:
    """Write the checkpoint into a folder, which is made.

    Raises:
        OSError: the folder cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files().items():
        (folder / name).write_bytes(content)


def _revision(contents: Mapping[str, bytes]) -> str:
    digest = hashlib.sha256()
    for name in sorted(contents):
        digest.update(name.encode() + b"\0" + hashlib.sha256(contents[name]).digest())
    return digest.hexdigest()[:40]


def _config() -> dict[str, object]:
    return {
        "architectures": ["Qwen3MoeForCausalLM"],
        "model_type": "qwen3_moe",
        "hidden_size": _HIDDEN,
        "num_hidden_layers": _LAYERS,
        "num_attention_heads": _HEADS,
        "num_key_value_heads": _KV_HEADS,
        "head_dim": _HEAD_DIM,
        "intermediate_size": 2 * _HIDDEN,
        "moe_intermediate_size": _EXPERT_WIDTH,
        "num_experts": _EXPERTS,
        "num_experts_per_tok": _EXPERTS_PER_TOKEN,
        "norm_topk_prob": True,
        "decoder_sparse_step": 1,
        "mlp_only_layers": [],
        "vocab_size": _VOCABULARY,
        "max_position_embeddings": _CONTEXT,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-6,
        "rope_theta": 10000.0,
        "attention_bias": False,
        "attention_dropout": 0.0,
        "tie_word_embeddings": False,
        "use_sliding_window": False,
        "bos_token_id": None,
        "eos_token_id": _SPECIAL.index(_END),
        "torch_dtype": "bfloat16",
    }


def _words() -> tuple[str, ...]:
    """The vocabulary: what ends and frames answers, printable characters, made-up words."""
    characters = tuple(chr(code) for code in range(33, 127))
    count = _VOCABULARY - len(_SPECIAL) - len(characters)
    return (*_SPECIAL, *characters, *(f"w{number}" for number in range(count)))


def _tokenizer() -> dict[str, object]:
    special = [
        {
            "id": _SPECIAL.index(word),
            "content": word,
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
            "special": True,
        }
        for word in _SPECIAL
    ]
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": special,
        "normalizer": None,
        # a word is a token, and so is each mark between words
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [
                {"type": "Whitespace"},
                {"type": "Punctuation", "behavior": "Isolated"},
            ],
        },
        "post_processor": None,
        "decoder": None,
        "model": {
            "type": "WordLevel",
            "vocab": {word: number for number, word in enumerate(_words())},
            "unk_token": _UNKNOWN,
        },
    }


def _tokenizer_config() -> dict[str, object]:
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": _END,
        "unk_token": _UNKNOWN,
        "pad_token": _END,
        "model_max_length": _CONTEXT,
        "clean_up_tokenization_spaces": False,
        "chat_template": _CHAT_TEMPLATE,
    }


def _shapes() -> Iterator[tuple[str, tuple[int, ...], float | None]]:
    """(name, sizes, largest weight) of every tensor; None for a norm, whose weights are 1."""
    queries, keys = _HEADS * _HEAD_DIM, _KV_HEADS * _HEAD_DIM
    yield "model.embed_tokens.weight", (_VOCABULARY, _HIDDEN), _SPREAD
    for layer in range(_LAYERS):
        name = f"model.layers.{layer}"
        yield f"{name}.input_layernorm.weight", (_HIDDEN,), None
        yield f"{name}.post_attention_layernorm.weight", (_HIDDEN,), None
        yield f"{name}.self_attn.q_proj.weight", (queries, _HIDDEN), _SPREAD
        yield f"{name}.self_attn.k_proj.weight", (keys, _HIDDEN), _SPREAD
        yield f"{name}.self_attn.v_proj.weight", (keys, _HIDDEN), _SPREAD
        yield f"{name}.self_attn.o_proj.weight", (_HIDDEN, queries), _SPREAD
        yield f"{name}.self_attn.q_norm.weight", (_HEAD_DIM,), None
        yield f"{name}.self_attn.k_norm.weight", (_HEAD_DIM,), None
        yield f"{name}.mlp.gate.weight", (_EXPERTS, _HIDDEN), _SPREAD
        for expert in range(_EXPERTS):
            inner = f"{name}.mlp.experts.{expert}"
            yield f"{inner}.gate_proj.weight", (_EXPERT_WIDTH, _HIDDEN), _SPREAD
            yield f"{inner}.up_proj.weight", (_EXPERT_WIDTH, _HIDDEN), _SPREAD
            yield f"{inner}.down_proj.weight", (_HIDDEN, _EXPERT_WIDTH), _SPREAD
    yield "model.norm.weight", (_HIDDEN,), None
    yield "lm_head.weight", (_VOCABULARY, _HIDDEN), _OUTPUT_SPREAD


def _safetensors() -> bytes:
    """The weights in the safetensors format: a header of JSON, then the tensors one after another."""
    source = random.Random(_SEED)
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    body = bytearray()
    for name, sizes, largest in _shapes():
        count = 1
        for size in sizes:
            count *= size
        content = _bf16(1.0) * count if largest is None else _noise(source, count, largest)
        if name == "lm_head.weight":
            silent = len(_SPECIAL) * _HIDDEN * _BF16_BYTES
            content = bytes(silent) + content[silent:]
        offsets = [len(body), len(body) + len(content)]
        header[name] = {"dtype": "BF16", "shape": list(sizes), "data_offsets": offsets}
        body += content
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + bytes(body)


def _noise(source: random.Random, count: int, largest: float) -> bytes:
    """`count` weights between -largest and largest, each one of 256 values."""
    middle = (_STEPS - 1) / 2
    values = [_bf16((step - middle) / middle * largest) for step in range(_STEPS)]
    drawn = source.randbytes(count)
    pairs = bytearray(_BF16_BYTES * count)
    for place in range(_BF16_BYTES):
        pairs[place::_BF16_BYTES] = drawn.translate(bytes(value[place] for value in values))
    return bytes(pairs)


def _bf16(value: float) -> bytes:
    """A number as bfloat16: the upper half of its single precision."""
    return struct.pack("<f", value)[2:]


def _text(document: object) -> bytes:
    return (json.dumps(document, indent=1, ensure_ascii=False) + "\n").encode()


if __name__ == "__main__":
    write(Path(sys.argv[1]))
