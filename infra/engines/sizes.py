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


def read_devices(env: Mapping[str, str], needed: int, num_devices: int) -> tuple[int, ...]:
    """Host indices that the process takes: the first of its mask, or of all devices."""
    for name in MASKS:
        if name in env:
            words = [word.strip() for word in env[name].split(",")]
            return tuple(sorted(int(word) for word in words[:needed] if is_whole_number(word)))
    return tuple(range(min(needed, num_devices, MAX_RANKS)))
