"""Files of the operator's machine are written whole, or stay as they were."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from pathlib import Path

import pytest

from infra import whole_file
from infra.errors import PrerequisiteError, StackError
from infra.inventory.facts_file import read_facts
from infra.spec.load import PROJECT
from infra.whole_file import append_line, kept_from_others, write_whole, writing_whole

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


# Each process adds one host and one line, and says what it could not.
ADDS = """
import sys
from pathlib import Path
from infra.inventory.facts_file import RecordedHost
from infra.tasks.facts_writing import add_facts
from infra.whole_file import append_line
number, facts, keys = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
for turn in range(5):
    name = f"{number}-{turn}"
    found = RecordedHost(
        address=f"10.0.{number}.{turn}", machine_id="", boot_id="", driver="", interface="eth0",
        page_size=4096, rdma_devices=(), gids={}, nvlink_domain="",
    )
    add_facts(facts, {name: found}, ())
    append_line(keys, f"{name} ssh-ed25519 AAAA")
"""


@pytest.mark.slow  # processes that import the product
def test_several_at_once_lose_nothing(tmp_path: Path) -> None:
    facts, keys = tmp_path / "mine.facts.yml", tmp_path / "known_hosts"
    running = [
        subprocess.Popen([sys.executable, "-c", ADDS, str(n), str(facts), str(keys)], cwd=PROJECT)
        for n in range(4)
    ]
    assert [process.wait() for process in running] == [0] * 4
    names = {f"{number}-{turn}" for number in range(4) for turn in range(5)}
    assert set(read_facts(facts)) == names
    lines = keys.read_text().splitlines()
    assert sorted(lines) == sorted(f"{name} ssh-ed25519 AAAA" for name in names)
    assert sorted(tmp_path.iterdir()) == sorted([facts, keys])


def test_whoever_writes_first_is_waited_for_and_not_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "hosts.yml"
    monkeypatch.setattr(whole_file, "LOCK_S", 0.05)
    with (
        kept_from_others(path),
        pytest.raises(PrerequisiteError, match="Another process holds") as told,
        kept_from_others(path),
    ):
        pass
    assert told.value.where == str(tmp_path)
    with kept_from_others(path):
        write_whole(path, "new")
    assert list(tmp_path.iterdir()) == [path]


def test_a_device_is_written_to_and_stays_one(tmp_path: Path) -> None:
    write_whole(Path("/dev/null"), "gone")
    assert Path("/dev/null").is_char_device()
    with pytest.raises(PrerequisiteError, match=r"^--to /dev/full: No space left on device"):
        write_whole(Path("/dev/full"), "much" * 10_000, option="--to")


def test_a_line_begins_where_the_last_one_has_no_end(tmp_path: Path) -> None:
    path = tmp_path / "ssh" / "known_hosts"
    append_line(path, "a")
    path.write_bytes(path.read_bytes().removesuffix(b"\n"))
    append_line(path, "b")
    assert path.read_text() == "a\nb\n"
    assert path.parent.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("error", [KeyboardInterrupt, ZeroDivisionError])
def test_whatever_interrupts_leaves_what_was_there(
    tmp_path: Path, error: type[BaseException]
) -> None:
    path = tmp_path / "hosts.yml"
    path.write_text("old")
    with contextlib.suppress(error), writing_whole(path) as file:
        file.write(b"half")
        raise error
    assert (path.read_text(), list(tmp_path.iterdir())) == ("old", [path])
