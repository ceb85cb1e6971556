"""The operation `prepare`."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from infra.agent.host import Refused
from infra.agent.preparing import answer
from tests.agent.stubborn_host import StubbornHost


def test_modules_of_operations_and_parts_are_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("infra.agent.reading", "infra.agent.kinds.links"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    report = answer({"operations": ["read"], "parts": ["kinds.links"]}, StubbornHost(tmp_path))
    assert report == {"schema_version": 1}
    assert {"infra.agent.reading", "infra.agent.kinds.links"} <= set(sys.modules)


def test_an_unknown_operation_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Refused, match="'dance' is not an operation"):
        answer({"operations": ["dance"]}, StubbornHost(tmp_path))
