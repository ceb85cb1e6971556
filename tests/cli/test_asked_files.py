"""What commands write: below the named folder or nowhere, whole or not at all, and never over what they read."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from infra.errors import StackError
from infra.spec.load import PROJECT
from infra.tasks.asked_files import refuse_over_inputs, write_asked
from infra.tasks.rendered_folder import write_below
from tests.fab_process import run_fab

SERVE = (
    "docker run --net=host vllm/vllm-openai:v0.22.1 moonshotai/Kimi-K2.5 --tensor-parallel-size 8\n"
)


@pytest.mark.parametrize("name", ["../x", "/etc/x", "a/../../x", "a//b", "", ".", "a\0b", "a/."])
def test_a_name_that_leads_out_of_the_folder_writes_nothing(name: str, tmp_path: Path) -> None:
    with pytest.raises(StackError, match="no path below"):
        write_below(tmp_path / "out", {"first": "1", name: "2"})
    assert not (tmp_path / "out").exists()


def test_a_link_in_the_folder_is_not_followed(tmp_path: Path) -> None:
    out, elsewhere = tmp_path / "out", tmp_path / "elsewhere"
    (out / "host").mkdir(parents=True)
    elsewhere.mkdir()
    (out / "host" / "etc").symlink_to(elsewhere)
    with pytest.raises(StackError, match="it is a link, or no folder"):
        write_below(out, {"host/etc/x": "2"})
    assert list(elsewhere.iterdir()) == []


def test_a_link_in_the_place_of_a_file_is_replaced(tmp_path: Path) -> None:
    out, victim = tmp_path / "out", tmp_path / "victim"
    out.mkdir()
    victim.write_text("as it was")
    for name, link in (("x", victim), ("launch", tmp_path / "none")):
        (out / name).symlink_to(link)
        write_below(out, {name: "new"})
        assert not (out / name).is_symlink()
        assert (out / name).read_text() == "new"
    assert victim.read_text() == "as it was"
    assert os.access(out / "launch", os.X_OK)
    assert sorted(path.name for path in out.iterdir()) == ["launch", "x"]


def test_the_named_folder_may_be_a_link_and_a_file_may_not(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    write_below(tmp_path / "link", {"a/b": "1"})
    assert (tmp_path / "real" / "a" / "b").read_text() == "1"
    (tmp_path / "file").write_text("")
    with pytest.raises(StackError, match="file"):
        write_below(tmp_path / "file", {"a": "1"})


def test_a_text_that_cannot_be_written_leaves_nothing_beside(tmp_path: Path) -> None:
    with pytest.raises(StackError, match="no file can"):
        write_below(tmp_path, {"a": "\ud800"})
    assert list(tmp_path.iterdir()) == []


def test_all_files_are_written_or_none(tmp_path: Path) -> None:
    (tmp_path / "kept").write_text("old")
    (tmp_path / "file").write_text("old")
    with pytest.raises(StackError, match="no folder"):
        write_below(tmp_path, {"kept": "new", "made/deep/x": "new", "file/x": "new"})
    assert sorted(each.name for each in tmp_path.iterdir()) == ["file", "kept"]
    assert (tmp_path / "kept").read_text() == "old"
    (tmp_path / "folder").mkdir()
    with pytest.raises(StackError, match="Is a directory"):
        write_below(tmp_path, {"kept": "new", "folder": "new"})
    assert (tmp_path / "kept").read_text() == "old"
    write_below(tmp_path, {"kept": "new", "made/deep/x": "new"})
    assert (tmp_path / "made" / "deep" / "x").read_text() == "new"
    assert (tmp_path / "kept").read_text() == "new"


def test_an_output_is_no_input_under_another_name(tmp_path: Path) -> None:
    read = tmp_path / "in.sh"
    read.write_text(SERVE)
    (tmp_path / "soft").symlink_to(read)
    (tmp_path / "hard").hardlink_to(read)
    for name in ("in.sh", "soft", "hard", "../" + tmp_path.name + "/in.sh"):
        with pytest.raises(StackError, match="The command reads that file"):
            refuse_over_inputs({"--to-plan": str(tmp_path / name)}, (read,))
    with pytest.raises(StackError, match="--to-plan writes that file"):
        refuse_over_inputs(
            {"--to-plan": str(tmp_path / "x"), "--to-stack": str(tmp_path / "x")}, (read,)
        )
    refuse_over_inputs(
        {"--to-plan": str(tmp_path / "x"), "--report": None}, (read, tmp_path / "none")
    )


def test_what_was_asked_for_is_written_whole(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    path.write_text("as it was")
    path.chmod(0o600)
    write_asked("--to-plan", str(path), "new")
    assert (path.read_text(), path.stat().st_mode & 0o777) == ("new\n", 0o600)
    with pytest.raises(StackError, match="--to-plan"):
        write_asked("--to-plan", str(tmp_path / "none" / "x"), "new")
    with pytest.raises(StackError, match="--to-plan"):
        write_asked("--to-plan", "a\0b", "new")
    assert [each.name for each in tmp_path.iterdir()] == ["plan.json"]


def test_import_writes_over_nothing_that_it_reads(tmp_path: Path) -> None:
    recipe = tmp_path / "serve.sh"
    recipe.write_text(SERVE)
    (tmp_path / "hard.json").hardlink_to(recipe)
    for option, file in (
        ("--to-plan", recipe),
        ("--to-plan", tmp_path / "hard.json"),
        ("--to-stack", recipe),
    ):
        done = run_fab("import", str(recipe), option, str(file))
        assert (done.returncode, "Traceback" in done.stderr) == (2, False)
        assert recipe.read_text() == SERVE
    done = run_fab("import", str(tmp_path), "--report", str(recipe))
    assert done.returncode == 2
    assert recipe.read_text() == SERVE


@pytest.mark.parametrize(
    ("text", "engine"),
    [
        ("vllm serve moonshotai/Kimi-K2.5", "sglang:0.5.9"),
        ("python3 -m sglang.launch_server --model-path moonshotai/Kimi-K2.5", "vllm:0.22.1"),
        ("python3 -m sglang.launch_server --model-path moonshotai/Kimi-K2.5", "vllm-ascend"),
        ("vllm serve moonshotai/Kimi-K2.5", "vlm"),
        ("vllm serve moonshotai/Kimi-K2.5", "vllm:99.9.9"),
        ("vllm serve moonshotai/Kimi-K2.5", "vllm:0.22.1/.."),
        ("vllm serve moonshotai/Kimi-K2.5", "vllm:\x1b[2J"),
    ],
)
def test_an_engine_that_cannot_be_the_files_is_an_error_and_no_traceback(
    text: str, engine: str, tmp_path: Path
) -> None:
    recipe = tmp_path / "serve.sh"
    recipe.write_text(text + "\n")
    done = run_fab("import", str(recipe), "--engine", engine, "--json")
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    document = json.loads(done.stdout)
    assert "--engine" in json.dumps(document)
    assert "\x1b" not in done.stderr


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("processes", 0, "env"), {"A=1; id > /etc/x; B": "1"}),
        (("engine", "image"), "--privileged"),
        (("hosts", 0, "name"), "../../etc"),
        (("processes", 0, "mounts"), [{"source": "/", "target": "/host", "read_only": False}]),
        (("weights", "path"), "/var/run/.."),
        (("weights", "path"), "/var/run"),
    ],
)
def test_a_hostile_plan_is_neither_checked_nor_rendered_nor_rehearsed(
    path: tuple[str | int, ...], value: object, tmp_path: Path
) -> None:
    document: Any = json.loads(run_fab("plan", "--stack", "h200-tp8", "--json").stdout)
    row = document
    for part in path[:-1]:
        row = row[part]
    row[path[-1]] = value
    file, out = tmp_path / "plan.json", tmp_path / "out"
    file.write_text(json.dumps(document))
    for words in (("check",), ("render", "--to", str(out)), ("rehearse", "--to-step", "plan")):
        done = run_fab(words[0], "--plan", str(file), *words[1:], "--json")
        assert (done.returncode, "Traceback" in done.stderr) == (2, False), done.stderr
        assert json.loads(done.stdout)["ok"] is False
    assert not out.exists()


@pytest.mark.parametrize(
    ("case", "told", "rules"),
    [
        ("compose.yaml", (), ["plan-value", "plan-value", "host-mount"]),
        (
            "slurm.yaml",
            ("--accelerator", "h200", "--engine", "vllm:0.22.1", "--checkpoint", "kimi-k2.5-int4"),
            ["plan-value"],
        ),
    ],
)
def test_an_attack_leaves_no_plan_behind(
    case: str, told: tuple[str, ...], rules: list[str], tmp_path: Path
) -> None:
    plan = tmp_path / "plan.json"
    file = str(PROJECT / "tests" / "cases" / "hostile" / case)
    done = run_fab("import", file, *told, "--to-plan", str(plan), "--json")
    assert done.returncode == 2
    problems = json.loads(done.stdout)["problems"]
    assert [problem["rule"] for problem in problems] == rules
    assert all(problem["line"] for problem in problems)
    assert not plan.exists()
