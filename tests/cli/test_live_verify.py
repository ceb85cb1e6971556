"""`fab verify` on engines that run otherwise than planned: a group whose network fell back to sockets."""

from __future__ import annotations

import json

import pytest

from tests.cli.commands import FAB, need_lab, run

# A whole rehearsal of two hosts, then another start: about fifteen seconds on a quiet machine.
pytestmark = [pytest.mark.lab, pytest.mark.slow]

STACK = ("--stack", "vllm-internal-2n", "--set", "defaults.env.NCCL_DEBUG=INFO")
HOST = "unified-0"
# The host's card is gone: NCCL finds no device and goes over sockets, as it does on a real host.
NO_CARD = 's/"vendor"/"network": "socket", "vendor"/'


def test_a_group_that_fell_back_to_sockets_leaves_with_six_and_names_the_line() -> None:
    need_lab()
    kept = run(FAB, "rehearse", *STACK, "--keep", "--json")
    assert kept.returncode == 0, kept.stderr
    document = json.loads(kept.stdout)
    choice = (*STACK, "--inventory", document["inventory"])
    try:
        spoil = f"sudo sed -i '{NO_CARD}' /var/lib/moe-rehearsal/host.json"
        run("ssh", "-n", "-F", document["ssh_config"], HOST, spoil)
        assert run(FAB, "down", *choice).returncode == 0
        assert run(FAB, "up", *choice).returncode == 0
        done = run(FAB, "verify", *choice, "--json")
    finally:
        run(FAB, "rehearse", "--stop", document["id"])
    assert done.returncode == 6, done.stderr
    checks = json.loads(done.stdout)["checks"]
    wrong = [check for check in checks if not check["ok"]]
    assert [(check["process"], check["check"]) for check in wrong] == [(f"{HOST}/0", "transport")]
    assert "Using network Socket" in wrong[0]["detail"]
    subjects = {check["check"] for check in checks}
    assert {"environment", "limits", "transport", "image"} <= subjects
