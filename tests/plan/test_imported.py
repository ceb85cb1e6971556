"""A plan document read back, and what its mistakes are told."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from infra.catalog.load import Catalog
from infra.errors import ProblemsFound
from infra.plan.compile import compile_file
from infra.plan.document import plan_document
from infra.plan.imported import parse_plan, read_plan


@pytest.fixture
def document(catalog: Catalog) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(
        json.dumps(plan_document(compile_file("h200-tp8", catalog=catalog).plan))
    )
    return found


def refused(document: object) -> list[tuple[str, str]]:
    with pytest.raises(ProblemsFound) as caught:
        parse_plan(document, "plan.json")
    assert {problem.rule for problem in caught.value.problems} == {"plan-document"}
    return [(problem.field, problem.what) for problem in caught.value.problems]


def test_a_written_plan_is_read(document: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(document), encoding="utf-8")
    plan = read_plan(path)
    assert plan_document(plan) == document
    assert plan.processes[0].flag_origins == {}


def test_every_process_has_every_key(catalog: Catalog) -> None:
    rows = plan_document(compile_file("gb200-2p1d", catalog=catalog).plan)["processes"]
    assert isinstance(rows, list)
    assert len({tuple(row) for row in rows}) == 1
    assert rows[-1]["group"] == "router/0"
    assert (rows[-1]["role"], rows[-1]["dp_ranks"], rows[-1]["devices"]) == ("router", [], [])


def test_another_schema_version_is_refused(document: dict[str, Any]) -> None:
    ((field, what),) = refused({**document, "schema_version": 2})
    assert field == "schema_version"
    assert "is '2'; this program reads 1" in what


def test_all_wrong_fields_are_told(document: dict[str, Any]) -> None:
    document["processes"][0]["dp_ranks"] = "all"
    document["hosts"][0]["num_devices"] = -1
    document["extra"] = 1
    assert {field for field, _ in refused(document)} == {
        "processes.0.dp_ranks",
        "hosts.0.num_devices",
        "extra",
    }


def test_a_process_on_no_host_is_refused(document: dict[str, Any]) -> None:
    document["processes"][0]["host"] = "nowhere"
    ((field, what),) = refused(document)
    assert field == "processes"
    assert "unified-0/0 name a host that is not there" in what


@pytest.mark.parametrize(("field", "name"), [("hosts", "unified-0"), ("processes", "unified-0/0")])
def test_a_name_written_twice_is_refused(document: dict[str, Any], field: str, name: str) -> None:
    document[field].append(document[field][0])
    assert refused(document) == [(field, f"{name} written twice.")]


def test_a_plan_without_engines_is_refused(document: dict[str, Any]) -> None:
    assert refused({**document, "processes": []}) == [
        ("processes", "The plan has no engine process.")
    ]


@pytest.mark.parametrize("document", [None, 5, [], "x", {}])
def test_what_is_no_document_is_refused(document: object) -> None:
    assert refused(document)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("{", "not JSON"),
        ("", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("\xff", "not JSON"),
        (
            f"[{'{},' * 2_000_000}{{}}]",
            "more than 4000000 values",
        ),  # 50 MB of such would take 1.3 GiB
    ],
)
def test_a_file_that_is_no_json_is_refused(content: str, says: str, tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    path.write_text(content, encoding="latin-1")
    with pytest.raises(ProblemsFound, match=says):
        read_plan(path)


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ProblemsFound, match="cannot be read"):
        read_plan(tmp_path / "none.json")


@pytest.mark.parametrize(
    "name", ["unified-0", "unified-0/x", "unified-0/01", "other/0", "router/0"]
)
def test_an_id_names_the_host_of_its_process_and_a_number(
    document: dict[str, Any], name: str
) -> None:
    document["processes"][0]["id"] = name
    ((field, what),) = refused(document)
    assert field in ("processes", "processes.0.id")
    assert what.startswith(repr(name))


def test_what_paths_and_units_cannot_hold_is_refused(document: dict[str, Any]) -> None:
    ((field, what),) = refused({**document, "stack": "../../etc"})
    assert field == "stack"
    assert "becomes part of paths and units" in what


def test_capabilities_are_of_a_closed_set(document: dict[str, Any]) -> None:
    assert refused({**document, "capabilities": ["chat", "fly"]}) == [
        ("capabilities", "'fly' is no capability.")
    ]


@pytest.mark.parametrize("text", ["a\0b", "\ud800"])
def test_what_no_command_line_can_hold_is_refused(
    document: dict[str, Any], tmp_path: Path, text: str
) -> None:
    document["processes"][0]["argv"][-1] = text
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(document), encoding="utf-8")
    with pytest.raises(ProblemsFound) as caught:
        read_plan(path)
    (problem,) = caught.value.problems
    assert problem.field == f"processes.0.argv.{len(document['processes'][0]['argv']) - 1}"
    assert "half a character" in problem.fix or "unicode" in problem.what


def test_characters_outside_of_the_basic_plane_are_characters(
    document: dict[str, Any], tmp_path: Path
) -> None:
    document["processes"][0]["env"]["NOTE"] = "\U0001f680"
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(document), encoding="utf-8")
    assert read_plan(path).processes[0].env["NOTE"] == "\U0001f680"
