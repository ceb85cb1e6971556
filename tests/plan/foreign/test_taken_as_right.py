"""Published files that were refused although they run: leaders by name, drafts in the target, an empty variable."""

from __future__ import annotations

from pathlib import Path

import pytest

from infra.plan.foreign.assumed import Told
from tests.plan.foreign.importing import judged

VLLM = Told(engine="vllm:0.22.1", accelerator="h200")
NEWEST = Told(engine="vllm:0.33.0", accelerator="h200")
TP = (
    "VLLM_HOST_IP=192.0.2.1 vllm serve moonshotai/Kimi-K2.5 -tp 16 --nnodes 2 --node-rank 0 --master-addr {0}"
    " --max-model-len 32768 --master-port 29501\n"
    "VLLM_HOST_IP=192.0.2.2 vllm serve moonshotai/Kimi-K2.5 -tp 16 --nnodes 2 --node-rank 1 --master-addr {1}"
    " --max-model-len 32768 --headless --master-port {2}\n"
)
DP = (
    "VLLM_HOST_IP=192.0.2.1 vllm serve moonshotai/Kimi-K2.5 -tp 8 -dp 2 -dpl 1 --data-parallel-address {0}"
    " --data-parallel-rpc-port 29501 --max-model-len 32768\n"
    "VLLM_HOST_IP=192.0.2.2 vllm serve moonshotai/Kimi-K2.5 -tp 8 -dp 2 -dpl 1 -dpr 1 --headless"
    " --data-parallel-address {1} --data-parallel-rpc-port {2} --max-model-len 32768\n"
)
ADDRESSES = {"leader-address", "dangling-connect", "host-variable", "router-endpoints"}


def rules(folder: Path, text: str, told: Told = VLLM) -> set[str]:
    return {p.rule for p in judged(folder, text, told=told).problems if p.blocks}


@pytest.mark.parametrize("text", [TP, DP], ids=["tensor parallel", "data parallel"])
@pytest.mark.parametrize("name", ["node1", "node-1.example.com", "worker_0"])
def test_a_leader_may_go_by_its_hosts_name(text: str, name: str, tmp_path: Path) -> None:
    assert rules(tmp_path, text.format(name, name, 29501)) & ADDRESSES == set()


@pytest.mark.parametrize("text", [TP, DP], ids=["tensor parallel", "data parallel"])
def test_a_leader_by_name_still_has_one_port_and_no_loopback(text: str, tmp_path: Path) -> None:
    assert "dangling-connect" in rules(tmp_path, text.format("node1", "node1", 29502))
    # its follower is told alone: the leader's own mistake is the same
    loopback = rules(tmp_path, text.format("localhost", "localhost", 29501))
    assert loopback & ADDRESSES == {"dangling-connect"}
    assert "leader-address" in rules(tmp_path, text.format("192.0.2.9", "192.0.2.9", 29501))


def test_a_router_may_list_a_leader_by_name(tmp_path: Path) -> None:
    router = "vllm-router --worker-urls http://{}:8000 --port 9000\n"
    text = DP.format("node1", "node1", 29501)
    for name in ("node1", "192.0.2.1", "another"):
        assert rules(tmp_path, text + router.format(name)) & ADDRESSES == set()


def test_an_empty_variable_is_none(tmp_path: Path) -> None:
    text = "VLLM_HOST_IP= vllm serve moonshotai/Kimi-K2.5 -tp 8 --max-model-len 32768 --port 8000\n"
    assert "host-variable" not in rules(tmp_path, text)
    compose = (
        "services:\n  a:\n    image: vllm/vllm-openai:v0.22.1\n    network_mode: host\n"
        "    environment: {VLLM_HOST_IP: ''}\n    command: --model moonshotai/Kimi-K2.5 -tp 8\n"
    )
    found = judged(tmp_path, compose, "compose.yaml", Told(accelerator="h200")).problems
    assert "host-variable" not in {p.rule for p in found}


@pytest.mark.parametrize(
    "config",
    [
        '{"method":"dspark","num_speculative_tokens":5,"draft_sample_method":"probabilistic"}',
        '{"method":"dspark","num_speculative_tokens":5}',
        '{"method":"custom_class","model":"mine.Proposer","num_speculative_tokens":3}',
        '{"method":"minimax_m3_mtp","num_speculative_tokens":1}',
        '{"model":"ngram","num_speculative_tokens":3}',
    ],
)
def test_a_draft_without_weights_of_its_own_is_complete(config: str, tmp_path: Path) -> None:
    text = f"vllm serve deepseek-ai/DeepSeek-V4-Flash-0731 -tp 8 --speculative-config '{config}'\n"
    assert "draft-incomplete" not in rules(tmp_path, text, NEWEST)


@pytest.mark.parametrize(
    "config",
    [
        '{"method":"eagle3","num_speculative_tokens":5}',
        '{"method":"dflash","num_speculative_tokens":5}',
        '{"method":"custom_class","num_speculative_tokens":3}',
        '{"num_speculative_tokens":3}',
    ],
)
def test_a_draft_that_loads_weights_names_them(config: str, tmp_path: Path) -> None:
    text = f"vllm serve deepseek-ai/DeepSeek-V4-Flash-0731 -tp 8 --speculative-config '{config}'\n"
    assert "draft-incomplete" in rules(tmp_path, text, NEWEST)
