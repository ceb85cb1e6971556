"""What scripts have installed into this user's cache, and whether it is what the project pins now."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path

from infra.errors import PrerequisiteError


def cache_folder(environ: Mapping[str, str]) -> Path:
    """This user's cache, as the scripts have it."""
    if given := environ.get("MOE_INFRA_CACHE"):
        return Path(given)
    caches = environ.get("XDG_CACHE_HOME") or f"{environ.get('HOME', '')}/.cache"
    return Path(caches) / "moe-infra"


def checksum(paths: Iterable[Path]) -> str:
    """What installers write into their stamps: `cksum` of the files, one after the other."""
    text = b"".join(path.read_bytes() for path in paths)
    done = subprocess.run(["cksum"], input=text, capture_output=True, check=True)
    return done.stdout.decode().strip()


def find_pulumi() -> Path:
    """The folder of Pulumi's command line: on PATH, else where scripts/install-pulumi puts it.

    Raises:
        PrerequisiteError: there is none.
    """
    if found := shutil.which("pulumi"):
        return Path(found).parent
    built = sorted(cache_folder(os.environ).glob("pulumi-*/bin/pulumi"))
    if built:
        return built[-1].parent
    raise PrerequisiteError(
        "pulumi", "The Pulumi command line is not installed.", "Type: scripts/install-pulumi"
    )
