"""Batches against the buffers of SGLang's transports between experts: as 45 published decode roles keep to it."""

from __future__ import annotations

from pathlib import Path

import pytest

from infra.plan.foreign.assumed import Told
from tests.plan.foreign.importing import judged

DECODE = "--disaggregation-mode decode --disaggregation-transfer-backend nixl"
WIDE = (
    "--tp 16 --dp 16 --enable-dp-attention --nnodes 2 --node-rank 0 --dist-init-addr 192.0.2.1:5000"
)
DRAFTS = (
    "--speculative-algorithm EAGLE --speculative-num-steps 5 --speculative-eagle-topk 1 "
    "--speculative-num-draft-tokens 6"
)
NAME = "NUM_MAX_DISPATCH_TOKENS_PER_RANK"


def found(
    folder: Path, env: str, flags: str, accelerator: str = "h200", engine: str = "sglang:0.5.9"
) -> list[str]:
    text = f"{env} python3 -m sglang.launch_server --model-path m/n {flags}\n"
    told = Told(engine=engine, accelerator=accelerator)
    rules = ("dispatch-buffer", "expert-transport")
    return [p.what for p in judged(folder, text, told=told).problems if p.rule in rules]


@pytest.mark.parametrize(
    ("env", "flags", "says"),
    [
        ("", f"{WIDE} {DECODE} --cuda-graph-max-bs 256", "256 tokens on each rank"),
        (f"SGLANG_DEEPEP_{NAME}=256", f"{WIDE} {DECODE} --cuda-graph-max-bs 512", "512 tokens"),
        ("", f"{WIDE} --deepep-mode low_latency", "A chunk of a prompt has 512 tokens"),
        (f"SGLANG_DEEPEP_{NAME}=2048", WIDE, "no more than 1024"),
        ("", f"{WIDE} {DECODE} --cuda-graph-max-bs 256 --max-running-requests 4096", "256 tokens"),
    ],
)
def test_more_than_the_buffer_holds_is_refused(
    env: str, flags: str, says: str, tmp_path: Path
) -> None:
    (what,) = found(tmp_path, env, f"--moe-a2a-backend deepep {flags}")
    assert says in what


@pytest.mark.parametrize(
    ("env", "flags"),
    [
        ("", f"{WIDE} {DECODE} --cuda-graph-max-bs 128"),
        (f"SGLANG_DEEPEP_{NAME}=512", f"{WIDE} {DECODE} --cuda-graph-max-bs 512"),
        ("", f"{WIDE} {DECODE} --cuda-graph-max-bs 256 --max-running-requests 2048"),
        ("", f"{WIDE} {DECODE} --cuda-graph-max-bs 256 --deepep-mode normal"),
        ("", f"{WIDE} {DECODE} --cuda-graph-max-bs 256 --disable-cuda-graph"),
        ("", "--tp 16 --nnodes 2 --node-rank 0 --dist-init-addr 192.0.2.1:5000 --cuda-graph-max-bs 512"),
        ("SGLANG_OPT_USE_DEEPGEMM_MEGA_MOE=1", f"{WIDE} {DECODE} --cuda-graph-max-bs 1024"),
    ],
)  # fmt: skip
def test_what_the_buffer_holds_is_taken(env: str, flags: str, tmp_path: Path) -> None:
    assert found(tmp_path, env, f"--moe-a2a-backend deepep {flags}") == []


def test_drafts_are_verified_all_together(tmp_path: Path) -> None:
    env = f"SGLANG_DEEPEP_{NAME}=512"
    flags = f"--moe-a2a-backend deepep {WIDE} {DECODE} --cuda-graph-max-bs 128 {DRAFTS}"
    (what,) = found(tmp_path, env, flags, engine="sglang:0.5.16")
    assert "768 tokens" in what
    assert found(tmp_path, env, flags.replace("-bs 128", "-bs 64"), engine="sglang:0.5.16") == []
    assert found(tmp_path, env, f"{flags} --cuda-graph-bs 1 8 64", engine="sglang:0.5.16") == []


def test_another_transport_has_a_buffer_of_its_own(tmp_path: Path) -> None:
    flags = f"--moe-a2a-backend mooncake {WIDE} {DECODE} --cuda-graph-max-bs 256"
    assert found(tmp_path, f"SGLANG_DEEPEP_{NAME}=512", flags)
    assert found(tmp_path, f"SGLANG_MOONCAKE_EP_{NAME}=512", flags) == []


@pytest.mark.parametrize(
    ("backend", "accelerator", "needs"),
    [("mori", "h200", "amd"), ("deepep", "mi300x", "nvidia"), ("ascend_fuseep", "h200", "ascend")],
)
def test_a_transport_of_another_vendor_is_refused_of_sglang_too(
    backend: str, accelerator: str, needs: str, tmp_path: Path
) -> None:
    (what,) = found(tmp_path, "", f"--moe-a2a-backend {backend} --tp 8", accelerator)
    assert what.startswith(f"moe-a2a-backend {backend} needs {needs} devices")
