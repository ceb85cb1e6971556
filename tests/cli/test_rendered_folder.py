"""What `fab render` writes lies below one folder, whole, or nothing does."""

from __future__ import annotations

from pathlib import Path

import pytest

from infra.errors import StackError
from infra.tasks.rendered_folder import write_below


def test_all_files_are_written_or_none(tmp_path: Path) -> None:
    (tmp_path / "kept").write_text("old")
    (tmp_path / "file").write_text("old")
    with pytest.raises(StackError, match="no folder"):
        write_below(tmp_path, {"kept": "new", "made/deep/x": "new", "file/x": "new"})
    assert sorted(each.name for each in tmp_path.iterdir()) == ["file", "kept"]
    assert (tmp_path / "kept").read_text() == "old"
    write_below(tmp_path, {"kept": "new", "made/deep/x": "new"})
    assert (tmp_path / "made" / "deep" / "x").read_text() == "new"
    assert (tmp_path / "kept").read_text() == "new"


def test_a_planted_link_leads_nowhere(tmp_path: Path) -> None:
    outside, folder = tmp_path / "outside", tmp_path / "folder"
    outside.mkdir()
    folder.mkdir()
    (folder / "host").symlink_to(outside)
    with pytest.raises(StackError, match="a link"):
        write_below(folder, {"first": "new", "host/x": "new"})
    assert list(outside.iterdir()) == []
    assert [each.name for each in folder.iterdir()] == ["host"]


def test_a_link_in_a_files_place_is_replaced(tmp_path: Path) -> None:
    outside, folder = tmp_path / "outside", tmp_path / "folder"
    outside.write_text("old")
    folder.mkdir()
    (folder / "x").symlink_to(outside)
    write_below(folder, {"x": "new"})
    assert (outside.read_text(), (folder / "x").read_text()) == ("old", "new")


@pytest.mark.parametrize("name", ["../x", "/x", "a/../../x", "a//x", "./x", "", "a\0b"])
def test_no_name_leads_out(name: str, tmp_path: Path) -> None:
    with pytest.raises(StackError):
        write_below(tmp_path / "folder", {"fine": "new", name: "new"})
    assert list(tmp_path.iterdir()) == []
