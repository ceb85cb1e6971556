"""Files of the operator's machine are written whole, or stay as they were."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from infra.errors import StackError
from infra.spec.load import PROJECT
from infra.whole_file import write_whole

# No file of this process takes a byte.
NO_ROOM = """
import resource, signal, sys
from pathlib import Path
from infra.errors import PrerequisiteError
from infra.whole_file import write_whole
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
try:
    write_whole(Path(sys.argv[1]), "new")
except PrerequisiteError as error:
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    print(error.where, error.what)
"""


def test_a_file_is_replaced_and_keeps_its_mode(tmp_path: Path) -> None:
    path = tmp_path / "hosts.yml"
    path.write_text("old")
    path.chmod(0o640)
    write_whole(path, "new")
    assert path.read_text() == "new"
    assert path.stat().st_mode & 0o777 == 0o640
    assert list(tmp_path.iterdir()) == [path]


def test_a_link_stays_one(tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    link = tmp_path / "hosts.yml"
    link.symlink_to("kept/hosts.yml")
    write_whole(link, "new")
    assert link.is_symlink()
    assert (tmp_path / "kept" / "hosts.yml").read_text() == "new"


def test_what_cannot_be_written_whole_leaves_nothing_beside(tmp_path: Path) -> None:
    place = tmp_path / "hosts.yml"
    place.mkdir()
    with pytest.raises(StackError, match="directory"):
        write_whole(place, "new")
    assert list(tmp_path.iterdir()) == [place]


def test_a_disk_without_room_leaves_what_was_there(tmp_path: Path) -> None:
    place = tmp_path / "hosts.yml"
    place.write_text("old")
    done = subprocess.run(
        [sys.executable, "-c", NO_ROOM, str(place)], cwd=PROJECT, check=False, capture_output=True
    )
    assert done.stdout.decode().strip() == f"{place} File too large.", done.stderr
    assert place.read_text() == "old"
    assert list(tmp_path.iterdir()) == [place]
