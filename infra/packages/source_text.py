"""What is read out of a package's source text without running it: variables, registered names, keys."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

# Functions that read an environment variable: the name comes first, then the default.
_READERS = re.compile(r"(^|\.)(getenv|environ\.get|get_bool_env_var|get_int_env_var|_?get_env\w*)$")
_NAME = re.compile(r"[A-Z][A-Z0-9_]{2,}\Z")
# Folders of a package that no server imports.
_ASIDE = re.compile(
    r"(^|/)(test|tests|benchmark|benchmarks|multimodal_gen|examples)(/|$)|(^|/)(bench_|test_)\w+\.py$"
)


def modules_of(folder: Path) -> Iterator[tuple[Path, ast.Module]]:
    """Every module of a package that a server may import, parsed, by path."""
    for path in sorted(folder.rglob("*.py")):
        if not _ASIDE.search(path.relative_to(folder).as_posix()):
            yield path, ast.parse(path.read_text(encoding="utf-8-sig"))


def listed_variables(path: Path, table: str) -> list[dict[str, Any]]:
    """The variables of a table `{NAME: reader}` in a module, with the types and defaults written beside it.

    Args:
        path: the module, vLLM's `envs.py`.
        table: the table's name in it.

    Returns:
        Rows by name with `name`, and `type` and `default` as written for type checkers (else the reader's default).
    """
    tree = ast.parse(path.read_text(encoding="utf-8-sig"))
    declared = {
        node.target.id: node
        for node in ast.walk(tree)
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    }
    entries = _table(tree, table)
    rows = []
    for name in sorted(entries):
        row: dict[str, Any] = {"name": name}
        known = declared.get(name)
        if known is not None:
            row["type"] = ast.unparse(known.annotation)
            if known.value is not None:
                row["default"] = ast.unparse(known.value)
        else:
            read = next((d for n, d in _reads(entries[name]) if n == name and d is not None), None)
            if read is not None:
                row["default"] = read
        rows.append(row)
    return rows


def declared_variables(path: Path, holder: str) -> list[dict[str, Any]]:
    """The variables that are attributes of a class: `NAME = EnvBool(False)` in SGLang's `environ.py`."""
    tree = ast.parse(path.read_text(encoding="utf-8-sig"))
    rows = []
    for kind in ast.walk(tree):
        if not isinstance(kind, ast.ClassDef) or kind.name != holder:
            continue
        for node in kind.body:
            target, value = _assigned(node)
            if isinstance(target, ast.Name) and isinstance(value, ast.Call):
                row = {"name": target.id, "type": ast.unparse(value.func)}
                if value.args:
                    row["default"] = ast.unparse(value.args[0])
                rows.append(row)
    return sorted(rows, key=lambda row: row["name"])


def read_variables(folder: Path, prefixes: tuple[str, ...]) -> list[dict[str, Any]]:
    """Every variable with such a name that some module of a package reads, and the default that it is read with."""
    found: dict[str, str | None] = {}
    for _, tree in modules_of(folder):
        for name, default in _reads(tree):
            if name.startswith(prefixes):
                found[name] = found.get(name) or default
    return [
        {"name": name, **({} if found[name] is None else {"default": found[name]})}
        for name in sorted(found)
    ]


def renamed_variables(path: Path, function: str) -> list[dict[str, Any]]:
    """Variables whose value a module copies from an old name to a new one, in either order of the two.

    A call with one name only says that it does nothing any more.
    """
    tree = ast.parse(path.read_text(encoding="utf-8-sig"))
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    renaming = [node for node in calls if _called(node) == function and len(node.args) > 1]
    names = {_text(each) for node in renaming for each in node.args} - {None}
    return [{"name": name} for name in sorted(map(str, names))]


def keys_read(folder: Path, holder: str) -> list[str]:
    """The keys that a package asks a map for: `m.get("key")`, `m["key"]`, `"key" in m`, `f(m, "key")`.

    Args:
        folder: the package.
        holder: the last name of the map, `additional_config`.
    """
    return sorted({key for _, tree in modules_of(folder) for key in _keys(tree, holder)})


def registered(folder: Path, function: str) -> list[str]:
    """The first words of every call of a registering function in a package: `X.register_model("Name", …)`."""
    return sorted(
        {
            name
            for _, tree in modules_of(folder)
            for node in ast.walk(tree)
            if isinstance(node, ast.Call) and _called(node).rpartition(".")[2] == function
            for name in [_text(_argument(node, 0, "name"))]
            if name is not None
        }
    )


def table_keys(path: Path, table: str) -> list[str]:
    """The words that are keys of the tables of one name in a module: `backend_map = {"triton": …}`."""
    tree = ast.parse(path.read_text(encoding="utf-8-sig"))
    return sorted({key for found in _tables(tree, table) for key in found})


def conversation_names(path: Path) -> list[str]:
    """The names of the chat templates that SGLang's `conversation.py` registers."""
    tree = ast.parse(path.read_text(encoding="utf-8-sig"))
    return sorted(
        {
            name
            for node in ast.walk(tree)
            if isinstance(node, ast.Call)
            and _called(node) == "register_conv_template"
            and node.args
            and isinstance(node.args[0], ast.Call)
            for name in [_text(_argument(node.args[0], 0, "name"))]
            if name is not None
        }
    )


def entry_classes(folder: Path) -> list[str]:
    """The architectures that SGLang finds in its models: each module's `EntryClass`, one class or a list of them."""
    found: set[str] = set()
    for _, tree in modules_of(folder):
        for node in ast.walk(tree):
            if isinstance(node, ast.Assign) and any(
                isinstance(target, ast.Name) and target.id == "EntryClass"
                for target in node.targets
            ):
                found.update(each.id for each in ast.walk(node.value) if isinstance(each, ast.Name))
    return sorted(found)


def _assigned(node: ast.AST) -> tuple[ast.expr | None, ast.expr | None]:
    """What a statement assigns to, and what; nothing for any other statement."""
    if isinstance(node, ast.AnnAssign):
        return node.target, node.value
    return (node.targets[0], node.value) if isinstance(node, ast.Assign) else (None, None)


def _table(tree: ast.Module, name: str) -> dict[str, ast.expr]:
    return next(_tables(tree, name), {})


def _tables(tree: ast.Module, name: str) -> Iterator[dict[str, ast.expr]]:
    for node in ast.walk(tree):
        target, value = _assigned(node)
        if isinstance(target, ast.Name) and target.id == name and isinstance(value, ast.Dict):
            yield {
                key.value: each
                for key, each in zip(value.keys, value.values, strict=True)
                if isinstance(key, ast.Constant) and isinstance(key.value, str)
            }


def _reads(tree: ast.AST) -> Iterator[tuple[str, str | None]]:
    """(variable, default as written) of every reading of the environment below a node."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and _READERS.search(_called(node)):
            name = _text(_argument(node, 0, "name"))
            default = _argument(node, 1, "default")
            if name is not None and _NAME.match(name):
                yield name, None if default is None else ast.unparse(default)
        elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load):
            name = _text(node.slice)
            if ast.unparse(node.value).endswith("environ") and name and _NAME.match(name):
                yield name, None


def _keys(tree: ast.AST, holder: str) -> Iterator[str]:
    for node in ast.walk(tree):
        key: ast.expr | None = None
        if isinstance(node, ast.Call):
            if _called(node) in {f"{holder}.get", f"{holder}.pop"} or _called(node).endswith(
                (f".{holder}.get", f".{holder}.pop")
            ):
                key = _argument(node, 0, "key")
            else:
                key = _word_after(node.args, holder)
        elif isinstance(node, ast.Subscript) and _ends_with(node.value, holder):
            key = node.slice
        elif isinstance(node, ast.Compare):
            key = node.left if _ends_with(node.comparators[0], holder) else None
        text = _text(key)
        if text is not None:
            yield text


def _word_after(arguments: list[ast.expr], holder: str) -> ast.expr | None:
    """The first text that a function is given after the map: `value_of(config, additional_config, "key", False)`."""
    place = next(
        (i for i, each in enumerate(arguments) if _ends_with(each, holder)), len(arguments)
    )
    return next((each for each in arguments[place + 1 :] if _text(each) is not None), None)


def _called(node: ast.Call) -> str:
    return ast.unparse(node.func)


def _ends_with(node: ast.expr, name: str) -> bool:
    return (
        isinstance(node, ast.Name | ast.Attribute) and ast.unparse(node).rpartition(".")[2] == name
    )


def _argument(node: ast.Call, index: int, name: str) -> ast.expr | None:
    if len(node.args) > index:
        return node.args[index]
    return next((each.value for each in node.keywords if each.arg == name), None)


def _text(node: ast.expr | None) -> str | None:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None
