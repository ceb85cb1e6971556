"""`fab rehearse` of a stack in pods: a real control plane schedules them, simulated hosts run them."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import yaml

from infra.rehearsal.cluster.programs import Programs
from infra.rehearsal.report import STEPS
from tests.kubernetes.conftest import LIMIT_S
from tests.rehearsal.command import Shell

STACK = {
    "extends": "k8s-gb200-2p1d",
    "roles": {"prefill": {"replicas": 1, "data_parallel": 2}, "decode": {"data_parallel": 2}},
    "defaults": {"tensor_parallel": 2, "env": {"NCCL_DEBUG": "INFO", "UCX_LOG_LEVEL": "info"}},
    "secrets": {"api_key": {"env": "NOT_SET_ANYWHERE"}},
}
NUM_PODS = 5  # two hosts, a router, and what tunes two nodes


def test_pods_serve_a_token_and_stay_until_they_are_ended(
    programs: Programs, shell: Shell, tmp_path: Path
) -> None:
    file = tmp_path / "small.yaml"
    file.write_text(yaml.safe_dump(STACK), encoding="utf-8")
    done = shell.fab("rehearse", "--file", str(file), "--keep", "--json", limit_s=LIMIT_S)
    assert done.code == 0, done.err
    report = done.document
    assert [step["name"] for step in report["steps"]] == list(STEPS)
    assert all(step["ok"] for step in report["steps"])
    assert set(report["served_by"]) == {"prefill", "decode"}
    assert "between hosts, by the engines' own lines" in report["steps"][-1]["detail"]

    kubectl = [str(programs.bin / "kubectl"), "--namespace=small"]
    listed = subprocess.run(
        [*kubectl, "get", "pods", "--output=json"],
        env={**os.environ, **report["pulumi_env"]},
        capture_output=True,
        text=True,
        check=True,
    )
    pods = json.loads(listed.stdout)["items"]
    assert len(pods) == NUM_PODS
    for pod in pods:
        ready = {each["type"]: each["status"] for each in pod["status"]["conditions"]}["Ready"]
        assert (pod["status"]["phase"], ready) == ("Running", "True")

    ssh = shell.run("ssh", "-F", report["ssh_config"], "prefill-0", "sudo docker ps --no-trunc")
    assert "small-prefill-0-0" in ssh.out, ssh.err
    stopped = shell.fab("rehearse", "--stop", report["id"])
    assert stopped.code == 0, stopped.err
    shell.assert_nothing_left()


def test_a_cluster_of_the_stacks_own_is_made_and_serves(programs: Programs, shell: Shell) -> None:
    done = shell.fab("rehearse", "--stack", "eks-b200-tp8", "--json", limit_s=LIMIT_S)
    assert done.code == 0, done.err
    steps = {step["name"]: step for step in done.document["steps"]}
    assert list(steps) == list(STEPS)
    # its engines' pod and what tunes its node; the nodes for all the rest take neither
    assert "2 pods scheduled onto 1 simulated node" in steps["provision"]["detail"]
    assert set(done.document["served_by"]) == {"unified"}
    shell.assert_nothing_left()
