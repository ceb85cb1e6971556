"""Where the password for sudo comes from: a terminal, a variable, a file; never the command line."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from infra.errors import StackError
from infra.tasks.options import Options
from infra.tasks.sudo_password import sudo_password

TYPED = "typed by hand"
ASK = """
from infra.tasks.options import Options
from infra.tasks.sudo_password import sudo_password
given = sudo_password(Options({"ask-sudo-password": True}))
print("length", len(given.reveal_to("host-0")), given)
"""


def revealed(**given: object) -> str:
    names = {name.replace("_", "-"): value for name, value in given.items()}
    password = sudo_password(Options(names))
    assert password is not None
    return password.reveal_to("host-0").decode().removesuffix("\n")


def test_nothing_given_is_no_password() -> None:
    assert sudo_password(Options({})) is None


def test_a_variable_holds_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUDO_WORD", TYPED)
    assert revealed(sudo_password_from="env:SUDO_WORD") == TYPED


def test_a_file_holds_it_without_its_line_end(tmp_path: Path) -> None:
    (tmp_path / "word").write_text(TYPED + "\n")
    (tmp_path / "word").chmod(0o600)
    assert revealed(sudo_password_from=f"file:{tmp_path / 'word'}") == TYPED


def test_a_file_that_others_may_read_is_refused(tmp_path: Path) -> None:
    (tmp_path / "word").write_text(TYPED)
    (tmp_path / "word").chmod(0o644)
    with pytest.raises(StackError, match="Others may read") as caught:
        revealed(sudo_password_from=f"file:{tmp_path / 'word'}")
    assert caught.value.fix == f"Type: chmod 600 {tmp_path / 'word'}"


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("env:NOT_SET_ANYWHERE", "empty or not there"),
        ("file:/nowhere/word", "cannot be read"),
        ("env:", "not a reference"),
        (TYPED, "not a reference"),
    ],
)
def test_a_wrong_reference_says_so_and_is_not_repeated(reference: str, message: str) -> None:
    with pytest.raises(StackError, match=message) as caught:
        revealed(sudo_password_from=reference)
    assert TYPED not in str(caught.value)
    assert caught.value.exit_code == 2


def test_more_than_one_line_is_no_password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUDO_WORD", "one\ntwo")
    with pytest.raises(StackError, match="more than one line"):
        revealed(sudo_password_from="env:SUDO_WORD")


def test_both_ways_at_once_are_refused() -> None:
    with pytest.raises(StackError, match="together"):
        revealed(ask_sudo_password=True, sudo_password_from="env:X")


def test_without_a_terminal_nobody_is_asked() -> None:
    done = subprocess.run(
        [sys.executable, "-c", ASK], input=TYPED, capture_output=True, text=True, check=False
    )
    assert "There is no terminal to ask on" in done.stderr
    assert "--sudo-password-from env:NAME or file:PATH" in done.stderr


def test_on_a_terminal_it_is_asked_for_and_not_shown() -> None:
    outer, inner = pty.openpty()
    child = subprocess.Popen(
        [sys.executable, "-c", ASK], stdin=inner, stdout=inner, stderr=inner, start_new_session=True
    )
    os.close(inner)
    shown = b""
    while b"hosts: " not in shown:
        shown += os.read(outer, 1000)
    os.write(outer, TYPED.encode() + b"\n")
    while b"***" not in shown:
        shown += os.read(outer, 1000)
    assert child.wait(timeout=10) == 0
    os.close(outer)
    assert TYPED.encode() not in shown
    assert f"length {len(TYPED) + 1} ***".encode() in shown
