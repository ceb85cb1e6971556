"""How a simulated program ends: the engine's own words on stderr and its exit code."""

from __future__ import annotations

import os
import sys

VALIDATION_ERROR = "pydantic_core._pydantic_core.ValidationError"
PYDANTIC_HELP = "https://errors.pydantic.dev/2.12/v/"


class Refused(Exception):
    """The command line is wrong; argparse's own words, exit code 2."""

    exit_code = 2

    def __init__(self, usage: str, program: str, message: str) -> None:
        super().__init__(message)
        self.text = f"{usage}{program}: error: {message}\n"


class Failed(Exception):
    """The engine raised ``kind: message`` and left; exit code 1 unless it says otherwise."""

    exit_code = 1

    def __init__(self, kind: str, message: str, process: str = "APIServer") -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message
        self.process = process

    @property
    def text(self) -> str:
        """The end of the traceback as the engine's process prints it."""
        lines = ["Traceback (most recent call last):", *f"{self.kind}: {self.message}".split("\n")]
        prefix = f"({self.process} pid={os.getpid()}) " if self.process else ""
        return "".join(f"{prefix}{line}\n" for line in lines)


class CoreFailed(Failed):
    """A request made the engine's core fail: its front end answers what it has with 500, and leaves with 0."""


class SideChannelTaken(Failed):
    """NIXL's listener could not have its port."""


def invalid(class_name: str, reason: str) -> Failed:
    """Return the failure of a validator of one configuration class."""
    return Failed(
        VALIDATION_ERROR,
        f"1 validation error for {class_name}\n"
        f"  Value error, {reason} [type=value_error, input_value=ArgsKwargs(()), input_type=ArgsKwargs]\n"
        f"    For further information visit {PYDANTIC_HELP}value_error",
    )


def in_class(class_name: str, failure: Failed) -> Failed:
    """Return a failure as pydantic tells it when it happened while a class was built: of two kinds of errors alone."""
    said = {
        "ValueError": ("Value error", "value_error"),
        "AssertionError": ("Assertion failed", "assertion_error"),
    }.get(failure.kind)
    if said is None:
        return failure
    title, kind = said
    return Failed(
        VALIDATION_ERROR,
        f"1 validation error for {class_name}\n"
        f"  {title}, {failure.message} [type={kind}, input_value=ArgsKwargs(()), input_type=ArgsKwargs]\n"
        f"    For further information visit {PYDANTIC_HELP}{kind}",
        failure.process,
    )


def assertion(reason: str) -> Failed:
    """Return the failure of an ``assert`` in the configuration code."""
    return Failed("AssertionError", reason)


def write_error(text: str) -> None:
    """Write to stderr at once."""
    sys.stdout.flush()
    sys.stderr.write(text)
    sys.stderr.flush()
