"""`@frozen`: a class of values that are told by name and never change, made in a tenth of the time of a dataclass.

`dataclasses` writes and compiles seven functions for each class when its module is imported: 0.7 ms, and a command
imports one to two hundred such classes. Here `__init__`, `__eq__` and `__hash__` are written when they are first
called, and the others are the same for all classes. What `dataclasses` has for its own (`replace`, `fields`, `asdict`)
works.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, FrozenInstanceError, dataclass, field, fields
from inspect import get_annotations
from typing import Any, TypeVar, dataclass_transform, overload

T = TypeVar("T")
_Function = Callable[..., Any]
_Defaults = Mapping[str, "Field[Any]"]
_MADE_HERE = {"__init__", "__eq__", "__hash__", "__setattr__", "__delattr__", "__slots__"}


@overload
def frozen(kind: type[T]) -> type[T]: ...
@overload
def frozen(*, kw_only: bool) -> Callable[[type[T]], type[T]]: ...
@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(field,))
def frozen(
    kind: type[T] | None = None, *, kw_only: bool = True
) -> type[T] | Callable[[type[T]], type[T]]:
    """What `@dataclass(frozen=True, slots=True, kw_only=True)` makes of a class, in all that a value is asked for.

    Args:
        kind: its annotations are the fields; a default is a value or `field` with `default`, `default_factory`, `repr`.
        kw_only: whether values are told by name alone.

    Raises:
        TypeError: the class asks for what only a dataclass has: fields of a class above, another option of `field`.
    """
    return _make(kind, kw_only) if kind is not None else lambda given: _make(given, kw_only)


def _make(kind: Any, kw_only: bool) -> Any:  # noqa: FBT001
    names = tuple(get_annotations(kind))
    written = {name: kind.__dict__[name] for name in names if name in kind.__dict__}
    defaults = {
        name: value if isinstance(value, Field) else field(default=value)
        for name, value in written.items()
    }
    _refuse_what_only_dataclasses_have(kind, defaults)
    beside = {*written, "__dict__", "__weakref__"}
    body = {name: value for name, value in vars(kind).items() if name not in beside}
    body |= {"__slots__": names, "__match_args__": () if kw_only else names}
    made: Any = type(kind)(kind.__name__, kind.__bases__, body)
    made.__qualname__ = kind.__qualname__
    made.__init__ = _on_first_call(made, "__init__", lambda: _init(made, defaults, kw_only))
    made.__eq__ = _on_first_call(made, "__eq__", lambda: _eq(names))
    made.__hash__ = _on_first_call(made, "__hash__", lambda: _hash(names))
    if "__repr__" not in body:
        made.__repr__ = _repr
    made.__setattr__, made.__delattr__ = _refuse_to_set, _refuse_to_delete
    made.__getstate__, made.__setstate__ = _state, _set_state
    made.__dataclass_fields__ = _FieldsOnDemand(made, written, kw_only)
    return made


def _refuse_what_only_dataclasses_have(kind: type, defaults: _Defaults) -> None:
    what = None
    if any(hasattr(above, "__dataclass_fields__") for above in kind.__bases__):
        what = "has the fields of a class above"
    if own := sorted(_MADE_HERE & set(vars(kind))):
        what = f"has its own {', '.join(own)}"
    for name, told in defaults.items():
        if not (told.init and told.compare and told.hash is None):
            what = f"says of {name} what it is not asked for"
        elif type(told.default).__hash__ is None:
            what = f"shares the default of {name}, which can change"
    if what is not None:
        message = f"{kind.__qualname__} {what}: write it as a dataclass."
        raise TypeError(message)


def _on_first_call(kind: Any, name: str, write: Callable[[], _Function]) -> _Function:
    """A function that has the real one written, puts it in its own place, and calls it."""

    def write_and_call(*given: object, **named: object) -> object:
        function = write()
        function.__qualname__ = f"{kind.__qualname__}.{name}"
        setattr(kind, name, function)
        return function(*given, **named)

    return write_and_call


def _init(kind: Any, defaults: _Defaults, kw_only: bool) -> _Function:  # noqa: FBT001
    names: tuple[str, ...] = kind.__slots__
    known: dict[str, object] = {"_MISSING": MISSING}
    parameters, lines = ["self", *(["*"] if kw_only and names else [])], []
    for name in names:
        known[f"_set_{name}"] = kind.__dict__[name].__set__
        parameter = value = name
        told = defaults.get(name)
        if told is not None and told.default_factory is not MISSING:
            known[f"_new_{name}"] = told.default_factory
            parameter, value = (
                f"{name}=_MISSING",
                f"_new_{name}() if {name} is _MISSING else {name}",
            )
        elif told is not None and told.default is not MISSING:
            known[f"_default_{name}"] = told.default
            parameter = f"{name}=_default_{name}"
        parameters.append(parameter)
        lines.append(f"_set_{name}(self, {value})")
    if hasattr(kind, "__post_init__"):
        lines.append("self.__post_init__()")
    return _compiled("__init__", parameters, lines or ["pass"], known)


def _eq(names: tuple[str, ...]) -> _Function:
    alike = f"{_values('self', names)} == {_values('other', names)}"
    lines = [f"return {alike} if other.__class__ is self.__class__ else NotImplemented"]
    return _compiled("__eq__", ["self", "other"], lines, {})


def _hash(names: tuple[str, ...]) -> _Function:
    return _compiled("__hash__", ["self"], [f"return hash({_values('self', names)})"], {})


def _values(of: str, names: tuple[str, ...]) -> str:
    return f"({''.join(f'{of}.{name}, ' for name in names)})"


def _compiled(
    name: str, parameters: list[str], lines: list[str], known: dict[str, object]
) -> _Function:
    text = f"def {name}({', '.join(parameters)}):\n" + "".join(f" {line}\n" for line in lines)
    exec(text, known)  # noqa: S102 - as dataclasses does: the names are those of our own classes
    return known[name]  # type: ignore[return-value]  # the function that the text defines


def _repr(self: Any) -> str:
    shown = (f"{each.name}={getattr(self, each.name)!r}" for each in fields(self) if each.repr)
    return f"{type(self).__qualname__}({', '.join(shown)})"


def _refuse_to_set(_self: object, name: str, _value: object) -> None:
    message = f"cannot assign to field {name!r}"
    raise FrozenInstanceError(message)


def _refuse_to_delete(_self: object, name: str) -> None:
    message = f"cannot delete field {name!r}"
    raise FrozenInstanceError(message)


def _state(self: Any) -> list[object]:
    return [getattr(self, each.name) for each in fields(self)]


def _set_state(self: Any, state: list[object]) -> None:
    for each, value in zip(fields(self), state, strict=True):
        object.__setattr__(self, each.name, value)


class _FieldsOnDemand:
    """What `dataclasses` reads of a class, made by itself when it first asks."""

    def __init__(self, kind: type, written: Mapping[str, object], kw_only: bool) -> None:  # noqa: FBT001
        self._kind, self._written, self._kw_only = kind, written, kw_only

    def __get__(self, _instance: object, _owner: type) -> object:
        kind: Any = self._kind
        body = {"__module__": kind.__module__, "__annotations__": get_annotations(kind)}
        twin: Any = type(kind.__name__, (), {**body, **self._written})
        kind.__dataclass_fields__ = dataclass(twin, kw_only=self._kw_only).__dataclass_fields__
        return kind.__dataclass_fields__
