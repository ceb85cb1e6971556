"""`scripts/dump-engine-catalogue`: reads released packages, and writes or compares their catalogues."""

from __future__ import annotations

import argparse
import difflib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from infra.errors import Differs, InfraError, StackError
from infra.packages.document import catalogue_text
from infra.packages.fetch import PACKAGES, fetch
from infra.packages.list_comparison import comparison_table
from infra.spec.load import PROJECT

CATALOGUES = PROJECT / "infra" / "catalog" / "packages"
_SHOWN_LINES = 40


def main(words: Sequence[str]) -> int:
    """Dump what was asked for; the exit codes are those of `fab`."""
    asked = _parser().parse_args(words)
    if asked.against is not None:
        print(comparison_table(asked.against, CATALOGUES), end="")
        return 0
    try:
        pairs = _releases(asked)
        for package, version in pairs:
            _dump(package, version, asked)
    except InfraError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return 0


def dump_text(package: str, version: str, folders: Sequence[Path]) -> str:
    """The catalogue of an unpacked package, read in a process of its own with nothing of this one's environment.

    Args:
        package: one of `PACKAGES`.
        version: as the catalogue names it.
        folders: the package's, then those of what it needs.

    Raises:
        StackError: the package's own code failed, or its parser cannot be found.
    """
    with tempfile.TemporaryDirectory() as scratch:
        file = Path(scratch) / "sections.json"
        env = {
            "HOME": "/root",
            "LC_ALL": "C.UTF-8",
            "PATH": os.environ.get("PATH", os.defpath),
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONHASHSEED": "0",
            "PYTHONPATH": os.pathsep.join([str(PROJECT), *(str(each) for each in folders[1:])]),
        }
        done = subprocess.run(
            [
                sys.executable,
                "-m",
                "infra.packages.reading_process",
                package,
                str(folders[0]),
                str(file),
            ],
            cwd=scratch,
            env=env,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0 or not file.is_file():
            tail = "\n".join(done.stderr.strip().splitlines()[-12:])
            raise StackError(
                f"{package} {version}",
                f"Its code cannot be read:\n{tail}\n",
                "Teach infra/packages/ what the lines above miss; CONTRIBUTING.md, 'Add an engine release'.",
            )
        return catalogue_text(package, version, json.loads(file.read_text(encoding="utf-8")))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="dump-engine-catalogue",
        description="Reads the flags, variables, JSON fields and models out of a released package.",
    )
    parser.add_argument("engine", nargs="?", help=f"one of {', '.join(PACKAGES)}")
    parser.add_argument("version", nargs="?", help="an exact version of the package")
    parser.add_argument("--all", action="store_true", help="every release that has a catalogue")
    parser.add_argument(
        "--compare",
        action="store_true",
        help="write nothing; 6 when the committed catalogue is not what the package says",
    )
    parser.add_argument(
        "--against",
        type=Path,
        help="compare the catalogues with a folder of other lists, as a table",
    )
    parser.add_argument("--to", type=Path, default=CATALOGUES, help="the folder to write into")
    parser.add_argument(
        "--from", dest="source", type=Path, help="an unpacked package, in place of a download"
    )
    return parser


def _releases(asked: argparse.Namespace) -> list[tuple[str, str]]:
    if asked.all == bool(asked.engine) or (asked.engine and not asked.version):
        raise StackError(
            "dump-engine-catalogue", "It needs ENGINE and VERSION, or --all.", "See --help."
        )
    if not asked.all:
        return [(asked.engine, asked.version)]
    documents = [
        json.loads(path.read_text(encoding="utf-8")) for path in sorted(CATALOGUES.glob("*.json"))
    ]
    return [(document["package"], document["version"]) for document in documents]


def _dump(package: str, version: str, asked: argparse.Namespace) -> None:
    path: Path = asked.to / f"{package}-{version}.json"
    with tempfile.TemporaryDirectory(prefix="dump-engine-catalogue-") as scratch:
        folders = (asked.source,) if asked.source else fetch(package, version, Path(scratch))
        text = dump_text(package, version, folders)
    if asked.compare:
        _compare(path, text)
        print(f"{path.name}: as the package says.")
        return
    path.write_text(text, encoding="utf-8")
    print(f"{path}: {len(text) // 1000} kB")


def _compare(path: Path, text: str) -> None:
    old = path.read_text(encoding="utf-8") if path.is_file() else ""
    if old == text:
        return
    lines = list(
        difflib.unified_diff(
            old.splitlines(), text.splitlines(), "committed", "package", lineterm="", n=0
        )
    )
    shown = "\n".join(line[:200] for line in lines[:_SHOWN_LINES])
    raise Differs(
        path.name,
        f"The committed file is not what the package says ({len(lines)} lines of difference):\n{shown}\n",
        "Run scripts/dump-engine-catalogue without --compare, and read the difference.",
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
