"""Parses an argument vector with argparse and the flags of one pinned release."""

from __future__ import annotations

import argparse
import copy
import json
import re
from collections.abc import Callable, Sequence
from typing import Any

from .catalogue import Flag, JsonFields
from .failures import Refused
from .json_fields import json_error, validation_error

Converter = Callable[[str], Any]

MULTIPLIERS: dict[str, int] = {
    **{letter: 10 ** (3 * power) for power, letter in enumerate("kmgt", start=1)},
    **{letter: 2 ** (10 * power) for power, letter in enumerate("KMGT", start=1)},
}
STORE_TRUE = ("_StoreTrueAction", "DeprecatedStoreTrueAction")
NO_VALUE = ("DeprecatedAction", "DeprecatedStoreConstAction")


class Arguments:
    """A parsed argument vector: every flag's value, and which flags were given."""

    __slots__ = ("given", "values")

    def __init__(self, values: dict[str, Any], given: frozenset[str]) -> None:
        self.values = values
        self.given = given

    def __getitem__(self, dest: str) -> Any:
        """Return a flag's value; None for a flag that the release does not have."""
        return self.values.get(dest)


class _NoFormatter:
    """In place of argparse's help formatter, which costs more than all parsing."""

    def _format_args(self, *_: Any) -> str:
        """Argparse asks, to check ``nargs``."""
        return ""


class _Parser(argparse.ArgumentParser):
    """An argparse parser whose errors are raised, with the usage that the engine prints."""

    def _get_formatter(self) -> Any:
        return _NoFormatter()

    def format_help(self) -> str:
        """Return the usage and the names of all options."""
        names = sorted(x for action in self._actions for x in action.option_strings)
        return (self.usage or "") + "\noptions:\n" + "".join(f"  {name}\n" for name in names)

    def error(self, message: str) -> Any:
        raise Refused(self.usage or "", self.prog, message)


class _EnableDisable(argparse.Action):
    """vLLM 0.33's boolean: ``--x`` and ``--no-x``, and ``--disable-x`` beside ``--enable-x``."""

    def __init__(self, option_strings: list[str], dest: str, **kwargs: Any) -> None:
        names = [x for x in option_strings if not x.startswith("--no-")]
        negatives = ["--no-" + x[2:] for x in names if x.startswith("--")]
        for name in list(names):
            for prefix, inverse in (("--enable-", "--disable-"), ("--disable-", "--enable-")):
                if name.startswith(prefix) and name == option_strings[0]:
                    negatives.append(inverse + name[len(prefix) :])
        self.negatives = frozenset(negatives)
        options = [*(x for x in names if x not in self.negatives), *negatives]
        super().__init__(list(dict.fromkeys(options)), dest, nargs=0, **kwargs)

    def __call__(self, _: Any, namespace: Any, __: Any, option: Any = None) -> None:
        setattr(namespace, self.dest, option not in self.negatives)


class Grammar:
    """What a program of one release understands; making it costs more than a use of it.

    Args:
        flags: every flag of the release.
        fields: what JSON-valued flags may hold; None for programs that do not check them.
        program: the name in front of an error.
        usage: the usage text in front of an error, with its last newline.
    """

    __slots__ = ("_containers", "_defaults", "_parser")

    def __init__(
        self, flags: Sequence[Flag], fields: JsonFields | None, *, program: str, usage: str
    ) -> None:
        self._parser = _Parser(prog=program, usage=usage, add_help=True)
        for flag in flags:
            _add(self._parser, flag, fields)
        self._defaults = {
            flag.dest: flag.default for flag in flags if flag.default != "==SUPPRESS=="
        }
        self._containers = tuple(
            dest for dest, value in self._defaults.items() if isinstance(value, list | dict)
        )

    def parse(self, argv: list[str]) -> tuple[Arguments, list[str]]:
        """Parse the arguments after the program's name.

        Returns:
            The arguments, and those that no flag took.

        Raises:
            Refused: argparse's verdict on the command line.
        """
        namespace, unknown = self._parser.parse_known_args(argv)
        given = vars(namespace)
        fresh = {dest: copy.deepcopy(self._defaults[dest]) for dest in self._containers}
        values = {**self._defaults, **fresh, **given}
        return Arguments(values=values, given=frozenset(given)), unknown


def human_readable_int(text: str) -> int:
    """Return an integer that may end in k, m, g, t (decimal) or K, M, G, T (binary)."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([kKmMgGtT])", text.strip())
    if not match:
        return int(text)
    number, suffix = match.groups()
    if suffix.islower():
        return int(float(number) * MULTIPLIERS[suffix])
    if "." in number:
        raise argparse.ArgumentTypeError(
            f"Decimals are not allowed with binary suffixes like {suffix}. "
            f"Did you mean to use {number}{suffix.lower()} instead?"
        )
    return int(number) * MULTIPLIERS[suffix]


def human_readable_int_or_auto(text: str) -> int:
    """Return -1 for ``auto``, else as ``human_readable_int``."""
    return (
        -1 if text.strip() == "-1" or text.strip().lower() == "auto" else human_readable_int(text)
    )


def loads(text: str) -> Any:
    """Parse JSON; the name stands in argparse's messages."""
    return json.loads(text)


def _add(parser: _Parser, flag: Flag, fields: JsonFields | None) -> None:
    names = list(flag.options) or [flag.dest]
    options: dict[str, Any] = {"default": argparse.SUPPRESS}
    if flag.options:
        options["dest"] = flag.dest
        options["required"] = flag.is_required
    if flag.action in STORE_TRUE:
        parser.add_argument(*names, action="store_true", **options)
    elif flag.action in NO_VALUE:
        parser.add_argument(*names, action="store_const", const=True, **options)
    elif flag.action == "BooleanOptionalAction":
        own = [x for x in names if not (x.startswith("--no-") and "--" + x[5:] in names)]
        parser.add_argument(*own, action=argparse.BooleanOptionalAction, **options)
    elif flag.action == "EnableDisableAction":
        parser.add_argument(*names, action=_EnableDisable, **options)
    else:
        kind = "append" if flag.action == "_AppendAction" else "store"
        options["type"] = _converter(flag, fields)
        if flag.choices is not None:
            is_number = flag.type == "int"
            options["choices"] = [int(x) if is_number else x for x in flag.choices]
        if flag.nargs is not None:
            options["nargs"] = flag.nargs
        if flag.nargs == "?" and flag.options:
            options["const"] = True
        parser.add_argument(*names, action=kind, **options)


def _converter(flag: Flag, fields: JsonFields | None) -> Converter:
    kinds = fields.flag_types.get(flag.name, []) if fields is not None else []
    by_name: dict[str, Converter] = {
        "int": int,
        "float": float,
        "human_readable_int": human_readable_int,
        "human_readable_int_or_auto": human_readable_int_or_auto,
        "loads": loads,
        "json_list_type": loads,
        "_parse_type": _wrapped(loads),
        "union_dict_and_str": _dict_or_text,
        "<lambda>": lambda text: text.lower().replace("-", "_") if flag.choices else text,
    }
    if flag.type == "parse_dataclass":
        return _dataclass(kinds, fields)
    if flag.type == "_optional_type":
        return _optional(_inner(kinds, fields))
    if flag.type is not None and flag.type in by_name:
        return by_name[flag.type]
    return str


def _inner(kinds: list[str], fields: JsonFields | None) -> Converter:
    if any(kind.startswith("class:") and _known(kind, fields) for kind in kinds):
        return _dataclass(kinds, fields)
    for kind, converter in (("int", int), ("float", float)):
        if kind in kinds:
            return _wrapped(converter)
    if "dict" in kinds and "str" not in kinds:
        return _wrapped(loads)
    return str


def _known(kind: str, fields: JsonFields | None) -> bool:
    return fields is not None and kind[len("class:") :] in fields.classes


def _wrapped(converter: Converter) -> Converter:
    def convert(text: str) -> Any:
        try:
            return converter(text)
        except ValueError as error:
            shown = (
                repr(converter)
                if isinstance(converter, type)
                else f"<function {converter.__name__} at 0x7f0000000000>"
            )
            raise argparse.ArgumentTypeError(
                f"Value {text} cannot be converted to {shown}."
            ) from error

    return convert


def _optional(converter: Converter) -> Converter:
    return lambda text: None if text in ("", "None") else converter(text)


def _dict_or_text(text: str) -> Any:
    return _wrapped(loads)(text) if re.match(r"(?s)^\s*{.*}\s*$", text) else text


def _dataclass(kinds: list[str], fields: JsonFields | None) -> Converter:
    class_name = next(kind[6:] for kind in kinds if _known(kind, fields))
    classes = fields.classes if fields is not None else {}

    def convert(text: str) -> Any:
        try:
            value = json.loads(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(json_error(class_name, text, error)) from error
        problem = validation_error(class_name, value, classes)
        if problem is not None:
            raise argparse.ArgumentTypeError(problem)
        return value

    return convert
