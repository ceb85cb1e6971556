"""What `stacks/Pulumi.<stack>.yaml` and `Pulumi.yaml` say, read without Pulumi."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import cast

import yaml

from infra.errors import StackError
from infra.spec.load import PROJECT


def config_path(stack: str) -> Path:
    """Where the configuration of a stack stands, or would."""
    return PROJECT / "stacks" / f"Pulumi.{stack}.yaml"


def configured(stack: str) -> Mapping[str, str]:
    """What an operator or the project has set for a stack, by full key (`moe-infra:zone_id`); secrets are left out.

    Raises:
        StackError: the file cannot be read.
    """
    path = config_path(stack)
    given = _read_map(path).get("config", {}) if path.is_file() else {}
    values = given.items() if isinstance(given, dict) else ()
    return {key: str(value) for key, value in values if not isinstance(value, dict)}


def default_of(key: str) -> str:
    """What `Pulumi.yaml` says of a key of ours where nobody has set it."""
    declared = cast(
        "Mapping[str, Mapping[str, object]]", _read_map(PROJECT / "Pulumi.yaml")["config"]
    )
    return str(declared[key]["default"])


def _read_map(path: Path) -> Mapping[str, object]:
    try:
        data = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        what = f"It cannot be read: {error}."
        raise StackError(
            str(path), what, "Mend it, or write it anew with `pulumi config set`."
        ) from error
    return data if isinstance(data, dict) else {}
