"""Which format a foreign file has."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from infra.plan.foreign.ascend_nightly import (
    is_external,
    is_internal,
    read_external,
    read_internal,
)
from infra.plan.foreign.compose import is_compose, read_compose
from infra.plan.foreign.guide_blocks import Markup
from infra.plan.foreign.manifests import is_manifest, read_manifests
from infra.plan.foreign.mentions import (
    NOT_FOLLOWED,
    engine_mentions,
    engine_not_read,
    other_engine,
)
from infra.plan.foreign.script import EntryPoints, read_guide, read_script
from infra.plan.foreign.slurm_recipe import is_slurm_recipe
from infra.plan.foreign.slurm_sweep import read_slurm_sweep
from infra.plan.foreign.source import Recipe, refused
from infra.plan.foreign.yaml_pages import Page, read_pages
from infra.spec.work import Work

_GUIDES: Mapping[str, Markup] = {
    ".md": "Markdown",
    ".markdown": "Markdown",
    ".rst": "reStructuredText",
}
_YAML = (".yaml", ".yml")


def read_format(
    path: Path, text: str, settings: Mapping[str, str], entrypoints: EntryPoints
) -> Recipe:
    """What a file says, in the format that its name and its keys show.

    Raises:
        ProblemsFound: it is of no known format.
        TooMuchWorkError: it does too much to be followed.
    """
    work = Work()
    suffix = path.suffix.lower()
    if suffix in _GUIDES:
        return read_guide(text, settings, entrypoints, _GUIDES[suffix], work)
    if suffix not in _YAML:
        return read_script(text, settings, entrypoints, path.parent, work)
    pages, notes = read_pages(text, str(path), work)
    recipe = _of_pages(path, pages, settings, entrypoints)
    return replace(recipe, not_understood=(*recipe.not_understood, *notes))


def _of_pages(
    path: Path,
    pages: list[Page],
    settings: Mapping[str, str],
    entrypoints: EntryPoints,
) -> Recipe:
    root = pages[0].root if pages else None
    if root is not None and is_internal(root):
        return read_internal(root, settings)
    if root is not None and is_external(root):
        return read_external(root)
    if root is not None and is_slurm_recipe(root):
        return read_slurm_sweep(root, settings)
    if is_manifest(pages):
        return read_manifests(pages, settings, entrypoints)
    if root is not None and is_compose(root):
        return read_compose(pages[0], settings, entrypoints, path.parent)
    what = "It is YAML of no format that I know."
    fix = "Give a Kubernetes manifest, a Compose file, an srt-slurm recipe or a vllm-ascend multi-node file."
    text = "\n".join(pages[0].rows) if pages else ""
    other, mentions = other_engine(text), engine_mentions(text)
    if other is not None and mentions is None:
        raise engine_not_read(path, *other)
    if mentions is None:
        raise refused(path, what, fix, rule="no-engine")
    raise refused(path, f"{what} {mentions.said}", NOT_FOLLOWED, mentions.line, rule="not-followed")
