"""A program loads the modules of pulumi-aws that its stack makes something with: each costs time and memory."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from infra.spec.load import PROJECT

# The program of a stack in a fresh interpreter; every registration is answered at once.
PROGRAM = """
import asyncio, json, sys
from pathlib import Path
import yaml
loop = asyncio.new_event_loop()
asyncio.set_event_loop(loop)
import pulumi
from infra.catalog.load import Catalog
from infra.provision.program import provision
from infra.rehearsal.cloud.lookups import look_up
from infra.rehearsal.cloud.scratch_project import prepare_account
from infra.rehearsal.pulumi_project import read_config
from infra.rehearsal.cloud.store import Store

root, stack, folder = Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3])
project = yaml.safe_load((root / "Pulumi.yaml").read_text())
defaults = {f"moe-infra:{name}": str(each["default"]).lower() for name, each in project["config"].items()}
shipped, catalog = read_config(root, stack), Catalog()
spec_file = root / "stacks" / f"{stack}.yaml"
values = {**defaults, **prepare_account(stack, spec_file, folder, shipped, catalog), **shipped}

class Echo(pulumi.runtime.Mocks):
    def new_resource(self, args):
        computed = dict.fromkeys(("id", "arn", "dnsName", "mountName"), args.name)
        return args.name, {**computed, "privateIp": "192.0.2.9", **args.inputs}
    def call(self, args):
        if args.token.startswith("pulumi:"):
            return {"outputs": {}}, []
        return look_up(Store(folder), values["aws:region"], args.token, args.args), []

pulumi.runtime.set_mocks(Echo(), project="moe-infra", stack=stack, preview=False)
pulumi.runtime.set_all_config(values)
run = pulumi.runtime.stack.run_pulumi_func(lambda: provision(root, stack, catalog))
loop.run_until_complete(run)
loaded = [name for name, each in sys.modules.items() if name.startswith(("pulumi_aws.", "pulumi_kubernetes"))
          and name.count(".") <= 1 and type(each).__name__ == "module" and hasattr(each, "__path__")]
print(json.dumps(loaded))
"""


def loaded(stack: str, folder: Path, root: Path = PROJECT) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PROGRAM, str(root), stack, str(folder)],
        cwd=PROJECT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return {name.partition(".")[2] or name for name in json.loads(done.stdout)}


@pytest.mark.slow  # an interpreter and pulumi-aws anew for each stack
def test_a_stack_loads_what_it_makes_something_with(tmp_path: Path) -> None:
    (tmp_path / "stacks").mkdir()
    (tmp_path / "Pulumi.yaml").write_text((PROJECT / "Pulumi.yaml").read_text())
    weights = {"path": "/models", "storage": "fsx-lustre"}
    fields = {"extends": "h200-tp8", "weights": weights, "ingress": "internal-load-balancer"}
    (tmp_path / "stacks" / "mine.yaml").write_text(yaml.safe_dump(fields))
    plain = loaded("h200-tp8", tmp_path / "plain")
    assert plain == {"ec2", "iam", "s3", "ssm", "vpc"}
    mine = loaded("mine", tmp_path / "mine", tmp_path)
    assert mine - plain == {"fsx", "lb"}
