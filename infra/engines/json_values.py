"""Values of JSON flags against the classes that an engine's release builds from them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from infra.catalog.fields import FieldCatalogue, Kinds

# vllm config/compilation.py CUDAGraphMode@0.22.1; looked up by its upper-case name.
GRAPH_MODES = ("NONE", "PIECEWISE", "FULL", "FULL_DECODE_ONLY", "FULL_AND_PIECEWISE")
# vllm config/compilation.py CompilationMode@0.17.0 to 0.33.0; a number, or a name in any case.
COMPILATION_MODES = ("NONE", "STOCK_TORCH_COMPILE", "DYNAMO_TRACE_ONCE", "VLLM_COMPILE")
# Parsed as a plain object; its class is built with the configuration (vllm arg_utils.py@0.17.0, 0.22.1).
BUILT_LATER: Mapping[str, Kinds] = {"speculative-config": ("class:SpeculativeConfig",)}
_TRUTHS = (0, 1, "true", "false", "True", "False", "0", "1")


def value_problems(name: str, value: object, fields: FieldCatalogue) -> Iterator[tuple[str, str]]:
    """(path inside the value, reason) of everything that the release refuses; nothing for a right value.

    Args:
        name: canonical flag name.
        value: as parsed; only maps are looked into.
        fields: the release's classes.
    """
    kinds = BUILT_LATER.get(name) or fields.flag_kinds.get(name, ())
    if "dict" in kinds:  # any map will do
        return
    for kind in kinds:
        class_name = kind.removeprefix("class:")
        if kind != class_name and class_name in fields.classes and isinstance(value, Mapping):
            yield from _in_class(class_name, value, fields, name)
            return


def class_problems(
    class_name: str, value: Mapping[str, object], fields: FieldCatalogue
) -> Iterator[tuple[str, str]]:
    """(key, reason) of everything that one of the release's classes refuses; nothing where it has none of the name."""
    if class_name in fields.classes:
        for path, reason in _in_class(class_name, value, fields, ""):
            yield path.lstrip("."), reason


def _in_class(
    class_name: str, value: Mapping[str, object], fields: FieldCatalogue, place: str
) -> Iterator[tuple[str, str]]:
    known = fields.classes[class_name]
    for key, inner in value.items():
        path = f"{place}.{key}"
        if key not in known:
            yield path, f"{class_name} has no field {key}"
        elif key == "cudagraph_mode" and isinstance(inner, str):
            if inner.upper() not in GRAPH_MODES:
                yield path, f"{inner} is none of {', '.join(GRAPH_MODES)}"
        elif key == "mode" and class_name == "CompilationConfig":
            if not _is_mode(inner):
                last = len(COMPILATION_MODES) - 1
                yield path, f"{inner} is none of 0 to {last}, {', '.join(COMPILATION_MODES)}"
        else:
            yield from _in_field(known[key], inner, fields, path)


def _is_mode(value: object) -> bool:
    if isinstance(value, str):
        return value.upper() in COMPILATION_MODES
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return value is None or (is_number and value in range(len(COMPILATION_MODES)))


def _in_field(
    kinds: Kinds, value: object, fields: FieldCatalogue, path: str
) -> Iterator[tuple[str, str]]:
    nested = [kind[6:] for kind in kinds if kind.startswith("class:")]
    for class_name in nested:
        if class_name in fields.classes and isinstance(value, Mapping):
            yield from _in_class(class_name, value, fields, path)
            return
    if any(name not in fields.classes for name in nested) or _fits(kinds, value):
        return
    wanted = [kind.removeprefix("literal:") for kind in kinds if kind != "none"]
    yield path, f"{value!r} is not {' or '.join(wanted)}"


def _fits(kinds: Kinds, value: object) -> bool:
    """Whether a value is, or is coerced to, one of the kinds; a kind that is not known here takes anything."""
    for kind in kinds:
        if kind.startswith("literal:"):
            if str(value) == kind.removeprefix("literal:"):
                return True
        elif kind in _TESTS:
            if _TESTS[kind](value):
                return True
        elif not kind.startswith("class:"):
            return True
    return False


def _is_int(value: object) -> bool:
    if isinstance(value, str):
        return value.strip().lstrip("+-").isdecimal()
    return isinstance(value, int) or (isinstance(value, float) and value.is_integer())


def _is_float(value: object) -> bool:
    try:
        float(str(value))
    except ValueError:
        return False
    return True


# As pydantic coerces them outside of its strict mode.
_TESTS: Mapping[str, Callable[[object], bool]] = {
    "none": lambda value: value is None,
    "bool": lambda value: isinstance(value, bool) or value in _TRUTHS,
    "int": _is_int,
    "float": _is_float,
    "str": lambda value: isinstance(value, str),
    "dict": lambda value: isinstance(value, Mapping),
    "list": lambda value: isinstance(value, list),
}
