"""A catalogue file: one released package, one row on each line, sorted, so that two releases read as a diff."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

SECTIONS = (
    "commands",
    "classes",
    "names",
    "attention_backends",
    "mla_prefill_backends",
    "models",
    "variables",
)


def catalogue_text(package: str, version: str, sections: Mapping[str, Any]) -> str:
    """The file's text.

    Args:
        package: its name in a package index.
        version: of the release.
        sections: what `infra.packages.reading_process` read; a section without content is left out.
    """
    head = {"package": package, "version": version}
    body = {name: sections[name] for name in SECTIONS if sections.get(name)}
    return "".join(_lines({**head, **body}, 0, depth=_depths(body))) + "\n"


def _depths(body: Mapping[str, Any]) -> Mapping[str, int]:
    """How many levels of each section are spread over lines: what lies below is one line."""
    return {name: 2 if name in {"commands", "classes", "names"} else 1 for name in body}


def _lines(value: Any, indent: int, *, depth: Mapping[str, int]) -> Iterator[str]:
    yield "{\n"
    last = list(value)[-1]
    for key, each in value.items():
        yield f"{' ' * (indent + 1)}{json.dumps(key)}: "
        yield from _spread(each, indent + 1, depth.get(key, 0))
        yield "\n" if key == last else ",\n"
    yield " " * indent + "}"


def _spread(value: Any, indent: int, levels: int) -> Iterator[str]:
    if (
        not levels
        or not value
        or not isinstance(value, Mapping | Sequence)
        or isinstance(value, str)
    ):
        yield json.dumps(value, ensure_ascii=False)
        return
    rows = list(value.items()) if isinstance(value, Mapping) else [(None, each) for each in value]
    yield "{\n" if isinstance(value, Mapping) else "[\n"
    for number, (key, each) in enumerate(rows, start=1):
        yield " " * (indent + 1) + ("" if key is None else f"{json.dumps(key)}: ")
        yield from _spread(each, indent + 1, levels - 1)
        yield "\n" if number == len(rows) else ",\n"
    yield " " * indent + ("}" if isinstance(value, Mapping) else "]")
