"""What fields and words a pydantic model has at a path: what a wrong key may have meant."""

from __future__ import annotations

from typing import Literal, get_args, get_origin

from pydantic import BaseModel

from infra.spec.section import SecretReference
from infra.spec.stack import StackSpec
from infra.spec.yaml_source import Path, dotted


def is_reference(path: Path) -> bool:
    """Whether a secret's reference stands at a path of the spec."""
    return {*models_at(path, StackSpec)} == {*get_args(SecretReference)}


def places_of(name: str, kind: type[BaseModel]) -> list[str]:
    """Where a model has a field of a name, as the end of a sentence, each section once."""
    top = f"at the top of the {'stack' if kind is StackSpec else 'file'}"
    found: dict[type[BaseModel], str] = {}
    waiting: list[tuple[Path, type[BaseModel]]] = [((), kind)]
    seen: set[type[BaseModel]] = set()
    while waiting:
        path, section = waiting.pop(0)
        if section in seen:
            continue
        seen.add(section)
        if name in section.model_fields:
            found[section] = f"in `{dotted(path)}`" if path else top
        for field, info in section.model_fields.items():
            waiting += [((*path, field), inner) for inner in models_in(info.annotation)]
    return list(found.values())


def fields_at(path: Path, kind: type[BaseModel]) -> list[str]:
    """The fields that a model has at a path, for suggestions."""
    return sorted(
        {name for model in models_at(path, kind) for name in model.model_fields}
        | ({"extends"} if not path and kind is StackSpec else set())
    )


def words_at(path: Path, kind: type[BaseModel]) -> list[str]:
    """The words that a model takes at a path instead of a map."""
    above = models_at(path[:-1], kind) if path else []
    fields = (model.model_fields.get(str(path[-1])) for model in above)
    forms = [form for field in fields if field is not None for form in get_args(field.annotation)]
    return [str(word) for form in forms if get_origin(form) is Literal for word in get_args(form)]


def models_at(path: Path, kind: type[BaseModel]) -> list[type[BaseModel]]:
    """The sections that a model has at a path; items of lists and of maps have those of their kind."""
    models: list[type[BaseModel]] = [kind]
    for part in path:
        found: list[type[BaseModel]] = []
        for model in models:
            field = model.model_fields.get(str(part))
            if field is not None:
                found.extend(models_in(field.annotation))
        is_field = any(str(part) in model.model_fields for model in models)
        models = found if is_field else models
    return models


def models_in(annotation: object) -> list[type[BaseModel]]:
    """The models among the forms that an annotation allows."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for part in getattr(annotation, "__args__", ()) for model in models_in(part)]
