"""Small packages laid out like the engines': enough of each for its catalogue to be read."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

VLLM: Mapping[str, str] = {
    "vllm/__init__.py": "",
    "vllm/envs.py": """
        import os
        from typing import TYPE_CHECKING
        if TYPE_CHECKING:
            VLLM_PORT: int | None = None
        def one_of(env_name, default, choices, case_sensitive):
            def _get_validated_env():
                return choices, case_sensitive, default, env_name
            return _get_validated_env
        environment_variables = {
            "VLLM_PORT": lambda: os.getenv("VLLM_PORT"),
            "VLLM_PREFIX": lambda: os.getenv("VLLM_PREFIX", "x"),
            "VLLM_SWITCH": lambda: bool(int(os.getenv("VLLM_SWITCH", "0"))),
            "VLLM_WORDS": lambda: os.getenv("VLLM_WORDS", "0").lower() in ("true", "1"),
            "VLLM_SECONDS": lambda: float(os.getenv("VLLM_SECONDS", "1.0")),
            "VLLM_METHOD": one_of("VLLM_METHOD", "fork", ["spawn", "fork"], False),
            "VLLM_TOOLS": one_of("VLLM_TOOLS", [], lambda: ["a", "b"], True),
        }
    """,
    "vllm/platforms/__init__.py": "_current_platform = None",
    "vllm/platforms/interface.py": """
        import enum
        class PlatformEnum(enum.Enum):
            CUDA = 1
        class Platform:
            pass
    """,
    "vllm/platforms/cpu.py": "",
    "vllm/platforms/cuda.py": "ORDER = [AttentionBackendEnum.FLASHMLA, AttentionBackendEnum.TRITON_MLA]",
    "vllm/platforms/rocm.py": "ORDER = [AttentionBackendEnum.TRITON_MLA_SPARSE, AttentionBackendEnum.TRITON_MLA]",
    "vllm/platforms/xpu.py": "",
    "vllm/v1/attention/backends/registry.py": """
        class AttentionBackendEnum(Enum):
            TRITON_MLA_SPARSE = "vllm.v1.attention.backends.triton.SparseBackend"
            TRITON_MLA = "vllm.v1.attention.backends.triton.Backend"
            FLASHMLA = "vllm.v1.attention.backends.flashmla.Backend"
            DEVICE = "vllm.v1.attention.backends.flashmla.DeviceBackend"
            TORCH_SDPA = ""
            CUSTOM = None
    """,
    "vllm/v1/attention/backends/mla/prefill/registry.py": """
        class MLAPrefillBackendEnum(Enum):
            FLASH_ATTN = "vllm.v1.attention.backends.mla.prefill.two.AnyDevice"
            TRTLLM_RAGGED = (
                "vllm.v1.attention.backends.mla.prefill.two."
                "Blackwell"
            )
            ROCM_AITER_FA = "vllm.v1.attention.backends.mla.prefill.two.Rocm"
            CUSTOM = None
    """,
    "vllm/v1/attention/backends/mla/prefill/two.py": """
        class AnyDevice:
            @classmethod
            def supports_compute_capability(cls, device_capability: "DeviceCapability") -> bool:
                return True
        class Blackwell(AnyDevice):
            @classmethod
            def supports_compute_capability(cls, device_capability: "DeviceCapability | None") -> bool:
                return device_capability is not None and device_capability.major == 10
        class Rocm(AnyDevice):
            @classmethod
            def supports_compute_capability(cls, device_capability: "DeviceCapability") -> bool:
                if not current_platform.is_rocm():
                    return False
                return on_mi3xx()
    """,
    "vllm/v1/attention/backend.py": """
        class AttentionBackend:
            @classmethod
            def supports_compute_capability(cls, capability: "DeviceCapability") -> bool:
                return True
            @classmethod
            def is_mla(cls) -> bool:
                return False
            @staticmethod
            def get_supported_kernel_block_sizes(spec=None):
                return [MultipleOf(1)]
            @classmethod
            def supports_block_size(cls, block_size):
                return any(block_size % size == 0 for size in cls.get_supported_kernel_block_sizes())
            @classmethod
            def supports_kv_cache_dtype(cls, kv_cache_dtype):
                return kv_cache_dtype in cls.supported_kv_cache_dtypes
        class AttentionImpl:
            can_return_lse_for_decode: bool = False
    """,
    "vllm/v1/attention/backends/triton.py": """
        from vllm.v1.attention.backend import AttentionBackend, AttentionImpl
        class Backend(AttentionBackend):
            supported_kv_cache_dtypes: ClassVar[list[str]] = ["auto", "fp8"]
            @classmethod
            def is_mla(cls) -> bool:
                return True
            @classmethod
            def supports_block_size(cls, block_size):
                return block_size % 16 == 0
            @staticmethod
            def get_impl_cls() -> type["TritonImpl"]:
                return TritonImpl
        class TritonImpl(AttentionImpl[Metadata]):
            can_return_lse_for_decode: bool = True
        class SparseBackend(Backend):
            @classmethod
            def is_sparse(cls) -> bool:
                return True
    """,
    "vllm/v1/attention/backends/flashmla.py": """
        import vllm._flashmla_C
        from vllm.v1.attention.backend import AttentionBackend, AttentionImpl
        from vllm.v1.attention.backends.triton import Backend as Other
        class Backend(Other):
            @staticmethod
            def get_supported_kernel_block_sizes():
                return [32, 64]
            @classmethod
            def supports_block_size(cls, block_size):
                return cls.knows(block_size)
            @staticmethod
            def get_impl_cls() -> type["FlashImpl"]:
                return FlashImpl
            @classmethod
            def supports_compute_capability(cls, capability: DeviceCapability) -> bool:
                return DeviceCapability(9, 0) <= capability < DeviceCapability(11, 0)
        class FlashImpl(AttentionImpl):
            pass
        class DeviceBackend(AttentionBackend):
            supported_kv_cache_dtypes = ["auto"]
            @staticmethod
            def get_supported_kernel_block_sizes():
                return [32, 64]
            @classmethod
            def supports_kv_cache_dtype(cls, kv_cache_dtype):
                return on_device()
            @classmethod
            def supports_compute_capability(cls, capability: DeviceCapability) -> bool:
                from vllm.platforms.cuda import on_device
                return on_device()
    """,
    "vllm/utils/__init__.py": "",
    "vllm/utils/argparse_utils.py": """
        import argparse
        class FlexibleArgumentParser(argparse.ArgumentParser):
            pass
        def human_readable_int(text):
            return int(text)
    """,
    "vllm/config/__init__.py": """
        from dataclasses import dataclass, field
        from typing import TYPE_CHECKING, Any, Literal
        import torch
        if TYPE_CHECKING:
            from vllm.quantization import Methods
        else:
            Methods = Any
        @dataclass
        class EPLBConfig:
            window_size: int = 1000
            policy: Literal["default", "other"] = "default"
            seen: list[int] = field(default_factory=list, init=False)
        @dataclass
        class ParallelConfig:
            eplb_config: EPLBConfig = field(default_factory=EPLBConfig)
            dtype: torch.dtype = torch.float16
        @dataclass
        class ModelConfig:
            quantization: Methods | str | None = None
        @dataclass
        class SpeculativeConfig:
            num_speculative_tokens: int = None
    """,
    "vllm/quantization.py": 'from typing import Literal\nMethods = Literal["awq", "fp8"]',
    "vllm/engine/__init__.py": "",
    "vllm/engine/arg_utils.py": """
        import json
        from dataclasses import dataclass, field
        from typing import Any
        import transformers
        from vllm.config import EPLBConfig, ModelConfig, ParallelConfig
        from vllm.utils.argparse_utils import human_readable_int
        def parse_dataclass(text):
            return json.loads(text)
        def _optional_type(text):
            return text or None
        @dataclass
        class AsyncEngineArgs:
            speculative_config: dict[str, Any] | None = None
            @staticmethod
            def add_cli_args(parser):
                parallel = parser.add_argument_group(title="ParallelConfig")
                parallel.add_argument("--eplb-config", type=parse_dataclass, default=EPLBConfig())
                parallel.add_argument("--tensor-parallel-size", "-tp", type=int, default=1)
                model = parser.add_argument_group(title="ModelConfig")
                model.add_argument("--quantization", "-q", type=_optional_type)
                model.add_argument("--max-model-len", type=human_readable_int)
                parser.add_argument("--speculative-config", type=json.loads)
                return parser
    """,
    "vllm/entrypoints/__init__.py": "",
    "vllm/entrypoints/openai/__init__.py": "",
    "vllm/entrypoints/openai/cli_args.py": """
        import argparse
        from dataclasses import dataclass
        import uvloop
        from vllm.engine.arg_utils import AsyncEngineArgs
        @dataclass
        class FrontendArgs:
            host: str | None = None
        def make_arg_parser(parser):
            parser.add_argument("model_tag", type=str, nargs="?")
            parser.add_argument("--host", type=str)
            parser.add_argument("--headless", action="store_true")
            parser.add_argument("--enforce-eager", action=argparse.BooleanOptionalAction, default=False)
            return AsyncEngineArgs.add_cli_args(parser)
    """,
    "vllm/benchmarks/__init__.py": "",
    "vllm/benchmarks/serve.py": """
        import uuid
        def add_cli_args(parser):
            parser.add_argument("--request-id-prefix", type=str, default=f"bench-{uuid.uuid4().hex[:8]}-")
    """,
    "vllm/distributed/__init__.py": "",
    "vllm/distributed/kv_transfer/__init__.py": "",
    "vllm/distributed/kv_transfer/kv_connector/__init__.py": "",
    "vllm/distributed/kv_transfer/kv_connector/factory.py": """
        class KVConnectorFactory:
            _registry = {"NixlConnector": None}
    """,
    "vllm/reasoning/__init__.py": """
        class ReasoningParserManager:
            @classmethod
            def list_registered(cls):
                return ["kimi_k2"]
    """,
    "vllm/tool_parsers/__init__.py": """
        class ToolParserManager:
            @classmethod
            def list_registered(cls):
                return ["kimi_k2", "hermes"]
    """,
    "vllm/model_executor/__init__.py": "",
    "vllm/model_executor/models/__init__.py": "",
    "vllm/model_executor/models/registry.py": """
        import vllm._C
        from transformers import PretrainedConfig
        _VLLM_MODELS = {"KimiK25ForConditionalGeneration": ("kimi_k25", "KimiK25")}
    """,
}

SGLANG: Mapping[str, str] = {
    "sglang/__init__.py": "",
    "sglang/srt/__init__.py": "",
    "sglang/srt/environ.py": """
        class EnvBool:
            def __init__(self, default):
                self.default = default
        class Envs:
            SGLANG_LOG_GC = EnvBool(False)
        def _print_deprecated_env(new_name, old_name=None):
            pass
        _print_deprecated_env("SGLANG_LOG_GC", "SGLANG_GC_LOG")
        _print_deprecated_env("SGLANG_GONE")
    """,
    "sglang/srt/server_args.py": """
        import os
        import torch
        from sglang.srt.layers.kernels import is_fast
        BACKENDS = ["triton", "fa3"]
        TIMEOUT = int(os.getenv("SGLANG_TIMEOUT", "300"))
        HOME = os.environ.get("HF_HOME")
        class ServerArgs:
            @staticmethod
            def add_cli_args(parser):
                parser.add_argument("--model-path", "--model", type=str, required=True)
                parser.add_argument("--attention-backend", type=str, choices=BACKENDS)
    """,
    "sglang/srt/layers/attention/attention_registry.py": """
        def register_attention_backend(name):
            pass
        @register_attention_backend("triton")
        def create_triton_backend(runner):
            pass
        @register_attention_backend("fa3")
        def create_fa3_backend(runner):
            pass
    """,
    "sglang/srt/speculative/draft_utils.py": """
        class DraftBackendFactory:
            def create_decode_backend(self):
                backend_map = {"triton": self.a, "ascend": self.b}
            def create_draft_extend_backend(self):
                backend_map = {"triton": self.c}
    """,
    "sglang/srt/parser/__init__.py": "",
    "sglang/srt/parser/conversation.py": """
        register_conv_template(Conversation(name="kimi-vl", roles=("a", "b")))
    """,
    "sglang/srt/models/__init__.py": "",
    "sglang/srt/models/kimi_k25.py": "class KimiK25: pass\nEntryClass = [KimiK25]",
    "sglang/srt/models/llama.py": "class Llama: pass\nEntryClass = Llama",
    "sglang/test/__init__.py": 'import os\nos.getenv("SGLANG_ONLY_IN_TESTS")',
}

VLLM_ASCEND: Mapping[str, str] = {
    "vllm_ascend/__init__.py": """
        def register_model():
            ModelRegistry.register_model("DeepseekV4ForCausalLM", "vllm_ascend.models:X")
    """,
    "vllm_ascend/envs.py": """
        import os
        env_variables = {"VLLM_ASCEND_ENABLE_NZ": lambda: int(os.getenv("VLLM_ASCEND_ENABLE_NZ", 1))}
    """,
    "vllm_ascend/ascend_config.py": """
        class AscendConfig:
            def __init__(self, vllm_config):
                additional_config = vllm_config.additional_config
                self.a = additional_config.get("ascend_log_path")
                self.b = self.value(scheduler_config, additional_config, "recompute_scheduler_enable", False)
                if "refresh" in additional_config:
                    self.c = vllm_config.additional_config["eplb_config"]
                self.d = other_config.get("not_a_key")
    """,
    "vllm_ascend/distributed/kv_transfer/__init__.py": """
        def register_connector():
            KVConnectorFactory.register_connector("MooncakeConnectorV1", "module", "Class")
    """,
}

_ROUTER = """
    from typing import Any
    import setproctitle
    class RouterArgs:
        @staticmethod
        def add_cli_args(parser, use_router_prefix):
            prefix = "router-" if use_router_prefix else ""
            parser.add_argument(f"--{prefix}policy", type=str, default="cache_aware", choices=["random", "cache_aware"])
            parser.add_argument("--prefill", nargs="+", action="append")
"""
VLLM_ROUTER: Mapping[str, str] = {
    "vllm_router/__init__.py": "",
    "vllm_router/launch_router.py": _ROUTER,
}
SGLANG_ROUTER: Mapping[str, str] = {
    "sglang_router/__init__.py": "",
    "sglang_router/launch_router.py": _ROUTER,
}
PACKAGES: Mapping[str, Mapping[str, str]] = {
    "vllm": VLLM,
    "vllm-ascend": VLLM_ASCEND,
    "sglang": SGLANG,
    "vllm-router": VLLM_ROUTER,
    "sglang-router": SGLANG_ROUTER,
}


def write_package(name: str, folder: Path, changes: Mapping[str, str] | None = None) -> Path:
    """One of `PACKAGES`, with files of it written anew."""
    for path, text in {**PACKAGES[name], **(changes or {})}.items():
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        lines = text.strip("\n").splitlines()
        margin = min((len(line) - len(line.lstrip()) for line in lines if line.strip()), default=0)
        file.write_text("\n".join(line[margin:] for line in lines) + "\n", encoding="utf-8")
    return folder
