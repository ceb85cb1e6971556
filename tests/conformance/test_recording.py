"""A recording that is stopped goes on where it was, and asks again what has changed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.bench import Bench
from tests.conformance.recording import record
from tests.conformance.subjects import Simulated
from tests.conformance.suite import Unit


class Asked:
    """Units that note when they are asked; one of them is stopped."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.stops_at = ""

    def unit(self, name: str, text: str = "1") -> Unit:
        def run(_: Bench) -> Iterator[tuple[str, Any]]:
            self.names.append(name)
            if name == self.stops_at:
                raise KeyboardInterrupt
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
