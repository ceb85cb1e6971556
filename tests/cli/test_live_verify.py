"""`fab verify` on engines that run otherwise than planned: groups and KV over sockets, cards that carry nothing."""

from __future__ import annotations

import json
import subprocess

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
    wrong = [check for check in checks if check["ok"] is False]
    assert [(check["process"], check["check"]) for check in wrong] == [(f"{HOST}/0", "transport")]
    assert "Using network Socket" in wrong[0]["detail"]
    subjects = {check["check"] for check in checks}
    assert {"environment", "limits", "transport", "image"} <= subjects


KV_STACK = (
    "--stack", "gb200-2p1d", "--set", "platform=existing-hosts", "--set", "roles.prefill.replicas=1",
    "--set", "roles.prefill.data_parallel=2", "--set", "roles.decode.data_parallel=2",
    "--set", "defaults.tensor_parallel=2", "--set", "defaults.max_model_len=32768",
    "--set", "defaults.env.UCX_LOG_LEVEL=info",
)  # fmt: skip


def test_kv_is_followed_by_the_log_and_by_the_cards_counters() -> None:
    need_lab()
    kept = run(FAB, "rehearse", *KV_STACK, "--keep", "--json")
    assert kept.returncode == 0, kept.stderr
    document = json.loads(kept.stdout)
    choice = (*KV_STACK, "--inventory", document["inventory"])

    def verified(network: str, host: str) -> tuple[int, dict[tuple[str, str], tuple[object, str]]]:
        """Exit code, and what is said of KV, of engines that start with another card on one host."""
        spoil = f'sudo sed -i \'s/"vendor"/"network": "{network}", &/\' /var/lib/moe-rehearsal/host.json'
        assert run(FAB, "down", *choice).returncode == 0
        run("ssh", "-n", "-F", document["ssh_config"], host, spoil)
        assert run(FAB, "up", *choice).returncode == 0
        return read(run(FAB, "verify", *choice, "--json"))

    try:
        code, found = read(run(FAB, "verify", *choice, "--json"))
        assert (code, found["decode-0/1", "kv-transport"]) == (0, (True, "RDMA"))
        assert {found[name, "rdma-counters"][0] for name in ("prefill-0", "decode-0")} == {True}
        code, found = verified("uncounted", "prefill-0")
        assert (code, found["decode-0", "rdma-counters"][0]) == (6, True)
        ok, said = found["prefill-0", "rdma-counters"]
        assert ok is False
        assert "KV is said to go by RDMA, and the cards carried 0.0 MiB" in said
        code, found = verified("socket", "decode-0")
    finally:
        run(FAB, "rehearse", "--stop", document["id"])
    wrong = {name for name, (ok, _) in found.items() if ok is False}
    assert wrong - {("prefill-0", "rdma-counters")} == {
        (f"decode-0/{i}", "kv-transport") for i in range(2)
    }
    assert code == 6
    assert "inter-node cfg#1 rma_am(tcp/eth0)" in found["decode-0/0", "kv-transport"][1]


def read(
    done: subprocess.CompletedProcess[str],
) -> tuple[int, dict[tuple[str, str], tuple[object, str]]]:
    """The exit code of a `verify`, and (ok, detail) by process and check."""
    checks = json.loads(done.stdout)["checks"]
    return done.returncode, {
        (one["process"], one["check"]): (one["ok"], one["detail"]) for one in checks
    }
