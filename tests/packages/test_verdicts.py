"""How released packages are asked: which commands, in what environment, and what is written down."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
import zipfile
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from infra.catalog.load import Catalog
from infra.errors import StackError
from infra.packages.verdicts.__main__ import deciding_files, main
from infra.packages.verdicts.asking import Verdict, answers_file, ask
from infra.packages.verdicts.checkpoints import checkpoint_files, write_checkpoints
from infra.packages.verdicts.interview import words_of
from infra.packages.verdicts.questions import (
    Question,
    broken_questions,
    compiled_plans,
    named_checkpoints,
    sample,
    shipped_questions,
    stack_files,
)
from infra.packages.verdicts.records import read_record, record_of, record_text
from infra.packages.verdicts.scratch import (
    Scratch,
    built_on,
    prepare,
    requirements_of,
    unpack,
)
from infra.spec.load import PROJECT

# What a process does that is asked by nobody: it ends before its command has come to an end.
ENDS_AT_ONCE = """
import json, os, sys
from infra.packages.verdicts.interview import AllAsked, Interview
try:
    Interview(json.loads(sys.argv[1])).next_command()
except AllAsked:
    sys.exit()
print("Killed", flush=True)
os._exit(9)
"""


@pytest.fixture(scope="module")
def broken(catalog: Catalog) -> list[Question]:
    plans = compiled_plans(catalog)
    return [
        question for stack, plan in plans for question in broken_questions(stack, plan, catalog)
    ]


def question(argv: tuple[str, ...], change: str = "") -> Question:
    return Question(
        package="vllm-router",
        version="0.1.17",
        stack="s",
        process="p/router",
        change=change,
        subject="",
        kind="",
        argv=argv,
        env={"RUST_LOG": "info"},
        accelerator="h200",
        num_devices=8,
        weights_path="/models",
    )


def test_every_process_of_every_stack_is_asked_about_but_programs_that_are_in_no_package(
    catalog: Catalog,
) -> None:
    left_out: Counter[str] = Counter()
    for stack, plan in compiled_plans(catalog):
        asked = {question.process for question in shipped_questions(stack, plan, catalog)}
        left_out.update(
            Path(process.argv[1]).name
            for process in plan.processes
            if process.id not in asked and process.kind != "edge"  # HAProxy is of the distribution
        )
    # a program of an image, and an engine that runs for real in the rehearsal of cpu-1p1d
    assert set(left_out) == {"load_balance_proxy_server_example.py", "serve"}
    assert len(stack_files()) > 40


def test_the_sample_is_the_same_in_every_order_and_has_every_flag_damaged_in_every_way(
    broken: list[Question],
) -> None:
    chosen = sample(broken)
    assert sample(reversed(broken)) == chosen
    assert {(q.release, q.subject, q.kind) for q in chosen} == {
        (q.release, q.subject, q.kind) for q in broken
    }
    assert min(Counter(q.package for q in chosen).values()) > 40


def test_a_verdict_is_about_one_command_on_one_host(broken: list[Question]) -> None:
    one = question(("vllm-router", "--port", "8000"))
    others = [question(("vllm-router", "--port", "8001")), question(one.argv, "--port")]
    assert one.digest != others[0].digest
    assert one.digest == others[1].digest
    assert len({q.key for q in broken if q.release == "vllm-0.22.1"}) == sum(
        1 for q in broken if q.release == "vllm-0.22.1"
    )


def test_a_checkpoints_folder_holds_what_configuration_code_reads(catalog: Catalog) -> None:
    files = checkpoint_files(catalog.checkpoint("kimi-k2.5-nvfp4"))
    config = json.loads(files["config.json"])
    assert config["text_config"]["num_attention_heads"] == 64
    assert config["quantization_config"]["quant_algo"] == "NVFP4"
    assert config["text_config"]["rope_scaling"]["type"] == "yarn"
    assert "configuration_deepseek.py" in checkpoint_files(catalog.checkpoint("kimi-k2-thinking"))


def test_a_model_without_a_shape_is_not_taken_for_a_draft(catalog: Catalog, tmp_path: Path) -> None:
    with pytest.raises(StackError, match="tiny-qwen3-moe: The catalogue has no `shape`"):
        write_checkpoints(tmp_path, ("tiny-qwen3-moe",), catalog)
    assert (
        "LlamaForCausalLMEagle3"
        in (checkpoint_files(catalog.checkpoint("kimi-k2.5-eagle3"))["config.json"])
    )


def test_the_checkpoints_that_commands_name_can_be_written(
    broken: list[Question], catalog: Catalog, tmp_path: Path
) -> None:
    names = named_checkpoints(broken, catalog)
    write_checkpoints(tmp_path, names, catalog)
    assert {path.name for path in tmp_path.iterdir()} == set(names)
    assert "kimi-k2.5-eagle3" in names  # named inside a JSON value


@pytest.mark.parametrize(
    "package", ["vllm", "vllm-ascend", "sglang", "vllm-router", "sglang-router"]
)
def test_answers_are_kept_as_long_as_every_module_that_decides_them_is_as_it_was(
    package: str,
) -> None:
    files = set(deciding_files(package))
    assert all(path.is_file() for path in files)
    others = {  # they decide what is asked, not what is answered; and what speaks for other packages
        *("fetch", "questions", "in_vllm", "in_sglang", "in_routers"),
    }
    for path in sorted(files):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            module = getattr(node, "module", None) or ""
            if module.startswith("infra.packages.") and module != "infra.packages.verdicts":
                imported = PROJECT / f"{module.replace('.', '/')}.py"
                assert imported in files or imported.stem in others, (path.name, module)


def test_a_process_that_ends_without_an_answer_has_refused_nothing(tmp_path: Path) -> None:
    answers = answers_file(tmp_path, "vllm-router-0.1.17")
    document = {
        "questions": [{"digest": "d", "argv": ["a"], "env": {}}],
        "answers": str(answers),
        "models": str(tmp_path / "models"),
        "weights_path": "/models",
    }
    words = [sys.executable, "-c", ENDS_AT_ONCE, json.dumps(document)]
    subprocess.run(words, cwd=PROJECT, check=True, capture_output=True)
    (row,) = map(json.loads, answers.read_text().splitlines())
    verdict = Verdict(level=row["level"], says=row["says"])
    assert verdict == Verdict(level="not answered", says="ended without an answer: Killed")
    assert (verdict.is_answered, verdict.is_accepted, verdict.is_refused) == (False, False, False)


def test_an_error_that_says_nothing_is_taken_down_with_the_statement_that_failed(
    tmp_path: Path,
) -> None:
    source = tmp_path / "arguments.py"
    source.write_text(
        "def check(size):\n"
        "    assert size > 1\n"
        "def compare(size):\n    return size > 1\n"
        "def refuse(size):\n    raise TypeError('--size is needed')\n"
        "def explain(size):\n    assert size, 'size is none'\n"
    )
    code: dict[str, Any] = {}
    exec(compile(source.read_text(), str(source), "exec"), code)  # noqa: S102 - what stands above
    said = {}
    for name, size in (("check", 1), ("compare", None), ("refuse", 1), ("explain", None)):
        try:
            code[name](size)
        except (AssertionError, TypeError) as error:
            said[name] = words_of(error)
    assert "size > 1" in said.pop("check")  # Pythons differ in where they see an assertion fail
    assert said == {
        "compare": "'>' not supported between instances of 'NoneType' and 'int' [return size > 1]",
        "refuse": "--size is needed",
        "explain": "size is none",
    }


def test_a_plugin_is_asked_in_the_environment_of_what_it_sits_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("vllm-1", "plugin-2"):
        wheel = tmp_path / name / "wheel" / f"{name}-py3-none-any.whl"
        wheel.parent.mkdir(parents=True)
        with zipfile.ZipFile(wheel, "w") as archive:
            archive.writestr(
                zipfile.ZipInfo(f"{name}.dist-info/METADATA", (2026, 6, 4, 0, 0, 0)), ""
            )
    installed = tmp_path / "python"
    monkeypatch.setattr("infra.packages.verdicts.scratch._environment", lambda *_: installed)
    scratch = prepare("plugin", "2", tmp_path, lambda _: None, ("vllm", "1"))
    assert scratch.python == installed
    assert scratch.folders == (tmp_path / "plugin-2" / "package", tmp_path / "vllm-1" / "package")
    assert set(scratch.wheels) == {"vllm-1-py3-none-any.whl", "plugin-2-py3-none-any.whl"}


@pytest.mark.slow
def test_the_routers_own_parser_and_constructor_answer(catalog: Catalog, tmp_path: Path) -> None:
    scratch = Scratch(python=Path(sys.executable), folders=(), wheels={})
    urls = ("--worker-urls", "http://192.0.2.1:8000")
    commands = {
        "accepted": ("vllm-router", "--policy", "round_robin", *urls),
        "no such policy": ("vllm-router", "--policy", "none-such", *urls),
        "no decode": (
            "vllm-router",
            "--vllm-pd-disaggregation",
            "--prefill",
            "http://192.0.2.1:8000",
        ),
    }
    questions = [question(argv, change) for change, argv in commands.items()]
    silent = {"digest": questions[0].digest, "level": "not answered", "says": "no answer"}
    answers = answers_file(tmp_path, "vllm-router-0.1.17")
    answers.write_text(json.dumps(silent) + "\n")  # it is asked once more
    said: list[str] = []
    verdicts = ask(scratch, questions, catalog, tmp_path, said.append)
    accepted, policy, decode = (verdicts[each.digest] for each in questions)
    assert accepted == Verdict(level="config", says="")
    assert policy.level == "parse"
    assert "argument --policy: invalid choice: 'none-such'" in policy.says
    assert decode == Verdict(
        level="config", says="ValueError: PD disaggregation mode requires --decode"
    )
    assert said == ["vllm-router-0.1.17 on h200: 3 commands", "  asked 3 of 3"]
    assert ask(scratch, questions, catalog, tmp_path, said.append) == verdicts
    assert len(said) == 2  # nothing was asked again


@pytest.mark.slow
def test_what_a_release_leaves_in_its_temporary_folder_goes(
    catalog: Catalog, tmp_path: Path
) -> None:
    package, told = tmp_path / "package", tmp_path / "told"
    package.mkdir()
    (package / "sitecustomize.py").write_text(
        f"import tempfile\nopen({str(told)!r}, 'w').write(tempfile.mkstemp()[1])\n"
    )
    scratch = Scratch(python=Path(sys.executable), folders=(package,), wheels={})
    argv = ("vllm-router", "--worker-urls", "http://192.0.2.1:8000")
    (verdict,) = ask(scratch, [question(argv)], catalog, tmp_path, lambda _: None).values()
    assert verdict.is_accepted
    left = Path(told.read_text())
    assert left.name.startswith("tmp")
    assert not left.exists()


def test_a_record_is_the_same_bytes_for_the_same_answers_and_reads_back(tmp_path: Path) -> None:
    asked = [question(("b",), "--b"), question(("a",))]
    verdicts = {
        asked[0].digest: Verdict(level="parse", says='error: "b" → nothing'),
        asked[1].digest: Verdict(level="config", says=""),
    }
    record = record_of("vllm-router-0.1.17", {"b.whl": "1", "a.whl": "2"}, asked, verdicts)
    text = record_text(record)
    assert text == record_text(
        record_of("vllm-router-0.1.17", {"a.whl": "2", "b.whl": "1"}, asked[::-1], verdicts)
    )
    path = tmp_path / "vllm-router-0.1.17.json"
    path.write_text(text)
    read = read_record(path)
    assert read == record
    assert [row.change for row in read.shipped] == [""]
    assert [row.verdict.is_accepted for row in read.broken] == [False]


def test_what_a_wheel_needs_is_read_without_its_extras_and_unpacked_without_what_is_compiled(
    tmp_path: Path,
) -> None:
    wheel = tmp_path / "e-1-py3-none-any.whl"
    metadata = "Name: e\nRequires-Dist: torch==2.11.0\nRequires-Dist: ray ; extra == 'ray'\n\nRequires-Dist: x\n"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr(zipfile.ZipInfo("e/a.py", (2026, 6, 4, 12, 0, 0)), "")
        for name, text in (
            ("e/configs/a.json", "{}"),
            ("e/_C.abi3.so", "compiled"),
            ("e-1.dist-info/METADATA", metadata),
        ):
            archive.writestr(zipfile.ZipInfo(name, (2026, 6, 3, 12, 0, 0)), text)
    folder = unpack(wheel, tmp_path / "package")
    assert sorted(path.name for path in folder.rglob("*") if path.is_file()) == [
        "METADATA",
        "a.json",
        "a.py",
    ]
    assert requirements_of(folder) == ("torch==2.11.0",)
    assert built_on(wheel) == "2026-06-04"


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (["--release", "vllm-9"], "No stack pins vllm-9"),
        (["--stack", "none-such"], "There is no such stack"),
    ],
)
def test_what_is_not_pinned_is_named_before_anything_is_downloaded(
    words: list[str], what: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*words, "--into", str(tmp_path)]) == 2
    assert what in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
