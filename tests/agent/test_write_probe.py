"""Whether a place takes writes, without leaving anything there; a place that hangs is left behind."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from infra.agent.facts import operation as facts
from infra.agent.facts.abandoned import within
from infra.agent.facts.write_probe import try_writing
from infra.agent.host import Host, Refused
from tests.agent.stubborn_host import StubbornHost


def test_nothing_is_left_where_writing_works(tmp_path: Path) -> None:
    before = tmp_path.stat().st_mtime_ns
    assert try_writing(Host(), str(tmp_path)) == {"at": str(tmp_path), "error": None, "code": None}
    assert list(tmp_path.iterdir()) == []
    assert tmp_path.stat().st_mtime_ns == before


def test_a_place_that_is_not_there_is_tried_where_it_would_be_made(host: StubbornHost) -> None:
    folder = Path(host.path("/etc"))
    folder.mkdir(parents=True)
    assert try_writing(host, "/etc/moe-infra/a-stack") == {
        "at": "/etc",
        "error": None,
        "code": None,
    }
    assert list(folder.iterdir()) == []


def test_a_place_that_takes_nothing_says_why() -> None:
    told = facts.answer({"writable": ["/proc/none"]}, Host())["writable"]
    assert isinstance(told, dict)
    assert told["/proc/none"]["at"] == "/proc"
    assert told["/proc/none"]["error"]
    assert told["/proc/none"]["code"] in ("ENOENT", "EACCES", "EPERM", "EROFS")


def test_what_hangs_is_left_behind() -> None:
    ended, begun = threading.Event(), time.monotonic()
    with pytest.raises(Refused, match=r"no answer within 0\.1 s"):
        within(0.1, ended.wait)
    assert time.monotonic() - begun < 2
    ended.set()
    with pytest.raises(FileNotFoundError):
        within(5.0, lambda: Path("/none/such").stat())
    assert within(5.0, lambda: 7) == 7
