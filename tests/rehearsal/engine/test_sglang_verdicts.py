"""What SGLang's ServerArgs say (facts/engines.md 3.1, 3.3 and 7)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from infra.rehearsal.engine.failures import Failed, Refused
from infra.rehearsal.engine.settings import Release, Settings
from tests.rehearsal.engine.verdicts import configure_sglang, verdict_of, world

OLD, NEW = "0.5.9", "0.5.23"
DRAFTED = "--speculative-algorithm EAGLE3"


def run(model: Path, tmp_path: Path, version: str, flags: str, **host: object) -> Settings:
    place = world(tmp_path, {}, **{"accelerator": "h200", "num_devices": 8, **host})
    return configure_sglang(f"--model-path {model} {flags}", Release("sglang", version, ""), place)


def refusal(*args: object, **host: object) -> str:
    with pytest.raises((Refused, Failed)) as caught:
        run(*args, **host)  # type: ignore[arg-type]
    return verdict_of(caught.value)


@pytest.mark.parametrize("version", [OLD, NEW])
@pytest.mark.parametrize(
    "flags",
    [
        "--tp 8 --trust-remote-code --reasoning-parser kimi_k2 --tool-call-parser kimi_k2 --host 0.0.0.0",
        "--tp 8 --dp 8 --enable-dp-attention",
        "--tp 16 --nnodes 2 --node-rank 1 --dist-init-addr 10.0.0.1:20000",
        "--tp 96 --dp 96 --enable-dp-attention --nnodes 12 --dist-init-addr 10.0.0.1:20000",
        "--tp 8 --disaggregation-mode prefill",
        "--tp 8 --disaggregation-mode decode",
    ],
)
def test_good_commands_are_taken(kimi: Path, tmp_path: Path, version: str, flags: str) -> None:
    assert run(kimi, tmp_path, version, flags).kv_tokens > 0


@pytest.mark.parametrize(
    ("version", "flags", "expected"),
    [
        (OLD, "--attention-backend trtllm_mla", "TRTLLM MLA backend is only supported on"),
        (OLD, "--decode-attention-backend trtllm_mha", "TRTLLM MHA backend is only"),
        ("0.5.16", "--attention-backend trtllm_mha", "TRTLLM MHA backend for prefill is"),
        ("0.5.16", "--attention-backend cutedsl_mla", "CuteDSL MLA backend is only"),
        ("0.5.16", "--attention-backend tokenspeed_mla", "tokenspeed_mla backend is only"),
    ],
)
def test_attention_back_ends_without_kernels_are_refused(
    kimi: Path, tmp_path: Path, version: str, flags: str, expected: str
) -> None:
    said = refusal(kimi, tmp_path, version, f"--tp 4 {flags}")
    assert said.startswith("exit 1: ValueError")
    assert expected in said


@pytest.mark.parametrize(
    ("role", "expected"),
    [("prefill", "for prefill requires Hopper"), ("decode", "for decode is only supported")],
)
def test_later_releases_have_no_such_kernels_for_amd(
    kimi: Path, tmp_path: Path, role: str, expected: str
) -> None:
    flags = f"--tp 4 --{role}-attention-backend trtllm_mha"
    assert expected in refusal(kimi, tmp_path, NEW, flags, accelerator="mi300x")


@pytest.mark.parametrize(
    ("version", "accelerator", "flags"),
    [
        (OLD, "gb200", "--attention-backend trtllm_mla"),
        (OLD, "h200", "--attention-backend fa3"),
        (OLD, "gb200", "--attention-backend fa3 --kv-cache-dtype fp8_e5m2"),
        (OLD, "mi300x", "--attention-backend fa3"),
        (OLD, "h200", f"{DRAFTED} --speculative-draft-attention-backend triton"),
        ("0.5.10", "h200", f"{DRAFTED} --speculative-draft-attention-backend fa4"),
        (OLD, "h200", "--speculative-draft-attention-backend none-such"),
    ],
)
def test_attention_back_ends_with_kernels_are_taken(
    kimi: Path, tmp_path: Path, version: str, accelerator: str, flags: str
) -> None:
    tensor = 4 if accelerator == "mi300x" else 8  # its kernels take sixteen heads
    words = f"--tp {tensor} {flags}"
    assert run(kimi, tmp_path, version, words, accelerator=accelerator).kv_tokens > 0


@pytest.mark.parametrize(
    ("place", "flags", "expected"),
    [
        # on Hopper these releases have the kernels, and Kimi's attention has latents
        (("0.5.16", "h200"), "--decode-attention-backend trtllm_mha", "with non-MLA models."),
        ((NEW, "h200"), "--attention-backend trtllm_mha", "with non-MLA models."),
        ((OLD, "gb200"), "--attention-backend fa3", "FlashAttention v3 Backend requires SM>=80"),
        ((OLD, "h200"), f"{DRAFTED} --speculative-draft-attention-backend x", "backend: x"),
        (
            (OLD, "h200"),
            f"{DRAFTED} --speculative-draft-attention-backend fa4",
            "EAGLE is not supported in decode attention backend fa4",
        ),
        (
            (OLD, "h200"),
            f"{DRAFTED} --decode-attention-backend triton --prefill-attention-backend cutlass_mla",
            "EAGLE is not supported in attention backend cutlass_mla",
        ),
    ],
)
def test_workers_refuse_back_ends_that_are_not_for_the_model_or_its_draft(
    kimi: Path, tmp_path: Path, place: tuple[str, str], flags: str, expected: str
) -> None:
    version, accelerator = place
    with pytest.raises(Failed) as caught:
        run(kimi, tmp_path, version, f"--tp 4 {flags}", accelerator=accelerator)
    assert caught.value.process == "Scheduler"
    assert expected in caught.value.message


@pytest.mark.parametrize("version", [OLD, NEW])
@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ("--tp 8 --nnodes 3", "tp_size must be divisible by number of nodes"),
        (
            "--tp 8 --dp 2 --nnodes 2 --dist-init-addr 10.0.0.1:20000",
            "multi-node data parallel is not supported unless dp attention!",
        ),
        (
            "--tp 8 --served-model-name kimi:k2",
            "served_model_name cannot contain a colon (':') character.",
        ),
        (
            "--tp 8 --chat-template kimi_k2",
            "Chat template kimi_k2 is not a built-in template name or a valid",
        ),
        ("--tp 8 --page-size 48", "chunked_prefill_size must be divisible by page_size"),
        (
            "--tp 8 --disaggregation-mode prefill --disaggregation-ib-device mlx5_0,mlx5_0",
            "Duplicate IB devices specified: mlx5_0,mlx5_0",
        ),
        (
            "--tp 8 --dp 2 --enable-dp-attention --dist-init-addr 10.0.0.1",
            "please provide --dist-init-addr as host:port of head node",
        ),
    ],
)
def test_bad_combinations_get_sglangs_own_words(
    kimi: Path, tmp_path: Path, version: str, flags: str, expected: str
) -> None:
    verdict = refusal(kimi, tmp_path, version, flags)
    assert expected in verdict
    assert verdict.startswith("exit 1")


def test_decode_sizes_are_a_matter_of_the_old_prefill(kimi: Path, tmp_path: Path) -> None:
    verdict = refusal(
        kimi, tmp_path, OLD, "--tp 8 --disaggregation-mode decode --disaggregation-decode-tp 4"
    )
    assert "Cannot set --disaggregation-decode-tp for the decode engine." in verdict
    verdict = refusal(
        kimi, tmp_path, OLD, "--tp 8 --disaggregation-mode prefill --disaggregation-decode-tp 3"
    )
    assert "Different tp size is supported only when one tp is multiple of the other" in verdict
    verdict = refusal(
        kimi, tmp_path, NEW, "--tp 8 --disaggregation-mode prefill --disaggregation-decode-tp 4"
    )
    assert "unrecognized arguments: --disaggregation-decode-tp 4" in verdict


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        (
            "--tp 8 --reasoning-parser k3",
            "argument --reasoning-parser: invalid choice: 'k3' (choose from",
        ),
        ("--tp eight", "invalid int value: 'eight'"),
        ("--tp 8 --enable-magic", "unrecognized arguments: --enable-magic"),
        ("--tp 8 --attention-backend tokenspeed_mla", "invalid choice: 'tokenspeed_mla'"),
    ],
)
def test_the_parser_checks_choices(kimi: Path, tmp_path: Path, flags: str, expected: str) -> None:
    verdict = refusal(kimi, tmp_path, OLD, flags)
    assert expected in verdict
    assert verdict.startswith("exit 2: usage: launch_server.py")


def test_tokenspeed_mla_is_a_name_of_0_5_23(kimi: Path, tmp_path: Path) -> None:
    flags = "--tp 4 --attention-backend tokenspeed_mla"
    assert run(kimi, tmp_path, NEW, flags, accelerator="gb200", num_devices=4)


def test_a_model_is_required(tmp_path: Path, kimi: Path) -> None:
    place = world(tmp_path, {})
    with pytest.raises(Refused, match="the following arguments are required: --model-path/--model"):
        configure_sglang("--tp 8", Release("sglang", OLD, ""), place)


def test_a_model_that_is_not_there(tmp_path: Path) -> None:
    verdict = refusal(Path("/models/nowhere"), tmp_path, OLD, "--tp 8")
    assert "Can't load the configuration of '/models/nowhere'" in verdict


def test_amd_takes_tensor_parallel_4(kimi: Path, tmp_path: Path) -> None:
    host: dict[str, Any] = {"accelerator": "mi325x", "num_devices": 8}
    assert run(kimi, tmp_path, OLD, "--tp 4 --kv-cache-dtype fp8_e4m3", **host)
    assert "Provided 8 number of heads" in refusal(kimi, tmp_path, OLD, "--tp 8", **host)


def test_a_method_is_the_one_that_the_checkpoint_names(
    kimi: Path, kimi_nvfp4: Path, tmp_path: Path
) -> None:
    blackwell: dict[str, Any] = {"accelerator": "gb200", "num_devices": 4}
    for model, method in ((kimi, "compressed-tensors"), (kimi_nvfp4, "modelopt_fp4")):
        said = refusal(model, tmp_path, OLD, "--tp 4 --quantization fp8", **blackwell)
        assert f"in the model config ({method}) does not match" in said
        assert run(model, tmp_path, OLD, f"--tp 4 --quantization {method}", **blackwell)


def test_weights_that_do_not_fit_leave_no_memory(kimi: Path, tmp_path: Path) -> None:
    assert "Not enough memory. Please try to increase --mem-fraction-static." in refusal(
        kimi, tmp_path, OLD, "--tp 4"
    )
