"""The real `fab` on plan documents that somebody has edited: judged or refused, never rendered against themselves."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.fab_process import run_fab


@pytest.fixture(scope="module")
def planned() -> str:
    return run_fab("plan", "--stack", "h200-tp8", "--json").stdout


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("binds", [{"name": "http", "port": 9999, "count": 1}]),
        ("binds", [{"name": "HTTP", "port": 8000, "count": 1}]),
        ("endpoint", "http://192.0.2.9:1"),
        ("devices", [0]),
        ("id", "unified-0"),
    ],
)
def test_what_contradicts_its_command_line_is_not_rendered(
    planned: str, field: str, value: object, tmp_path: Path
) -> None:
    document: dict[str, Any] = json.loads(planned)
    document["processes"][0][field] = value
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(document))
    done = run_fab("render", "--plan", str(path), "--to", str(tmp_path / "out"), "--json")
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    (error,) = json.loads(done.stdout)["errors"]
    assert error["where"].startswith(str(path))
    assert not (tmp_path / "out").exists()
    checked = run_fab("check", "--plan", str(path), "--json")
    assert (checked.returncode, len(json.loads(checked.stdout)["problems"])) == (2, 1)
