"""`fab tune-hosts` on lab hosts beside its floor and the rivals, all in one run.

python benchmarks/tune_hosts.py                  # the table of docs/performance.md; root, some fifteen minutes
python benchmarks/tune_hosts.py --without-rivals # some three minutes
python benchmarks/tune_hosts.py --most 64        # without the row of 256 hosts

The floor F is OpenSSH's client with curve25519, 64 at a time, each running the agent with the same request on
one host. The lab's hosts share this machine's processors with whoever drives them, floor and rivals alike.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from generated_stacks import GB200_UNIFIED
from lab_fleet import LabFleet, inventory_text, lab_fleet, slow_link
from measured_run import MeasuredRun, measure
from tune_picture import write_picture
from tune_rivals import ansible_command, pyinfra_command, pyinfra_program

from infra.catalog.load import Catalog
from infra.launch.fleet import Answers, Request
from infra.launch.host_tuning import TuningMode, TuningOrder, tune
from infra.remote.agent_call import agent_command, agent_input
from infra.render.host_state import tuning_state
from infra.tasks.options import Options
from infra.tasks.reached_hosts import host_states
from infra.tasks.stack_options import compile_for_hosts

PROJECT = Path(__file__).resolve().parents[1]
FAB = str(Path(sys.executable).with_name("fab"))
DIFFERS = 6
PARALLEL = 64
# Runs of each row by number of hosts; Ansible at 64 hosts takes minutes.
RUNS: Mapping[int, int] = {4: 5, 64: 3, 256: 1}
RIVAL_RUNS: Mapping[int, int] = {4: 2, 64: 1}
GOALS = {(64, "check"): 1.1, (64, "change"): 1.7, (4, "check"): 1.2, (4, "change"): 1.8}
RTT_GOALS = {"check": 9.0, "change": 13.0}
RIVAL_LIMIT_S = 600.0
RTTS_MS = (20, 220)
RTT_RUNS = 4
STARTUP = "import fabric.main, infra.tasks.program, infra.tasks.tune_hosts"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """Some of the lab's hosts with their stack and inventory."""

    lab: LabFleet
    names: tuple[str, ...]
    stack: Path
    inventory: Path
    folder: Path

    @property
    def choice(self) -> list[str]:
        """The options that choose them."""
        return ["--file", str(self.stack), "--inventory", str(self.inventory)]

    def fab(self, *words: str) -> list[str]:
        """`fab tune-hosts` on them."""
        return [*self.lab.enter, FAB, "tune-hosts", *self.choice, *words]


def main() -> None:
    """Print the tables, write the picture."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--without-rivals", action="store_true")
    parser.add_argument("--most", type=int, default=256)
    parser.add_argument("--picture", type=Path, help="write the figures to this PNG")
    given = parser.parse_args()
    counts = [count for count in RUNS if count <= given.most]
    names = tuple(f"unified-{i}" for i in range(max(counts)))
    os.chdir(PROJECT)
    print(f"Load of the machine before: {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors.\n")
    with lab_fleet(names) as lab:
        fleets = {count: _fleet(lab, count) for count in counts}
        startup_s = _startup_s(fleets[counts[0]])
        found = {count: _compare(fleet, RUNS[count]) for count, fleet in fleets.items()}
        trips = _round_trips(fleets[4])
        if not given.without_rivals:
            for count, runs in RIVAL_RUNS.items():
                if count not in fleets:
                    continue
                found[count] |= _rivals(fleets[count], runs)
        _print_walls(found, startup_s)
        _print_controller(found)
        _print_round_trips(trips)
    print(f"\nLoad of the machine after: {os.getloadavg()[0]:.1f}.")
    if given.picture:
        write_picture(given.picture, _medians(found))


Runs = dict[str, list[MeasuredRun]]


def _fleet(lab: LabFleet, count: int) -> Fleet:
    folder = lab.folder / str(count)
    folder.mkdir()
    names = tuple(list(lab.hosts)[:count])
    stack = folder / f"hosts-{count}.yaml"
    stack.write_text(GB200_UNIFIED.format(count=count // 4))  # four hosts a replica
    inventory = folder / "inventory.yml"
    inventory.write_text(inventory_text(lab, {"unified": names}))
    return Fleet(lab=lab, names=names, stack=stack, inventory=inventory, folder=folder)


def _compare(fleet: Fleet, runs: int) -> Runs:
    """Floor and `fab` in turn, so that a busy moment hits both; every change begins at what was found."""
    rows: Runs = {}
    for _ in range(runs):
        for mode, codes in (("check", (DIFFERS,)), ("apply", (0,))):
            floor = _floor(fleet, "check" if mode == "check" else "apply")
            own = fleet.fab(*(["--check"] if mode == "check" else []))
            word = "check" if mode == "check" else "change"
            run = measure(floor, folder=fleet.folder)
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


class _Recorder:
    """Takes the requests in place of hosts."""

    def __init__(self) -> None:
        self.requests: dict[str, Request] = {}

    def ask(self, requests: Mapping[str, Request], *, timeout_s: float) -> Answers:
        del timeout_s
        self.requests = dict(requests)
        return {name: {"items": []} for name in requests}


def _floor(fleet: Fleet, mode: TuningMode) -> list[str]:
    """OpenSSH on every host, 64 at a time; the request is one file per host, the agent's program in front."""
    folder = fleet.folder / f"requests-{mode}"
    if not folder.is_dir():
        folder.mkdir()
        for name, request in _requests(fleet, mode).items():
            (folder / name).write_bytes(agent_input(request, timeout_s=60.0))
        (folder / "names").write_text("\n".join(fleet.names))
        # the end of standard input ends the request here, so nothing has to hold it open
        (folder / "command").write_text(agent_command(sudo=True, holds_stdin=False))
    script = (
        f'ssh -F {fleet.lab.ssh_config} "$1" "$(cat {folder}/command)" <{folder}/"$1" >{folder}/"$1".out'
        f' && grep -q items {folder}/"$1".out'
    )
    words = ["xargs", "-a", str(folder / "names"), "-P", str(PARALLEL), "-I", "{}"]
    return [*fleet.lab.enter, *words, "sh", "-c", script, "sh", "{}"]


def _requests(fleet: Fleet, mode: TuningMode) -> dict[str, Request]:
    given = {"file": str(fleet.stack), "inventory": str(fleet.inventory)}
    catalog = Catalog()
    compiled = compile_for_hosts(Options(given), catalog)
    states = host_states(compiled, catalog, render=tuning_state)
    recorder = _Recorder()
    tune(recorder, states, TuningOrder(mode=mode, timeout_s=60.0))
    return recorder.requests


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
            floor_s = rows["F check" if what in ("check", "again") else "F change"]
            apart = (wall_s - startup_s) / floor_s if name.startswith("fab") else None
            goal = GOALS.get((count, what)) if apart is not None else None
            cells = [f"{apart:.2f}" if apart is not None else "", f"{goal}" if goal else ""]
            print(
                f"| {count} | {name} | {wall_s:.2f} | {wall_s / floor_s:.2f} | {' | '.join(cells)} |"
            )
    print(f"\nStart-up (`python -c '{STARTUP}'`): {startup_s:.2f} s.\n")


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


def _round_trips(fleet: Fleet) -> dict[str, float]:
    """By row, how many round trips one host takes: the best times' slope over the round-trip time."""
    one = _fleet_of_one(fleet)
    walls: dict[str, dict[int, float]] = {}
    for rtt_ms in RTTS_MS:
        with slow_link(fleet.lab, rtt_ms / 2) as enter:
            for _ in range(RTT_RUNS):
                for name, words, codes in _slow_commands(one):
                    run = measure([*enter, *words], folder=one.folder, codes=codes)
                    best = walls.setdefault(name, {})
                    best[rtt_ms] = min(run.wall_s, best.get(rtt_ms, run.wall_s))
                measure(one.fab("--rollback"), folder=one.folder)
    near, far = RTTS_MS
    return {name: (best[far] - best[near]) / ((far - near) / 1000) for name, best in walls.items()}


def _print_round_trips(trips: Mapping[str, float]) -> None:
    print("| one host | round trips | goal |")
    print("|---|---|---|")
    for name, number in trips.items():
        print(f"| {name} | {number:.1f} | {RTT_GOALS.get(name.removeprefix('fab '), '')} |")


def _slow_commands(one: Fleet) -> list[tuple[str, list[str], tuple[int, ...]]]:
    floor = _floor(one, "check")[len(one.lab.enter) :]
    check, change = (one.fab(*words)[len(one.lab.enter) :] for words in (["--check"], []))
    return [
        ("F check", floor, (0,)),
        ("fab check", check, (0, DIFFERS)),
        ("fab change", change, (0,)),
    ]


def _fleet_of_one(fleet: Fleet) -> Fleet:
    folder = fleet.lab.folder / "one"
    folder.mkdir()
    stack = folder / "one.yaml"
    text = fleet.stack.read_text().replace("data_parallel: 16", "data_parallel: 4")
    stack.write_text(text)
    names = fleet.names[:1]
    inventory = folder / "inventory.yml"
    inventory.write_text(inventory_text(fleet.lab, {"unified": names}))
    return Fleet(lab=fleet.lab, names=names, stack=stack, inventory=inventory, folder=folder)


if __name__ == "__main__":
    main()
