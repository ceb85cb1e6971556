from __future__ import annotations

import json
import zipfile
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from infra.catalog.packages import read_package
from infra.errors import StackError
from infra.packages.__main__ import dump_text, main
from infra.packages.fetch import fetch
from tests.packages.synthetic import write_package


@cache
def text_of(package: str) -> str:
    """The catalogue of a package as it is: several tests look at it, and a process of its own reads it."""
    with TemporaryDirectory() as folder:
        return dump_text(package, "1.2.3", (write_package(package, Path(folder)),))


def dumped(package: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(text_of(package))
    return document


def dump_changed(folder: Path, server: str) -> None:
    """Read an SGLang whose server arguments are these."""
    changed = write_package("sglang", folder, {"sglang/srt/server_args.py": server})
    dump_text("sglang", "1.2.3", (changed,))


def flags(document: dict[str, Any], command: str) -> dict[str, Any]:
    return {row.pop("name"): row for row in document["commands"][command]}


def test_vllms_own_parser_is_read_without_what_it_imports() -> None:
    document = dumped("vllm")
    assert (document["package"], document["version"]) == ("vllm", "1.2.3")
    assert flags(document, "vllm serve") == {
        "--enforce-eager": {
            "options": ["--enforce-eager", "--no-enforce-eager"],
            "type": "bool",
            "action": "BooleanOptionalAction",
            "nargs": 0,
            "default": False,
        },
        "--eplb-config": {
            "type": "parse_dataclass",
            "default": "EPLBConfig()",
            "kinds": ["class:EPLBConfig"],
        },
        "--headless": {"type": "bool", "action": "_StoreTrueAction", "nargs": 0, "default": False},
        "--host": {"type": "str"},
        "--max-model-len": {"type": "human_readable_int"},
        "--quantization": {
            "options": ["--quantization", "-q"],
            "type": "_optional_type",
            "kinds": ["literal:awq", "literal:fp8", "str", "none"],
        },
        "--speculative-config": {"type": "loads", "kinds": ["dict", "none"]},
        "--tensor-parallel-size": {
            "options": ["--tensor-parallel-size", "-tp"],
            "type": "int",
            "default": 1,
        },
        "model_tag": {"type": "str", "nargs": "?"},
    }
    assert document["commands"]["vllm bench serve"] == [
        {"name": "--request-id-prefix", "type": "str", "default": "bench-00000000-"}
    ]


def test_vllms_classes_names_models_and_variables_are_read() -> None:
    document = dumped("vllm")
    assert document["classes"] == {
        "EPLBConfig": {
            "policy": {"kinds": ["literal:default", "literal:other"], "default": "default"},
            "window_size": {"kinds": ["int"], "default": 1000},
        },
        "SpeculativeConfig": {"num_speculative_tokens": {"kinds": ["int"]}},
    }
    assert document["names"] == {
        "kv_connectors": ["NixlConnector"],
        "reasoning_parsers": ["kimi_k2"],
        "tool_call_parsers": ["hermes", "kimi_k2"],
    }
    place = "vllm.v1.attention.backends"
    assert document["attention_backends"] == {
        "CUSTOM": {"class": None, "platforms": []},
        "DEVICE": {
            "class": f"{place}.flashmla.DeviceBackend",
            "platforms": [],
            "is_mla": False,
            "block_sizes": [32, 64],
        },
        "FLASHMLA": {
            "class": f"{place}.flashmla.Backend",
            "platforms": ["cuda"],
            "is_mla": True,
            "capabilities": ["9.0", "10.0", "10.3"],
            "kv_cache_dtypes": ["auto", "fp8"],
            "impl": "FlashImpl",
        },
        "TORCH_SDPA": {"class": "", "platforms": []},
        "TRITON_MLA": {
            "class": f"{place}.triton.Backend",
            "platforms": ["cuda", "rocm"],
            "is_mla": True,
            "block_sizes": [16],
            "kv_cache_dtypes": ["auto", "fp8"],
            "impl": "TritonImpl",
            "returns_lse": True,
        },
        "TRITON_MLA_SPARSE": {
            "class": f"{place}.triton.SparseBackend",
            "platforms": ["rocm"],
            "is_mla": True,
            "is_sparse": True,
            "block_sizes": [16],
            "kv_cache_dtypes": ["auto", "fp8"],
            "impl": "TritonImpl",
            "returns_lse": True,
        },
    }
    place = "vllm.v1.attention.backends.mla.prefill.two"
    assert document["mla_prefill_backends"] == {
        "CUSTOM": {"class": None, "platforms": []},
        "FLASH_ATTN": {"class": f"{place}.AnyDevice", "platforms": ["cuda", "rocm"]},
        "ROCM_AITER_FA": {"class": f"{place}.Rocm", "platforms": ["rocm"]},
        "TRTLLM_RAGGED": {
            "class": f"{place}.Blackwell",
            "platforms": ["cuda"],
            "capabilities": ["10.0", "10.3"],
        },
    }
    assert document["models"] == ["KimiK25ForConditionalGeneration"]
    assert document["variables"] == [
        {"name": "VLLM_METHOD", "choices": ["spawn", "fork"], "any_case": True},
        {"name": "VLLM_PORT", "type": "int | None", "default": "None"},
        {"name": "VLLM_PREFIX", "default": "'x'"},
        {"name": "VLLM_SECONDS", "default": "'1.0'", "reads": "float"},
        {"name": "VLLM_SWITCH", "default": "'0'", "reads": "int"},
        {"name": "VLLM_TOOLS", "choices": ["a", "b"], "separator": ","},
        {"name": "VLLM_WORDS", "default": "'0'"},
    ]


def test_sglangs_parser_models_templates_and_variables_are_read() -> None:
    document = dumped("sglang")
    assert flags(document, "python -m sglang.launch_server") == {
        "--attention-backend": {"type": "str", "choices": ["fa3", "triton"]},
        "--model-path": {"options": ["--model-path", "--model"], "type": "str", "required": True},
    }
    assert document["names"] == {
        "attention_backends": ["fa3", "triton"],
        "chat_templates": ["kimi-vl"],
        "draft_attention_backends": ["ascend", "triton"],
    }
    assert document["models"] == ["KimiK25", "Llama"]
    assert document["variables"] == [
        {"name": "SGLANG_GC_LOG"},
        {"name": "SGLANG_LOG_GC", "type": "EnvBool", "default": "False"},
        {"name": "SGLANG_TIMEOUT", "default": "'300'"},
    ]


def test_what_vllm_ascend_adds_is_read_without_running_it() -> None:
    document = dumped("vllm-ascend")
    assert document == {
        "package": "vllm-ascend",
        "version": "1.2.3",
        "names": {
            "additional_config_keys": [
                "ascend_log_path",
                "eplb_config",
                "recompute_scheduler_enable",
                "refresh",
            ],
            "kv_connectors": ["MooncakeConnectorV1"],
        },
        "models": ["DeepseekV4ForCausalLM"],
        "variables": [{"name": "VLLM_ASCEND_ENABLE_NZ", "default": "1"}],
    }


@pytest.mark.parametrize(
    ("package", "command"),
    [
        ("vllm-router", "vllm-router"),
        ("sglang-router", "python -m sglang_router.launch_router"),
    ],
)
def test_the_routers_parsers_are_read(package: str, command: str) -> None:
    assert flags(dumped(package), command) == {
        "--policy": {"type": "str", "choices": ["cache_aware", "random"], "default": "cache_aware"},
        "--prefill": {"action": "_AppendAction", "nargs": "+"},
    }


def test_two_dumps_are_equal_byte_for_byte_and_load(tmp_path: Path) -> None:
    text = text_of("vllm")
    assert dump_text("vllm", "1.2.3", (write_package("vllm", tmp_path),)) == text
    file = tmp_path / "catalogue.json"
    file.write_text(text)
    package = read_package(file)
    assert (package.package, package.version, package.command) == ("vllm", "1.2.3", "vllm serve")
    assert package.flags.by_option["--no-enforce-eager"][1] is False
    assert package.class_defaults["EPLBConfig"] == {"policy": "default", "window_size": 1000}
    assert (package.variables["VLLM_PORT"], package.variables["VLLM_PREFIX"]) == ("None", "'x'")
    assert sorted(package.variable_readers) == [
        "VLLM_METHOD",
        "VLLM_SECONDS",
        "VLLM_SWITCH",
        "VLLM_TOOLS",
    ]


def test_a_default_out_of_a_package_that_is_not_installed_is_refused(tmp_path: Path) -> None:
    server = """
        import torch
        class ServerArgs:
            @staticmethod
            def add_cli_args(parser):
                parser.add_argument("--dtype", default=torch.float16)
    """
    with pytest.raises(StackError, match="StandInSeenError"):
        dump_changed(tmp_path, server)


def test_choices_that_came_to_nothing_are_refused(tmp_path: Path) -> None:
    server = """
        import other
        class ServerArgs:
            @staticmethod
            def add_cli_args(parser):
                parser.add_argument("--mode", choices=[each for each in other.MODES])
    """
    with pytest.raises(StackError, match=r"EmptyChoicesError: --mode"):
        dump_changed(tmp_path, server)


def test_compare_says_whether_the_file_is_what_the_package_says(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, to = write_package("sglang", tmp_path / "source"), tmp_path / "to"
    to.mkdir()
    words = ["sglang", "1.2.3", "--from", str(source), "--to", str(to)]
    assert main(words) == 0
    assert main([*words, "--compare"]) == 0
    file = to / "sglang-1.2.3.json"
    file.write_text(file.read_text().replace("fa3", "fa4"))
    capsys.readouterr()
    assert main([*words, "--compare"]) == 6
    said = capsys.readouterr().err
    assert "fa4" in said
    assert "Run scripts/dump-engine-catalogue" in said


@pytest.mark.parametrize("words", [[], ["vllm"], ["vllm", "1", "--all"]])
def test_words_that_name_no_release_leave_with_2(words: list[str]) -> None:
    assert main(words) == 2


def test_an_unknown_engine_is_named_before_anything_is_downloaded(tmp_path: Path) -> None:
    with pytest.raises(StackError, match=r"no engine vlm\. Did you mean vllm"):
        fetch("vlm", "1.0", tmp_path)


@pytest.mark.slow  # two runs of pip
def test_a_wheel_is_unpacked_without_what_is_compiled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    name = wheels / "vllm_ascend-1.2.3-py3-none-any.whl"
    meta = "vllm_ascend-1.2.3.dist-info"
    with zipfile.ZipFile(name, "w") as archive:
        archive.writestr("vllm_ascend/__init__.py", "")
        archive.writestr("vllm_ascend/lib.so", "compiled")
        archive.writestr(
            f"{meta}/METADATA", "Metadata-Version: 2.1\nName: vllm-ascend\nVersion: 1.2.3\n"
        )
        archive.writestr(
            f"{meta}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(f"{meta}/RECORD", "")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheels))
    (folder,) = fetch("vllm-ascend", "1.2.3", tmp_path / "scratch")
    assert [path.name for path in folder.rglob("*") if path.is_file()] == ["__init__.py"]
    with pytest.raises(StackError, match="no wheel of vllm-router==9"):
        fetch("vllm-router", "9", tmp_path / "other")
