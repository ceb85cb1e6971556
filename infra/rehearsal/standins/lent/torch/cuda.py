"""Devices: which one a process uses, and waiting for it."""

from __future__ import annotations

from .simulated import WORLD

current = 0


def set_device(index: int) -> None:
    """Use a device, of those that the process sees.

    Raises:
        RuntimeError: it is not there, in CUDA's words.
    """
    global current  # noqa: PLW0603 - as in the real one, it is the process's
    if index >= len(WORLD.devices):
        raise RuntimeError("CUDA error: invalid device ordinal")
    current = index


def synchronize() -> None:
    """Nothing is ever under way."""
