"""The agent as one program, and the watcher as another: each runs with the modules that it carries."""

from __future__ import annotations

import ast
import importlib
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from infra.agent.bundle import QUOTES, needed, program, watcher_program
from infra.agent.condensing import condensed, sources_in, texts_in
from infra.agent.conversation import OPERATIONS, STREAMS
from infra.agent.files import read_file
from infra.agent.group.record import HANDED_OVER
from infra.agent.host import Refused
from infra.agent.item import parse_item
from infra.agent.kinds.table import KINDS, bring
from infra.agent.state.parts import parts_of
from tests.agent.stubborn_host import StubbornHost

AGENT = Path(__file__).parents[2] / "infra" / "agent"
LIMITS = "first_pause_s longest_pause_s max_restarts stable_s lost_s fresh_s start_s grace_s"
CONFIG: dict[str, object] = {
    "stack": "s",
    "release": "r",
    "host": "h",
    "runtime": "docker",
    "router": None,
    "groups": [],
    "limits": dict.fromkeys(LIMITS.split(), 1.0),
    "patience": {"first_s": 1.0, "silent_s": 1.0, "stuck_s": 1.0, "idle_s": 1.0},
    "counters": {"open": ["r"], "growing": ["g"]},
    "key": "",
    "addresses": {},
}


def test_the_watcher_carries_every_module_that_it_imports(tmp_path: Path) -> None:
    stored, config = tmp_path / "program", tmp_path / "groups.json"
    stored.write_text(watcher_program())
    stored.chmod(0o755)
    config.write_text(json.dumps(CONFIG))
    enabled = tmp_path / HANDED_OVER.format(CONFIG["stack"]).lstrip("/")
    enabled.parent.mkdir(parents=True)
    enabled.symlink_to("/nowhere")
    watcher = subprocess.Popen(
        [str(stored), str(config)],
        stderr=subprocess.PIPE,
        env={"PATH": "/nowhere", "MOE_INFRA_ROOT": str(tmp_path)},
        text=True,
    )
    try:
        watcher.wait(timeout=0.7)
    except subprocess.TimeoutExpired:
        watcher.kill()
    _, said = watcher.communicate()
    assert said == ""  # it was still watching


@pytest.mark.parametrize("operation", [*OPERATIONS, *STREAMS])
def test_an_operation_runs_with_what_it_needs_alone(operation: str, tmp_path: Path) -> None:
    """Every import is found among the modules that are carried for it, those of later moments too."""
    module = {**OPERATIONS, **STREAMS}[operation].lstrip(".")
    carried = needed(sources_in(str(AGENT)), ["conversation", module])
    assert set(needed(texts_in(str(AGENT)), ["conversation", module])) == set(carried)
    names = sorted(set(carried) - {"__init__"})
    loads = "".join(f"import moe_agent.{name}\n" for name in names)
    text = program(carried).rpartition("sys.exit(main(sys.argv[1:]))")[0] + loads
    (tmp_path / "agent.py").write_text(text)
    command = [sys.executable, "-I", "-S", str(tmp_path / "agent.py")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stderr == ""


@pytest.mark.parametrize(
    "path", sorted(AGENT.rglob("*.py")), ids=lambda path: str(path.relative_to(AGENT))
)
def test_what_is_carried_of_a_module_is_its_statements_on_their_lines(path: Path) -> None:
    text = path.read_text()
    carried = condensed(text)
    wanted = ast.parse(text)
    for node in ast.walk(wanted):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(
            node
        ):
            node.body[0] = ast.Pass()
        if isinstance(node, ast.FunctionDef):
            node.returns = None
    assert ast.dump(ast.parse(carried)) == ast.dump(wanted)
    assert carried.count("\n") == text.count("\n")
    assert re.search(r"^\s*# ", carried, re.MULTILINE) is None
    assert QUOTES not in carried
    assert condensed(carried) == carried


@pytest.mark.parametrize("name", KINDS)
def test_a_kind_names_functions_of_modules_that_are_there(name: str) -> None:
    for function in (KINDS[name].reader, KINDS[name].writer):
        module, _, called = function.partition(":")
        assert callable(getattr(importlib.import_module(f"infra.agent.{module}"), called))


def test_a_request_for_which_modules_are_missing_names_all_of_them(tmp_path: Path) -> None:
    carried = needed(sources_in(str(AGENT)), ["conversation", "state.operation"])
    (tmp_path / "agent.py").write_text(program(carried))
    items = [{"id": kind, "kind": kind, "want": "1"} for kind in ("mtu", "sysctl", "pcie-acs")]
    request = {"schema_version": 1, "operation": "state", "mode": "apply", "stack": "s"}
    done = subprocess.run(
        [sys.executable, "-I", "-S", str(tmp_path / "agent.py")],
        input=json.dumps({**request, "items": items}),
        env={"MOE_INFRA_ROOT": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    report = json.loads(done.stdout)
    assert report["lacks"] == ["kinds.links", "kinds.pcie_acs"]
    assert "error" in report


def test_what_a_host_has_recorded_can_be_told_at_once() -> None:
    asked: dict[str, object] = {"mode": "check", "stack": "s", "items": [{"kind": "sysctl"}]}
    assert "kinds.pcie_acs" not in parts_of(asked)
    assert "kinds.pcie_acs" in parts_of({**asked, "recorded_kinds": ["pcie-acs"]})


def test_a_python_without_all_of_its_library_is_named_and_not_taken_for_a_small_agent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delitem(sys.modules, "infra.agent.kinds.pcie_acs", raising=False)
    monkeypatch.setitem(sys.modules, "struct", None)
    with pytest.raises(Refused, match=r"has no module struct: install the whole"):
        bring(["pcie-acs"])


def test_the_stored_program_depends_on_the_watchers_modules_alone() -> None:
    assert watcher_program() == watcher_program()
    assert "def read_sysctl(" in program(sources_in(str(AGENT)))
    assert "def read_sysctl(" not in watcher_program()


def test_a_file_item_may_name_the_watcher_as_its_content(tmp_path: Path) -> None:
    host = StubbornHost(tmp_path)
    item = parse_item(
        {"id": "file:/watch", "kind": "file", "target": "/watch", "program": "watcher"}
    )
    assert read_file(host, item).wanted is not None
    (tmp_path / "watch").write_text(watcher_program())
    (tmp_path / "watch").chmod(0o644)
    assert read_file(host, item).differing() == []
