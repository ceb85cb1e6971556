"""A program loads the modules of pulumi-aws that its stack makes something with: each costs time and memory."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from infra.spec.load import PROJECT

# Programs of stacks one after the other in a fresh interpreter; every registration is answered at once.
PROGRAMS = """
import asyncio, gc, json, sys
gc.disable()
from pathlib import Path
loop = asyncio.new_event_loop()
asyncio.set_event_loop(loop)
import pulumi
from infra.catalog.load import Catalog
from infra.provision.program import provision
from infra.rehearsal.cloud.lookups import look_up
from infra.rehearsal.cloud.scratch_project import prepare_account
from infra.rehearsal.pulumi_project import read_config
from infra.rehearsal.cloud.store import Store
from infra.spec.plain_yaml import read_yaml

class Echo(pulumi.runtime.Mocks):
    def __init__(self, folder, region):
        self.store, self.region = Store(folder), region
    def new_resource(self, args):
        computed = dict.fromkeys(("id", "arn", "dnsName", "mountName"), args.name)
        return args.name, {**computed, "privateIp": "192.0.2.9", **args.inputs}
    def call(self, args):
        if args.token.startswith("pulumi:"):
            return {"outputs": {}}, []
        return look_up(self.store, self.region, args.token, args.args), []

def run(root, stack, folder):
    project = read_yaml(root / "Pulumi.yaml")
    defaults = {f"moe-infra:{name}": str(each["default"]).lower() for name, each in project["config"].items()}
    shipped = read_config(root, stack)
    spec_file = root / "stacks" / f"{stack}.yaml"
    values = {**defaults, **prepare_account(stack, spec_file, folder, shipped, catalog), **shipped}
    mocks = Echo(folder, values["aws:region"])
    pulumi.runtime.set_mocks(mocks, project="moe-infra", stack=stack, preview=False)
    pulumi.runtime.set_all_config(values)
    program = pulumi.runtime.stack.run_pulumi_func(lambda: provision(root, stack, catalog))
    loop.run_until_complete(program)

def loaded():
    return [name for name, each in sys.modules.items() if name.startswith(("pulumi_aws.", "pulumi_kubernetes"))
            and name.count(".") <= 1 and type(each).__name__ == "module" and hasattr(each, "__path__")]

catalog, scratch = Catalog(), Path(sys.argv[1])
for word in sys.argv[2:]:
    root, _, stack = word.rpartition(":")
    run(Path(root), stack, scratch / stack)
    print(json.dumps(loaded()))
"""


def loaded_after(folder: Path, *programs: tuple[Path, str]) -> list[set[str]]:
    """The modules that are loaded after each program of a stack in the project of a folder."""
    words = [f"{root}:{stack}" for root, stack in programs]
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PROGRAMS, str(folder), *words],
        cwd=PROJECT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [
        {name.partition(".")[2] or name for name in json.loads(line)}
        for line in done.stdout.splitlines()
    ]


@pytest.mark.slow  # an interpreter and pulumi-aws anew
def test_a_stack_loads_what_it_makes_something_with(tmp_path: Path) -> None:
    (tmp_path / "stacks").mkdir()
    (tmp_path / "Pulumi.yaml").write_text((PROJECT / "Pulumi.yaml").read_text())
    weights = {"path": "/models", "storage": "fsx-lustre"}
    fields = {"extends": "h200-tp8", "weights": weights, "ingress": "internal-load-balancer"}
    (tmp_path / "stacks" / "mine.yaml").write_text(yaml.safe_dump(fields))
    plain, mine = loaded_after(tmp_path / "cloud", (PROJECT, "h200-tp8"), (tmp_path, "mine"))
    assert plain == {"ec2", "iam", "s3", "servicequotas", "ssm", "vpc"}
    assert mine - plain == {"fsx", "lb"}
