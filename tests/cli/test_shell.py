"""What a shell gets: the tasks where none is typed, completions, and a stack of its own."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from infra.catalog.load import Catalog
from infra.checks.rules import RULES
from infra.spec.stack_files import stack_names
from infra.tasks.command_words import ENTRIES
from infra.tasks.completing import candidates
from infra.tasks.default_stack import with_default_stack
from infra.tasks.options import Options
from tests.fab_process import FAB, run_fab


@pytest.mark.parametrize("words", [(), ("--help",), ("-h",)])
def test_without_a_task_all_tasks_are_listed(words: tuple[str, ...]) -> None:
    done = run_fab(*words)
    assert done.returncode == 0
    for entry in ENTRIES.values():
        assert f"  {entry.name} " in done.stdout
        assert entry.help in done.stdout
    assert "MOE_STACK" in done.stdout
    assert "--print-completion-script" in done.stdout


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("fab", set(ENTRIES)),
        ("fab che", {"check"}),
        ("fab plan --stack", set(stack_names())),
        ("fab plan --stack gb", {"gb200-2p1d"}),
        ("fab plan --stack=gb", {"gb200-2p1d"}),
        ("fab plan --st", {"--stack", "--set"}),
        ("fab import x.sh --accelerator", set(Catalog().ids("accelerators"))),
        ("fab import x.sh --checkpoint kimi", {"kimi-k2.5-int4"}),
        ("fab import x.sh --engine vllm", {"vllm:0.22.1", "vllm-ascend:0.22.1rc1"}),
        ("fab engines --diff vllm:0.17.0", {"vllm:0.22.1"}),
        ("fab check --explain", set(RULES)),
        ("fab plan --stack gb200-2p1d --set", {"checkpoint=", "accelerator="}),
        ("fab plan --set checkpoint=ki", {"checkpoint=kimi-k2.5-int4"}),
        ("fab plan --set checkpoint = ki", {"kimi-k2.5-int4"}),
        ("fab plan --set accelerator =", {"h200", "gb200"}),
        ("fab restart --stack gb200-2p1d --role", {"prefill", "decode"}),
        ("fab tune-hosts --allow", {"drain", "reboot"}),
        ("fab rehearse --to-step", {"check", "verify"}),
        ("fab -H a tune-hosts --profile", set(Catalog().ids("tuning"))),
    ],
)
def test_a_shell_is_offered_what_may_come(line: str, offered: set[str]) -> None:
    assert offered <= set(candidates(line))


@pytest.mark.parametrize(
    ("line", "not_offered"),
    [
        ("fab plan --stack gb200-2p1d --file", "gb200-2p1d"),
        ("fab plan --stack gb200-2p1d --json", "gb200-2p1d"),
        ("fab status --inventory", "h200-tp8"),
        ('fab check "half', "check"),
    ],
)
def test_nothing_is_offered_where_a_file_belongs(line: str, not_offered: str) -> None:
    assert not_offered not in candidates(line)


def test_the_shells_script_asks_and_takes_what_is_offered() -> None:
    script = (
        f'source <({FAB} --print-completion-script bash); fab() {{ "{FAB}" "$@"; }}; '
        "COMP_WORDS=(fab plan --stack gb200-2); COMP_CWORD=3; _complete_fab fab gb200-2 --stack; "
        'echo "${COMPREPLY[@]}"'
    )
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["gb200-2p1d"]


def chosen(
    task: str, environment: dict[str, str], **given: object
) -> tuple[dict[str, object], str]:
    options, told = with_default_stack(ENTRIES[task], Options(given), environment)
    return {key: value for key, value in options.given.items() if value}, told


BOTH = {"MOE_STACK": "/srv/mine.yaml", "MOE_INVENTORY": "/srv/hosts.yml"}


def test_the_shells_stack_and_inventory_are_taken_and_said() -> None:
    given, told = chosen("status", BOTH)
    assert given == {"file": "/srv/mine.yaml", "inventory": "/srv/hosts.yml"}
    assert told == "MOE_STACK: /srv/mine.yaml, MOE_INVENTORY: /srv/hosts.yml"
    assert chosen("plan", {"MOE_STACK": "h200-tp8"}) == (
        {"stack": "h200-tp8"},
        "MOE_STACK: h200-tp8",
    )


@pytest.mark.parametrize(
    ("task", "given"),
    [
        ("status", {"stack": "h200-tp8"}),
        ("down", {"file": "x.yaml"}),
        ("check", {"plan": "p.json"}),
        ("check", {"explain": "tp-divides-heads"}),
        ("render", {"plan": "p.json"}),
        ("rehearse", {"plan": "p.json"}),
        ("rehearse", {"list": True}),
        ("rehearse", {"stop": "lab-1"}),
        ("tune-hosts", {"hosts": "a,b"}),
        ("engines", {}),
        ("stacks", {}),
        ("import", {"file": "x.sh"}),
    ],
)
def test_what_is_typed_wins_over_both_variables(task: str, given: dict[str, object]) -> None:
    assert chosen(task, BOTH, **given) == (given, "")


def test_an_inventory_that_is_typed_wins_and_one_alone_says_nothing() -> None:
    given, told = chosen("status", BOTH, inventory="other.yml")
    assert given == {"file": "/srv/mine.yaml", "inventory": "other.yml"}
    assert told == "MOE_STACK: /srv/mine.yaml"
    assert chosen("status", {"MOE_INVENTORY": "hosts.yml"}) == ({}, "")
    assert chosen("plan", BOTH, explain=True)[0]["file"] == "/srv/mine.yaml"
    assert chosen("stage-weights", BOTH, stop=True)[0]["file"] == "/srv/mine.yaml"


def test_a_command_without_a_stack_works_on_the_shells(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("extends: h200-tp8\n")
    done = run_fab("check", environment={**os.environ, "MOE_STACK": str(file)})
    assert done.returncode == 0, done.stderr
    assert f"MOE_STACK: {file}" in done.stderr
    assert f"Next: fab plan --file {file}" in done.stderr


@pytest.mark.parametrize("task", ["up", "down", "restart"])
def test_groups_have_no_limit_of_hosts(task: str) -> None:
    done = run_fab(task, "--stack", "h200-tp8", "--limit", "unified-0")
    assert done.returncode == 2
    assert f"{task} has no option --limit. Groups span hosts" in done.stderr
    assert "`fab restart --stack NAME --role ROLE --replica N`" in done.stderr
