"""The real `fab` with options that contradict each other, or that nothing would read: told, never passed over."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import get_args

import pytest

from infra.errors import StackError
from infra.spec.stack import RoleName
from infra.tasks.option_conflicts import NOT_BESIDE, OF_A_STACK, judge_options
from infra.tasks.options import Options
from infra.tasks.shared_options import ROLES
from infra.tasks.table import GROUPS
from tests.fab_process import run_fab

ENTRIES = {entry.name: entry for _, entries in GROUPS for entry in entries}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("check", "--plan", "p.json", "--set", "port=1"), "--set is not read beside --plan."),
        (("render", "--plan", "p.json", "--inventory", "i"), "--inventory is not read beside"),
        (("rehearse", "--list", "--stop", "abc"), "--stop is not read beside --list."),
        (("rehearse", "--stop", "abc", "--keep"), "--keep is not read beside --stop."),
        (("engines", "--set", "port=1"), "--set is about a stack, and none is named."),
        (("logs", "--stack", "h200-tp8", "--role", "decoder"), "Use unified, prefill, decode, rou"),
        (("restart", "--stack", "h200-tp8", "--role", "router"), "Use unified, prefill, decode."),
        (
            ("down", "--stack", "h200-tp8", "--force", "lock"),
            "'lock' is none of its values. Use lease.",
        ),
        (("preflight", "--stack", "h200-tp8", "--join", "soon"), "'soon' is not a number"),
        (("logs", "--stack", "h200-tp8", "--lines", "1.5"), "'1.5' is not a whole number."),
        (("check", "--stack", "a", "--file", "b"), "Leave one of them out."),
        (("-H", "a", "tune-hosts", "--hosts", "b"), "-H and --hosts both name hosts."),
        (
            ("check", "--stack", "h200-tp8", "--", "ls"),
            "No task runs commands, and there is one behind --: ls",
        ),
        (("-H", "127.0.0.1:9", "--", "true"), "Type `ssh HOST COMMAND`."),
        (("-f", "/nowhere", "stacks"), "--config is Fabric's"),
        (("-H",), "-H needs a value."),
        (("-T", "soon", "stacks"), "A value is none that its option takes"),
        (("-c", "elsewhere", "stacks"), "fab has no option -c."),
    ],
)
def test_what_contradicts_itself_or_is_not_read_leaves_with_two(
    words: tuple[str, ...], said: str
) -> None:
    done = run_fab(*words)
    assert done.returncode == 2, done.stderr
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_a_failure_of_two_options_is_a_document_where_one_is_asked_for() -> None:
    done = run_fab("check", "--plan", "p.json", "--set", "port=1", "--json")
    (error,) = json.loads(done.stdout)["errors"]
    assert error["where"] == "command line"


def test_a_plan_is_taken_whatever_stack_is_named_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    path.write_text(run_fab("plan", "--stack", "h200-tp8", "--json").stdout)
    done = run_fab("check", "--plan", str(path), "--stack", "a3-2p1d", "--json")
    assert (done.returncode, json.loads(done.stdout)["stack"]) == (0, "h200-tp8")


@pytest.mark.parametrize(
    ("words", "code"), [(("stacks",), 0), (("-H", "127.0.0.1:9", "tune-hosts"), 4)]
)
def test_a_home_that_is_no_folder_is_missed_by_nothing(words: tuple[str, ...], code: int) -> None:
    done = run_fab(*words, environment={**os.environ, "HOME": "/dev/null"})
    assert (done.returncode, "Traceback" in done.stderr) == (code, False)


def test_whoever_names_hosts_himself_is_told_nothing_of_an_inventory() -> None:
    done = run_fab("-H", f"{'x' * 70}.example.com", "tune-hosts", "--check")
    assert done.returncode == 4
    assert "Correct the name in -H, or the name service." in done.stderr


@pytest.mark.parametrize("task", sorted({*NOT_BESIDE, *OF_A_STACK}))
def test_every_option_that_is_judged_is_one_of_the_task(task: str) -> None:
    named = {*NOT_BESIDE.get(task, {}), *OF_A_STACK.get(task, ())}
    named |= {other for others in NOT_BESIDE.get(task, {}).values() for other in others}
    assert named <= {option.name for option in ENTRIES[task].options}


def test_roles_are_those_of_stacks() -> None:
    assert set(ROLES) == set(get_args(RoleName))


def test_a_value_of_the_set_is_let_through() -> None:
    judge_options(ENTRIES["logs"], Options({"role": "router"}))
    with pytest.raises(StackError, match="'Router' is none of its values"):
        judge_options(ENTRIES["logs"], Options({"role": "Router"}))


@pytest.mark.parametrize(
    ("stack", "until", "said"),
    [
        ("gb200-2p1d", "2020-01-01T00:00:00Z", "2020-01-01T00:00:00Z is over."),
        ("mi300x-tp8", "2099-01-01T00:00:00Z", "come from no reservation"),
    ],
)
def test_the_end_of_no_reservation_is_refused(stack: str, until: str, said: str) -> None:
    done = run_fab("estimate", "--stack", stack, "--until", until)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr
