"""What a client asks to see a capability or a form, and which answers show it."""

from __future__ import annotations

import json

import pytest

from infra.catalog.load import Catalog
from infra.engines.capabilities import CAPABILITIES
from infra.launch.proof.questions import (
    COLOURS,
    FORMS,
    MAX_TOKENS,
    forms_of,
    missing_from,
    picture_url,
    question_for,
)
from infra.plan.compile import compile_file

OFF = {"thinking": False}


def chat(finish_reason: str = "stop", **message: object) -> dict[str, object]:
    return {"choices": [{"message": message, "finish_reason": finish_reason}]}


def calls(name: str, arguments: str, finish_reason: str = "tool_calls") -> dict[str, object]:
    function = {"name": name, "arguments": arguments}
    return chat(finish_reason, content=None, tool_calls=[{"function": function}])


def stream(*deltas: dict[str, object], finish_reason: str = "stop", end: str = "[DONE]") -> str:
    rows: list[dict[str, object]] = [{"choices": [{"delta": delta}]} for delta in deltas]
    rows.append({"choices": [{"delta": {}, "finish_reason": finish_reason}]})
    lines = [f"data: {json.dumps(row)}" for row in rows]
    return "\n\n".join([*lines, f"data: {end}" if end else ""])


def cut(tokens: int, finish_reason: str = "length") -> dict[str, object]:
    return {**chat(finish_reason, content="so"), "usage": {"completion_tokens": tokens}}


def part(name: str = "", arguments: str = "") -> dict[str, object]:
    function = {key: text for key, text in (("name", name), ("arguments", arguments)) if text}
    return {"tool_calls": [{"index": 0, "function": function}]}


PARIS = '{"city": "Paris"}'
IN_PARTS = (part("get_weather"), part(arguments='{"city":'), part(arguments='"Paris"}'))


@pytest.mark.parametrize(
    ("name", "answer", "lacking"),
    [
        ("chat", chat(content="42"), None),
        ("chat", chat(content="", reasoning="I think"), None),
        ("chat", chat(content=None), "the message is empty"),
        ("chat", {"choices": []}, "the answer has no message"),
        ("tools", calls("get_weather", PARIS), None),
        ("tools", chat(content="It rains."), "the message calls no tool"),
        ("tools", calls("x", PARIS), "the message calls 'x', not get_weather"),
        ("tools", calls("get_weather", "{Paris"), "the arguments of get_weather are no JSON: '{Paris'"),
        ("tools", calls("get_weather", "{}"), "get_weather is called with city None, not Paris"),
        ("tools", calls("get_weather", PARIS, "stop"), "finish_reason is 'stop', not tool_calls"),
        ("reasoning", chat(reasoning_content="because", content="42"), None),
        ("reasoning", chat(content="42"), "the message has no reasoning beside its content"),
        ("reasoning", chat(reasoning="so", content="</think>42"), "the content holds a mark of the thought"),
        ("stream", stream({"content": "42"}), None),
        ("stream", stream({"content": "42"}, end=""), "the stream ends without [DONE]"),
        ("stream", stream(), "the stream holds no word"),
        ("stream", "", "no event came"),
        ("stream", chat(content="42"), "no event came"),
        ("streamed-reasoning", stream({"reasoning": "I"}, {"reasoning": " add"}, {"content": "42"}), None),
        (
            "streamed-reasoning",
            stream({"reasoning": "I add"}, {"content": "42"}),
            "the reasoning comes in one piece at the end",
        ),
        (
            "streamed-reasoning",
            stream({"content": "I add"}, {"content": "</think>42"}),
            "the message has no reasoning beside its content",
        ),
        (
            "streamed-tools",
            stream(*IN_PARTS, finish_reason="tool_calls"),
            None,
        ),
        (
            "streamed-tools",
            stream(*IN_PARTS[:2], finish_reason="tool_calls"),
            "the arguments of get_weather are no JSON: '{\"city\":'",
        ),
        ("streamed-tools", stream({"content": "functions.get_weather:0"}), "the message calls no tool"),
        ("tool-result", chat(content="It has 21 degrees."), None),
        ("tool-result", chat(content="It rains."), "the tool said 21 degrees, the answer says 'It rains.'"),
        ("tool-result", chat(content="It has 210."), "the tool said 21 degrees, the answer says 'It has 210.'"),
        ("tool-result", calls("get_weather", PARIS), "the message calls a tool again, which has answered"),
        ("tool-result", chat("length", content="21"), "finish_reason is 'length', not stop"),
        ("instant", chat(content="It is 42."), None),
        ("instant", chat(content="It is 41."), "17 + 25 is 42, the answer says 'It is 41.'"),
        ("instant", chat(reasoning="hm", content="42"), "thinking is off, and there is reasoning: 'hm'"),
        ("instant", chat(content="</think>42"), "the content holds a mark of the thought"),
        ("length", cut(8), None),
        ("length", cut(8, "stop"), "finish_reason is 'stop', not length"),
        ("length", cut(9), "8 tokens were asked for, 9 came"),
    ],
)  # fmt: skip
def test_what_answers_must_hold(name: str, answer: object, lacking: str | None) -> None:
    assert missing_from(question_for(name, "m"), answer) == lacking


@pytest.mark.parametrize("name", ["vision", "vision-tools"])
def test_the_answer_names_the_colour_that_was_sent(name: str) -> None:
    """Of every colour, so that no answer is right by heart."""
    asked = {(one := question_for(name, "m", nonce=str(i))).wanted: one for i in range(20)}
    assert asked.keys() == COLOURS.keys()
    for sent, question in asked.items():
        assert picture_url(sent) in json.dumps(question.body["messages"])
        for said in COLOURS:
            given = chat(content=f"It is {said.title()}.")
            if name == "vision-tools":
                given = calls("note_colour", json.dumps({"colour": said}))
            assert (missing_from(question, given) is None) is (said == sent)


def test_a_colour_among_others_names_none() -> None:
    question = question_for("vision", "m")
    every = chat(content="red, green or blue")
    assert str(missing_from(question, every)).startswith(f"the picture is {question.wanted}, ")
    assert missing_from(question, chat(content="a picture")) is not None
    # a thought that was cut off may weigh others
    assert missing_from(question, chat(reasoning="red, green or blue?", content=None)) is None


def test_the_picture_is_a_png() -> None:
    assert all(
        picture_url(each).startswith("data:image/png;base64,iVBORw0KGgo") for each in COLOURS
    )


def test_forms_are_asked_where_the_stack_serves_them(catalog: Catalog) -> None:
    assert forms_of(CAPABILITIES, OFF) == tuple(FORMS)
    assert "instant" not in forms_of(CAPABILITIES, {})
    assert forms_of(("chat", "stream", "vision"), OFF) == ("length",)
    plan = compile_file("k2-thinking-h200-tp8", catalog=catalog).plan
    assert catalog.checkpoint(plan.checkpoint).thinking_off == {}  # it always thinks
    assert catalog.checkpoint("kimi-k2.5-int4").thinking_off == OFF


def test_every_form_has_its_limit() -> None:
    assert FORMS.keys() <= MAX_TOKENS.keys()
    assert question_for("length", "m").body["max_tokens"] == MAX_TOKENS["length"]
