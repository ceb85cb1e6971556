"""Looks for secrets where somebody could read them who may not."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Spy:
    """Knows the secrets of a stack, by name; they are long enough to be nothing else by chance."""

    values: Mapping[str, str]

    def sees_in(self, text: str) -> set[str]:
        """The secrets that a text shows, as they are or in base64."""
        return {
            name
            for name, value in self.values.items()
            if any(form in text for form in (value, *_in_base64(value)))
        }

    def sees_under(self, *folders: Path) -> dict[str, set[str]]:
        """The secrets that files show, by the file's path."""
        files = [path for folder in folders for path in folder.rglob("*") if path.is_file()]
        assert files, f"nothing to look at in {folders}"
        found = {str(path): self.sees_in(path.read_text(errors="replace")) for path in files}
        return {path: names for path, names in found.items() if names}


def _in_base64(value: str) -> Iterator[str]:
    """What base64 makes of a value, whatever stands in front of it and behind it."""
    for shift, first in ((0, 0), (1, 2), (2, 3)):
        text = base64.b64encode(b" " * shift + value.encode()).decode()
        yield text[first : (shift + len(value)) * 8 // 6]
