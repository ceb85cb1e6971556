"""What holds for a process whatever its task: how it prints, when it looks for garbage, what it does not look for."""

from __future__ import annotations

import atexit
import gc
import io
import os
import sys


def prepare_interpreter() -> None:
    """All of it, once for a process."""
    collect_seldom()
    look_for_no_plugins()
    let_any_text_through()


def let_any_text_through() -> None:
    """What the terminal's character set lacks is shown escaped; what was closed before us takes nothing."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_WRONLY), "w"))
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def collect_seldom() -> None:
    """A plan is many small objects that all stay: looking them over again and again costs a fifth of the time.

    What is loaded already stays, too. What is left at the end goes with the process: looking it all over once more is
    a sixth of a short command.
    """
    gc.freeze()
    gc.set_threshold(200_000, 20, 100)
    atexit.register(gc.freeze)


def look_for_no_plugins() -> None:
    """In search of plugins, pydantic reads every installed distribution: a fortieth of a short command, for none."""
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
