"""A recording that is stopped goes on where it was, and asks again what has changed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.bench import Bench
from tests.conformance.groups import MachineTooSlow
from tests.conformance.recording import record
from tests.conformance.subjects import Simulated
from tests.conformance.suite import Unit


class Asked:
    """Units that note when they are asked; one of them is stopped."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.stops_at = ""
        self.slow: dict[str, int] = {}  # unit → how often the machine is too slow for it yet

    def unit(self, name: str, text: str = "1") -> Unit:
        def run(_: Bench) -> Iterator[tuple[str, Any]]:
            self.names.append(name)
            if name == self.stops_at:
                raise KeyboardInterrupt
            if self.slow.get(name):
                self.slow[name] -= 1
                raise MachineTooSlow("it waited in vain")
            yield f"{name}: case", {"answer": name}

        return Unit(name=name, text=text, run=run)


def ask(asked: Asked, folder: Path, units: list[Unit], engine: str = "1 2") -> dict[str, Any]:
    return record(Bench(Simulated(), folder), units, engine, folder / "kept.json", lambda _: None)


def test_it_goes_on_where_it_was_stopped(tmp_path: Path) -> None:
    asked = Asked()
    units = [asked.unit("a"), asked.unit("b"), asked.unit("c")]
    asked.stops_at = "b"
    with pytest.raises(KeyboardInterrupt):
        ask(asked, tmp_path, units)
    assert list(json.loads((tmp_path / "kept.json").read_text())) == ["a"]
    asked.stops_at, asked.names = "", []
    assert list(ask(asked, tmp_path, units)) == ["a: case", "b: case", "c: case"]
    assert asked.names == ["b", "c"]


def test_what_the_machine_was_too_slow_for_is_asked_again_at_the_end(tmp_path: Path) -> None:
    asked = Asked()
    asked.slow = {"a": 2, "c": 1}
    units = [asked.unit(name) for name in "abcd"]
    assert list(ask(asked, tmp_path, units)) == [f"{name}: case" for name in "abcd"]
    assert asked.names == ["a", "b", "c", "d", "a", "c", "a"]


def test_it_ends_where_the_machine_is_too_slow_for_all_that_is_left(tmp_path: Path) -> None:
    asked = Asked()
    asked.slow = {"a": 9}
    with pytest.raises(MachineTooSlow):
        ask(asked, tmp_path, [asked.unit("a"), asked.unit("b")])
    assert asked.names == ["a", "b", "a"]
    assert list(json.loads((tmp_path / "kept.json").read_text())) == ["b"]


def test_a_whole_one_is_followed_by_another_from_the_start(tmp_path: Path) -> None:
    asked = Asked()
    for _ in range(2):
        ask(asked, tmp_path, [asked.unit("a")])
    assert asked.names == ["a", "a"]


@pytest.mark.parametrize(("text", "engine"), [("2", "1 2"), ("1", "3 4")])
def test_what_was_asked_otherwise_is_asked_again(tmp_path: Path, text: str, engine: str) -> None:
    asked = Asked()
    asked.stops_at = "b"
    with pytest.raises(KeyboardInterrupt):
        ask(asked, tmp_path, [asked.unit("a"), asked.unit("b")])
    asked.stops_at, asked.names = "", []
    ask(asked, tmp_path, [asked.unit("a", text), asked.unit("b")], engine)
    assert asked.names == ["a", "b"]
