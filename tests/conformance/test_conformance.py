"""The simulated engine answers as the recorded real one does, but for what `differences.yaml` explains."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.cases import REFUSALS, REQUESTS
from tests.conformance.page import PAGE, explained, page, recorded, unrecorded
from tests.conformance.shapes import body_of, last_error, shape_of
from tests.conformance.subjects import Bench, Simulated
from tests.conformance.suite import run_suite


@pytest.fixture(scope="module")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    bench = Bench(Simulated(), tmp_path_factory.mktemp("conformance"))
    try:
        return run_suite(bench, lambda _: None)
    finally:
        bench.end_all()


def test_the_simulated_engine_answers_as_the_real_one(simulated: dict[str, Any]) -> None:
    real, why = recorded(), {**explained(), **unrecorded()}
    differing = {name for name in real if simulated.get(name) != real[name]}
    unexplained = {name: (simulated.get(name), real[name]) for name in differing - set(why)}
    assert unexplained == {}
    assert list(simulated) == list(real)


def test_no_explanation_is_left_of_a_difference_that_is_gone(simulated: dict[str, Any]) -> None:
    real = recorded()
    assert [name for name in explained() if simulated.get(name) == real.get(name)] == []


def test_what_is_not_recorded_is_what_the_coordinator_was_too_slow_for() -> None:
    real = recorded()
    slow = {name for name, answer in real.items() if "DP Coordinator process" in str(answer)}
    assert set(unrecorded()) == slow
    assert not set(unrecorded()) & set(explained())


def test_the_page_is_current(simulated: dict[str, Any]) -> None:
    assert PAGE.read_text(encoding="utf-8") == page(recorded(), simulated, explained())


def test_times_and_identities_do_not_count_but_values_do() -> None:
    one = {"id": "cmpl-1", "created": 1, "choices": [{"text": "a"}], "usage": {"total_tokens": 3}}
    two = {"id": "cmpl-2", "created": 2, "choices": [{"text": "b"}], "usage": {"total_tokens": 3}}
    assert shape_of(one) == shape_of(two)
    assert shape_of(one) != shape_of({**two, "usage": {"total_tokens": 4}})
    assert shape_of(one) != shape_of({**two, "id": "chatcmpl-2"})
    assert shape_of(one) != shape_of({**two, "choices": [{"text": ""}]})


def test_a_stream_is_a_list_of_events_without_repetitions() -> None:
    text = 'data: {"id": "a-1"}\n\ndata: {"id": "a-2"}\n\ndata: [DONE]\n\n'
    assert body_of(text, "text/event-stream; charset=utf-8") == [
        {"data": {"id": "a-…"}},
        {"data": "[DONE]"},
    ]


@pytest.mark.parametrize(
    ("output", "error"),
    [
        ("usage: vllm serve\nvllm: error: argument -x: no\n", "vllm: error: argument -x: no"),
        ("(APIServer pid=7) ValueError: port=8123 is taken\n", "ValueError: port <port> is taken"),
        (
            "a.ValidationError: 1\nkv_role\n  no [type=a]\n    For further\n",
            "a.ValidationError: 1\nkv_role\nno [type=a]",
        ),
        ("all is well\n", ""),
    ],
)
def test_the_last_error_is_found_in_what_a_program_said(output: str, error: str) -> None:
    assert last_error(output) == error


def test_every_case_has_a_name_of_its_own() -> None:
    names = [case.name for case in REFUSALS] + [case.name for case in REQUESTS]
    assert len(names) == len(set(names))
