"""A scratch copy of the project's Pulumi files, with its own state and environment."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

import yaml

from infra.rehearsal.go_programs import GO_ENVIRONMENT
from infra.spec.load import PROJECT, LoadedStack
from infra.spec.plain_yaml import read_yaml

PASSPHRASE = "rehearsal"  # noqa: S105 - guards nothing but files of one rehearsal
_PACK = "infra/provision/policy"
_PULUMI_FILES = (
    *("Pulumi.yaml", "infra/__main__.py"),
    *(f"{_PACK}/PulumiPolicy.yaml", f"{_PACK}/__main__.py"),
)


class PulumiProject(Protocol):
    """A scratch project that the command line can work on.

    `folder` is for `pulumi -C`; `environment` is complete, and its PATH finds the command line and the providers.
    """

    @property
    def stack(self) -> str:
        """The stack's name."""

    @property
    def folder(self) -> Path:
        """The scratch copy."""

    @property
    def environment(self) -> Mapping[str, str]:
        """The whole environment."""

    @property
    def is_initialised(self) -> bool:
        """Whether `pulumi stack init` has run."""


def copy_project(folder: Path, stack: str, spec_file: Path | None) -> Path:
    """Copy the project's Pulumi files and stacks into a new folder; returns where the stack's own file lies.

    Args:
        folder: new.
        stack: the stack's name.
        spec_file: the stack file, None for a shipped one.
    """
    (folder / "stacks").mkdir(parents=True)
    for name in _PULUMI_FILES:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(PROJECT / name, folder / name)
    for path in (PROJECT / "stacks").glob("*.yaml"):
        shutil.copy(path, folder / "stacks")
    own = folder / "stacks" / f"{stack}.yaml"
    if spec_file is not None:
        own.write_text(yaml.safe_dump({"extends": str(spec_file.resolve())}), encoding="utf-8")
    (folder / ".venv").symlink_to(sys.prefix)
    return own


def write_stack(stack: LoadedStack, folder: Path, **fields: object) -> Path:
    """Write a stack as one file, `extends` and `--set` applied: what the provisioning program reads.

    Args:
        stack: the stack.
        folder: that the file is written to.
        fields: that stand in the place of its own.
    """
    path = folder / f"{stack.name}.yaml"
    values = stack.spec.model_dump(mode="json", exclude_none=True, exclude_defaults=True)
    path.write_text(yaml.safe_dump({**values, **fields}), encoding="utf-8")
    return path


def config_file(folder: Path, stack: str) -> Path:
    """Where a stack's configuration lies under a project folder."""
    return folder / "stacks" / f"Pulumi.{stack}.yaml"


def is_initialised(folder: Path, stack: str) -> bool:
    """Whether `pulumi stack init` has run: it writes a salt into the stack's configuration."""
    return "encryptionsalt" in config_file(folder, stack).read_text(encoding="utf-8")


def read_config(folder: Path, stack: str) -> dict[str, str]:
    """What `stacks/Pulumi.<stack>.yaml` says under a project folder, by full key, objects as JSON; {} without one."""
    path = config_file(folder, stack)
    document = read_yaml(path) if path.is_file() else {}
    values = document.get("config") or {}
    return {
        key: json.dumps(value) if isinstance(value, dict) else str(value)
        for key, value in values.items()
    }


def write_config(
    folder: Path, stack: str, standing: Mapping[str, str], further: Mapping[str, str]
) -> None:
    """Write the stack's configuration; what the caller wants wins.

    Args:
        folder: of the project.
        stack: the stack's name.
        standing: values by full key.
        further: values by short or full key.
    """
    own = {key if ":" in key else f"moe-infra:{key}": value for key, value in further.items()}
    values = {
        key: json.loads(value) if value.startswith("{") else value
        for key, value in {**standing, **own}.items()
    }
    text = yaml.safe_dump({"config": values})
    config_file(folder, stack).write_text(text, encoding="utf-8")


def make_environment(scratch: Path, programs: Sequence[Path]) -> dict[str, str]:
    """A complete environment in which the operator's own accounts, clusters and stacks do not appear.

    Args:
        scratch: new or empty; the engine's home and state are made in it.
        programs: folders that come first on PATH.
    """
    home, state = scratch / "home", scratch / "state"
    for each in (home, state):
        each.mkdir()
    path = os.pathsep.join((*map(str, programs), os.environ.get("PATH", os.defpath)))
    return {
        "PATH": path,
        "HOME": str(home),
        "LANG": os.environ.get("LANG", "C.UTF-8"),
        # program and provider are those of this tree, whichever one the environment has installed
        "PYTHONPATH": str(Path(__file__).resolve().parents[2]),
        "PULUMI_HOME": str(home),
        "PULUMI_BACKEND_URL": f"file://{state}",
        "PULUMI_CONFIG_PASSPHRASE": PASSPHRASE,
        "PULUMI_SKIP_UPDATE_CHECK": "true",
        "PULUMI_SKIP_CONFIRMATIONS": "true",
        "PULUMI_DISABLE_AUTOMATIC_PLUGIN_ACQUISITION": "true",
        "PULUMI_DISABLE_REGISTRY_RESOLVE": "true",
        **GO_ENVIRONMENT,
    }
