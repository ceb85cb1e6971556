"""What makes a line of a watcher believed: the key of a hand-over, and a signature over the line and its occasion.

Each hand-over (`fab up`, Ansible) makes a key and gives it to every host of the stack; `down` removes it. It lies
where root alone reads it, beside the groups' records.

    the host of rank 0   {"nonce", …}                      a fresh nonce for each connection
    the member           SIGNATURE {"nonce", "to", …}      signed: the direction, the first nonce, the text
    the host of rank 0   SIGNATURE {"orders", …}           signed: the direction, the member's signature, the text

An old line was signed for another nonce, a line of the other direction with another word, a line of another stack or
hand-over with another key. To whom a line goes, and from whom, stands in its text.
"""

import contextlib
import hashlib
import hmac
import json
import os
import re
import stat
import time
from typing import Any, Dict, Optional

from ..files import make_folders, replace_file
from ..host import Host, Refused
from .record import RECORDS

KEY = re.compile(r"[0-9a-f]{64}\Z")
PRIVATE = 0o600
QUESTION, ANSWER = b"question", b"answer"
SIGNATURE = 64
LOOK_AGAIN_S = 1.0
MISSING = (
    "{}: this watcher can neither ask nor answer other hosts; `fab up` gives all of them a key"
)


class Wrong(Exception):
    """The other side is not one of this release's watchers."""


def key_path(stack: str) -> str:
    """Where the key of a stack's watchers lies."""
    return "{}/{}/key".format(RECORDS, stack)


def hold_key(host: Host, stack: str, key: object) -> None:
    """Keep the key of a hand-over.

    Raises:
        Refused: it is none.
    """
    if not isinstance(key, str) or not KEY.match(key):
        raise Refused("the request hands groups over without the key of their watchers")
    make_folders(os.path.dirname(host.path(key_path(stack))))
    replace_file(host.path(key_path(stack)), key.encode("ascii") + b"\n", PRIVATE)


def read_key(host: Host, stack: str) -> bytes:
    """The key of a stack's watchers.

    Raises:
        Refused: there is none, or others could have read or written it.
    """
    path = key_path(stack)
    try:
        handle = os.open(host.path(path), os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        with os.fdopen(handle, "rb") as stream:
            found = os.fstat(stream.fileno())
            text = stream.read(SIGNATURE + 2).decode("ascii", "replace").strip()
    except OSError as error:
        raise Refused("{}: {}".format(path, error.strerror)) from error
    if not stat.S_ISREG(found.st_mode) or found.st_uid != host.owner[0] or found.st_mode & 0o077:
        raise Refused("{} is not root's alone".format(path))
    if not KEY.match(text):
        raise Refused("{} holds no key".format(path))
    return bytes.fromhex(text)


def key_mark(host: Host, stack: str) -> str:
    """What tells two keys apart and nothing of either; "" for none."""
    try:
        return hashlib.sha256(b"mark" + read_key(host, stack)).hexdigest()[:16]
    except Refused:
        return ""


class KeyFile:
    """The key of this host's watcher, which a hand-over may change while it runs."""

    def __init__(self, host: Host, stack: str) -> None:
        """Nothing is read yet."""
        self._host, self._stack = host, stack
        self._key: Optional[bytes] = None
        self._read_at = 0.0

    def get(self) -> bytes:
        """The key, once it is there; the journal says what is missing."""
        said = ""
        while self._key is None:
            try:
                self._key, self._read_at = read_key(self._host, self._stack), time.monotonic()
            except Refused as error:
                if str(error) != said:
                    said = str(error)
                    print(MISSING.format(said), flush=True)
                time.sleep(LOOK_AGAIN_S)
        return self._key

    def again(self) -> bytes:
        """The key as it is now: somebody seems to have another one. It is read at most once in a while."""
        if time.monotonic() - self._read_at > LOOK_AGAIN_S:
            self._read_at = time.monotonic()
            with contextlib.suppress(Refused):
                self._key = read_key(self._host, self._stack)
        return self.get()


def new_nonce() -> str:
    """What no line has held before."""
    return os.urandom(16).hex()


def seal(key: bytes, direction: bytes, occasion: bytes, document: Dict[str, object]) -> bytes:
    """A document as a signed line.

    Args:
        key: of the hand-over.
        direction: `QUESTION` or `ANSWER`.
        occasion: the greeting's nonce, or the signature of the question that is answered.
        document: what is said.
    """
    text = json.dumps(document).encode("ascii")
    return _signature(key, direction, occasion, text) + b" " + text + b"\n"


def unseal(key: bytes, direction: bytes, occasion: bytes, line: bytes) -> Dict[str, Any]:
    """What a signed line says; see `seal`.

    Raises:
        Wrong: it was not signed so.
    """
    signature, _, text = line.rstrip(b"\n").partition(b" ")
    if not hmac.compare_digest(signature, _signature(key, direction, occasion, text)):
        raise Wrong("it is not signed with this host's key: `fab up` gives all hosts one")
    return parse(text)


def signature_of(line: bytes) -> bytes:
    """The signature of a line, which its answer is bound to."""
    return line[:SIGNATURE]


def parse(line: bytes) -> Dict[str, Any]:
    """The map that a line holds.

    Raises:
        Wrong: it holds none.
    """
    try:
        document = json.loads(line.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise Wrong("no JSON: {!r}".format(line[:40])) from error
    if not isinstance(document, dict):
        raise Wrong("no map")
    return document


def _signature(key: bytes, direction: bytes, occasion: bytes, text: bytes) -> bytes:
    whole = b"\n".join((b"moe-infra watch 1", direction, occasion, text))
    return hmac.new(key, whole, hashlib.sha256).hexdigest().encode("ascii")
