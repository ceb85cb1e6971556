"""What vLLM's own code said to these command fragments (facts/engines.md 1.1, 1.4, 1.6, 7 and 8)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from infra.rehearsal.engine.failures import Failed, Refused
from infra.rehearsal.engine.settings import Release, Settings
from tests.rehearsal.engine.verdicts import configure_vllm, verdict_of, world

OLD, MIDDLE, NEW = "0.17.0", "0.22.1", "0.33.0"
ALL = (OLD, MIDDLE, NEW)
NIXL = '{"kv_connector":"NixlConnector","kv_role":"kv_producer"}'


def run(
    kimi: Path,
    tmp_path: Path,
    version: str,
    fragment: str,
    env: dict[str, str] | None = None,
    **host: object,
) -> Settings:
    place = world(tmp_path, env or {}, **{"accelerator": "h200", "num_devices": 8, **host})
    return configure_vllm(f"{kimi} {fragment}", Release("vllm", version, ""), place, env or {})


def refusal(*args: object, **host: object) -> str:
    with pytest.raises((Refused, Failed)) as caught:
        run(*args, **host)  # type: ignore[arg-type]
    return verdict_of(caught.value)


ACCEPTED = [
    ("-tp 1 -dp 16 --data-parallel-rank 3 --data-parallel-address A --data-parallel-rpc-port 13390",
     ("external", 1, 3), ALL),
    ("-tp 4 -dp 4 --data-parallel-size-local 2 --data-parallel-address A", ("internal", 2, 0), ALL),
    (("-tp 4 -dp 4 --data-parallel-size-local 2 --data-parallel-address A --headless "
     "--data-parallel-start-rank 2"), ("internal", 2, 2), ALL),
    ("-tp 4 -dp 4 --data-parallel-size-local 2 --data-parallel-address A --data-parallel-start-rank 2",
     ("hybrid", 2, 2), ALL),
    ("-tp 4 -dp 4 --data-parallel-size-local 2 --data-parallel-start-rank 0", ("internal", 2, 0), (OLD, MIDDLE)),
    ("-tp 4 -dp 4 --data-parallel-size-local 2 --data-parallel-start-rank 0", ("hybrid", 2, 0), (NEW,)),
    ("-tp 8 -dp 4 --data-parallel-hybrid-lb --data-parallel-size-local 1 --data-parallel-start-rank 2",
     ("external", 1, 2), ALL),
    ("-tp 4 -dp 2 --data-parallel-hybrid-lb --data-parallel-size-local 2", ("internal", 2, 0), ALL),
    ("-tp 4 -dp 4 --nnodes 2 --node-rank 1 --master-addr A", ("internal", 2, 2), ALL),
    ("-tp 16 --nnodes 2 --node-rank 1 --master-addr A --headless", ("single", 1, 0), ALL),
    ("-tp 2 -dp 4 -dpl 4 -dpm --enable-expert-parallel", ("multi-port", 4, 0), (MIDDLE, NEW)),
    ("-tp 8", ("single", 1, 0), ALL),
]  # fmt: skip


@pytest.mark.parametrize(
    ("fragment", "expected", "version"), [(f, e, v) for f, e, vs in ACCEPTED for v in vs]
)
def test_a_good_combination_selects_its_mode(
    kimi: Path, tmp_path: Path, fragment: str, expected: tuple[str, int, int], version: str
) -> None:
    # a tensor-parallel follower and wide pools: leave memory aside
    more = " --max-model-len 8192" + (" --swap-space 0" if version == OLD else "")
    place = run(kimi, tmp_path, version, fragment + more, accelerator="mi325x").parallel
    assert (place.mode, place.local, place.first_rank) == expected


REFUSED = [
    ("-dp 4 --data-parallel-hybrid-lb", "data_parallel_size_local must be set to use data_parallel_hybrid_lb.",
     (OLD, MIDDLE)),
    ("-dp 4 --data-parallel-hybrid-lb", "`--data-parallel-hybrid-lb` requires `--data-parallel-size-local`", (NEW,)),
    ("-dp 4 --data-parallel-rank 4", "data_parallel_rank (4) must be in the range [0, 4)", ALL),
    ("-dp 4 --data-parallel-rank 1 --data-parallel-size-local 2",
     "data_parallel_size_local must be 1 or None when data_parallel_rank is set", (OLD, MIDDLE)),
    ("-dp 4 --data-parallel-rank 1 --data-parallel-size-local 2", "`--data-parallel-size-local 1`; got 2", (NEW,)),
    ("-dp 2 --data-parallel-size-local 4", "data_parallel_size_local (4) must be <= data_parallel_size (2)", ALL),
    ("-dp 1 --data-parallel-rank 0", "data_parallel_external_lb can only be set when data_parallel_size > 1", ALL),
    ("-dp 4 --data-parallel-external-lb", "data_parallel_rank or node_rank must be specified", (OLD, MIDDLE)),
    ("-dp 4 --data-parallel-external-lb", "requires a data-parallel rank", (NEW,)),
    ("-tp 16", "World size (16) is larger than the number of available GPUs (8) in this node.", ALL),
    ("-tp 3", "Total number of attention heads (64) must be divisible by tensor parallel size (3).", ALL),
    ("-tp 16 --nnodes 3", "world_size=16 must be divisible by nnodes=3.", (OLD, MIDDLE)),
    ("-tp 16 --nnodes 3", "`--nnodes 3` must evenly divide the total world size (16)", (NEW,)),
    ("-tp 16 --nnodes 2 --node-rank 2", "node_rank=2 must be less than nnodes=2.", (OLD, MIDDLE)),
    ("-tp 16 --nnodes 2 --node-rank 2", "`--node-rank` must be between 0 and 1; got `--node-rank 2`", (NEW,)),
    ("-tp 16 --nnodes 2 --distributed-executor-backend ray",
     "nnodes > 1 can only be set when distributed executor backend is mp, uni or external_launcher.", ALL),
    ("-tp 8 -dcp 3", "tp_size=8 must be divisible bydcp_size=3.", (OLD, MIDDLE)),
    ("-tp 8 -dcp 3", "tp_size=8 must be divisible by dcp_size=3.", (NEW,)),
    ("-tp 8 --enable-eplb", "enable_expert_parallel must be True to use EPLB.", ALL),
    ("-tp 8 --enable-dbo", "only supports the deepep_low_latency and deepep_high_throughput all2all backend", ALL),
    ("-tp 8 --max-model-len 400000", ("User-specified max_model_len (400000) is greater than the derived "
     "max_model_len (max_position_embeddings=262144"), ALL),
    ("-tp 8 --max-num-seqs 512 --max-num-batched-tokens 256",
     "max_num_batched_tokens (256) must be greater than or equal to max_num_seqs (512).", ALL),
    ("-tp 8 --max-num-batched-tokens 256 --max-model-len 32768 --no-enable-chunked-prefill",
     "max_num_batched_tokens (256) is smaller than max_model_len (32768).", ALL),
    ("-dp 4 -dpl 2 -dpr 2 --data-parallel-rank 1", "Cannot use more than one data parallel load balancing mode",
     (MIDDLE, NEW)),
    ("-tp 8 --headless --api-server-count 2", "cannot be used with --headless", ALL),
    ("-tp 2 -dp 4 -dpl 4 -dpm --port 9253", "overlaps with child rank ports 9253-9256", (MIDDLE, NEW)),
    ("-tp 2 -dp 4 -dpm", "requires --data-parallel-size-local >= 2", (MIDDLE, NEW)),
]  # fmt: skip


@pytest.mark.parametrize(
    ("fragment", "expected", "version"), [(f, e, v) for f, e, vs in REFUSED for v in vs]
)
def test_a_bad_combination_gets_vllms_own_words(
    kimi: Path, tmp_path: Path, fragment: str, expected: str, version: str
) -> None:
    verdict = refusal(kimi, tmp_path, version, fragment)
    assert expected in verdict
    assert verdict.startswith("exit 1: ")


def test_old_vllm_reserves_swap_space_per_device(kimi: Path, tmp_path: Path) -> None:
    verdict = refusal(kimi, tmp_path, OLD, "-tp 8", host_memory_gib=23.54)
    assert "Too large swap space. 32.0 GiB out of the 23.54 GiB total CPU memory" in verdict
    assert run(kimi, tmp_path, MIDDLE, "-tp 8", host_memory_gib=23.54)


KV_CASES = [
    ("'{\"kv_connector\":\"NixlConnector\"}'", "Please specify kv_role when kv_connector is set", ALL),
    ('\'{"kv_connector":"NixlConnector","kv_role":"kv_prefill"}\'', "Input should be", ALL),
    ('\'{"kv_connector":"NixlConnector","kv_role":"kv_both","kv_conector":1}\'',
     "kv_conector Unexpected keyword argument [type=unexpected_keyword_argument", ALL),
    ('\'{"kv_connector":"NixlConnector","kv_role":"kv_both","kv_ip":"1.2.3.4"}\'',
     "kv_ip Unexpected keyword argument", (NEW,)),
    ('\'{"kv_connector":"NixlConnector","kv_role":"kv_both","kv_rank":0}\'',
     "kv_rank Unexpected keyword argument", (NEW,)),
    ("'{kv_connector:1}'", "Invalid JSON", ALL),
    ('\'{"kv_connector":"NixlConnector","kv_role":"kv_both","kv_port":"x"}\'',
     "kv_port Input should be a valid integer", ALL),
]  # fmt: skip


@pytest.mark.parametrize(
    ("value", "expected", "version"), [(c, e, v) for c, e, vs in KV_CASES for v in vs]
)
def test_a_bad_kv_transfer_config_is_a_parse_error(
    kimi: Path, tmp_path: Path, value: str, expected: str, version: str
) -> None:
    verdict = refusal(kimi, tmp_path, version, f"-tp 8 --kv-transfer-config {value}")
    assert expected in verdict
    assert verdict.startswith("exit 2: usage: vllm serve [model_tag] [options]")


@pytest.mark.parametrize("version", [OLD, MIDDLE])
def test_keys_that_0_33_removed_parse_before(kimi: Path, tmp_path: Path, version: str) -> None:
    value = '{"kv_connector":"NixlConnector","kv_role":"kv_both","kv_ip":"h","kv_rank":0,"kv_parallel_size":2}'
    assert run(kimi, tmp_path, version, f"-tp 8 --swap-space 0 --kv-transfer-config '{value}'"
               if version == OLD else f"-tp 8 --kv-transfer-config '{value}'").kv is not None  # fmt: skip


def test_a_port_written_as_text_becomes_a_number(kimi: Path, tmp_path: Path) -> None:
    value = '{"kv_connector":"MooncakeConnector","kv_role":"kv_producer","kv_port":"30000"}'
    kv = run(kimi, tmp_path, MIDDLE, f"-tp 8 --kv-transfer-config '{value}'").kv
    assert kv is not None
    assert kv.port == 30000


def test_the_ascend_connector_is_unknown_elsewhere(kimi: Path, tmp_path: Path) -> None:
    value = '{"kv_connector":"MooncakeConnectorV1","kv_role":"kv_producer"}'
    verdict = refusal(kimi, tmp_path, MIDDLE, f"-tp 8 --kv-transfer-config '{value}'")
    assert "Unsupported connector type: MooncakeConnectorV1" in verdict


PARSE_CASES = [
    ("--tensor-paralel-size 8", "vllm: error: unrecognized arguments: --tensor-paralel-size 8"),
    (
        "--tensor-parallel-size eight",
        "argument --tensor-parallel-size/-tp: invalid int value: 'eight'",
    ),
    ("--all2all-backend fast", "argument --all2all-backend: invalid choice: 'fast' (choose from"),
    (
        "--max-model-len 12q",
        "argument --max-model-len: invalid human_readable_int_or_auto value: '12q'",
    ),
    ("--distributed-timeout-seconds soon", "Value soon cannot be converted to <class 'int'>."),
    ("--data-parallel", "error: ambiguous option: --data-parallel could match"),
    ("--speculative-config '{'", "Value { cannot be converted to <function loads at"),
    ("--compilation-config.pass_config.fuse_all true", "fuse_all Unexpected keyword argument"),
    ("--tensor-parallel-size", "argument --tensor-parallel-size/-tp: expected one argument"),
]


@pytest.mark.parametrize(("fragment", "expected"), PARSE_CASES)
def test_a_bad_flag_leaves_with_two(
    kimi: Path, tmp_path: Path, fragment: str, expected: str
) -> None:
    verdict = refusal(kimi, tmp_path, MIDDLE, fragment)
    assert expected in verdict
    assert verdict.startswith("exit 2: usage: vllm")


def test_an_unknown_graph_mode_is_a_key_error(kimi: Path, tmp_path: Path) -> None:
    verdict = refusal(
        kimi, tmp_path, MIDDLE, '-tp 8 --compilation-config \'{"cudagraph_mode":"DECODE"}\''
    )
    assert verdict.endswith("KeyError: 'DECODE'")
    assert verdict.startswith("exit 1")


@pytest.mark.parametrize(
    "mode", ["NONE", "PIECEWISE", "FULL", "FULL_DECODE_ONLY", "full_and_piecewise"]
)
def test_every_graph_mode_is_taken(kimi: Path, tmp_path: Path, mode: str) -> None:
    run(kimi, tmp_path, MIDDLE, f"-tp 8 --compilation-config.cudagraph_mode {mode}")


def test_eagle3_on_kimi_needs_vllm_0_18(kimi: Path, tmp_path: Path, draft: Path) -> None:
    config = f'{{"model":"{draft}","method":"eagle3","num_speculative_tokens":3}}'
    fragment = f"-tp 8 --speculative-config '{config}'"
    verdict = refusal(kimi, tmp_path, OLD, fragment)
    assert "eagle3 is only supported for ['llama', 'qwen'" in verdict
    assert run(kimi, tmp_path, MIDDLE, fragment)
    assert run(kimi, tmp_path, NEW, fragment)


def test_an_unknown_key_of_speculation_is_a_validation_error(
    kimi: Path, tmp_path: Path, draft: Path
) -> None:
    config = f'{{"model":"{draft}","method":"eagle3","num_spec_tokens":3}}'
    verdict = refusal(kimi, tmp_path, MIDDLE, f"-tp 8 --speculative-config '{config}'")
    assert (
        "1 validation error for SpeculativeConfig num_spec_tokens Unexpected keyword argument"
        in verdict
    )


@pytest.mark.parametrize(
    ("version", "fragment", "env", "is_good"),
    [
        (OLD, "-tp 4 --swap-space 0", {"VLLM_ROCM_USE_AITER": "1"}, True),
        (OLD, "-tp 8 --swap-space 0", {"VLLM_ROCM_USE_AITER": "1"}, False),
        (OLD, "-tp 8 --swap-space 0 --block-size 1", {"VLLM_ROCM_USE_AITER": "0"}, False),
        (OLD, "-tp 4 --swap-space 0 --block-size 1", {"VLLM_ROCM_USE_AITER": "0"}, True),
        (OLD, "-tp 8 --swap-space 0", {"VLLM_ROCM_USE_AITER": "0"}, True),
        (MIDDLE, "-tp 8", {"VLLM_ROCM_USE_AITER": "1"}, True),
        (MIDDLE, "-tp 8", {"VLLM_ROCM_USE_AITER": "0"}, True),
    ],
)
def test_aiter_mla_takes_only_some_head_counts(
    kimi: Path, tmp_path: Path, version: str, fragment: str, env: dict[str, str], *, is_good: bool
) -> None:
    host: dict[str, Any] = {"accelerator": "mi325x", "num_devices": 8}
    if is_good:
        run(kimi, tmp_path, version, fragment, env, **host)
    else:
        assert "Aiter MLA only supports 16 or 128" in refusal(
            kimi, tmp_path, version, fragment, env, **host
        )


def test_nvfp4_needs_blackwell(kimi_nvfp4: Path, tmp_path: Path) -> None:
    assert "Blackwell" in refusal(kimi_nvfp4, tmp_path, MIDDLE, "-tp 8")
    fragment = "-tp 4 --max-model-len 131072"
    assert run(kimi_nvfp4, tmp_path, MIDDLE, fragment, accelerator="gb200", num_devices=4)


def test_ascend_quantisation_belongs_to_the_plugin(kimi: Path, tmp_path: Path) -> None:
    verdict = refusal(kimi, tmp_path, MIDDLE, "-tp 8 --quantization ascend")
    assert "in the `quantization` argument (ascend)" in verdict


def test_a_kubernetes_service_named_vllm_breaks_the_start(kimi: Path, tmp_path: Path) -> None:
    verdict = refusal(kimi, tmp_path, MIDDLE, "-tp 8", {"VLLM_PORT": "tcp://10.0.0.1:8000"})
    assert "VLLM_PORT 'tcp://10.0.0.1:8000' appears to be a URI" in verdict


def test_an_unknown_variable_is_an_error_only_when_asked(kimi: Path, tmp_path: Path) -> None:
    env = {"VLLM_USE_TRITON_FLASH_ATTN": "0"}
    assert run(kimi, tmp_path, MIDDLE, "-tp 8", env)
    verdict = refusal(kimi, tmp_path, MIDDLE, "-tp 8 --fail-on-environ-validation", env)
    assert "Unknown vLLM environment variable detected: VLLM_USE_TRITON_FLASH_ATTN" in verdict


def test_a_model_that_is_not_there(tmp_path: Path) -> None:
    missing = Path("/models/nowhere")
    assert "Invalid repository ID or local directory specified: '/models/nowhere'" in refusal(
        missing, tmp_path, MIDDLE, "-tp 8"
    )
    repository = Path("moonshotai/Kimi-K2.5")
    env = {"HF_HUB_OFFLINE": "1"}
    assert "LocalEntryNotFoundError" in refusal(repository, tmp_path, MIDDLE, "-tp 8", env)
    assert "Can't load the configuration of" in refusal(repository, tmp_path, MIDDLE, "-tp 8")


def test_weights_that_do_not_fit_run_out_of_memory(kimi: Path, tmp_path: Path) -> None:
    assert "torch.OutOfMemoryError: CUDA out of memory." in refusal(kimi, tmp_path, MIDDLE, "-tp 4")


def test_a_cache_too_small_for_one_request_is_refused(kimi: Path, tmp_path: Path) -> None:
    fragment = "-dp 4 --data-parallel-rank 0 --enable-expert-parallel"
    host: dict[str, Any] = {"accelerator": "gb200", "num_devices": 4}
    verdict = refusal(kimi, tmp_path, MIDDLE, fragment, **host)
    assert (
        "To serve at least one request with the model's max seq len (262144), (17.16 GiB KV cache"
        in verdict
    )
    wide = fragment + " --max-model-len 131072 --gpu-memory-utilization 0.95"
    assert run(kimi, tmp_path, MIDDLE, wide, **host).kv_tokens > 131072


def test_kv_bytes_per_token_follow_cache_type_and_context_parallelism(
    kimi: Path, tmp_path: Path
) -> None:
    plain = run(kimi, tmp_path, MIDDLE, "-tp 8").kv_tokens
    assert run(kimi, tmp_path, MIDDLE, "-tp 8 --kv-cache-dtype fp8").kv_tokens == pytest.approx(
        2 * plain, abs=2
    )
    assert run(kimi, tmp_path, MIDDLE, "-tp 8 -dcp 8").kv_tokens == pytest.approx(8 * plain, abs=8)


@pytest.mark.parametrize("version", ALL)
def test_a_length_left_to_memory_is_as_long_as_fits(
    kimi: Path, tmp_path: Path, version: str
) -> None:
    host: dict[str, Any] = {"accelerator": "h200", "num_devices": 8}
    tight = "-tp 8 --gpu-memory-utilization 0.6"
    assert "To serve at least one request" in refusal(kimi, tmp_path, version, tight, **host)
    settings = run(kimi, tmp_path, version, f"{tight} --max-model-len -1", **host)
    assert 0 < settings.max_model_len == settings.kv_tokens < 262144


def test_tritons_latent_attention_has_fp8_kv_from_0_18_on(kimi: Path, tmp_path: Path) -> None:
    host: dict[str, Any] = {"accelerator": "mi325x", "num_devices": 8}
    said = refusal(kimi, tmp_path, OLD, "-tp 8 --kv-cache-dtype fp8", **host)
    assert "FP8 Triton MLA not yet supported" in said
    assert run(kimi, tmp_path, MIDDLE, "-tp 8 --kv-cache-dtype fp8", **host)


@pytest.mark.parametrize("version", ALL)
@pytest.mark.parametrize(
    ("fragment", "expected"),
    [
        ("--enable-auto-tool-choice", "--enable-auto-tool-choice requires --tool-call-parser"),
        (
            "--enable-auto-tool-choice --tool-call-parser kimi2",
            "invalid tool call parser: kimi2 (chose from",
        ),
        # the checkpoint has a method of its own, and that is held against it first (recorded)
        ("--quantization int5", "in the `quantization` argument (int5)"),
    ],
)
def test_names_are_checked_after_parsing(
    kimi: Path, tmp_path: Path, version: str, fragment: str, expected: str
) -> None:
    verdict = refusal(kimi, tmp_path, version, f"-tp 8 {fragment}")
    assert expected in verdict
    assert verdict.startswith("exit 1")


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ("0.17.0", "invalid reasoning parser: kimi2 (chose from"),
        ("0.22.1", "Reasoning parser 'kimi2' not found. Available parsers: "),
    ],
)
def test_a_reasoning_parser_is_checked_after_parsing(
    kimi: Path, tmp_path: Path, version: str, expected: str
) -> None:
    verdict = refusal(kimi, tmp_path, version, "-tp 8 --reasoning-parser kimi2")
    assert expected in verdict
    assert verdict.startswith("exit 1")


@pytest.mark.parametrize("version", ALL)
@pytest.mark.parametrize("name", ["VLLM_NIXL_SIDE_CHANNEL_PORT", "VLLM_MOONCAKE_BOOTSTRAP_PORT"])
@pytest.mark.parametrize("fragment", ["-tp 8", f"-tp 8 --kv-transfer-config '{NIXL}'"])
def test_a_port_that_is_no_number_ends_every_core(
    kimi: Path, tmp_path: Path, version: str, name: str, fragment: str
) -> None:
    said = refusal(kimi, tmp_path, version, fragment, {name: "any"})
    assert said.startswith("exit 1: ")
    assert "invalid literal for int() with base 10: 'any'" in said


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("VLLM_USE_DEEP_GEMM", "true", "invalid literal for int() with base 10: 'true'"),
        ("VLLM_LOG_STATS_INTERVAL", "10s", "could not convert string to float: '10s'"),
        ("VLLM_WORKER_MULTIPROC_METHOD", "thread", "Invalid value 'thread' for VLLM_WORKER_MULTI"),
        ("VLLM_GPT_OSS_SYSTEM_TOOL_MCP_LABELS", "shell, x", "Invalid value 'shell' in VLLM_GPT"),
    ],
)
def test_a_core_reads_every_variable(
    kimi: Path, tmp_path: Path, name: str, value: str, expected: str
) -> None:
    said = refusal(kimi, tmp_path, MIDDLE, "-tp 8", {name: value})
    assert said.startswith("exit 1: ")
    assert expected in said


def test_a_checkpoint_in_nvfp4_is_any_of_its_makers_methods(
    kimi: Path, kimi_nvfp4: Path, tmp_path: Path
) -> None:
    said = refusal(kimi, tmp_path, MIDDLE, "-tp 8 --quantization fp8")
    assert "Quantization method specified in the model config (compressed-tensors) does not" in said
    fragment = "-tp 4 --quantization modelopt --max-model-len 8192"
    assert run(kimi_nvfp4, tmp_path, MIDDLE, fragment, accelerator="gb200", num_devices=4)


def several(inner: str) -> str:
    extra = f'"kv_connector_extra_config":{{"connectors":{inner}}}'
    return f'-tp 8 --kv-transfer-config \'{{"kv_connector":"MultiConnector","kv_role":"kv_both",{extra}}}\''


@pytest.mark.parametrize(
    ("inner", "expected"),
    [
        ("null", "ktcs is not None"),
        ('[{"kv_connector":"LMCache","kv_role":"kv_both"}]', "Unsupported connector type: LMCache"),
        ('[{"kv_connector":"LMCacheConnectorV1"}]', "Please specify kv_role when kv_connector"),
        ('[{"kv_rol":"kv_both"}]', "kv_rol"),
        ('[{"kv_role":"kv_both"}]', "Connector name is not set in KVTransferConfig"),
    ],
)
def test_a_connector_inside_another_is_configured_as_its_own(
    kimi: Path, tmp_path: Path, inner: str, expected: str
) -> None:
    assert expected in refusal(kimi, tmp_path, MIDDLE, several(inner))


def test_connectors_that_the_release_registers_are_taken(kimi: Path, tmp_path: Path) -> None:
    inner = '[{"kv_connector":"LMCacheConnectorV1","kv_role":"kv_both"}]'
    for fragment in (
        several(inner),
        '-tp 8 --kv-transfer-config \'{"kv_connector":"P2pNcclConnector","kv_role":"kv_both"}\'',
    ):
        assert run(kimi, tmp_path, MIDDLE, fragment).kv is not None


def prefilling(name: str) -> str:
    return f'-tp 4 --attention-config \'{{"mla_prefill_backend":"{name}"}}\''


@pytest.mark.parametrize(
    ("name", "host", "expected"),
    [
        ("none-such", "h200", "APIServer: Unknown MLA prefill backend: 'NONE-SUCH'. Valid"),
        ("trtllm_ragged", "h200", "Worker: Selected MLA prefill backend TRTLLM_RAGGED is not"),
        ("FLASHINFER", "mi300x", "Worker: Selected MLA prefill backend FLASHINFER is not valid"),
    ],
)
def test_what_latents_are_prefilled_with_is_one_that_the_device_has(
    kimi: Path, tmp_path: Path, name: str, host: str, expected: str
) -> None:
    with pytest.raises(Failed) as caught:
        run(kimi, tmp_path, MIDDLE, prefilling(name), accelerator=host)
    assert f"{caught.value.process}: {caught.value.message}".startswith(expected)


@pytest.mark.parametrize(("name", "host"), [("FLASH_ATTN", "mi300x"), ("TRTLLM_RAGGED", "gb200")])
def test_what_the_device_has_is_taken(kimi: Path, tmp_path: Path, name: str, host: str) -> None:
    assert run(kimi, tmp_path, MIDDLE, prefilling(name), accelerator=host).kv_tokens > 0


@pytest.mark.parametrize(
    ("version", "fragment", "host", "expected"),
    [
        (OLD, "-tp 4 -dcp 4 --swap-space 0", "gb200", "the impl FlashInferMLAImpl does not return"),
        (MIDDLE, "-tp 4 -dcp 4", "gb200", "during decode, but FlashInferMLAImpl does not."),
        (MIDDLE, "-tp 8 -dcp 8", "mi300x", "during decode, but AiterMLAImpl does not."),
        (
            MIDDLE,
            "-tp 4 --attention-backend CUTLASS_MLA --block-size 64",
            "gb200",
            "CUTLASS_MLA is not valid for this configuration. Reason: ['block_size not supported']",
        ),
        (
            MIDDLE,
            "-tp 8 --attention-backend FLASHINFER_MLA",
            "h200",
            "Reason: ['compute capability not supported']",
        ),
        (
            MIDDLE,
            "-tp 4 --attention-backend FLASHMLA",
            "gb200",
            "Reason: ['FlashMLA Dense is only supported on Hopper devices.']",
        ),
        (
            MIDDLE,
            "-tp 8 --attention-backend FLASH_ATTN",
            "h200",
            "Reason: ['MLA not supported']",
        ),
        (MIDDLE, "-tp 8 --attention-backend ROCM_AITER_MLA", "h200", "Reason: ['ImportError']"),
        (
            MIDDLE,
            "-tp 8 --kv-cache-dtype fp8_e5m2",
            "h200",
            "No valid attention backend found for cuda with AttentionSelectorConfig(",
        ),
        (
            OLD,
            "-tp 4 --swap-space 0 --block-size 1 --attention-backend TRITON_MLA",
            "mi300x",
            "The selected backend, TRITON_MLA,does not support block size 1.",
        ),
    ],
)
def test_workers_refuse_what_their_attention_back_end_does_not_take(  # noqa: PLR0917 - a row
    kimi: Path, tmp_path: Path, version: str, fragment: str, host: str, expected: str
) -> None:
    env = {"VLLM_ROCM_USE_AITER": "1"} if host == "mi300x" else {}
    with pytest.raises(Failed) as caught:
        run(kimi, tmp_path, version, fragment, env, accelerator=host, num_devices=8)
    assert caught.value.process == "Worker"
    assert expected in caught.value.message


@pytest.mark.parametrize(
    ("version", "fragment", "host"),
    [
        (MIDDLE, "-tp 4 -dcp 4 --attention-backend TRITON_MLA", "gb200"),
        (MIDDLE, "-tp 4 -dcp 4 --attention-backend cutlass_mla --block-size 128", "gb200"),
        (MIDDLE, "-tp 8 -dcp 8 --kv-cache-dtype fp8", "h200"),
        (OLD, "-tp 8 -dcp 8 --swap-space 0 --block-size 16", "h200"),
        (NEW, "-tp 4 -dcp 4", "gb200"),
        (NEW, "-tp 8 -dcp 8", "mi300x"),
    ],
)
def test_decode_contexts_go_where_a_log_sum_exp_is_given(
    kimi: Path, tmp_path: Path, version: str, fragment: str, host: str
) -> None:
    env = {"VLLM_ROCM_USE_AITER": "1"} if host == "mi300x" else {}
    assert run(kimi, tmp_path, version, fragment, env, accelerator=host, num_devices=8)


def test_blocks_of_one_token_need_aiter_since_rocm_compares_them(
    kimi: Path, tmp_path: Path
) -> None:
    said = refusal(
        kimi,
        tmp_path,
        MIDDLE,
        "-tp 8 --block-size 1",
        {"VLLM_ROCM_USE_AITER": "0"},
        accelerator="mi325x",
        num_devices=8,
    )
    assert "No valid attention backend found for rocm" in said
    assert "Reasons: {TRITON_MLA: [block_size not supported]}." in said


def test_no_decode_context_at_all_is_none_too_few(kimi: Path, tmp_path: Path) -> None:
    said = refusal(kimi, tmp_path, MIDDLE, "-tp 8 -dcp 0")
    assert said == "exit 1: ZeroDivisionError: integer modulo by zero"
    said = refusal(kimi, tmp_path, NEW, "-tp 8 -dcp 0")
    assert "decode_context_parallel_size Input should be greater than or equal to 1" in said
