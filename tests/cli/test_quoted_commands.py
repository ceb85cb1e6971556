"""What an operator is told to type is taken by the command line: every `fab …` in code and documents."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from typing import get_args

import fabric
import pytest
from invoke.collection import Collection
from invoke.config import Config
from invoke.executor import Executor
from invoke.parser.context import ParserContext

from infra.errors import InfraError
from infra.launch.host_tuning import Allowance
from infra.launch.lease import FORCE
from infra.launch.preflight.gate import refuse_unknown_checks
from infra.spec.load import PROJECT
from infra.tasks.command_line import help_first, is_of_tasks_alone
from infra.tasks.command_words import ENTRIES
from infra.tasks.fabric_program import FabricProgram
from infra.tasks.option_conflicts import judge_options
from infra.tasks.options import Options
from infra.tasks.program import TableProgram, TableTask
from tests.cli.quoted_commands import (
    Quoted,
    command_line,
    commands_of_code,
    commands_of_document,
    unmarked_in_code,
)

DOCUMENTS = [
    *(PROJECT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md")),
    PROJECT / "ansible" / "README.md",
    *sorted((PROJECT / "docs").glob("*.md")),
]
# Only these tasks know what can be forced there: the table of checks is not loaded for `fab --list`.
FORCED_CHECKS: Mapping[str, Callable[[Sequence[str]], None]] = {
    "up": refuse_unknown_checks,
    "replace-host": refuse_unknown_checks,
}


class Judge(Executor):
    """Judges what was typed as a task does before it does anything."""

    def execute(self, *tasks: ParserContext) -> None:  # type: ignore[override]  # runs nothing, returns nothing
        for task in tasks:
            entry = ENTRIES[str(task.name)]
            options = Options(task.as_kwargs)
            judge_options(entry, options)
            if entry.name in FORCED_CHECKS:
                FORCED_CHECKS[entry.name](options.words("force"))


@cache
def program(typed: tuple[str, ...], kind: type[TableProgram]) -> TableProgram:
    """`fab` with nothing behind its tasks; of those that nobody types the parser needs to know nothing."""
    tasks = Collection()
    for name in typed:
        tasks.add_task(TableTask(ENTRIES[name], is_typed=True), name=name)
    config = Config if kind is TableProgram else fabric.Config
    return kind(name="fab", version="0", executor_class=Judge, config_class=config, namespace=tasks)


def complaint(text: str, capsys: pytest.CaptureFixture[str]) -> str:
    """What the command line says against a command; nothing where it takes it."""
    try:
        words = help_first(command_line(text))
        typed = tuple(dict.fromkeys(word for word in (*words, "stacks") if word in ENTRIES))
        kind = TableProgram if is_of_tasks_alone(words) else FabricProgram
        program(typed, kind).run(["fab", *words])
    except ValueError as error:  # a quotation without an end
        return str(error)
    except InfraError as error:
        return f"{error.where}: {error.what}"
    except SystemExit as end:
        return capsys.readouterr().err if end.code else ""
    return ""


@cache
def sources() -> Mapping[str, str]:
    """The modules of the product that may name a command, by path."""
    texts = {path: path.read_text(encoding="utf-8") for path in (PROJECT / "infra").rglob("*.py")}
    return {str(path.relative_to(PROJECT)): text for path, text in texts.items() if "fab " in text}


def harvest() -> Iterator[Quoted]:
    """Every command of the product's texts and of the documents."""
    for where, source in sources().items():
        yield from commands_of_code(source, where)
    for path in DOCUMENTS:
        yield from commands_of_document(
            path.read_text(encoding="utf-8"), str(path.relative_to(PROJECT))
        )


def test_every_command_that_is_told_or_shown_can_be_typed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    places: dict[str, list[str]] = {}
    for one in harvest():
        places.setdefault(one.text, []).append(one.where)
    assert len(places) > 150
    said = {text: complaint(text, capsys) for text in places}
    assert {text: (words, places[text]) for text, words in said.items() if words} == {}


def test_a_command_in_a_text_is_told_apart_from_the_words_around_it() -> None:
    found = [one for where, source in sources().items() for one in unmarked_in_code(source, where)]
    assert found == [], "write these in backticks"


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ('"fab tune-host --stack x"', "There is no task tune-host."),
        ('f"`fab tune-hosts --stack {x} --allow net.mtu`"', "'net.mtu' is none of its values"),
        ('"`fab tune-hosts` with --allow undrained"', "'undrained' is none of its values"),
        ('"Do it: fab down --force locks"', "'locks' is none of its values"),
        ('"`fab up --force no-such-check`"', "There is no such check."),
        ('"`fab restart --role router`"', "'router' is none of its values"),
        ('f"fab status {again} --watched"', "status has no option --watched."),
        ('"run `fab up` again, with --timout for longer"', "up has no option --timout."),
        ("f\"fab {'up' if x else 'upp'} {again}\"", "There is no task upp."),
        ('"fab down --stack x, then fab upp"', "There is no task upp."),
        ('"fab replace-host" + f" {old} {new} --stak {stack}"', "no option --stak."),
        ('"`fab -H {} up`".format(host)', "up takes its hosts from --inventory."),
        ('"fab check --stack x --stack y"', "--stack is given twice to check."),
    ],
)
def test_what_the_command_line_refuses_is_found_in_code(
    source: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    told = [complaint(one.text, capsys) for one in commands_of_code(f"say({source})", "x")]
    assert said in "".join(told), told


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("Type `fab tune-hosts\n--stack NAME --allow net.mtu`.", "'net.mtu' is none of its values"),
        ("See `fab statsu`.", "There is no task statsu."),
        ("So:\n\n    fab stacks\n    fab up --stak x  # now\n\n", "up has no option --stak."),
        ("```bash\n$ fab plan --stack x | fab checks\n```\n", "There is no task checks."),
        ("`fab logs … --lin 3`", "logs has no option --lin."),
    ],
)
def test_what_the_command_line_refuses_is_found_in_documents(
    text: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    told = [complaint(one.text, capsys) for one in commands_of_document(text, "x")]
    assert said in "".join(told), told


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("fab logs {0} --rank {0} --lines {0}", "logs --stack NAME --rank x --lines 7"),
        ("fab up --stack {0} {0}", "up --stack x"),
        ("fab replace-host {0} NEW", "replace-host x x"),
        ("fab engines --stack NAME --diff {0} {0}", "engines --stack x --diff x x"),
        ("fab restart --role ROLE --force", "restart --role unified --force lease"),
        ("fab bundle [--to FILE]", "bundle --to x"),
        ("fab import --help", "import --help"),
        ("fab check --set engine.version={0}", "check --set engine.version=x"),
    ],
)
def test_open_places_are_filled_in(text: str, words: str) -> None:
    assert command_line(text.format("\0")) == words.split()


def test_what_may_be_allowed_is_what_the_agent_knows() -> None:
    (allow,) = (one for one in ENTRIES["tune-hosts"].options if one.name == "allow")
    assert set(allow.choices) == set(get_args(Allowance))


def test_the_lease_can_be_forced_wherever_it_is_held() -> None:
    forced = {one.choices for e in ENTRIES.values() for one in e.options if one.name == "force"}
    assert forced == {(), (FORCE,)}
