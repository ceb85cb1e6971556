"""The part of Go's templates that people give to `--format`: fields, `json`, `index`, `join`, `len`, `range`, `if`."""

from __future__ import annotations

from .documents import format_document

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

FUNCTIONS = ("json", "index", "join", "len", "println", "lower", "upper", "title", "slice")
ESCAPES = {"\\t": "\t", "\\n": "\n"}


class TemplateError(Exception):
    """A template that docker would refuse; the text is Go's."""


def render_template(template: str, value: Any) -> str:
    """Return a template filled with a value.

    Args:
        template: text with `{{…}}` actions.
        value: what the dot means; dictionaries have fields.

    Raises:
        TemplateError: a malformed action, or a field that the value lacks.
    """
    text, _, rest = _render(_split(_unescape(template)), value)
    if rest:
        raise TemplateError(f"template: :1: unexpected {{{{{rest[0][1]}}}}}")
    return text


def _unescape(template: str) -> str:
    r"""Return a template with `\\t` and `\\n` outside of actions as the characters they mean."""
    for written, meant in ESCAPES.items():
        template = template.replace(written, meant)
    return template


def _split(template: str) -> list[tuple[bool, str]]:
    """Return the template's parts as (is an action, text)."""
    parts: list[tuple[bool, str]] = []
    while template:
        before, opening, rest = template.partition("{{")
        if before:
            parts.append((False, before))
        if not opening:
            break
        action, closing, template = rest.partition("}}")
        if not closing:
            raise TemplateError("template: :1: unclosed action")
        parts.append((True, action.strip("- ").strip()))
    return parts


def _render(parts: list[tuple[bool, str]], value: Any) -> tuple[str, str, list[tuple[bool, str]]]:
    """Return the text up to an `end` or `else` that belongs outside, that word, and the rest."""
    text = ""
    while parts:
        is_action, content = parts[0]
        parts = parts[1:]
        keyword = content.split(" ", 1)[0] if is_action else ""
        if not is_action:
            text += content
        elif keyword in ("end", "else"):
            return text, keyword, parts
        elif keyword == "range":
            items = _evaluate(content[len("range") :].strip(), value) or []
            following = _skip(parts)
            for item in items.values() if isinstance(items, dict) else items:
                text += _render(parts, item)[0]
            parts = following
        elif keyword == "if":
            condition = bool(_evaluate(content[len("if") :].strip(), value))
            chosen, word, following = _render(parts, value) if condition else ("", "", parts)
            if not condition or word == "else":
                word, following = _skip_branch(following if condition else parts)
                if not condition and word == "else":
                    chosen, _, following = _render(following, value)
            text += chosen
            parts = following
        else:
            text += _as_text(_evaluate(content, value))
    return text, "", []


def _skip(parts: list[tuple[bool, str]]) -> list[tuple[bool, str]]:
    """Return what stands after the `end` of a block."""
    word, rest = _skip_branch(parts)
    while word == "else":
        word, rest = _skip_branch(rest)
    return rest


def _skip_branch(parts: list[tuple[bool, str]]) -> tuple[str, list[tuple[bool, str]]]:
    """Return the `end` or `else` that closes this branch, and what stands after it."""
    depth = 0
    for position, (is_action, content) in enumerate(parts):
        keyword = content.split(" ", 1)[0] if is_action else ""
        if keyword in ("range", "if", "with"):
            depth += 1
        elif keyword == "end" and depth:
            depth -= 1
        elif keyword == "end" or (keyword == "else" and not depth):
            return keyword, parts[position + 1 :]
    raise TemplateError("template: :1: unexpected EOF")


def _evaluate(expression: str, value: Any) -> Any:
    """Return what an expression, possibly a pipeline, means."""
    stages = [stage.strip() for stage in expression.split("|")]
    result = _evaluate_call(_words(stages[0]), value)
    for stage in stages[1:]:
        result = _call(
            _words(stage)[0], [*[_operand(word, value) for word in _words(stage)[1:]], result]
        )
    return result


def _evaluate_call(words: list[str], value: Any) -> Any:
    """Return what one stage means: an operand, or a function of operands."""
    if not words:
        raise TemplateError("template: :1: missing value for command")
    if words[0] in FUNCTIONS:
        return _call(words[0], [_operand(word, value) for word in words[1:]])
    return _operand(words[0], value)


def _words(expression: str) -> list[str]:
    """Return the words of a stage; quoted text keeps its blanks and its quotes."""
    words: list[str] = []
    word, quote = "", ""
    for character in expression.strip("() ") + " ":
        if character == " " and not quote:
            if word:
                words.append(word)
            word = ""
            continue
        if character in '"`' and (not quote or quote == character):
            quote = "" if quote else character
        word += character
    return words


def _operand(word: str, value: Any) -> Any:
    """Return a literal, the dot, or a field of it."""
    if word[:1] in ('"', "`"):
        return word[1:-1]
    if word.lstrip("-").isdigit():
        return int(word)
    if not word.startswith("."):
        raise TemplateError(f'template: :1: function "{word}" not defined')
    for name in word[1:].split("."):
        if not name:
            continue
        if not isinstance(value, dict) or name not in value:
            raise TemplateError(
                f'template: :1:2: executing "" at <{word}>: map has no entry for key "{name}"'
            )
        value = value[name]
    return value


def _call(name: str, operands: list[Any]) -> Any:
    """Return what a function makes of its operands."""
    last = operands[-1] if operands else None
    if name == "json":
        return format_document(last)
    if name == "len":
        return len(last or ())
    if name == "println":
        return " ".join(_as_text(operand) for operand in operands) + "\n"
    if name == "join":
        return operands[1].join(operands[0] or []) if isinstance(operands[1], str) else ""
    if name == "index":
        result = operands[0]
        for key in operands[1:]:
            try:
                result = result[key]
            except (IndexError, KeyError, TypeError):
                raise TemplateError(
                    f'template: :1:2: executing "" at <index>: error calling index: '
                    f"reflect: slice index out of range: {key}"
                ) from None
        return result
    if name in ("lower", "upper", "title"):
        return getattr(str(last), name)()
    raise TemplateError(f'template: :1: function "{name}" not defined')


def _as_text(value: Any) -> str:
    """Return a value as Go prints it inside a template."""
    if value is None:
        return "<no value>"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return "[" + " ".join(_as_text(item) for item in value) + "]"
    if isinstance(value, dict):
        return "map[" + " ".join(f"{key}:{_as_text(value[key])}" for key in sorted(value)) + "]"
    return str(value)
