"""What properties a resource has, read out of the source of the installed package (pulumi-aws, pulumi-gcp).

Importing the package's classes would take seconds; the few that a program uses are found in the text.
"""

from __future__ import annotations

import ast
import importlib.util
import re
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

# CPython 3.11 counts the depth of a syntax tree for all threads together, and fails when two make one at once
# (python/cpython#106905).
_PARSING = threading.Lock()
Scalar = Literal["text", "integer", "number", "truth", "anything"]
_SCALARS: Mapping[str, Scalar] = {
    "str": "text",
    "int": "integer",
    "float": "number",
    "bool": "truth",
}
# The getter's own decorator, perhaps one that marks it deprecated, its definition.
_GETTER = re.compile(
    r'@pulumi\.getter(?:\(name="(\w+)"\))?(?:\n\s+@_utilities\.deprecated\(.*?\))??\n\s+def (\w+)\(',
    re.DOTALL,
)


class UnknownTypeError(Exception):
    """The package has no such resource type."""


@dataclass(frozen=True, slots=True)
class ListOf:
    """A list of values."""

    element: ValueType


@dataclass(frozen=True, slots=True)
class MapOf:
    """A map from text to values."""

    element: ValueType


@dataclass(frozen=True, slots=True)
class ObjectOf:
    """A nested object: the class that declares its properties, and the file that holds it."""

    class_name: str
    file: Path


ValueType = Scalar | ListOf | MapOf | ObjectOf


@dataclass(frozen=True, slots=True, kw_only=True)
class Property:
    """One input property."""

    type: ValueType
    is_required: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceType:
    """The properties of a resource type, by wire name (camel case)."""

    token: str
    inputs: Mapping[str, Property]
    outputs: frozenset[str]


@cache
def resource_type(token: str) -> ResourceType:
    """The type of a token such as `aws:ec2/vpc:Vpc`.

    Raises:
        UnknownTypeError: the installed package does not have it.
    """
    match = re.fullmatch(r"(aws|gcp):(\w+)/(\w+):(\w+)", token)
    file = _package(match[1]) / match[2] / f"{_snake(match[3])}.py" if match else Path()
    if match is None or not file.is_file():
        raise UnknownTypeError(token)
    nested = file.with_name("_inputs.py")
    # where a nested object has that name already, the resource's own arguments are called otherwise
    is_taken = f"class {match[4]}InitArgs" in _text(file)
    arguments = f"{match[4]}{'Init' * is_taken}Args"
    inputs = _properties(_class_text(file, arguments), nested)
    outputs = frozenset(_wire_names(_class_text(file, match[4])).values())
    return ResourceType(token=token, inputs=inputs, outputs=outputs)


@cache
def nested_properties(nested: ObjectOf) -> Mapping[str, Property]:
    """The properties of a nested object, by wire name."""
    return _properties(_class_text(nested.file, nested.class_name), nested.file)


@cache
def package_version(name: str) -> str:
    """The version of the installed package of a provider (`aws`)."""
    return (
        next(_package(name).parent.glob(f"pulumi_{name}-*.dist-info"))
        .name.split("-")[1]
        .removesuffix(".dist")
    )


@cache
def _package(name: str) -> Path:
    spec = importlib.util.find_spec(f"pulumi_{name}")
    if spec is None or spec.origin is None:
        raise UnknownTypeError(f"pulumi_{name} is not installed")
    return Path(spec.origin).parent


@cache
def _text(file: Path) -> str:
    return file.read_text(encoding="utf-8")


def _class_text(file: Path, name: str) -> str:
    """The source of one class: up to the next statement at the margin."""
    text = _text(file)
    start = re.search(rf"^class {name}[(:]", text, re.MULTILINE)
    if start is None:
        raise UnknownTypeError(f"{file.name} has no {name}")
    end = re.compile(r"^(?=[@\w])", re.MULTILINE).search(text, start.end())
    return text[start.start() : end.start() if end else len(text)]


def _wire_names(class_text: str) -> dict[str, str]:
    """Wire name by Python name, from the getters of a class."""
    return {name: wire or name for wire, name in _GETTER.findall(class_text)}


def _properties(class_text: str, nested: Path) -> dict[str, Property]:
    names = _wire_names(class_text)
    return {
        names.get(name, name): Property(
            type=_value_type(annotation, nested), is_required=is_required
        )
        for name, annotation, is_required in _arguments(class_text)
    }


def _arguments(class_text: str) -> Iterator[tuple[str, ast.expr, bool]]:
    """Name, annotation and whether it must be given, for each argument of the constructor."""
    signature = re.search(r"def __init__\(__self__(, \*,.*?)?\):\n", class_text, re.DOTALL)
    if signature is None or signature[1] is None:
        return
    with _PARSING:
        function = ast.parse(f"def f({signature[1].removeprefix(',')}): pass").body[0]
    if not isinstance(function, ast.FunctionDef):
        return
    for argument, default in zip(function.args.kwonlyargs, function.args.kw_defaults, strict=True):
        if argument.annotation is not None:
            yield argument.arg, argument.annotation, default is None


def _value_type(annotation: ast.expr, nested: Path) -> ValueType:
    """What an annotation such as `pulumi.Input[Optional[Sequence[pulumi.Input['XArgs']]]]` asks for."""
    match annotation:
        case ast.Attribute(attr=name):
            return _SCALARS.get(name, "anything")
        case ast.Constant(value=str(name)) if name.endswith("Args"):
            return ObjectOf(name, nested)
        case ast.Subscript(value=outer, slice=inner):
            return _generic_type(ast.unparse(outer).rpartition(".")[2], inner, nested)
        case _:
            return "anything"


def _generic_type(outer: str, inner: ast.expr, nested: Path) -> ValueType:
    match outer, inner:
        case "Input" | "Optional", _:
            return _value_type(inner, nested)
        case "Sequence", _:
            return ListOf(_value_type(inner, nested))
        case "Mapping", ast.Tuple(elts=[_, element]):
            return MapOf(_value_type(element, nested))
        case "Union", ast.Tuple(elts=[first, *_]):
            # Text or an enum, text or a policy document: the first alternative is what goes over the wire.
            return _value_type(first, nested)
        case _:
            return "anything"


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()
