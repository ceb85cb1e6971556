"""Key pairs for the hosts and for logging in to them, made in this process."""

from __future__ import annotations

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

from infra.rehearsal.lab.hosts import HostKey


def make_key() -> HostKey:
    """A fresh ed25519 key pair (0.1 ms; ssh-keygen takes 5)."""
    private = Ed25519PrivateKey.generate()
    return HostKey(
        private=private.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()).decode(),
        public=private.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode(),
    )
