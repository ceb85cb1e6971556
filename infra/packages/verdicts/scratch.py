"""A scratch environment in which a released engine's own code runs: its sources, and what they need for real."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from infra.errors import PrerequisiteError, StackError
from infra.packages.fetch import download

# Kernels, media and clusters: gigabytes that no parser and no configuration class asks anything of.
_LEFT_OUT = (
    "cuda-python",
    "cupy-cuda12x",
    "datasets",
    "decord2",
    "fastsafetensors",
    "flashinfer-cubin",
    "flashinfer-python",
    "humming-kernels",
    "instanttensor",
    "modelscope",
    "nvidia-cudnn-frontend",
    "nvidia-cutlass-dsl",
    "opencv-python-headless",
    "outlines",
    "pynvvideocodec",
    "quack-kernels",
    "ray",
    "sgl-kernel",
    "sglang-kernel",
    "tilelang",
    "timm",
    "tokenspeed-mla",
    "tokenspeed-triton",
    "torch-memory-saver",
    "torchao",
    "torchaudio",
    "torchcodec",
)
# One torch for every release: none of it computes here, and it is most of what has to be downloaded.
_TORCH = ("torch==2.11.0", "torchvision==0.26.0")
# Any of it will do: a release asks for one that its registry has taken back.
_ANY = ("certifi",)
# What SGLang has by way of packages that are left out.
_ALSO = ("dill",)
_TORCH_DAY = "2026-03-24"
_COMPILED = (".so", ".a", ".cubin", ".o")
# Packages whose own compiled part takes the command: installed as they are.
_WHOLE = frozenset({"vllm-router", "sglang-router"})
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scratch:
    """Where a release can be asked.

    Args:
        python: the interpreter of its environment.
        folders: unpacked packages, to be put on its path.
        wheels: file name → SHA-256 of the wheels that answer.
    """

    python: Path
    folders: tuple[Path, ...]
    wheels: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    """What a release is installed with.

    Args:
        requirements: as pip takes them.
        before: the day of its build; what was released later may not work with it.
    """

    requirements: tuple[str, ...]
    before: str


def prepare(
    package: str, version: str, into: Path, say: Say, below: tuple[str, str] | None = None
) -> Scratch:
    """Download a release and install what it needs; what is there already is kept.

    Args:
        package: as the registry names it.
        version: an exact version.
        into: the folder of all scratch environments.
        say: takes lines of progress.
        below: package and version that a plugin sits on: it is asked in the environment of that, for what it needs
            itself is drivers and compiled kernels.

    Raises:
        StackError: the registry has no such release, or its requirements cannot be installed.
        PrerequisiteError: there is no uv.
    """
    folder = into / f"{package}-{version}"
    wheel = _wheel(package, version, folder / "wheel", say)
    wheels = {wheel.name: hashlib.sha256(wheel.read_bytes()).hexdigest()}
    whose = f"{package} {version}"
    if package in _WHOLE:
        needs = Needs(requirements=(str(wheel),), before=built_on(wheel))
        python = _environment(folder / "environment", needs, whose, say)
        return Scratch(python=python, folders=(), wheels=wheels)
    own = unpack(wheel, folder / "package")
    if below is not None:
        base = prepare(*below, into, say)
        folders = (own, *base.folders)
        return Scratch(python=base.python, folders=folders, wheels={**base.wheels, **wheels})
    needs = Needs(requirements=requirements_of(own), before=built_on(wheel))
    python = _environment(folder / "environment", needs, whose, say)
    return Scratch(python=python, folders=(own,), wheels=wheels)


def _wheel(package: str, version: str, folder: Path, say: Say) -> Path:
    found = sorted(folder.glob("*.whl"))
    if found:
        return found[0]
    say(f"{package} {version}: downloading")
    part = folder.with_name(f"{folder.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    wheel = download(f"{package}=={version}", part, for_here=package in _WHOLE)
    part.rename(folder)
    return folder / wheel.name


def unpack(wheel: Path, to: Path) -> Path:
    """Everything of a wheel but what is compiled."""
    if to.is_dir():
        return to
    part = to.with_name(f"{to.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            if not name.endswith(_COMPILED) and ".so." not in name:
                archive.extract(name, part)
    part.rename(to)
    return to


def built_on(wheel: Path) -> str:
    """The day on which the newest file of a wheel was written, as in 2026-06-04; not before that of our torch."""
    with zipfile.ZipFile(wheel) as archive:
        year, month, day = max(each.date_time for each in archive.infolist())[:3]
    return max(f"{year:04}-{month:02}-{day:02}", _TORCH_DAY)


def requirements_of(package: Path) -> tuple[str, ...]:
    """What the release says that it needs, without extras."""
    metadata = next(package.glob("*.dist-info/METADATA")).read_text(encoding="utf-8")
    lines = metadata.partition("\n\n")[0].splitlines()
    needed = [line.partition(":")[2].strip() for line in lines if line.startswith("Requires-Dist:")]
    return tuple(line for line in needed if "extra ==" not in line)


def _environment(folder: Path, needs: Needs, whose: str, say: Say) -> Path:
    """The interpreter of an environment with what a release needs; installed once."""
    python, done = folder / "bin" / "python", folder / "installed.txt"
    wanted = "\n".join([*needs.requirements, needs.before, *_ALSO, *_TORCH, *_ANY, *_LEFT_OUT])
    if done.is_file() and done.read_text(encoding="utf-8") == wanted:
        return python
    say(f"{whose}: installing what it needs")
    shutil.rmtree(folder, ignore_errors=True)
    _uv(["venv", "--quiet", "--python", sys.executable, str(folder)], whose)
    listed, other = folder / "needs.txt", folder / "other.txt"
    listed.write_text("\n".join([*needs.requirements, *_ALSO]) + "\n", encoding="utf-8")
    left_out = [f"{name} ; python_version < '3'" for name in _LEFT_OUT]
    other.write_text("\n".join([*_TORCH, *_ANY, *left_out]) + "\n", encoding="utf-8")
    words = ["pip", "install", "--quiet", "--python", str(python), "--overrides", str(other)]
    _uv([*words, "--exclude-newer", needs.before, "-r", str(listed)], whose)
    done.write_text(wanted, encoding="utf-8")
    return python


def _uv(words: Sequence[str], whose: str) -> None:
    beside = Path(sys.executable).with_name("uv")
    program = str(beside) if beside.is_file() else shutil.which("uv")
    if program is None:
        raise PrerequisiteError("verify-engines", "There is no uv.", "Run scripts/setup.")
    done = subprocess.run(
        [program, *words],
        env={**os.environ, "UV_LINK_MODE": "hardlink"},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        tail = "\n".join(done.stderr.strip().splitlines()[-12:])
        raise StackError(
            f"verify-engines {whose}",
            f"uv cannot install what the release needs:\n{tail}\n",
            "Correct the lists in infra/packages/verdicts/scratch.py, or configure uv with an index that has it.",
        )
