"""Lines as columns: cut at a moment, joined in the order of time, shown as text."""

from __future__ import annotations

from infra.launch.logs.lines import LogLines, in_order
from infra.tasks.logs import text_of


def some(name: str, *times: int) -> LogLines:
    return LogLines(list(times), [name] * len(times), [f"{name}{at}" for at in times])


def test_lines_of_a_moment_are_taken_with_all_before_it() -> None:
    lines = some("a", 1, 2, 2, 5)
    assert lines.take(2).messages == ["a1", "a2", "a2"]
    assert lines == some("a", 5)
    assert len(lines.take(4)) == 0


def test_what_was_taken_may_be_changed() -> None:
    lines = some("a", 1, 2)
    taken = lines.take_first(1)
    taken.add(some("b", 7))
    assert taken.processes == ["a", "b"]
    assert lines == some("a", 2)


def test_lines_of_one_moment_stay_in_their_order() -> None:
    found = in_order([some("a", 3, 5, 5), some("b", 1, 5), LogLines.none()])
    assert found.messages == ["b1", "a3", "a5", "a5", "b5"]
    assert found.processes == ["b", "a", "a", "a", "b"]
    assert in_order([]) == LogLines.none()


def test_a_line_is_shown_with_its_time_in_utc_and_its_process() -> None:
    lines = LogLines([1795193977793999, 1795193978000000], ["decode-0/3", "b"], ["one", ""])
    assert text_of(lines).split("\n") == [
        "2026-11-20 16:59:37.793 decode-0/3   one",
        "2026-11-20 16:59:38.000 b            ",
    ]
