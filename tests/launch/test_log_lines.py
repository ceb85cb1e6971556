"""Lines as columns: cut at a moment, joined in the order of time, shown as text."""

from __future__ import annotations

from infra.launch.logs.lines import LogLines, in_order
from infra.tasks.logs import texts_of


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
    found = in_order([some("a", 3, 5, 5), some("b", 1, 5), LogLines.none()], shown)
    assert found == ["b b1", "a a3", "a a5", "a a5", "b b5"]
    assert in_order([LogLines.none(), some("a", 1)], shown) == ["a a1"]
    assert in_order([], shown) == []


def shown(lines: LogLines) -> list[str]:
    return [f"{name} {text}" for name, text in zip(lines.processes, lines.messages, strict=True)]


def test_a_line_is_shown_with_its_time_in_utc_and_its_process() -> None:
    times, processes = [1795193977793999, 1795193978000000], ["decode-0/3", "b"]
    assert texts_of(LogLines(times, processes, ["one", ""])) == [
        "2026-11-20 16:59:37.793 decode-0/3   one",
        "2026-11-20 16:59:38.000 b            ",
    ]
    assert texts_of(LogLines(times, ["b", "b"], ["one", ""])) == [
        "2026-11-20 16:59:37.793 b            one",
        "2026-11-20 16:59:38.000 b            ",
    ]
    assert texts_of(LogLines.none()) == []
