"""Released packages fetched from the package index that pip is configured with, and unpacked; none is installed."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from infra.errors import PrerequisiteError, StackError
from infra.spec.nearest import nearest

# Newest first: a release may be built for some Pythons only. Any will do where nothing compiled is run.
_PYTHONS = ("3.12", "3.11", "3.10", "3.13")
_PLATFORMS = (
    *(
        f"manylinux_2_{minor}_{arch}"
        for arch in ("x86_64", "aarch64")
        for minor in range(40, 16, -1)
    ),
    *(f"manylinux2014_{arch}" for arch in ("x86_64", "aarch64")),
    *(f"linux_{arch}" for arch in ("x86_64", "aarch64")),
)
# Parsers that ask their package's compiled part: their wheel is this machine's, and unpacked whole.
_RUN_HERE = frozenset({"vllm-router", "sglang-router"})
# What a package's own code needs for real before its parser can be built.
_NEEDED: Mapping[str, tuple[str, ...]] = {"vllm": ("msgspec",), "sglang": ("msgspec",)}
PACKAGES = ("vllm", "vllm-ascend", "sglang", "vllm-router", "sglang-router")


def fetch(package: str, version: str, scratch: Path) -> tuple[Path, ...]:
    """Download a release and unpack what is read of it.

    Args:
        package: one of `PACKAGES`.
        version: an exact version.
        scratch: an empty folder that takes the wheel (up to 450 MB) and its sources.

    Returns:
        The folder of the unpacked package, then those of what it needs.

    Raises:
        StackError: there is no such package or version.
        PrerequisiteError: there is no pip, or no index.
    """
    if package not in PACKAGES:
        raise StackError(
            "dump-engine-catalogue", f"There is no engine {package}.", nearest(package, PACKAGES)
        )
    runs_here = package in _RUN_HERE
    wheel = download(f"{package}=={version}", scratch / "wheel", for_here=runs_here)
    folders = [_unpack(wheel, scratch / "package", whole=runs_here)]
    for needed in _NEEDED.get(package, ()):
        wheel = download(needed, scratch / f"wheel-of-{needed}", for_here=True)
        folders.append(_unpack(wheel, scratch / needed, whole=True))
    return tuple(folders)


def download(requirement: str, to: Path, *, for_here: bool) -> Path:
    """One wheel: this machine's, or any that holds the same Python sources.

    Raises:
        StackError: the index has none.
        PrerequisiteError: there is no pip.
    """
    pip = _pip()
    words: Sequence[Sequence[str]] = [()]
    if not for_here:
        platforms = [word for platform in _PLATFORMS for word in ("--platform", platform)]
        words = [(), *(("--python-version", python, *platforms) for python in _PYTHONS)]
    said = ""
    for more in words:
        command = [*pip, "download", "--quiet", "--no-deps", "--only-binary", ":all:"]
        done = subprocess.run(
            [*command, "--dest", str(to), *more, requirement],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode == 0:
            return next(to.glob("*.whl"))
        said = said or done.stderr.strip()[-600:]
    raise StackError(
        "dump-engine-catalogue",
        f"pip finds no wheel of {requirement}: {said}",
        "Correct the version, or configure pip with an index that has it.",
    )


def _pip() -> list[str]:
    here = [sys.executable, "-m", "pip"]
    if subprocess.run([*here, "--version"], capture_output=True, check=False).returncode == 0:
        return here
    found = shutil.which("pip3") or shutil.which("pip")
    if found is None:
        raise PrerequisiteError("dump-engine-catalogue", "There is no pip.", "Run scripts/setup.")
    return [found]


def _unpack(wheel: Path, to: Path, *, whole: bool) -> Path:
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            if whole or name.endswith(".py"):
                archive.extract(name, to)
    return to
