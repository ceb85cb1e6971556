"""Every `raise` and `assert` of a released package's configuration code.

What `python -m infra.packages.refusals RELEASE FOLDER` prints of an unpacked package is
`tests/cases/refusals/<release>.json`. A test holds each of them against a rule, or a reason why no command line
reaches it or why it is none of our subjects (`covered.yaml` there).
"""

from __future__ import annotations

import ast
import json
import sys
from collections.abc import Iterator
from pathlib import Path

# Where each package decides about its own command line.
FILES = {
    "vllm": (
        "vllm/config/cache.py",
        "vllm/config/kv_transfer.py",
        "vllm/config/parallel.py",
        "vllm/config/scheduler.py",
        "vllm/config/speculative.py",
        "vllm/config/vllm.py",
        "vllm/engine/arg_utils.py",
        "vllm/entrypoints/cli/serve.py",
    ),
    "vllm-ascend": ("vllm_ascend/ascend_config.py", "vllm_ascend/platform.py"),
    "sglang": ("sglang/srt/server_args.py",),
}
# Folders into which later releases moved parts of it: every module below, where there is one.
FOLDERS = {"sglang": ("sglang/srt/arg_groups",)}
_LONGEST = 400


def refusals(package: str, folder: Path) -> list[str]:
    """`file function: statement` of each, shortened, sorted, every one once.

    Args:
        package: one of `FILES`.
        folder: where it is unpacked.
    """
    modules = [
        path.relative_to(folder).as_posix()
        for name in FOLDERS.get(package, ())
        for path in (folder / name).rglob("*.py")
    ]
    found = {
        f"{name.partition('/')[2]} {place}: {statement}"
        for name in (*FILES[package], *modules)
        for place, statement in _statements(
            ast.parse((folder / name).read_text(encoding="utf-8")), ()
        )
    }
    return sorted(found)


def _statements(node: ast.AST, place: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Raise | ast.Assert):
            yield ".".join(place), " ".join(ast.unparse(child).split())[:_LONGEST]
        if isinstance(child, ast.ClassDef | ast.FunctionDef):
            yield from _statements(child, (*place, child.name))
        else:
            yield from _statements(child, place)


def main(release: str, folder: str) -> None:
    """Print the list of a release: `vllm-0.22.1` and where it is unpacked."""
    package = max((name for name in FILES if release.startswith(f"{name}-")), key=len)
    print(json.dumps(refusals(package, Path(folder)), indent=1, ensure_ascii=False))


if __name__ == "__main__":
    main(*sys.argv[1:])
