"""A shell script followed, not run: variables, plain conditions and counted loops, and what it would start."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from infra.plan.foreign.shell_builtins import (
    DECLARING,
    LEAVING,
    NAMES,
    carry_out,
    change,
    declare,
)
from infra.plan.foreign.shell_commands import (
    HARMLESS,
    decide_test,
    joined,
    loop_values,
    shown,
    strip_wrappers,
)
from infra.plan.foreign.shell_script import parse_script
from infra.plan.foreign.shell_tree import (
    Block,
    Branches,
    Choice,
    Command,
    Function,
    Loop,
    Node,
    Statement,
    Statements,
)
from infra.plan.foreign.shell_values import (
    Held,
    Scope,
    Value,
    copy_scope,
    expand_value,
    expand_word,
)
from infra.plan.foreign.shell_words import ShellTroubleError
from infra.plan.foreign.source import NotUnderstood, Started, Word
from infra.spec.work import TooMuchWorkError

MAX_CALLS = 12
# Statements in statements, scripts and functions in each other among them: the interpreter's own stack ends later.
MAX_DEPTH = 60
MAX_WORDS = 4_096
# A step is worth so many characters that are taken apart.
PARSED_PER_STEP = 16
_DECIDING = frozenset({"[", "[[", "test"}) | NAMES


# What a format does with a started command: whether it knows it.
Handler = Callable[[Started, "Shell"], bool]


@dataclass(slots=True)
class Shell:
    """One script.

    Args:
        scope: its variables.
        handler: told of every command that is not the shell's own.
    """

    scope: Scope
    handler: Handler
    not_understood: list[NotUnderstood] = field(default_factory=list)
    functions: dict[str, Node] = field(default_factory=dict)
    num_calls: int = 0
    depth: int = 0
    is_certain: bool = True
    leaving: str = ""
    locals: dict[str, Held | None] | None = None

    def follow(self, text: str, first_line: int = 1) -> None:
        """Read a script and follow it to its end.

        Raises:
            ShellTroubleError: it does more than a file may, nests too deep, or a variable grows without bound.
        """
        try:
            self.scope.work.spend(len(text) // PARSED_PER_STEP, first_line)
            statements, troubles = parse_script(text, first_line)
            for trouble in troubles:
                why = f"{trouble.why}: the rest of this statement is not read"
                self.note(trouble.line, "", why)
            for _ in self._run(statements):
                break
        except TooMuchWorkError as error:
            raise ShellTroubleError(error.line, error.why) from error

    def follow_inside(
        self, script: Word, arguments: tuple[Word, ...], env: Mapping[str, Word]
    ) -> None:
        """A script handed to `bash -c`, with the environment that it is given."""
        self.num_calls += 1
        if self.num_calls > MAX_CALLS:
            raise ShellTroubleError(script.line, f"scripts in scripts, more than {MAX_CALLS} deep")
        values: dict[str, Held] = {n: Value(w.raw, w.open_names) for n, w in env.items()}
        outer, functions = self.scope, self.functions
        self.scope = Scope(
            values=values,
            exported=dict.fromkeys(env),
            fixed=outer.fixed,
            positional=tuple(Value(word.raw, word.open_names) for word in arguments[1:]),
            has_positional=bool(arguments),
            lines={name: word.line for name, word in env.items()},
            work=outer.work,
        )
        self.functions = {}
        self.follow(script.raw, script.line)
        self.scope, self.functions = outer, functions
        self.num_calls -= 1

    def note(self, line: int, text: str, why: str) -> None:
        """List what did not become part of the plan."""
        self.scope.work.spend_text(len(text), line)
        self.not_understood.append(NotUnderstood(line, text, why))

    def environment(self) -> dict[str, Word]:
        """Exported variables."""
        self.scope.work.spend(len(self.scope.exported), 0)
        found = {}
        for name in self.scope.exported:
            held = self.scope.look_up(name)
            if isinstance(held, Value):
                found[name] = Word(held.raw, self.scope.lines.get(name, 1), held.open_names)
        return found

    def _run(self, statements: Statements) -> Iterator[None]:
        """Follow statements; yields once when the script ends by itself."""
        for statement in statements:
            if self._statement(statement):
                yield
                return

    def _body(self, statements: Statements) -> bool:
        """Follow a body; whether the script ends in it."""
        return any(True for _ in self._run(statements))

    def _statement(self, statement: Statement) -> bool:
        """Follow one statement; whether the script ends there for certain."""
        self.scope.work.spend(1, statement.line)
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise ShellTroubleError(statement.line, f"it nests more than {MAX_DEPTH} deep")
        ended = self._chain(statement)
        self.depth -= 1
        return ended

    def _chain(self, statement: Statement) -> bool:
        """Follow what a statement joins; whether the script ends there for certain."""
        held: bool | None = True
        was_certain, ended = self.is_certain, False
        kept = copy_scope(self.scope) if statement.in_background else None
        for operator, node in statement.chain:
            # a command that is no test is taken to succeed: what stands behind `||` is for its failure
            if (operator == "&&" and held is False) or (operator == "||" and held is True):
                continue
            before = self.scope.num_changes
            self.is_certain = was_certain and held is not None
            ended, held = self._node(node, in_background=statement.in_background)
            if not self.is_certain and was_certain and self.scope.num_changes != before:
                why = "whether it happens only a run could say: it is taken to"
                self.note(statement.line, operator, why)
            self.is_certain = was_certain
            if ended:
                break
        if kept is not None:  # it sets nothing here, and ends nothing
            self.scope = kept
            return False
        return ended

    def _node(self, node: Node, *, in_background: bool = False) -> tuple[bool, bool | None]:
        """Follow a node: whether the script ends there, and whether it succeeds (None: only a run could say)."""
        if isinstance(node, Command):
            return self._command(node, in_background=in_background)
        return self._compound(node), True

    def _compound(self, node: Node) -> bool:
        """Follow a compound command; whether the script ends in it."""
        ended = False
        if isinstance(node, Block):
            kept = copy_scope(self.scope) if node.is_subshell else None
            ended = self._body(node.body) and kept is None
            self.scope = kept or self.scope
        elif isinstance(node, Branches):
            ended = self._branches(node)
        elif isinstance(node, Choice):
            ended = self._choice(node)
        elif isinstance(node, Loop):
            ended = self._loop(node)
        elif isinstance(node, Function):
            self.functions[node.name] = node.body
        else:
            why = "how often it runs only a run could say: its body is not read"
            self.note(node.line, "while, until", why)
        return ended

    def _branches(self, node: Branches) -> bool:
        for index, (condition, body) in enumerate(node.arms):
            holds = self._condition(condition) if condition else True
            if holds is True:
                return self._body(body)
            if holds is None:
                self._undecided(
                    node.line, "if", [arm[1] for arm in node.arms[index:]], follows=True
                )
                return False
        return False

    def _condition(self, condition: Statements) -> bool | None:
        """Whether a condition holds, where the script itself settles it."""
        if len(condition) != 1:
            return None
        result: bool | None = None
        for operator, node in condition[0].chain:
            if not isinstance(node, Command) or operator == "|":
                return None
            found = self._decide([w for raw in node.words for w in expand_word(raw, self.scope)])
            result = joined(operator, before=result, found=found)
        return result

    def _decide(self, words: list[Word]) -> bool | None:
        """Whether a test holds, or what sets a variable succeeds."""
        if not words or words[0].text not in NAMES:
            return decide_test(words)
        held, why = change(words, self.scope)
        if why:
            self.note(words[0].line, shown(words), why)
        return held

    def _undecided(self, line: int, text: str, bodies: list[Statements], *, follows: bool) -> None:
        """Bodies of which one would run: the first is followed where that is told, others only for what they start."""
        was_certain, before = self.is_certain, self.scope.num_changes
        for index, body in enumerate(bodies):
            copied = copy_scope(self.scope)
            kept = copied.values, copied.exported
            self.is_certain = False
            self._body(body)
            if index or not follows:
                self.scope.values, self.scope.exported = kept
        self.is_certain = was_certain
        if self.scope.num_changes != before:
            taken = "its first branch is taken" if follows else "none of its settings is taken"
            self.note(line, text, f"which branch runs only a run could say: {taken}")

    def _choice(self, node: Choice) -> bool:
        subject = expand_value(node.subject, self.scope)
        if subject.open_names:
            self._undecided(node.line, "case", [body for _, body in node.arms], follows=False)
            return False
        for patterns, body in node.arms:
            texts = [expand_value(pattern, self.scope).raw for pattern in patterns]
            # each is compiled, and one that fails may have been looked for at every place of the subject
            length = sum(map(len, texts))
            self.scope.work.spend(length, node.line)
            self.scope.work.spend_text(length * len(subject.raw), node.line)
            if any(fnmatch.fnmatchcase(subject.raw, text) for text in texts):
                return self._body(body)
        return False

    def _loop(self, node: Loop) -> bool:
        counted = loop_values(node, self.scope)
        if counted is None:
            self.note(node.line, "for", "it is no plain counted loop: its body is not read")
            return False
        name, values = counted
        for value in values:
            self.scope.assign(name, value, node.line)
            if self._body(node.body):
                left, self.leaving = self.leaving, ""
                if left == "break":
                    return False
                if not left:
                    return True
        return False

    def _leave(self, word: Word) -> bool:
        """`break` or `continue`: whether the rest of the loop's body is passed over."""
        if self.is_certain:
            self.leaving = word.text
        else:
            self.note(
                word.line, word.text, "whether it happens only a run could say: it is taken not to"
            )
        return self.is_certain

    def _command(self, node: Command, *, in_background: bool) -> tuple[bool, bool | None]:
        if node.heredoc is not None:
            self.note(node.heredoc, "<<", "a here document: give its content as a file of its own")
        words = [word for raw in node.words for word in expand_word(raw, self.scope)]
        if len(words) > MAX_WORDS:
            raise ShellTroubleError(node.line, f"a command of more than {MAX_WORDS} words")
        if not words:
            for assignment in node.assignments:
                carry_out(assignment, self.scope)
            return False, True
        held: bool | None = True
        name = words[0].text
        if name in ("exit", "return"):
            return self.is_certain, True
        if name in LEAVING:
            return self._leave(words[0]), True
        if name in DECLARING:
            declare(node, words, self.scope, self.locals)
        elif name in _DECIDING:
            held = self._decide(words)
        else:
            self._external(node, words, in_background=in_background)
        return False, held

    def _external(self, node: Command, words: list[Word], *, in_background: bool) -> None:
        """A command that is not the shell's own."""
        name = words[0].text
        if name in self.functions:
            before = {a.name: self.scope.values.get(a.name) for a in node.assignments}
            exported = dict(self.scope.exported)
            for assignment in node.assignments:
                carry_out(assignment, self.scope)
                self.scope.exported[assignment.name] = None
            self._call(self.functions[name], words)
            if before:
                self.scope.restore(before)
                self.scope.exported = exported
            return
        env = self.environment()
        for assignment in node.assignments:
            value = expand_value(assignment.value, self.scope)
            env[assignment.name] = Word(value.raw, assignment.line, value.open_names)
        words, env = strip_wrappers(words, env)
        if not words:
            return
        if words[0].text == "eval":
            text = " ".join(word.raw for word in words[1:])
            self.follow_here(Word(text, words[0].line))
            return
        started = Started(
            words=tuple(words),
            env=env,
            prepended=frozenset(self.scope.prepended & env.keys()),
            blocks=not in_background,
            is_certain=self.is_certain,
        )
        if not self._shell_inside(started) and not self.handler(started, self):
            self._unknown(words)

    def follow_here(self, script: Word) -> None:
        """`eval`: a text that is followed with this script's own variables."""
        self.num_calls += 1
        if self.num_calls > MAX_CALLS:
            raise ShellTroubleError(script.line, f"scripts in scripts, more than {MAX_CALLS} deep")
        self.follow(script.raw, script.line)
        self.num_calls -= 1

    def _call(self, body: Node, words: list[Word]) -> None:
        self.num_calls += 1
        if self.num_calls > MAX_CALLS:
            self.note(
                words[0].line,
                words[0].text,
                f"functions call each other more than {MAX_CALLS} deep",
            )
        else:
            kept = self.scope.positional, self.scope.has_positional, self.locals
            self.scope.positional = tuple(Value(w.raw, w.open_names) for w in words[1:])
            self.scope.has_positional, self.locals = True, {}
            self._node(body)
            self.scope.restore(self.locals)
            self.scope.positional, self.scope.has_positional, self.locals = kept
        self.num_calls -= 1

    def _shell_inside(self, started: Started) -> bool:
        """`bash -c SCRIPT [name arguments…]`."""
        words = started.words
        if words[0].text.rpartition("/")[2] not in ("sh", "bash"):
            return False
        for index, word in enumerate(words[1:], start=1):
            if re.fullmatch(r"-[a-z]*c", word.text) and index + 1 < len(words):
                self.follow_inside(words[index + 1], words[index + 2 :], started.env)
                return True
            if not word.text.startswith("-"):
                break
        return False

    def _unknown(self, words: list[Word]) -> None:
        name = words[0].text.rpartition("/")[2]
        if name not in HARMLESS:
            self.note(words[0].line, shown(words), f"{name or words[0].text} is not followed")
