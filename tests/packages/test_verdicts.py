"""How released packages are asked: which commands, in what environment, and what is written down."""

from __future__ import annotations

import json
import sys
import zipfile
from collections import Counter
from pathlib import Path

import pytest

from infra.catalog.load import Catalog
from infra.packages.verdicts.__main__ import main
from infra.packages.verdicts.asking import Verdict, ask
from infra.packages.verdicts.checkpoints import checkpoint_files, write_checkpoints
from infra.packages.verdicts.questions import (
    Question,
    broken_questions,
    compiled_plans,
    sample,
    shipped_questions,
    stack_files,
)
from infra.packages.verdicts.records import read_records, record_of, record_text
from infra.packages.verdicts.scratch import Scratch, built_on, requirements_of, unpack


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
            Path(process.argv[1]).name for process in plan.processes if process.id not in asked
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


def test_a_checkpoints_folder_holds_the_published_configuration(catalog: Catalog) -> None:
    files = checkpoint_files(catalog.checkpoint("kimi-k2.5-nvfp4"))
    config = json.loads(files["config.json"])
    assert config["text_config"]["num_attention_heads"] == 64
    assert config["quantization_config"]["quant_algo"] == "NVFP4"
    assert config["text_config"]["rope_scaling"]["type"] == "yarn"
    assert "configuration_deepseek.py" in checkpoint_files(catalog.checkpoint("kimi-k2-thinking"))


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
    write_checkpoints(tmp_path / "models", catalog)
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
    (tmp_path / "vllm-router-0.1.17.json").write_text(text)
    (read,) = read_records(tmp_path)
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
