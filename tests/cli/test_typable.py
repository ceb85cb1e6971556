"""What a task tells an operator to type chooses the same stack, inventory and hosts as what the operator has typed."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from infra.inventory.hosts import InventoryHost
from infra.spec.load import PROJECT
from infra.tasks.command_words import ENTRIES
from infra.tasks.completion import Completion
from infra.tasks.options import Options
from infra.tasks.program import make_output
from infra.tasks.recorded_hosts import open_fleet
from infra.tasks.typable import completed
from tests.cli.quoted_commands import HOLE, Quoted, commands_of_code
from tests.fab_process import run_fab

GIVEN = {"stack": "mine", "inventory": "lab.yml", "set": ["port=8001"], "file": None}
SPEAKING = ("infra/launch/", "infra/remote/", "infra/tasks/")
OF_ANY_HOSTS = ("infra/tasks/fabric_program.py",)  # what it says is true of -H, too
CHOICE = "--stack mine --inventory lab.yml --set port=8001"
PLAIN = InventoryHost(
    name="decode-0",
    groups=(),
    address="192.0.2.7",
    service_address="192.0.2.7",
    port=22,
    user=None,
    private_key_file=None,
    ssh_arguments=(),
    host_key=None,
    interface="",
    rdma_devices=(),
    instance_id=None,
)  # fmt: skip


def options(**given: object) -> Options:
    return Options({**GIVEN, **given})


def printed() -> Iterator[tuple[str, Quoted]]:
    """Every command about a stack that the product can print, each with its module."""
    for path in sorted((PROJECT / "infra").rglob("*.py")):
        name, source = str(path.relative_to(PROJECT)), path.read_text(encoding="utf-8")
        if "fab" in source:  # most have no such word: their trees need not be made
            told = commands_of_code(source, name)
            yield from ((name, one) for one in told if takes_stack(one.text))


def takes_stack(text: str) -> bool:
    task = f"{text} ".split()[1]
    return task in ENTRIES and any(option.name == "stack" for option in ENTRIES[task].options)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("fab tune-hosts --stack mine", f"fab tune-hosts {CHOICE}"),
        (
            "`fab down --stack mine`, then `fab up --stack mine --replace`.",
            f"`fab down {CHOICE}`, then `fab up {CHOICE} --replace`.",
        ),
        ("fab up --stack mine. Or not.", f"fab up {CHOICE}. Or not."),
        ("fab replace-host a NEW --stack mine", f"fab replace-host a NEW {CHOICE}"),
        (f"fab logs {CHOICE} --rank decode-0/1", f"fab logs {CHOICE} --rank decode-0/1"),
        ("fab rehearse --stack mine", "fab rehearse --stack mine --set port=8001"),
        ("`fab down --stack mine-too`", "`fab down --stack mine-too`"),
        ("`fab down --stack mine.2`", "`fab down --stack mine.2`"),
        ("pulumi up --stack mine", "pulumi up --stack mine"),
        ("`fab up` is what fab down --stack other undoes", "`fab up` is what fab down --stack other undoes"),
    ],
)  # fmt: skip
def test_commands_about_the_chosen_stack_choose_it_as_it_was_chosen(text: str, told: str) -> None:
    assert completed(options(), {}, text) == told


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"stack": None, "file": "../my stacks/mine.yaml"}, "--file '../my stacks/mine.yaml'"),
        ({"stack": "./mine.yaml"}, "--stack ./mine.yaml"),
        ({"sudo-password-from": "env:WORD"}, "--stack mine"),
    ],
    ids=["file", "path", "password"],
)
def test_every_way_to_choose_a_stack_is_told_again(given: dict[str, object], words: str) -> None:
    told = completed(options(**given), {}, "fab up --stack mine")
    password = " --sudo-password-from env:WORD" if "sudo-password-from" in given else ""
    assert told == f"fab up {words} --inventory lab.yml --set port=8001{password}"


@pytest.mark.parametrize(
    "given",
    [{}, {"file": "recipe.sh"}, {"stack": None, "file": None}, {"stack": "a", "file": "a.yaml"}],
    ids=["nothing", "import", "no-stack", "both"],
)
def test_where_no_stack_was_chosen_nothing_is_put_in_its_place(given: dict[str, object]) -> None:
    assert completed(Options(given), {}, "fab up --stack recipe") == "fab up --stack recipe"


def test_no_command_about_a_stack_escapes() -> None:
    """A text names a task, or a command that chooses its stack where the choice can take the name's place."""
    found = list(printed())
    assert len({module for module, _ in found}) > 50
    for module, one in found:
        words = shlex.split(one.text)
        if "--stack" in words:
            filled = one.text.replace(f"--stack {HOLE}", "--stack mine").replace(HOLE, "x")
            named = "--stack NAME" in filled  # a place for any stack, not one that was chosen
            assert named or "--set port=8001" in completed(options(), {}, filled), one
        elif module.startswith(SPEAKING) and module not in OF_ANY_HOSTS:
            chooses = {HOLE, "--plan", "--file", "--stop"} & {*words} or "--explain" in words
            assert chooses or not any(word.startswith("--") for word in words), one


@pytest.mark.parametrize(
    ("host", "words"),
    [
        ({}, "192.0.2.7"),
        ({"user": "ubuntu", "port": 2222}, "-p 2222 ubuntu@192.0.2.7"),
        ({"private_key_file": "/keys/a key"}, "-i '/keys/a key' 192.0.2.7"),
        ({"ssh_arguments": ("-J", "ops@192.0.2.99")}, "-J ops@192.0.2.99 192.0.2.7"),
        ({"ssh_arguments": ("-F", "/lab/config")}, "-F /lab/config 192.0.2.7"),
        ({"ssh_arguments": ("-F", "~/config")}, f"-F {Path.home()}/config 192.0.2.7"),
    ],
    ids=["address", "login", "key", "bastion", "config", "home"],
)
def test_commands_on_hosts_reach_them_as_the_inventory_says(
    host: dict[str, object], words: str
) -> None:
    hosts = {"decode-0": replace(PLAIN, **host)}  # type: ignore[arg-type]  # one field each
    told = completed(
        options(), hosts, "`ssh decode-0 sudo kill 7`, `ssh decode-1 ls`, `ssh decode-0`"
    )
    assert told == f"`ssh {words} sudo kill 7`, `ssh decode-1 ls`, `ssh {words}`"


@pytest.mark.parametrize(
    ("user", "words"), [("ubuntu", "-J ops@192.0.2.99 ubuntu@HOST"), ("root", "HOST")]
)
def test_a_command_for_any_of_several_hosts_has_what_is_the_same_for_all(
    user: str, words: str
) -> None:
    way = replace(PLAIN, user="ubuntu", ssh_arguments=("-J", "ops@192.0.2.99"))
    other = replace(way, address="192.0.2.8", user=user)
    hosts = {"decode-0": way, "decode-1": other}
    assert completed(options(), hosts, "ssh HOST sudo ls") == f"ssh {words} sudo ls"


def test_hosts_that_are_named_are_reached_with_the_named_ssh_config() -> None:
    chosen = Options({"hosts": "decode-0", "ssh-config": "own"})
    assert completed(chosen, {"decode-0": PLAIN}, "ssh decode-0 ls") == "ssh -F own 192.0.2.7 ls"


def test_commands_on_hosts_are_completed_once_the_task_reaches_them_and_after_it_let_go() -> None:
    output = make_output(options())
    text = "`ssh decode-0 ls`, `fab up --stack mine`"
    assert output.complete(text) == f"`ssh decode-0 ls`, `fab up {CHOICE}`"
    whole = f"`ssh 192.0.2.7 ls`, `fab up {CHOICE}`"
    with open_fleet(options(), {"decode-0": PLAIN}, output):
        assert output.complete(text) == whole
    assert output.complete(text) == whole


def test_a_choice_that_is_made_later_is_the_one_that_is_told() -> None:
    chosen = [options(inventory=None)]
    complete = Completion(lambda: chosen[-1])
    assert complete("fab up --stack mine") == "fab up --stack mine --set port=8001"
    chosen.append(options())
    assert complete("fab up --stack mine") == f"fab up {CHOICE}"


def test_a_failure_names_the_stack_as_it_was_typed_in_words_and_in_the_document() -> None:
    words = ("--file", "stacks/a2-2n-dp4tp4.yaml", "--set", "port=8001")
    done = run_fab("preflight", *words, "--json")
    assert done.returncode == 2, done.stderr
    typed = "`fab inventory --file stacks/a2-2n-dp4tp4.yaml --set port=8001`"
    assert typed in done.stderr
    (error,) = json.loads(done.stdout)["errors"]
    assert typed in error["fix"]
