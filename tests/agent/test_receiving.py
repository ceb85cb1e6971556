"""A file that arrives in pieces: gone on from, whole and verified or not there, and removed again."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from infra.remote.agent_call import agent_input, find_report
from tests.agent.stubborn_host import StubbornHost

CONTENT = os.urandom(300_000)
SHA256 = hashlib.sha256(CONTENT).hexdigest()
TARGET = "/models/.moe-received/0123"
PARTIAL = "/models/.moe-received/.partial-0123/image.tar"
PIECE = 100_000


def ask(host: StubbornHost, action: str, **keys: object) -> dict[str, object]:
    request = {"target": TARGET, "name": "image.tar", "size_bytes": len(CONTENT), "sha256": SHA256}
    return host.ask("receive", **{**request, "action": action, **keys})


def send(host: StubbornHost, content: bytes = CONTENT, begin: int = 0) -> None:
    for offset in range(begin, len(content), PIECE):
        piece = content[offset : offset + PIECE]
        report = ask(host, "write", offset=offset, body=piece)
        assert report["num_bytes"] == offset + len(piece)


def test_it_is_there_whole_and_can_be_handed_on(host: StubbornHost) -> None:
    before = ask(host, "look")
    assert (before["is_whole"], before["num_bytes"]) == (False, 0)
    assert int(str(before["free_bytes"])) > 0
    send(host)
    assert not Path(host.path(TARGET)).exists()
    assert ask(host, "publish")["is_whole"]
    assert ask(host, "look")["is_whole"]
    assert Path(host.path(f"{TARGET}/image.tar")).read_bytes() == CONTENT
    job = {"job": "image-0123", "target": TARGET, "repository": "a:1"}
    found = host.ask("staging", action="look", checkpoints=[job], with_files=True)["checkpoints"]
    assert isinstance(found, list)
    assert found[0]["state"] == "complete"
    assert found[0]["files"] == [
        {"name": "image.tar", "size_bytes": len(CONTENT), "sha256": SHA256}
    ]


def test_one_that_was_cut_off_is_gone_on_from(host: StubbornHost) -> None:
    send(host, CONTENT[:250_000])
    assert ask(host, "look")["num_bytes"] == 250_000
    send(host, begin=200_000)  # the same bytes again: an answer was lost
    assert ask(host, "publish")["is_whole"]


def test_a_hole_is_refused(host: StubbornHost) -> None:
    report = ask(host, "write", offset=5, body=b"x")
    assert "5 of the bytes before 5 are missing here" in json.dumps(report)
    assert not Path(host.path(PARTIAL)).exists()


def test_what_arrived_damaged_is_removed_and_never_in_its_place(host: StubbornHost) -> None:
    send(host, CONTENT[:-1] + b"?")
    report = ask(host, "publish")
    assert "is not what was sent" in json.dumps(report)
    assert not Path(host.path(PARTIAL)).exists()
    assert not Path(host.path(TARGET)).exists()
    assert ask(host, "look")["num_bytes"] == 0


def test_one_that_is_there_is_not_written_twice(host: StubbornHost) -> None:
    send(host)
    ask(host, "publish")
    inode = Path(host.path(f"{TARGET}/image.tar")).stat().st_ino
    assert ask(host, "publish")["is_whole"]
    assert Path(host.path(f"{TARGET}/image.tar")).stat().st_ino == inode


@pytest.mark.parametrize("is_published", [False, True])
def test_it_is_removed_with_the_folder_that_was_made(
    host: StubbornHost, is_published: bool
) -> None:
    host.put("/models/kimi/config.json", "{}")
    found = host.contents()
    send(host)
    if is_published:
        ask(host, "publish")
    ask(host, "discard")
    assert host.contents() == found
    ask(host, "discard")


@pytest.mark.parametrize("target", ["/models/kimi", "/", "models/.moe-received/a", "/etc"])
def test_no_other_folder_is_written_or_removed(host: StubbornHost, target: str) -> None:
    host.put("/models/kimi/config.json", "{}")
    for action in ("look", "write", "publish", "discard"):
        report = ask(host, action, target=target, offset=0, body=b"x")
        assert "is no folder of received files" in json.dumps(report)
    assert Path(host.path("/models/kimi/config.json")).exists()


@pytest.mark.parametrize("name", ["", "../x", "a/b", ".hidden"])
def test_no_other_name_is_written(host: StubbornHost, name: str) -> None:
    assert "is not the name of a file" in json.dumps(
        ask(host, "write", name=name, offset=0, body=b"x")
    )


def test_bytes_travel_behind_the_request_as_they_are(tmp_path: Path) -> None:
    """The program as it is carried to a host, with a piece that holds every byte and the marks of a report."""
    body = bytes(range(256)) * 300 + b"\nmoe-infra-report 4\n{}\n"
    request = {
        "operation": "receive", "action": "write", "target": str(tmp_path / ".moe-received/1"), "name": "a",
        "size_bytes": len(body), "sha256": SHA256, "offset": 0, "body": body,
    }  # fmt: skip
    script = "import sys,zlib;i=sys.stdin.buffer;exec(zlib.decompress(i.read(int(i.readline()))))"
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", script, "piped"],
        input=agent_input(request, timeout_s=20), capture_output=True, check=True, timeout=30,
    )  # fmt: skip
    assert find_report(done.stdout) == {"num_bytes": len(body), "schema_version": 1}
    assert (tmp_path / ".moe-received/.partial-1/a").read_bytes() == body
