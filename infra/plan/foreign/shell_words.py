"""Words of a shell script taken apart: quoted text, references to variables, and what only a shell could say."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from infra.plan.foreign.blanks import is_markup
from infra.plan.foreign.source import CONTINUED

MAX_DEPTH = 40
BLANKS = " \t"
# Where an unquoted word ends.
META = frozenset(" \t\n;&|()<>")
_PLAIN = re.compile(r"[^ \t\n;&|()<>'\"\\$`\0]+")
_IN_QUOTES = re.compile(r'[^"\\$`\n\0]+')
_PARAMETER = re.compile(r"[A-Za-z_]\w*|[0-9]+|[@*#?$!-]")
_IN_BRACES = re.compile(r"([A-Za-z_]\w*|[0-9]+|[@*])(\[[^\]\s]*\])?(:?[-=+?])?")
# `${#array[@]}`, `${#name}`, `${!array[@]}`
_COUNTED = re.compile(r"(?:(#)([A-Za-z_]\w*)(\[[@*]\])?|(!)([A-Za-z_]\w*)(\[[@*]\]))\}")
# `<node0_ip>` of a guide: a redirection to a shell, a blank to be filled in to a reader.
_BLANK_TO_FILL = re.compile(r"<[A-Za-z_\u4e00-\u9fff][\w\u4e00-\u9fff .:/-]*>")


class ShellTroubleError(Exception):
    """The text is no shell that this reader follows; it has the line and the reason."""

    def __init__(self, line: int, why: str) -> None:
        super().__init__(why)
        self.line = line
        self.why = why


_BLANK_IN_JSON = re.compile(
    r"(?<=[:\[,] )<[A-Za-z_][\w-]*>(?=\s*[,}\]])|(?<=\")<[A-Za-z_][\w /-]*>(?=\")"
)


@dataclass(frozen=True, slots=True)
class Text:
    """Literal text."""

    text: str
    is_quoted: bool


@dataclass(frozen=True, slots=True)
class Reference:
    """`$name`, `${name}`, `${name:-word}`, `${name[index]}`.

    Args:
        operator: `:-`, `-`, `:=`, `=`, `:+`, `+`, `:?`, `?` or nothing.
        written: as it stands in the file.
        prefix: `#` for a length, `!` for the keys of an array.
    """

    name: str
    index: str
    operator: str
    argument: tuple[Part, ...]
    is_quoted: bool
    written: str
    prefix: str = ""


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """`$((expression))`."""

    expression: str
    is_quoted: bool


@dataclass(frozen=True, slots=True)
class Opaque:
    """What only a running shell could say: `$(command)`, backticks, string operators, blanks to be filled in."""

    written: str
    is_quoted: bool


Part = Text | Reference | Arithmetic | Opaque


@dataclass(frozen=True, slots=True)
class RawWord:
    """One word before expansion; `has_quotes` keeps an empty `""` a word."""

    parts: tuple[Part, ...]
    line: int
    has_quotes: bool

    @property
    def literal(self) -> str | None:
        """Its text when it is nothing but text, else None."""
        if len(self.parts) == 1 and isinstance(self.parts[0], Text):
            return self.parts[0].text.replace(CONTINUED, "")
        if all(isinstance(part, Text) for part in self.parts):
            return "".join(
                part.text.replace(CONTINUED, "") for part in self.parts if isinstance(part, Text)
            )
        return None

    @property
    def is_bare(self) -> bool:
        """Whether it is one unquoted text: only such words are keywords."""
        return (
            len(self.parts) == 1
            and not self.has_quotes
            and isinstance(self.parts[0], Text)
            and not self.parts[0].is_quoted
        )


@dataclass(slots=True)
class Scanner:
    """A place in the text; every method leaves it behind what it read."""

    text: str
    line: int = 1
    at: int = 0
    depth: int = 0

    @property
    def is_done(self) -> bool:
        """Whether the text has ended."""
        return self.at >= len(self.text)

    def peek(self, length: int = 1) -> str:
        """The next characters; fewer at the end."""
        return self.text[self.at : self.at + length]

    def take(self, length: int) -> str:
        """Move on over characters, counting lines."""
        taken = self.text[self.at : self.at + length]
        self.line += taken.count("\n") + taken.count(CONTINUED)
        self.at += length
        return taken

    def trouble(self, why: str) -> ShellTroubleError:
        """The error of this place."""
        return ShellTroubleError(self.line, why)

    def skip_blanks(self) -> None:
        """Over blanks, continued lines and a comment; not over the end of a line."""
        while not self.is_done:
            char = self.text[self.at]
            if char in BLANKS or char == CONTINUED:
                self.take(1)
            elif char == "\\" and self.peek(2) == "\\\n":
                self.take(2)
            elif char == "#":
                end = self.text.find("\n", self.at)
                self.take((len(self.text) if end < 0 else end) - self.at)
            else:
                return

    def word(self) -> RawWord | None:
        """The next word, None where an operator or the end stands."""
        line, has_quotes, parts = self.line, False, []
        while not self.is_done:
            char = self.text[self.at]
            if char in META and not self.is_blank_to_fill(char):
                break
            has_quotes = has_quotes or char in "'\""
            parts.extend(self._part(char))
        if not parts and not has_quotes:
            return None
        return RawWord(_joined(parts), line, has_quotes)

    def is_blank_to_fill(self, char: str) -> bool:
        """Whether `<name>` stands here, for a reader to fill in."""
        return char == "<" and _BLANK_TO_FILL.match(self.text, self.at) is not None

    def _part(self, char: str) -> list[Part]:
        """The next parts of an unquoted word; none for what stands for nothing."""
        match = _PLAIN.match(self.text, self.at)
        if match is not None:
            return [Text(self.take(len(match[0])), is_quoted=False)]
        readers: dict[str, Callable[[], list[Part]]] = {
            "'": self._single_quoted,
            '"': self._double_quoted,
            "\\": self._escaped,
            CONTINUED: self._continued,
            "<": self._blank_to_fill,
            "`": self._unquoted_backticks,
            "$": self._unquoted_dollar,
        }
        return readers[char]()

    def _single_quoted(self) -> list[Part]:
        """The text; in JSON, a value that a reader is to fill in stays open: `{"model": <name>}`."""
        text = self._until_quote()
        parts: list[Part] = []
        at = 0
        for match in _BLANK_IN_JSON.finditer(text):
            if is_markup(text, match.start(), match.end()):
                continue
            parts += [
                Text(text[at : match.start()], is_quoted=True),
                Opaque(match[0], is_quoted=True),
            ]
            at = match.end()
        return [*parts, Text(text[at:], is_quoted=True)]

    def _escaped(self) -> list[Part]:
        taken = self.take(2)
        return [] if taken == "\\\n" else [Text(taken[1:], is_quoted=True)]

    def _continued(self) -> list[Part]:
        self.take(1)
        return []

    def _blank_to_fill(self) -> list[Part]:
        matched = _BLANK_TO_FILL.match(self.text, self.at)
        return [Opaque(self.take(len(matched[0]) if matched else 1), is_quoted=True)]

    def _unquoted_backticks(self) -> list[Part]:
        return [self._backticks(is_quoted=False)]

    def _unquoted_dollar(self) -> list[Part]:
        return [self._dollar(is_quoted=False)]

    def _until_quote(self) -> str:
        end = self.text.find("'", self.at + 1)
        if end < 0:
            raise self.trouble("a single quote is not closed")
        return self.take(end + 1 - self.at)[1:-1]

    def _double_quoted(self) -> list[Part]:
        self.take(1)
        parts: list[Part] = [Text("", is_quoted=True)]
        while True:
            char = self.peek()
            if char == '"':
                self.take(1)
                return parts
            if char == "":
                raise self.trouble("a double quote is not closed")
            parts.append(self._quoted_part(char))

    def _quoted_part(self, char: str) -> Part:
        if char == "\\":
            pair = self.take(2)
            if pair == "\\\n":
                return Text(CONTINUED, is_quoted=True)
            return Text(pair[1:] if pair[1:] in '$`"\\' else pair, is_quoted=True)
        if char == "$":
            return self._dollar(is_quoted=True)
        if char == "`":
            return self._backticks(is_quoted=True)
        match = _IN_QUOTES.match(self.text, self.at)
        return Text(self.take(len(match[0]) if match else 1), is_quoted=True)

    def _backticks(self, *, is_quoted: bool) -> Part:
        end = self.text.find("`", self.at + 1)
        if end < 0:
            raise self.trouble("a backtick is not closed")
        return Opaque(self.take(end + 1 - self.at), is_quoted)

    def _dollar(self, *, is_quoted: bool) -> Part:
        following = self.peek(3)
        if following == "$((":
            written = self.balanced(3, 2)
            return Arithmetic(written[3:-2], is_quoted)
        if following.startswith("$("):
            return Opaque(self.balanced(2, 1), is_quoted)
        if following.startswith("${"):
            return self._braces(is_quoted=is_quoted)
        if following.startswith("$'") and not is_quoted:
            self.take(1)
            return Text(self._until_quote(), is_quoted=True)
        match = _PARAMETER.match(self.text, self.at + 1)
        if match is None:
            return Text(self.take(1), is_quoted)
        name = match[0] if not match[0].isdecimal() else match[0][0]
        self.take(1 + len(name))
        return Reference(name, "", "", (), is_quoted, f"${name}")

    def balanced(self, opening: int, depth: int) -> str:
        """Text from here to the parenthesis that closes `depth` open ones, quotes passed over."""
        start = self.at
        self.take(opening)
        while depth:
            char = self.peek()
            if char == "":
                raise self.trouble("a parenthesis is not closed")
            if char == "'":
                self._until_quote()
                continue
            if char == "\\":
                self.take(2)
                continue
            depth += (char == "(") - (char == ")")
            self.take(1)
        return self.text[start : self.at]

    def _braces(self, *, is_quoted: bool) -> Part:
        start = self.at
        counted = _COUNTED.match(self.text, self.at + 2)
        if counted is not None:
            prefix, name, index = (
                counted[1] or counted[4],
                counted[2] or counted[5],
                counted[3] or counted[6],
            )
            written = self.take(2 + len(counted[0]))
            return Reference(name, (index or "")[1:-1], "", (), is_quoted, written, prefix)
        match = _IN_BRACES.match(self.text, self.at + 2)
        if match is None:
            return self._opaque_braces(start, is_quoted=is_quoted)
        self.take(2 + len(match[0]))
        operator = match[3] or ""
        argument: tuple[Part, ...] = ()
        if operator:
            argument = self._deeper(self._argument)
        if self.peek() != "}":
            self.at = start
            return self._opaque_braces(start, is_quoted=is_quoted)
        self.take(1)
        written = self.text[start : self.at]
        return Reference(match[1], (match[2] or "")[1:-1], operator, argument, is_quoted, written)

    def _argument(self) -> tuple[Part, ...]:
        """The word behind an operator, up to the closing brace."""
        parts: list[Part] = []
        while (char := self.peek()) != "}":
            if char == "":
                raise self.trouble("a brace is not closed")
            if char == "'":
                parts.append(Text(self._until_quote(), is_quoted=True))
            elif char == '"':
                parts.extend(self._double_quoted())
            elif char in "$`\\":
                parts.append(self._quoted_part(char))
            else:
                parts.append(Text(self.take(1), is_quoted=False))
        return _joined(parts)

    def _opaque_braces(self, start: int, *, is_quoted: bool) -> Part:
        depth = 0
        while True:
            char = self.peek()
            if char in ("", "\n"):
                raise self.trouble("a brace is not closed")
            depth += (char == "{") - (char == "}")
            self.take(1)
            if char == "}" and not depth:
                return Opaque(self.text[start : self.at], is_quoted)

    def _deeper(self, read: Callable[[], tuple[Part, ...]]) -> tuple[Part, ...]:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise self.trouble(f"it nests more than {MAX_DEPTH} deep")
        found = read()
        self.depth -= 1
        return found


def _joined(parts: list[Part]) -> tuple[Part, ...]:
    """Texts beside each other and quoted alike as one."""
    found: list[Part] = []
    run: list[str] = []
    is_quoted = False
    for part in parts:
        if isinstance(part, Text) and (not run or part.is_quoted == is_quoted):
            run.append(part.text)
            is_quoted = part.is_quoted
            continue
        if run:
            found.append(Text("".join(run), is_quoted))
            run = []
        if isinstance(part, Text):
            run, is_quoted = [part.text], part.is_quoted
        else:
            found.append(part)
    if run:
        found.append(Text("".join(run), is_quoted))
    return tuple(found)
