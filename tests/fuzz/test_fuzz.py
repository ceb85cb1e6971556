"""Every surface with inputs that nobody would write: an end with a message, within bounds, whatever they are.

A surface's inputs follow from its name and their numbers alone: a failure names the one that shows it again. What was
found lies in `tests/cases/fuzz/<surface>/` as it was given, and is tried on every change.
"""

from __future__ import annotations

import random
import re
import resource
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from infra.spec.load import PROJECT
from tests.fuzz.mutations import mutated
from tests.fuzz.surfaces import SURFACES, read_environment_file

CASES = PROJECT / "tests" / "cases" / "fuzz"
INPUTS, PARTS = 2_000, 8
# Processor time and memory beside what the tests take themselves; of an operator's 10 s and 1 GiB.
LIMIT_S, LIMIT_BYTES = 10.0, 1 << 30
CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


@contextmanager
def limited() -> Iterator[None]:
    """Within the limits of one input."""
    before, most = resource.getrlimit(resource.RLIMIT_AS)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()

    def end(*_: object) -> None:
        raise TimeoutError(f"it takes more than {LIMIT_S} s")

    previous = signal.signal(signal.SIGPROF, end)
    resource.setrlimit(resource.RLIMIT_AS, (used + LIMIT_BYTES, most))
    signal.setitimer(signal.ITIMER_PROF, LIMIT_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        resource.setrlimit(resource.RLIMIT_AS, (before, most))
        signal.signal(signal.SIGPROF, previous)


def _random(seed: str) -> random.Random:
    return random.Random(seed)  # noqa: S311 - inputs, and the same each time


def tried(name: str, data: bytes, folder: Path) -> int:
    """One input given to a surface, and judged; the exit code."""
    surface = SURFACES[name]
    folder.mkdir(parents=True)
    path = folder / surface.file
    path.write_bytes(data)
    with limited():
        ran = surface.run(path)
    assert ran.code in surface.codes
    assert ran.code == 0 or ran.said.strip()
    assert "Traceback" not in ran.said
    control = CONTROLS.search(ran.said)
    assert control is None, ran.said[max(control.start() - 60, 0) : control.end() + 60]
    return ran.code


# 2,000 inputs of one surface take up to a minute of processor time
@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("name", SURFACES)
def test_no_input_is_too_strange(name: str, part: int, tmp_path: Path) -> None:
    seeds = SURFACES[name].seeds()
    for number in range(part * INPUTS // PARTS, (part + 1) * INPUTS // PARTS):
        rng = _random(f"{name} {number}")
        data = mutated(rng.choice(seeds), rng, SURFACES[name].write)
        try:
            tried(name, data, tmp_path / str(number))
        except BaseException as error:
            shown = f"{name} {number}, kept in {tmp_path / str(number)}: {data[:300]!r}"
            raise AssertionError(shown) from error


@pytest.mark.parametrize(
    "path", sorted(CASES.glob("*/*")), ids=lambda path: f"{path.parent.name}/{path.name}"
)
def test_what_was_found_has_its_verdict(path: Path, tmp_path: Path) -> None:
    """The name of a case begins with the exit code that it must get."""
    assert tried(path.parent.name, path.read_bytes(), tmp_path / "case") == int(path.name[0])


def test_the_same_number_gives_the_same_input() -> None:
    for name, surface in SURFACES.items():
        first, second = (
            mutated(rng.choice(surface.seeds()), rng, surface.write)
            for rng in (_random(f"{name} 7"), _random(f"{name} 7"))
        )
        assert first == second


@pytest.mark.parametrize(
    "line", ["A B", "A=1; id\nB", "A='x", "A-B=1", "A= 1", "A=1\nA=2", "A=a\\"]
)
def test_a_line_that_readers_take_differently_is_told(line: str) -> None:
    assert read_environment_file("# x\nA=1;id\nB=\n") == {"A": "1;id", "B": ""}
    with pytest.raises(ValueError, match=re.escape(line.rpartition("\n")[2])):
        read_environment_file(line)
