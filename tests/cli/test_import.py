"""`fab import` as an operator types it: documents, exit codes, files that it writes."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.cli.commands import FAB, run

GOOD = "docker run --net=host --ipc=host vllm/vllm-openai:v0.22.1 moonshotai/Kimi-K2.5 --tensor-parallel-size 8\n"
BAD = GOOD.replace(" 8\n", " 3\n")
KEYS = {
    "schema_version", "stack", "ok", "format", "engine", "problems", "processes", "not_understood", "assumed",
    "not_judged",
}  # fmt: skip


def write(folder: Path, name: str, text: str) -> str:
    path = folder / name
    path.write_text(text)
    return str(path)


def test_a_good_recipe_leaves_with_0_and_one_document(tmp_path: Path) -> None:
    done = run(FAB, "import", write(tmp_path, "serve.sh", GOOD), "--accelerator", "h200", "--json")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document.keys() == KEYS
    assert document["ok"] is True
    assert document["stack"] == "serve"
    assert document["processes"][0]["argv"][:3] == ["vllm", "serve", "moonshotai/Kimi-K2.5"]


def test_a_broken_recipe_leaves_with_2_and_says_where(tmp_path: Path) -> None:
    path = write(tmp_path, "serve.sh", BAD)
    done = run(FAB, "import", path, "--json")
    assert done.returncode == 2
    (problem,) = [p for p in json.loads(done.stdout)["problems"] if p["severity"] == "error"]
    assert (problem["rule"], problem["file"], problem["line"]) == ("heads-divisible", path, 1)
    assert problem["field"] == "--tensor-parallel-size"


def test_people_see_processes_assumptions_and_findings(tmp_path: Path) -> None:
    done = run(FAB, "import", write(tmp_path, "serve.sh", BAD))
    assert done.returncode == 2
    for part in (
        "unified-0/0",
        "unknown accelerator",
        "assumed",
        "not judged",
        "serve.sh:1 --tensor-parallel-size",
    ):
        assert part in done.stdout
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b"\xff\xfe", "UTF-8"),
        (b"a\0b", "NUL"),
        (b"echo no", "no engine"),
        (b"x" * 1_100_000, "larger"),
    ],
)
def test_a_file_that_is_no_recipe_leaves_with_2(tmp_path: Path, data: bytes, what: str) -> None:
    (tmp_path / "x.sh").write_bytes(data)
    done = run(FAB, "import", str(tmp_path / "x.sh"), "--json")
    assert done.returncode == 2
    document = json.loads(done.stdout)
    assert document["ok"] is False
    assert what in document["problems"][0]["what"]
    assert document["processes"] == []
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "words",
    [
        ("import",),
        ("import", "/nonexistent.sh"),
        ("import", "{file}", "--engine", "tgi"),
        ("import", "{file}", "--set", "nonsense"),
        ("import", "{file}", "--report", "x.md"),
        ("import", "{file}", "--to-plan", "/nonexistent/x.json"),
        ("import", "{folder}", "--to-plan", "x.json"),
    ],
)
def test_a_wrong_command_line_leaves_with_2(tmp_path: Path, words: tuple[str, ...]) -> None:
    file = write(tmp_path, "serve.sh", GOOD)
    done = run(FAB, *(word.format(file=file, folder=tmp_path) for word in words))
    assert done.returncode == 2
    assert "Traceback" not in done.stderr


def test_a_plan_document_is_one_that_check_reads(tmp_path: Path) -> None:
    file, plan = write(tmp_path, "serve.sh", GOOD), str(tmp_path / "plan.json")
    done = run(FAB, "import", file, "--accelerator", "h200", "--to-plan", plan)
    assert done.returncode == 0, done.stderr
    assert run(FAB, "check", "--plan", plan).returncode == 0


def test_the_next_command_names_a_file_with_a_space_as_a_shell_reads_it(tmp_path: Path) -> None:
    path = write(tmp_path, "my serve.sh", GOOD)
    plan = tmp_path / "my plan.json"
    told = run(FAB, "import", path, "--accelerator", "h200").stderr
    assert f"Next: fab import '{path}' --to-plan" in told
    told = run(FAB, "import", path, "--accelerator", "h200", "--to-plan", str(plan)).stderr
    assert f"Next: fab check --plan '{plan}'" in told


def test_a_name_that_is_too_long_for_a_file_leaves_with_2() -> None:
    done = run(FAB, "import", "x" * 300)
    assert done.returncode == 2
    assert "It cannot be read: File name too long." in done.stdout


def test_variables_are_set_by_the_operator(tmp_path: Path) -> None:
    file = write(tmp_path, "serve.sh", GOOD.replace(" 8\n", " $TP\n"))
    done = run(FAB, "import", file, "--set", "TP=8", "--json")
    assert json.loads(done.stdout)["processes"][0]["argv"][-1] == "8"


def test_a_folder_with_a_file_that_cannot_be_read_leaves_with_2(tmp_path: Path) -> None:
    write(tmp_path, "good.sh", GOOD)
    (tmp_path / "odd.sh").write_bytes(b"ok\n\xff")
    os.mkfifo(tmp_path / "pipe.sh")
    done = run(FAB, "import", str(tmp_path), "--json")
    document = json.loads(done.stdout)
    assert (done.returncode, document["ok"]) == (2, False)
    (problem,) = document["problems"]
    assert (problem["rule"], problem["file"], problem["line"]) == (
        "unreadable-recipe",
        str(tmp_path / "odd.sh"),
        2,
    )
    verdicts = {row["file"]: (row["verdict"], row["errors"]) for row in document["recipes"]}
    assert verdicts == {"good.sh": ("clean", 0), "odd.sh": ("not read", 1)}


def test_a_file_that_is_not_read_is_called_as_one_that_is(tmp_path: Path) -> None:
    names = []
    for text in (GOOD, "true\n"):
        file = write(tmp_path, f"My recipe {'x' * 80}.sh", text)
        names.append(json.loads(run(FAB, "import", file, "--json").stdout)["stack"])
    assert names == [f"my-recipe-{'x' * 54}"] * 2


def test_a_folder_is_linted_into_a_table(tmp_path: Path) -> None:
    folder = tmp_path / "recipes"
    (folder / "inner").mkdir(parents=True)
    write(folder, "good.sh", GOOD)
    write(folder / "inner", "bad.sh", BAD)
    write(folder, "notes.md", "# nothing to run\n")
    (folder / "odd.sh").write_bytes(b"\xff")
    report = tmp_path / "table.md"
    done = run(FAB, "import", str(folder), "--report", str(report), "--json")
    assert done.returncode == 2
    rows = {row["file"]: row["verdict"] for row in json.loads(done.stdout)["recipes"]}
    assert rows == {"good.sh": "clean", "inner/bad.sh": "errors", "odd.sh": "not read"}
    table = report.read_text()
    assert "3 files: 1 clean, 0 warnings, 1 errors, 1 not read" in table
    assert "| inner/bad.sh |" in table


TENSORRT = """\
name: a
model: {path: "hf:nvidia/Kimi-K2.5-NVFP4", container: "x:1", precision: fp4}
resources: {gpu_type: b200, gpus_per_node: 8, agg_nodes: 1, agg_workers: 1}
backend: {type: trtllm, trtllm_config: {aggregated: {tensor_parallel_size: 8}}}
"""
SWEPT = (
    TENSORRT.replace("trtllm", "vllm")
    .replace("tensor_parallel_size: 8", 'tensor-parallel-size: "{tp}"')
    .replace("x:1", "vllm/vllm-openai:v0.22.1")
    + "sweep: {tp: [4, 8]}\n"
)


def test_a_recipe_of_an_engine_that_is_not_read_has_a_row(tmp_path: Path) -> None:
    write(tmp_path, "good.sh", GOOD)
    write(tmp_path, "slurm.yaml", TENSORRT)
    write(tmp_path, "serve.sh", "trtllm-serve nvidia/Kimi-K2.5-NVFP4 --tp_size 8\n")
    write(tmp_path, "other.yaml", "services: {a: {image: x, command: llama-server -m a}}\n")
    write(tmp_path, "values.yaml", "a: 1\n")
    report = tmp_path / "table.md"
    done = run(FAB, "import", str(tmp_path), "--report", str(report))
    assert done.returncode == 0, done.stdout
    table = report.read_text()
    for name, line in (("slurm.yaml", 4), ("serve.sh", 1), ("other.yaml", 1)):
        (row,) = (row for row in table.splitlines() if row.startswith(f"| {name} |"))
        assert f"line {line}: Engine not read here: " in row
    assert "values.yaml" not in table
    assert "4 recipes, 3 not read" in done.stdout


def test_one_combination_of_a_sweep_becomes_a_plan(tmp_path: Path) -> None:
    file, plan = write(tmp_path, "slurm.yaml", SWEPT), str(tmp_path / "plan.json")
    document = json.loads(run(FAB, "import", file, "--json").stdout)
    assert (document["combination"], document["combinations"]) == ({"tp": "4"}, 2)
    done = run(FAB, "import", file, "--to-plan", plan)
    assert done.returncode == 2
    assert "The file holds 2 deployments. Choose one: --set tp=4." in done.stderr
    done = run(FAB, "import", file, "--set", "tp=8", "--to-plan", plan)
    assert done.returncode == 0, done.stderr
