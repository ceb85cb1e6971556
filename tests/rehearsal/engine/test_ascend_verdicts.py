"""What vllm-ascend's platform code says, by plugin release (facts/engines.md 2.3 and 2.4)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from infra.rehearsal.engine.failures import Failed, Refused
from infra.rehearsal.engine.settings import Release, Settings
from tests.rehearsal.engine.verdicts import configure_vllm, verdict_of, world

PREFILL, DECODE, MIXED = "kv_producer", "kv_consumer", "kv_both"


def run(
    model: Path, tmp_path: Path, plugin: str, fragment: str, env: dict[str, str] | None = None
) -> Settings:
    place = world(tmp_path, env or {}, accelerator="ascend-a3", num_devices=16)
    version = {"0.17.0rc1": "0.17.0", "0.26.0rc1": "0.33.0"}.get(plugin, "0.22.1")
    text = f"{model} --max-model-len 8192 {fragment}"
    return configure_vllm(text, Release("vllm-ascend", version, plugin), place, env or {})


def refusal(*args: object) -> str:
    with pytest.raises((Refused, Failed)) as caught:
        run(*args)  # type: ignore[arg-type]
    return verdict_of(caught.value)


def transfer(
    role: str, *, prefill: tuple[int, int] = (8, 2), decode: tuple[int, int] = (1, 32)
) -> str:
    sizes = [dict(zip(("tp_size", "dp_size"), pair, strict=True)) for pair in (prefill, decode)]
    config = {
        "kv_connector": "MooncakeConnectorV1",
        "kv_role": role,
        "kv_port": 36000,
        "engine_id": "0",
        "kv_connector_extra_config": {"prefill": sizes[0], "decode": sizes[1]},
    }
    return f"--kv-transfer-config '{json.dumps(config)}'"


PREFILL_FLAGS = "-tp 8 -dp 2 --data-parallel-rank 0 --enable-expert-parallel "
DECODE_FLAGS = "-tp 1 -dp 32 --data-parallel-rank 0 --enable-expert-parallel "
RECOMPUTE = "--additional-config '{\"recompute_scheduler_enable\":true}'"
FLASHCOMM = {"VLLM_ASCEND_ENABLE_FLASHCOMM1": "1"}
BALANCE = {"VLLM_ASCEND_BALANCE_SCHEDULING": "1"}


def test_the_seeds_mixed_command_starts_at_0_22(
    kimi_w4a8: Path, tmp_path: Path, draft: Path
) -> None:
    speculation = json.dumps({"method": "eagle3", "model": str(draft), "num_speculative_tokens": 3})
    flags = (
        "--host 0.0.0.0 --port 8088 --quantization ascend --served-model-name kimi_k25 "
        "--allowed-local-media-path / --trust-remote-code --no-enable-prefix-caching --seed 1024 "
        "--tensor-parallel-size 4 --data-parallel-size 4 --enable-expert-parallel --max-num-seqs 64 "
        "--max-num-batched-tokens 16384 --gpu-memory-utilization 0.9 --mm-encoder-tp-mode data "
        '--compilation-config \'{"cudagraph_capture_sizes":[4,8,16,32,64,128,256], '
        f'"cudagraph_mode":"FULL_DECODE_ONLY"}}\' --speculative-config \'{speculation}\''
    )
    env = {**FLASHCOMM, **BALANCE, "VLLM_ASCEND_ENABLE_MLAPO": "1"}
    assert run(kimi_w4a8, tmp_path, "0.22.1rc1", flags, env).parallel.mode == "internal"
    assert "eagle3 is only supported for" in refusal(
        kimi_w4a8, tmp_path, "0.17.0rc1", flags.replace("-tp ", "-tp "), {**env}
    )


def test_flash_comm_is_refused_for_vision_models_at_0_17(
    kimi_w4a8: Path, kimi_text: Path, tmp_path: Path
) -> None:
    flags = "-tp 16 --enable-expert-parallel --swap-space 0"
    verdict = refusal(kimi_w4a8, tmp_path, "0.17.0rc1", flags, FLASHCOMM)
    assert "Flash Comm V1 is not supported for VL models" in verdict
    assert run(kimi_w4a8, tmp_path, "0.22.1rc1", flags.replace("--swap-space 0", ""), FLASHCOMM)


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ("-dp 16 --enable-expert-parallel", "Flash Comm v1 is only supported when tp_size > 1."),
        ("-tp 16", "Flash Comm v1 requires enable_expert_parallel=True for MoE models."),
        (
            "-tp 16 --enable-expert-parallel --compilation-config '{\"cudagraph_capture_sizes\":[4,8]}'",
            "cudagraph_capture_sizes [4, 8] does not contain",
        ),
    ],
)
def test_flash_comm_has_conditions(
    kimi_w4a8: Path, tmp_path: Path, flags: str, expected: str
) -> None:
    assert expected in refusal(kimi_w4a8, tmp_path, "0.22.1rc1", flags, FLASHCOMM)


@pytest.mark.parametrize(
    ("plugin", "role", "is_good"),
    [
        ("0.17.0rc1", PREFILL, True),
        ("0.18.0", PREFILL, False),
        ("0.18.0", None, True),
        ("0.22.1rc1", PREFILL, False),
        ("0.22.1rc1", DECODE, False),
        ("0.22.1rc1", MIXED, True),
        ("0.22.1rc1", None, True),
    ],
)
def test_balance_scheduling_is_for_mixed_mode(
    kimi_w4a8: Path, tmp_path: Path, plugin: str, role: str | None, *, is_good: bool
) -> None:
    flags = DECODE_FLAGS if role == DECODE else PREFILL_FLAGS
    swap = " --swap-space 0" if plugin.startswith("0.17") else ""
    both = {"prefill": (8, 2), "decode": (8, 2)} if role == MIXED else {}
    text = flags + (transfer(role, **both) if role else "") + swap
    if is_good:
        run(kimi_w4a8, tmp_path, plugin, text, BALANCE)
    else:
        assert "only supports PD-mixed mode" in refusal(kimi_w4a8, tmp_path, plugin, text, BALANCE)


@pytest.mark.parametrize(
    ("plugin", "role", "is_good"),
    [
        ("0.17.0rc1", PREFILL, True),
        ("0.17.0rc1", None, True),
        ("0.18.0", PREFILL, True),
        ("0.18.0", None, False),
        ("0.22.1rc1", PREFILL, True),
        ("0.22.1rc1", DECODE, True),
        ("0.22.1rc1", None, False),
        ("0.26.0rc1", PREFILL, True),
        ("0.26.0rc1", DECODE, True),
        ("0.26.0rc1", None, False),
    ],
)
def test_the_recompute_scheduler_belongs_to_a_role(
    kimi_w4a8: Path, tmp_path: Path, plugin: str, role: str | None, *, is_good: bool
) -> None:
    flags = DECODE_FLAGS if role == DECODE else PREFILL_FLAGS
    swap = " --swap-space 0" if plugin.startswith("0.17") else ""
    text = f"{flags} {transfer(role) if role else ''} {RECOMPUTE}{swap}"
    if is_good:
        run(kimi_w4a8, tmp_path, plugin, text)
    else:
        assert "recompute_scheduler_enable can only be enabled" in refusal(
            kimi_w4a8, tmp_path, plugin, text
        )


def test_sizes_describe_one_instance(kimi_w4a8: Path, tmp_path: Path) -> None:
    text = PREFILL_FLAGS + transfer(PREFILL, prefill=(8, 4))
    verdict = refusal(kimi_w4a8, tmp_path, "0.22.1rc1", text)
    assert (
        "KV transfer 'prefill' config has a conflicting data parallel size. Expected 2, but got 4."
        in verdict
    )
    text = DECODE_FLAGS + transfer(DECODE, decode=(2, 32))
    verdict = refusal(kimi_w4a8, tmp_path, "0.22.1rc1", text)
    assert (
        "KV transfer 'decode' config has a conflicting tensor parallel size. Expected 1, but got 2."
        in verdict
    )


def test_a_gpu_checkpoint_does_not_run_on_an_npu(kimi_nvfp4: Path, tmp_path: Path) -> None:
    verdict = refusal(kimi_nvfp4, tmp_path, "0.22.1rc1", "-tp 16")
    assert "modelopt_fp4 quantization is currently not supported in npu" in verdict


def test_blocking_launches_exclude_graphs(kimi_w4a8: Path, tmp_path: Path) -> None:
    env = {"ASCEND_LAUNCH_BLOCKING": "1"}
    assert "incompatible with ASCEND_LAUNCH_BLOCKING=1" in refusal(
        kimi_w4a8, tmp_path, "0.22.1rc1", "-tp 16", env
    )
    assert run(kimi_w4a8, tmp_path, "0.22.1rc1", "-tp 16 --enforce-eager", env)


def test_an_npu_has_too_little_memory_for_too_few_devices(kimi_w4a8: Path, tmp_path: Path) -> None:
    assert "RuntimeError: NPU out of memory." in refusal(kimi_w4a8, tmp_path, "0.22.1rc1", "-tp 8")
