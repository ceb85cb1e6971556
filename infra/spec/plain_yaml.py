"""YAML of files that are ours, as plain values. What an operator writes is read by `yaml_source`, with its lines."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

# libyaml, where PyYAML was built with it: ten times as fast
_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def parse_yaml(text: str) -> Any:
    """The one document of a text: maps, lists and scalars.

    Raises:
        yaml.YAMLError: it is none.
    """
    return yaml.load(text, Loader=_Loader)  # noqa: S506 - a safe loader


def read_yaml(path: Path) -> Any:
    """The one document of a file, which is UTF-8.

    Raises:
        OSError: it cannot be read.
        yaml.YAMLError: it is no document.
    """
    return parse_yaml(path.read_text(encoding="utf-8"))
