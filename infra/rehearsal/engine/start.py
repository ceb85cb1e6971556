"""Which program an argument vector starts, and how it ends."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from typing import Any, NoReturn

from . import vllm_config
from .failures import Failed, Refused, write_error
from .log import Log
from .settings import Release
from .vllm_process import Process
from .world import read_world


def main(argv: list[str]) -> NoReturn:
    """Play the program named by the argument vector and leave with its exit code."""
    try:
        release = read_release(dict(os.environ))
        title = (
            f"load-balance proxy of {release.title}"
            if program_of(argv)[0] == "proxy"
            else release.title
        )
        sys.stdout.write(f"moe-infra rehearsal: SIMULATED {title}\n")
        sys.stdout.flush()
        _run(argv, release)
    except (Refused, Failed) as failure:
        write_error(failure.text + _seen_from_outside(failure, argv))
        _leave(failure.exit_code)
    except SystemExit as leaving:
        _leave(leaving.code if isinstance(leaving.code, int) else 1)
    _leave(0)


def read_release(environ: dict[str, str]) -> Release:
    """Return the release that the container stand-in set.

    Raises:
        Failed: the variables are missing or name no engine.
    """
    engine = environ.get("MOE_REHEARSAL_ENGINE", "vllm")
    if engine not in ("vllm", "vllm-ascend", "sglang", "ascend-proxy"):
        raise Failed("moe-infra rehearsal", f"MOE_REHEARSAL_ENGINE names no engine: {engine}", "")
    return Release(
        engine=engine,  # type: ignore[arg-type]
        version=environ.get("MOE_REHEARSAL_ENGINE_VERSION", ""),
        plugin=environ.get("MOE_REHEARSAL_PLUGIN_VERSION", ""),
    )


def program_of(argv: list[str]) -> tuple[str, list[str]]:
    """Return which program an argument vector starts, and the program's own arguments.

    Raises:
        Failed: the image holds no such program.
    """
    words = [os.path.basename(argv[0]), *argv[1:]] if argv else [""]
    if words[:2] == ["vllm", "serve"]:
        return "vllm", words[2:]
    if words[:2] == ["sglang", "serve"]:
        return "sglang serve", words[2:]
    if words[0].startswith("python"):
        rest = words[1:]
        if rest[:2] == ["-m", "sglang.launch_server"]:
            return "launch_server.py", rest[2:]
        if rest[:2] == ["-m", "vllm.entrypoints.openai.api_server"]:
            return "vllm", rest[2:]
        if rest and rest[0].endswith("load_balance_proxy_server_example.py"):
            return "proxy", rest[1:]
    raise Failed(
        "exec", f'"{argv[0] if argv else ""}": executable file not found in $PATH', process=""
    )


def _run(argv: list[str], release: Release) -> None:
    environ = dict(os.environ)
    program, arguments = program_of(argv)
    if program == "proxy":
        from .proxy import run_proxy  # noqa: PLC0415 - of no use to an engine, and start-up is dear

        _die_by_signal()
        run_proxy(arguments)
        return
    is_sglang = program != "vllm"
    if is_sglang != (release.engine == "sglang"):
        raise Failed("exec", f'"{argv[0]}": executable file not found in $PATH', process="")
    if is_sglang:
        from .sglang_process import run_sglang  # noqa: PLC0415 - likewise

        _die_by_signal()
        run_sglang(program, arguments, release, environ)
        return
    args, warnings = vllm_config.parse_arguments(arguments, release)
    world = read_world(environ)
    settings, more = vllm_config.configure(args, release, world, environ)
    for message in warnings + more:
        Log("APIServer").caution("arg_utils.py", message)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _stop)
    Process(settings, args, world).run()


def _seen_from_outside(failure: Refused | Failed, argv: list[str]) -> str:
    """Return what vLLM's API server adds when the process of an engine core has failed."""
    is_core = isinstance(failure, Failed) and failure.process == "EngineCore"
    if not is_core or "--headless" in argv or program_of(argv)[0] != "vllm":
        return ""
    reason = "Engine core initialization failed. See root cause above. Failed core proc(s): "
    return Failed("RuntimeError", f"{reason}{{'EngineCore': 1}}").text


def _stop(_: int, __: Any) -> None:
    """VLLM leaves with 0 when it is told to stop; requests in flight are aborted.

    It may come in the middle of a line, whose buffer nobody else may enter then.
    """
    with contextlib.suppress(RuntimeError):
        sys.stdout.write("INFO [launcher.py:130] Shutting down\n")
        sys.stdout.flush()
    os._exit(0)


def _die_by_signal() -> None:
    """Uvicorn's own runner ends by the signal itself: 143 for a shell."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _leave(code: int) -> NoReturn:
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
