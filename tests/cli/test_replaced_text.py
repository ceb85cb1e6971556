"""`fab replace-host` writes over nothing that somebody else has written meanwhile."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from infra.errors import PrerequisiteError
from infra.inventory.replacement import replace_machine
from infra.tasks.completion import Completion
from infra.tasks.options import Options
from infra.tasks.output import Output
from infra.tasks.replace_host import _writer

NEW = (("a", "192.0.2.8"), ("b", "192.0.2.9"))
TEXT = "all: {hosts: {a: {ansible_host: 192.0.2.1}, b: {ansible_host: 192.0.2.2}}}\n"


@pytest.fixture
def output() -> Output:
    return Output(
        wants_json=False,
        has_colour=False,
        complete=Completion(lambda: Options({})),
        stdout=io.StringIO(),
        stderr=io.StringIO(),
    )


def test_an_edit_of_what_is_there_is_written(tmp_path: Path, output: Output) -> None:
    path = tmp_path / "hosts.yml"
    path.write_text(TEXT)
    _writer(path, TEXT, replace_machine(TEXT, str(path), "a", "192.0.2.9"), output)()
    assert path.read_text() == TEXT.replace("192.0.2.1", "192.0.2.9")


def test_an_edit_of_what_was_there_before_another_one_is_refused(
    tmp_path: Path, output: Output
) -> None:
    path = tmp_path / "hosts.yml"
    path.write_text(TEXT)
    edits = [replace_machine(TEXT, str(path), name, new) for name, new in NEW]
    first, second = (_writer(path, TEXT, edit, output) for edit in edits)
    first()
    with pytest.raises(PrerequisiteError, match=r"changed since it was read\. Nothing was changed"):
        second()
    assert path.read_text() == edits[0].text
    assert list(tmp_path.iterdir()) == [path]
