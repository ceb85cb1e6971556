"""Files that people name are read whole, within a bound, or refused with the reason."""

from __future__ import annotations

import ast
import os
from pathlib import Path

import pytest

from infra.spec.load import PROJECT
from infra.spec.text_file import read_bytes, read_text

# Ours: data of the package, records of this machine, what only developers run.
OWN = (
    "infra/agent/",
    "infra/catalog/",
    "infra/packages/",
    "infra/rehearsal/",
    "infra/spec/plain_yaml.py",
    "infra/spec/text_file.py",
    "infra/launch/lease.py",
    "infra/launch/preflight/group_collectives/starting.py",
)


def test_a_text_comes_whole_with_newlines(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes("größe\r\nx\ry\n".encode())
    assert read_text(path) == "größe\nx\ny\n"
    assert read_text(path, max_bytes=path.stat().st_size)
    assert read_text(Path("/dev/null")) == ""


def test_one_byte_more_than_the_limit_is_refused_with_both_numbers(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_text("12345")
    with pytest.raises(OSError, match="larger than 4 bytes, it has 5 bytes"):
        read_text(path, max_bytes=4)


def test_a_file_that_is_larger_than_any_memory_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.touch()
    os.truncate(path, 1 << 40)
    with pytest.raises(OSError, match="it has 1099511627776 bytes"):
        read_bytes(path)


def test_what_says_nothing_of_its_size_is_bounded_too() -> None:
    with pytest.raises(OSError, match="larger than 1 bytes"):
        read_bytes(Path("/proc/self/status"), max_bytes=1)


def test_what_is_no_ordinary_file_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/zero")):
        with pytest.raises(OSError, match="it is no ordinary file"):
            read_text(path)
    with pytest.raises(IsADirectoryError):
        read_text(tmp_path)


def test_what_people_name_is_read_through_this_door_alone() -> None:
    found = {
        name
        for path in (PROJECT / "infra").rglob("*.py")
        if not (name := str(path.relative_to(PROJECT))).startswith(OWN) and _reads(path)
    }
    assert found == set()


def _reads(path: Path) -> bool:
    """Whether a module calls `Path.read_text` or `Path.read_bytes`."""
    calls = (
        node.func.attr
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
    )
    return not {"read_text", "read_bytes"}.isdisjoint(calls)
