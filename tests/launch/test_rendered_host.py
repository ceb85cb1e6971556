"""What another tool than `fab` reads from a rendered folder, and how reports become results of its tasks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from infra.catalog.load import Catalog
from infra.errors import StackError
from infra.launch.rendered_host import read_rendered
from infra.launch.result_words import state_result
from infra.plan.compile import compile_file
from infra.render.host_state import host_state
from infra.render.launch_document import launch_document, stack_document
from infra.render.wanted_tuning import Tuning


def rendered(folder: Path, stack: str, catalog: Catalog) -> dict[str, str]:
    """A folder as `fab render` writes it; the plan hosts by name in the inventory."""
    plan = compile_file(stack, catalog=catalog).plan
    tuning = Tuning(profile=catalog.tuning(plan.tuning))
    names = {host.name: f"rack-{host.name}" for host in plan.hosts}
    (folder / "stack.json").write_text(json.dumps(stack_document(plan, names)))
    for host in plan.hosts:
        state = host_state(plan, host.name, tuning=tuning, catalog=catalog)
        (folder / host.name).mkdir()
        documents = {"host-state": state.as_document(), "launch": launch_document(plan, state)}
        for name, document in documents.items():
            (folder / host.name / f"{name}.json").write_text(json.dumps(document))
    return {name: host for host, name in names.items()}


def row(state: str, group: str = "tuning", **more: object) -> dict[str, Any]:
    values = {"before": "60", "wanted": "0", "after": "0", "why": "because", "diff": None}
    return {"id": f"an.{state}", "group": group, "state": state, **values, **more}


def test_a_host_is_found_by_its_name_in_the_inventory(tmp_path: Path, catalog: Catalog) -> None:
    names = rendered(tmp_path, "gb200-2p1d", catalog)
    host = read_rendered(tmp_path, "rack-decode-0")
    assert host is not None
    assert host.name == names["rack-decode-0"] == "decode-0"
    assert read_rendered(tmp_path, "decode-0") is None


def test_a_folder_that_is_not_whole_is_refused_with_the_command(tmp_path: Path) -> None:
    with pytest.raises(StackError, match="fab render"):
        read_rendered(tmp_path, "a")


def test_examples_of_addresses_are_never_brought_to_hosts(tmp_path: Path, catalog: Catalog) -> None:
    plan = compile_file("h200-tp8", catalog=catalog).plan
    (tmp_path / "stack.json").write_text(json.dumps(stack_document(plan, None)))
    with pytest.raises(StackError, match="its addresses are examples"):
        read_rendered(tmp_path, "unified-0")


def test_a_request_holds_the_items_of_its_groups_and_a_rollback_none(
    tmp_path: Path, catalog: Catalog
) -> None:
    rendered(tmp_path, "a3-2p1d", catalog)
    host = read_rendered(tmp_path, "rack-prefill-0")
    assert host is not None
    items = host.items(["files", "images"], only_needed=False)
    assert {item["group"] for item in items} == {"files", "images"}
    request = host.state_request("apply", ["files", "images"], items, {"api_key": "s"})
    assert (request["items"], request["secrets"]) == (items, {"api_key": "s"})
    assert host.state_request("rollback", ["tuning"], items, {})["items"] == []


def test_weights_and_ports_at_risk_are_needed_before_anything_is_installed(
    tmp_path: Path, catalog: Catalog
) -> None:
    rendered(tmp_path, "a3-2p1d", catalog)
    host = read_rendered(tmp_path, "rack-prefill-0")
    assert host is not None
    groups = ["tuning", "files", "images", "weights"]
    needed = {item["group"] for item in host.items(groups, only_needed=True)}
    assert needed <= {"weights", "tuning"}
    assert "weights" in needed


@pytest.mark.parametrize(
    ("rows", "changed", "failed"),
    [
        ([], False, False),
        ([row("ok"), row("not_applicable")], False, False),
        ([row("ok"), row("changed")], True, False),
        ([row("blocked")], False, False),
        ([row("blocked", "files")], False, True),
        ([row("changed"), row("failed")], False, True),
    ],
    ids=["nothing", "so already", "changed", "a knob refuses", "a file refuses", "failed"],
)
def test_how_items_end_is_how_a_task_ends(
    rows: list[dict[str, Any]], *, changed: bool, failed: bool
) -> None:
    result = state_result(rows, checks=False, strict=False)
    assert (result["changed"], result.get("failed", False)) == (changed, failed)


def test_a_blocked_item_is_a_warning_with_its_reason() -> None:
    result = state_result([row("blocked", after="60")], checks=False, strict=False)
    assert result["warnings"] == ["an.blocked blocked: 60 → 60 (because)"]


def test_strict_refuses_what_would_change_and_changes_nothing() -> None:
    result = state_result([row("changed", "files")], checks=True, strict=True)
    assert (result["failed"], result["changed"]) == (True, False)
    assert result["msg"] == "an.changed: because"


def test_a_check_tells_what_would_change_and_a_diff_is_passed_on() -> None:
    result = state_result([row("changed", after="60", diff="- a\n+ b")], checks=True, strict=False)
    assert result["summary"] == [
        "an.changed would change: 60 → 0",
        "0 ok, 1 would change, 0 not applicable, 0 blocked, 0 failed",
    ]
    assert result["diff"] == [{"prepared": "- a\n+ b\n"}]
