"""What a name, a path, an image, an address, a word of a plan may look like; and how another one is shown.

Sources: POSIX.1-2017 8.1 (names of variables); distribution/reference regexp.go v0.6.0 (images); linux 6.12
include/uapi/linux/binfmts.h (MAX_ARG_STRLEN) and limits.h (PATH_MAX); checked 2026-11-26.
"""

from __future__ import annotations

import ipaddress
import posixpath
import re
from collections.abc import Iterable

# What one argument may take in bytes: 32 pages of 4 KiB, less what a variable's name and the zero byte take of them.
MAX_WORD_BYTES = 130_000
MAX_PATH, MAX_IMAGE = 4_096, 512
_SHOWN = 60

ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,127}")
HOST = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,252}")
ROLE = re.compile(r"[a-z][a-z0-9-]{0,31}")
GROUP = re.compile(r"[a-z][a-z0-9-]{0,31}/(?:0|[1-9][0-9]{0,6})")
PROCESS = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,252}/(?:0|[1-9][0-9]{0,6})")
BIND = re.compile(r"[a-z][a-z0-9_-]{0,63}")
VOLUME = re.compile(r"volume:[A-Za-z0-9][A-Za-z0-9._-]{0,252}")
HASH = re.compile(r"[0-9a-f]{0,64}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,255}")
_ENDPOINT = re.compile(r"https?://(?P<address>\[[^\]]+\]|[^\s/?#\[\]]+):\d{1,5}(?:/[!-~]*)?")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_UNWRITABLE = re.compile(r"[\x00\ud800-\udfff]")
_PLAIN = re.compile(r"[\w./@:+-]{1,80}")
_COMPONENT = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?"
_IMAGE = re.compile(
    rf"(?:(?:{_LABEL}(?:\.{_LABEL})*|\[[0-9a-fA-F:]+\])(?::[0-9]+)?/)?{_COMPONENT}(?:/{_COMPONENT})*"
    r"(?::[\w][\w.-]{0,127})?(?:@[A-Za-z][A-Za-z0-9]*(?:[-_+.][A-Za-z][A-Za-z0-9]*)*:[0-9a-fA-F]{32,})?",
    re.ASCII,
)


def is_variable(name: str) -> bool:
    """Whether a shell, systemd and every runtime take it for the name of a variable."""
    return _VARIABLE.fullmatch(name) is not None


def is_process_id(text: str) -> bool:
    """Whether it names a process, and can stand in a comment of a file."""
    return PROCESS.fullmatch(text) is not None


def is_image(text: str) -> bool:
    """Whether a runtime takes it for an image's reference, and never for an option."""
    return len(text) <= MAX_IMAGE and _IMAGE.fullmatch(text) is not None


def is_normal_path(path: str) -> bool:
    """Whether a path is absolute, names one place, and holds nothing but what is shown of it."""
    is_bare = posixpath.normpath(path) == (path.removesuffix("/") or "/")
    is_one = path.startswith("/") and not path.startswith("//")
    return is_one and is_bare and len(path) <= MAX_PATH and not _CONTROL.search(path)


def is_source(text: str) -> bool:
    """Whether it is what a mount can show: a path of a host, or a volume of a cluster."""
    return is_normal_path(text) or VOLUME.fullmatch(text) is not None


def is_address(text: str) -> bool:
    """Whether it is an IP address or the name of a host."""
    if HOST.fullmatch(text):
        return ".." not in text
    try:
        ipaddress.ip_address(text.removeprefix("[").removesuffix("]"))
    except ValueError:
        return False
    return "%" not in text


def is_endpoint(text: str) -> bool:
    """Whether it is an address that serves HTTP."""
    match = _ENDPOINT.fullmatch(text)
    return match is not None and is_address(match["address"])


def is_line(text: str) -> bool:
    """Whether it is one line of text, without control characters."""
    return len(text) <= MAX_PATH and not _CONTROL.search(text)


def is_word(text: str) -> bool:
    """Whether a command line or an environment can hold it."""
    num_bytes = len(text) if text.isascii() else len(text.encode(errors="surrogatepass"))
    return num_bytes < MAX_WORD_BYTES and not _UNWRITABLE.search(text)


def is_program(text: str) -> bool:
    """Whether a shell takes it for a program, and never for an option."""
    return bool(text) and not text.startswith("-") and is_line(text)


def shown(text: str) -> str:
    """A foreign text in a message: printable, and no longer than a line has room for."""
    cut = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
    return ascii(cut) if _CONTROL.search(cut) else repr(cut)


def field_of(path: Iterable[str | int]) -> str:
    """A path of a document with dots between its parts, readable whatever a name holds."""
    return ".".join(part if _PLAIN.fullmatch(part) else shown(part) for part in map(str, path))
