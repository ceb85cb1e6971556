"""`fab tune-hosts` on lab hosts beside its floor and the rivals, all in one run.

python benchmarks/tune_hosts.py --picture docs/pictures/tune-hosts.png  # the tables; root, some seven minutes
python benchmarks/tune_hosts.py --parts hosts trips                      # without the rivals, some three minutes
python benchmarks/tune_hosts.py --parts scale                            # 64, 128 and 256 hosts, a lab of its own

The floor F is OpenSSH's client with curve25519, 64 at a time, each running the agent with the same request on
one host. The lab's hosts share this machine's processors with whoever drives them, floor and rivals alike.
"""

from __future__ import annotations

import argparse
import math
import os
import statistics
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from lab_fleet import lab_fleet
from measured_run import MeasuredRun, measure
from tune_fleet import DIFFERS, Fleet, first_hosts, floor
from tune_picture import write_picture
from tune_rivals import ansible_command, pyinfra_command, pyinfra_program
from tune_round_trips import counted_round_trips, print_round_trips, round_trips

PROJECT = Path(__file__).resolve().parents[1]
PARTS = ("hosts", "trips", "rivals", "scale")
# Runs of each row by number of hosts; Ansible at 64 hosts takes minutes.
RUNS: Mapping[int, int] = {4: 5, 64: 3}
RIVAL_RUNS: Mapping[int, int] = {4: 1, 64: 1}
SCALE = (64, 128, 256)
GOALS = {(64, "check"): 1.1, (64, "change"): 1.7, (4, "check"): 1.2, (4, "change"): 1.8}
RIVAL_LIMIT_S = 600.0
# What every task does before it looks at its options, and the task's own modules.
STARTUP = """\
from infra.tasks.interpreter import prepare_interpreter
prepare_interpreter()
import infra.tasks.program, infra.tasks.tune_hosts
"""

Runs = dict[str, list[MeasuredRun]]


def main() -> None:
    """Print the tables, write the picture."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS[:-1])
    parser.add_argument("--picture", type=Path, help="write the figures to this PNG")
    given = parser.parse_args()
    os.chdir(PROJECT)
    _tell_load("before")
    found: dict[int, Runs] = {}
    if set(given.parts) - {"scale"}:
        found = _tables(given.parts)
    if "scale" in given.parts:
        _scale()
    if given.picture:
        write_picture(given.picture, _medians(found))


def _tables(parts: list[str]) -> dict[int, Runs]:
    """Measure and print some of the parts; the first hosts of one lab serve every number of hosts."""
    counts = tuple(RUNS) if {"hosts", "rivals"} & set(parts) else (min(RUNS),)
    with lab_fleet(tuple(f"unified-{i}" for i in range(max(counts)))) as lab:
        fleets = {count: first_hosts(lab, count) for count in counts}
        found: dict[int, Runs] = {count: {} for count in counts}
        startup_s = _startup_s(fleets[min(RUNS)])
        if "hosts" in parts:
            found = {count: _compare(fleet, RUNS[count]) for count, fleet in fleets.items()}
            _tell_load("after floor and fab")
        if "trips" in parts:
            fleet = fleets[min(RUNS)]
            print_round_trips(round_trips(fleet), counted_round_trips(fleet))
            _tell_load("after round trips")
        if "rivals" in parts:
            for count, fleet in fleets.items():
                found[count] |= _rivals(fleet, RIVAL_RUNS[count])
            _tell_load("after rivals")
    if any(found.values()):
        _print_walls(found, startup_s)
        _print_controller(found)
    return found


def _scale() -> None:
    """Whether a check's time and the controller's cost grow in proportion to the hosts."""
    with lab_fleet(tuple(f"unified-{i}" for i in range(max(SCALE)))) as lab:
        _tell_load("with all hosts up")
        print("| hosts | F check s | fab check s | of F | ms a host | CPU s | own memory MiB |")
        print("|---|---|---|---|---|---|---|")
        for count in SCALE:
            fleet = first_hosts(lab, count)
            plain = measure(floor(fleet, "check"), folder=fleet.folder)
            run = measure(fleet.fab("--check"), folder=fleet.folder, codes=(DIFFERS,))
            cells = [f"{plain.wall_s:.2f}", f"{run.wall_s:.2f}", f"{run.wall_s / plain.wall_s:.2f}"]
            cells += [f"{1000 * run.wall_s / count:.0f}", f"{run.cpu_s:.2f}", f"{run.own_mib:.0f}"]
            print(f"| {count} | {' | '.join(cells)} |", flush=True)
    print()
    _tell_load("after")


def _tell_load(when: str) -> None:
    print(f"Load {when}: {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors.\n", flush=True)


def _compare(fleet: Fleet, runs: int) -> Runs:
    """Floor and `fab` in turn, so that a busy moment hits both; every change begins at what was found."""
    rows: Runs = {}
    for _ in range(runs):
        for mode, codes in (("check", (DIFFERS,)), ("apply", (0,))):
            plain = floor(fleet, "check" if mode == "check" else "apply")
            own = fleet.fab(*(["--check"] if mode == "check" else []))
            word = "check" if mode == "check" else "change"
            run = measure(plain, folder=fleet.folder)
            rows.setdefault(f"F {word}", []).append(_tell(fleet, f"F {word}", run))
            _roll_back(fleet, was_changed=mode == "apply")
            run = measure(own, folder=fleet.folder, codes=codes)
            rows.setdefault(f"fab {word}", []).append(_tell(fleet, f"fab {word}", run))
            _roll_back(fleet, was_changed=mode == "apply")
    return rows


def _tell(fleet: Fleet, name: str, run: MeasuredRun) -> MeasuredRun:
    """A line on standard error for whoever waits."""
    print(f"{len(fleet.names)} hosts, {name}: {run.wall_s:.2f} s", file=sys.stderr, flush=True)
    return run


def _roll_back(fleet: Fleet, *, was_changed: bool) -> None:
    if was_changed:
        measure(fleet.fab("--rollback"), folder=fleet.folder)


def _startup_s(fleet: Fleet) -> float:
    command = [sys.executable, "-c", STARTUP]
    walls = [measure(command, folder=fleet.folder).wall_s for _ in range(5)]
    return float(statistics.median(walls))


def _rivals(fleet: Fleet, runs: int) -> Runs:
    """The rivals on the same hosts: a run that changes, and the same again when there is nothing left to do."""
    rows: Runs = {}
    commands: dict[str, Callable[[], list[str]]] = {}
    program = pyinfra_program()
    if program is not None:
        commands["pyinfra"] = lambda: pyinfra_command(
            program, fleet.folder, fleet.names, fleet.lab.ssh_config
        )
    commands["Ansible"] = lambda: ansible_command(fleet.folder, fleet.inventory, fleet.names)
    for name, command in commands.items():
        for _ in range(runs):
            _reset(fleet)
            words = [*fleet.lab.enter, "env", f"--chdir={fleet.folder}", *command()]
            for what in ("change", "again"):
                try:
                    run = measure(words, folder=fleet.folder, limit_s=RIVAL_LIMIT_S)
                except AssertionError as error:
                    print(f"{name} is left out: {error}", file=sys.stderr)
                    break
                rows.setdefault(f"{name} {what}", []).append(_tell(fleet, f"{name} {what}", run))
    _reset(fleet)
    return rows


def _reset(fleet: Fleet) -> None:
    """What the rivals change, as it was."""
    script = (
        "rm -f /etc/sysctl.d/60-bench.conf /etc/sysctl.d/99-sysctl.conf; echo 60 >/proc/sys/vm/swappiness;"
        " echo 1 >/proc/sys/kernel/numa_balancing;"
        " for f in /sys/devices/system/cpu/cpufreq/policy*/scaling_governor; do echo powersave >$f; done"
    )
    for name in fleet.names:
        fleet.lab.lab.run(name, ["sh", "-c", script])


def _medians(found: Mapping[int, Runs]) -> dict[int, dict[str, float]]:
    return {
        count: {name: statistics.median(run.wall_s for run in runs) for name, runs in rows.items()}
        for count, rows in found.items()
    }


def _print_walls(found: Mapping[int, Runs], startup_s: float) -> None:
    print("| hosts | what | median s | of F | of F, start-up apart | goal |")
    print("|---|---|---|---|---|---|")
    for count, rows in _medians(found).items():
        for name, wall_s in rows.items():
            what = name.rpartition(" ")[2]
            floor_s = rows.get("F check" if what in ("check", "again") else "F change", math.nan)
            apart = (wall_s - startup_s) / floor_s if name.startswith("fab") else None
            goal = GOALS.get((count, what)) if apart is not None else None
            cells = [f"{apart:.2f}" if apart is not None else "", f"{goal}" if goal else ""]
            print(
                f"| {count} | {name} | {wall_s:.2f} | {wall_s / floor_s:.2f} | {' | '.join(cells)} |"
            )
    print(f"\nStart-up (Fabric and the task's modules): {startup_s:.2f} s.\n")


def _print_controller(found: Mapping[int, Runs]) -> None:
    print("| hosts | controller | CPU s | own memory MiB | resident MiB |")
    print("|---|---|---|---|---|")
    for count, rows in found.items():
        for name, runs in rows.items():
            cpu_s = statistics.median(run.cpu_s for run in runs)
            own = max(run.own_mib for run in runs)
            # of several processes only the largest is known, and a short-lived one counts as its parent
            resident = f"{max(run.resident_mib for run in runs):.0f}" if "fab" in name else ""
            print(f"| {count} | {name} | {cpu_s:.2f} | {own:.0f} | {resident} |")
    print()


if __name__ == "__main__":
    main()
