"""The attention back ends that a released vLLM registers: what each computes and takes, on which devices it runs.

Their modules need compiled kernels, so nothing is imported: the registry, the classes and their short methods are read
out of the source, and a method that asks for a compute capability is run by itself.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

REGISTRY = "vllm/v1/attention/backends/registry.py"
ENUMERATION = "AttentionBackendEnum"
PREFILL_REGISTRY = "vllm/v1/attention/backends/mla/prefill/registry.py"
PREFILL_ENUMERATION = "MLAPrefillBackendEnum"
# Those of the platforms that vLLM has a file for, and of which the catalogue has accelerators.
PLATFORMS = ("cpu", "cuda", "rocm", "xpu")
# Ampere, Ada, Hopper, three of Blackwell.
CAPABILITIES = ((8, 0), (8, 9), (9, 0), (10, 0), (10, 3), (12, 0))
# Where the class stands that all back ends come from.
BASE = "vllm.v1.attention.backend"
# What a method that decides by itself is asked for.
BLOCK_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
# What ROCm says of CDNA3 and CDNA4.
ROCM_CAPABILITIES = ((9, 4), (9, 5))


class DeviceCapability(NamedTuple):
    """vLLM's class of this name as far as such methods use it."""

    major: int
    minor: int

    def to_int(self) -> int:
        """103 for 10.3."""
        return self.major * 10 + self.minor


def attention_backends(folder: Path) -> dict[str, dict[str, Any]]:
    """The members of vLLM's enumeration, by name.

    Args:
        folder: where the package is unpacked.

    Returns:
        name → `class` (its path, null for one that a plugin brings, "" for a mere tag), `platforms` whose own code
        names it, and of those with a class `is_mla`, `is_sparse` where it is, `capabilities` where it takes some of
        `CAPABILITIES` alone, `block_sizes` of its kernels, one of which divides a block, `kv_cache_dtypes`, and of
        `impl`, the class that computes, `returns_lse` where it gives a log-sum-exp for decode. What a method does not
        tell by itself is left out.
    """
    platforms = {
        name: (folder / "vllm" / "platforms" / f"{name}.py").read_text(encoding="utf-8")
        for name in PLATFORMS
    }
    found: dict[str, dict[str, Any]] = {}
    for name, path in sorted(_members(folder / REGISTRY, ENUMERATION)):
        row: dict[str, Any] = {"class": path}
        row["platforms"] = [
            each for each, text in platforms.items() if _names(text, f"{ENUMERATION}.{name}")
        ]
        if path:
            row |= _of_class(folder, path)
        found[name] = row
    return found


def mla_prefill_backends(folder: Path) -> dict[str, dict[str, Any]]:
    """The back ends that multi-head latent attention prefills with, by name; {} where vLLM has no choice of them yet.

    Args:
        folder: where the package is unpacked.

    Returns:
        name → `class`, `platforms` of whose devices it takes some, [] where its class does not tell, and
        `capabilities` as of `attention_backends`.
    """
    registry = folder / PREFILL_REGISTRY
    if not registry.is_file():
        return {}
    found: dict[str, dict[str, Any]] = {}
    for name, path in sorted(_members(registry, PREFILL_ENUMERATION)):
        module, _, kind = (path or "").rpartition(".")
        runs = _method(folder, module, kind, "supports_compute_capability") if path else None
        on_cuda = [c for c in CAPABILITIES if _verdict(runs, DeviceCapability(*c)) is True]
        on_rocm = [c for c in ROCM_CAPABILITIES if _verdict(runs, DeviceCapability(*c)) is True]
        platforms = {"cuda": bool(on_cuda), "rocm": bool(on_rocm) or _asks_for_rocm(folder, path)}
        row: dict[str, Any] = {"class": path}
        row["platforms"] = [each for each, takes in platforms.items() if takes]
        if on_cuda and len(on_cuda) < len(CAPABILITIES):
            row["capabilities"] = [f"{c[0]}.{c[1]}" for c in on_cuda]
        found[name] = row
    return found


def _asks_for_rocm(folder: Path, path: str | None) -> bool:
    """Whether a class takes devices of ROCm alone: its method leaves at once where the platform is another."""
    module, _, kind = (path or "").rpartition(".")
    found = _module(folder, module).classes.get(kind) if path else None
    return found is not None and any(
        isinstance(each, ast.FunctionDef)
        and each.name == "supports_compute_capability"
        and "if not current_platform.is_rocm():\n    return False"
        in ast.unparse(ast.Module(body=each.body, type_ignores=[]))
        for each in found.body
    )


def _members(registry: Path, enumeration: str) -> Iterator[tuple[str, str | None]]:
    for node in ast.walk(ast.parse(registry.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ClassDef) and node.name == enumeration:
            for statement in node.body:
                if isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Constant):
                    (target,) = statement.targets
                    path = statement.value.value
                    yield ast.unparse(target), path if isinstance(path, str) else None


def _names(text: str, member: str) -> bool:
    place = text.find(member)
    while place >= 0:
        after = text[place + len(member) : place + len(member) + 1]
        if not (after.isalnum() or after == "_"):
            return True
        place = text.find(member, place + 1)
    return False


def _of_class(folder: Path, path: str) -> dict[str, Any]:
    module, _, kind = path.rpartition(".")
    row: dict[str, Any] = {}
    runs = _method(folder, module, kind, "supports_compute_capability")
    verdicts = [(c, _verdict(runs, DeviceCapability(*c))) for c in CAPABILITIES]
    if {verdict for _, verdict in verdicts} == {True, False}:
        row["capabilities"] = [f"{c[0]}.{c[1]}" for c, verdict in verdicts if verdict]
    is_mla = _verdict(_method(folder, module, kind, "is_mla"))
    if isinstance(is_mla, bool):
        row["is_mla"] = is_mla
    if _verdict(_method(folder, module, kind, "is_sparse")) is True:
        row["is_sparse"] = True
    blocks = _block_sizes(folder, module, kind)
    if blocks:
        row["block_sizes"] = blocks
    dtypes = _attribute(folder, module, kind, "supported_kv_cache_dtypes")
    if dtypes and _is_left_to_base(folder, module, kind, "supports_kv_cache_dtype"):
        row["kv_cache_dtypes"] = dtypes
    return row | _of_implementation(folder, module, kind)


def _block_sizes(folder: Path, module: str, kind: str) -> list[int]:
    """Sizes of which one divides every block that a class takes; [] where it does not tell."""
    if not _is_left_to_base(folder, module, kind, "supports_block_size"):
        asked = _method(folder, module, kind, "supports_block_size")
        taken = [size for size in BLOCK_SIZES if _verdict(asked, size) is True]
        return [size for size in taken if not any(size > n and size % n == 0 for n in taken)]
    told = _verdict(_method(folder, module, kind, "get_supported_kernel_block_sizes"))
    sizes = told if isinstance(told, list) else []
    return sizes if all(isinstance(each, int) for each in sizes) else []


def _is_left_to_base(folder: Path, module: str, kind: str, name: str) -> bool:
    """Whether a method is that of the class that all others come from."""
    found = _found(folder, module, kind, name)
    return found is not None and found.module == BASE


def _of_implementation(folder: Path, module: str, kind: str) -> dict[str, Any]:
    """The class that computes, as its back end's method names it, and whether decode gets a log-sum-exp of it."""
    found = _found(folder, module, kind, "get_impl_cls")
    last = found.node.body[-1] if found and isinstance(found.node, ast.FunctionDef) else None
    if found is None or not (isinstance(last, ast.Return) and isinstance(last.value, ast.Name)):
        return {}
    name = last.value.id
    row: dict[str, Any] = {"impl": name}
    if _attribute(folder, found.module, name, "can_return_lse_for_decode") is True:
        row["returns_lse"] = True
    return row


def _verdict(method: Callable[..., object] | None, *arguments: object) -> object:
    """What a class method says, None for each argument that is not given; None where it asks for more than is here."""
    if method is None:
        return None
    count = method.__code__.co_argcount
    given = (None, *arguments, *[None] * count)[:count]
    try:
        return method(*given)
    except Exception:  # noqa: BLE001 - it may ask its class, its platform or a compiled kernel
        return None


class _Found(NamedTuple):
    """A member of a class, with the module that it stands in."""

    module: str
    node: ast.stmt


def _method(folder: Path, module: str, kind: str, name: str) -> Callable[..., object] | None:
    """A method of a class, its own or the nearest parent's, cut out of the source."""
    found = _found(folder, module, kind, name)
    return _compiled(found.node) if found and isinstance(found.node, ast.FunctionDef) else None


def _attribute(folder: Path, module: str, kind: str, name: str) -> object:
    """The value of a class's attribute, its own or the nearest parent's; None where it is not written out."""
    found = _found(folder, module, kind, name)
    value = getattr(found.node, "value", None) if found else None
    try:
        return None if value is None else ast.literal_eval(value)
    except ValueError:
        return None


def _found(folder: Path, module: str, kind: str, name: str) -> _Found | None:
    """A method or attribute of a class, its own or the nearest parent's."""
    read = _module(folder, module)
    found = read.classes.get(kind)
    if found is None:
        elsewhere = read.imported.get(kind)
        return None if elsewhere is None else _found(folder, *elsewhere, name)
    for statement in found.body:
        if name in _named(statement):
            return _Found(module, statement)
    for parent in found.bases:
        base = parent.value if isinstance(parent, ast.Subscript) else parent
        inherited = _found(folder, module, ast.unparse(base), name)
        if inherited is not None:
            return inherited
    return None


def _named(statement: ast.stmt) -> tuple[str, ...]:
    """The names that a statement in a class's body gives."""
    if isinstance(statement, ast.FunctionDef):
        return (statement.name,)
    if isinstance(statement, ast.AnnAssign):
        return (ast.unparse(statement.target),)
    if isinstance(statement, ast.Assign):
        return tuple(ast.unparse(target) for target in statement.targets)
    return ()


def _compiled(function: ast.FunctionDef) -> Callable[..., object]:
    bare = ast.FunctionDef(
        name=function.name,
        args=ast.arguments(
            posonlyargs=[],
            args=[ast.arg(arg=each.arg) for each in function.args.args],
            kwonlyargs=[],
            kw_defaults=[],
            defaults=[],
        ),
        body=function.body,
        decorator_list=[],
    )
    tree = ast.fix_missing_locations(ast.Module(body=[bare], type_ignores=[]))
    scope: dict[str, Any] = {"DeviceCapability": DeviceCapability, "MultipleOf": int}
    exec(compile(tree, function.name, "exec"), scope)  # noqa: S102 - the package's own code, which runs here anyway
    made: Callable[..., object] = scope[function.name]
    return made


class _Module(NamedTuple):
    classes: dict[str, ast.ClassDef]
    imported: dict[str, tuple[str, str]]


@cache
def _module(folder: Path, name: str) -> _Module:
    """The classes of a module, and where its imported names come from; nothing of one that is not in the package."""
    base = folder.joinpath(*name.split("."))
    path = next((p for p in (base.with_suffix(".py"), base / "__init__.py") if p.is_file()), None)
    if path is None:
        return _Module({}, {})
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return _Module(
        {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)},
        {
            alias.asname or alias.name: (node.module, alias.name)
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom) and node.module and not node.level
            for alias in node.names
        },
    )
