"""One command after the other, each in a process forked from one that has imported the release.

So nothing of a command is left for the next one, and the seconds that an import takes are spent once.
"""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import importlib
import json
import linecache
import os
import re
import signal
import sys
import time
import traceback
from pathlib import Path
from typing import Any, Literal

Level = Literal["parse", "config", "checks"]
# In place of a level: the release said neither yes nor no.
NOT_ANSWERED = "not answered"
_LONGEST_S = 120
_LONGEST_MESSAGE = 300
_PROGRESS_EVERY = 25

# Mostly raised by the language and not by the release: what they say names no flag, the statement that failed does.
_WORDLESS = (AssertionError, AttributeError, IndexError, KeyError, TypeError, ZeroDivisionError)


class Reached(BaseException):
    """Everything that can be checked without an accelerator has been; it passes through every `except Exception`."""


class AllAsked(BaseException):
    """There is no further command."""


class Interview:
    """Hands out commands and takes down the answers.

    Attributes:
        level: how far the command has come; the speaker sets it.
        is_asked: whether this is the process of one command.
    """

    def __init__(self, document: dict[str, Any]) -> None:
        """Take the document that `asking` wrote."""
        self.level: Level = "parse"
        self.is_asked = False
        self._document = document
        answers = document["answers"]
        self._files = (Path(f"{answers}.one"), Path(f"{answers}.printed"))
        self._imports = Path(f"{answers}.imports")
        self._known: frozenset[str] = frozenset()

    def next_command(self) -> dict[str, Any]:
        """Return once for every command, each time in a process of its own with the command's environment.

        Returns:
            `argv` with the folders that stand in for checkpoints, and `env`.

        Raises:
            AllAsked: in the process that asks, after the last one.
        """
        questions = self._document["questions"]
        with Path(self._document["answers"]).open("a", encoding="utf-8") as answers:
            for number, question in enumerate(questions, start=1):
                for file in self._files:
                    file.unlink(missing_ok=True)
                child = os.fork()
                if child == 0:
                    return self._asked(question)
                level, says = self._taken_down(child)
                if number == 1:
                    self._learn_imports()
                row = {"digest": question["digest"], "level": level, "says": says}
                answers.write(json.dumps(row) + "\n")
                answers.flush()
                if number % _PROGRESS_EVERY == 0 or number == len(questions):
                    print(f"asked {number} of {len(questions)}", flush=True)
        raise AllAsked

    def _learn_imports(self) -> None:
        """Import here what the first command imported on its way, once for all others."""
        if self._imports.is_file():
            for name in self._imports.read_text(encoding="utf-8").split():
                with contextlib.suppress(Exception):
                    importlib.import_module(name)
        gc.collect()
        gc.freeze()  # a collection in a forked process would copy every page

    def answer(self, error: BaseException | None) -> None:
        """Write the verdict of this process's command: how it ended."""
        kind, text = "", ""
        if isinstance(error, SystemExit):
            if error.code not in (None, 0):
                kind, text = "SystemExit", str(error.code)
        elif error is not None and not isinstance(error, Reached):
            kind, text = type(error).__name__, words_of(error)
            traceback.print_exception(error)
        new = [name for name in sys.modules if name not in self._known]
        self._imports.write_text("\n".join(new), encoding="utf-8")
        self._files[0].write_text(json.dumps([self.level, kind, text]), encoding="utf-8")

    def _asked(self, question: dict[str, Any]) -> dict[str, Any]:
        self.is_asked = True
        self._known = frozenset(sys.modules)
        descriptor = os.open(self._files[1], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(descriptor, 1)
        os.dup2(descriptor, 2)
        faulthandler.dump_traceback_later(_LONGEST_S - 5)
        os.environ.update(question["env"])
        here, there = self._document["models"], self._document["weights_path"]
        argv = [word.replace(f"{there}/", f"{here}/") for word in question["argv"]]
        return {**question, "argv": argv}

    def _taken_down(self, child: int) -> tuple[str, str]:
        """(level or `not answered`, what the release said or what became of it), from the files of an ended process."""
        verdict, output = self._files
        if not _ends(child):
            return NOT_ANSWERED, f"no answer within {_LONGEST_S} s"
        printed = output.read_text("utf-8", "replace") if output.is_file() else ""
        if not verdict.is_file():
            return NOT_ANSWERED, self._one_line(f"ended without an answer: {printed[-200:]}")
        level, kind, text = json.loads(verdict.read_text(encoding="utf-8"))
        if kind == "SystemExit":
            return level, self._one_line(_last_error(printed) or f"left with {text}")
        return level, self._one_line(f"{kind}: {text}") if kind else ""

    def _one_line(self, text: str) -> str:
        """Without what differs between two runs: folders, addresses of objects, what pydantic was given."""
        text = re.sub(r"\s*For further information visit \S+", "", text)
        text = text.replace(self._document["models"], self._document["weights_path"])
        text = re.sub(r" at 0x[0-9a-f]+", "", text)
        text = re.sub(r", input_value=ArgsKwargs.*", "", text, flags=re.DOTALL)
        return " ".join(text.split())[:_LONGEST_MESSAGE]


def words_of(error: BaseException) -> str:
    """What an error says; behind it, where the release did not choose the words, the statement that failed."""
    text = str(error)
    frames = traceback.extract_tb(error.__traceback__)
    if not isinstance(error, _WORDLESS) or (isinstance(error, AssertionError) and text):
        return text
    last = frames[-1]
    first = last.lineno or 1
    lines = linecache.getlines(last.filename)[first - 1 : last.end_lineno or first]
    statement = " ".join("".join(lines).split())
    return text if statement.startswith("raise") else f"{text} [{statement}]".strip()


def _ends(child: int) -> bool:
    limit = time.monotonic() + _LONGEST_S
    while time.monotonic() < limit:
        if os.waitpid(child, os.WNOHANG)[0] == child:
            return True
        time.sleep(0.01)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return False


def _last_error(text: str) -> str:
    """What argparse printed before it left."""
    lines = text.splitlines()
    starts = [number for number, line in enumerate(lines) if re.search(r"\berror: ", line)]
    return "\n".join(lines[starts[-1] :]) if starts else ""
