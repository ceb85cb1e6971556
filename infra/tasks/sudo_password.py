"""The password for sudo, as the operator gives it: typed on a terminal, or kept in a variable or a file."""

from __future__ import annotations

import getpass
import os
import sys
from pathlib import Path

from infra.errors import StackError
from infra.remote.sudo import SudoPassword
from infra.spec.text_file import read_text
from infra.tasks.options import Options

ASK, FROM = "ask-sudo-password", "sudo-password-from"
_OTHERS_MAY_READ = 0o077


def sudo_password(options: Options) -> SudoPassword | None:
    """The password of `--ask-sudo-password` or `--sudo-password-from`, None when neither was given.

    Raises:
        StackError: both were given, there is no terminal to ask on, or there is no password where it should be.
    """
    reference = options.text(FROM)
    if options.is_on(ASK) and reference is not None:
        raise StackError(f"--{ASK}", f"It was given together with --{FROM}.", "Give one of them.")
    if reference is not None:
        return SudoPassword(_usable(f"--{FROM}", _read(reference)))
    return SudoPassword(_usable(f"--{ASK}", _ask())) if options.is_on(ASK) else None


def sudo_words(options: Options) -> list[str]:
    """The words that give the password in the same way again, for the next command."""
    reference = options.text(FROM)
    asks = [f"--{ASK}"] if options.is_on(ASK) else []
    return [*asks, *([f"--{FROM}", reference] if reference is not None else [])]


def _ask() -> str:
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        fix = f"Give --{FROM} env:NAME or file:PATH, or the logins NOPASSWD in /etc/sudoers.d."
        raise StackError(f"--{ASK}", "There is no terminal to ask on.", fix)
    try:
        return getpass.getpass("Password for sudo on the hosts: ", stream=sys.stderr)
    except EOFError:
        return ""


def _read(reference: str) -> str:
    kind, _, place = reference.partition(":")
    if kind == "env" and place:
        return os.environ.get(place, "")
    if kind == "file" and place:
        return _read_file(Path(place).expanduser())
    # The value is not repeated: it may be the password itself.
    raise StackError(f"--{FROM}", "It is not a reference.", "Write env:NAME or file:PATH.")


def _read_file(path: Path) -> str:
    try:
        if path.stat().st_mode & _OTHERS_MAY_READ:
            what = f"Others may read {path}."
            raise StackError(f"--{FROM}", what, f"Type: chmod 600 {path}")
        return read_text(path).removesuffix("\n")
    except (OSError, UnicodeDecodeError) as error:
        what = f"The file cannot be read: {error}."
        raise StackError(f"--{FROM}", what, "Mend the file, or the reference.") from error


def _usable(where: str, password: str) -> str:
    if not password:
        raise StackError(where, "The password is empty or not there.", "Set it, then run again.")
    if "\n" in password or "\0" in password:
        raise StackError(where, "The password has more than one line.", "Leave one line there.")
    return password
