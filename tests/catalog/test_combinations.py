"""What is refused in several settings together: the rule and the simulated engine read one row alike."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from infra.catalog.combinations import FOLDER, Combination, combinations
from infra.catalog.load import Catalog
from infra.catalog.versions import version_numbers
from infra.rehearsal.engine.combinations import check_combinations
from infra.rehearsal.engine.failures import Failed

PACKAGES = ("sglang", "vllm", "vllm-ascend")
ROWS = [
    pytest.param(package, row, id=f"{package}-{number}")
    for package in PACKAGES
    for number, row in enumerate(combinations(package))
]
OTHER = 5  # another setting's value, where a condition compares with it
CATALOG = Catalog()


def met_by(when: Mapping[str, Any]) -> dict[str, Any]:
    """Settings that meet every condition of a row; those that are to be left out are not there."""
    found: dict[str, Any] = {}
    for name, condition in when.items():
        if isinstance(condition, bool):
            found |= {name: True} if condition else {}
            continue
        ((word, wanted),) = condition.items()
        number = OTHER if isinstance(wanted, str) else wanted
        if word == "in":
            value = wanted[0]
        elif word == "not_in":
            value = "another" if None in wanted else None
        else:
            value = {
                "given": "something" if wanted else None,
                "has": f"garbage_collection_threshold:0.8,{wanted}",
                "not_share": 1.5,
                "not_dividing": 2,
            }.get(word)
        if word in ("above", "below", "not_above"):
            value = {"above": number + 1, "below": number - 1, "not_above": number}[word]
        if isinstance(wanted, str) and wanted.startswith("@"):
            found[wanted[1:]] = OTHER
        found |= {} if value is None else {name: value}
    return found


def test_every_package_has_its_file_and_nothing_else_lies_there() -> None:
    assert {path.name for path in FOLDER.iterdir()} == {
        *(f"{name}.json" for name in PACKAGES),
        "README.md",
    }


@pytest.mark.parametrize(("package", "row"), ROWS)
def test_a_row_is_met_by_what_it_names_and_no_more_when_that_is_gone(
    package: str, row: Combination
) -> None:
    settings = met_by(row.when)
    assert row.is_met(settings.get)
    named = [name for name in row.when if name in settings]
    assert named
    for name in named:
        without = {key: value for key, value in settings.items() if key != name}
        # what may not be below a number, or may not be there, is met by a default or by nothing
        spared = isinstance(row.when[name], dict) and {"below", "not_above", "not_in", "in"} & {
            *row.when[name]
        }
        assert spared or not row.is_met(without.get), name
    assert not row.is_met(dict.fromkeys(settings, "").get)
    assert package in row.engines or package == "vllm"


@pytest.mark.parametrize(("package", "row"), ROWS)
def test_the_simulated_engine_refuses_the_same_settings_in_the_releases_words(
    package: str, row: Combination
) -> None:
    settings = met_by(row.when)
    with pytest.raises(Failed) as caught:
        check_combinations(package, row.engines[0], version_numbers(row.first), settings.get)
    same = [
        other
        for other in combinations(package)
        if other.is_of(row.engines[0], version_numbers(row.first)) and other.is_met(settings.get)
    ]
    said = [other.words(settings.get) for other in same]
    assert any(words in caught.value.message for words in said), caught.value.message


@pytest.mark.parametrize(("package", "row"), ROWS)
def test_a_row_names_flags_and_releases_that_there_are(package: str, row: Combination) -> None:
    flags_of = "vllm" if package == "vllm-ascend" else package
    known = {
        name
        for path in (CATALOG.root / "packages").glob(f"{flags_of}-[0-9]*.json")
        for name in CATALOG.package(path.stem).flags.by_name
    }
    for name in row.when:
        if not name.startswith(("env.", "model.")):
            assert name.partition(".")[0] in known
    assert row.last is None or version_numbers(row.first) <= version_numbers(row.last)
    assert row.fix.endswith(".")
    assert row.says
