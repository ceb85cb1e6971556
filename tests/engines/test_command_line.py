"""Command lines read as the engines' own argument parsers read them (verdicts of vLLM 0.17.0 to 0.33.0)."""

from __future__ import annotations

import pytest

from infra.catalog.flags import FlagCatalogue
from infra.catalog.load import Catalog
from infra.engines.command_line import (
    as_int,
    compact_json,
    flag_named,
    parse_flags,
    spell_flag,
)


@pytest.fixture
def vllm(catalog: Catalog) -> FlagCatalogue:
    return catalog.flags("vllm-0.22.1")


def value(words: str, name: str, flags: FlagCatalogue) -> object:
    parsed = parse_flags(words.split(" "), flags)
    assert parsed.rejected == ()
    return parsed.values[name]


@pytest.mark.parametrize(
    ("words", "name", "expected"),
    [
        ("--tensor-parallel-size 8", "tensor-parallel-size", 8),
        ("--tensor-parallel-size=8", "tensor-parallel-size", 8),
        ("--tensor_parallel_size 8", "tensor-parallel-size", 8),
        ("-tp 8", "tensor-parallel-size", 8),
        ("-dp 4", "data-parallel-size", 4),
        ("--enable-expert-p", "enable-expert-parallel", True),
        ("--enforce-eager", "enforce-eager", True),
        ("--no-enforce-eager", "enforce-eager", False),
        ("--max-model-len 32k", "max-model-len", 32_000),
        ("--max-model-len 32K", "max-model-len", 32_768),
        ("--max-model-len 1.5k", "max-model-len", 1_500),
        ("--max-model-len 131072", "max-model-len", 131_072),
        ("--gpu-memory-utilization 0.95", "gpu-memory-utilization", 0.95),
        (
            '--kv-transfer-config {"kv_role":"kv_both"}',
            "kv-transfer-config",
            {"kv_role": "kv_both"},
        ),
        (
            "--compilation-config.cudagraph_mode FULL",
            "compilation-config",
            {"cudagraph_mode": "FULL"},
        ),
        (
            "--compilation_config.pass_config.fuse_allreduce_rms true",
            "compilation-config",
            {"pass_config": {"fuse_allreduce_rms": True}},
        ),
        (
            '--compilation-config {"a":1} --compilation-config.b.c 2 --compilation-config.b.d 3',
            "compilation-config",
            {"a": 1, "b": {"c": 2, "d": 3}},
        ),
        ("--port 1 --port 2", "port", 2),
        ("-t 8", "tensor-parallel-size", 8),
        ("-dcp=2", "decode-context-parallel-size", 2),
        ("-n2", "nnodes", 2),
        ("-r 1", "node-rank", 1),
        ("-qfp8", "quantization", "fp8"),
        ("--max_model 32768", "max-model-len", 32_768),
        ("--no-enable-expert-par", "enable-expert-parallel", False),
        ("-O3", "optimization-level", "3"),
        ("-O=1 --port 1", "optimization-level", "1"),
        ("--port 1 -O 0", "optimization-level", "0"),
        ("-cc.cudagraph_mode=FULL", "compilation-config", {"cudagraph_mode": "FULL"}),
        ("-cc.cudagraph_mode FULL", "compilation-config", {"cudagraph_mode": "FULL"}),
        (
            "-cc.splitting_ops+ a,b --compilation-config.max_cudagraph_capture_size 1k",
            "compilation-config",
            {"splitting_ops": ["a", "b"], "max_cudagraph_capture_size": 1000},
        ),
    ],
)
def test_a_spelling_is_understood(
    words: str, name: str, expected: object, vllm: FlagCatalogue
) -> None:
    assert value(words, name, vllm) == expected


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ("--no-such-flag", "unrecognized arguments: --no-such-flag"),
        ("--tensor-parallel-size eight", "invalid int value: 'eight'"),
        ("--gpu-memory-utilization high", "invalid float value: 'high'"),
        ("--max-model-len long", "invalid human_readable_int value: 'long'"),
        ("--tensor-parallel-size", "expected one argument"),
        ("--port --host", "expected one argument"),
        ("--enforce-eager=1", "ignored explicit argument '1'"),
        ("--data-parallel 4", "ambiguous option: --data-parallel could match"),
        ("--kv-transfer-config {kv_role", "cannot be converted to JSON"),
        ("--all2all-backend abacus", "invalid choice: 'abacus'"),
    ],
)
def test_a_mistake_is_refused_with_the_parsers_reason(
    words: str, reason: str, vllm: FlagCatalogue
) -> None:
    parsed = parse_flags(words.split(" "), vllm)
    assert any(reason in why for _, why in parsed.rejected), parsed.rejected


def test_words_without_a_flag_are_positionals(vllm: FlagCatalogue) -> None:
    parsed = parse_flags(["/models/x", "--enforce-eager", "stray", "--port", "1", "more"], vllm)
    assert parsed.positionals == ("/models/x", "stray", "more")
    assert parsed.values == {"enforce-eager": True, "port": 1}


def test_a_negative_number_is_a_value(vllm: FlagCatalogue) -> None:
    assert value("--seed -1", "seed", vllm) == -1


def test_readings_do_not_share_what_dotted_flags_change(vllm: FlagCatalogue) -> None:
    words = ["--compilation-config", '{"a":{"b":1}}']
    changed = parse_flags([*words, "--compilation-config.a.b", "2"], vllm).values
    plain = parse_flags(words, vllm).values
    assert changed["compilation-config"] == {"a": {"b": 2}}
    assert plain["compilation-config"] == {"a": {"b": 1}}


@pytest.mark.parametrize(
    ("name", "given", "words"),
    [
        ("port", 8000, ("--port", "8000")),
        ("enforce-eager", True, ("--enforce-eager",)),
        ("enforce-eager", False, ("--no-enforce-eager",)),
        ("compilation-config", {"b": 1, "a": [2]}, ("--compilation-config", '{"a":[2],"b":1}')),
        ("middleware", ["a", "b"], ("--middleware", "a", "b")),
    ],
)
def test_a_flag_is_spelt(
    name: str,
    given: bool | int | list[object] | dict[str, object],
    words: tuple[str, ...],
    vllm: FlagCatalogue,
) -> None:
    assert spell_flag(name, given, vllm) == words


@pytest.mark.parametrize(
    ("release", "name", "negation"),
    [
        ("vllm-0.17.0", "enable-prefix-caching", "--no-enable-prefix-caching"),
        ("vllm-0.22.1", "enable-prefix-caching", "--no-enable-prefix-caching"),
        ("vllm-0.33.0", "enable-prefix-caching", "--disable-prefix-caching"),
        ("vllm-0.33.0", "disable-cascade-attn", "--enable-cascade-attn"),
        ("vllm-0.33.0", "enforce-eager", "--no-enforce-eager"),
    ],
)
def test_a_switch_is_negated_as_its_release_does(
    release: str, name: str, negation: str, catalog: Catalog
) -> None:
    flags = catalog.flags(release)
    assert spell_flag(name, value=False, catalogue=flags) == (negation,)
    assert parse_flags([negation], flags).values == {name: False}
    assert parse_flags([f"--{name}"], flags).values == {name: True}


@pytest.mark.parametrize("flag", ["enable-prefix-caching", "disable-cascade-attn", "enforce-eager"])
def test_negations_that_the_newest_release_hides_are_taken(flag: str, catalog: Catalog) -> None:
    parsed = parse_flags([f"--no-{flag}"], catalog.flags("vllm-0.33.0"))
    assert (parsed.values, parsed.rejected) == ({flag: False}, ())


@pytest.mark.parametrize("release", ["vllm-0.17.0", "vllm-0.22.1", "vllm-0.33.0"])
def test_the_names_that_the_compiler_relies_on_are_equal_over_releases(
    release: str, catalog: Catalog
) -> None:
    names = catalog.flags(release).by_name
    wanted = {
        "tensor-parallel-size",
        "enable-expert-parallel",
        "data-parallel-rank",
        "kv-transfer-config",
        "headless",
    }
    assert wanted <= set(names)


@pytest.mark.parametrize("release", ["sglang-0.5.9", "sglang-0.5.23"])
def test_sglangs_short_names_mean_the_long_ones(release: str, catalog: Catalog) -> None:
    parsed = parse_flags(
        ["--tp", "8", "--dp-size", "2", "--reasoning-parser", "kimi_k2"], catalog.flags(release)
    )
    assert parsed.rejected == ()
    assert parsed.values["tensor-parallel-size"] == 8
    assert parsed.values["data-parallel-size"] == 2


def test_sglang_refuses_an_unknown_parser(catalog: Catalog) -> None:
    parsed = parse_flags(["--reasoning-parser", "kimi-k2"], catalog.flags("sglang-0.5.9"))
    assert "invalid choice" in parsed.rejected[0][1]


def test_json_has_one_spelling() -> None:
    assert compact_json({"b": [1, True], "a": None}) == '{"a":null,"b":[1,true]}'


@pytest.mark.parametrize(("given", "number"), [(None, 7), ("3", 3), (3, 3), ("x", 7), (True, 7)])
def test_numbers(given: object, number: int) -> None:
    assert as_int(given, 7) == number


@pytest.mark.parametrize(
    ("release", "written", "name", "positive"),
    [
        ("vllm-0.22.1", "tp", "tensor-parallel-size", True),
        ("vllm-0.22.1", "max-model", "max-model-len", True),
        ("vllm-0.22.1", "max_num_seqs", "max-num-seqs", True),
        ("vllm-0.22.1", "no-enforce-eager", "enforce-eager", False),
        ("vllm-0.22.1", "compilation.pass_config.x", "compilation-config.pass_config.x", True),
        ("vllm-0.22.1", "max-num", "max-num", True),  # of two flags: the parser refuses it
        ("sglang-0.5.9", "tp", "tensor-parallel-size", True),
        ("sglang-0.5.9", "disable-radix", "disable-radix-cache", True),
        ("sglang-0.5.9", "context", "context-length", True),
    ],
)
def test_a_stacks_name_of_a_flag_is_the_parsers(
    release: str, written: str, name: str, *, positive: bool, catalog: Catalog
) -> None:
    named = flag_named(written, catalog.flags(release))
    assert (named.whole, named.positive) == (name, positive)


def test_sglang_takes_no_underscore_for_a_dash(catalog: Catalog) -> None:
    parsed = parse_flags(["--mem_fraction_static", "0.8"], catalog.flags("sglang-0.5.9"))
    assert [word for word, _ in parsed.rejected] == ["--mem_fraction_static"]
