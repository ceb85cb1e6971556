"""Words of a shell script expanded with the variables that it sets itself; what it does not settle stays open."""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from infra.plan.foreign.shell_words import (
    Arithmetic,
    Opaque,
    Part,
    RawWord,
    Reference,
    ShellTroubleError,
    Text,
)
from infra.plan.foreign.source import CONTINUED, Word
from infra.spec.bounded import is_whole_number
from infra.spec.work import Work

# Longer values are no settings of an engine; a variable that doubles itself would fill the memory.
MAX_VALUE = 100_000
MAX_FIELDS = 20_000
_ALL = ("@", "*")
_SPECIAL = frozenset("#?!$-")
_NUMBERS: Mapping[type, Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.floordiv,
    ast.Mod: operator.mod,
}
_LARGEST = 1 << 40
MAX_EXPRESSION = 200  # more is no port or rank
_PLAIN = re.compile(r"[0-9+*/%() \t\n-]*")
_VARIABLE = re.compile(r"\$(?:\{([A-Za-z_]\w*)\}|([A-Za-z_]\w*|[0-9]))")
_LENGTH = re.compile(r"\$\{#([A-Za-z_]\w*)\[[@*]\]\}")
_DEFAULTED = re.compile(r"\$\{([A-Za-z_]\w*):?-(\d+)\}")


@dataclass(frozen=True, slots=True)
class Value:
    """What a variable holds.

    Args:
        open_names: the variables and substitutions that it still depends on.
        line: where it was set, 0 when that is not known.
    """

    raw: str
    open_names: tuple[str, ...] = ()
    line: int = 0


Held = Value | tuple[Value, ...]


@dataclass(slots=True)
class Scope:
    """Variables, which of them are exported, and positional parameters.

    Args:
        fixed: given by the operator; assignments do not change them.
        has_positional: whether `$1`, `$@` are known; a script's own arguments are not.
        exports_all: whether whatever is set is exported, by `set -a`.
        keys: of associative arrays, whose values are held under `name[key]` too.
        prepended: variables whose value stands before what the process's surroundings give them.
        work: the budget of the whole file.
    """

    values: dict[str, Held] = field(default_factory=dict)
    exported: dict[str, None] = field(default_factory=dict)
    fixed: Mapping[str, str] = field(default_factory=dict)
    positional: tuple[Value, ...] = ()
    has_positional: bool = False
    lines: dict[str, int] = field(default_factory=dict)
    prepended: set[str] = field(default_factory=set)
    num_changes: int = 0
    exports_all: bool = False
    keys: dict[str, tuple[str, ...]] = field(default_factory=dict)
    work: Work = field(default_factory=Work)

    def assign(self, name: str, held: Held, line: int) -> None:
        """Set a variable unless the operator has."""
        if isinstance(held, Value) and len(held.raw) > MAX_VALUE:
            raise ShellTroubleError(line, f"{name} becomes longer than {MAX_VALUE} characters")
        self.work.spend(1 + (0 if isinstance(held, Value) else len(held)), line)
        self.num_changes += 1
        self.lines[name] = line
        if self.exports_all and "[" not in name:  # an element is no variable of an environment
            self.exported[name] = None
        if name not in self.fixed:
            self.values[name] = held

    def assign_element(self, name: str, key: str, value: Value, line: int) -> None:
        """Set one element of an array, by its key or its number."""
        self.keys.setdefault(name, ())
        self.work.spend(2 * len(self.keys[name]), line)
        if key not in self.keys[name]:
            self.keys[name] += (key,)
        self.assign(f"{name}[{key}]", value, line)
        held = tuple(self.values.get(f"{name}[{each}]", Value("")) for each in self.keys[name])
        self.values[name] = tuple(each for each in held if isinstance(each, Value))

    def restore(self, before: Mapping[str, Held | None]) -> None:
        """Give variables the values that they had; None takes one away."""
        for name, held in before.items():
            if held is None:
                self.values.pop(name, None)
            else:
                self.values[name] = held

    def look_up(self, name: str) -> Held | None:
        """What a name holds, None for what the script does not settle."""
        if name in self.fixed:
            return Value(self.fixed[name])
        if name in _ALL:
            return self.positional if self.has_positional else None
        if is_whole_number(name) and self.has_positional:
            index = int(name) - 1
            if index < 0:
                return Value("sh")
            return self.positional[index] if index < len(self.positional) else Value("")
        return self.values.get(name)


def copy_scope(scope: Scope) -> Scope:
    """The same variables, to go back to."""
    scope.work.spend(len(scope.values) + len(scope.lines) + len(scope.exported), 0)
    return replace(
        scope,
        values=dict(scope.values),
        exported=dict(scope.exported),
        lines=dict(scope.lines),
        prepended=set(scope.prepended),
        keys=dict(scope.keys),
    )


def expand_word(word: RawWord, scope: Scope) -> list[Word]:
    """The fields that a word becomes: one, several, or none."""
    fields = _Fields(word.line, scope.work)
    for part in word.parts:
        _expand_part(part, scope, fields)
    # `"${empty[@]}"` is no word at all
    is_list = any(isinstance(p, Reference) and "@" in (p.name, p.index) for p in word.parts)
    return fields.finish(keeps_empty=word.has_quotes and not is_list)


def expand_value(word: RawWord | None, scope: Scope) -> Value:
    """The one value that an assignment gives: nothing is split."""
    if word is None:
        return Value("")
    fields = _Fields(word.line, scope.work)
    for part in word.parts:
        _expand_part(part, scope, fields, splits=False)
    found = fields.finish(keeps_empty=True)
    names = tuple(name for field in found for name in field.open_names)
    return Value(" ".join(field.raw for field in found), names, word.line)


def before_itself(word: RawWord | None, name: str, scope: Scope) -> RawWord | None:
    """The word without the variable's own old value at its end: `/x:$PATH`, `/x${PATH:+:$PATH}`; else None."""
    if word is None or len(word.parts) < 2 or scope.look_up(name) is not None:  # noqa: PLR2004 - text and reference
        return None
    parts = list(word.parts)
    if isinstance(parts[-1], Text) and not parts[-1].text:
        parts.pop()
    last = parts.pop()
    if not isinstance(last, Reference) or last.name != name or not parts:
        return None
    tail = parts[-1]
    if last.operator in (":+", "+"):
        return RawWord(tuple(parts), word.line, word.has_quotes)
    if not isinstance(tail, Text) or not tail.text.endswith(":"):
        return None
    parts[-1] = Text(tail.text[:-1], tail.is_quoted)
    return RawWord(tuple(parts), word.line, word.has_quotes)


def evaluate(expression: str, scope: Scope) -> int | None:
    """A whole number of `$((…))`; None where a name is not settled or it is no plain arithmetic."""
    if len(expression) > MAX_EXPRESSION:
        return None
    counted = _LENGTH.sub(lambda match: _length_of(match[1], scope), expression)
    settled = _DEFAULTED.sub(lambda match: _number_of(match[1], scope, match[2]), counted)
    text = re.sub(
        r"\$?\{?([A-Za-z_]\w*|[0-9]+(?=\}))\}?|\$([0-9])",
        lambda match: _number_of(match[1] or match[2], scope),
        settled,
    )
    if not _PLAIN.fullmatch(text):
        return None
    try:
        return _number(ast.parse(text.strip(), mode="eval").body)
    except (SyntaxError, ValueError, RecursionError, ZeroDivisionError, MemoryError):
        return None


class _Fields:
    """Fields of one word while they are put together."""

    def __init__(self, line: int, work: Work) -> None:
        self.line = line
        self.work = work
        self.done: list[Word] = []
        self.run: list[str] = []
        self.open_names: list[str] = []
        self.is_begun = False
        self.set_at = 0

    def add(self, raw: str, open_names: tuple[str, ...] = (), line: int = 0) -> None:
        """Text that belongs to the field at hand; `line` is where it was set, when a field begins with it."""
        self.work.spend_text(len(raw) + len(open_names), self.line)
        if not self.is_begun and raw:
            self.set_at = line
        self.run.append(raw)
        self.open_names += open_names
        self.is_begun = self.is_begun or bool(raw)

    def end_field(self) -> None:
        """The field at hand ends here."""
        if self.is_begun:
            raw = "".join(self.run)
            self.done.append(Word(raw, self.set_at or self.line, tuple(self.open_names)))
        # a line that ends inside the word moves the fields behind it
        self.line += sum(text.count("\n") + text.count(CONTINUED) for text in self.run)
        self.run, self.open_names, self.is_begun = [], [], False
        if len(self.done) > MAX_FIELDS:
            raise ShellTroubleError(self.line, f"a word becomes more than {MAX_FIELDS} words")

    def add_split(self, value: Value) -> None:
        """A value outside quotes: blanks end a field, but not those of a substitution that nothing settles."""
        if any(" " in name for name in value.open_names):
            self.add(value.raw, value.open_names, value.line)
            return
        pieces = re.split(r"\s+", value.raw.replace(CONTINUED, ""))
        for index, piece in enumerate(pieces):
            if index:
                self.end_field()
            names = (
                tuple(n for n in value.open_names if n in piece)
                if len(pieces) > 1
                else value.open_names
            )
            self.add(piece, names, value.line)

    def finish(self, *, keeps_empty: bool) -> list[Word]:
        """All fields."""
        if keeps_empty and not self.done and not self.is_begun:
            return [Word("".join(self.run), self.line, tuple(self.open_names))]
        self.end_field()
        return self.done


def _expand_part(part: Part, scope: Scope, fields: _Fields, *, splits: bool = True) -> None:
    if isinstance(part, Text):
        fields.add(part.text)
        return
    if isinstance(part, Opaque):
        fields.add(part.written, (part.written.replace("\n", " "),))
        return
    if isinstance(part, Arithmetic):
        number = evaluate(part.expression, scope)
        written = f"$(({part.expression}))"
        fields.add(written if number is None else str(number), (written,) if number is None else ())
        return
    held = _resolve(part, scope)
    if isinstance(held, tuple):
        _add_array(part, held, fields)
    elif part.is_quoted or not splits:
        fields.add(held.raw, held.open_names)
    else:
        fields.add_split(held)


def _add_array(part: Reference, held: tuple[Value, ...], fields: _Fields) -> None:
    if "*" in (part.name, part.index) and part.is_quoted:
        fields.work.spend_text(sum(len(value.raw) + 1 for value in held), fields.line)
        joined = " ".join(value.raw for value in held)
        fields.add(joined, tuple(n for value in held for n in value.open_names))
        return
    for index, value in enumerate(held):
        if index:
            fields.end_field()
        fields.add(value.raw, value.open_names, value.line)
        if part.is_quoted:
            fields.is_begun = True


def _resolve(part: Reference, scope: Scope) -> Held:
    """What a reference stands for; an unset name without a default stays open under its own name."""
    held = None if part.name in _SPECIAL else scope.look_up(part.name)
    if part.prefix:
        return _counted(part, held, scope)
    if isinstance(held, tuple) and part.name not in _ALL:
        settled, held = _element(part, held, scope)
        if not settled:
            return Value(part.written, (part.written,))
    has_colon, action = part.operator.startswith(":"), part.operator[-1:]
    is_set = held is not None and not (has_colon and _is_empty(held))
    found: Held = held if held is not None else Value(part.written, (part.name,))
    if action == "+":
        found = _argument(part, scope) if is_set else Value("")
    elif not is_set and action in ("-", "="):
        found = _argument(part, scope)
        if action == "=":
            scope.assign(part.name, found, scope.lines.get(part.name, 0))
    elif not is_set and part.name in _ALL and part.name not in scope.fixed:
        found = ()
    return found


def _element(part: Reference, held: tuple[Value, ...], scope: Scope) -> tuple[bool, Held | None]:
    """Whether the script settles which element of an array is meant, and that: all, one, or None for none."""
    if part.index in _ALL:
        return True, held
    key = expand_key(part.index, scope)
    if part.name in scope.keys:
        return "\0" not in key, scope.look_up(f"{part.name}[{key}]")
    place = evaluate(part.index or "0", scope)
    if place is None:
        return False, None
    return True, held[place] if -len(held) <= place < len(held) else None


def expand_key(key: str, scope: Scope) -> str:
    """The key of an element with the variables in it; a NUL stands for one that nothing settles."""
    plain = key.strip("\"'")
    return _VARIABLE.sub(lambda match: _text_of(match[1] or match[2], scope), plain)


def _text_of(name: str, scope: Scope) -> str:
    held = scope.look_up(name)
    if not isinstance(held, Value) or held.open_names:
        return "\0"
    scope.work.spend_text(len(held.raw), held.line)
    return held.raw


def _counted(part: Reference, held: Held | None, scope: Scope) -> Held:
    """`${#name}`, `${#array[@]}`, `${!array[@]}`: how long, how many, under which keys."""
    if held is None or (isinstance(held, Value) and held.open_names):
        return Value(part.written, (part.name,))
    if part.prefix == "#":
        return Value(str(len(held.raw if isinstance(held, Value) else held)))
    places = range(len(held)) if isinstance(held, tuple) else range(1)
    return tuple(Value(key) for key in scope.keys.get(part.name) or map(str, places))


def _is_empty(held: Held) -> bool:
    return not held.raw if isinstance(held, Value) else not held


def _argument(part: Reference, scope: Scope) -> Value:
    fields = _Fields(0, scope.work)
    for inner in part.argument:
        _expand_part(inner, scope, fields, splits=False)
    found = fields.finish(keeps_empty=True)
    return Value(" ".join(w.raw for w in found), tuple(n for w in found for n in w.open_names))


def _number_of(name: str, scope: Scope, default: str = "?") -> str:
    held = scope.look_up(name)
    if held is None or _is_empty(held):
        return default
    is_number = isinstance(held, Value) and re.fullmatch(r"-?\d{1,12}", held.raw)
    return held.raw if is_number and isinstance(held, Value) else "?"


def _length_of(name: str, scope: Scope) -> str:
    held = scope.look_up(name)
    return str(len(held)) if isinstance(held, tuple) else "?"


def _number(node: ast.expr) -> int:
    """A node of whole numbers and the five operators.

    Raises:
        ValueError: anything else.
    """
    found: int | None = None
    if isinstance(node, ast.Constant) and type(node.value) is int:
        found = node.value
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        found = -_number(node.operand)
    elif isinstance(node, ast.BinOp) and type(node.op) in _NUMBERS:
        found = _NUMBERS[type(node.op)](_number(node.left), _number(node.right))
    if found is None or abs(found) > _LARGEST:
        raise ValueError
    return found
