"""Round trips that one host costs `fab tune-hosts` and OpenSSH, by the slope of the time, and counted.

The slope is taken behind two delays, so that work drops out. Counted is the longest chain of packets each of which was
sent after the one before had come: behind a delay that is longer than any work that is the same every time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from lab_fleet import slow_link
from measured_run import measure
from tune_fleet import DIFFERS, Fleet, first_host, floor

RTTS_MS = (20, 220)
RUNS = 4
LONG_RTT_MS = 1000
GOALS = {"check": 9.0, "change": 13.0}


def round_trips(fleet: Fleet) -> dict[str, float]:
    """By row, how many round trips one host takes: the best times' slope over the round-trip time."""
    one = first_host(fleet)
    best: dict[str, dict[int, float]] = {}
    for _ in range(RUNS):
        for rtt_ms in RTTS_MS:
            with slow_link(fleet.lab, rtt_ms / 2) as enter:
                for name, words, codes in _slow_commands(one):
                    wall_s = measure([*enter, *words], folder=one.folder, codes=codes).wall_s
                    walls = best.setdefault(name, {})
                    walls[rtt_ms] = min(wall_s, walls.get(rtt_ms, wall_s))
            measure(one.fab("--rollback"), folder=one.folder)
    near, far = RTTS_MS
    return {
        name: (walls[far] - walls[near]) / ((far - near) / 1000) for name, walls in best.items()
    }


def counted_round_trips(fleet: Fleet) -> dict[str, float]:
    """By row, the longest chain of packets, in round trips."""
    one = first_host(fleet)
    found: dict[str, float] = {}
    for name, words, codes in _slow_commands(one):
        log = one.folder / f"packets {name}"
        with slow_link(one.lab, LONG_RTT_MS / 2, log) as enter:
            measure([*enter, *words], folder=one.folder, codes=codes)
        found[name] = chain_length(log.read_text().splitlines(), LONG_RTT_MS / 2000) / 2
    measure(one.fab("--rollback"), folder=one.folder)
    return found


def chain_length(lines: Sequence[str], delay_s: float) -> int:
    """The longest chain of packets up to the last that carries anything: each left after the one before had come.

    Args:
        lines: a log of `slow_link.py`.
        delay_s: how long a packet is on its way.
    """
    longest, arriving = 0, {"<": [(0.0, 0)], ">": [(0.0, 0)]}
    for line in lines:
        at, direction, flags, size = line.split()
        sent = float(at)
        come = [
            length for when, length in arriving["<" if direction == ">" else ">"] if when <= sent
        ]
        length = max(come) + 1
        arriving[direction].append((sent + delay_s, length))
        if int(size) or "S" in flags:
            longest = max(longest, length)
    return longest


def print_round_trips(trips: Mapping[str, float], counted: Mapping[str, float]) -> None:
    """Print the table."""
    control = Path("/proc/sys/net/ipv4/tcp_congestion_control").read_text().strip()
    print(f"| one host, {control} | round trips by slope | counted | goal |")
    print("|---|---|---|---|")
    for name, number in trips.items():
        goal = GOALS.get(name.removeprefix("fab "), "")
        print(f"| {name} | {number:.1f} | {counted[name]:.1f} | {goal} |")
    print()


def _slow_commands(one: Fleet) -> list[tuple[str, list[str], tuple[int, ...]]]:
    plain = floor(one, "check")[len(one.lab.enter) :]
    check, change = (one.fab(*words)[len(one.lab.enter) :] for words in (["--check"], []))
    return [
        ("F check", plain, (0,)),
        ("fab check", check, (0, DIFFERS)),
        ("fab change", change, (0,)),
    ]
