"""A host below a folder, and stand-ins for the programs that an agent asks."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.agent.shared_tuning import BALANCING, GOVERNOR, PORTS, SWAPPINESS
from tests.agent.stubborn_host import StubbornHost, program


@pytest.fixture
def host(tmp_path: Path) -> StubbornHost:
    return StubbornHost(tmp_path / "root")


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], None]:
    """Puts a shell program of that name before everything else on PATH."""
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    return lambda name, text: program(tmp_path / "bin", name, text)


@pytest.fixture
def untuned(host: StubbornHost) -> StubbornHost:
    """A host as it comes."""
    host.put(SWAPPINESS, "60\n")
    host.put(BALANCING, "1\n")
    host.put(PORTS, "2703\n")
    host.put(GOVERNOR, "powersave\n")
    host.put("/etc/sysctl.d/10-image.conf", "kernel.pid_max = 4194304\n")
    return host


@pytest.fixture
def hang() -> Iterator[Callable[[Path], None]]:
    """Makes a file that does not answer whoever opens it, until the test is over."""
    made: list[Path] = []

    def make(place: Path) -> None:
        place.parent.mkdir(parents=True, exist_ok=True)
        place.unlink(missing_ok=True)
        os.mkfifo(place)
        made.append(place)

    yield make
    for place in made:
        os.close(os.open(place, os.O_RDWR | os.O_NONBLOCK))  # whoever waits is let go
