"""What the DaemonSet carries, run as a program: it lacks nothing of what it is asked."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from infra.catalog.load import Catalog
from infra.plan.compile import compile_stack
from infra.provision.cluster.tuning import tuning_objects
from infra.spec.load import load_stack
from tests.render.pods import CLUSTER

STACK = "k8s-gb200-2p1d"


@pytest.mark.parametrize("mode", ["check", "rollback"])
def test_the_agent_that_is_carried_does_what_it_is_asked(
    tmp_path: Path, mode: str, catalog: Catalog
) -> None:
    """On a root without anything: nothing is here to be tuned, and nothing is missing of the agent.

    It is not asked to apply anything: tools of this machine know nothing of that root.
    """
    stack = load_stack(STACK)
    plan = compile_stack(stack, catalog=catalog).plan
    objects = {each.kind: each.document for each in tuning_objects(stack, plan, CLUSTER, catalog)}
    data: Any = objects["ConfigMap"]["data"]
    agent, request = tmp_path / "agent.py", tmp_path / "request.json"
    agent.write_text(data["agent.py"])
    assert '"state.laying_out"' in data["agent.py"]  # what `apply` needs beside these
    told = json.loads(data["tuning.json"])["request"]
    request.write_text(json.dumps({**told, "mode": mode}))
    root = tmp_path / "root"
    (root / "proc").mkdir(parents=True)
    done = subprocess.run(
        [sys.executable, "-I", "-S", str(agent), str(request)],
        env={"PATH": os.defpath, "MOE_INFRA_ROOT": str(root)},
        capture_output=True,
        text=True,
        check=False,
    )
    report = json.loads(done.stdout)
    assert "error" not in report, report
    if mode == "check":
        assert {item["id"] for item in told["items"]} <= {row["id"] for row in report["items"]}
