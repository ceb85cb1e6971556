"""What the documents name is there."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from infra.spec.load import PROJECT

# An operator writes it; a clone has none.
WRITTEN_LATER = {"ansible/inventory/<stack>.yml"}
ARCHITECTURE = (PROJECT / "docs" / "architecture.md").read_text(encoding="utf-8")
ROWS = re.findall(r"^\| `(\w+)` \|.*\|(.*)\|$", ARCHITECTURE, re.MULTILINE)


def defined_in(path: Path) -> set[str]:
    """Names that a module defines itself."""
    found: set[str] = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found |= {target.id for target in targets if isinstance(target, ast.Name)}
    return found


def test_every_room_has_a_row() -> None:
    rooms = {path.name for path in (PROJECT / "infra").iterdir() if (path / "__init__.py").exists()}
    assert {room for room, _ in ROWS} == rooms


@pytest.mark.parametrize(("room", "cell"), ROWS, ids=[room for room, _ in ROWS])
def test_a_reader_finds_what_a_room_begins_with(room: str, cell: str) -> None:
    begins = re.findall(r"`([\w.]+)\.(\w+)`", cell)
    assert begins
    paths = {module: PROJECT.joinpath("infra", room, *module.split(".")) for module, _ in begins}
    assert [
        f"{module}.{name}"
        for module, name in begins
        if name not in defined_in(paths[module].with_suffix(".py"))
    ] == []


@pytest.mark.parametrize(
    "document", ["README.md", "CONTRIBUTING.md", "docs/architecture.md", "docs/security.md"]
)
def test_every_place_that_is_named_is_there(document: str) -> None:
    text = (PROJECT / document).read_text(encoding="utf-8")
    named = re.findall(r"`((?:infra|tests|stacks|scripts|ansible|docs)/[^` ]*)`", text)
    places = {re.sub(r"<\w+>", "*", path) for path in named if path not in WRITTEN_LATER}
    assert len(places) > 5
    assert [place for place in sorted(places) if not any(PROJECT.glob(place))] == []


@pytest.mark.parametrize("document", ["decisions", "operations", "operations-cloud"])
def test_every_heading_of_a_long_page_stands_once_in_its_index(document: str) -> None:
    text = (PROJECT / "docs" / f"{document}.md").read_text(encoding="utf-8")
    index, _, below = text.partition("\n## ")
    headings = re.findall(r"^## (.*)$", f"## {below}", re.MULTILINE)
    linked = re.findall(r"\]\(#([^)]*)\)", index)
    assert len(headings) > 10
    assert sorted(linked) == sorted(
        re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings
    )
