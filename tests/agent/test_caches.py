"""What engines compiled for a stack: what of it is told, and what is removed."""

from __future__ import annotations

import io
import shutil
import tarfile
from pathlib import Path

import pytest

from infra.agent.caches import answer
from infra.agent.host import Finished, Host, Refused
from infra.agent.staging.manifest import parse_manifest, wrong_files


def compiled(root: Path, stack: str, image: str, size: int) -> Path:
    file = root / "var/cache/moe-infra" / stack / "compile" / "h200" / image / "vllm" / "graph"
    file.parent.mkdir(parents=True)
    file.write_bytes(b"x" * size)
    return file


class Runtime(Host):
    """A host on which a reference means an image."""

    def __init__(self, root: Path, image: str) -> None:
        super().__init__(str(root))
        self.image = image

    def run(self, argv: list[str], *_: object) -> Finished:
        assert argv == ["docker", "image", "inspect", "--format", "{{.Id}}", "an/image:tag"]
        return Finished(0, f"sha256:{self.image}\n", "")


def ask(root: Path, action: str, stack: str = "s") -> dict[str, object]:
    return answer({"action": action, "stack": stack}, Host(str(root)))


def hand_on(root: Path, action: str, image: str = "aa", known: str = "aa") -> dict[str, object]:
    request = {"action": action, "stack": "s", "accelerator": "h200", "image": image}
    request |= {"runtime": "docker", "reference": "an/image:tag"}
    return answer(request, Runtime(root, known))


def packed_for(tmp_path: Path) -> tuple[Path, Path]:
    """A host that has packed what its engines compiled, and another one that has fetched the archive."""
    first, second = tmp_path / "first", tmp_path / "second"
    file = compiled(first, "s", "aa", 3)
    (file.parent / "rank_0").mkdir()
    (file.parent / "rank_0" / "kernel.so").write_bytes(b"k" * 7)
    hand_on(first, "pack")
    archive = Path("var/cache/moe-infra/s/packed/h200/aa")
    shutil.copytree(first / archive, second / archive)
    return first, second


def files_below(root: Path) -> dict[str, int]:
    below = root / "var/cache/moe-infra/s/compile/h200"
    return {
        str(path.relative_to(below)): path.stat().st_size
        for path in below.rglob("*")
        if path.is_file()
    }


def test_every_image_is_told_with_its_size(tmp_path: Path) -> None:
    compiled(tmp_path, "s", "aa", 3)
    compiled(tmp_path, "s", "bb", 5)
    assert ask(tmp_path, "look")["caches"] == [
        {"accelerator": "h200", "image": "aa", "num_bytes": 3},
        {"accelerator": "h200", "image": "bb", "num_bytes": 5},
    ]


def test_what_a_stack_compiled_goes_and_that_of_others_stays(tmp_path: Path) -> None:
    own, other = compiled(tmp_path, "s", "aa", 3), compiled(tmp_path, "t", "aa", 5)
    assert ask(tmp_path, "clear")["removed_bytes"] == 3
    assert not own.exists()
    assert other.exists()
    assert ask(tmp_path, "clear")["removed_bytes"] == 0
    assert ask(tmp_path, "look")["caches"] == []


def test_where_nothing_was_compiled_nothing_is_told(tmp_path: Path) -> None:
    assert ask(tmp_path, "look")["caches"] == []
    assert ask(tmp_path, "clear")["removed_bytes"] == 0


@pytest.mark.parametrize("stack", ["", "..", "a/b", "/etc", "."])
def test_a_name_that_is_a_path_is_refused(stack: str, tmp_path: Path) -> None:
    with pytest.raises(Refused, match="not the name of a stack"):
        answer({"action": "clear", "stack": stack}, Host(str(tmp_path)))


def test_a_link_in_its_place_goes_and_leads_nowhere(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").touch()
    folder = tmp_path / "var/cache/moe-infra"
    folder.mkdir(parents=True)
    (folder / "s").symlink_to(outside)
    ask(tmp_path, "clear")
    assert (outside / "kept").exists()
    assert not (folder / "s").is_symlink()


def test_what_one_host_compiled_another_one_finds(tmp_path: Path) -> None:
    first, second = packed_for(tmp_path)
    assert hand_on(second, "unpack")["num_files"] == 2
    assert (
        files_below(second)
        == files_below(first)
        == {"aa/vllm/graph": 3, "aa/vllm/rank_0/kernel.so": 7}
    )
    for host in (first, second):
        hand_on(host, "drop")
        assert not (host / "var/cache/moe-infra/s/packed").exists()
        assert ask(host, "look")["caches"] == [
            {"accelerator": "h200", "image": "aa", "num_bytes": 10}
        ]


def test_an_archive_is_a_whole_checkpoint_to_those_who_fetch_it(tmp_path: Path) -> None:
    first, _ = packed_for(tmp_path)
    target = "/var/cache/moe-infra/s/packed/h200/aa"
    entries = parse_manifest((first / target[1:] / "manifest.json").read_bytes())
    assert [entry.name for entry in entries] == ["compile.tar"]
    assert entries[0].sha256
    assert wrong_files(Host(str(first)), target, entries)[0] == []


def test_what_another_image_compiled_is_refused(tmp_path: Path) -> None:
    _, second = packed_for(tmp_path)
    with pytest.raises(
        Refused, match="it was compiled by the image aa, and an/image:tag is bb here"
    ):
        hand_on(second, "unpack", known="bb")
    assert files_below(second) == {}


def test_a_host_that_has_begun_keeps_its_own(tmp_path: Path) -> None:
    _, second = packed_for(tmp_path)
    own = compiled(second, "s", "aa", 5)
    assert hand_on(second, "unpack")["num_files"] == 0
    assert own.stat().st_size == 5


def test_a_folder_that_a_start_has_only_made_is_filled(tmp_path: Path) -> None:
    """It may be mounted already: it stays the same folder."""
    _, second = packed_for(tmp_path)
    folder = second / "var/cache/moe-infra/s/compile/h200/aa"
    folder.mkdir(parents=True)
    inode = folder.stat().st_ino
    assert hand_on(second, "unpack")["num_files"] == 2
    assert folder.stat().st_ino == inode


def test_nothing_to_pack_is_said(tmp_path: Path) -> None:
    with pytest.raises(Refused, match="nothing is compiled here for h200/aa"):
        hand_on(tmp_path, "pack")


@pytest.mark.parametrize("name", ["../../../outside", "/outside", "a/../../outside", "a//b"])
def test_an_archive_puts_nothing_outside(name: str, tmp_path: Path) -> None:
    archive = tmp_path / "var/cache/moe-infra/s/packed/h200/aa/compile.tar"
    archive.parent.mkdir(parents=True)
    with tarfile.open(archive, "w") as stream:
        member = tarfile.TarInfo(name)
        member.size = 1
        stream.addfile(member, io.BytesIO(b"x"))
    with pytest.raises(Refused, match="no file below it"):
        hand_on(tmp_path, "unpack")
    assert not (tmp_path / "outside").exists()
    assert files_below(tmp_path) == {}


def test_a_link_in_an_archive_is_refused(tmp_path: Path) -> None:
    archive = tmp_path / "var/cache/moe-infra/s/packed/h200/aa/compile.tar"
    archive.parent.mkdir(parents=True)
    with tarfile.open(archive, "w") as stream:
        member = tarfile.TarInfo("vllm")
        member.type, member.linkname = tarfile.SYMTYPE, "/etc"
        stream.addfile(member)
    with pytest.raises(Refused, match="no file below it"):
        hand_on(tmp_path, "unpack")
