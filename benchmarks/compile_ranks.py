"""Ten thousand ranks compiled and checked in one process: seconds, and the cost per rank from 1,000 up.

Seconds of this process on its processor: the compiler waits for nothing, and what else runs on the machine
does not count. Garbage is collected as `fab` sets it.

python benchmarks/compile_ranks.py            # the table of docs/performance.md, five minutes at most
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from generated_stacks import SHAPES

from infra.catalog.load import Catalog
from infra.checks.judge import judge_stack
from infra.plan.compile import compile_file
from infra.tasks.interpreter import collect_seldom

SIZES = (1_000, 2_000, 5_000, 10_000)
RUNS = 3


def main() -> None:
    """Measure every shape and size in a process of its own, best of a few."""
    print("| shape | ranks | compile s | check s | together s | µs per rank | against 1,000 |")
    print("|---|---|---|---|---|---|---|")
    for shape in SHAPES:
        first = 0.0
        for size in SIZES:
            runs = [_in_a_process(shape, size) for _ in range(RUNS)]
            compiling, checking, ranks = min(runs, key=lambda run: run[0] + run[1])
            per_rank = (compiling + checking) / ranks * 1e6
            first = first or per_rank
            print(
                f"| {shape} | {int(ranks):,} | {compiling:.2f} | {checking:.2f} | {compiling + checking:.2f}"
                f" | {per_rank:.0f} | {per_rank / first:.2f} |",
                flush=True,
            )


def measure(shape: str, size: int) -> tuple[float, float, int]:
    """Seconds to compile, seconds to check, and how many ranks there were; reading the YAML included."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "generated.yaml"
        path.write_text(SHAPES[shape](size), encoding="utf-8")
        catalog = Catalog()
        collect_seldom()
        start = time.process_time()
        compiled = compile_file(str(path), catalog=catalog)
        middle = time.process_time()
        problems = judge_stack(compiled.plan, compiled.stack, catalog)
        end = time.process_time()
    if any(problem.blocks for problem in problems):
        raise SystemExit(f"{shape}, {size}: {problems[0]}")
    ranks = sum(len(process.dp_ranks) for process in compiled.plan.processes)
    return middle - start, end - middle, ranks


def _in_a_process(shape: str, size: int) -> tuple[float, float, int]:
    """No cache of an earlier run helps."""
    command = [sys.executable, __file__, shape, str(size)]
    run = subprocess.run(command, check=True, capture_output=True, text=True)
    compiling, checking, ranks = json.loads(run.stdout)
    return compiling, checking, ranks


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(json.dumps(measure(sys.argv[1], int(sys.argv[2]))))
    else:
        main()
