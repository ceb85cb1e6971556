"""Reads one unpacked package, in its own process: `python -m infra.packages.reading_process PACKAGE FOLDER FILE`."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from infra.packages.other_packages import (
    read_sglang,
    read_sglang_router,
    read_vllm_ascend,
    read_vllm_router,
)
from infra.packages.vllm_package import read_vllm

READERS: Mapping[str, Callable[[Path], dict[str, Any]]] = {
    "vllm": read_vllm,
    "vllm-ascend": read_vllm_ascend,
    "sglang": read_sglang,
    "vllm-router": read_vllm_router,
    "sglang-router": read_sglang_router,
}


def main(package: str, folder: str, file: str) -> None:
    """Write the package's sections to a file; what the package prints stays on its own streams."""
    Path(file).write_text(json.dumps(READERS[package](Path(folder))), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
