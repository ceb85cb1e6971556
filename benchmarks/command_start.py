"""What a command costs from the shell, interpreter start-up included, beside its floors.

python benchmarks/command_start.py            # the table of docs/performance.md
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from generated_stacks import HOSTS_64

PROJECT = Path(__file__).resolve().parents[1]
RUNS = 15


def main() -> None:
    """Run every command in turn, so that a busy moment hits them all; print best and median."""
    bin_folder = Path(sys.executable).parent
    fab = str(bin_folder / "fab")
    with tempfile.TemporaryDirectory() as folder:
        stack = Path(folder) / "hosts-64.yaml"
        stack.write_text(HOSTS_64, encoding="utf-8")
        commands = {
            "`python -c pass` (floor)": [sys.executable, "-c", "pass"],
            "`python -c 'import invoke.program'` (floor of a task)": [
                sys.executable,
                "-c",
                "import invoke.program",
            ],
            "`python -c 'import fabric.main'` (floor of `fab -H`)": [
                sys.executable,
                "-c",
                "import fabric.main",
            ],
            "`fab --list`": [fab, "--list"],
            "`fab check`, 64 hosts": [fab, "check", "--file", str(stack)],
            "`fab plan`, 64 hosts": [fab, "plan", "--file", str(stack)],
            "`fab plan --json`, 64 hosts": [fab, "plan", "--json", "--file", str(stack)],
        }
        seconds: dict[str, list[float]] = {name: [] for name in commands}
        for _ in range(RUNS):
            for name, command in commands.items():
                seconds[name].append(_run(command))
    floor = min(seconds["`fab --list`"])
    print("| command | best s | median s | against `fab --list` |")
    print("|---|---|---|---|")
    for name, found in seconds.items():
        print(
            f"| {name} | {min(found):.3f} | {statistics.median(found):.3f} | {min(found) / floor:.2f} |"
        )


def _run(command: list[str]) -> float:
    start = time.perf_counter()
    subprocess.run(
        command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=PROJECT
    )
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
