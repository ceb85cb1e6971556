"""The programs of a Kubernetes control plane, as scripts/install-kubernetes-testbed has built them."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from infra.errors import PrerequisiteError
from infra.rehearsal.installed import cache_folder, checksum
from infra.spec.load import PROJECT

VERSION = "1.35.0"
INSTALLER = "scripts/install-kubernetes-testbed"
# Each part is a Go module of ours, whose files are its pins.
PARTS = ("control-plane", "sets", "provider")
PINS = PROJECT / "scripts" / "kubernetes-testbed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Programs:
    """What was built.

    Args:
        bin: folder of the programs; with it on PATH, `kubectl` and Pulumi's kubernetes provider are found.
        manifests: definitions and webhooks of the set controllers, as their module has them.
    """

    bin: Path
    manifests: Path


def installed_programs(environ: Mapping[str, str], pins: Path = PINS) -> Programs:
    """The built programs.

    Args:
        environ: says where the cache is.
        pins: folders of the modules that they have to be built from.

    Raises:
        PrerequisiteError: they are not built, or from other pins.
    """
    folder = cache_folder(environ) / f"kubernetes-testbed-{VERSION}"
    for part in PARTS:
        stamp = folder / f"{part}.stamp"
        fix = f"Type: {INSTALLER} (it builds them from Go modules, in about 20 minutes)"
        if not stamp.is_file():
            what = f"The programs of a Kubernetes {VERSION} are not all there ({part})."
            raise PrerequisiteError(str(folder), what, fix)
        if stamp.read_text(encoding="utf-8").strip() != checksum(sorted((pins / part).iterdir())):
            what = f"{part} was built from other modules than scripts/{pins.name}/{part} pins now."
            raise PrerequisiteError(str(folder), what, fix)
    return Programs(bin=folder / "bin", manifests=folder / "manifests")


def main() -> int:
    """`python -m infra.rehearsal.cluster.programs`: prints their folder, or why there is none."""
    try:
        print(installed_programs(os.environ).bin)
    except PrerequisiteError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
