"""A test that cannot run is skipped aloud: in CI it fails."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from infra.errors import PrerequisiteError
from tests.needed import lacks

HERE = Path(__file__).parent
# What `scripts/setup` does not install, and no CI has to have: engines of gigabytes, a control plane that takes a
# quarter of an hour to build, other Pythons.
OPTIONAL = {
    "kubernetes/conftest.py",
    "launch/preflight/test_adding_up.py",
    "rehearsal/test_real_engines.py",
    "remote/test_lab_old_hosts.py",
}
REASON = PrerequisiteError("this machine", "there is no sshd.", "apt-get install openssh-server")


def test_what_is_missing_is_skipped_by_hand_and_an_error_in_ci(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match="there is no sshd"):
        lacks(REASON)
    monkeypatch.setenv("CI", "true")
    with pytest.raises(PrerequisiteError, match="there is no sshd"):
        lacks(REASON)


def test_nobody_skips_without_asking_whether_this_is_ci() -> None:
    skips = re.compile(r"pytest\.skip\(|mark\.skip|importorskip")
    found = {
        str(path.relative_to(HERE))
        for path in HERE.rglob("*.py")
        if path not in (Path(__file__), HERE / "needed.py")
        and skips.search(path.read_text(encoding="utf-8"))
    }
    assert found == OPTIONAL
