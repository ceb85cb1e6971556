"""What Ctrl-C does while no task runs yet: nothing has begun that were to be undone, and nobody reads a traceback."""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType
from typing import NoReturn

INTERRUPTED = 130


def leave_when_interrupted() -> None:
    """Have an interrupt end the process at once; not where whoever started it has it ignore them."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _leave)


def raise_when_interrupted() -> None:
    """Have an interrupt be a KeyboardInterrupt again, for tasks, which undo what they have begun."""
    if signal.getsignal(signal.SIGINT) is _leave:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def leave_interrupted() -> NoReturn:
    """Say so, and leave with 130.

    Threads that wait for a host's greeting would hold the ordinary way out for seconds; everything that has to be
    undone was undone on the way here.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # else a second one would leave with 1
    print("Interrupted.", file=sys.stderr)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(INTERRUPTED)


def _leave(_signal: int, _frame: FrameType | None) -> NoReturn:
    leave_interrupted()
