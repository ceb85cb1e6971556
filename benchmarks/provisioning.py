"""The program of a stack beside a bare one that registers the same resources by hand: real engine, emulated cloud.

python benchmarks/provisioning.py                # the tables of docs/performance.md; some five minutes, quiet machine
python benchmarks/provisioning.py 6              # of that many hosts alone
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import yaml

from infra.rehearsal.cloud.scratch_project import ScratchProject, make_scratch_project
from infra.rehearsal.installed import find_pulumi

SIZES = (6, 64)
ROUNDS = 3
RATIO_GOAL = 1.3
PREVIEW_GOAL_S = 12.0
NUM_SHARED = 34  # resources of either program besides the hosts
BARE = Path(__file__).with_name("bare_stack.py")
# Put before either program: what it cost when it ends, without the engine and the provider beside it.
MEASURE = """
import atexit, json, os, resource, sys, time
def _tell():
    used = resource.getrusage(resource.RUSAGE_SELF)
    begun = int(open("/proc/self/stat").read().rpartition(")")[2].split()[19]) / os.sysconf("SC_CLK_TCK")
    peak = next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))
    loaded = sum(type(each).__name__ == "module" for name, each in sys.modules.items() if name.startswith("pulumi_aws"))
    cost = {"wall_s": time.clock_gettime(time.CLOCK_BOOTTIME) - begun, "cpu_s": used.ru_utime + used.ru_stime,
            "peak_mib": int(peak.split()[1]) / 1024, "modules": loaded}
    open(os.environ["MOE_BENCHMARK_COST"], "w").write(json.dumps(cost))
atexit.register(_tell)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One operation: the engine's wall clock, and the program's own cost."""

    operation_s: float
    program_s: float
    cpu_s: float
    peak_mib: float


def main() -> None:
    """Print a table of programs, one of operations, and whether the goals are reached."""
    sizes = tuple(map(int, sys.argv[1:])) or SIZES
    rows: dict[tuple[int, str, str], list[Run]] = {}
    for size in sizes:
        for _ in range(ROUNDS):
            for program in ("bare", "ours"):  # alternately: both meet the same machine
                for operation, run in _life(size, program).items():
                    rows.setdefault((size, program, operation), []).append(run)
    print(
        "| hosts, operation | program | wall s | of bare | processor s | of bare | MiB | of bare |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for size in sizes:
        for operation in ("preview", "up"):
            _print_programs(size, operation, rows)
    print("\n| hosts | operation | bare, whole s | ours, whole s |")
    print("|---|---|---|---|")
    for size in sizes:
        for operation in ("preview", "up"):
            bare, ours = (_median(rows[size, who, operation]) for who in ("bare", "ours"))
            print(f"| {size} | {operation} | {bare.operation_s:.1f} | {ours.operation_s:.1f} |")
    print(
        f"\nGoals: {RATIO_GOAL} times the bare program; preview of 64 hosts under {PREVIEW_GOAL_S:.0f} s."
    )


def _print_programs(
    size: int, operation: str, rows: Mapping[tuple[int, str, str], list[Run]]
) -> None:
    bare, ours = (_median(rows[size, who, operation]) for who in ("bare", "ours"))
    for name, run in (("by hand", bare), ("ours", ours)):
        print(
            f"| {size}, {operation} | {name} | {run.program_s:.2f} | {run.program_s / bare.program_s:.2f} "
            f"| {run.cpu_s:.2f} | {run.cpu_s / bare.cpu_s:.2f} "
            f"| {run.peak_mib:.0f} | {run.peak_mib / bare.peak_mib:.2f} |"
        )


def _median(runs: list[Run]) -> Run:
    return Run(
        operation_s=statistics.median(run.operation_s for run in runs),
        program_s=statistics.median(run.program_s for run in runs),
        cpu_s=statistics.median(run.cpu_s for run in runs),
        peak_mib=statistics.median(run.peak_mib for run in runs),
    )


def _life(size: int, program: str) -> dict[str, Run]:
    """Preview and `up` of a new stack; what stands afterwards is the same for both programs."""
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        spec_file = scratch / "wide.yaml"
        spec_file.write_text(yaml.safe_dump(_stack(size)), encoding="utf-8")
        project = make_scratch_project(
            "wide", scratch / "scratch", spec_file=spec_file, pulumi_bin=find_pulumi(), config={}
        )
        main_file = project.folder / "infra" / "__main__.py"
        text = BARE.read_text(encoding="utf-8") if program == "bare" else main_file.read_text()
        main_file.write_text(_measured(text), encoding="utf-8")
        _operate(project, size, ("stack", "init", "wide"))
        runs = {
            "preview": _operate(project, size, ("preview", "--stack", "wide")),
            "up": _operate(project, size, ("up", "--yes", "--skip-preview", "--stack", "wide")),
        }
        kinds = Counter(path.parent.name for path in (project.cloud / "resources").glob("*/*.json"))
        expected = {"Instance": size, "LaunchTemplate": 1, "VpcEndpoint": 4, "SecurityGroup": 2}
        if not expected.items() <= kinds.items() or sum(kinds.values()) != NUM_SHARED + size:
            raise SystemExit(f"{program} has made something else: {kinds}")
        return runs


def _stack(size: int) -> dict[str, object]:
    """As many hosts of 8 × B300, 17 interfaces each, bought on demand."""
    return {
        "extends": "h200-tp8",
        "accelerator": "b300",
        "capacity": {"kind": "on-demand"},
        "roles": {"unified": {"replicas": size}},
        "router": {"name": "vllm-router"},
    }


def _measured(text: str) -> str:
    """A program with the measurement behind its docstring and future imports."""
    lines = text.splitlines(keepends=True)
    is_future = [line.startswith("from __future__") for line in lines]
    place = is_future.index(True) + 1 if any(is_future) else 0
    return "".join([*lines[:place], MEASURE, *lines[place:]])


def _operate(project: ScratchProject, size: int, words: tuple[str, ...]) -> Run:
    cost = project.folder.parent / "cost.json"
    environment = {
        **project.environment,
        "MOE_BENCHMARK_HOSTS": str(size),
        "MOE_BENCHMARK_COST": str(cost),
    }
    begun = time.perf_counter()
    done = subprocess.run(
        ("pulumi", *words, "--non-interactive", "--color", "never"),
        cwd=project.folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    operation_s = time.perf_counter() - begun
    if done.returncode != 0:
        raise SystemExit(f"pulumi {' '.join(words)}\n{done.stdout}{done.stderr}")
    if not cost.is_file():  # `stack init` runs no program
        return Run(operation_s=operation_s, program_s=0.0, cpu_s=0.0, peak_mib=0.0)
    told = json.loads(cost.read_text(encoding="utf-8"))
    return Run(
        operation_s=operation_s,
        program_s=told["wall_s"],
        cpu_s=told["cpu_s"],
        peak_mib=told["peak_mib"],
    )


if __name__ == "__main__":
    main()
