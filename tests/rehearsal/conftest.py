"""What every test of the rehearsal needs: a machine that can do it, and a shell to type `fab rehearse` in."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from infra.errors import PrerequisiteError
from infra.rehearsal.installed import find_pulumi
from infra.rehearsal.lab.starting import stop_lab
from tests.needed import lacks, need_lab
from tests.rehearsal.command import Shell


@pytest.fixture(scope="session")
def lab_is_possible() -> None:
    """Skips where no lab can be started, but never in CI: there it is an error."""
    need_lab()


@pytest.fixture(scope="session")
def pulumi_is_possible() -> None:
    """Skips where the Pulumi command line is not installed, but never in CI: there it is an error."""
    try:
        find_pulumi()
    except PrerequisiteError as error:
        lacks(error)


@pytest.fixture
def shell(lab_is_possible: None, tmp_path: Path) -> Iterator[Shell]:
    """A shell whose temporary files are its own; what a failed test left running there is stopped."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    opened = Shell(folder)
    yield opened
    for entry in opened.entries():
        stop_lab(entry.id)
