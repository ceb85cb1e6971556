"""The agent runs on Python 3.6: its grammar, its library, nothing of ours; and on every Python here."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

from infra.agent.bundle import program
from infra.agent.condensing import sources_in

AGENT = Path(__file__).parents[2] / "infra" / "agent"
MODULES = sorted(AGENT.rglob("*.py"))
# module or attribute, and the version that brought it
NEWER = {
    "dataclasses": "3.7",
    "contextvars": "3.7",
    "importlib.resources": "3.7",
    "importlib.metadata": "3.8",
    "zoneinfo": "3.9",
    "graphlib": "3.9",
    "tomllib": "3.11",
    "contextlib.nullcontext": "3.7",
    "contextlib.chdir": "3.11",
    "datetime.fromisoformat": "3.7",
    "date.fromisoformat": "3.7",
    "time.time_ns": "3.7",
    "time.monotonic_ns": "3.7",
    "asyncio.run": "3.7",
    "os.register_at_fork": "3.7",
    "os.pidfd_open": "3.9",
    "os.preadv": "3.7",
    "os.pwritev": "3.7",
    "shlex.join": "3.8",
    "math.prod": "3.8",
    "functools.cache": "3.9",
    "functools.cached_property": "3.8",
    "socket.create_server": "3.8",
    "socket.recv_fds": "3.9",
    "signal.raise_signal": "3.8",
    "signal.pidfd_send_signal": "3.9",
    "threading.excepthook": "3.8",
    "typing.Protocol": "3.8",
    "typing.Literal": "3.8",
    "typing.Final": "3.8",
    "typing.TypedDict": "3.8",
    "typing.ForwardRef": "3.7",
    "typing.OrderedDict": "3.7",
}
NEWER_METHODS = {"removeprefix", "removesuffix", "isascii", "is_relative_to"}
NEWER_ARGUMENTS = {
    "run": {"capture_output", "text"},
    "Popen": {"text", "pipesize", "process_group", "umask"},
    "ThreadPoolExecutor": {"cancel_futures"},
    "unlink": {"missing_ok"},
}
GENERICS = {"list", "dict", "set", "tuple", "frozenset", "type"}


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.stem)
def test_a_module_is_python_3_6(path: Path) -> None:
    tree = ast.parse(path.read_text(), str(path), feature_version=(3, 6))
    assert newer_things(tree) == []


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.stem)
def test_a_module_imports_the_standard_library_alone(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            names = [node.module or ""]
        else:
            continue
        for name in names:
            assert name.split(".")[0] in sys.stdlib_module_names, name


@pytest.mark.parametrize(
    "text",
    [
        "from __future__ import annotations",
        "import dataclasses",
        "from typing import Protocol",
        "import time\ntime.time_ns()",
        "x: list[int] = []",
        "'a'.removeprefix('b')",
        "subprocess.run([], capture_output=True)",
    ],
)
def test_the_scan_sees_what_is_newer(text: str) -> None:
    assert newer_things(ast.parse(text))


def test_the_grammar_refuses_what_is_newer() -> None:
    with pytest.raises(SyntaxError):
        ast.parse("if (x := 1): pass", feature_version=(3, 6))


def pythons() -> list[str]:
    """Every other Python 3 of this machine."""
    found = [*Path("/usr/bin").glob("python3.?"), *Path("/usr/bin").glob("python3.??")]
    found += Path("~/.pyenv/versions").expanduser().glob("3.*/bin/python3")
    return sorted({str(path.resolve()) for path in found})


@pytest.mark.parametrize("python", pythons())
def test_the_agent_answers_on_every_python_here(python: str, tmp_path: Path) -> None:
    (tmp_path / "agent.py").write_text(program(sources_in(str(AGENT))))
    knob = tmp_path / "proc/sys/vm/swappiness"
    knob.parent.mkdir(parents=True)
    knob.write_text("60\n")
    items = [{"id": "vm.swappiness", "kind": "sysctl", "want": "0"}]
    (tmp_path / "proc/net").mkdir()
    # in one start: most of one goes into compiling all modules
    along = (
        {"operation": "listening", "ports": [1]},
        {"operation": "probe", "probes": []},
        {"operation": "read", "paths": []},
        {"operation": "units", "action": "status", "units": []},
    )
    request = {"operation": "state", "mode": "apply", "stack": "s", "items": items, "also": along}
    done = subprocess.run(
        [python, "-I", "-S", str(tmp_path / "agent.py")],
        input=json.dumps({"schema_version": 1, **request}).encode(),
        env={"MOE_INFRA_ROOT": str(tmp_path), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        check=True,
    )
    report = json.loads(done.stdout)
    assert len(report["also"]) == len(along)
    for answered in (report, *report["also"]):
        assert "error" not in answered, done.stdout
    assert knob.read_text() == "0\n"


def newer_things(tree: ast.AST) -> list[str]:
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names if alias.name in NEWER]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            found += [name for name in (node.module, *names) if name in NEWER]
            found += ["annotations"] if "__future__.annotations" in names else []
        elif isinstance(node, ast.Attribute):
            value = node.value.id if isinstance(node.value, ast.Name) else ""
            name = f"{value}.{node.attr}"
            found += [name] if name in NEWER or node.attr in NEWER_METHODS else []
        elif isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name):
            found += [node.value.id] if node.value.id in GENERICS else []
        elif isinstance(node, ast.Call):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else ""
            given = {keyword.arg or "" for keyword in node.keywords}
            found += sorted(given & NEWER_ARGUMENTS.get(called, set()))
    return found
