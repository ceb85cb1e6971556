"""The same work on several things at once."""

from __future__ import annotations

import threading

import pytest

from infra.agent.at_once import each_at_once


def test_answers_come_in_the_order_of_the_things() -> None:
    assert each_at_once(lambda one: one * 2, [3, 1, 2], 2) == [6, 2, 4]
    assert each_at_once(str, [], 4) == []


def test_no_more_run_at_once_than_are_allowed_and_as_many_do() -> None:
    meeting = threading.Barrier(3, timeout=20)
    assert each_at_once(lambda _: meeting.wait() >= 0, range(9), 3) == [True] * 9


def test_all_are_done_before_the_first_problem_is_raised() -> None:
    done = []

    def work(one: int) -> None:
        done.append(one)
        if one in (1, 2):
            raise OSError(one)

    with pytest.raises(OSError, match="1"):
        each_at_once(work, range(5), 1)
    assert done == [0, 1, 2, 3, 4]
