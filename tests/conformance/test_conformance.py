"""The simulated engine answers as the recorded real one does, but for what `differences.yaml` explains."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.bench import Bench
from tests.conformance.cases import REQUESTS
from tests.conformance.commands import REFUSALS
from tests.conformance.differences import explained, places
from tests.conformance.page import PAGE, compared, page, recorded
from tests.conformance.shapes import body_of, last_error, shape_of
from tests.conformance.subjects import Simulated
from tests.conformance.suite import run_suite


@pytest.fixture(scope="module")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    bench = Bench(Simulated(), tmp_path_factory.mktemp("conformance"))
    try:
        return run_suite(bench, lambda _: None)
    finally:
        bench.close()


@pytest.mark.slow  # a hundred starts of the simulated engine, some of which are waited for in vain
def test_the_simulated_engine_answers_as_the_real_one(simulated: dict[str, Any]) -> None:
    real, played, why = compared(recorded()), compared(simulated), explained()
    differing = {name: places(answer, played.get(name)) for name, answer in real.items()}
    unexplained = {
        name: (at, played.get(name), real[name])
        for name, at in differing.items()
        if at and (name not in why or set(at) - set(why[name].at))
    }
    assert unexplained == {}
    assert list(simulated) == list(recorded())


@pytest.mark.slow  # a hundred starts of the simulated engine, some of which are waited for in vain
def test_no_explanation_is_left_of_a_difference_that_is_gone(simulated: dict[str, Any]) -> None:
    real, played = compared(recorded()), compared(simulated)
    gone = {
        name: set(reason.at) - set(places(real.get(name), played.get(name)))
        for name, reason in explained().items()
    }
    assert {name: at for name, at in gone.items() if at} == {}


@pytest.mark.slow  # a hundred starts of the simulated engine, some of which are waited for in vain
def test_the_page_is_current(simulated: dict[str, Any]) -> None:
    assert PAGE.read_text(encoding="utf-8") == page(recorded(), simulated, explained())


def test_logs_and_races_are_not_compared() -> None:
    failed = "Failed core proc(s): {'EngineCore': 1}"
    answers = {"log: a start": ["x"], "refused: x": {"error": f"RuntimeError: {failed}"}}
    assert compared(answers) == {"refused: x": {"error": "RuntimeError: Failed core proc(s): {…}"}}


def test_every_place_where_two_answers_differ_is_told() -> None:
    one = {"status": 200, "body": {"a": [1, {"b": 2}], "c": 3}}
    assert places(one, one) == ()
    assert places(one, {**one, "status": 400}) == ("status",)
    other = {"status": 200, "body": {"a": [1, {"b": 4}], "d": 3}}
    assert places(one, other) == ("body.a.1.b", "body.c", "body.d")
    assert places([1], [1, 2]) == ("",)
    assert places(one, None) == ("",)


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
        ("RuntimeError: no\n/lib/x.py:1: UserWarning: leaked\n  warn()\n", "RuntimeError: no"),
        ("all is well\n", ""),
    ],
)
def test_the_last_error_is_found_in_what_a_program_said(output: str, error: str) -> None:
    assert last_error(output) == error


def test_every_case_has_a_name_of_its_own() -> None:
    names = [case.name for case in REFUSALS] + [case.name for case in REQUESTS]
    assert len(names) == len(set(names))
