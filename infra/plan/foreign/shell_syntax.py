"""The statements of a shell script: commands, groups, conditions, loops, functions. Nothing is run."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from infra.plan.foreign.shell_tree import (
    Assignment,
    Block,
    Branches,
    Choice,
    Command,
    Function,
    Loop,
    Node,
    Statement,
    Statements,
    While,
)
from infra.plan.foreign.shell_words import MAX_DEPTH, RawWord, Scanner, Text

_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)(\[[^\]]*\])?(\+?)=")
_KEYWORD = re.compile(r"[A-Za-z_]+|[{}!]")
_PARENTHESES = re.compile(r"[ \t]*\([ \t]*\)")
_REDIRECTION = re.compile(r"\d*(?:&>>?|>>|>&|>\||<<<|<<-?|<>|<&|>|<)")
_COMPOUND = frozenset({"if", "for", "while", "until", "case", "function", "{"})
_END_WORDS = frozenset({"then", "elif", "else", "fi", "do", "done", "esac", "}"})
# Statements before a text is refused: far more than a script of `MAX_LINES` lines has.
MAX_STATEMENTS = 20_000


@dataclass(slots=True)
class Parser:
    """Recursive descent; each method reads one construct."""

    scanner: Scanner
    num_statements: int = 0
    heredocs: list[tuple[str, bool]] | None = None

    def at_end(self) -> bool:
        """Whether nothing but blanks and separators is left."""
        self._separators()
        return self.scanner.is_done

    def statement(self) -> Statement:
        """One statement up to its separator."""
        self.num_statements += 1
        if self.num_statements > MAX_STATEMENTS:
            raise self.scanner.trouble(f"it has more than {MAX_STATEMENTS} statements")
        line = self.scanner.line
        chain = [("", self._node())]
        while True:
            self.scanner.skip_blanks()
            operator = self._operator()
            if operator is None:
                break
            self._separators(newlines_only=True)
            chain.append((operator, self._node()))
        in_background = False
        if self.scanner.peek() == "&":
            self.scanner.take(1)
            in_background = True
        return Statement(tuple(chain), in_background, line)

    def _operator(self) -> str | None:
        for operator in ("&&", "||", "|&", "|"):
            if self.scanner.peek(len(operator)) == operator:
                self.scanner.take(len(operator))
                return "|" if operator == "|&" else operator
        return None

    def _separators(self, *, newlines_only: bool = False) -> None:
        while not self.scanner.is_done:
            self.scanner.skip_blanks()
            char = self.scanner.peek()
            if char == "\n":
                self.scanner.take(1)
                self._skip_heredocs()
            elif char == ";" and not newlines_only and self.scanner.peek(2) != ";;":
                self.scanner.take(1)
            else:
                return

    def _skip_heredocs(self) -> None:
        for delimiter, strips in self.heredocs or ():
            while not self.scanner.is_done:
                end = self.scanner.text.find("\n", self.scanner.at)
                stop = len(self.scanner.text) if end < 0 else end + 1
                row = self.scanner.take(stop - self.scanner.at).rstrip("\n")
                if (row.lstrip("\t") if strips else row) == delimiter:
                    break
        self.heredocs = None

    def _until(self, *ends: str) -> tuple[Statements, str]:
        """Statements up to one of the closing words, which is taken."""
        self.scanner.depth += 1
        if self.scanner.depth > MAX_DEPTH:
            raise self.scanner.trouble(f"it nests more than {MAX_DEPTH} deep")
        found: list[Statement] = []
        while True:
            self._separators()
            end = self._closing(ends)
            if end is not None:
                self.scanner.depth -= 1
                return tuple(found), end
            if self.scanner.is_done:
                raise self.scanner.trouble(f"{ends[0]} is missing")
            found.append(self.statement())

    def _closing(self, ends: Iterable[str]) -> str | None:
        for end in ends:
            length = len(end)
            following = self.scanner.text[self.scanner.at + length : self.scanner.at + length + 1]
            if self.scanner.peek(length) == end and (
                end in (")", ";;")
                or following in ("", " ", "\t", "\n", ";", "&", "|", ")", ">", "<")
            ):
                self.scanner.take(length)
                return end
        return None

    def _node(self) -> Node:
        self.scanner.skip_blanks()
        if self.scanner.peek(2) == "((":
            line = self.scanner.line
            written = self._arithmetic_command()[2:-2]
            words = (
                RawWord((Text(text, is_quoted=True),), line, has_quotes=True)
                for text in ("((", written)
            )
            return Command((), tuple(words), line)
        if self.scanner.peek() == "(":
            self.scanner.take(1)
            body, _ = self._until(")")
            return self._redirected(Block(body, is_subshell=True))
        if self.scanner.peek(3) in ("[[ ", "[[\n", "[[\t"):
            return self._test_command()
        word = self._keyword()
        if word in _COMPOUND:
            return self._redirected(self._compound(word))
        if word in _END_WORDS:
            raise self.scanner.trouble(f"{word} stands where a command should begin")
        return self._command()

    def _compound(self, word: str) -> Node:
        """The construct that a keyword begins."""
        readers: dict[str, Callable[[], Node]] = {
            "if": self._read_if,
            "for": self._read_for,
            "while": self._read_while,
            "until": self._read_while,
            "case": self._read_case,
            "function": self._read_function,
            "{": self._read_block,
        }
        return readers[word]()

    def _keyword(self) -> str:
        """The bare word that follows, without taking it; compound ones are taken."""
        match = _KEYWORD.match(self.scanner.text, self.scanner.at)
        if match is None:
            return ""
        word = match[0]
        following = self.scanner.text[match.end() : match.end() + 1]
        if following not in ("", " ", "\t", "\n", ";"):
            return ""
        if word == "!":
            self.scanner.take(1)
            self.scanner.skip_blanks()
            return self._keyword()
        if word in _COMPOUND:
            self.scanner.take(len(word))
        return word

    def _redirected(self, node: Node) -> Node:
        """A compound command with what is redirected behind it."""
        while True:
            self.scanner.skip_blanks()
            if self._redirection() is None:
                return node

    def _redirection(self) -> int | None:
        """Over one redirection; the line of its here document, 0 for others, None for no redirection."""
        match = _REDIRECTION.match(self.scanner.text, self.scanner.at)
        if match is None or self.scanner.is_blank_to_fill(self.scanner.peek()):
            return None
        line = self.scanner.line
        self.scanner.take(len(match[0]))
        self.scanner.skip_blanks()
        if self.scanner.peek(2) in ("<(", ">("):
            self.scanner.take(1)
            self.scanner.balanced(1, 1)
            return 0
        target = self.scanner.word()
        if match[0].lstrip("0123456789") in ("<<", "<<-") and target is not None:
            self.heredocs = [*(self.heredocs or ()), (target.literal or "", "-" in match[0])]
            return line
        return 0

    def _command(self) -> Node:
        line = self.scanner.line
        assignments: list[Assignment] = []
        words: list[RawWord] = []
        heredoc: int | None = None
        while True:
            self.scanner.skip_blanks()
            found = self._redirection()
            if found is not None:
                heredoc = found or heredoc
                continue
            assignment = self._assignment() if not words or _declares(words) else None
            if assignment is not None:
                assignments.append(assignment)
                continue
            word = self._process_substitution() or self.scanner.word()
            if word is None:
                break
            words.append(word)
            if len(words) == 1 and self._is_function():
                return self._function_body(word, line)
        if not words and not assignments and heredoc is None:
            raise self.scanner.trouble(
                f"{self.scanner.peek() or 'the end'!r} stands where a command should"
            )
        return Command(tuple(assignments), tuple(words), line, heredoc)

    def _test_command(self) -> Node:
        """`[[ … ]]`: what joins commands elsewhere is a word of its own here."""
        line = self.scanner.line
        words: list[RawWord] = []
        while not words or words[-1].literal != "]]" or not words[-1].is_bare:
            self._separators(newlines_only=True)
            word = self.scanner.word()
            if word is None:
                if self.scanner.is_done:
                    raise self.scanner.trouble("]] is missing")
                length = 2 if self.scanner.peek(2) in ("&&", "||") else 1
                text = Text(self.scanner.take(length), is_quoted=False)
                word = RawWord((text,), self.scanner.line, has_quotes=False)
            words.append(word)
        return Command((), tuple(words), line)

    def _process_substitution(self) -> RawWord | None:
        if self.scanner.peek(2) not in ("<(", ">("):
            return None
        line = self.scanner.line
        self.scanner.take(1)
        self.scanner.balanced(1, 1)
        return RawWord((Text("<(…)", is_quoted=True),), line, has_quotes=True)

    def _assignment(self) -> Assignment | None:
        match = _ASSIGNMENT.match(self.scanner.text, self.scanner.at)
        if match is None:
            return None
        line = self.scanner.line
        self.scanner.take(len(match[0]))
        name = match[1] if not match[2] else f"{match[1]}{match[2]}"
        if self.scanner.peek() == "(" and not match[2]:
            self.scanner.take(1)
            return Assignment(name, bool(match[3]), None, self._array(), line)
        return Assignment(name, bool(match[3]), self.scanner.word(), None, line)

    def _array(self) -> tuple[RawWord, ...]:
        items: list[RawWord] = []
        while True:
            self._separators(newlines_only=True)
            if self.scanner.peek() == ")":
                self.scanner.take(1)
                return tuple(items)
            word = self.scanner.word()
            if word is None:
                raise self.scanner.trouble("an array is not closed")
            items.append(word)

    def _is_function(self) -> bool:
        match = _PARENTHESES.match(self.scanner.text, self.scanner.at)
        if match is None:
            return False
        self.scanner.take(len(match[0]))
        return True

    def _function_body(self, name: RawWord, line: int) -> Node:
        self._separators(newlines_only=True)
        return Function(name.literal or "", self._node(), line)

    def _arithmetic_command(self) -> str:
        return self.scanner.balanced(2, 2)

    def _read_if(self) -> Node:
        line = self.scanner.line
        arms: list[tuple[Statements, Statements]] = []
        end = "elif"
        while end == "elif":
            condition, _ = self._until("then")
            body, end = self._until("elif", "else", "fi")
            arms.append((condition, body))
        if end == "else":
            body, _ = self._until("fi")
            arms.append(((), body))
        return Branches(tuple(arms), line)

    def _read_while(self) -> Node:
        line = self.scanner.line
        self._until("do")
        self._until("done")
        return While(line)

    def _read_for(self) -> Node:
        line = self.scanner.line
        self.scanner.skip_blanks()
        counter: str | None = None
        name, words = "", []
        if self.scanner.peek(2) == "((":
            counter = self._arithmetic_command()[2:-2]
        else:
            first = self.scanner.word()
            name = (first.literal or "") if first else ""
            self._separators(newlines_only=True)
            if self._closing(("in",)) is not None:
                words = self._words()
        self._separators()
        if self._closing(("do",)) is None:
            raise self.scanner.trouble("do is missing")
        body, _ = self._until("done")
        return Loop(name, tuple(words), counter, body, line)

    def _words(self) -> list[RawWord]:
        found: list[RawWord] = []
        while True:
            self.scanner.skip_blanks()
            word = self.scanner.word()
            if word is None:
                return found
            found.append(word)

    def _read_case(self) -> Node:
        line = self.scanner.line
        self.scanner.skip_blanks()
        subject = self.scanner.word()
        self._separators(newlines_only=True)
        if subject is None or self._closing(("in",)) is None:
            raise self.scanner.trouble("in is missing")
        arms: list[tuple[tuple[RawWord, ...], Statements]] = []
        while True:
            self._separators()
            if self._closing(("esac",)) is not None:
                return Choice(subject, tuple(arms), line)
            patterns = self._patterns()
            body, end = self._until(";;&", ";;", ";&", "esac")
            arms.append((patterns, body))
            if end == "esac":
                return Choice(subject, tuple(arms), line)

    def _patterns(self) -> tuple[RawWord, ...]:
        found: list[RawWord] = []
        if self.scanner.peek() == "(":
            self.scanner.take(1)
        while True:
            self.scanner.skip_blanks()
            word = self.scanner.word()
            if word is None:
                raise self.scanner.trouble("a pattern is missing")
            found.append(word)
            self.scanner.skip_blanks()
            if self.scanner.peek() == ")":
                self.scanner.take(1)
                return tuple(found)
            if self.scanner.take(1) != "|":
                raise self.scanner.trouble("a pattern is not closed")

    def _read_function(self) -> Node:
        line = self.scanner.line
        self.scanner.skip_blanks()
        name = self.scanner.word()
        if name is None:
            raise self.scanner.trouble("a function has no name")
        self._is_function()
        return self._function_body(name, line)

    def _read_block(self) -> Node:
        body, _ = self._until("}")
        return Block(body)


def _declares(words: list[RawWord]) -> bool:
    """Whether the command takes assignments as its words: `export A=1`."""
    return words[0].literal in {"export", "declare", "local", "readonly", "typeset", "env"}
