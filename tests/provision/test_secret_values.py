"""Secrets that are read from the operator's files and variables, and why some are not."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from infra.errors import PrerequisiteError, StackError
from infra.provision.secret_values import secret_values
from infra.spec.secret_file import MAX_BYTES


def read(path: Path) -> str:
    return secret_values({"api_key": {"file": str(path)}})["api_key"]


def test_a_file_gives_its_text_without_the_white_space_around_it(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("  sesame\n")
    assert read(tmp_path / "key") == "sesame"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "No such file"),
        (b"", "is empty"),
        (b" \n", "is empty"),
        (b"\xff\xfe", "no UTF-8 text"),
        (b"k" * (MAX_BYTES + 1), f"has {MAX_BYTES + 1} bytes"),
    ],
)
def test_a_file_without_a_secret_is_a_missing_prerequisite(
    content: bytes | None, said: str, tmp_path: Path
) -> None:
    path = tmp_path / "key"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(PrerequisiteError, match=said) as caught:
        read(path)
    assert caught.value.exit_code == 3
    assert caught.value.where == "secrets.api_key"
    assert str(path) in caught.value.what


@pytest.mark.parametrize("kind", ["folder", "pipe", "device"])
def test_what_is_no_file_is_not_opened(kind: str, tmp_path: Path) -> None:
    path = Path("/dev/zero") if kind == "device" else tmp_path / kind
    if kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)  # whoever opens it waits for a writer
    with pytest.raises(PrerequisiteError, match="is no regular file"):
        read(path)


def test_a_variable_that_is_not_set_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    references = {"api_key": {"env": "A_KEY"}}
    monkeypatch.setenv("A_KEY", "sesame")
    assert secret_values(references) == {"api_key": "sesame"}
    monkeypatch.delenv("A_KEY")
    with pytest.raises(StackError, match="the variable A_KEY"):
        secret_values(references)
