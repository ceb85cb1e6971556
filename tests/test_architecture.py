"""The rooms and the arrows of docs/architecture.md, read out of the code."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import get_args

import pytest

from infra.catalog.schema import Generation
from infra.engines.registry import ENGINES
from infra.spec.load import PROJECT

INFRA = PROJECT / "infra"
AGENT_MODULES = sorted((INFRA / "agent").rglob("*.py"))
# From the lowest up: a room imports those before it.
CORE = ("spec", "catalog", "inventory", "engines", "plan", "memory", "checks", "render")
ROOMS = (*CORE, "packages", "agent", "remote", "launch", "provision", "rehearsal", "tasks")
CORE_PACKAGES = {"pydantic", "pydantic_core", "yaml"}
OF_PYDANTIC_AND_YAML = {
    "typing_extensions",
    "annotated_types",
    "typing_inspection",
    "cython_runtime",
}
# The core computes: no network, no clock, no chance, no processes, no environment, no working directory.
IMPURE_MODULES = {
    "subprocess", "socket", "os", "time", "random", "secrets", "uuid", "tempfile", "asyncio", "threading",
    "multiprocessing", "http", "urllib.request", "ssl", "select", "signal", "getpass", "shutil", "platform",
}  # fmt: skip
IMPURE_CALLS = {
    "now",
    "today",
    "utcnow",
    "environ",
    "getenv",
    "getcwd",
    "cwd",
    "home",
    "expanduser",
}
# Who may import an outside package: rooms, or single modules.
OWNERS = {
    "pulumi": ("infra.provision", "infra.rehearsal.cloud"),
    "pulumi_aws": ("infra.provision",),
    "pulumi_kubernetes": ("infra.provision",),
    "fabric": ("infra.remote", "infra.tasks.fabric_program", "infra.tasks.command_line"),
    "paramiko": ("infra.remote", "infra.tasks.fabric_program"),
    "invoke": ("infra.remote", "infra.tasks.program"),
}
FORBIDDEN_NAMES = {"utils", "util", "helpers", "common", "misc", "manager", "base", "lib", "tools"}
# Names of the standard library and of dependencies: a program started inside the folder would import ours.
TAKEN_NAMES = set(sys.stdlib_module_names) | {
    "fabric",
    "invoke",
    "paramiko",
    "pulumi",
    "pydantic",
    "yaml",
    "kubernetes",
}
MAX_MODULE_LINES, MAX_FUNCTION_LINES = 400, 60


@dataclass(frozen=True)
class Import:
    """One import statement: who, what, and whether it stands inside a function."""

    importer: str
    imported: str
    line: int
    in_function: bool

    def __str__(self) -> str:
        return f"{self.importer}:{self.line} imports {self.imported}"


@cache
def modules() -> dict[str, Path]:
    """Every module of the project, by dotted name."""
    found = {}
    for path in sorted(INFRA.rglob("*.py")):
        parts = path.relative_to(PROJECT).with_suffix("").parts
        found[".".join(part for part in parts if part != "__init__")] = path
    return found


@dataclass(frozen=True)
class Contents:
    """What the tests ask of a module's text: kept, where whole trees of all modules would fill a gigabyte.

    Args:
        functions: (name, lines).
    """

    imports: tuple[Import, ...]
    functions: tuple[tuple[str, int], ...]
    num_lines: int
    docstring: str | None


@cache
def contents(name: str) -> Contents:
    """A module, read once."""
    path = modules()[name]
    text = path.read_text(encoding="utf-8")
    tree = ast.parse(text)
    statements = tuple(_statements(tree, in_function=False))
    functions = [
        (node.name, (node.end_lineno or node.lineno) - node.lineno + 1)
        for node, _ in statements
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    return Contents(
        imports=tuple(_imports_of(name, path, statements)),
        functions=tuple(functions),
        num_lines=len(text.splitlines()),
        docstring=ast.get_docstring(tree),
    )


@cache
def imports() -> tuple[Import, ...]:
    return tuple(each for name in modules() for each in contents(name).imports)


def _imports_of(
    name: str, path: Path, statements: tuple[tuple[ast.stmt, bool], ...]
) -> Iterator[Import]:
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    for node, in_function in statements:
        if isinstance(node, ast.Import):
            targets = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            above = (
                package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            )
            base = ".".join([*above, *([node.module] if node.module else [])])
            # `from infra.engines import vllm_reading` imports a module, not a name
            targets = [
                f"{base}.{a.name}" if f"{base}.{a.name}" in modules() else base for a in node.names
            ]
        else:
            continue
        for target in dict.fromkeys(targets):
            yield Import(name, target, node.lineno, in_function)


def _statements(above: ast.AST, *, in_function: bool) -> Iterator[tuple[ast.stmt, bool]]:
    """Every statement below a node, and whether it stands inside a function; expressions hold none."""
    inside = in_function or isinstance(above, ast.FunctionDef | ast.AsyncFunctionDef)
    for node in ast.iter_child_nodes(above):
        if isinstance(node, ast.stmt):
            yield node, inside
        if isinstance(node, ast.stmt | ast.excepthandler | ast.match_case):
            yield from _statements(node, in_function=inside)


def nodes(name: str) -> Iterator[ast.AST]:
    """All that a module holds, expressions too."""
    return ast.walk(ast.parse(modules()[name].read_text(encoding="utf-8")))


def room(name: str) -> str:
    """`infra.plan.ports` → `plan`; `infra.errors` → `errors`; "" for what is not ours."""
    parts = name.split(".")
    return parts[1] if parts[0] == "infra" and len(parts) > 1 else ""


def between(importer: str, imported: str) -> list[str]:
    return [
        str(i) for i in imports() if room(i.importer) == importer and room(i.imported) == imported
    ]


def test_the_rooms_are_those_of_the_document() -> None:
    folders = {
        path.name for path in INFRA.iterdir() if path.is_dir() and path.name != "__pycache__"
    }
    assert folders == set(ROOMS)
    text = (PROJECT / "docs" / "architecture.md").read_text(encoding="utf-8")
    assert [name for name in ROOMS if f"| `{name}` |" not in text] == []


def test_inside_the_core_imports_point_one_way() -> None:
    backwards = [
        str(each)
        for each in imports()
        if room(each.importer) in CORE
        and room(each.imported) in CORE
        and CORE.index(room(each.imported)) > CORE.index(room(each.importer))
    ]
    assert backwards == []


def test_the_core_imports_the_standard_library_pydantic_and_yaml() -> None:
    foreign = [
        str(each)
        for each in imports()
        if room(each.importer) in CORE
        and room(each.imported) not in {*CORE, "errors"}
        and each.imported.split(".")[0] not in CORE_PACKAGES | set(sys.stdlib_module_names)
    ]
    assert foreign == []


def test_the_core_computes_and_does_not_act() -> None:
    acting = [
        str(each)
        for each in imports()
        if room(each.importer) in CORE
        and (each.imported in IMPURE_MODULES or each.imported.split(".")[0] in IMPURE_MODULES)
    ]
    assert acting == []


def test_the_core_reads_no_clock_no_environment_and_no_working_directory() -> None:
    found = [
        f"{name}:{node.lineno} {node.attr}"
        for name in modules()
        if room(name) in CORE
        for node in nodes(name)
        if isinstance(node, ast.Attribute) and node.attr in IMPURE_CALLS
    ]
    assert found == []


def test_errors_import_nothing_of_ours() -> None:
    assert [str(i) for i in imports() if i.importer == "infra.errors" and room(i.imported)] == []


def test_engines_do_not_import_each_other() -> None:
    families = {name.replace("-", "_") for name in ENGINES}

    def family(name: str) -> str:
        last = name.rpartition(".")[2]
        fitting = [each for each in families if last == each or last.startswith(f"{each}_")]
        return max(fitting, key=len, default="") if name.startswith("infra.engines.") else ""

    crossing = {
        (family(i.importer), family(i.imported))
        for i in imports()
        if family(i.importer) and family(i.imported) and family(i.importer) != family(i.imported)
    }
    assert crossing == {("vllm_ascend", "vllm")}


def test_the_agent_imports_nothing_of_ours_and_nothing_foreign() -> None:
    foreign = [
        str(each)
        for each in imports()
        if room(each.importer) == "agent"
        and room(each.imported) != "agent"
        and each.imported.split(".")[0] not in sys.stdlib_module_names
    ]
    # it is carried as source: its own modules are imported as it finds them beside itself
    own = {path.stem for path in AGENT_MODULES} | {path.parent.name for path in AGENT_MODULES}
    assert [line for line in foreign if line.rpartition(" ")[2].split(".")[0] not in own] == []


@pytest.mark.parametrize(
    "path", AGENT_MODULES, ids=lambda path: str(path.relative_to(INFRA / "agent"))
)
def test_the_agent_is_written_in_the_grammar_of_python_3_6(path: Path) -> None:
    ast.parse(path.read_text(encoding="utf-8"), feature_version=(3, 6))


@pytest.mark.parametrize(
    ("importer", "imported"),
    [
        ("provision", "remote"),
        ("provision", "launch"),
        ("remote", "provision"),
        ("launch", "provision"),
        ("remote", "launch"),
        *[(name, "rehearsal") for name in ROOMS if name not in {"rehearsal", "tasks"}],
        *[(name, "tasks") for name in ROOMS if name != "tasks"],
        *[(name, outer) for name in CORE for outer in ("remote", "launch", "provision", "agent")],
    ],
)
def test_no_arrow_leads(importer: str, imported: str) -> None:
    assert between(importer, imported) == []


@pytest.mark.parametrize("package", OWNERS)
def test_an_outside_package_has_its_owner(package: str) -> None:
    strangers = [
        str(each)
        for each in imports()
        if each.imported.split(".")[0] == package
        and not any(
            each.importer == owner or each.importer.startswith(f"{owner}.")
            for owner in OWNERS[package]
        )
    ]
    assert strangers == []


def test_nothing_imports_the_entry_point() -> None:
    assert [str(i) for i in imports() if i.imported == "infra.__main__"] == []
    assert len((INFRA / "__main__.py").read_text(encoding="utf-8").splitlines()) <= 30


def test_no_import_hides_in_a_function_of_the_core() -> None:
    assert [
        str(i) for i in imports() if i.in_function and room(i.importer) in {*CORE, "errors"}
    ] == []


def test_modules_are_named_after_their_subject() -> None:
    stems = {name: path.stem for name, path in modules().items()}
    assert [name for name, stem in stems.items() if stem in FORBIDDEN_NAMES] == []


def test_no_module_of_the_core_is_named_after_the_standard_library_or_a_dependency() -> None:
    taken = [
        name
        for name, path in modules().items()
        if room(name) in CORE and path.stem in TAKEN_NAMES - {"__init__", "__main__"}
    ]
    assert taken == []


def test_modules_and_functions_are_short() -> None:
    long = [
        f"{name}: {contents(name).num_lines} lines"
        for name in modules()
        if contents(name).num_lines > MAX_MODULE_LINES
    ]
    long += [
        f"{name}.{function}: {length} lines"
        for name in modules()
        for function, length in contents(name).functions
        if length > MAX_FUNCTION_LINES
    ]
    assert long == []


def test_every_module_says_its_job() -> None:
    silent = [
        name
        for name, path in modules().items()
        if path.stat().st_size and not contents(name).docstring
    ]
    assert silent == []


def test_what_the_core_loads_when_it_is_imported() -> None:
    names = [name for name in modules() if room(name) in CORE]
    program = (  # what the interpreter loads by itself is not ours: Debian's has a sitecustomize
        f"import sys\nbare = set(sys.modules)\nfor name in {names!r}: __import__(name)\n"
        "print(*sorted(set(sys.modules) - bare))"
    )
    run = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True, cwd=PROJECT
    )
    loaded = set(run.stdout.split())
    allowed = {"infra", *CORE_PACKAGES, *OF_PYDANTIC_AND_YAML}
    top = {name.split(".")[0] for name in loaded}
    foreign = {
        name
        for name in top
        if name not in allowed | set(sys.stdlib_module_names) and not name.startswith("_")
    }
    assert foreign == set()
    assert {name for name in loaded if room(name)} <= {
        name for name in modules() if room(name) in {*CORE, "errors"}
    }


@pytest.mark.parametrize(
    ("question", "pattern"),
    [
        ("where is an accelerator added", "infra/catalog/accelerators/*.yaml"),
        ("where is a checkpoint added", "infra/catalog/checkpoints/*.yaml"),
        ("where is a port chosen", "infra/plan/ports.py"),
        ("where is a sysctl set", "infra/catalog/tuning/*.yaml"),
        ("what happens on fab up", "infra/tasks/up.py"),
        *[
            (f"where is a flag of {name} spelt", f"infra/engines/{name.replace('-', '_')}.py")
            for name in sorted(ENGINES)
        ],
    ],
)
def test_a_newcomers_question_is_answered_by_names(question: str, pattern: str) -> None:
    assert list(PROJECT.glob(pattern)), question


def test_the_documents_table_names_files_that_exist() -> None:
    text = (PROJECT / "docs" / "architecture.md").read_text(encoding="utf-8")
    section = text.partition("## Where a change goes")[2].partition("\n## ")[0]
    named = [word for word in section.replace("|", " ").split() if word.startswith("`infra/")]
    assert len(named) >= 5
    for word in named:
        pattern = (
            word.strip("`").replace("<id>", "*").replace("<engine>", "*").replace("<profile>", "*")
        )
        assert list(PROJECT.glob(pattern)), word


def test_a_sysctl_is_data_and_no_python() -> None:
    holders = [
        name
        for name, path in modules().items()
        if room(name) not in {"rehearsal", "agent"}
        and "swappiness" in path.read_text(encoding="utf-8")
        and any(isinstance(n, ast.Constant) and n.value == "vm.swappiness" for n in nodes(name))
    ]
    assert holders == []


def test_an_accelerator_is_data_and_no_python() -> None:
    """Names of generations are words of the catalogue's own; the testbed's cluster has nodes of two chosen chips."""
    chips = {path.stem for path in (INFRA / "catalog" / "accelerators").glob("*.yaml")}
    chips -= set(get_args(Generation))
    assert len(chips) > 5
    found = [
        f"{name} names {chip}"
        for name, path in modules().items()
        if name != "infra.rehearsal.cluster.room"
        for chip in chips
        if f'"{chip}"' in path.read_text(encoding="utf-8")
    ]
    assert found == []


def test_what_int_reads_is_asked_for_by_isdecimal() -> None:
    """`str.isdigit` says yes to `²`, and `int` then raises: an operator's word would end in a traceback."""
    found = [
        str(path.relative_to(PROJECT))
        for name, path in modules().items()
        if not name.startswith("infra.rehearsal.") and ".isdigit(" in path.read_text("utf-8")
    ]
    assert found == []
