"""Not yet."""

from __future__ import annotations

from typing import Any

from infra.packages.verdicts.interview import Interview


def speak(document: dict[str, Any], interview: Interview) -> None:
    """Nothing yet."""
    raise NotImplementedError(document["package"], interview)
