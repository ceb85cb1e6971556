"""Fabric's program with our groups in `--list`, our exit codes, and tasks that load when they run."""

from __future__ import annotations

import atexit
import contextlib
import difflib
import gc
import importlib
import json
import os
import re
import sys
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path

from fabric.main import Fab
from invoke.collection import Collection
from invoke.exceptions import Exit, ParseError
from invoke.parser.argument import Argument
from invoke.tasks import Task

from infra.errors import InfraError, StackError
from infra.tasks.options import Option, Options
from infra.tasks.output import Output, failure_document
from infra.tasks.table import GROUPS, Entry

INTERRUPTED = 130
BUG = 1
_PARSER_TYPES = {"text": str, "number": str, "switch": bool, "words": list, "pair": str}


class MoeFab(Fab):  # type: ignore[misc]  # fabric publishes no types
    """`fab` as Fabric ships it, but for the list of tasks and the exit codes.

    Fabric prints a flat list and leaves with 1 for a mistyped command line or an interrupt.
    """

    def parse_tasks(self) -> None:
        """Parse the command line; a mistake leaves with 2 and names the nearest word."""
        self.core.unparsed[:] = pairs_as_one_word(self.core.unparsed)
        with _mistakes_leave_with_two():
            super().parse_tasks()

    def parse_cleanup(self) -> None:
        """Print help and lists; a task that does not exist leaves with 2."""
        with _mistakes_leave_with_two(), _readers_may_leave():
            super().parse_cleanup()

    def list_flat(self) -> None:
        """The tasks under their groups, in the order of the table."""
        width = max(len(entry.name) for _, entries in GROUPS for entry in entries)
        print("Available tasks:")
        for title, entries in GROUPS:
            print(f"\n{title}")
            for entry in entries:
                print(f"  {entry.name:<{width}}  {entry.help}")
        print("\n`fab --help TASK` shows a task's options.")

    def update_config(self) -> None:
        """Read configuration files; one that -S names and that is not there leaves with 2."""
        named = self.args["ssh-config"].value
        if named and not Path(named).expanduser().is_file():
            _refuse(f"There is no ssh_config {named}. Correct -S.")
        super().update_config()

    def execute(self) -> None:
        """Run the tasks; an interrupt leaves with 130."""
        if self.args["hosts"].value and self.tasks:
            self._hand_hosts_to_tasks()
        try:
            super().execute()
        except KeyboardInterrupt:
            print("Interrupted.", file=sys.stderr)
            sys.stdout.flush()
            sys.stderr.flush()
            # Threads that wait for a host's greeting would hold the ordinary way out for seconds; everything that
            # has to be undone was undone on the way here.
            os._exit(INTERRUPTED)

    def _hand_hosts_to_tasks(self) -> None:
        """Give -H, -i and -S to tasks that take hosts by name; Fabric would run the task once per host."""
        for context in self.tasks:
            if "hosts" not in context.args:
                _refuse(
                    f"{context.name} takes its hosts from --inventory. -H is for `fab -H HOST -- COMMAND` and "
                    f"`fab -H HOST tune-hosts`."
                )
            context.args["hosts"].value = self.args["hosts"].value
            for path in self.args["identity"].value:
                context.args["identity"].value = path
            if self.args["ssh-config"].value:
                context.args["ssh-config"].value = self.args["ssh-config"].value
        self.args["hosts"].value = ""


class TableTask(Task):  # type: ignore[type-arg]
    """A task of the table: its options come from there, its module is imported when it runs."""

    def __init__(self, entry: Entry) -> None:
        """Take name, help and options from the table."""

        def body(_context: object, **given: object) -> None:
            _run(entry, given)

        body.__doc__ = entry.help
        super().__init__(body, name=entry.name, positional=(), auto_shortflags=False)
        self.entry = entry

    def get_arguments(self, ignore_unknown_help: bool | None = None) -> list[Argument]:  # noqa: FBT001
        """The options as Invoke's parser wants them."""
        del ignore_unknown_help
        return [_argument(option) for option in self.entry.options]


def pairs_as_one_word(words: Sequence[str]) -> list[str]:
    """The words of a command line with both values of a `pair` option as one: Invoke's parser takes one value."""
    entries = {entry.name: entry for _, group in GROUPS for entry in group}
    joined: list[str] = []
    pairs: set[str] = set()
    waiting = list(words)
    while waiting:
        word = waiting.pop(0)
        if word in entries:
            pairs = {
                f"--{option.name}" for option in entries[word].options if option.kind == "pair"
            }
        joined.append(word)
        name, equals, _ = word.partition("=")
        if name not in pairs:
            continue
        if not equals and waiting:
            joined.append(waiting.pop(0))
        if waiting and not waiting[0].startswith("-") and waiting[0] not in entries:
            joined[-1] += f" {waiting.pop(0)}"
    return joined


def put_in_place(program: Fab) -> None:
    """Make Fabric's own program, which is running already, one of ours."""
    program.__class__ = MoeFab
    collect_seldom()


def collect_seldom() -> None:
    """A plan is many small objects that all stay: looking them over again and again costs a fifth of the time.

    Those left at the end go with the process: looking them all over once more is a sixth of a short command.
    """
    gc.set_threshold(50_000, 20, 100)
    atexit.register(gc.freeze)


def task_collection() -> Collection:
    """Every task of the table; one that comes with a later release is absent there, not stubbed."""
    collection = Collection()
    for _, entries in GROUPS:
        for entry in entries:
            collection.add_task(TableTask(entry), name=entry.name)
    return collection


def make_output(*, wants_json: bool) -> Output:
    """The output of this process: colour only on a terminal, and never with NO_COLOR."""
    plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    return Output(
        wants_json=wants_json,
        has_colour=sys.stderr.isatty() and sys.stdout.isatty() and not plain,
        stdout=sys.stdout,
        stderr=sys.stderr,
    )


def _run(entry: Entry, given: dict[str, object]) -> None:
    """Run one task; every failure becomes one message and its exit code, never a traceback of ours."""
    options = Options(given)
    output = make_output(wants_json=options.is_on("json"))
    try:
        # The only import on demand: `fab --list` must not pay for what no task of this command needs.
        code: int = importlib.import_module(f"infra.tasks.{entry.module}").run(options, output)
    except InfraError as error:
        output.failure(error)
        raise Exit(code=error.exit_code) from None
    except BrokenPipeError:
        _stop_writing()
        raise Exit(code=0) from None
    except Exception as error:  # noqa: BLE001 - the last stop before the operator
        traceback.print_exc()
        output.failure(
            InfraError(f"fab {entry.name}", f"A bug: {error!r}.", "Report the lines above.")
        )
        raise Exit(code=BUG) from None
    if code:
        raise Exit(code=code)


@contextlib.contextmanager
def _readers_may_leave() -> Iterator[None]:
    """Whoever reads help or a list and goes away before its end gets no traceback."""
    try:
        try:
            yield
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        _stop_writing()
        raise Exit(code=0) from None


def _stop_writing() -> None:
    """Whoever read us has gone: what the interpreter still flushes at its end goes nowhere."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _argument(option: Option) -> Argument:
    kind = _PARSER_TYPES[option.kind]
    default: object = {"switch": False, "words": []}.get(option.kind)
    return Argument(
        names=(option.name,),
        kind=kind,
        default=default,
        help=option.help,
        positional=option.is_positional,
    )


@contextlib.contextmanager
def _mistakes_leave_with_two() -> Iterator[None]:
    try:
        yield
    except ParseError as error:
        _refuse(_with_nearest(error))


def _with_nearest(error: ParseError) -> str:
    """The parser's mistake in our words, and the task or option that is meant by an unknown one."""
    message = str(error)
    if match := re.fullmatch(
        r"Flag <Argument: (\S+).*> needed value and was not given one!", message
    ):
        return f"--{match[1]} needs a value. Write --{match[1]} VALUE."
    if match := re.fullmatch(
        r"'(\S+)' did not receive required positional arguments: (.*)", message
    ):
        words = " ".join(re.findall(r"'(\S+?)'", match[2])).upper()
        return f"{match[1]} needs {words}. `fab --help {match[1]}` shows how it is typed."
    match = re.fullmatch(r"No idea what '(.*)' is!", message)
    if match is None:
        return message
    word, task = match[1], getattr(error.context, "name", None)
    entries = [entry for _, group in GROUPS for entry in group]
    if word.startswith("-"):
        of_task = [entry for entry in entries if entry.name == task]
        known = sorted({f"--{option.name}" for entry in of_task for option in entry.options})
        what = f"{task or 'fab'} has no option {word}."
        fix = f"`fab --help {task or ''}`".replace(" `", "`") + " shows its options."
    else:
        known = [entry.name for entry in entries]
        what, fix = f"There is no task {word}.", "`fab --list` shows every task."
    near = difflib.get_close_matches(word, known, n=3, cutoff=0.5)
    return " ".join([what, *([f"Did you mean {' or '.join(near)}?"] if near else []), fix])


def _refuse(message: str) -> None:
    """Leave with 2; whoever asked for JSON gets the failure as a document."""
    if "--json" in sys.argv:
        print(json.dumps(failure_document(StackError("command line", message, ""))))
    raise Exit(code=StackError.exit_code, message=f"fab: {message}")
