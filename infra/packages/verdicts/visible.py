"""How many devices a process sees."""

from __future__ import annotations

import os
from typing import Any

_MASKS = {
    "nvidia": ("CUDA_VISIBLE_DEVICES",),
    "amd": ("HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"),
    "ascend": ("ASCEND_RT_VISIBLE_DEVICES",),
}


def num_visible(document: dict[str, Any]) -> int:
    """The devices of a process's mask up to the first that is none, else the host's."""
    names = _MASKS[document["accelerator"]["vendor"]]
    mask = next((os.environ[name] for name in names if name in os.environ), None)
    total = int(document["num_devices"])
    if mask is None:
        return total
    seen = 0
    for word in mask.split(","):
        if not word.strip().isdecimal() or int(word) >= total:
            break
        seen += 1
    return seen
