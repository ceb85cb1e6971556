"""From the command to the first token, warm, and where the time goes; beside the program's own share.

python benchmarks/rehearsal.py                # the tables of docs/performance.md; root, some two minutes
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

PROJECT = Path(__file__).resolve().parents[1]
FAB = Path(sys.executable).with_name("fab")
RUNS = 5
GOALS_S = {"gb200-2p1d": 25.0, "a3-2p1d": 12.0}
PROGRAM_GOAL_S = 1.5

# The stack's own program in a fresh interpreter; every registration is answered at once, by mocks.
PROGRAM = """
import asyncio, sys
from pathlib import Path
import yaml
loop = asyncio.new_event_loop()
asyncio.set_event_loop(loop)
import pulumi
from infra.catalog.load import Catalog
from infra.provision.previous import READ_OUTPUTS
from infra.provision.program import provision
from infra.rehearsal.cloud.lookups import look_up
from infra.rehearsal.cloud.scratch_project import prepare_account
from infra.rehearsal.cloud.store import Store
from infra.rehearsal.pulumi_project import read_config

root, stack, folder = Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3])
project = yaml.safe_load((root / "Pulumi.yaml").read_text())
defaults = {f"moe-infra:{name}": str(each["default"]).lower() for name, each in project["config"].items()}
catalog = Catalog()
shipped = read_config(root, stack)
bought = prepare_account(stack, root / "stacks" / f"{stack}.yaml", folder, shipped, catalog)
values = {**defaults, **bought, **shipped}
store = Store(folder)

class Echo(pulumi.runtime.Mocks):
    def new_resource(self, args):
        return args.name, {"id": args.name, "arn": args.name, "privateIp": "10.64.0.9", **args.inputs}
    def call(self, args):
        if args.token == READ_OUTPUTS:
            return {"outputs": {}}, []
        return look_up(store, values["aws:region"], args.token, args.args), []

pulumi.runtime.set_mocks(Echo(), project="moe-infra", stack=stack, preview=False)
pulumi.runtime.set_all_config(values)
loop.run_until_complete(pulumi.runtime.stack.run_pulumi_func(lambda: provision(root, stack, catalog)))
"""


def main() -> None:
    """Print one table of rehearsals, one of their steps, one line for the program."""
    reports = {stack: [_rehearse(stack) for _ in range(RUNS)] for stack in GOALS_S}
    print("| stack | best s | median s | goal s | of the goal |")
    print("|---|---|---|---|---|")
    for stack, found in reports.items():
        tokens = [float(report["first_token_s"]) for report in found]
        best, middle, goal = min(tokens), statistics.median(tokens), GOALS_S[stack]
        print(f"| {stack} | {best:.1f} | {middle:.1f} | {goal:.0f} | {middle / goal:.2f} |")
    names = [step["name"] for step in next(iter(reports.values()))[0]["steps"]]
    print("\n| stack, median s | " + " | ".join(names) + " |")
    print("|---|" + "---|" * len(names))
    for stack, found in reports.items():
        medians = [
            statistics.median(float(report["steps"][i]["seconds"]) for report in found)
            for i in range(len(names))
        ]
        print(f"| {stack} | " + " | ".join(f"{seconds:.1f}" for seconds in medians) + " |")
    seconds = [_program("gb200-2p1d") for _ in range(RUNS)]
    middle = statistics.median(seconds)
    print(
        f"\nThe Pulumi program of gb200-2p1d by itself: {min(seconds):.2f} s at best, "
        f"median {middle:.2f} s, {middle / PROGRAM_GOAL_S:.2f} of its goal of {PROGRAM_GOAL_S} s."
    )


def _rehearse(stack: str) -> dict[str, Any]:
    done = subprocess.run(
        [FAB, "rehearse", "--stack", stack, "--json"],
        cwd=PROJECT,
        capture_output=True,
        text=True,
        check=True,
    )
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def _program(stack: str) -> float:
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-c", PROGRAM, str(PROJECT), stack, folder]
        begun = time.perf_counter()
        subprocess.run(command, cwd=PROJECT, capture_output=True, check=True)
        return time.perf_counter() - begun


if __name__ == "__main__":
    main()
