"""Staging as root in a folder that others write: what they put there harms nobody, and is not believed."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from infra.agent.host import Refused
from infra.agent.item import parse_item
from infra.agent.kinds.images import bring_image
from infra.agent.staging.manifest import VERIFIED
from infra.agent.staging.sources import open_origin
from infra.agent.staging.work import Work
from tests.agent.stubborn_host import StubbornHost
from tests.agent.test_folders import STRANGER, canary, plant, swapping, theirs

__all__ = ["canary", "theirs"]  # fixtures

CONTENT = {"model.safetensors": b"w" * 4000, "sub/config.json": b"{}"}
FILES = [
    {"name": name, "size_bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    for name, data in CONTENT.items()
]
REVISION = "abc"


@pytest.fixture
def host(theirs: Path) -> StubbornHost:
    """A host whose weights path belongs to somebody else."""
    made = StubbornHost(theirs.parent)
    for name, data in CONTENT.items():
        made.put(f"/source/{name}", data)
    return made


@pytest.fixture
def roots(host: StubbornHost) -> str:
    """A weights path that is root's own."""
    Path(host.path("/models")).mkdir()
    return "/models"


def stage(host: StubbornHost, above: str, **keys: object) -> dict[str, Any]:
    """The status of a staging that has ended."""
    request = {
        "target": f"{above}/kimi/{REVISION}",
        "files": FILES,
        "source": {"kind": "folder", "paths": ["/source"]},
        "patience_s": 0.2,
        "linger_s": 0.01,
        **keys,
    }
    status = host.put("/run/job/status.json", "{}")
    with contextlib.suppress(Refused, OSError):
        Work(request, host, str(status)).run()
    found: dict[str, Any] = json.loads(status.read_text())
    return found


def weights(host: StubbornHost, above: str) -> dict[str, object]:
    target = f"{above}/kimi/{REVISION}"
    item: dict[str, object] = {"id": "w", "group": "weights", "kind": "weights", "target": target}
    return host.state("check", [item])["w"]


def look(host: StubbornHost, above: str) -> dict[str, Any]:
    wanted = {"job": "kimi-abc", "target": f"{above}/kimi/{REVISION}"}
    report = host.ask("staging", action="look", checkpoints=[wanted], with_files=True, ports=[])
    rows: Any = report["checkpoints"]
    found: dict[str, Any] = rows[0]
    return found


@pytest.mark.parametrize("name", [f".partial-{REVISION}", REVISION, "kimi"])
def test_a_planted_link_leads_no_staging_elsewhere(
    host: StubbornHost, theirs: Path, canary: Path, name: str
) -> None:
    place = theirs / "kimi" if name == "kimi" else theirs / "kimi" / name
    place.parent.mkdir(exist_ok=True)
    plant(place, canary)
    status = stage(host, "/theirs")
    if name.startswith(".partial"):  # it is removed, itself, and a folder of ours is made
        assert status["phase"] == "complete"
        assert any("it was not root's own" in note for note in status["notes"])
    else:
        assert status["phase"] == "failed"
        assert "may lead it anywhere: remove it" in status["problem"]


def test_a_planted_lock_is_not_written_to(host: StubbornHost, theirs: Path, canary: Path) -> None:
    (theirs / "kimi").mkdir()
    lock = theirs / "kimi" / f".lock-{REVISION}"
    plant(lock, canary / "song")
    assert "link" in stage(host, "/theirs")["problem"]
    lock.unlink()
    os.link(canary / "song", lock)
    assert "another name" in stage(host, "/theirs")["problem"]
    lock.unlink()
    assert stage(host, "/theirs")["phase"] == "complete"


def test_planted_files_of_an_earlier_run_are_not_taken_up(
    host: StubbornHost, theirs: Path, canary: Path
) -> None:
    partial = theirs / "kimi" / f".partial-{REVISION}"
    partial.mkdir(parents=True)
    os.chown(partial, STRANGER, STRANGER)
    plant(partial / "model.safetensors", canary / "song")
    plant(partial / "sub", canary / "deep")
    os.link(canary / "song", partial / "left-over")
    assert stage(host, "/theirs")["phase"] == "complete"
    target = theirs / "kimi" / REVISION
    assert {p.stat().st_uid for p in target.rglob("*")} == {0}


@pytest.mark.parametrize("name", ["model.safetensors", "sub", "manifest.json", VERIFIED])
def test_planted_links_in_a_checkpoint_are_replaced_themselves(
    host: StubbornHost, theirs: Path, canary: Path, name: str
) -> None:
    assert stage(host, "/theirs")["phase"] == "complete"
    place = theirs / "kimi" / REVISION / name
    if place.is_dir():
        (place / "config.json").unlink()
        place.rmdir()
    else:
        place.unlink()
    plant(place, canary if name == "sub" else canary / "song")
    status = stage(host, "/theirs")
    assert (status["phase"] == "complete") is (name != "sub")
    assert "link" in (status["problem"] or "link")


def test_what_others_could_have_written_is_read_again_and_said(
    host: StubbornHost, theirs: Path
) -> None:
    stage(host, "/theirs")
    assert (look(host, "/theirs")["state"], weights(host, "/theirs")["state"]) == (
        "unverified",
        "ok",
    )
    assert "by their sizes alone" in str(weights(host, "/theirs")["why"])
    shard = theirs / "kimi" / REVISION / "model.safetensors"
    stamp = shard.stat().st_mtime_ns
    shard.write_bytes(b"e" * 4000)
    os.utime(shard, ns=(stamp, stamp))  # so that it looks as it was verified
    status = stage(host, "/theirs")
    assert status["phase"] == "complete"
    assert "model.safetensors: sha256 is" in status["damaged"][0]
    assert any("every file is read again" in note for note in status["notes"])
    assert shard.read_bytes() == CONTENT["model.safetensors"]


def test_what_root_alone_could_have_written_is_not_read_again(
    host: StubbornHost, roots: str
) -> None:
    stage(host, roots)
    assert look(host, roots)["state"] == "complete"
    status = stage(host, roots)
    assert (status["phase"], status["notes"], status["damaged"]) == ("complete", [], [])
    assert "sizes alone" not in str(weights(host, roots)["why"])


@pytest.mark.parametrize("spoil", ["note", "file", "folder"])
def test_one_way_in_is_enough_for_doubt(host: StubbornHost, roots: str, spoil: str) -> None:
    stage(host, roots)
    target = Path(host.path(f"{roots}/kimi/{REVISION}"))
    places = {"note": target / VERIFIED, "file": target / "model.safetensors", "folder": target}
    os.chown(places[spoil], STRANGER, 0)
    assert look(host, roots)["state"] == "unverified"
    assert str(places[spoil].name) in look(host, roots)["wrong"][0]


def test_a_source_folder_shows_no_file_that_only_root_reads(
    host: StubbornHost, theirs: Path, canary: Path
) -> None:
    (canary / "song").chmod(0o600)
    (theirs / "usb").mkdir()
    plant(theirs / "usb" / "config.json", canary / "song")
    (theirs / "usb" / "a.safetensors").write_bytes(b"x")
    source = open_origin({"kind": "folder", "paths": ["/theirs/usb"]}, host, 1.0)
    with pytest.raises(Refused, match="may lead it anywhere"):
        source.open_file("config.json", 0)
    with pytest.raises(Refused, match="may lead it anywhere"):
        source.list_files()
    with source.open_file("a.safetensors", 0) as stream:
        assert stream.read() == b"x"


@pytest.fixture
def stranger(theirs: Path, canary: Path) -> Iterator[None]:
    """Swaps the folder in which a checkpoint arrives with a link, and back, all the time."""
    (theirs / "kimi").mkdir()
    done = threading.Event()
    place = theirs / "kimi" / f".partial-{REVISION}"
    thread = threading.Thread(target=swapping, args=(place, canary, done))
    thread.start()
    yield
    done.set()
    thread.join()


@pytest.mark.usefixtures("stranger")
def test_nothing_outside_is_touched_by_stagings_while_somebody_swaps(
    host: StubbornHost, theirs: Path, canary: Path
) -> None:
    for _ in range(15):
        status = stage(host, "/theirs")
        assert status["phase"] in ("complete", "failed")
        host.ask("receive", **RECEIVE, action="discard", target=f"/theirs/kimi/{REVISION}")
        with pytest.raises(FileNotFoundError):
            (canary / "model.safetensors").stat()


SENT = b"an archive of an image"
RECEIVE = {"name": "song", "size_bytes": len(SENT), "sha256": hashlib.sha256(SENT).hexdigest()}


@pytest.mark.parametrize("name", [".partial-1", "1"])
def test_an_archive_does_not_arrive_elsewhere(
    host: StubbornHost, theirs: Path, canary: Path, name: str
) -> None:
    target = "/theirs/.moe-received/1"
    (theirs / ".moe-received").mkdir()
    plant(theirs / ".moe-received" / name, canary)
    host.ask("receive", **RECEIVE, action="write", target=target, offset=0, body=SENT)
    host.ask("receive", **RECEIVE, action="publish", target=target)
    assert host.ask("receive", **RECEIVE, action="discard", target=target)["is_whole"] is False
    assert not (theirs / ".moe-received").exists()


def test_an_archive_behind_a_strangers_link_is_not_loaded(
    host: StubbornHost, theirs: Path, canary: Path
) -> None:
    plant(theirs / "image.tar", canary / "song")
    details = {"runtime": "docker", "reference": "x:1", "archive": "/theirs/image.tar"}
    item = parse_item({"id": "i", "group": "images", "kind": "image", **details})
    with pytest.raises(Refused, match="may lead it anywhere"):
        bring_image(host, item, "image", None)
