"""Reads options as `spf13/pflag` does, the library beneath docker and podman.

Options may be written `--name value`, `--name=value`, `-x value`, `-xvalue`, `-x=value` and in
clusters `-itd`; a long name is never abbreviated; a switch takes a value only after `=`.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Flag = tuple[str, str]  # kind, one-letter name or ""
    FlagTable = Mapping[str, Flag]
    ValueCheck = Callable[[str], None]

SWITCH = "bool"
TRUE_WORDS = ("1", "t", "T", "TRUE", "true", "True")
FALSE_WORDS = ("0", "f", "F", "FALSE", "false", "False")


class FlagError(Exception):
    """An option that the table does not allow; the text is pflag's own."""


class ParsedFlags:
    """The options that were given, in order, and the words after them."""

    __slots__ = ("given", "words")

    def __init__(self) -> None:
        """Start with nothing given."""
        self.given: dict[str, list[str]] = {}
        self.words: list[str] = []

    def all(self, name: str) -> list[str]:
        """Return every value of a repeatable option, in order."""
        return self.given.get(name, [])

    def last(self, name: str, default: str = "") -> str:
        """Return the value that counts when an option was given more than once."""
        values = self.given.get(name)
        return values[-1] if values else default

    def has(self, name: str) -> bool:
        """Return whether a switch is on."""
        return self.last(name, "false") in TRUE_WORDS

    def add(self, name: str, value: str) -> None:
        """Record one more value of an option."""
        self.given.setdefault(name, []).append(value)


class FlagParser:
    """One table of options and the checks of their values."""

    def __init__(
        self,
        table: FlagTable,
        checks: Mapping[str, ValueCheck],
        *,
        interspersed: bool = False,
    ) -> None:
        """Take what may be given.

        Args:
            table: long name → (kind, one-letter name or "").
            checks: kind → function that raises ValueError with the real reason.
            interspersed: whether options may follow the first word, as in all commands but `run`.
        """
        self.table = table
        self.checks = checks
        self.interspersed = interspersed
        self.short_names = {flag[1]: name for name, flag in table.items() if flag[1]}

    def parse(self, arguments: list[str]) -> ParsedFlags:
        """Return what was given.

        Raises:
            FlagError: an unknown option, a missing value, or a value that its check refuses.
        """
        parsed = ParsedFlags()
        rest = list(arguments)
        while rest:
            argument = rest.pop(0)
            if argument == "--":
                parsed.words += rest
                break
            if argument in ("", "-") or not argument.startswith("-"):
                parsed.words.append(argument)
                if not self.interspersed:
                    parsed.words += rest
                    break
            elif argument.startswith("--"):
                self._take_long(argument, rest, parsed)
            else:
                self._take_cluster(argument[1:], rest, parsed)
        return parsed

    def _take_long(self, argument: str, rest: list[str], parsed: ParsedFlags) -> None:
        """Read `--name`, `--name=value` or `--name value`."""
        name, equals, value = argument[2:].partition("=")
        if not name or name.startswith("-"):
            raise FlagError(f"bad flag syntax: {argument}")
        if name not in self.table:
            raise FlagError(f"unknown flag: --{name}")
        if not equals:
            if self.table[name][0] == SWITCH:
                value = "true"
            elif rest:
                value = rest.pop(0)
            else:
                raise FlagError(f"flag needs an argument: {argument}")
        self._set(name, value, parsed)

    def _take_cluster(self, letters: str, rest: list[str], parsed: ParsedFlags) -> None:
        """Read one-letter options that share a dash; one that takes a value ends the cluster."""
        while letters:
            letter, following = letters[0], letters[1:]
            if letter not in self.short_names:
                raise FlagError(f"unknown shorthand flag: '{letter}' in -{letters}")
            name = self.short_names[letter]
            if following.startswith("=") and len(following) > 1:
                self._set(name, following[1:], parsed)
                return
            if self.table[name][0] == SWITCH:
                self._set(name, "true", parsed)
                letters = following
                continue
            if not following and not rest:
                raise FlagError(f"flag needs an argument: '{letter}' in -{letters}")
            self._set(name, following or rest.pop(0), parsed)
            return

    def _set(self, name: str, value: str, parsed: ParsedFlags) -> None:
        """Check and record one value."""
        kind, letter = self.table[name]
        check = self.checks.get(kind)
        if check is not None:
            try:
                check(value)
            except ValueError as error:
                spelling = f"-{letter}, --{name}" if letter else f"--{name}"
                message = f'invalid argument "{value}" for "{spelling}" flag: {error}'
                raise FlagError(message) from None
        if kind == "slice":
            for part in value.split(","):
                parsed.add(name, part)
        else:
            parsed.add(name, value)
