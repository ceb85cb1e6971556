"""Everything that a running engine process has to know, whichever engine it plays."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

from .checkpoint import Checkpoint
from .environment import Addresses
from .kv_transfer import KvTransfer
from .parallel import Parallel, Version


class Release(NamedTuple):
    """Which program is played."""

    engine: Literal["vllm", "vllm-ascend", "sglang", "ascend-proxy"]
    version: str
    plugin: str

    @property
    def numbers(self) -> Version:
        """The engine's version as numbers."""
        return tuple(int(x) for x in self.version.split(".")[:3])

    @property
    def title(self) -> str:
        """How the first line of the log names the program."""
        plugin = f" with vllm-ascend {self.plugin}" if self.engine == "vllm-ascend" else ""
        name = "vllm" if self.engine == "vllm-ascend" else self.engine
        return f"{name} {self.version}{plugin}"


class Features(NamedTuple):
    """What the HTTP interface offers."""

    tool_parser: str | None
    has_auto_tools: bool
    reasoning_parser: str | None
    has_images: bool
    takes_templates: bool
    api_keys: tuple[str, ...]
    has_metrics: bool


class Settings(NamedTuple):
    """One engine process, fully resolved."""

    release: Release
    checkpoint: Checkpoint
    served_names: tuple[str, ...]
    host: str
    port: int
    supervisor_port: int | None
    parallel: Parallel
    addresses: Addresses
    kv: KvTransfer | None
    features: Features
    max_model_len: int
    utilisation: float
    cache_dtype: str
    block_size: int
    kv_tokens: int
    compatibility_hash: str
    shown: dict[str, Any]
