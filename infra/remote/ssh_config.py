"""An ssh_config of any number of hosts: looking up each of them costs time in proportion to their number.

paramiko matches every section against every host that is looked up, twice; of a file with a section per host that
is quadratic (64 hosts: a tenth of a whole `fab tune-hosts`). Here a section is parsed once, and matched only against
hosts that it may concern.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import chain
from pathlib import Path
from typing import Any

import paramiko

from infra.spec.text_file import read_text

_HEADER = re.compile(r"\s*(host|match)(?:\s*=\s*|\s+)(.+)", re.IGNORECASE)
# Words that stand for themselves: no pattern, no negation, no quotes.
_PLAIN_NAMES = re.compile(r"[\w.:\s-]+")
_RENAMES = re.compile(r"^\s*canonicalizehostname\b", re.IGNORECASE | re.MULTILINE)


class SshConfigFile:
    """A parsed ssh_config."""

    def __init__(self, text: str) -> None:
        """Parse all of it, so that a mistake shows wherever it stands.

        Raises:
            paramiko.ConfigParseError: a line is none.
        """
        parsed = [(names, _parsed(section)) for names, section in _sections(text)]
        renames = _RENAMES.search(text) is not None
        self._sections = [(frozenset() if renames else names, each) for names, each in parsed]

    @classmethod
    def read(cls, path: Path) -> SshConfigFile:
        """The file at a path.

        Raises:
            OSError: it cannot be read.
            paramiko.ConfigParseError: a line of it is none.
        """
        return cls(read_text(path))

    def lookup(self, name: str) -> Mapping[str, object]:
        """What paramiko finds for a host in the sections that may concern it, by lower-case setting."""
        concerning = [each for names, each in self._sections if not names or name in names]
        config: Any = paramiko.SSHConfig()  # the stubs leave its sections out
        config._config = list(chain.from_iterable(concerning))  # noqa: SLF001 - as above
        found: Mapping[str, object] = config.lookup(name)
        return found


def _parsed(text: str) -> list[object]:
    """A section as paramiko keeps it, behind what it takes for the beginning of a file: nothing."""
    config: Any = paramiko.SSHConfig.from_text(text)  # as above
    sections: list[object] = config._config  # noqa: SLF001 - as above
    return sections


def _sections(text: str) -> list[tuple[frozenset[str], str]]:
    """The sections in order: the names that alone they concern, none where any host may match; and their text."""
    names: frozenset[str] = frozenset()
    lines: list[str] = []
    sections = []
    for line in text.splitlines(keepends=True):
        header = _HEADER.match(line)
        if header is not None:
            sections.append((names, "".join(lines)))
            is_plain = header[1].lower() == "host" and _PLAIN_NAMES.fullmatch(header[2])
            names, lines = frozenset(header[2].split() if is_plain else ()), []
        lines.append(line)
    sections.append((names, "".join(lines)))
    return sections
