"""Which keys hosts have: known_hosts files and the inventory's own key lines."""

from __future__ import annotations

import base64
import binascii
import fnmatch
import hashlib
import hmac
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import paramiko

SSH_PORT = 22
_HASHED = "|1|"
_MARKERS = ("@revoked", "@cert-authority")
_NUM_FIELDS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownKey:
    """One line of a known_hosts file.

    Args:
        names: host patterns, or one hashed name.
        key_type: e.g. `ssh-ed25519`.
        blob: the public key's bytes.
        is_revoked: the key must never be accepted.
    """

    names: tuple[str, ...]
    key_type: str
    blob: bytes
    is_revoked: bool


class KnownHosts:
    """The keys of one or more known_hosts files; plain names are found without scanning."""

    def __init__(self, keys: Iterable[KnownKey]) -> None:
        """Sort the lines into plain names and those that need matching."""
        self._by_name: dict[str, list[KnownKey]] = {}
        self._patterns: list[KnownKey] = []
        for key in keys:
            if any(name.startswith(("|", "!")) or "*" in name or "?" in name for name in key.names):
                self._patterns.append(key)
            else:
                for name in key.names:
                    self._by_name.setdefault(name.lower(), []).append(key)

    def find(self, name: str) -> tuple[KnownKey, ...]:
        """The keys of a host by its name in such files (`known_name`), revoked ones included."""
        name = name.lower()
        matching = [key for key in self._patterns if _matches(key.names, name)]
        return (*self._by_name.get(name, ()), *matching)


def parse_known_hosts(text: str) -> tuple[KnownKey, ...]:
    """The lines of a known_hosts file; comments, authorities and lines that are none are skipped."""
    keys = []
    for line in text.splitlines():
        fields = line.split()
        marker = fields.pop(0) if fields and fields[0] in _MARKERS else ""
        if len(fields) < _NUM_FIELDS or fields[0].startswith("#") or marker == "@cert-authority":
            continue
        blob = _decoded(fields[2])
        if blob is not None:
            keys.append(
                KnownKey(
                    names=tuple(fields[0].split(",")),
                    key_type=fields[1],
                    blob=blob,
                    is_revoked=marker == "@revoked",
                )
            )
    return tuple(keys)


def parse_key_line(line: str) -> KnownKey | None:
    """The key of a line like `ssh-ed25519 AAAA… comment`; None when it is not one."""
    fields = line.split()
    blob = _decoded(fields[1]) if len(fields) > 1 else None
    if blob is None:
        return None
    return KnownKey(names=(), key_type=fields[0], blob=blob, is_revoked=False)


def read_known_hosts(paths: Iterable[Path]) -> KnownHosts:
    """The keys of several files together; a file that is not there holds none."""
    keys: list[KnownKey] = []
    for path in paths:
        try:
            keys.extend(parse_known_hosts(path.read_text(encoding="utf-8", errors="replace")))
        except FileNotFoundError:
            continue
    return KnownHosts(keys)


def known_name(host: str, port: int) -> str:
    """How known_hosts files, and paramiko, call a host."""
    return host if port == SSH_PORT else f"[{host}]:{port}"


def append_known_host(path: Path, name: str, key: paramiko.PKey) -> None:
    """Remember a key that was accepted on first contact, as OpenSSH's accept-new does."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    line = f"{name} {key.get_name()} {key.get_base64()}\n"
    with path.open("a", encoding="utf-8") as stream:
        if stream.tell() > 0 and not path.read_bytes().endswith(b"\n"):
            line = "\n" + line
        stream.write(line)


def fingerprint(blob: bytes) -> str:
    """A key's fingerprint as ssh-keygen prints it."""
    digest = base64.b64encode(hashlib.sha256(blob).digest()).decode().rstrip("=")
    return f"SHA256:{digest}"


def _decoded(text: str) -> bytes | None:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        return None


def _matches(patterns: tuple[str, ...], name: str) -> bool:
    """Whether a line's names cover a host: hashed, wildcards, and `!name` that excludes."""
    matched = False
    for pattern in patterns:
        if pattern.startswith(_HASHED):
            matched = matched or _hash_matches(pattern, name)
        elif pattern.startswith("!"):
            if fnmatch.fnmatchcase(name, _plain_brackets(pattern[1:].lower())):
                return False
        elif fnmatch.fnmatchcase(name, _plain_brackets(pattern.lower())):
            matched = True
    return matched


def _plain_brackets(pattern: str) -> str:
    """The pattern with `[` standing for itself, not for a set as fnmatch takes it."""
    return pattern.replace("[", "[[]")


def _hash_matches(pattern: str, name: str) -> bool:
    salt, _, digest = pattern[len(_HASHED) :].partition("|")
    decoded = _decoded(salt)
    if decoded is None:
        return False
    # SHA-1 is the format's own (sshd(8)); it hides names, it proves nothing
    found = hmac.new(decoded, name.encode(), hashlib.sha1).digest()
    return hmac.compare_digest(base64.b64encode(found).decode(), digest)
