"""Releases that are known for judging: those between which another lies, and how much that is worth."""

from __future__ import annotations

from itertools import pairwise

import pytest

from infra.catalog.load import Catalog, UnknownIdError, version_key
from infra.catalog.read_releases import base_version, read_release, read_versions, releases_around

CATALOG = Catalog()
ENGINES = ("sglang", "vllm", "vllm-ascend")


@pytest.mark.parametrize("engine", ENGINES)
def test_pinned_releases_are_among_those_that_were_read(engine: str) -> None:
    known = read_versions(CATALOG, engine)
    assert set(CATALOG.releases(engine)) <= set(known)
    assert list(known) == sorted(known, key=version_key)


@pytest.mark.parametrize(
    ("engine", "version"), [(e, v) for e in ENGINES for v in read_versions(CATALOG, e)]
)
def test_a_release_speaks_with_its_own_package(engine: str, version: str) -> None:
    release = read_release(CATALOG, engine, version)
    expected = f"vllm-{base_version(version)}" if engine == "vllm-ascend" else f"{engine}-{version}"
    assert (release.engine, release.version, release.flags_catalogue) == (engine, version, expected)
    assert set(release.envs_catalogues) == {expected, f"{engine}-{version}"}
    assert bool(release.images) == (version in CATALOG.releases(engine))


def test_a_release_that_was_never_read_is_named_with_its_neighbours() -> None:
    with pytest.raises(UnknownIdError) as caught:
        read_release(CATALOG, "vllm", "0.22.2")
    assert "0.22.1" in caught.value.fix


@pytest.mark.parametrize(
    ("engine", "version", "expected"),
    [
        ("vllm", "0.22.1", ("0.22.1",)),
        ("vllm", "0.22.0", ("0.21.0", "0.22.1")),
        ("vllm", "0.26.1rc1.dev255+g5e35a6f4f", ("0.26.0", "0.27.1")),
        ("sglang", "0.5.12.post1", ("0.5.12", "0.5.14")),
        ("vllm", "0.8.5", ()),
        ("vllm", "9.0.0", ()),
        ("vllm", "nightly", ()),
    ],
)
def test_another_release_lies_between_two(
    engine: str, version: str, expected: tuple[str, ...]
) -> None:
    assert releases_around(CATALOG, engine, version) == expected


@pytest.mark.parametrize("engine", ["sglang", "vllm"])
def test_a_flag_of_a_release_is_nearly_always_one_of_its_neighbours(engine: str) -> None:
    """Each release in turn is taken for one that was never read: what both neighbours lack, it lacks."""
    versions = read_versions(CATALOG, engine)
    options = [
        set(CATALOG.flags(read_release(CATALOG, engine, v).flags_catalogue).by_option)
        for v in versions
    ]
    judged = wrong = 0
    for (before, own), (_, after) in zip(pairwise(options), pairwise(options[1:]), strict=False):
        judged += len(own)
        wrong += len(own - before - after)
    assert wrong <= judged / 300, (wrong, judged)
