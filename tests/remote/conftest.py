"""A real sshd for the whole session, and the hosts that keep one contract."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from infra.errors import PrerequisiteError
from infra.remote.connecting import SshOptions
from infra.remote.outcome import Host
from tests.needed import lacks
from tests.remote import loopback_sshd
from tests.remote.fake_host import FakeHost
from tests.remote.loopback_sshd import Sshd
from tests.remote.opened import open_host


@pytest.fixture(scope="session")
def sshd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    with run_sshd(tmp_path_factory.mktemp("sshd"), "MaxStartups 100:30:200") as running:
        yield running


@contextmanager
def run_sshd(folder: Path, startups: str) -> Iterator[Sshd]:
    """A real sshd with that many handshakes at once, until the block ends."""
    if loopback_sshd.program() is None:
        lacks(
            PrerequisiteError("tests", "there is no sshd.", "Type: apt-get install openssh-server")
        )
    running, process = loopback_sshd.start(folder, startups)
    try:
        yield running
    finally:
        process.terminate()
        process.wait(timeout=10)


@pytest.fixture
def options() -> Iterator[SshOptions]:
    made = SshOptions()
    yield made
    made.resources.close()


@pytest.fixture(params=["fake", "sshd"])
def host(request: pytest.FixtureRequest, options: SshOptions) -> Iterator[Host]:
    """The same contract for the fake and for the real one, so that the fake cannot lie."""
    if request.param == "fake":
        yield FakeHost()
        return
    real = open_host(loopback_sshd.inventory_host(request.getfixturevalue("sshd")), options)
    yield real
    real.close()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path
