"""What changes variables: assignments, `export`, `local`, `shift`, `set`, `unset`, `let` and `((…))`."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence

from infra.plan.foreign.shell_tree import Assignment, Command
from infra.plan.foreign.shell_values import (
    Held,
    Scope,
    Value,
    before_itself,
    evaluate,
    expand_key,
    expand_value,
    expand_word,
)
from infra.plan.foreign.source import Word
from infra.spec.bounded import is_whole_number

ARITHMETIC = "(("
NAMES = frozenset({"shift", "set", "unset", "let", ARITHMETIC})
LEAVING = ("break", "continue")
DECLARING = ("export", "declare", "local", "readonly", "typeset")
_OWN = ("declare", "local", "typeset")  # in a function, they name what is the function's own

_STEP = re.compile(r"([A-Za-z_]\w*)\s*(\+\+|--)|(\+\+|--)\s*([A-Za-z_]\w*)")
_SETTING = re.compile(r"([A-Za-z_]\w*)\s*([-+*/%]?)=(?!=)\s*(.+)")
_COMPARISON = re.compile(r"([^<>=!&|]+)(<=|>=|==|!=|<|>)([^<>=!&|]+)")
_COMPARE: Mapping[str, Callable[[int, int], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
}
_NAME = re.compile(r"[A-Za-z_]\w*")
_ELEMENT = re.compile(r"([A-Za-z_]\w*)\[(.*)\]", re.DOTALL)
_KEYED = re.compile(r"\[([^\]]*)\]=(.*)", re.DOTALL)


def change(words: Sequence[Word], scope: Scope) -> tuple[bool | None, str]:
    """Do what one of `NAMES` does to the variables.

    Returns:
        Whether it succeeds (None: only a run could say), and why it is not followed, empty where it is.
    """
    name, rest = words[0].text, words[1:]
    if name == "shift":
        return True, _shift(rest, scope)
    if name == "unset":
        for word in rest:
            if _NAME.fullmatch(word.text):
                scope.assign(word.text, Value(""), word.line)
                scope.exported.pop(word.text, None)
        return True, ""
    if name == "set":
        return True, _set(rest, scope)
    held: bool | None = None
    for word in rest:  # `((` has one
        held = _arithmetic(word, scope)
    return held, ""


def carry_out(assignment: Assignment, scope: Scope) -> None:
    """Set what an assignment sets."""
    value: Held
    if assignment.items is not None:
        fields = [w for item in assignment.items for w in expand_word(item, scope)]
        value = tuple(Value(w.raw, w.open_names, w.line) for w in fields)
    else:
        stripped = before_itself(assignment.value, assignment.name, scope)
        if stripped is not None:
            scope.prepended.add(assignment.name)
        value = expand_value(stripped or assignment.value, scope)
    if assignment.appends:
        value = _appended(scope.values.get(assignment.name), value)
    _assign(assignment.name, value, assignment.line, scope)


def declare(
    node: Command, words: Sequence[Word], scope: Scope, own: dict[str, Held | None] | None
) -> None:
    """`export`, `local` and the like, with what they set.

    Args:
        node: the command with its assignments.
        words: the command itself, its options and its bare names.
        scope: of the variables.
        own: takes what the function's own names held before; None outside of functions.
    """
    exports = words[0].text == "export" or any(word.text == "-x" for word in words[1:])
    names = [assignment.name for assignment in node.assignments]
    bare = [word.text for word in words[1:] if _NAME.fullmatch(word.text)]
    if words[0].text in _OWN and own is not None:
        for name in (*names, *bare):
            own.setdefault(name, scope.values.get(name))
        scope.values |= dict.fromkeys(bare, Value(""))
    if any(word.text == "-A" for word in words[1:]):
        scope.keys |= dict.fromkeys((*names, *bare), ())
        scope.values |= dict.fromkeys(bare, ())
    for assignment in node.assignments:
        carry_out(assignment, scope)
    if exports:
        quoted = list(_quoted(words[1:], scope))
        scope.exported |= dict.fromkeys((*names, *bare, *quoted))


def _quoted(words: Sequence[Word], scope: Scope) -> Iterator[str]:
    """Names that `export "NAME=value"` sets; what is no name is kept, for the gate of plans to refuse at its line."""
    for word in words:
        name, equals, text = word.raw.partition("=")
        is_option = word.text.startswith(("-", "+"))
        if word.open_names or is_option or (not equals and _NAME.fullmatch(word.text)):
            continue
        scope.assign(name, Value(text), word.line)
        yield name


def _assign(name: str, held: Held, line: int, scope: Scope) -> None:
    """`name=…`, `array=(…)` also with keys, `array[key]=…`."""
    element = _ELEMENT.fullmatch(name)
    if element is not None and isinstance(held, Value):
        _assign_element(element[1], element[2], held, line, scope)
        return
    keyed = [_KEYED.fullmatch(v.raw) for v in held] if isinstance(held, tuple) else []
    if not keyed or not isinstance(held, tuple) or None in keyed:
        scope.assign(name, held, line)
        return
    is_map = name in scope.keys
    scope.assign(name, (), line)
    if is_map:
        scope.keys[name] = ()
    for match, value in zip(keyed, held, strict=True):
        if match is not None:
            own = Value(match[2], value.open_names, value.line)
            _assign_element(name, match[1], own, line, scope)


def _assign_element(name: str, key: str, value: Value, line: int, scope: Scope) -> None:
    held = scope.values.get(name, ())
    place = None if name in scope.keys else evaluate(key, scope)
    if place is not None and isinstance(held, tuple) and 0 <= place <= len(held):
        scope.assign(name, (*held[:place], value, *held[place + 1 :]), line)
    else:
        scope.assign_element(name, expand_key(key, scope), value, line)


def _appended(before: Held | None, value: Held) -> Held:
    """`+=` on text or on an array."""
    if isinstance(value, tuple):
        first = before if isinstance(before, tuple) else ((before,) if before is not None else ())
        return (*first, *value)
    if isinstance(before, tuple):
        return (*before, value)
    if before is None:
        return value
    return Value(before.raw + value.raw, (*before.open_names, *value.open_names))


def _shift(rest: Sequence[Word], scope: Scope) -> str:
    count = rest[0].text if rest else "1"
    if not is_whole_number(count):
        return "how far arguments move only a run could say"
    moved = int(count)
    if scope.has_positional:
        scope.positional = scope.positional[moved:]
        return ""
    # a script's own arguments, as far as the operator gives them
    digits = {int(name): value for name, value in scope.fixed.items() if is_whole_number(name)}
    others = {name: value for name, value in scope.fixed.items() if not is_whole_number(name)}
    left = {str(place - moved): value for place, value in digits.items() if place > moved}
    scope.fixed = {**others, **left}
    return (
        "" if digits else "the script's own arguments move: what $1 is then the file does not say"
    )


def _set(rest: Sequence[Word], scope: Scope) -> str:
    texts = [word.text for word in rest]
    for index, text in enumerate(texts):
        if text == "--":
            scope.positional = tuple(Value(w.raw, w.open_names, w.line) for w in rest[index + 1 :])
            scope.has_positional = True
            break
        named = texts[index + 1] if text in ("-o", "+o") and index + 1 < len(texts) else ""
        if named == "allexport" or re.fullmatch(r"[-+][a-zA-Z]*a[a-zA-Z]*", text):
            scope.exports_all = text.startswith("-")
    return ""


def _arithmetic(word: Word, scope: Scope) -> bool | None:
    """`X++`, `X += 2`, `X = Y * 2`, or a comparison; whether it succeeds, as far as the script settles it."""
    text = word.text.strip()
    step, setting = _STEP.fullmatch(text), _SETTING.fullmatch(text)
    if step is not None:
        name = step[1] or step[4]
        _settle(name, f"{name} {(step[2] or step[3])[0]} 1", word, scope)
        return None
    if setting is not None:
        name, sign, value = setting.groups()
        _settle(name, f"{name} {sign} ({value})" if sign else value, word, scope)
        return None
    comparison = _COMPARISON.fullmatch(text)
    if comparison is None:
        number = evaluate(text, scope)
        return None if number is None else bool(number)
    left, right = evaluate(comparison[1], scope), evaluate(comparison[3], scope)
    if left is None or right is None:
        return None
    return _COMPARE[comparison[2]](left, right)


def _settle(name: str, expression: str, word: Word, scope: Scope) -> None:
    number = evaluate(expression, scope)
    if number is None:
        written = f"$(({expression}))"
        scope.assign(name, Value(written, (written,)), word.line)
    else:
        scope.assign(name, Value(str(number)), word.line)
