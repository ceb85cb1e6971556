"""vllm-ascend: the plugin's own platform class under vLLM's own `vllm serve`, with the device's library stood in for.

vLLM finds the plugin by its entry points, as in an image; the plugin patches vLLM and registers its connectors. Its
checks of the finished configuration are its own. The wheel of the registry is built for the A2: images are built for
the A2 or the A3, so the answer to which of them it is comes from the catalogue.
"""

from __future__ import annotations

import importlib
import sys
from typing import Any

from infra.packages.standins import StandInModule
from infra.packages.verdicts import in_vllm
from infra.packages.verdicts.absent import stand_in_for
from infra.packages.verdicts.interview import Interview
from infra.packages.verdicts.visible import num_visible

# The device's library, what is built on it, and what the plugin needs beside its base and imports on the way.
_ABSENT = ("acl", "memcache_hybrid", "memfabric_hybrid", "mooncake", "torch_npu")


def speak(document: dict[str, Any], interview: Interview) -> None:
    """`vllm serve …` with the plugin installed."""
    stand_in_for(*_ABSENT)
    in_vllm.stand_in_for_kernels()
    _take_the_place_of_a_device(document)
    _be_built_for(document["accelerator"]["chip"])
    _answer_for_the_driver(document, interview)
    in_vllm.know_models()
    in_vllm.serve(interview)


def _take_the_place_of_a_device(document: dict[str, Any]) -> None:
    """What importing torch_npu would make: `torch.npu`, the device's name, and its collectives."""
    torch: Any = importlib.import_module("torch")
    distributed: Any = importlib.import_module("torch.distributed")
    device = StandInModule("torch.npu")
    answers: dict[str, Any] = {
        "is_available": lambda: True,
        "device_count": lambda: num_visible(document),
        "get_device_name": lambda *_: document["accelerator"]["product_name"],
    }
    for name, answer in answers.items():
        setattr(device, name, answer)
    torch.npu = sys.modules["torch.npu"] = device
    distributed.is_hccl_available = lambda: True
    torch.utils.rename_privateuse1_backend("npu")


def _be_built_for(device_type: str) -> None:
    """Let the package be that of the accelerator's image: `A2` or `A3`."""
    built: Any = importlib.import_module("vllm_ascend._build_info")
    built.__device_type__ = device_type


def _answer_for_the_driver(document: dict[str, Any], interview: Interview) -> None:
    """What the plugin's platform asks a driver; its checks tell how far a command has come."""
    platforms: Any = importlib.import_module("vllm.platforms")
    own = type(platforms.current_platform)  # vLLM looks for plugins here
    checks = own.check_and_update_config.__func__

    def check_and_update_config(cls: Any, config: Any) -> None:
        interview.level = "checks"
        checks(cls, config)

    own.check_and_update_config = classmethod(check_and_update_config)
    own.device_count = classmethod(lambda *_: num_visible(document))
