"""The JSON Schema that editors use agrees with what the loader takes."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from infra.catalog.load import Catalog
from infra.spec.load import PROJECT, SEARCHED, stack_names
from infra.spec.plain_yaml import parse_yaml
from infra.spec.schema import PATH, schema_text, stack_schema
from infra.spec.stack import StackSpec

FILES = sorted(
    path
    for folder in SEARCHED
    for path in folder.glob("*.yaml")
    if not path.name.startswith("Pulumi")
)
WHOLE = """
checkpoint: kimi-k2.5-nvfp4
accelerator: gb200
engine: {name: vllm, version: 0.22.1}
platform: aws-ec2
roles: {unified: {tensor_parallel: 4}}
"""


@cache
def validator() -> Draft202012Validator:
    """The schema, made once."""
    return Draft202012Validator(stack_schema())


def errors(text: str) -> list[str]:
    found = validator().iter_errors(parse_yaml(text))
    return [error.message for error in found]


def test_the_stored_schema_is_current() -> None:
    assert PATH.read_text(encoding="utf-8") == schema_text(), "run python -m infra.spec.schema"


def test_it_is_a_schema() -> None:
    Draft202012Validator.check_schema(stack_schema())


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_stack_file_follows_it(path: object) -> None:
    assert errors((PROJECT / str(path)).read_text(encoding="utf-8")) == []


def test_a_whole_stack_passes() -> None:
    assert errors(WHOLE) == []


@pytest.mark.parametrize(
    "change",
    [
        "prot: 8000",
        "port: eighty",
        "port: 70000",
        "platform: azure",
        "engine: {name: vllm}",
        "roles: {prefill: {}}",
        "roles: {unified: {}, decode: {}}",
        "roles: {unified: {tensor_paralel: 4}}",
        "defaults: {gpu_memory_utilization: 1.5}",
        "waive: [{rule: kv-memory}]",
    ],
)
def test_what_the_loader_refuses_is_marked_in_the_editor(change: str) -> None:
    key = change.partition(":")[0]
    kept = "\n".join(line for line in WHOLE.splitlines() if not line.startswith(f"{key}:"))
    assert errors(f"{kept}\n{change}\n")


@pytest.mark.parametrize("missing", ["checkpoint", "engine", "platform", "roles"])
def test_a_stack_without_extends_must_be_whole(missing: str) -> None:
    kept = "\n".join(line for line in WHOLE.splitlines() if not line.startswith(f"{missing}:"))
    assert any("required" in message for message in errors(kept))


def test_a_stack_that_extends_another_may_hold_any_part() -> None:
    assert (
        errors("extends: gb200-2p1d\nroles: {decode: {replicas: 2}}\nengine: {version: 0.33.0}")
        == []
    )
    assert errors("extends: gb200-2p1d\nroles: {decode: {replica: 2}}") != []


def test_every_field_has_a_description() -> None:
    schema = stack_schema()
    missing = [
        name
        for name, field in fields(schema)
        if not field.get("description") and not field.get("$ref")
    ]
    assert missing == []


def test_every_field_of_the_spec_is_in_the_schema() -> None:
    properties = stack_schema()["properties"]
    assert isinstance(properties, dict)
    assert set(properties) == {"extends", *StackSpec.model_fields}


def test_unknown_keys_are_refused_everywhere() -> None:
    definitions = stack_schema()["$defs"]
    assert isinstance(definitions, dict)
    assert all(definition["additionalProperties"] is False for definition in definitions.values())


def fields(schema: dict[str, object]) -> Iterator[tuple[str, dict[str, object]]]:
    definitions = schema["$defs"]
    assert isinstance(definitions, dict)
    for name, part in (("", schema), *definitions.items()):
        for key, field in part["properties"].items():
            yield f"{name}.{key}", field


OFFERED = (
    ("checkpoint", Catalog().ids("checkpoints")),
    ("accelerator", Catalog().ids("accelerators")),
    ("tuning", Catalog().ids("tuning")),
    ("extends", stack_names()),
    ("$defs.Engine.version", Catalog().releases("vllm")),
    ("$defs.Draft.checkpoint", Catalog().ids("checkpoints")),
    ("$defs.Role.accelerator", Catalog().ids("accelerators")),
    ("$defs.Tuning.profile", Catalog().ids("tuning")),
)


@pytest.mark.parametrize(("place", "words"), OFFERED, ids=[place for place, _ in OFFERED])
def test_editors_are_offered_what_the_catalogue_and_the_stacks_have(
    place: str, words: tuple[str, ...]
) -> None:
    schema: Any = stack_schema()
    *owners, field = place.split(".")
    for owner in owners:
        schema = schema[owner]
    offered = schema["properties"][field]["anyOf"][0]["enum"]
    assert set(words) <= set(offered)


def test_an_id_of_tomorrow_is_no_error_in_an_editor() -> None:
    assert errors(WHOLE.replace("kimi-k2.5-nvfp4", "kimi-k9")) == []
