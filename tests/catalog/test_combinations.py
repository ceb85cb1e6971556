"""What is refused in several settings together: the rule and the simulated engine read one row alike."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from infra.catalog.combinations import FOLDER, TIMES, Combination, combinations
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
        if isinstance(wanted, str) and wanted.startswith("@"):
            found[wanted[1:]] = OTHER
        if isinstance(wanted, list):
            named = (each[1:] for each in wanted if isinstance(each, str) and each.startswith("@"))
            found = {**dict.fromkeys(named, OTHER), **found}
        if TIMES in name:
            factor = 1 if word == "below" else OTHER + 1
            found = {**dict.fromkeys(name.split(TIMES), factor), **found}
        elif (value := value_for(word, wanted)) is not None:
            found[name] = value
    return found


def value_for(word: str, wanted: Any) -> object:
    """A value that meets a condition; None where it is to be left out."""
    number = OTHER if isinstance(wanted, str) else wanted
    if word == "in":
        return wanted[0]
    if word == "not_in":
        return "another" if {None, 1} & set(wanted) else None
    if word in ("above", "below", "not_above"):
        return {"above": number + 1, "below": number - 1, "not_above": number}[word]
    return {
        "given": "something" if wanted else None,
        "has": f"garbage_collection_threshold:0.8,{wanted}",
        "not_share": 1.5,
        "not_dividing": 2,
    }[word]


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
    assert not any(row.is_met({**settings, name: True}.get) for name in row.unless)
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


@pytest.mark.parametrize(
    ("package", "row"),
    [case for case in ROWS if case.values[1].unless],  # type: ignore[union-attr]
)
def test_the_simulated_engine_says_nothing_where_what_is_compared_is_changed(
    package: str, row: Combination
) -> None:
    for name in row.unless:
        settings = {**met_by(row.when), name: True}
        try:
            check_combinations(package, row.engines[0], version_numbers(row.first), settings.get)
        except Failed as failure:
            assert failure.message not in row.words(settings.get)  # noqa: PT017 - another row may say something


@pytest.mark.parametrize(("package", "row"), ROWS)
def test_a_row_names_flags_and_releases_that_there_are(package: str, row: Combination) -> None:
    flags_of = "vllm" if package == "vllm-ascend" else package
    known = {
        name
        for path in (CATALOG.root / "packages").glob(f"{flags_of}-[0-9]*.json")
        for name in CATALOG.package(path.stem).flags.by_name
    }
    for name in (*row.settings(), *row.unless):
        if not name.startswith(("env.", "model.")):
            assert name.partition(".")[0] in known
    assert row.last is None or version_numbers(row.first) <= version_numbers(row.last)
    assert row.fix.endswith(".")
    assert row.says
