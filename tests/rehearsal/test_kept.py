"""`--keep`: what stays can be used from other processes, by our tasks, ssh, Ansible and Pulumi, and be ended."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rehearsal.command import FAB, Shell

pytestmark = [pytest.mark.lab]

PROGRAMS = Path(FAB).parent
STACK = """\
extends: gb200-2p1d
platform: existing-hosts
roles: {prefill: {replicas: 1, data_parallel: 2}, decode: {data_parallel: 2}}
defaults: {tensor_parallel: 2}
"""


@pytest.mark.slow  # one long story: each of its nine commands starts an interpreter
def test_a_kept_rehearsal_is_used_from_outside_and_ended(shell: Shell, tmp_path: Path) -> None:
    file = tmp_path / "small.yaml"
    file.write_text(STACK)
    kept = shell.fab("rehearse", "--file", str(file), "--keep", "--json")
    report = kept.document
    assert report["ok"] is True
    of_it = ("--file", str(file), "--inventory", report["inventory"])

    listed = shell.fab("rehearse", "--list", "--json").document["rehearsals"]
    (mine,) = [one for one in listed if one["id"] == report["id"]]
    assert mine["kept"] is True
    assert mine["stack"] == "small"
    assert mine["inventory"] == report["inventory"]
    assert report["id"] in shell.fab("rehearse", "--list").out

    status = shell.fab("status", *of_it, "--json")
    assert status.code == 0, status.err
    assert len(status.document["processes"]) == 4
    assert all(process["ready"] for process in status.document["processes"])
    assert status.document["router"]["ready"] is True

    environment = Path(report["inventory"]).with_name("env.sh")
    assert f"Practise: `source {environment}`" in kept.err
    for task in ("status", "logs", "verify", "restart", "diff", "up", "bundle", "down"):
        assert f"`fab {task}" in kept.err
    practised = shell.run("bash", "-c", f"source {environment} && {FAB} status --json")
    assert practised.code == 0, practised.err
    assert f"MOE_STACK: {file}, MOE_INVENTORY: {report['inventory']}" in practised.err

    verified = shell.fab("verify", *of_it, "--json")
    assert verified.code == 0, verified.err
    assert not any(check["ok"] is False for check in verified.document["checks"])

    logs = shell.fab("logs", *of_it, "--rank", "decode-0/1")
    assert logs.code == 0, logs.err
    assert "Application startup complete" in logs.out

    way = f"ssh -F {report['ssh_config']} prefill-0"
    assert f"Hosts: `{way}`, and so the other 1.\n" in kept.err
    ssh = shell.run(*way.split(), "sudo hostname")
    assert (ssh.code, ssh.out) == (0, "prefill-0\n"), ssh.err
    # a master connection would outlive this command by a minute, and hosts that go away without a word
    shell.environment["ANSIBLE_SSH_ARGS"] = "-o ControlMaster=no"
    pinged = shell.run(
        str(PROGRAMS / "ansible"), "all", "-i", report["inventory"], "-m", "ping", "--become", "-o"
    )
    assert pinged.code == 0, pinged.out + pinged.err
    assert pinged.out.count("SUCCESS") == 2

    down = shell.fab("down", *of_it)
    assert down.code == 0, down.err
    after = shell.fab("status", *of_it, "--json")
    assert after.code == 5
    assert not any(process["ready"] for process in after.document["processes"])

    stopped = shell.fab("rehearse", "--stop", report["id"], "--json")
    ended = {"schema_version": 1, "stack": None, "ok": True, "stopped": report["id"]}
    assert stopped.document == ended
    shell.assert_nothing_left()


@pytest.mark.pulumi
@pytest.mark.usefixtures("pulumi_is_possible")
@pytest.mark.slow  # provisions with the real engine
def test_the_emulated_cloud_of_a_kept_rehearsal_is_reached_with_pulumi(shell: Shell) -> None:
    done = shell.fab("rehearse", "--stack", "h200-tp8", "--to-step", "hosts", "--keep", "--json")
    assert done.code == 0, done.err
    report = done.document
    assert [step["name"] for step in report["steps"]] == ["check", "plan", "provision", "hosts"]
    assert (report["first_token_s"], report["served_by"]) == (None, {})
    assert "type in that shell\n  start:     `fab up`\n" in done.err  # nothing runs yet
    environment = Path(report["inventory"]).with_name("env.sh")
    stack = f"pulumi -C {report['pulumi_dir']} stack --stack h200-tp8"
    assert f"Cloud: `source {environment}`, then `{stack}`" in done.err
    sourced = shell.run("bash", "-c", f"source {environment} && {stack} --show-name")
    assert (sourced.code, sourced.out) == (0, "h200-tp8\n"), sourced.err
    shell.environment.update(report["pulumi_env"])
    preview = shell.run(
        "pulumi", "-C", report["pulumi_dir"], "preview", "--stack", "h200-tp8", "--expect-no-changes",
        "--non-interactive",
    )  # fmt: skip
    assert preview.code == 0, preview.out + preview.err
    for variable in report["pulumi_env"]:
        del shell.environment[variable]
    way = f"ssh -F {report['ssh_config']} unified-0"
    assert f"Hosts: `{way}`.\n" in done.err
    ssh = shell.run(*way.split(), "cat /proc/sys/vm/swappiness")
    assert (ssh.code, ssh.out) == (0, "60\n"), ssh.err  # not tuned yet
    assert shell.fab("rehearse", "--stop", report["id"]).code == 0
    shell.assert_nothing_left()


def test_what_does_not_run_cannot_be_stopped(shell: Shell) -> None:
    done = shell.fab("rehearse", "--stop", "nothing", "--json")
    done.refused(2, "No rehearsal nothing runs.")
    assert done.document["errors"][0]["where"] == "--stop"


@pytest.mark.slow  # a failed start, and another command
def test_a_failed_rehearsal_can_be_kept_to_look_at(shell: Shell, tmp_path: Path) -> None:
    file = tmp_path / "small.yaml"
    file.write_text("extends: gb200-tp4\nplatform: existing-hosts\n")
    words = ("rehearse", "--file", str(file), "--break", "unified-0/0:mount", "--keep", "--json")
    done = shell.fab(*words)
    done.refused(5, "unified-0/0")
    report = done.document
    of_it = ("--file", str(file), "--inventory", report["inventory"])
    assert shell.fab("status", *of_it).code == 5
    assert "Repo id must be in the form" in shell.fab("logs", *of_it).out
    assert shell.fab("rehearse", "--stop", report["id"]).code == 0
    shell.assert_nothing_left()


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("--stack", "h200-tp8", "--to-step", "plan"), 0),
        (("--stack", "h200-tp8", "--set", "roles.unified.tensor_parallel=3"), 2),
    ],
)
def test_a_rehearsal_that_is_not_kept_ends_with_how_it_would_be(
    shell: Shell, words: tuple[str, ...], code: int
) -> None:
    done = shell.fab("rehearse", *words)
    assert done.code == code, done.err
    assert done.err.splitlines()[-1].startswith(
        f"Next: fab rehearse {' '.join(words)} --keep   (its hosts are gone now; with --keep"
    )
