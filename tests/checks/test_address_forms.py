"""How addresses are written: what an engine would put a second scheme or port around is refused, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from infra.plan.foreign.assumed import Told
from tests.plan.foreign.importing import judged

VLLM = (
    "vllm serve m/n --data-parallel-size 2 --data-parallel-size-local 1 --data-parallel-rpc-port 13345"
    " --data-parallel-address {} --data-parallel-start-rank 1 --headless\n"
)
QUOTE = "'"
SGLANG = "python3 -m sglang.launch_server --model-path m/n --nnodes 2 --node-rank 1 --dist-init-addr {}\n"


def found(folder: Path, text: str, engine: str) -> list[str]:
    told = Told(engine=engine, accelerator="h200")
    problems = judged(folder, text, told=told).problems
    return [f"{p.what} {p.fix}" for p in problems if p.rule == "address-form"]


@pytest.mark.parametrize(
    ("address", "meant"),
    [
        ("tcp://192.0.2.1:13345", "192.0.2.1"),
        ("tcp://192.0.2.1", "192.0.2.1"),
        ("192.0.2.1:13345", "192.0.2.1"),
        ("http://leader.example.com/", "leader.example.com"),
        ("leader:13345", "leader"),
        ("'[2001:db8::1]:13345'", "[2001:db8::1]"),
    ],
)
def test_what_is_more_than_a_host_is_refused(address: str, meant: str, tmp_path: Path) -> None:
    (said,) = found(tmp_path, VLLM.format(address), "vllm:0.22.1")
    assert f"--data-parallel-address is {address.strip(QUOTE)}" in said
    assert "adds scheme and port itself" in said
    assert f"Write {meant}." in said


@pytest.mark.parametrize(
    "address",
    ["192.0.2.1", "leader", "leader.example.com", "2001:db8::1", "[2001:db8::1]", "localhost"],
)
def test_a_host_is_taken(address: str, tmp_path: Path) -> None:
    assert found(tmp_path, VLLM.format(f"'{address}'"), "vllm:0.22.1") == []


@pytest.mark.parametrize(
    "address", ["$LEADER", "${LEADER}:13345", "$(hostname -i):13345", "<LEADER>:13345"]
)
def test_what_the_file_leaves_open_is_not_judged(address: str, tmp_path: Path) -> None:
    assert found(tmp_path, VLLM.format(f'"{address}"'), "vllm:0.22.1") == []


def test_a_place_to_meet_has_a_port_and_no_scheme(tmp_path: Path) -> None:
    assert found(tmp_path, SGLANG.format("192.0.2.1:5000"), "sglang:0.5.9") == []
    assert found(tmp_path, SGLANG.format("'[2001:db8::1]:5000'"), "sglang:0.5.9") == []
    (said,) = found(tmp_path, SGLANG.format("tcp://192.0.2.1:5000"), "sglang:0.5.9")
    assert "it takes HOST:PORT" in said
    assert "adds the scheme itself" in said
    assert "Write 192.0.2.1:5000." in said
