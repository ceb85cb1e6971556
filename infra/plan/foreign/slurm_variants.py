"""The files that an srt-slurm recipe with `base:`, `override_…:` and `zip_override_…:` stands for.

Source: NVIDIA/srt-slurm src/srtctl/core/config.py and docs/overrides.md at commit c88ef731, 2026-08-21.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from infra.plan.foreign.yaml_pages import Node, Page
from infra.spec.yaml_source import Document, Path, Position

_OVERRIDE, _ZIPPED = "override_", "zip_override_"


@dataclass(frozen=True, slots=True)
class Variant:
    """One file: the selector that srtctl knows it by, "" where the recipe is but one, and its document."""

    name: str
    root: Node


def variants_of(root: Node) -> list[Variant]:
    """Every file that srtctl makes of a recipe: overrides laid over the base, and not the base itself.

    Raises:
        TooMuchWorkError: they hold more than is followed.
    """
    base = root.get("base")
    if not base.is_there:
        return [Variant("", root)]
    found = [
        variant
        for key, node in root.items()
        if key.startswith((_OVERRIDE, _ZIPPED)) and isinstance(node.value, Mapping)
        for variant in _laid_over(base, key, node)
    ]
    return found or [Variant("", _Merge(base).page.root)]


def _laid_over(base: Node, key: str, override: Node) -> Iterator[Variant]:
    if key.startswith(_OVERRIDE):
        yield Variant(key, _Merge(base).over(override, None))
        return
    length = max([1, *_lengths(override.value)])
    base.spend(length)
    for index in range(length):
        yield Variant(f"{key}[{index}]", _Merge(base).over(override, index))


def _lengths(value: object) -> Iterator[int]:
    """How long the lists of a zipped override are: every list is one of values."""
    if isinstance(value, list):
        yield len(value)
    elif isinstance(value, Mapping):
        for each in value.values():
            yield from _lengths(each)


@dataclass(slots=True)
class _Merge:
    """A base with an override laid over it; every value stays at its own line."""

    base: Node
    positions: dict[Path, Position] = field(default_factory=dict)

    @property
    def page(self) -> Page:
        """The base alone, as a document of its own."""
        return self._page(self._copied(self.base, ()))

    def over(self, override: Node, index: int | None) -> Node:
        """The merged document: maps are merged, lists and scalars replaced, null removes.

        Args:
            override: what is laid over.
            index: of a zipped override, the place in its lists; None takes lists as they are.
        """
        merged = self._merged(self._copied(self.base, ()), override, (), index)
        return self._page(merged).root

    def _page(self, data: object) -> Page:
        page = self.base.page
        return Page(Document(data=data, positions=self.positions), page.rows, page.work)

    def _copied(self, node: Node, at: Path) -> object:
        self.positions[at] = (node.line, 1)
        if isinstance(node.value, Mapping):
            return {key: self._copied(each, (*at, key)) for key, each in node.items()}
        if isinstance(node.value, list):
            return [self._copied(each, (*at, i)) for i, each in enumerate(node.nodes())]
        return node.value

    def _merged(self, below: object, node: Node, at: Path, index: int | None) -> object:
        value = node.value
        if isinstance(value, Mapping) and isinstance(below, Mapping):
            found = dict(below)
            for key, each in node.items():
                if each.is_there:
                    found[key] = self._merged(found.get(key), each, (*at, key), index)
                else:
                    found.pop(key, None)
            return found
        if isinstance(value, list) and value and index is not None:
            chosen = node.get(min(index, len(value) - 1))
            return self._copied(chosen, at)
        if isinstance(value, Mapping):
            return self._merged({}, node, at, index)
        return self._copied(node, at)
