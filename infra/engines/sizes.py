"""Sizes and devices that a command line and its environment ask for, read alike for every engine."""

from __future__ import annotations

from collections.abc import Mapping

from infra.engines.command_line import as_int
from infra.spec.bounded import is_whole_number

MASKS = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ASCEND_RT_VISIBLE_DEVICES")
# More than any deployment has; a mistyped size must not be counted out one by one.
MAX_RANKS = 20_000


def read_size(flags: Mapping[str, object], name: str) -> int:
    """A size that counts from one; what is absurd is judged by a rule and must not break the others."""
    return max(1, min(as_int(flags.get(name), 1), MAX_RANKS))


def read_devices(
    env: Mapping[str, str], needed: int, num_devices: int, *, first: int = 0, step: int = 1
) -> tuple[int, ...]:
    """Host indices that the process takes: of its mask, or of all devices, from `first` on each `step`-th."""
    taken = slice(first, first + needed * step, step)
    for name in MASKS:
        if name in env:
            words = [word.strip() for word in env[name].split(",")]
            return tuple(sorted(int(word) for word in words[taken] if is_whole_number(word)))
    return tuple(range(min(num_devices, MAX_RANKS)))[taken]
