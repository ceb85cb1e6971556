#!/usr/bin/python3 -IS
"""What `vllm`, `python` and `python3` are in a virtual environment of `runtime: native`.

The program's own place tells its environment: `<venv>/bin/<name>`. It becomes the simulated engine, with
every device of the host, unless it is asked to run Python code.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any
if TYPE_CHECKING or __package__:
    from . import LENT_PACKAGES
    from .container_environment import PYTHON_NAMES
    from .host_state import STANDIN_NOTICE, present_devices, read_host, state_folder
else:
    sys.path.insert(0, os.environ.get("MOE_REHEARSAL_LIBRARY", "/opt/moe-rehearsal"))
    from standins import LENT_PACKAGES
    from standins.container_environment import PYTHON_NAMES
    from standins.host_state import STANDIN_NOTICE, present_devices, read_host, state_folder

EXIT_NOT_FOUND = 127


def main(arguments: list[str]) -> int:  # noqa: RET503  execve never returns
    """Become the simulated engine; return only when the environment is not one.

    Args:
        arguments: as in `sys.argv`.
    """
    name = os.path.basename(arguments[0])
    folder = os.path.dirname(os.path.dirname(os.path.abspath(arguments[0])))
    if not os.path.exists(folder + "/pyvenv.cfg"):
        text = f"{arguments[0]}: {folder} is not a virtual environment: it has no pyvenv.cfg"
        os.write(2, f"{text} ({STANDIN_NOTICE})\n".encode())
        return EXIT_NOT_FOUND
    first = arguments[1] if len(arguments) > 1 else "-"
    host = read_host()
    environment = native_environment(host, dict(os.environ))
    if name in PYTHON_NAMES and first.startswith("-") and first != "-m":
        words = [sys.executable, *arguments[1:]]
        os.execve(sys.executable, words, environment)  # noqa: S606  to become it is the job
    words = [sys.executable, "-I", "-S", host["engine_program"], name, *arguments[1:]]
    os.execve(sys.executable, words, environment)  # noqa: S606  as above


def native_environment(host: dict[str, Any], variables: dict[str, str]) -> dict[str, str]:
    """Return the variables of an engine that runs without a container.

    Args:
        host: `host.json`; `native_engine` says which release the environment holds.
        variables: those of the unit.
    """
    engine = host.get("native_engine") or {}
    devices = ",".join(str(index) for index in present_devices(host))
    preload = variables.pop("LD_PRELOAD", "")
    if preload:
        variables["MOE_REHEARSAL_LD_PRELOAD"] = preload
    return {
        **variables,
        "MOE_REHEARSAL_ENGINE": str(engine.get("engine") or ""),
        "MOE_REHEARSAL_ENGINE_VERSION": str(engine.get("engine_version") or ""),
        "MOE_REHEARSAL_PLUGIN_VERSION": str(engine.get("plugin_version") or ""),
        "MOE_REHEARSAL_DEVICES": devices,
        "MOE_REHEARSAL_STATE": state_folder(),
        "MOE_REHEARSAL_CATALOGUES": str(host["catalogues"]),
        "PYTHONPATH": LENT_PACKAGES,
    }


if __name__ == "__main__":
    sys.exit(main(sys.argv))
