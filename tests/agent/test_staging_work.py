"""Stagings: fetched, verified, resumed, repaired, passed on; and everything that an origin does wrong."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import io
import json
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from infra.agent.folders import FOLDER_MODE
from infra.agent.host import Refused
from infra.agent.staging import fetching, peers
from infra.agent.staging.manifest import row_of
from infra.agent.staging.place import revision_lock
from infra.agent.staging.sources import open_origin
from infra.agent.staging.work import Work
from infra.agent.trees import open_above
from tests.agent.simulated_hub import Hub
from tests.agent.stubborn_host import StubbornHost
from tests.ports import free_port

# of this process alone: the same tests run beside each other in several workers
PORT = free_port()

SHARDS = {f"model-{n:05d}.safetensors": bytes([n]) * (300_000 + n) for n in range(1, 5)}
FILES = {**SHARDS, "config.json": b'{"a": 1}', "sub/tokenizer.model": b"words"}
SHARD = "model-00002.safetensors"
TARGET = "/models/kimi/abc"
PARTIAL = "/models/kimi/.partial-abc"


@pytest.fixture
def hub() -> Iterator[Hub]:
    made = Hub(("127.0.0.1", 0), dict(FILES))
    threading.Thread(target=made.serve_forever, args=(0.01,), daemon=True).start()
    yield made
    made.shutdown()
    made.server_close()


def request(hub: Hub, host: StubbornHost, **keys: object) -> dict[str, Any]:
    source = {"kind": "huggingface", "endpoint": hub.url, "repository": "o/k", "revision": "main"}
    listing = open_origin(source, host, 5.0).list_files()
    return {
        "target": TARGET,
        "files": [row_of(entry) for entry in listing.files],
        "repository": "o/k",
        "revision": "abc",
        "source": source,
        "patience_s": 0.3,
        "silent_s": 2.0,
        "linger_s": 0.01,
        **keys,
    }


def stage(host: StubbornHost, asked: dict[str, Any]) -> dict[str, Any]:
    """Run a staging to its end; its last status."""
    status = host.put("/run/job/status.json", "{}")
    work = Work(asked, host, str(status))
    try:
        work.run()
    except (Refused, OSError):
        assert work.phase == "failed"
    found: dict[str, Any] = json.loads(status.read_text())
    return found


def staged(host: StubbornHost) -> dict[str, bytes]:
    folder = Path(host.path(TARGET))
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.name not in ("manifest.json", ".verified.json")
    }


def test_a_checkpoint_arrives_whole_with_a_manifest(hub: Hub, host: StubbornHost) -> None:
    status = stage(host, request(hub, host))
    assert (status["phase"], status["files_done"]) == ("complete", len(FILES))
    assert staged(host) == FILES
    manifest = json.loads(Path(host.path(f"{TARGET}/manifest.json")).read_text())
    by_name = {row["name"]: row for row in manifest["files"]}
    assert by_name["config.json"] == {
        "name": "config.json",
        "size_bytes": 8,
        "sha256": hashlib.sha256(FILES["config.json"]).hexdigest(),
    }
    assert manifest["repository"] == "o/k"
    assert [one.name for one in Path(host.path("/models/kimi")).iterdir()] == ["abc"]
    item: dict[str, object] = {"id": "w", "group": "weights", "kind": "weights", "target": TARGET}
    assert host.state("check", [item])["w"]["state"] == "ok"


def test_a_second_run_fetches_and_reads_nothing(hub: Hub, host: StubbornHost) -> None:
    stage(host, request(hub, host))
    hub.asked.clear()
    status = stage(host, request(hub, host))
    assert (status["phase"], hub.fetched()) == ("complete", [])


def test_an_interrupted_run_goes_on_where_it_was(hub: Hub, host: StubbornHost) -> None:
    hub.spoiling = {"cut": 100_000, "status": None}
    hub.files = dict(FILES)
    asked = request(hub, host)
    for name, content in SHARDS.items():
        host.put(f"{PARTIAL}/{name}", content[:200_000])
    host.put(f"{PARTIAL}/left-over.bin", b"x")
    hub.spoiling = {}
    hub.headers_seen.clear()
    assert stage(host, asked)["phase"] == "complete"
    ranges = [seen.get("range") for seen in hub.headers_seen]
    assert ranges.count("bytes=200000-") == len(SHARDS)
    assert staged(host) == FILES


def test_connections_that_end_early_are_taken_up_again(hub: Hub, host: StubbornHost) -> None:
    asked = request(hub, host, patience_s=20.0)
    hub.spoiling = {"cut": 160_000}
    assert stage(host, asked)["phase"] == "complete"
    assert staged(host) == FILES


def test_a_damaged_shard_alone_is_fetched_again(hub: Hub, host: StubbornHost) -> None:
    stage(host, request(hub, host))
    host.put(f"{TARGET}/{SHARD}", b"y" * len(FILES[SHARD]))
    hub.asked.clear()
    status = stage(host, request(hub, host))
    assert hub.fetched() == [SHARD]
    assert SHARD in status["damaged"][0]
    assert staged(host) == FILES
    assert [one.name for one in Path(host.path("/models/kimi")).iterdir()] == ["abc"]


def test_what_lies_there_without_a_manifest_is_taken_on(hub: Hub, host: StubbornHost) -> None:
    for name, content in SHARDS.items():
        host.put(f"{TARGET}/{name}", content)
    status = stage(host, request(hub, host))
    assert sorted(hub.fetched()) == ["config.json", "sub/tokenizer.model"]
    assert (status["phase"], staged(host)) == ("complete", FILES)


def test_a_wrong_file_of_the_origin_is_refused_and_not_kept(hub: Hub, host: StubbornHost) -> None:
    asked = request(hub, host)
    hub.spoiling = {"wrong": [SHARD]}
    status = stage(host, asked)
    assert status["phase"] == "failed"
    assert SHARD in status["problem"]
    assert "sha256 is" in status["problem"]
    assert not Path(host.path(TARGET)).exists()
    assert Path(host.path(f"{PARTIAL}/{SHARD}")).stat().st_size == 0
    hub.spoiling = {}
    assert stage(host, asked)["phase"] == "complete"


def test_a_wrong_beginning_from_an_earlier_run_is_fetched_again(
    hub: Hub, host: StubbornHost
) -> None:
    asked = request(hub, host)
    host.put(f"{PARTIAL}/{SHARD}", b"wrong" * 10)
    assert stage(host, asked)["phase"] == "complete"
    assert staged(host) == FILES


def test_an_origin_that_goes_away_is_named_and_what_came_is_kept(
    hub: Hub, host: StubbornHost
) -> None:
    asked = request(hub, host, num_streams=1)
    hub.spoiling = {"cut": 0, "status": None}
    first, *_ = sorted(FILES)
    status = stage(host, asked)
    assert status["phase"] == "failed"
    assert hub.url in status["problem"]
    assert first in status["problem"]
    hub.spoiling = {}
    assert stage(host, asked)["phase"] == "complete"


def test_a_refusing_origin_is_not_asked_again_and_again(hub: Hub, host: StubbornHost) -> None:
    asked = request(hub, host, num_streams=1, patience_s=30.0)
    hub.spoiling = {"status": 403}
    status = stage(host, asked)
    assert (status["phase"], "403" in status["problem"]) == ("failed", True)
    assert len(hub.fetched()) == 1


def test_a_full_disk_is_the_hosts_own_failure(
    hub: Hub, host: StubbornHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = request(hub, host)
    written = [0]
    write = fetching._write

    def limited(stream: Any, view: memoryview) -> None:
        written[0] += len(view)
        if written[0] > 500_000:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        write(stream, view)

    monkeypatch.setattr(fetching, "_write", limited)
    status = stage(host, asked)
    assert (status["phase"], status["problem"]) == ("failed", "No space left on device")
    assert not Path(host.path(TARGET)).exists()
    monkeypatch.undo()
    assert stage(host, asked)["phase"] == "complete"


def test_a_check_reads_everything_and_writes_nothing(hub: Hub, host: StubbornHost) -> None:
    asked = request(hub, host)
    stage(host, asked)
    shard = Path(host.path(f"{TARGET}/{SHARD}"))
    stamp = shard.stat().st_mtime_ns
    shard.write_bytes(b"z" * len(FILES[SHARD]))
    os.utime(shard, ns=(stamp, stamp))  # as a failing disk would: nobody wrote
    before = host.contents("/run", "/models/kimi/.lock")
    hub.asked.clear()
    status = stage(host, {**asked, "only_check": True, "source": None})
    assert (status["phase"], hub.fetched()) == ("checked", [])
    assert [SHARD in one for one in status["damaged"]] == [True]
    assert host.contents("/run", "/models/kimi/.lock") == before


def test_a_second_staging_of_the_revision_is_told_who_is_at_it(
    hub: Hub, host: StubbornHost
) -> None:
    asked = request(hub, host)
    above, revision = open_above(host.path(TARGET), FOLDER_MODE)
    with above, revision_lock(above, revision, "ann"):
        status = stage(host, asked)
    assert "being staged by ann from" in status["problem"]
    assert stage(host, asked)["phase"] == "complete"


def test_without_checksums_sizes_decide_and_what_came_is_recorded(
    hub: Hub, host: StubbornHost
) -> None:
    host.put("/mnt/kimi/model.safetensors", b"weights")
    source = {"kind": "folder", "paths": ["/mnt/kimi"]}
    files = [row_of(entry) for entry in open_origin(source, host, 5.0).list_files().files]
    stage(host, request(hub, host, source=source, files=files))
    manifest = json.loads(Path(host.path(f"{TARGET}/manifest.json")).read_text())
    assert manifest["files"][0]["sha256"] == hashlib.sha256(b"weights").hexdigest()
    stage(host, request(hub, host, source=source, files=files))
    again = json.loads(Path(host.path(f"{TARGET}/manifest.json")).read_text())
    assert again == manifest


class Fleet:
    """Stagings of one checkpoint on several hosts of this machine, each fetching from the one before it."""

    def __init__(self, hub: Hub, folder: Path) -> None:
        self.hub = hub
        self.folder = folder
        self.hosts: dict[str, StubbornHost] = {}
        self.works: dict[str, Work] = {}
        self.threads: dict[str, threading.Thread] = {}

    def start(self, name: str, *peers: str, **keys: object) -> Work:
        host = self.hosts.setdefault(name, StubbornHost(self.folder / name))
        addresses = {f"host-{n}": f"127.0.0.{10 + n}" for n in range(1, 5)}
        listen = {"address": addresses[name], "port": PORT, "members": addresses}
        named = [
            {"name": peer, "address": f"127.0.0.{10 + int(peer[-1])}:{PORT}"} for peer in peers
        ]
        common = {"listen": listen, "peers": named, "token": "t" * 32, "linger_s": 0.3}
        asked = request(self.hub, host, **{**common, "patience_s": 6.0, **keys})
        status = host.put("/run/job/status.json", "{}")
        work = self.works[name] = Work(asked, host, str(status))
        thread = self.threads[name] = threading.Thread(target=self._run, args=(work,), daemon=True)
        thread.start()
        return work

    def _run(self, work: Work) -> None:
        try:
            work.run()
        except (Refused, OSError):
            assert work.phase == "failed"

    def wait(self, done: Callable[[], bool], limit_s: float = 10.0) -> None:
        deadline = time.monotonic() + limit_s
        while not done():
            assert time.monotonic() < deadline, {
                n: (w.phase, w.problem) for n, w in self.works.items()
            }
            time.sleep(0.01)

    def wait_complete(self, *names: str) -> None:
        self.wait(lambda: all(self.works[name].phase == "complete" for name in names))


@pytest.fixture
def fleet(hub: Hub, tmp_path: Path) -> Iterator[Fleet]:
    made = Fleet(hub, tmp_path)
    yield made
    for thread in made.threads.values():
        thread.join(10)
        assert not thread.is_alive()


def test_a_chain_takes_each_file_once_from_the_origin(hub: Hub, fleet: Fleet) -> None:
    # on a busy machine whoever comes later finds those before him still there, and is not given up
    patient = {"linger_s": 2.0, "patience_s": 60.0}
    fleet.start("host-1", **patient)
    fleet.start("host-2", "host-1", **patient)
    fleet.start("host-3", "host-2", "host-1", **patient)
    fleet.wait(lambda: all(one.phase == "complete" for one in fleet.works.values()), 60.0)
    assert sorted(hub.fetched()) == sorted(FILES)
    for host in fleet.hosts.values():
        assert staged(host) == FILES


def test_a_file_is_passed_on_while_it_arrives(hub: Hub, fleet: Fleet) -> None:
    hub.files = {"model.safetensors": b"m" * 1_000_000}
    hub.spoiling = {"pace": 1_000_000}
    fleet.start("host-1")
    last = fleet.start("host-2", "host-1")
    fleet.wait(lambda: last.transfers["model.safetensors"].num_bytes > 0)
    assert not fleet.works["host-1"].transfers["model.safetensors"].is_whole
    fleet.wait_complete("host-1", "host-2")


def test_a_host_whose_peer_never_comes_up_goes_past_it(hub: Hub, fleet: Fleet) -> None:
    fleet.start("host-1", linger_s=1.5)
    fleet.start("host-3", "host-2", "host-1", patience_s=0.6)
    fleet.wait_complete("host-1", "host-3")
    assert sorted(hub.fetched()) == sorted(FILES)
    assert any("host-2 is given up" in note for note in fleet.works["host-3"].choice.notes)


def test_a_peer_that_sends_a_wrong_file_is_named_and_another_is_asked(
    hub: Hub, fleet: Fleet
) -> None:
    first = fleet.start("host-1")
    fleet.wait_complete("host-1")
    path = Path(first.folder) / SHARD
    path.write_bytes(b"w" * len(FILES[SHARD]))
    second = fleet.start("host-2", "host-1")
    fleet.wait_complete("host-2")
    assert any("host-1 sent" in note and SHARD in note for note in second.choice.notes)
    assert staged(fleet.hosts["host-2"]) == FILES


def test_a_peer_without_the_token_gets_nothing(hub: Hub, fleet: Fleet) -> None:
    fleet.start("host-1")
    fleet.wait_complete("host-1")
    fleet.start("host-2", "host-1", token="x" * 32, patience_s=0.3)
    fleet.wait_complete("host-2")
    assert sorted(hub.fetched()) == sorted([*FILES, *FILES])


def test_what_has_no_checksum_in_the_request_is_not_taken_from_a_peer(
    hub: Hub, fleet: Fleet
) -> None:
    files = [{"name": name, "size_bytes": len(content)} for name, content in FILES.items()]
    fleet.start("host-1", files=files)
    second = fleet.start("host-2", "host-1", files=files)
    fleet.wait(lambda: second.phase == "failed")
    assert "the request has no checksum of it" in str(second.problem)
    assert not Path(second.folder).exists()


def test_a_peer_serves_the_hosts_of_its_staging_and_closes_others_unread(
    hub: Hub, fleet: Fleet
) -> None:
    fleet.start("host-1", linger_s=1.0)
    fleet.wait_complete("host-1")

    heard = b""
    with (
        contextlib.suppress(ConnectionResetError, BrokenPipeError),
        socket.create_connection(("127.0.0.11", PORT), 2.0, ("127.0.0.99", 0)) as wire,
    ):
        wire.sendall(b"GET / HTTP/1.0\r\n\r\n")
        heard = wire.recv(100)
    assert heard == b""  # who is of the staging and lacks the token hears a status


def test_a_peer_hangs_up_on_requests_that_do_not_come(
    hub: Hub, fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peers, "REQUEST_S", 0.2)
    fleet.start("host-1", linger_s=1.0)
    fleet.wait_complete("host-1")
    with socket.create_connection(("127.0.0.11", PORT), 2.0, ("127.0.0.12", 0)) as wire:
        wire.sendall(b"GET /slow")
        begun = time.monotonic()
        with contextlib.suppress(ConnectionResetError):
            assert wire.recv(100) == b""
        assert time.monotonic() - begun < 1.5


def test_a_peer_that_is_crowded_from_a_members_address_still_serves_that_member(
    hub: Hub, fleet: Fleet
) -> None:
    others = threading.active_count()  # of tests before this one
    fleet.start("host-1", linger_s=3.0)
    fleet.wait_complete("host-1")
    place, own = ("127.0.0.11", PORT), ("127.0.0.12", 0)
    with contextlib.ExitStack() as crowd:
        for _ in range(2 * peers.PER_ADDRESS):
            crowd.enter_context(socket.create_connection(place, 2.0, own))
        fleet.start("host-2", "host-1")
        fleet.wait_complete("host-2")
    assert sorted(hub.fetched()) == sorted(FILES)
    assert threading.active_count() - others < 2 * peers.PER_ADDRESS


def test_a_request_without_end_ends() -> None:
    """Each of http.server's hundred headers may have 64 KiB, of each connection."""
    request = peers.Request(io.BytesIO(b"GET / HTTP/1.0\r\n" + b"x" * 10 * peers.MAX_REQUEST))
    lines = iter(lambda: request.readline(65537), b"")
    assert sum(map(len, lines)) == peers.MAX_REQUEST
