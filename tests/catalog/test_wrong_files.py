"""A wrong file of the catalogue: in our words, with file and line, exit code 2; for every kind of file."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from infra.catalog import load
from infra.catalog.advisories import Advisory
from infra.catalog.attention_orders import FILE as ATTENTION
from infra.catalog.attention_orders import _orders
from infra.catalog.combinations import _Row
from infra.catalog.eks import FILE as EKS
from infra.catalog.eks import EksParts
from infra.catalog.figures import LoadingRates
from infra.catalog.files import CatalogueError, read_entry, read_json, read_rows
from infra.catalog.instance_types import InstanceType
from infra.catalog.load import Catalog, Combination
from infra.catalog.packages import read_package
from infra.catalog.prices import PriceList

ROOT = load.ROOT
Read = Callable[[Path], object]
# Each kind of file: one of its files, and what reads it.
KINDS: dict[str, tuple[Path, Read]] = {
    "accelerators": (
        ROOT / "accelerators/h200.yaml",
        lambda path: Catalog(path.parents[1]).accelerator("h200"),
    ),
    "checkpoints": (
        ROOT / "checkpoints/kimi-k2.5-int4.yaml",
        lambda path: Catalog(path.parents[1]).checkpoint("kimi-k2.5-int4"),
    ),
    "engines": (
        ROOT / "engines/vllm/0.22.1.yaml",
        lambda path: Catalog(path.parents[2]).release("vllm", "0.22.1"),
    ),
    "networks": (
        ROOT / "networks/efa.yaml",
        lambda path: Catalog(path.parents[1]).networks(),
    ),
    "images": (
        ROOT / "images/python.yaml",
        lambda path: Catalog(path.parents[1]).plain_image("python"),
    ),
    "routers": (
        ROOT / "routers/vllm-router.yaml",
        lambda path: Catalog(path.parents[1]).router("vllm-router"),
    ),
    "recipes": (
        ROOT / "recipes/vllm-h200-int4.yaml",
        lambda path: Catalog(path.parents[1]).recipes,
    ),
    "tuning": (
        ROOT / "tuning/any-host.yaml",
        lambda path: Catalog(path.parents[1]).tuning("any-host"),
    ),
    "instances": (
        ROOT / "instances/aws/p5en.48xlarge.yaml",
        lambda path: read_entry(path, InstanceType, id="p5en.48xlarge"),
    ),
    "eks": (EKS, lambda path: read_entry(path, EksParts)),
    "loading": (ROOT / "figures/loading.yaml", lambda path: read_entry(path, LoadingRates)),
    "prices": (ROOT / "figures/prices.yaml", lambda path: read_entry(path, PriceList)),
    "advisories": (
        ROOT / "advisories/vllm.yaml",
        lambda path: read_rows(path, Advisory, package="vllm"),
    ),
    "combinations": (ROOT / "combinations/vllm.json", lambda path: read_rows(path, _Row)),
    "attention": (ATTENTION, lambda path: read_json(path, _orders)),
    "packages": (ROOT / "packages/vllm-0.22.1.json", read_package),
}
MAPS = [
    kind for kind, (file, _) in KINDS.items() if file.suffix == ".yaml" and kind != "advisories"
]


def damaged(kind: str, tmp_path: Path, damage: Callable[[str], str]) -> tuple[Path, str]:
    """Where a file of that kind lies after a damage, and what is said of it."""
    file, read = KINDS[kind]
    copy = tmp_path / file.relative_to(ROOT)
    copy.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(file, copy)
    copy.write_text(damage(file.read_text()))
    with pytest.raises(CatalogueError) as found:
        read(copy)
    assert found.value.exit_code == 2
    said = str(found.value)
    assert "pydantic" not in said
    assert "validation error" not in said
    assert all(line.startswith(f"{copy}") for line in said.splitlines()), said
    return copy, said


def test_every_folder_of_the_catalogue_has_its_kind_here() -> None:
    folders = {path.name for path in ROOT.iterdir() if path.is_dir()} - {"__pycache__"}
    assert folders == {file.relative_to(ROOT).parts[0] for file, _ in KINDS.values()} - {"eks.yaml"}


@pytest.mark.parametrize("kind", KINDS)
def test_the_file_as_it_is_can_be_read(kind: str) -> None:
    file, read = KINDS[kind]
    assert read(file) is not None


@pytest.mark.parametrize("kind", MAPS)
def test_an_unknown_key_is_named_with_its_line(kind: str, tmp_path: Path) -> None:
    copy, said = damaged(kind, tmp_path, lambda text: f"{text.rstrip()}\nsummaryx: x\n")
    line = len(copy.read_text().splitlines())
    assert f"{copy}:{line} summaryx: There is no field summaryx here. Did you mean " in said


@pytest.mark.parametrize(
    "kind", [kind for kind in MAPS if "summary:" in KINDS[kind][0].read_text()]
)
def test_a_value_of_another_type_is_named_with_its_line(kind: str, tmp_path: Path) -> None:
    def number(text: str) -> str:
        return "\n".join(
            f"{line.partition(':')[0]}: 17" if line.startswith(("summary:", "source:")) else line
            for line in text.splitlines()
        )

    copy, said = damaged(kind, tmp_path, number)
    lines = copy.read_text().splitlines()
    place = next(i for i, line in enumerate(lines, 1) if line == "summary: 17")
    assert f'{copy}:{place} summary: 17 is not text. Write it in quotes: "17".' in said


@pytest.mark.parametrize("kind", MAPS)
def test_what_is_no_yaml_is_named_with_its_line(kind: str, tmp_path: Path) -> None:
    copy, said = damaged(kind, tmp_path, lambda text: f"{text.rstrip()}\nmore: [1,\n  - x: {{\n")
    line = len(copy.read_text().splitlines())
    assert any(said.startswith(f"{copy}:{line + back}") for back in (-1, 0, 1)), said


@pytest.mark.parametrize("kind", MAPS)
def test_what_is_no_map_is_said_so(kind: str, tmp_path: Path) -> None:
    _, said = damaged(kind, tmp_path, lambda _: "- a\n- b\n")
    assert "The file is not a map." in said or kind == "recipes"


def test_a_fact_without_a_source_is_named_with_its_line(tmp_path: Path) -> None:
    copy, said = damaged(
        "accelerators",
        tmp_path,
        lambda text: text.replace("product_name, memory_mib", "product_name"),
    )
    line = next(
        i for i, text in enumerate(copy.read_text().splitlines(), 1) if "memory_mib" in text
    )
    assert said.startswith(
        f"{copy}:{line} memory_mib: No source covers memory_mib. Name each under"
    )


def test_a_source_without_a_fact_is_named_with_its_line(tmp_path: Path) -> None:
    copy, said = damaged(
        "accelerators", tmp_path, lambda text: text.replace("[tuning]", "[tuning, tuningx]")
    )
    line = next(i for i, text in enumerate(copy.read_text().splitlines(), 1) if text == "sources:")
    assert said.startswith(f"{copy}:{line} sources: Sources cover keys that are not there: tuningx")


def test_a_nested_key_is_compared_with_its_neighbours(tmp_path: Path) -> None:
    _, said = damaged(
        "accelerators", tmp_path, lambda text: text.replace("mask_variable:", "mask_varible:", 1)
    )
    assert "mask_varible: There is no field mask_varible here. Did you mean mask_variable" in said
    assert "mask_variable: mask_variable is missing. Add `mask_variable:`." in said


@pytest.mark.parametrize(
    ("kind", "old", "new", "says"),
    [
        (
            "advisories",
            "before: ",
            "beforex: ",
            "There is no field beforex here. Did you mean before",
        ),
        (
            "advisories",
            "before: ",
            "before: nightly # ",
            "'nightly' is no release. Write its number.",
        ),
        ("combinations", '"says":', '"sayz":', "There is no field sayz here. Did you mean says"),
    ],
)
def test_a_row_is_named_with_its_line(
    kind: str, old: str, new: str, says: str, tmp_path: Path
) -> None:
    copy, said = damaged(kind, tmp_path, lambda text: text.replace(old, new, 1))
    lines = copy.read_text().splitlines()
    place = next(i for i, line in enumerate(lines, 1) if new.split(" #", maxsplit=1)[0] in line)
    assert any(f"{copy}:{place} " in each and says in each for each in said.splitlines()), said


@pytest.mark.parametrize("kind", ["combinations", "attention", "packages"])
def test_what_is_no_json_is_named_with_its_line(kind: str, tmp_path: Path) -> None:
    copy, said = damaged(kind, tmp_path, lambda text: text.rstrip()[:-1])
    assert said.startswith(f"{copy}:")


@pytest.mark.parametrize("kind", ["attention", "packages"])
def test_json_of_another_shape_is_to_be_restored(kind: str, tmp_path: Path) -> None:
    _, said = damaged(kind, tmp_path, lambda _: "{}")
    assert "Restore the file" in said


def test_a_package_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(CatalogueError, match=r"vllm-9\.9\.json: The file cannot be read: No such"):
        Catalog(tmp_path).package("vllm-9.9")


def test_a_recipes_condition_is_named_with_its_line(tmp_path: Path) -> None:
    file = KINDS["recipes"][0]
    copy = tmp_path / "recipes" / file.name
    copy.parent.mkdir()
    copy.write_text(file.read_text().replace("engine: vllm", "engine: vlm", 1))
    line = next(
        i for i, line in enumerate(copy.read_text().splitlines(), 1) if line.startswith("applies")
    )
    wanted = Combination("vllm", "0.22.1", "h200", "kimi-k2.5-int4", "unified", 8, False, False)
    with pytest.raises(CatalogueError) as found:
        Catalog(tmp_path).recipe_for(wanted)
    assert str(found.value).startswith(f"{copy}:{line} applies.engine: 'vlm' is not one of vllm")


def test_recipes_that_match_equally_well_are_named(tmp_path: Path) -> None:
    file = KINDS["recipes"][0]
    for name in ("a", "b"):
        copy = tmp_path / "recipes" / f"{name}.yaml"
        copy.parent.mkdir(exist_ok=True)
        copy.write_text(file.read_text())
    catalog = Catalog(tmp_path)
    when = catalog.recipes["a"].applies
    wanted = Combination(
        when.engine,
        when.versions[0] if when.versions else "0.22.1",
        when.accelerators[0] if when.accelerators else "h200",
        when.checkpoints[0] if when.checkpoints else "kimi-k2.5-int4",
        when.roles[0] if when.roles else "unified",
        when.tensor_parallel[0] if when.tensor_parallel else 8,
        bool(when.data_parallel_over_hosts),
        bool(when.draft),
    )
    with pytest.raises(CatalogueError, match="a and b match"):
        catalog.recipe_for(wanted)
