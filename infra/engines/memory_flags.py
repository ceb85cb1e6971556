"""What a command line says of memory, under the names that its engine gives to it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from infra.catalog.schema import Family
from infra.engines.command_line import as_int
from infra.spec.bounded import read_real


@dataclass(frozen=True, slots=True)
class MemoryFlags:
    """The flags that decide memory; each is read when it is asked for. Sizes count from 1.

    Args:
        family: whose flags they are.
        values: as the command line was read; canonical names without dashes.
    """

    family: Family
    values: Mapping[str, object]

    @property
    def device_share(self) -> float | None:
        """The share of a device that the engine may use, 0 to 1; None where no flag says it."""
        given = self.values.get(self._name("gpu-memory-utilization", "mem-fraction-static"))
        try:
            return None if given is None else read_real(str(given))
        except ValueError:  # `--gpu-memory-utilization.x`: the engine does not start with it
            return None

    @property
    def tensor(self) -> int:
        """Devices over which a layer is split."""
        return self._size("tensor-parallel-size")

    @property
    def pipeline(self) -> int:
        """Stages over which layers are spread."""
        return self._size("pipeline-parallel-size")

    @property
    def decode_context(self) -> int:
        """Devices over which the tokens of a request are spread."""
        return self._size("decode-context-parallel-size")

    @property
    def has_attention_ranks(self) -> bool:
        """Whether data-parallel ranks of one server have a copy of attention each."""
        return bool(self.values.get("enable-dp-attention"))

    @property
    def spreads_over_ranks(self) -> bool:
        """Whether data-parallel ranks hold one set of experts together.

        A rank of SGLang's own data parallelism is a whole copy; its attention ranks share one copy of the experts.
        """
        return self.family != "sglang"

    @property
    def divides_experts(self) -> bool:
        """Whether experts are divided among devices, not split."""
        return bool(self.values.get("enable-expert-parallel"))

    @property
    def has_vision_everywhere(self) -> bool:
        """Whether every device holds the whole vision tower."""
        return self.values.get("mm-encoder-tp-mode") == "data"

    @property
    def kv_dtype(self) -> str:
        """The engine's word for what KV is kept as; `auto` is the model's own."""
        return str(self.values.get("kv-cache-dtype", "auto"))

    def block_tokens(self, default: int) -> int:
        """Tokens of a block of KV."""
        return max(as_int(self.values.get(self._name("block-size", "page-size")), default), 1)

    def longest_request(self, default: int) -> int:
        """Tokens of the longest request."""
        return as_int(self.values.get(self._name("max-model-len", "context-length")), default)

    def most_sequences(self, default: int) -> int:
        """Requests that a rank computes at once."""
        return as_int(self.values.get(self._name("max-num-seqs", "max-running-requests")), default)

    def _name(self, vllm: str, sglang: str) -> str:
        return sglang if self.family == "sglang" else vllm

    def _size(self, name: str) -> int:
        return max(as_int(self.values.get(name), 1), 1)
