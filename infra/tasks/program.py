"""Invoke's program with our groups in `--list`, our exit codes, and tasks that load when they run."""

from __future__ import annotations

import contextlib
import difflib
import errno
import importlib
import json
import os
import re
import sys
import traceback
from collections.abc import Iterator, Sequence
from typing import NoReturn

from invoke.collection import Collection
from invoke.config import Config
from invoke.exceptions import Exit, ParseError
from invoke.parser.argument import Argument
from invoke.program import Program
from invoke.tasks import Task

from infra.errors import InfraError, PrerequisiteError, StackError
from infra.spec.stack_files import stack_names
from infra.spec.work import TooMuchWorkError
from infra.tasks.command_words import ENTRIES, pairs_as_one_word, refuse_lost_words
from infra.tasks.completion import Completion
from infra.tasks.default_stack import with_default_stack
from infra.tasks.interrupts import leave_interrupted, raise_when_interrupted
from infra.tasks.option_conflicts import judge_options
from infra.tasks.options import Option, Options
from infra.tasks.output import AsWritten, Output, failure_document
from infra.tasks.table import GROUPS, Entry
from infra.tasks.task_help import task_help
from infra.visible import visible, visible_json
from infra.whole_file import DISK_FULL, MAKE_ROOM

BUG = 1
# Options that name files which somebody else may have written.
FOREIGN = ("file", "plan", "inventory")
# Tasks that work on groups of ranks, whose parts on several hosts start and end as one.
_OF_GROUPS = ("up", "down", "restart", "replace-host", "verify")
_OF_ONE_HOST = (
    "`fab restart --stack NAME --role ROLE --replica N` restarts one group, `fab replace-host OLD NEW --stack NAME` "
    "replaces one machine, and `fab status --stack NAME --limit HOST` looks at one host."
)
LIST_FORMATS = ("flat", "nested", "json")
BEFORE_TASKS = """
Before a task
  -H HOST,…  hosts of `fab -H HOST,… tune-hosts`, without a stack
  -i PATH    a private key for them; may be repeated
  -S PATH    an ssh_config for them

Once for a shell
  export MOE_STACK=NAME or PATH   the stack of commands that name none
  export MOE_INVENTORY=PATH       its inventory
  `source <(fab --print-completion-script bash)`   completes tasks, options, stacks and ids; zsh and fish alike

First: `fab stacks`, then `fab check --stack NAME` and `fab rehearse --stack NAME`."""
_PARSER_TYPES = {"text": str, "number": str, "switch": bool, "words": list, "pair": str}


class TableProgram(Program):
    """A program of Invoke's, but for the list of tasks and the exit codes.

    Invoke prints a flat list and leaves with 1 for a mistyped command line or an interrupt.
    """

    def run(self, argv: list[str] | None = None, exit: bool = True) -> None:  # noqa: A002, FBT001, FBT002 - Invoke's
        """Run a command line; whoever reads what it says may go away (0), or have no room for it (3)."""
        try:
            try:
                super().run(argv, exit)
            finally:
                sys.stdout.flush()
        except BrokenPipeError:
            _stop_writing()
            sys.exit(0)
        except OSError as error:
            if error.errno not in DISK_FULL:
                raise
            sys.exit(_say_disk_full(error))

    def create_config(self) -> None:
        """Have tasks run as often as they are typed."""
        super().create_config()
        self.config.tasks.dedupe = False

    def parse_core(self, argv: list[str] | None) -> None:
        """Parse what stands before the tasks; a mistake leaves with 2."""
        try:
            with _mistakes_leave_with_two():
                super().parse_core(argv)
        except ValueError as error:  # of -t and -T, which take numbers
            refuse(f"A value is none that its option takes: {error}.", "`fab --help` lists them.")
        # Invoke forbids Python to keep what it compiles, so that every start would compile most of our modules again.
        sys.dont_write_bytecode = bool(sys.flags.dont_write_bytecode)

    def parse_tasks(self) -> None:
        """Parse the command line; a mistake leaves with 2 and names the nearest word."""
        try:
            refuse_lost_words(self.core.unparsed)
        except StackError as error:
            refuse(error.what, error.fix)
        self.core.unparsed[:] = pairs_as_one_word(self.core.unparsed)
        with _mistakes_leave_with_two():
            super().parse_tasks()

    def parse_cleanup(self) -> None:
        """Print help and lists; a task, a group or a format that does not exist leaves with 2."""
        listed = self.args["list-format"].value
        if listed not in LIST_FORMATS:
            refuse(f"There is no list format {listed}.", f"Use {', '.join(LIST_FORMATS)}.")
        if isinstance(self.args.list.value, str):
            what = f"--list takes no name, and {self.args.list.value} is one."
            refuse(what, "Type `fab --list`, or `fab --help TASK`.")
        with _mistakes_leave_with_two():
            try:
                super().parse_cleanup()
            except ValueError:  # a shell completes words of which a quotation is still open
                if not self.args.complete.value:
                    raise
                raise Exit from None

    def print_task_help(self, name: str) -> None:
        """The help of one task, from the table."""
        print(task_help(ENTRIES[name]))

    def print_help(self) -> None:
        """What `fab` alone says, and `fab --help`: the tasks, and what stands before a task."""
        self.list_flat()
        print(BEFORE_TASKS)

    def list_flat(self) -> None:
        """The tasks under their groups, in the order of the table."""
        width = max(len(entry.name) for _, entries in GROUPS for entry in entries)
        print("Available tasks:")
        for title, entries in GROUPS:
            print(f"\n{title}")
            for entry in entries:
                print(f"  {entry.name:<{width}}  {entry.help}")
        print("\n`fab --help TASK` shows a task's options.")

    def execute(self) -> None:
        """Run the tasks; an interrupt leaves with 130."""
        if self.core.remainder:
            # Fabric would run it on the hosts of -H, whatever key they show
            what = f"No task runs commands, and there is one behind --: {self.core.remainder}"
            refuse(what, "Type `ssh HOST COMMAND`.")
        try:
            raise_when_interrupted()
            super().execute()
        except KeyboardInterrupt:
            leave_interrupted()


class OwnSettings(Config):
    """Settings that no file and no variable changes: a `.fabric.py` would run, a variable could name a module."""

    def load_system(self, merge: bool = True) -> None:  # noqa: FBT001, FBT002 - as Invoke has it
        """Nothing, as all of the following."""

    load_user = load_project = load_runtime = load_system

    def load_shell_env(self) -> None:
        """Nothing."""


class TableTask(Task):  # type: ignore[type-arg]
    """A task of the table: its options come from there, its module is imported when it runs."""

    def __init__(self, entry: Entry, *, is_typed: bool) -> None:
        """Take name, help and options from the table; a task that nobody typed is not asked for options."""

        def body(_context: object, **given: object) -> None:
            _run(entry, given)

        body.__doc__ = entry.help
        super().__init__(body, name=entry.name, positional=(), auto_shortflags=False)
        self.options = entry.options if is_typed else ()

    def __deepcopy__(self, _known: object) -> TableTask:
        """Itself: Invoke copies all tasks with all that they hold, and none of it changes."""
        return self

    def get_arguments(self, ignore_unknown_help: bool | None = None) -> list[Argument]:  # noqa: FBT001
        """The options as Invoke's parser wants them."""
        del ignore_unknown_help
        return [_argument(option) for option in self.options]


def table_program() -> TableProgram:
    """A program of the table's tasks, which knows nothing of hosts."""
    return TableProgram(namespace=task_collection(), config_class=OwnSettings)


def task_collection() -> Collection:
    """Every task of the table; one that comes with a later release is absent there, not stubbed.

    Invoke makes and copies an object for each option of each task, which takes as long as judging a stack.
    """
    typed = set(" ".join(sys.argv).split())
    collection = Collection()
    for entry in ENTRIES.values():
        task = TableTask(entry, is_typed=entry.name in typed)
        collection.add_task(task, name=entry.name)
    return collection


def make_output(options: Options) -> Output:
    """The output of a task: colour only on a terminal, and never with NO_COLOR."""
    plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    return Output(
        wants_json=options.is_on("json"),
        has_colour=sys.stderr.isatty() and sys.stdout.isatty() and not plain,
        complete=Completion(lambda: options),
        stdout=sys.stdout,
        stderr=sys.stderr,
    )


def _run(entry: Entry, given: dict[str, object]) -> None:
    """Run one task; every failure becomes one message and its exit code, never a traceback of ours."""
    options, told = with_default_stack(entry, Options(given), os.environ)
    output = make_output(options)
    if told:
        output.message(output.toned(told, "dim"))
    try:
        judge_options(entry, options)
        with _first_contact(entry, options) as known:
            # On demand: `fab --list` must not pay for what no task of this command needs.
            code: int = importlib.import_module(f"infra.tasks.{entry.module}").run(known, output)
    except InfraError as error:
        output.failure(error)
        raise Exit(code=error.exit_code) from None
    except (RecursionError, MemoryError, TooMuchWorkError) as error:
        foreign = _foreign_input(entry, options)
        if foreign is None:
            _say_bug(entry, output, error)
        what = "It nests too deep or grows too large to be worked on."
        failure = StackError(foreign, what, "Give a smaller one, or a part of it.")
        output.failure(failure)
        raise Exit(code=failure.exit_code) from None
    except Exception as error:
        if isinstance(error, OSError) and error.errno in (errno.EPIPE, *DISK_FULL):
            raise
        _say_bug(entry, output, error)
    if code:
        raise Exit(code=code)


def _say_bug(entry: Entry, output: Output, error: Exception) -> NoReturn:
    """Leave with 1, and the lines that tell where."""
    output.message(AsWritten(traceback.format_exc()))
    output.failure(InfraError(f"fab {entry.name}", f"A bug: {error!r}.", "Report the lines above."))
    raise Exit(code=BUG) from None


def _foreign_input(entry: Entry, options: Options) -> str | None:
    """The file that a task was given; None where it was given none."""
    known = {option.name for option in entry.options}
    given = (options.given.get(name) for name in FOREIGN if name in known)
    return next((str(path) for path in given if path), None)


def _first_contact(entry: Entry, options: Options) -> contextlib.AbstractContextManager[Options]:
    """The options; with agents on the way where the task says what it will ask them."""
    if not entry.asks_first:
        return contextlib.nullcontext(options)
    # A third of what such a task loads; hosts let us in while the rest follows.
    from infra.tasks.first_contact import early_contact  # noqa: PLC0415

    return early_contact(options, entry.asks_first)


def _say_disk_full(error: OSError) -> int:
    """Say where there is no room, on standard error where that has some; the exit code."""
    # What fails at a file of ours names the file.
    full = PrerequisiteError(
        str(error.filename or "standard output"), f"{error.strerror}.", MAKE_ROOM
    )
    with contextlib.suppress(OSError):
        print(visible(str(full)), file=sys.stderr, flush=True)
    _stop_writing()
    return full.exit_code


def _stop_writing() -> None:
    """What the interpreter still flushes at its end, and nobody takes, goes nowhere."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


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
        refuse(*_with_nearest(error))


def _with_nearest(error: ParseError) -> tuple[str, str]:
    """The parser's mistake in our words, and the task or option that is meant by an unknown one."""
    message = str(error)
    if match := re.fullmatch(
        r"Flag <Argument: (\S+).*> needed value and was not given one!", message
    ):
        flag = f"--{match[1]}" if len(match[1]) > 1 else f"-{match[1]}"
        return f"{flag} needs a value.", f"Write {flag} VALUE."
    if match := re.fullmatch(
        r"'(\S+)' did not receive required positional arguments: (.*)", message
    ):
        words = " ".join(re.findall(r"'(\S+?)'", match[2])).upper()
        return f"{match[1]} needs {words}.", f"`fab --help {match[1]}` shows how it is typed."
    match = re.fullmatch(r"No idea what '(.*)' is!", message)
    if match is None:
        return message, "`fab --help TASK` shows how a task is typed."
    word, task = match[1], getattr(error.context, "name", None)
    if word.startswith("-"):
        return _unknown_option(word, task)
    if word in stack_names():
        return f"There is no task {word}.", f"A stack is named with --stack {word}."
    near = difflib.get_close_matches(word, list(ENTRIES), n=3, cutoff=0.5)
    return f"There is no task {word}.", _meant(near, "`fab --list` shows every task.")


def _unknown_option(word: str, task: str | None) -> tuple[str, str]:
    what = f"{task or 'fab'} has no option {word}."
    if word == "--limit" and task in _OF_GROUPS:
        return f"{what} Groups span hosts, and a release is whole.", _OF_ONE_HOST
    of_task = ENTRIES[str(task)].options if task in ENTRIES else ()
    known = sorted(f"--{option.name}" for option in of_task)
    fix = f"`fab --help {task or ''}`".replace(" `", "`") + " shows its options."
    if len(word) == len("-i"):  # of options that begin with that letter one is meant, if any is
        return what, _meant([each for each in known if each.startswith(f"-{word}")], fix)
    return what, _meant(difflib.get_close_matches(word, known, n=3, cutoff=0.5), fix)


def _meant(near: Sequence[str], fix: str) -> str:
    return f"Did you mean {' or '.join(near)}? {fix}" if near else fix


def refuse(what: str, fix: str) -> NoReturn:
    """Leave with 2; whoever asked for JSON gets the failure as a document."""
    error = StackError("command line", what, fix)
    if "--json" in sys.argv:
        print(visible_json(json.dumps(failure_document(error))))
    raise Exit(code=error.exit_code, message=visible(f"fab: {what} {fix}"))
