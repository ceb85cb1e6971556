"""SGLang: from its own command line over `ServerArgs` to the moment before it starts a scheduler.

What asks a driver (torch's CUDA calls, nvidia-smi, rocminfo) is answered by the catalogue.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
import types
from typing import Any

from infra.packages.verdicts.absent import bind_anywhere, stand_in_for
from infra.packages.verdicts.interview import Interview, Reached
from infra.packages.verdicts.visible import num_visible

_ABSENT = (
    "aiter",
    "cuda",
    "decord",
    "flashinfer",
    "jsonschema",
    "mooncake",
    "modelscope",
    "outlines",
    "sgl_kernel",
    "torch_memory_saver",
    "torchao",
)
_LAST_STEP = "_launch_scheduler_processes"  # what needs accelerators begins there
_TEMPLATES = ("sglang.srt.managers.template_manager", "sglang.srt.parser.template_manager")
_PROGRAM_WORDS = 3  # python -m sglang.launch_server


def speak(document: dict[str, Any], interview: Interview) -> None:
    """`python -m sglang.launch_server …`."""
    stand_in_for(*_ABSENT)
    _take_the_place_of_a_driver(document)
    arguments: Any = importlib.import_module("sglang.srt.server_args")
    launch: Any = importlib.import_module("sglang.launch_server")
    engine: Any = importlib.import_module("sglang.srt.entrypoints.engine")
    importlib.import_module("sglang.srt.entrypoints.http_server")
    build = arguments.ServerArgs.from_cli_args
    check = arguments.ServerArgs.check_server_args

    def build_next(*args: Any) -> Any:
        interview.level = "config"
        return build(*args)

    def check_next(server_args: Any) -> None:
        interview.level = "checks"
        check(server_args)

    def stop(*words: Any, server_args: Any = None, **_: Any) -> None:
        arguments_of = words[0] if server_args is None else server_args
        if arguments_of.node_rank == 0:
            _load_templates(arguments_of)
        raise Reached

    arguments.ServerArgs.from_cli_args = build_next
    arguments.ServerArgs.check_server_args = check_next
    engine.assert_pkg_version = lambda *_: None
    where = engine if hasattr(engine, _LAST_STEP) else engine.Engine  # from 0.5.10 on
    setattr(where, _LAST_STEP, staticmethod(stop))
    bind_anywhere()
    argv = interview.next_command()["argv"]
    sys.argv = ["launch_server.py", *argv[_PROGRAM_WORDS:]]
    launch.run_server(arguments.prepare_server_args(argv[_PROGRAM_WORDS:]))


def _load_templates(server_args: Any) -> None:
    """What node 0 does beside its schedulers, as far as no tokenizer is needed."""
    if server_args.chat_template:
        found = next(name for name in _TEMPLATES if importlib.util.find_spec(name) is not None)
        templates: Any = importlib.import_module(found)
        tokenizer = types.SimpleNamespace(tokenizer=None)
        templates.TemplateManager().load_chat_template(
            tokenizer, server_args.chat_template, server_args.model_path
        )


def _take_the_place_of_a_driver(document: dict[str, Any]) -> None:
    accelerator = document["accelerator"]
    torch: Any = importlib.import_module("torch")
    if accelerator["vendor"] == "amd":
        torch.version.hip, torch.version.cuda = "7.0", None
    major, minor = accelerator["capability"]
    properties = types.SimpleNamespace(
        name=accelerator["product_name"],
        total_memory=accelerator["memory_bytes"],
        major=major,
        minor=minor,
        gcnArchName=accelerator["chip"],
        multi_processor_count=132,
        warp_size=32,
    )
    answers: dict[str, Any] = {
        "is_available": lambda: True,
        "device_count": lambda: num_visible(document),
        "current_device": lambda: 0,
        "get_device_capability": lambda *_, **__: (major, minor),
        "get_device_name": lambda *_, **__: properties.name,
        "get_device_properties": lambda *_, **__: properties,
        "mem_get_info": lambda *_, **__: (properties.total_memory, properties.total_memory),
    }
    for name, answer in answers.items():
        setattr(torch.cuda, name, answer)
    torch.library.register_fake = lambda *_, **__: (
        lambda function: function
    )  # of kernels that are not here
    measured: Any = importlib.import_module("sglang.srt.utils.common")
    mib = accelerator["memory_bytes"] >> 20
    measured.get_nvgpu_memory_capacity = lambda: mib
    measured.get_amdgpu_memory_capacity = lambda: mib
