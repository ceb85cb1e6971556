"""The configuration classes behind JSON flags: which fields they have, what kinds of value each takes."""

from __future__ import annotations

import ast
import collections.abc
import dataclasses
import importlib
import inspect
import sys
import types
import typing
from collections.abc import Iterator, Mapping
from typing import Any

from infra.packages.plain_values import StandInSeenError, plain
from infra.packages.standins import is_standin

_LISTS = (list, tuple, set, frozenset, collections.abc.Sequence, collections.abc.Iterable)
_MAPS = (dict, collections.abc.Mapping)


def kinds_of(hint: object) -> list[str]:
    """The kinds of value that an annotation allows, in its order: `int`, `literal:mp`, `class:EPLBConfig`."""
    return list(dict.fromkeys(_kinds(hint)))


def class_rows(kind: type) -> dict[str, dict[str, Any]]:
    """The fields that one may write of a configuration class, sorted.

    Returns:
        field → `kinds`, and `default` where it is neither absent nor null.
    """
    hints = own_hints(kind)
    rows = {}
    for field in sorted(dataclasses.fields(kind), key=lambda each: each.name):
        if not field.init:
            continue
        row: dict[str, Any] = {"kinds": kinds_of(hints.get(field.name, field.type))}
        default = _default(field)
        if default is not None:
            row["default"] = default
        rows[field.name] = row
    return rows


def classes_in(hint: object) -> Iterator[type]:
    """The configuration classes that an annotation names."""
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        yield hint
    for inner in typing.get_args(hint):
        if not isinstance(inner, str):
            yield from classes_in(inner)


def own_hints(kind: type) -> dict[str, Any]:
    """The annotations of a class and of its parents, as a type checker sees them.

    Names that a module imports for type checkers alone are imported here, so that a `Literal` behind one is
    read, and not the `Any` that stands in for it while the engine runs.
    """
    found: dict[str, Any] = {}
    for each in reversed(kind.__mro__):
        module = sys.modules.get(each.__module__)
        if module is None or not getattr(module, "__file__", None):
            continue
        names = {**vars(module), **_for_type_checkers(module)}
        raw = _written_annotations(each)
        for name, annotation in {**getattr(each, "__annotations__", {}), **raw}.items():
            found[name] = _evaluated(annotation, names)
    return found


def _kinds(hint: object) -> Iterator[str]:
    origin = typing.get_origin(hint)
    if hint is None or hint is type(None):
        yield "none"
    elif hint in (bool, int, float, str):
        yield str(getattr(hint, "__name__", hint))
    elif origin is typing.Annotated:
        yield from _kinds(typing.get_args(hint)[0])
    elif origin in (typing.Union, types.UnionType):
        for inner in typing.get_args(hint):
            yield from _kinds(inner)
    elif origin is typing.Literal:
        yield from (f"literal:{plain(value)}" for value in typing.get_args(hint))
    else:
        yield _container_or_class(hint, origin)


def _container_or_class(hint: object, origin: object) -> str:
    if hint in _LISTS or origin in _LISTS:
        return "list"
    if hint in _MAPS or origin in _MAPS:
        return "dict"
    if origin is not None:
        return str(getattr(origin, "__name__", origin))
    if isinstance(hint, type) and hint is not object:
        return "type" if hint is type else f"class:{hint.__name__}"
    return "any"


def _default(field: dataclasses.Field[Any]) -> Any:
    value: Any = field.default
    if hasattr(value, "default_factory") and hasattr(value, "is_required"):  # pydantic's Field(...)
        value = value.get_default(call_default_factory=value.default_factory is not None)
    factory: Any = field.default_factory
    if value is dataclasses.MISSING and factory is not dataclasses.MISSING:
        value = factory()
    if value is dataclasses.MISSING or type(value).__name__ == "PydanticUndefinedType":
        return None
    try:
        return plain(value)
    except StandInSeenError:  # a type of torch's, say: no value that one could write
        return None


def _for_type_checkers(module: types.ModuleType) -> dict[str, object]:
    """What stands under `if TYPE_CHECKING:` in a module, imported."""
    found: dict[str, object] = {}
    for node in ast.parse(inspect.getsource(module)).body:
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            for statement in node.body:
                found.update(_imported(statement))
    return found


def _imported(statement: ast.stmt) -> Mapping[str, object]:
    found: dict[str, object] = {}
    try:
        if isinstance(statement, ast.ImportFrom) and statement.module and not statement.level:
            source = importlib.import_module(statement.module)
            for alias in statement.names:
                found[alias.asname or alias.name] = getattr(source, alias.name)
        elif isinstance(statement, ast.Import):
            for alias in statement.names:
                if alias.asname:
                    found[alias.asname] = importlib.import_module(alias.name)
    except (ImportError, AttributeError):
        return {}
    return {name: value for name, value in found.items() if not is_standin(value)}


def _written_annotations(kind: type) -> dict[str, str]:
    """The annotations in a class's source text."""
    try:
        tree = ast.parse(inspect.cleandoc("\n" + inspect.getsource(kind)))
    except (OSError, TypeError, SyntaxError):
        return {}
    body = tree.body[0]
    if not isinstance(body, ast.ClassDef):
        return {}
    return {
        node.target.id: ast.unparse(node.annotation)
        for node in body.body
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    }


def _evaluated(annotation: object, names: Mapping[str, object]) -> object:
    if not isinstance(annotation, str):
        return annotation
    try:
        value: object = eval(annotation, dict(names))  # noqa: S307 - the package's own code, which runs here anyway
    except Exception:  # noqa: BLE001 - an annotation may hold anything
        return typing.Any
    return _evaluated(value, names) if isinstance(value, str) else value
