"""What a stack says it can do, as requests of a client, and what their answers must hold."""

from __future__ import annotations

import base64
import json
import re
import struct
import zlib
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet

from infra.engines.serving import CHAT
from infra.launch.proof.client_answer import Said, missing_from_stream, read_said
from infra.launch.proof.rank import Question

# What shows by its first words ends there: a model that finds no end would talk on, at whatever its host's speed is.
FEW_TOKENS = 32
# A thought comes before the words that are judged.
MAX_TOKENS: Mapping[str, int] = {
    "vision": 256, "tools": 512, "reasoning": 256, "length": 8, "instant": 64, "streamed-reasoning": 256,
    "streamed-tools": 512, "tool-result": 512, "vision-tools": 512,
}  # fmt: skip
# What a front end makes of the words beside its capabilities, and the capabilities that it takes: parsers run in the
# server of a rank, and are asked once for each server.
FORMS: Mapping[str, AbstractSet[str]] = {
    "length": frozenset(),
    "instant": frozenset({"reasoning"}),
    "streamed-reasoning": frozenset({"reasoning"}),
    "streamed-tools": frozenset({"tools"}),
    "tool-result": frozenset({"tools"}),
    "vision-tools": frozenset({"vision", "tools"}),
}
COLOURS: Mapping[str, bytes] = {
    "red": b"\xff\x00\x00",
    "green": b"\x00\x80\x00",
    "blue": b"\x00\x00\xff",
}
PNG_SIDE = 64
CITY, DEGREES, SUM = "Paris", "21", "42"
WEATHER, PAINT = "get_weather", "note_colour"
# In the form that Kimi's template reads: functions.<name>:<number>.
_CALL = f"functions.{WEATHER}:0"
# Long enough for one KV block of every backend, as a prefill rank transfers nothing of a shorter one.
_PADDING = "Answer in one short sentence. " * 30
_WHAT_COLOUR = "What colour is this picture? Answer with one word."
_NOTE_COLOUR = f"Call {PAINT} with the colour of this picture."
_ADD = f"{_PADDING}What is 17 + 25?"
_ASK_WEATHER = f"{_PADDING}Call the tool to find the weather in {CITY}."
_WORDS: Mapping[str, str] = dict.fromkeys(("tools", "streamed-tools", "tool-result"), _ASK_WEATHER)


def forms_of(capabilities: Sequence[str], thinking_off: Mapping[str, bool]) -> tuple[str, ...]:
    """The forms that a deployment can be asked for, in the order of `FORMS`.

    Args:
        capabilities: the plan's.
        thinking_off: what its checkpoint's chat template takes to think no more, {} where it always thinks.
    """
    return tuple(
        form
        for form, needs in FORMS.items()
        if needs <= set(capabilities) and (form != "instant" or thinking_off)
    )


def question_for(
    name: str, model: str, nonce: str = "", thinking_off: Mapping[str, bool] | None = None
) -> Question:
    """The request that shows a capability or a form.

    Args:
        name: a capability of the plan's (chat, stream, vision, tools, reasoning) or one of `FORMS`.
        model: the served name.
        nonce: another one makes another colour, so that no answer is right by chance or by heart.
        thinking_off: see `forms_of`.
    """
    colour = list(COLOURS)[zlib.crc32(f"colour {nonce}".encode()) % len(COLOURS)]
    body: dict[str, object] = {
        "model": model,
        "messages": [{"role": "user", "content": _WORDS.get(name, _ADD)}],
        "max_tokens": MAX_TOKENS.get(name, FEW_TOKENS),
        "temperature": 0,
    }
    wanted = ""
    if name == "stream" or name.startswith("streamed-"):
        body.update(stream=True, stream_options={"include_usage": True})
    if name in {"vision", "vision-tools"}:
        body["messages"] = _picture(_WHAT_COLOUR if name == "vision" else _NOTE_COLOUR, colour)
        wanted = colour
    if name in {"tools", "streamed-tools", "tool-result"}:
        body.update(tools=[_tool(WEATHER, "The weather in a city.", "city")], tool_choice="auto")
        wanted = CITY
    if name == "vision-tools":
        body.update(tools=[_tool(PAINT, "Note a colour.", "colour")], tool_choice="auto")
    if name == "tool-result":
        body["messages"] = _handed_back()
        wanted = DEGREES
    if name == "instant":
        body["chat_template_kwargs"] = dict(thinking_off or {})
        wanted = SUM
    if name == "length":
        body["ignore_eos"] = True
        wanted = str(MAX_TOKENS[name])
    return Question(name=name, path=CHAT, body=body, wanted=wanted)


def missing_from(question: Question, answer: object) -> str | None:
    """What an answer lacks to show what it was asked for, None when it shows it.

    Args:
        question: what was asked.
        answer: the body, a map or a stream's text.
    """
    if question.body.get("stream") is True and (lacking := missing_from_stream(answer)):
        return lacking
    said = read_said(answer)
    if said is None:
        return "the answer has no message"
    return _JUDGES[question.name](said, question.wanted)


def picture_url(colour: str) -> str:
    """A square of one of `COLOURS` as a data URL, made here so that no file and no network is needed."""
    row = b"\0" + COLOURS[colour] * PNG_SIDE
    header = struct.pack(">IIBBBBB", PNG_SIDE, PNG_SIDE, 8, 2, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(row * PNG_SIDE)), (b"IEND", b""))
    picture = b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(kind, data) for kind, data in chunks)
    return "data:image/png;base64," + base64.b64encode(picture).decode("ascii")


def _picture(words: str, colour: str) -> list[dict[str, object]]:
    parts = [
        {"type": "text", "text": words},
        {"type": "image_url", "image_url": {"url": picture_url(colour)}},
    ]
    return [{"role": "user", "content": parts}]


def _tool(name: str, description: str, argument: str) -> dict[str, object]:
    parameters = {
        "type": "object",
        "properties": {argument: {"type": "string"}},
        "required": [argument],
    }
    function = {"name": name, "description": description, "parameters": parameters}
    return {"type": "function", "function": function}


def _handed_back() -> list[dict[str, object]]:
    """A talk in which the tool was called, and has answered."""
    function = {"name": WEATHER, "arguments": json.dumps({"city": CITY})}
    call = {"id": _CALL, "type": "function", "function": function}
    return [
        {"role": "user", "content": _ASK_WEATHER},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": _CALL, "content": f"{DEGREES} degrees and rain"},
    ]


def _has_words(said: Said, _: str) -> str | None:
    return None if said.content or said.reasoning else "the message is empty"


def _names_colour(said: Said, wanted: str) -> str | None:
    """The colour that was sent and no other; a thought that was cut off may weigh others."""
    words = said.content or said.reasoning
    if not words:
        return "the message is empty"
    named = [each for each in COLOURS if re.search(rf"\b{each}\b", words, re.IGNORECASE)]
    if named == [wanted] or (not said.content and wanted in named):
        return None
    return f"the picture is {wanted}, the answer says {_shown(words)}"


def _calls_weather(said: Said, wanted: str) -> str | None:
    return _wrong_call(said, WEATHER, "city", wanted)


def _calls_paint(said: Said, wanted: str) -> str | None:
    return _wrong_call(said, PAINT, "colour", wanted)


def _wrong_call(said: Said, name: str, argument: str, wanted: str) -> str | None:
    """What is wrong with the call of a tool, None where name, argument and end are right."""
    if not said.calls:
        return "the message calls no tool"
    called, text = said.calls[0]
    if called != name:
        return f"the message calls {called!r}, not {name}"
    try:
        given = json.loads(text)
    except ValueError:
        return f"the arguments of {name} are no JSON: {_shown(text)}"
    value = given.get(argument) if isinstance(given, Mapping) else None
    if not isinstance(value, str) or not re.search(rf"\b{wanted}\b", value, re.IGNORECASE):
        return f"{name} is called with {argument} {value!r}, not {wanted}"
    return _other_end(said, "tool_calls")


def _says_result(said: Said, wanted: str) -> str | None:
    if said.calls:
        return "the message calls a tool again, which has answered"
    if not re.search(rf"\b{wanted}\b", said.content):
        return f"the tool said {wanted} degrees, the answer says {_shown(said.content)}"
    return _other_end(said, "stop")


def _has_reasoning(said: Said, _: str) -> str | None:
    if not said.reasoning:
        return "the message has no reasoning beside its content"
    return _left_mark(said)


def _streams_reasoning(said: Said, wanted: str) -> str | None:
    if said.num_thoughts == 1:
        return "the reasoning comes in one piece at the end"
    return _has_reasoning(said, wanted)


def _thinks_not(said: Said, wanted: str) -> str | None:
    if said.reasoning:
        return f"thinking is off, and there is reasoning: {_shown(said.reasoning)}"
    if not re.search(rf"\b{wanted}\b", said.content):
        return f"17 + 25 is {wanted}, the answer says {_shown(said.content)}"
    return _left_mark(said)


def _is_cut(said: Said, wanted: str) -> str | None:
    if said.num_tokens is not None and str(said.num_tokens) != wanted:
        return f"{wanted} tokens were asked for, {said.num_tokens} came"
    return _other_end(said, "length")


def _left_mark(said: Said) -> str | None:
    return (
        "the content holds a mark of the thought" if re.search("</?think>", said.content) else None
    )


def _other_end(said: Said, wanted: str) -> str | None:
    if said.finish_reason == wanted:
        return None
    return f"finish_reason is {said.finish_reason!r}, not {wanted}"


def _shown(words: str) -> str:
    return repr(" ".join(words.split())[:60])


_JUDGES: Mapping[str, Callable[[Said, str], str | None]] = {
    "chat": _has_words,
    "stream": _has_words,
    "vision": _names_colour,
    "tools": _calls_weather,
    "reasoning": _has_reasoning,
    "length": _is_cut,
    "instant": _thinks_not,
    "streamed-reasoning": _streams_reasoning,
    "streamed-tools": _calls_weather,
    "tool-result": _says_result,
    "vision-tools": _calls_paint,
}


def _chunk(kind: bytes, data: bytes) -> bytes:
    checksum = struct.pack(">I", zlib.crc32(kind + data))
    return struct.pack(">I", len(data)) + kind + data + checksum
