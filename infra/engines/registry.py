"""The closed set of engines, by the name that a stack writes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from infra.engines.contract import Engine
from infra.engines.sglang import Sglang
from infra.engines.vllm import Vllm
from infra.engines.vllm_ascend import VllmAscend
from infra.spec.stack import EngineName

ENGINES: Mapping[EngineName, Engine] = {
    "vllm": Vllm(),
    "vllm-ascend": VllmAscend(),
    "sglang": Sglang(),
}

# Whose flags an engine speaks: the key under which checkpoints and features list them.
FLAG_FAMILY: Mapping[EngineName, Literal["vllm", "sglang"]] = {
    "vllm": "vllm",
    "vllm-ascend": "vllm",
    "sglang": "sglang",
}
