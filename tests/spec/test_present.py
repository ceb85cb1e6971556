"""Files that anybody may have named."""

from __future__ import annotations

from pathlib import Path

from infra.spec.present import is_file


def test_a_file_is_there_and_a_folder_is_none(tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    assert is_file(tmp_path / "a")
    assert not is_file(tmp_path)
    assert not is_file(tmp_path / "b")


def test_a_name_that_no_file_can_have_is_not_there(tmp_path: Path) -> None:
    assert not is_file(tmp_path / ("x" * 300))
