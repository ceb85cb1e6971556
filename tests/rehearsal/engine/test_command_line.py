"""How vLLM reads its arguments: prefixes, underscores, negations, dotted JSON, what is given twice."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from infra.rehearsal.engine import catalogue, vllm_config
from infra.rehearsal.engine.command_line import Arguments
from infra.rehearsal.engine.failures import Refused
from infra.rehearsal.engine.settings import Release
from infra.rehearsal.engine.vllm_arguments import rewrite

VERSIONS = ("0.17.0", "0.22.1", "0.33.0")


def parse(argv: list[str], version: str = "0.22.1") -> tuple[Arguments, list[str]]:
    return vllm_config.parse_arguments(["/models/x", *argv], Release("vllm", version, ""))


@pytest.mark.parametrize(
    ("argv", "dest", "value"),
    [
        (["-tp", "8"], "tensor_parallel_size", 8),
        (["-tp=8"], "tensor_parallel_size", 8),
        (["--tensor-parallel-size=8"], "tensor_parallel_size", 8),
        (["--tensor_parallel_size", "8"], "tensor_parallel_size", 8),
        (["--tensor-par", "8"], "tensor_parallel_size", 8),
        (["-dpr", "2"], "data_parallel_start_rank", 2),
        (["-dpl", "2"], "data_parallel_size_local", 2),
        (["-dpn", "3"], "data_parallel_rank", 3),
        (["-dpa", "10.0.0.1"], "data_parallel_address", "10.0.0.1"),
        (["-dpp", "1234"], "data_parallel_rpc_port", 1234),
        (["-ep"], "enable_expert_parallel", True),
        (["--no-enable-prefix-caching"], "enable_prefix_caching", False),
        (["--no_enable_prefix_caching"], "enable_prefix_caching", False),
        (["--max-model-len", "128k"], "max_model_len", 128000),
        (["--max-model-len", "128K"], "max_model_len", 131072),
        (["--max-model-len", "auto"], "max_model_len", -1),
        (["-O3"], "optimization_level", "3"),
        (["-O", "2"], "optimization_level", "2"),
        (["--kv-cache-memory-bytes", "None"], "kv_cache_memory_bytes", None),
        (["--served-model-name", "a", "b"], "served_model_name", ["a", "b"]),
        (["--data-parallel-size", "2", "--data-parallel-size", "4"], "data_parallel_size", 4),
    ],
)
def test_every_spelling_is_read(argv: list[str], dest: str, value: Any) -> None:
    assert parse(argv)[0][dest] == value


def test_dotted_keys_become_one_object() -> None:
    argv = [
        "--compilation_config.pass_config.fuse_allreduce_rms", "true",
        "--compilation-config.cudagraph_mode=FULL_DECODE_ONLY",
        "--compilation-config.cudagraph_capture_sizes+", "1,2,4",
    ]  # fmt: skip
    args, warnings = parse(argv)
    assert args["compilation_config"] == {
        "pass_config": {"fuse_allreduce_rms": True},
        "cudagraph_mode": "FULL_DECODE_ONLY",
        "cudagraph_capture_sizes": ["1", "2", "4"],
    }
    assert not warnings


def test_a_dotted_key_given_twice_is_reported_and_the_last_wins() -> None:
    argv = [
        "--compilation-config.cudagraph_mode",
        "NONE",
        "--compilation-config.cudagraph_mode",
        "FULL",
    ]
    args, warnings = parse(argv)
    assert args["compilation_config"] == {"cudagraph_mode": "FULL"}
    assert warnings == ["Found duplicate keys --compilation-config.cudagraph_mode"]


def test_dotted_keys_replace_the_whole_json_of_the_same_flag() -> None:
    argv = [
        "--compilation-config.cudagraph_mode",
        "FULL",
        "--compilation-config",
        '{"cudagraph_mode":"NONE"}',
    ]
    assert parse(argv)[0]["compilation_config"] == {"cudagraph_mode": "FULL"}


def test_a_flag_given_twice_is_reported() -> None:
    assert (
        "Found duplicate keys --mm-encoder-tp-mode"
        in parse(["--mm-encoder-tp-mode", "data", "--mm-encoder-tp-mode", "data"])[1]
    )


def test_the_model_option_moves_to_the_front() -> None:
    rewritten = rewrite(["-tp", "8", "--model", "m", "--port", "1"], has_number_suffixes=True)
    assert rewritten.argv == ["m", "-tp", "8", "--port", "1"]
    assert "`--model` option will be removed" in rewritten.warnings[0]


def test_disable_is_the_inverse_of_enable_in_0_33() -> None:
    assert parse(["--disable-expert-parallel"], "0.33.0")[0]["enable_expert_parallel"] is False
    assert parse(["--no-enable-expert-parallel"], "0.33.0")[0]["enable_expert_parallel"] is False
    with pytest.raises(Refused, match="unrecognized arguments: --disable-expert-parallel"):
        parse(["--disable-expert-parallel"])


@pytest.mark.parametrize("version", VERSIONS)
def test_every_flag_of_the_catalogue_is_accepted_by_name(version: str) -> None:
    """All flags in one argument vector, each with a value that its type takes."""
    argv: list[str] = []
    expected = set()
    for flag in catalogue.read_flags("vllm", version):
        is_special = flag.type == "parse_dataclass" or flag.name in {"--config", "--model"}
        value = _example(flag, version) if flag.options and not is_special else None
        if value is not None:
            argv += [flag.name, *value]
            expected.add(flag.dest)
    args, _ = parse([*argv, "--tool-call-parser", "x"], version)
    assert expected <= args.given
    assert len(expected) > 190


def _example(flag: catalogue.Flag, version: str) -> list[str] | None:
    if flag.nargs == 0:
        return [] if flag.name != "--enable-auto-tool-choice" else None
    if flag.choices:
        return [str(next(x for x in flag.choices if x != "None"))]
    kinds = catalogue.read_fields(version).flag_types.get(flag.name, [])
    if any(kind.startswith("class:") for kind in kinds) or flag.name == "--speculative-config":
        return None
    if flag.name == "--chat-template":
        return ["{{ messages }}"]  # anything else is a path
    is_json = flag.type in ("loads", "_parse_type", "union_dict_and_str") or "dict" in kinds
    return ["{}"] if is_json else ["1"]


SEED_COMMANDS = [
    (
        "-tp 8 --mm-encoder-tp-mode data --tool-call-parser kimi_k2 --reasoning-parser kimi_k2 "
        "--enable-auto-tool-choice --trust-remote-code"
    ),
    (
        "-tp 4 --mm-encoder-tp-mode data --compilation_config.pass_config.fuse_allreduce_rms true "
        "--tool-call-parser kimi_k2 --reasoning-parser kimi_k2 --enable-auto-tool-choice --trust-remote-code"
    ),
    (
        "--host 0.0.0.0 --port 8100 --served-model-name nvidia/Kimi-K2.5-NVFP4 --tensor-parallel-size 1 "
        "--data-parallel-size 4 --data-parallel-rank 0 --data-parallel-address 10.0.0.1 "
        "--data-parallel-rpc-port 13345 --enable-expert-parallel --enforce-eager --kv-transfer-config "
        '{"kv_connector":"NixlConnector","kv_role":"kv_producer","kv_load_failure_policy":"fail"} '
        "--trust-remote-code"
    ),
    (
        "-tp 8 --mm-encoder-tp-mode data --tool-call-parser kimi_k2 --reasoning-parser kimi_k2 "
        "--enable-auto-tool-choice --block-size=1 --mm-encoder-tp-mode data --trust-remote-code"
    ),
    "--tensor-parallel-size 4 --max-model-len 32768 --trust-remote-code --block-size 1",
    (
        "--tensor-parallel-size 8 --decode-context-parallel-size 8 --enable-auto-tool-choice "
        "--tool-call-parser kimi_k2 --reasoning-parser kimi_k2 --trust-remote-code"
    ),
    "--tensor-parallel-size 8 --no-enable-prefix-caching --trust-remote-code",
    (
        "--host 0.0.0.0 --port 8088 --quantization ascend --served-model-name kimi_k25 "
        "--allowed-local-media-path / --trust-remote-code --no-enable-prefix-caching --seed 1024 --headless "
        "--data-parallel-size 4 --data-parallel-size-local 2 --data-parallel-start-rank 2 "
        "--data-parallel-address 10.0.0.1 --data-parallel-rpc-port 13389 --tensor-parallel-size 4 "
        "--enable-expert-parallel --max-num-seqs 16 --max-model-len 32768 --max-num-batched-tokens 16384"
    ),
]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("command", SEED_COMMANDS)
def test_the_seeds_commands_parse_on_every_release(version: str, command: str) -> None:
    parse(command.split(), version)


def test_the_catalogues_hold_no_help_texts_and_one_flag_per_line() -> None:
    folder = Path(catalogue.catalogue_folder()) / "packages"
    commands = [
        (path, rows)
        for path in sorted(folder.glob("*.json"))
        for rows in json.loads(path.read_text()).get("commands", {}).values()
    ]
    assert commands
    for path, rows in commands:
        names = [row["name"] for row in rows]
        assert names == sorted(names, key=lambda name: (not name.startswith("-"), name))
        assert all("help" not in row for row in rows)
        lines = {line.strip().rstrip(",") for line in path.read_text().splitlines()}
        assert all(json.dumps(row, ensure_ascii=False) in lines for row in rows)
