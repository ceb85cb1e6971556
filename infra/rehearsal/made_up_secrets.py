"""Secrets as a rehearsal makes them up: an operator's real ones are never read."""

from __future__ import annotations

import secrets
import tempfile
from collections.abc import Iterable
from pathlib import Path

from infra.plan.edge import CERTIFICATE, KEYS, PRIVATE_KEY
from infra.rehearsal.cluster.certificate import make_certificate


def made_up(names: Iterable[str]) -> dict[str, str]:
    """A value for each secret, as an operator would have it: of an edge a client's key, a certificate and its key.

    Raises:
        PrerequisiteError: a certificate is wanted, and there is no openssl.
    """
    wanted = list(names)
    found = {name: f"rehearsed-{name}" for name in wanted}
    if KEYS in found:
        found[KEYS] = f"rehearsal {secrets.token_hex(32)}\n"
    if CERTIFICATE in found:
        with tempfile.TemporaryDirectory() as folder:
            made = make_certificate(Path(folder) / "edge")
            found[CERTIFICATE] = made.file.read_text(encoding="ascii")
            found[PRIVATE_KEY] = made.key.read_text(encoding="ascii")
    return found
