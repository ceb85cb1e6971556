"""An archive on its way to hosts below folders, each answered by the real agent; the chain is proven in the lab."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from infra.catalog.load import Catalog
from infra.errors import HostsFailed, PrerequisiteError, StackError
from infra.launch.deployment import Limits, Pace
from infra.launch.fleet import Answers, Request
from infra.launch.images.archive import ImageArchive, read_archive
from infra.launch.images.sending import Sending, plan_sending, send_and_load
from infra.launch.staging.order import Staging
from infra.remote.failures import LostConnection
from infra.render.items import HostState
from tests.agent.stubborn_host import program
from tests.cli.saved_image import save_image
from tests.launch.agent_fleet import AgentFleet, WaitingClock
from tests.launch.scripted_fleet import make_deployment

# One image at most, whose id stands in a file; every archive that it loads is that of `next`.
DOCKER = """\
d={folder}
case "$1" in
image) [ -e $d/id ] && echo "[{{\\"Id\\": \\"$(cat $d/id)\\"}}]" || {{ echo "Error: No such image: x" >&2; exit 1; }};;
load) [ -e $d/broken ] && {{ echo "no space left on device" >&2; exit 1; }}
  [ -s "$3" ] && cp $d/next $d/id;;
esac
"""
PIECE = 100_000


@dataclass
class Site:
    """One host without the image, and an archive of it."""

    fleet: AgentFleet
    runtime: Path
    archive: ImageArchive
    identity: str
    states: Mapping[str, HostState]
    sending: Sending
    said: list[str] = field(default_factory=list)

    def run(self) -> set[str]:
        """Send and load; the states of the images."""
        pace = Pace(limits=Limits(), clock=WaitingClock(), say=self.said.append)
        staging = Staging(
            fleet=self.fleet, addresses={}, secrets={}, pace=pace, operator="me", token="t"
        )
        return {one.state for one in send_and_load(self.sending, self.states, staging)}

    def actions(self) -> list[str]:
        asked = [request for _, request in self.fleet.asked if request["operation"] == "receive"]
        return [str(request["action"]) for request in asked]

    def left(self) -> list[Path]:
        return sorted(self.fleet.root.rglob("*.moe-received*"))


@pytest.fixture
def site(tmp_path: Path, catalog: Catalog, stand_in_docker: Path) -> Site:
    deployment, _, _ = make_deployment("gb200-tp4", catalog)
    reference = next(i.target for s in deployment.states.values() for i in s.of_groups("images"))
    identity = save_image(tmp_path / "image.tar", reference, layer_bytes=5 * PIECE)
    (stand_in_docker / "next").write_text(identity)
    archive = read_archive(tmp_path / "image.tar")
    sending, states = plan_sending(archive, deployment.states, "/models", is_shared=False)
    sending = replace(sending, piece_bytes=PIECE)
    for name in states:
        (tmp_path / "hosts" / name / "models").mkdir(parents=True)
    return Site(AgentFleet(tmp_path / "hosts"), stand_in_docker, archive, identity, states, sending)


@pytest.fixture
def stand_in_docker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "docker"
    folder.mkdir()
    program(tmp_path / "bin", "docker", DOCKER.format(folder=folder))
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    return folder


def test_it_is_sent_in_pieces_loaded_and_removed(site: Site) -> None:
    assert site.run() == {"changed"}
    assert (site.runtime / "id").read_text() == site.identity
    pieces = -(-site.archive.size_bytes // PIECE)
    assert site.actions() == ["look", "look", *["write"] * pieces, "publish", "discard"]
    assert site.left() == []
    site.fleet.asked.clear()
    assert site.run() == {"ok"}
    assert site.actions() == ["discard"]


class UnsteadyFleet(AgentFleet):
    """The first answer to the third piece is lost, and every one from the fifth on: the connection is gone."""

    has_lost = False

    def ask(self, requests: Mapping[str, Request], *, timeout_s: float) -> Answers:
        answers = super().ask(requests, timeout_s=timeout_s)
        (host,) = requests
        offset = int(str(requests[host].get("offset") or 0))
        if offset >= 4 * PIECE or (offset == 2 * PIECE and not self.has_lost):
            self.has_lost = True
            answers[host] = LostConnection(host, "lost.", "")
        return answers


def test_a_lost_answer_is_asked_again_and_what_has_arrived_stays(site: Site) -> None:
    steady, site.fleet = site.fleet, UnsteadyFleet(site.fleet.root)
    with pytest.raises(HostsFailed):
        site.run()
    offsets = [r["offset"] for _, r in site.fleet.asked if r.get("action") == "write"]
    assert offsets[:4] == [0, PIECE, 2 * PIECE, 2 * PIECE]
    site.fleet = steady
    site.said.clear()
    assert site.run() == {"changed"}
    assert any("going on after" in line for line in site.said)
    assert (site.runtime / "id").read_text() == site.identity
    assert site.left() == []


def test_one_that_cannot_be_loaded_is_told_and_kept_for_the_next_run(site: Site) -> None:
    (site.runtime / "broken").touch()
    assert site.run() == {"failed"}
    assert site.left()
    (site.runtime / "broken").unlink()
    site.fleet.asked.clear()
    assert site.run() == {"changed"}
    assert "write" not in site.actions()
    assert site.left() == []


def test_another_image_than_the_archives_is_a_failure(site: Site) -> None:
    (site.runtime / "next").write_text("sha256:" + "0" * 64)
    assert site.run() == {"failed"}


def test_a_disk_that_is_too_small_is_refused_before_a_byte(site: Site) -> None:
    site.sending = replace(site.sending, archive=replace(site.archive, size_bytes=1 << 60))
    with pytest.raises(PrerequisiteError, match="No byte was sent"):
        site.run()
    assert "write" not in site.actions()


def test_an_archive_that_shrinks_meanwhile_is_refused(site: Site) -> None:
    site.archive.path.write_bytes(site.archive.path.read_bytes()[:PIECE])
    with pytest.raises(StackError, match="became shorter"):
        site.run()
