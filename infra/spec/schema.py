"""The stack file's JSON Schema for editors: `python -m infra.spec.schema` writes it beside this module."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path

from infra.spec.stack import ROLE_ORDER, StackSpec
from infra.spec.stack_files import stack_names

PATH = Path(__file__).resolve().with_name("stack.schema.json")
DIALECT = "https://json-schema.org/draft/2020-12/schema"
EXTENDS: dict[str, object] = {
    "type": "string",
    "title": "Extends",
    "description": "Another stack: a shipped name, or a path relative to this file. Maps merge, all else replaces.",
}

# Fields with an id of the catalogue, by the folder that has it: editors complete what it holds. Other words stay words:
# an id that comes with tomorrow's file must not be red.
IDS: Mapping[tuple[str, str], str] = {
    ("", "checkpoint"): "checkpoints",
    ("", "accelerator"): "accelerators",
    ("", "tuning"): "tuning",
    ("Draft", "checkpoint"): "checkpoints",
    ("Role", "accelerator"): "accelerators",
    ("Tuning", "profile"): "tuning",
    ("Engine", "version"): "engines/*",
}
_FORMS = ("type", "pattern", "anyOf")
CATALOGUE = Path(__file__).resolve().parents[1] / "catalog"

Schema = dict[str, object]


def stack_schema() -> Schema:
    """The schema of one stack file.

    A file with `extends` may hold any part of a stack; one without must be whole.
    """
    schema: Schema = StackSpec.model_json_schema()
    definitions = _map(schema["$defs"])
    properties = _map(schema["properties"])
    whole = {
        "required": schema.pop("required"),
        "properties": _parts_required(properties, definitions),
    }
    _map(whole["properties"])["roles"] = _either_unified_or_disaggregated()
    for (owner, name), folder in IDS.items():
        fields = _map(_map(definitions[owner])["properties"]) if owner else properties
        fields[name] = _with_ids(_map(fields[name]), folder)
    return {
        "$schema": DIALECT,
        "title": "Stack",
        "description": "A serving deployment: which model, on which accelerators, with which engine and topology.",
        "type": "object",
        "additionalProperties": False,
        "properties": {"extends": _with_words(EXTENDS, stack_names()), **properties},
        "if": {"not": {"required": ["extends"]}},
        "then": whole,
        "$defs": definitions,
    }


def schema_text() -> str:
    """The content of `stack.schema.json`."""
    return json.dumps(stack_schema(), indent=2, ensure_ascii=False) + "\n"


def _with_ids(field: Schema, folder: str) -> Schema:
    """A field that offers the ids of a folder of the catalogue, beside all that it takes."""
    return _with_words(field, {path.stem for path in CATALOGUE.glob(f"{folder}/*.yaml")})


def _with_words(field: Schema, words: Iterable[str]) -> Schema:
    """A field that offers words, beside all that it takes."""
    rest = {key: value for key, value in field.items() if key not in _FORMS}
    options = field.get("anyOf")
    if not isinstance(options, list):
        options = [{key: field[key] for key in _FORMS if key in field}]
    return {**rest, "anyOf": [{"enum": sorted(words)}, *options]}


def _parts_required(properties: Schema, definitions: Schema) -> Schema:
    """Which keys each top-level map needs in a whole file.

    They are taken out of the definitions, where they would bind files with `extends` too.
    """
    found: Schema = {}
    for name, described in properties.items():
        references = _references(_map(described))
        if len(references) == 1 and "required" in (definition := _map(definitions[references[0]])):
            found[name] = {"required": definition.pop("required")}
    return found


def _references(described: Schema) -> list[str]:
    """Names of the definitions that a property may be; only of those that merge key by key."""
    options = described.get("anyOf", [described])
    rows = [_map(option) for option in options] if isinstance(options, list) else []
    if any("enum" in row for row in rows):
        return []  # a word or a map: the map is written whole
    return [str(row["$ref"]).rpartition("/")[2] for row in rows if "$ref" in row]


def _either_unified_or_disaggregated() -> Schema:
    unified, *halves = ROLE_ORDER
    return {
        "oneOf": [
            {"required": [unified], "properties": dict.fromkeys(halves, False)},
            {"required": halves, "properties": {unified: False}},
        ]
    }


def _map(value: object) -> Schema:
    if not isinstance(value, dict):
        message = f"expected a map in pydantic's schema, found {value!r}"
        raise TypeError(message)
    return value


if __name__ == "__main__":
    PATH.write_text(schema_text(), encoding="utf-8")
