"""One certificate for everything of a room: it answers on loopback only, and is forgotten with the room."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

from infra.errors import PrerequisiteError

DAYS = 2
_EXTENSIONS = (
    "subjectAltName=IP:127.0.0.1,DNS:localhost",
    "basicConstraints=critical,CA:TRUE",
    "keyUsage=critical,digitalSignature,keyEncipherment,keyCertSign",
    "extendedKeyUsage=serverAuth",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """A certificate that is its own authority, and its key: `tls.crt` and `tls.key` of `folder`."""

    folder: Path

    @property
    def file(self) -> Path:
        """The certificate."""
        return self.folder / "tls.crt"

    @property
    def key(self) -> Path:
        """Its RSA key, which signs the tokens of service accounts, too."""
        return self.folder / "tls.key"


def make_certificate(folder: Path) -> Certificate:
    """Make a certificate for 127.0.0.1 in a new folder.

    Raises:
        PrerequisiteError: there is no openssl.
    """
    folder.mkdir(mode=0o700)
    made = Certificate(folder=folder)
    words = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", str(DAYS)]
    words += ["-subj", "/CN=moe-infra-room", "-keyout", str(made.key), "-out", str(made.file)]
    for each in _EXTENSIONS:
        words += ["-addext", each]
    try:
        subprocess.run(words, check=True, capture_output=True, text=True)
    except FileNotFoundError as error:
        what = "There is no openssl, which makes the room's certificate."
        raise PrerequisiteError("openssl", what, "Install it (Debian: openssl).") from error
    return made
