"""Blanks that a file leaves to its reader or to a tool, in any form: `{tp}`, `{{ tp }}`, `<tp>`, `%(tp)s`, `@TP@`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from infra.plan.foreign.source import Launch, Word

_BLANK = re.compile(
    r"\{\{[^{}]*\}\}|\{[A-Za-z_][\w.-]*\}|%\([A-Za-z_]\w*\)[a-z]|@[A-Z][A-Z0-9_]*@|\$\{?[A-Za-z_]\w*\}?"
    r"|<[A-Za-z_\u4e00-\u9fff][\w\u4e00-\u9fff .:/-]*>"
)
# What models write themselves, not what a reader fills in: `<think>` of DeepSeek, `<seed:think>` of Seed-OSS, `<s>`.
_MARKUP = re.compile(
    r"<(?:[\w-]+[:_-])?(?:think|thinking|thought|tool_calls?|tool_response|s|pad|unk|bos|eos)>"
)
# A JSON key whose value is text that a model writes: vLLM's `reasoning_start_str`, a list of `stop_tokens`.
_KEY_OF_MARKUP = re.compile(
    r"""\\?["'][\w-]*(?:str|tokens?|tags?|marker|delimiter|stop|bos|eos|begin|start|end)\\?["']\s*:\s*\[?[^\[\]{}:]*$"""
)


def is_markup(text: str, begin: int, end: int) -> bool:
    """Whether `<name>` between two places of a text is a mark of the model's own language."""
    name = text[begin + 1 : end - 1]
    is_closed = f"</{name}>" in text
    is_value = _KEY_OF_MARKUP.search(text, 0, begin) is not None
    return is_closed or is_value or _MARKUP.fullmatch(text, begin, end) is not None


def leave_open(launch: Launch) -> Launch:
    """A process whose words with blanks are open: no blank is a value."""
    words = tuple(map(_open, launch.words))
    return replace(
        launch, words=words, env={name: _open(word) for name, word in launch.env.items()}
    )


def _open(word: Word) -> Word:
    if word.open_names:
        return word
    found = tuple(dict.fromkeys(_blanks(word.text)))
    return replace(word, open_names=found) if found else word


def _blanks(text: str) -> Iterator[str]:
    for match in _BLANK.finditer(text):
        if text[match.start()] != "<" or not is_markup(text, match.start(), match.end()):
            yield match[0]
