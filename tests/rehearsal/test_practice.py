"""What a kept rehearsal hands to a shell."""

from __future__ import annotations

import subprocess

from infra.catalog.load import Catalog
from infra.plan.compile import compile_file
from infra.rehearsal.practice import env_text, practice
from infra.rehearsal.report import Report

CLOUD = {
    "PATH": "/x/bin:/x/pulumi:/usr/bin:/bin",
    "HOME": "/x/home",
    "PULUMI_HOME": "/x/home",
    "PULUMI_CONFIG_PASSPHRASE": "it's one",
}


def test_a_shell_that_reads_it_keeps_its_own_home_and_path() -> None:
    report = Report(stack="mine", id="lab-1", pulumi_env=CLOUD)
    text = env_text(report, {"MOE_STACK": "/srv/my stack.yaml"}, searched="/usr/bin:/bin")
    shown = 'printf "%s|" "$MOE_STACK" "$HOME" "$PULUMI_HOME" "$PULUMI_CONFIG_PASSPHRASE" "$PATH"'
    done = subprocess.run(
        ["bash", "-c", f"{text}\n{shown}"],
        env={"PATH": "/usr/bin:/bin", "HOME": "/home/me"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split("|")[:-1] == [
        "/srv/my stack.yaml",
        "/home/me",
        "/x/home",
        "it's one",
        "/x/bin:/x/pulumi:/usr/bin:/bin",
    ]


def test_without_a_cloud_the_path_stays() -> None:
    report = Report(stack="mine", id="lab-1")
    assert "PATH" not in env_text(report, {"MOE_STACK": "mine"}, searched="/usr/bin")


def test_every_operation_is_named(catalog: Catalog) -> None:
    plan = compile_file("gb200-2p1d", catalog=catalog).plan
    lines = "\n".join(practice(plan, is_started=True))
    for task in ("status", "logs", "verify", "restart", "diff", "up", "bundle", "down"):
        assert f"`fab {task}" in lines
    assert "`ssh prefill-0 sudo systemctl kill -s KILL moe-gb200-2p1d-engine@0" in lines
    begun = practice(plan, is_started=False)
    assert begun[0] == "  start:     `fab up`"
    assert begun[1:] == practice(plan, is_started=True)
