"""Published holes as data: which releases have them, and that every row says where it was read."""

from __future__ import annotations

from datetime import date
from typing import get_args

import pytest

from infra.catalog.advisories import (
    FOLDER,
    Advisory,
    Condition,
    Package,
    advisories,
    advisories_of,
    package_of,
    release_key,
)
from infra.catalog.changes import holes_of, release_changes
from infra.catalog.load import Catalog
from infra.catalog.read_releases import read_versions
from infra.spec.plain_yaml import read_yaml

PACKAGES: tuple[Package, ...] = get_args(Package)
ROWS = [pytest.param(row, id=row.id) for package in PACKAGES for row in advisories(package)]
ASKED = {
    "CVE-2024-11041", "CVE-2025-30165", "CVE-2025-29783", "CVE-2025-32444", "CVE-2025-30202", "CVE-2025-47277",
    "CVE-2026-22778", "CVE-2026-22807", "CVE-2026-24779", "CVE-2026-48746", "CVE-2025-10164", "CVE-2026-3059",
    "CVE-2026-3060", "CVE-2026-3989",
}  # fmt: skip


def hole(
    since: str | None = None, before: str | None = None, through: str | None = None
) -> Advisory:
    return Advisory(
        id="CVE-1",
        package="vllm",
        what="x",
        source="x",
        checked=date(2026, 11, 26),
        since=since,
        before=before,
        through=through,
    )


def test_a_file_is_a_package_and_all_that_was_asked_for_is_there() -> None:
    assert {path.stem for path in FOLDER.glob("*.yaml")} == set(PACKAGES)
    assert {row.id for package in PACKAGES for row in advisories(package)} >= ASKED


@pytest.mark.parametrize("row", ROWS)
def test_a_row_says_what_where_and_when_it_was_read(row: Advisory) -> None:
    assert row.what
    assert not row.what.endswith(".")
    assert row.source
    assert isinstance(row.checked, date)
    assert row.before is None or row.through is None
    # a release without it is named, read, or known to be none
    read = read_versions(Catalog(), row.package)
    assert row.mended(read) or row.fix.endswith(".") or not row.is_in(read[0])
    for bound in (row.since, row.before, row.through):
        assert bound is None or release_key(bound) is not None


@pytest.mark.parametrize("package", PACKAGES)
def test_conditions_are_of_their_types(package: Package) -> None:
    kinds = {
        "has_key": bool, "any_flag": list, "no_flag": list, "env": dict, "connectors": list, "spans_hosts": bool,
        "takes_images": bool, "architectures": list, "names_repository": bool, "program": str,
    }  # fmt: skip
    assert set(kinds) == set(Condition.model_fields)
    for row in read_yaml(FOLDER / f"{package}.yaml"):
        for key, value in row.get("when", {}).items():
            assert isinstance(value, kinds[key]), (row["id"], key)


@pytest.mark.parametrize(
    ("version", "has_it"),
    [
        ("0.2.9", False),
        ("0.3.0", True),
        ("v0.3.0", True),
        ("0.3.0rc1", False),  # before the first that has it
        ("0.21.0", True),
        ("0.21.0.post1", True),
        ("0.22.0rc1", True),  # a candidate may lack what mends it
        ("0.22.0.dev39+g43ff405b9", True),
        ("0.22.0", False),
        ("0.22.0+cu130", False),
        ("0.22.1rc1", False),
        ("nightly", False),
        ("", False),
    ],
)
def test_a_range_ends_before_the_release_that_mends_it(version: str, has_it: bool) -> None:
    assert hole(since="0.3.0", before="0.22.0").is_in(version) is has_it


@pytest.mark.parametrize(
    ("version", "has_it"),
    [
        ("0.8.5", True),
        ("0.8.5.post1", True),
        ("0.8.5.post2", False),
        ("0.8.6rc1", False),
        ("0.1", True),
    ],
)
def test_a_range_may_end_with_the_last_release_that_has_it(version: str, has_it: bool) -> None:
    assert hole(through="0.8.5.post1").is_in(version) is has_it
    assert hole().is_in(version)


@pytest.mark.parametrize(
    ("version", "base"), [("0.17.0rc1", "0.17.0"), ("0.22.1rc1", "0.22.1"), ("0.26.0rc1", "0.26.0")]
)
def test_vllm_ascend_has_the_holes_of_its_vllm(version: str, base: str, catalog: Catalog) -> None:
    release = catalog.release("vllm-ascend", version)
    assert package_of(release) == package_of(release, version) == ("vllm", base)


def test_an_upgrade_mends_what_the_new_release_has_not(catalog: Catalog) -> None:
    old, new = catalog.release("vllm", "0.17.0"), catalog.release("vllm", "0.22.1")
    changes = release_changes(old, new, catalog)
    assert "CVE-2026-48746" in changes.mended_holes
    assert changes.new_holes == ()
    assert {*holes_of(old)} - {*changes.mended_holes} == {*holes_of(new)}
    back = release_changes(new, old, catalog)
    assert (back.mended_holes, back.new_holes) == ((), changes.mended_holes)
    assert "CVE-2026-48746" not in {each.id for each in advisories_of("vllm", "0.22.0")}
