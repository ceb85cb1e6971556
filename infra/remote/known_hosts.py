"""Which keys hosts have: known_hosts files and the inventory's own key lines."""

from __future__ import annotations

import base64
import binascii
import contextlib
import fnmatch
import hashlib
import hmac
import os
import shlex
import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import paramiko

from infra.spec.text_file import read_bytes
from infra.whole_file import append_line

SSH_PORT = 22
# A hundred thousand hosts.
MAX_BYTES = 50_000_000
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


class AnyOf(paramiko.PKey):
    """Keys of one type, any of which a host may show, as OpenSSH has it; paramiko knows one of each type."""

    def __init__(self, keys: Sequence[paramiko.PKey]) -> None:
        """Stand for these; for words, for the first."""
        self._keys = tuple(keys)

    def __eq__(self, other: object) -> bool:
        """Whether the other is one of them."""
        return any(key == other for key in self._keys)

    def __hash__(self) -> int:
        """Of all of them."""
        return hash(self._keys)

    def get_name(self) -> str:
        """Their type."""
        return self._keys[0].get_name()

    def asbytes(self) -> bytes:
        """The first one's public key."""
        return self._keys[0].asbytes()


class KnownHosts:
    """The keys of a known_hosts file, and those that were added since; plain names are found without scanning."""

    def __init__(self, keys: Iterable[KnownKey]) -> None:
        """Sort the lines into plain names and those that need matching."""
        self._guard = threading.Lock()
        self._by_name: dict[str, list[KnownKey]] = {}
        self._patterns: list[KnownKey] = []
        for key in keys:
            if _is_pattern(key) or any(name.startswith("|") for name in key.names):
                self._patterns.append(key)
            else:
                for name in key.names:
                    self._by_name.setdefault(name.lower(), []).append(key)

    def find(self, name: str) -> tuple[KnownKey, ...]:
        """The keys of a host by its name in such files (`known_name`), revoked ones included."""
        name = name.lower()
        matching = [key for key in self._patterns if _matches(key.names, name)]
        return (*self._by_name.get(name, ()), *matching)

    def remember(self, path: Path, name: str, key: paramiko.PKey) -> tuple[paramiko.PKey, ...]:
        """Take in the key of a first contact, here and in the file, unless the host has one by now.

        Args:
            path: the known_hosts file.
            name: the host's name in it (`known_name`).
            key: what the host shows.

        Returns:
            The keys that the host may show from now on.

        Raises:
            StackError: the file cannot be written.
            PrerequisiteError: there is no room in it.
        """
        with self._guard:
            known = usable_keys(self.find(name))
            if known:
                return known
            append_line(path, f"{name} {key.get_name()} {key.get_base64()}")
            line = KnownKey(
                names=(name,), key_type=key.get_name(), blob=key.asbytes(), is_revoked=False
            )
            self._by_name.setdefault(name.lower(), []).append(line)
            return (key,)


def parse_known_hosts(text: str) -> tuple[KnownKey, ...]:
    """The lines of a known_hosts file; comments, authorities and lines that are none are skipped."""
    return tuple(key for _, key in _numbered(text))


def parse_key_line(line: str) -> KnownKey | None:
    """The key of a line like `ssh-ed25519 AAAA… comment`; None when it is not one."""
    fields = line.split()
    blob = _decoded(fields[1]) if len(fields) > 1 else None
    if blob is None:
        return None
    return KnownKey(names=(), key_type=fields[0], blob=blob, is_revoked=False)


def read_known_hosts(path: Path) -> KnownHosts:
    """The keys of a file; one that is not there holds none."""
    return KnownHosts(parse_known_hosts(_text(path)))


def way_to_forget(name: str, files: Iterable[Path]) -> str:
    """What has every file forget a host's keys that knows one, in words, with the commands between backticks.

    `ssh-keygen -R` takes out a whole line, be it about other hosts, too, and leaves keys that are revoked. It writes
    the file anew, so that it must be allowed to write in its folder.

    Args:
        name: the host's name in such files (`known_name`).
        files: known_hosts files.
    """
    commands: list[str] = []
    by_hand: list[str] = []
    for path in files:
        numbered = _numbered(_text(path))
        lines = [(n, k) for n, k in numbered if not k.is_revoked and KnownHosts((k,)).find(name)]
        shared = [",".join(key.names) for _, key in lines if _is_pattern(key)]
        if shared:
            places = " and ".join(f"line {number}" for number, _ in lines)
            whose = " and ".join(shared)
            by_hand.append(f"correct {places} of {path} by hand: {whose} is about other hosts, too")
        elif lines:
            sudo = "" if os.access(path.parent, os.W_OK) else "sudo "
            commands.append(f"{sudo}ssh-keygen -R '{name}' -f {shlex.quote(str(path))}")
    steps = [f"`{' && '.join(commands)}`"] if commands else []
    # a file that has been put right since it was read needs nothing
    return ", then ".join([*steps, *by_hand]) or "try again"


def usable_keys(known: Iterable[KnownKey]) -> tuple[paramiko.PKey, ...]:
    """The keys of a host that it may show: none that is revoked, none of a kind that paramiko does not speak."""
    lines = list(known)
    revoked = {line.blob for line in lines if line.is_revoked}
    keys = []
    for line in lines:
        if line.blob not in revoked:
            with contextlib.suppress(
                paramiko.SSHException, paramiko.pkey.UnknownKeyType, ValueError
            ):
                keys.append(paramiko.PKey.from_type_string(line.key_type, line.blob))
    return tuple(keys)


def known_name(host: str, port: int) -> str:
    """How known_hosts files, and paramiko, call a host."""
    return host if port == SSH_PORT else f"[{host}]:{port}"


def fingerprint(blob: bytes) -> str:
    """A key's fingerprint as ssh-keygen prints it."""
    digest = base64.b64encode(hashlib.sha256(blob).digest()).decode().rstrip("=")
    return f"SHA256:{digest}"


def _text(path: Path) -> str:
    """The text of a file; of one that is not there, none."""
    try:
        return read_bytes(path, MAX_BYTES).decode("utf-8", "replace")
    except FileNotFoundError:
        return ""


def _numbered(text: str) -> Iterator[tuple[int, KnownKey]]:
    """The keys of a known_hosts file with the numbers of their lines, from one."""
    for number, line in enumerate(text.splitlines(), start=1):
        fields = line.split()
        marker = fields.pop(0) if fields and fields[0] in _MARKERS else ""
        if len(fields) < _NUM_FIELDS or fields[0].startswith("#") or marker == "@cert-authority":
            continue
        blob = _decoded(fields[2])
        if blob is not None:
            yield (
                number,
                KnownKey(
                    names=tuple(fields[0].split(",")),
                    key_type=fields[1],
                    blob=blob,
                    is_revoked=marker == "@revoked",
                ),
            )


def _decoded(text: str) -> bytes | None:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        return None


def _is_pattern(key: KnownKey) -> bool:
    """Whether a line is about whatever hosts its names cover."""
    return any(name.startswith("!") or "*" in name or "?" in name for name in key.names)


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
