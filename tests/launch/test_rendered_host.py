"""What another tool than `fab` reads from a rendered folder, and how reports become results of its tasks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from infra.catalog.load import Catalog
from infra.errors import HostsFailed, StackError
from infra.launch.rendered.host import RenderedHost, read_rendered
from infra.launch.rendered.words import state_result
from infra.plan.compile import compile_file
from infra.plan.document import plan_hash
from infra.render.host_state import host_state
from infra.render.stack_document import stack_document
from infra.render.wanted_tuning import Tuning


def render(folder: Path, stack: str, catalog: Catalog, *, is_example: bool = False) -> None:
    """A folder as `fab render` writes it; the inventory calls `decode-0` `rack-decode-0`."""
    plan = compile_file(stack, catalog=catalog).plan
    tuning = Tuning(profile=catalog.tuning(plan.tuning))
    names = None if is_example else {host.name: f"rack-{host.name}" for host in plan.hosts}
    (folder / "stack.json").write_text(json.dumps(stack_document(plan, (), names)))
    for host in plan.hosts:
        state = host_state(plan, host.name, tuning=tuning, catalog=catalog)
        (folder / host.name).mkdir()
        text = json.dumps(state.as_document())
        (folder / host.name / "host-state.json").write_text(text)


def read(folder: Path, inventory_name: str) -> RenderedHost:
    host = read_rendered(folder, inventory_name)
    assert host is not None
    return host


def row(state: str, group: str = "tuning", **more: object) -> dict[str, Any]:
    values = {"before": "60", "wanted": "0", "after": "0", "why": "because", "diff": None}
    return {"id": f"an.{state}", "group": group, "state": state, **values, **more}


def test_a_host_is_found_by_its_name_in_the_inventory(tmp_path: Path, catalog: Catalog) -> None:
    render(tmp_path, "gb200-2p1d", catalog)
    assert read(tmp_path, "rack-decode-0").state.host == "decode-0"
    assert read_rendered(tmp_path, "decode-0") is None


def test_plan_and_state_are_read_back_as_they_were(tmp_path: Path, catalog: Catalog) -> None:
    render(tmp_path, "a3-2p1d", catalog)
    host = read(tmp_path, "rack-prefill-0")
    plan = compile_file("a3-2p1d", catalog=catalog).plan
    assert host.plan.hash == plan_hash(host.plan) == plan.hash
    tuning = Tuning(profile=catalog.tuning(plan.tuning))
    state = host_state(plan, "prefill-0", tuning=tuning, catalog=catalog)
    assert host.state.as_document() == state.as_document()


def test_a_plan_that_was_edited_is_refused(tmp_path: Path, catalog: Catalog) -> None:
    render(tmp_path, "h200-tp8", catalog)
    path = tmp_path / "stack.json"
    path.write_text(path.read_text().replace('"--tensor-parallel-size", "8"', '"-tp", "8"'))
    with pytest.raises(HostsFailed, match="not the one of hash"):
        read_rendered(tmp_path, "rack-unified-0")


def test_a_folder_that_is_not_whole_is_refused_with_the_command(tmp_path: Path) -> None:
    with pytest.raises(StackError, match="fab render"):
        read_rendered(tmp_path, "a")


def test_examples_of_addresses_are_never_brought_to_hosts(tmp_path: Path, catalog: Catalog) -> None:
    render(tmp_path, "h200-tp8", catalog, is_example=True)
    with pytest.raises(StackError, match="its addresses are examples"):
        read_rendered(tmp_path, "unified-0")


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
    result = state_result(rows, checks=False)
    assert (result["changed"], result.get("failed", False)) == (changed, failed)


def test_a_blocked_item_is_a_warning_with_its_reason() -> None:
    result = state_result([row("blocked", after="60")], checks=False)
    assert result["warnings"] == ["an.blocked blocked: 60 → 60 (because)"]


def test_a_check_tells_what_would_change_and_a_diff_is_passed_on() -> None:
    result = state_result([row("changed", after="60", diff="- a\n+ b")], checks=True)
    assert result["summary"] == [
        "an.changed would change: 60 → 0",
        "0 ok, 1 would change, 0 not applicable, 0 blocked, 0 failed",
    ]
    assert result["diff"] == [{"prepared": "- a\n+ b\n"}]
