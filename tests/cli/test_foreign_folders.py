"""`fab` in a folder of somebody else: no file there, nor in the folders above, is run, imported or read as settings."""

from __future__ import annotations

import ast
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from infra.spec.load import PROJECT
from tests.fab_process import FAB, run_fab

# What Fabric, Invoke, Python and what we import would take from the working folder or from a home.
MODULES = (
    "fabfile.py",
    "fabric.py",
    "invoke.py",
    "tasks.py",
    "fabfile/__init__.py",
    "infra/__init__.py",
    "infra/tasks/__init__.py",
    "yaml.py",
    "pydantic.py",
    "paramiko.py",
    "json.py",
    "sitecustomize.py",
    "usercustomize.py",
    "trap.py",
)
SETTINGS = ("fabric.py", "invoke.py", "tasks.py", ".fabric.py", ".invoke.py")
YAML_SETTINGS = ("fabric.yaml", "invoke.yml", ".fabric.yaml", ".invoke.yaml", ".env")
# A shell and an executor of theirs; both would run when a task or a command does.
HOSTILE_YAML = "run: {{shell: {trap}}}\ntasks: {{executor_class: trap.Executor}}\n"
INVENTORY = "all: {hosts: {unified-0: {ansible_host: 127.0.0.1, ansible_port: 9}}}\n"
WORDS = (
    (),
    ("checc",),
    ("-h",),
    ("--help",),
    ("--help", "check"),
    ("check", "--help"),
    ("--help", "checc"),
    ("--list",),
    ("-l",),
    ("--list", "--list-format", "json"),
    ("--version",),
    ("--debug", "stacks"),
    ("--complete",),
    ("--complete", "--", "fab", "che"),
    ("--complete", "--", 'fab check "half'),
    ("--print-completion-script", "bash"),
    ("--print-completion-script", "nothing"),
    ("import", "x.sh", "--bogus"),
    ("-c", "fabfile", "stacks"),
    ("--collection", "tasks", "--list"),
    ("-r", ".", "stacks"),
    ("--search-root=.", "--list"),
    ("-f", "fabric.py", "stacks"),
    ("-f", "fabric.yaml", "--list"),
    ("stacks",),
    ("check", "--stack", "h200-tp8"),
    ("--", "true"),
    ("-H", "127.0.0.1:9", "--", "true"),
    ("-H", "127.0.0.1:9", "tune-hosts", "--check"),
    ("status", "--stack", "h200-tp8", "--inventory", "hosts.yml"),
)


@dataclass(frozen=True)
class Folder:
    """A folder of traps with such folders above it; whatever runs says so in `ran`."""

    path: Path
    ran: Path
    home: Path

    def environment(self) -> dict[str, str]:
        """Variables that a shell in this folder may have."""
        return {
            **os.environ,
            "HOME": str(self.home),
            "INVOKE_RUNTIME_CONFIG": str(self.path / "fabric.py"),
            "INVOKE_TASKS_EXECUTOR_CLASS": "trap.Executor",
            "FABRIC_TASKS_EXECUTOR_CLASS": "trap.Executor",
        }


@pytest.fixture(scope="module")
def foreign(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    top = tmp_path_factory.mktemp("foreign")
    ran, path, home = top / "RAN", top / "above" / "here", top / "home"
    trap = top / "shell"
    trap.write_text(f"#!/bin/sh\necho shell >> {ran}\n")
    trap.chmod(0o755)
    home.mkdir()
    path.mkdir(parents=True)
    for folder in (path, path.parent, top, home):
        for name in {*MODULES, *SETTINGS}:
            place = folder / name
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(f"open({str(ran)!r}, 'a').write({str(place)!r} + '\\n')\n")
        for name in YAML_SETTINGS:
            (folder / name).write_text(HOSTILE_YAML.format(trap=trap))
    (path / "hosts.yml").write_text(INVENTORY)
    return Folder(path, ran, home)


@pytest.mark.parametrize("words", WORDS, ids=" ".join)
def test_nothing_of_a_foreign_folder_runs(words: tuple[str, ...], foreign: Folder) -> None:
    done = run_fab(*words, folder=foreign.path, environment=foreign.environment())
    assert "Traceback" not in done.stderr
    assert done.returncode in (0, 2, 4)
    assert not foreign.ran.exists(), foreign.ran.read_text()


@pytest.mark.parametrize("words", [("checc",), ("check", "--stack", "h200-tp8")], ids=" ".join)
def test_nothing_of_a_foreign_folder_is_imported_from_the_first_module_on(
    words: tuple[str, ...], foreign: Folder
) -> None:
    """The real file of `fab`, which has imported nothing yet."""
    subprocess.run(
        [FAB, *words],
        cwd=foreign.path,
        env=foreign.environment(),
        capture_output=True,
        check=False,
    )
    assert not foreign.ran.exists(), foreign.ran.read_text()


def test_every_interpreter_that_fab_starts_looks_into_no_folder_that_it_is_in() -> None:
    """Python puts the working folder first where it is given a module or a text to run, but for -P and -I."""
    found = [
        (path.name, ast.unparse(words))
        for path in (PROJECT / "infra").rglob("*.py")
        if "packages" not in path.parts  # no task imports it
        for words in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(words, ast.List | ast.Tuple)
        and words.elts
        and ast.unparse(words.elts[0]) == "sys.executable"
    ]
    assert found
    wrong = [each for each in found if "'-c'" in each[1] or "'-m'" in each[1]]
    assert [each for each in wrong if "'-P'" not in each[1] and "'-I'" not in each[1]] == []
