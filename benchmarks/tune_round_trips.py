"""Round trips that one host costs `fab tune-hosts` and OpenSSH: behind two delays, so that work drops out."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from lab_fleet import slow_link
from measured_run import measure
from tune_fleet import DIFFERS, Fleet, first_host, floor

RTTS_MS = (20, 220)
RUNS = 4
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


def print_round_trips(trips: Mapping[str, float]) -> None:
    """Print the table."""
    control = Path("/proc/sys/net/ipv4/tcp_congestion_control").read_text().strip()
    print(f"| one host, {control} | round trips | goal |")
    print("|---|---|---|")
    for name, number in trips.items():
        print(f"| {name} | {number:.1f} | {GOALS.get(name.removeprefix('fab '), '')} |")
    print()


def _slow_commands(one: Fleet) -> list[tuple[str, list[str], tuple[int, ...]]]:
    plain = floor(one, "check")[len(one.lab.enter) :]
    check, change = (one.fab(*words)[len(one.lab.enter) :] for words in (["--check"], []))
    return [
        ("F check", plain, (0,)),
        ("fab check", check, (0, DIFFERS)),
        ("fab change", change, (0,)),
    ]
