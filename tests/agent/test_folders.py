"""Folders that others write: nothing that they put there leads root's hands elsewhere."""

from __future__ import annotations

import contextlib
import os
import stat
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from infra.agent.facts.write_probe import try_writing
from infra.agent.files import make_folders, replace_file
from infra.agent.folders import BESIDE
from infra.agent.host import Host, Refused
from infra.agent.trees import (
    MAX_DEPTH,
    Tree,
    is_believable,
    open_above,
    open_file,
    open_tree,
    walk,
)
from tests.needed import need_root

STRANGER = 65534
SWAPS = 400
PATIENCE = 100


@pytest.fixture
def theirs(tmp_path: Path) -> Path:
    """A folder that belongs to somebody else, who may do with it as he likes."""
    need_root("Only root is led elsewhere.")
    folder = tmp_path / "theirs"
    folder.mkdir(mode=0o777)
    os.chown(folder, STRANGER, STRANGER)
    return folder


@pytest.fixture
def canary(tmp_path: Path) -> Iterator[Path]:
    """A folder of root's outside; in the end it is as it was."""
    folder = tmp_path / "canary"
    (folder / "deep").mkdir(parents=True)
    (folder / "song").write_text("alive")
    (folder / "deep" / "song").write_text("alive")
    yield folder
    found = {str(p.relative_to(folder)): p.read_text() for p in folder.rglob("*") if p.is_file()}
    assert found == {"song": "alive", "deep/song": "alive"}


def plant(place: Path, target: Path) -> None:
    """A link of a stranger's."""
    place.symlink_to(target)
    os.chown(place, STRANGER, STRANGER, follow_symlinks=False)


def test_a_link_of_roots_below_a_strangers_folder_is_not_followed(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (tmp_path / "theirs" / "roots").mkdir(parents=True)
    (tmp_path / "theirs" / "roots" / "link").symlink_to(elsewhere)
    os.chown(tmp_path / "theirs", STRANGER, STRANGER)
    with pytest.raises(
        Refused, match="whoever may write in a folder above it may lead it anywhere"
    ):
        open_tree(str(tmp_path / "theirs" / "roots" / "link"))


def test_a_link_of_roots_in_a_folder_of_roots_is_followed(tmp_path: Path) -> None:
    (tmp_path / "mnt" / "nvme" / "kimi").mkdir(parents=True)
    (tmp_path / "models").symlink_to(tmp_path / "mnt" / "nvme")
    (tmp_path / "short").symlink_to("mnt/../models/./kimi")
    for name in ("models/kimi", "short"):
        with open_tree(str(tmp_path / name)) as folder:
            assert folder.is_roots
            folder.replace("file", b"x", 0o640)
    assert (tmp_path / "mnt/nvme/kimi/file").stat().st_mode & 0o777 == 0o640
    make_folders(str(tmp_path / "models" / "new" / "below"), 0o711)
    assert (tmp_path / "mnt/nvme/new").stat().st_mode & 0o777 == 0o711
    (tmp_path / "file").symlink_to("short/file")
    os.close(open_file(str(tmp_path / "file")))


def test_a_link_in_a_circle_ends(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(Refused, match="circle"):
        open_tree(str(tmp_path / "a"))


def test_a_strangers_link_is_followed_nowhere_on_the_way(theirs: Path, canary: Path) -> None:
    plant(theirs / "kimi", canary)
    plant(theirs / "file", canary / "song")
    with pytest.raises(Refused, match=f"uid {STRANGER} may lead it anywhere: remove it"):
        open_tree(str(theirs / "kimi" / "deep"))
    with pytest.raises(Refused, match="kimi"):
        make_folders(str(theirs / "kimi" / "new"))
    with pytest.raises(Refused):
        replace_file(str(theirs / "kimi" / "song"), b"dead", 0o644)
    with pytest.raises(Refused):
        open_file(str(theirs / "file"))
    with open_tree(str(theirs)) as folder:
        for flags in (os.O_RDONLY, os.O_RDWR | os.O_CREAT, os.O_WRONLY | os.O_APPEND):
            with pytest.raises(Refused):
                folder.open("file", flags)
        with pytest.raises(Refused):
            folder.status("file")
        with pytest.raises(Refused):
            folder.folder("kimi")
        folder.replace("file", b"ours", 0o600)  # in the place of the link
    assert (theirs / "file").read_text() == "ours"


def test_roots_own_link_in_a_strangers_folder_is_not_followed(theirs: Path, canary: Path) -> None:
    """The stranger may have moved it there from where it led to something of his."""
    (theirs / "kimi").symlink_to(canary)
    with pytest.raises(Refused, match=r"whoever may write in the folder .*uid 65534"):
        open_tree(str(theirs / "kimi"))


@pytest.mark.parametrize(("mode", "is_followed"), [(0o777, False), (0o1777, True), (0o755, True)])
def test_a_folder_that_all_may_write_keeps_links_where_it_is_sticky(
    tmp_path: Path, mode: int, is_followed: bool
) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    (tmp_path / "real").mkdir()
    (shared / "link").symlink_to(tmp_path / "real")
    shared.chmod(mode)
    if is_followed:
        open_tree(str(shared / "link")).__exit__()
        return
    with pytest.raises(Refused):
        open_tree(str(shared / "link"))


def test_a_file_with_another_name_is_not_written_to(theirs: Path, canary: Path) -> None:
    os.link(canary / "song", theirs / "kimi")
    with open_tree(str(theirs)) as folder:
        with pytest.raises(Refused, match="another name"):
            folder.open("kimi", os.O_WRONLY)
        folder.remove("kimi")


def test_a_pipe_or_a_folder_is_no_file_and_holds_nobody_up(theirs: Path) -> None:
    os.mkfifo(theirs / "pipe")
    (theirs / "folder").mkdir()
    with open_tree(str(theirs)) as folder:
        for flags in (os.O_RDONLY, os.O_RDWR):
            with pytest.raises(OSError, match="no regular file"):
                folder.open("pipe", flags)
        with pytest.raises(OSError, match=r"directory|no regular file"):
            folder.open("folder", os.O_RDONLY)


def test_what_is_removed_is_what_lies_there_and_no_more(theirs: Path, canary: Path) -> None:
    plant(theirs / "link", canary)
    (theirs / "tree" / "below").mkdir(parents=True)
    (theirs / "tree" / "below" / "file").touch()
    plant(theirs / "tree" / "link", canary)
    plant(theirs / "tree" / "below" / "song", canary / "song")
    with open_tree(str(theirs)) as folder:
        for name in ("link", "tree", "gone"):
            folder.remove(name)
        assert folder.names() == ()


def test_folders_without_end_are_an_error_and_no_crash(theirs: Path) -> None:
    with open_tree(str(theirs)) as folder:
        deep = "/".join(["d"] * (MAX_DEPTH + 20))
        folder.folder(deep, 0o755).__exit__()
        assert list(walk(folder)) == []
        with pytest.raises(OSError, match="folders within each other"):
            folder.remove("d")


@pytest.mark.parametrize("kind", ["link", "file", "their folder", "open folder", "nothing"])
def test_a_folder_of_our_own_is_made_where_something_else_lies(
    theirs: Path, canary: Path, kind: str
) -> None:
    place = theirs / "own"
    if kind == "link":
        plant(place, canary)
    elif kind == "file":
        place.write_text("x")
    elif kind != "nothing":
        place.mkdir()
        (place / "planted").write_text("x")
        os.chown(place, STRANGER if kind == "their folder" else 0, 0)
        place.chmod(0o777)
    with open_tree(str(theirs)) as folder:
        own, was_foreign = folder.own_folder("own")
        with own:
            assert (own.names(), was_foreign) == ((), kind != "nothing")
            own.replace("kept", b"", 0o644)
        again, was_foreign = folder.own_folder("own")
        with again:
            assert (again.names(), was_foreign) == (("kept",), False)


def test_only_what_root_alone_could_have_written_is_believed(theirs: Path, tmp_path: Path) -> None:
    ours = tmp_path / "ours"
    ours.mkdir()
    (ours / "file").touch()
    with open_tree(str(ours)) as folder:
        assert folder.is_roots
        assert is_believable(folder.status("file"))
        (ours / "file").chmod(0o666)
        assert not is_believable(folder.status("file"))
        (ours / "file").chmod(0o644)
        os.chown(ours / "file", STRANGER, 0)
        assert not is_believable(folder.status("file"))
    (theirs / "kimi").mkdir()
    with open_tree(str(theirs / "kimi")) as below:
        assert not below.is_roots  # its owner may put another one into its place
    ours.chmod(0o775)
    os.chown(ours, 0, 1000)
    with open_tree(str(ours)) as folder:
        assert not folder.is_roots


def test_a_place_behind_a_strangers_link_takes_no_probe(theirs: Path, canary: Path) -> None:
    plant(theirs / "models", canary)
    found = try_writing(Host(""), str(theirs / "models"))
    assert "may lead it anywhere" in str(found["error"])
    assert try_writing(Host(""), str(theirs))["error"] is None
    assert {path.name for path in theirs.iterdir()} == {"models"}


def swapping(place: Path, canary: Path, done: threading.Event) -> None:
    """A stranger who makes a folder a link and back, as fast as he can."""
    aside = place.with_name("aside")
    while not done.is_set():
        try:
            place.rename(aside)
            plant(place, canary)
            place.unlink()
            aside.rename(place)
        except OSError:  # it was removed meanwhile
            if place.is_symlink():
                place.unlink(missing_ok=True)
            if not place.exists():
                place.mkdir(exist_ok=True)


def write_in_own(folder: Tree) -> None:
    own, _ = folder.own_folder("tree")
    with own:
        own.replace("song", b"dead", 0o644)


def remove(folder: Tree) -> None:
    folder.remove("tree")


def write_below(folder: Tree) -> None:
    with folder.folder("tree", 0o755) as below:
        below.replace("song", b"dead", 0o644)
        below.remove("deep")


@pytest.mark.parametrize("work", [write_in_own, remove, write_below])
def test_nothing_outside_is_touched_while_somebody_swaps_folders_with_links(
    theirs: Path, canary: Path, work: Callable[[Tree], None]
) -> None:
    (theirs / "tree").mkdir()
    done = threading.Event()
    stranger = threading.Thread(target=swapping, args=(theirs / "tree", canary, done))
    stranger.start()
    tried = went_through = 0
    try:
        with open_tree(str(theirs)) as folder:
            # on a busy machine the stranger may sleep while his link lies there
            while tried < SWAPS or (went_through == 0 and tried < PATIENCE * SWAPS):
                tried += 1
                with contextlib.suppress(Refused, OSError):
                    work(folder)
                    went_through += 1
    finally:
        done.set()
        stranger.join()
    assert went_through > 0  # there was something to hit


def test_a_handle_is_closed_whatever_happens(theirs: Path, canary: Path) -> None:
    plant(theirs / "link", canary)
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(20):
        with pytest.raises(Refused):
            open_tree(str(theirs / "link" / "deep"))
        with pytest.raises(FileNotFoundError) as error:
            open_above(str(theirs / "gone" / "file"))
        assert error.value.filename == str(theirs / "gone")
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_a_nameless_file_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with open_tree(str(tmp_path)) as folder:
        monkeypatch.setattr(os, "O_TMPFILE", os.O_DIRECTORY | os.O_WRONLY)  # EISDIR, as without
        handle = folder.nameless()
        assert stat.S_ISREG(os.fstat(handle).st_mode)
        os.close(handle)
        assert folder.names() == ()


@pytest.mark.parametrize("kind", ["pipe", "folder", "link", "another mode", "another content"])
def test_what_lies_beside_a_file_and_is_not_what_we_laid_out_is_not_renamed_into_place(
    tmp_path: Path, kind: str
) -> None:
    beside = tmp_path / ("file" + BESIDE)
    if kind == "pipe":
        os.mkfifo(beside, 0o644)
    elif kind == "folder":
        beside.mkdir(0o755)
    elif kind == "link":
        (tmp_path / "there").touch(0o644)
        beside.symlink_to(tmp_path / "there")
    else:
        beside.write_bytes(b"x" if kind == "another content" else b"")
        beside.chmod(0o644 if kind == "another content" else 0o666)
    before = len(list(Path("/proc/self/fd").iterdir()))
    with contextlib.suppress(IsADirectoryError):
        replace_file(str(tmp_path / "file"), b"", 0o644)
    assert len(list(Path("/proc/self/fd").iterdir())) == before
    found = tmp_path / "file"
    assert kind == "folder" or stat.S_ISREG(found.lstat().st_mode)
    assert found.exists() == (kind != "folder")
    assert kind == "folder" or (found.read_bytes(), found.stat().st_mode & 0o777) == (b"", 0o644)
