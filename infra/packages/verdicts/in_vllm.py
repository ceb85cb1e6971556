"""vLLM: `vllm serve` from its own `main` to the end of `create_engine_config`, on a platform without devices.

The platform is vLLM's own class for the vendor; only what asks a driver is answered by the catalogue. What comes after
the configuration (sockets, engine processes) is not begun.
"""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path
from typing import Any

from infra.packages.standins import StandIn, StandInModule
from infra.packages.verdicts.absent import bind_anywhere, stand_in_for
from infra.packages.verdicts.interview import Interview, Reached
from infra.packages.verdicts.visible import num_visible

# Compiled extensions and kernel packages: a configuration asks whether they are there, never what they compute.
_KERNELS = (
    "vllm._C",
    "vllm._C_stable_libtorch",
    "vllm._moe_C",
    "vllm._flashmla_C",
    "vllm._flashmla_extension_C",
    "vllm._rocm_C",
    "vllm.cumem_allocator",
    "vllm.vllm_flash_attn",
    "vllm.vllm_flash_attn.flash_attn_interface",
)
_ABSENT = ("humming", "quack", "tilelang")
_ABILITIES = (
    "cutlass_group_gemm_supported",
    "cutlass_scaled_mm_supports_block_fp8",
    "cutlass_scaled_mm_supports_fp4",
    "cutlass_scaled_mm_supports_fp8",
    "cutlass_sparse_scaled_mm_supported",
)
_ARCHITECTURES = (
    "KimiK25ForConditionalGeneration",
    "DeepseekV3ForCausalLM",
    "LlamaForCausalLMEagle3",
    "Eagle3LlamaForCausalLM",
    "Eagle3DeepseekV2ForCausalLM",
)
_PLATFORMS = {"nvidia": "cuda", "amd": "rocm"}


def speak(document: dict[str, Any], interview: Interview) -> None:
    """`vllm serve …`."""
    stand_in_for_kernels()
    if document["accelerator"]["vendor"] == "amd":
        sys.modules["amdsmi"] = _amd_library(document)
    be_on(document, interview)
    know_models()
    serve(interview)


def stand_in_for_kernels() -> None:
    """What is compiled: any name of it is there, and it supports what its chip supports."""
    stand_in_for(*_ABSENT)
    for name in _KERNELS:
        sys.modules[name] = StandInModule(name)
    torch: Any = importlib.import_module("torch")
    for name in _ABILITIES:
        setattr(torch.ops._C, name, lambda *_: True)  # noqa: SLF001 - torch's name for vLLM's operators


def _let_operators_be_there() -> None:
    """Passes name operators when they are imported; registrations, which would look for them, are over by now."""
    torch: Any = importlib.import_module("torch")
    operators = torch.ops._C  # noqa: SLF001 - torch's name for vLLM's operators

    def found(_: Any, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return StandIn()

    torch.library.register_fake = lambda *_, **__: lambda function: function
    operators.__class__ = type("Operators", (type(operators),), {"__getattr__": found})


def _let_kernels_be_compiled() -> None:
    """Where no device is, vLLM has a stand-in of triton that takes no configurations; an image has triton."""
    kernels: Any = importlib.import_module("vllm.triton_utils")
    if not kernels.HAS_TRITON:
        kernels.triton.Config = StandIn
    decides: Any = importlib.import_module("vllm.config.vllm")
    if hasattr(decides, "HAS_TRITON"):  # which model runner there is
        decides.HAS_TRITON = True


def know_models() -> None:
    """Look at the models' classes here: by itself vLLM does so in a process that would find no device."""
    _let_kernels_be_compiled()
    registry: Any = importlib.import_module("vllm.model_executor.models.registry")
    registry._run_in_subprocess = lambda look: look()  # noqa: SLF001 - vLLM's name for it
    for name in _ARCHITECTURES:
        if name in registry.ModelRegistry.models:
            registry.ModelRegistry.models[name].inspect_model_cls()


def serve(interview: Interview) -> None:
    """Run vLLM's own program; where it would parse its arguments, the next command is parsed."""
    arguments: Any = importlib.import_module("vllm.engine.arg_utils")
    parsers: Any = importlib.import_module("vllm.utils.argparse_utils")
    program: Any = importlib.import_module("vllm.entrypoints.cli.main")
    create = arguments.EngineArgs.create_engine_config
    parse = parsers.FlexibleArgumentParser.parse_args

    def parse_next(parser: Any, args: Any = None, namespace: Any = None) -> Any:
        if not interview.is_asked:
            sys.argv = interview.next_command()["argv"]
            _let_operators_be_there()
        return parse(parser, args, namespace)

    def create_and_stop(self: Any, *args: Any, **words: Any) -> Any:
        interview.level = "config"
        create(self, *args, **words)
        raise Reached

    _configure_first_child_of_a_supervisor(arguments)
    parsers.FlexibleArgumentParser.parse_args = parse_next
    arguments.EngineArgs.create_engine_config = create_and_stop
    bind_anywhere()
    sys.argv = ["vllm", "serve"]
    program.main()


def _configure_first_child_of_a_supervisor(arguments: Any) -> None:
    """A multi-port supervisor starts a server for each local rank: the first one is configured in its place."""
    entrypoints: Any = importlib.import_module("vllm.entrypoints")
    found = [
        name
        for name in ("openai", "launchers")
        if (Path(entrypoints.__path__[0]) / name / "dp_supervisor.py").is_file()
    ]
    if not found:  # before 0.22
        return
    supervisor: Any = importlib.import_module(f"vllm.entrypoints.{found[0]}.dp_supervisor")

    async def run(self: Any) -> None:
        if hasattr(supervisor, "_build_vllm_dp_server_env"):  # up to 0.27: then by --device-ids
            os.environ.update(supervisor._build_vllm_dp_server_env(self.args, 0))  # noqa: SLF001 - vLLM's
        child = supervisor._build_vllm_dp_server_args(self.args, 0)  # noqa: SLF001 - vLLM's
        arguments.AsyncEngineArgs.from_cli_args(child).create_engine_config()

    supervisor.DPSupervisor.run = run


def be_on(document: dict[str, Any], interview: Interview) -> None:
    """Take the place of the driver of the accelerator that the commands are for."""
    accelerator = document["accelerator"]
    platforms: Any = importlib.import_module("vllm.platforms")
    interface: Any = importlib.import_module("vllm.platforms.interface")
    own: Any = importlib.import_module(f"vllm.platforms.{_PLATFORMS[accelerator['vendor']]}")
    base = own.CudaPlatformBase if accelerator["vendor"] == "nvidia" else own.RocmPlatform
    checks = base.check_and_update_config.__func__

    def check_and_update_config(cls: Any, config: Any) -> None:
        interview.level = "checks"
        checks(cls, config)

    answers: dict[str, Any] = {
        "get_device_capability": lambda *_, **__: interface.DeviceCapability(
            *accelerator["capability"]
        ),
        "get_device_name": lambda *_, **__: accelerator["product_name"],
        "get_device_total_memory": lambda *_, **__: accelerator["memory_bytes"],
        "is_fully_connected": lambda *_, **__: True,
        "device_count": lambda *_, **__: num_visible(document),
        "check_and_update_config": check_and_update_config,
    }
    body: dict[str, Any] = {name: classmethod(answer) for name, answer in answers.items()}
    platforms._current_platform = type("Platform", (base,), body)()  # noqa: SLF001 - where vLLM keeps it
    for name in ("vllm.utils.torch_utils", "vllm.config.parallel"):  # up to 0.17
        module: Any = importlib.import_module(name)
        if hasattr(module, "cuda_device_count_stateless"):
            module.cuda_device_count_stateless = lambda: num_visible(document)


def _amd_library(document: dict[str, Any]) -> StandInModule:
    """AMD's management library, as far as vLLM asks which chip this is."""
    library = StandInModule("amdsmi")
    chip = {"target_graphics_version": document["accelerator"]["chip"], "device_id": "0x0"}
    answers: dict[str, Any] = {
        "AmdSmiException": RuntimeError,
        "amdsmi_get_processor_handles": lambda: [None] * document["num_devices"],
        "amdsmi_get_gpu_asic_info": lambda _: chip,
    }
    for name, answer in answers.items():
        setattr(library, name, answer)
    return library
