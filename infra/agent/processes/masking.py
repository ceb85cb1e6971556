"""Takes secrets out of what leaves a host: values that are known here, and texts that look like one."""

import os
import re
from typing import Dict, Iterable, List, Set

from ..host import Host

MASK = b"***"
# A shorter value would be found by chance in the middle of words.
MIN_BYTES = 6
SECRET_NAME = re.compile(
    rb"(?i)api_?key|access_?key|private_?key|secret|passw|passphrase|credential|authorization"
    rb"|(?:^|_)(?:token|key|auth|pat)$"
)
# Each leaves its first group and masks the rest.
LOOKS_SECRET = (
    re.compile(rb"()\bhf_[A-Za-z0-9]{8,}"),
    re.compile(rb"()\bsk-[A-Za-z0-9_-]{12,}"),
    re.compile(rb"()\b(?:AKIA|ASIA)[0-9A-Z]{16}\b"),
    re.compile(rb"((?i:bearer|basic)\s+)[A-Za-z0-9._~+/=-]{6,}"),
    re.compile(rb"((?i:--?(?:[a-z]+-)*(?:api-key|token|password|secret)(?:=|\s+|\x00)))[^\s\x00]+"),
    re.compile(
        rb"((?i:(?:(?:api_?key|access_?key|secret|passw(?:or)?d)\w*|_token)[\"']?\s*[=:]\s*))"
        rb"(?:\"[^\"]*\"|'[^']*'|[^\s,;\"'}]+)"
    ),
    re.compile(rb"(://[^/\s:@]+:)[^@\s/]+(?=@)"),
    re.compile(rb"(-----BEGIN [A-Z ]*PRIVATE KEY-----)[^-]*"),
)


class Mask:
    """What must not leave this host.

    Args:
        values: secrets that are known; those of variables are added as they are seen.
    """

    def __init__(self, values: Iterable[bytes]) -> None:
        """Begin with the known ones."""
        self._values: Set[bytes] = set()
        self.learn(values)

    def learn(self, values: Iterable[bytes]) -> None:
        """Further secrets, each as a whole and without the white space around it."""
        for value in values:
            stripped = value.strip()
            if len(stripped) >= MIN_BYTES:
                self._values.add(stripped)

    def text(self, content: bytes) -> bytes:
        """The content without secrets."""
        for value in sorted(self._values, key=len, reverse=True):
            content = content.replace(value, MASK)
        for pattern in LOOKS_SECRET:
            content = pattern.sub(rb"\1" + MASK, content)
        return content

    def environment(self, variables: Dict[bytes, bytes]) -> bytes:
        """Lines `NAME=value`, sorted; variables that hold secrets by their name show none."""
        lines: List[bytes] = []
        for name, value in sorted(variables.items()):
            is_secret = SECRET_NAME.search(name) is not None
            lines.append(name + b"=" + (MASK if is_secret else self.text(value)))
        return b"\n".join(lines) + b"\n"


def known_secrets(host: Host, folder: str) -> List[bytes]:
    """The contents of a stack's credentials."""
    try:
        names = os.listdir(host.path(folder))
    except OSError:
        return []
    return [host.read_bytes(os.path.join(folder, name)) for name in names]


def secret_values(variables: Dict[bytes, bytes]) -> List[bytes]:
    """The values of variables that hold secrets by their name."""
    return [value for name, value in variables.items() if SECRET_NAME.search(name)]
