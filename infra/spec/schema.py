"""The stack file's JSON Schema for editors: `python -m infra.spec.schema` writes it beside this module."""

from __future__ import annotations

import json
from pathlib import Path

from infra.spec.stack import ROLE_ORDER, StackSpec

PATH = Path(__file__).resolve().with_name("stack.schema.json")
DIALECT = "https://json-schema.org/draft/2020-12/schema"
EXTENDS = {
    "type": "string",
    "title": "Extends",
    "description": "Another stack: a shipped name, or a path relative to this file. Maps merge, all else replaces.",
}

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
    return {
        "$schema": DIALECT,
        "title": "Stack",
        "description": "A serving deployment: which model, on which accelerators, with which engine and topology.",
        "type": "object",
        "additionalProperties": False,
        "properties": {"extends": EXTENDS, **properties},
        "if": {"not": {"required": ["extends"]}},
        "then": whole,
        "$defs": definitions,
    }


def schema_text() -> str:
    """The content of `stack.schema.json`."""
    return json.dumps(stack_schema(), indent=2, ensure_ascii=False) + "\n"


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
