"""The engine's loop ends when it is told to, even if nothing else will ever wake it."""

from __future__ import annotations

import subprocess
import sys

# The kernel interrupts the thread here, and not the main one, as when a signal comes just before a wait begins.
PROGRAM = """
import os, signal, threading, time
from infra.rehearsal.engine import start
from infra.rehearsal.engine.loop import Loop

signal.signal(signal.SIGTERM, start._stop)
loop = Loop()

def tell():
    time.sleep(0.2)
    signal.pthread_kill(threading.get_ident(), signal.SIGTERM)

async def wait():
    threading.Thread(target=tell).start()
    await loop.readable(os.pipe()[0])

loop.run(wait())
"""


def test_a_signal_that_does_not_interrupt_the_wait_ends_it_all_the_same() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False, timeout=20
    )
    assert done.returncode == 0, done.stderr
    assert "Shutting down" in done.stdout
