"""Both routers: their own parser, their own checks, and the constructor of their compiled part; none is started."""

from __future__ import annotations

import importlib
import sys
from typing import Any

from infra.packages.verdicts.interview import Interview, Reached


def speak_vllm_router(_: dict[str, Any], interview: Interview) -> None:
    """`vllm-router …`."""
    _speak("vllm_router", 1, interview)


def speak_sglang_router(_: dict[str, Any], interview: Interview) -> None:
    """`python -m sglang_router.launch_router …`."""
    _speak("sglang_router", 3, interview)


def _speak(package: str, program_words: int, interview: Interview) -> None:
    launch: Any = importlib.import_module(f"{package}.launch_router")
    launch_router = launch.launch_router

    def launch_parsed(args: Any) -> Any:
        interview.level = "config"
        return launch_router(args)

    def stop(_: Any) -> None:
        raise Reached

    launch.launch_router = launch_parsed
    launch.Router.start = stop
    sys.argv = [package, *interview.next_command()["argv"][program_words:]]
    launch.main()
