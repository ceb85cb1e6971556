"""A certificate and a key that HAProxy could not show are refused before a host has them."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from infra.errors import StackError
from infra.tasks.stack_secrets import secrets_of


def made(folder: Path, *options: str) -> tuple[str, str]:
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-days", "2", "-subj", "/CN=edge"]
    files = ["-keyout", f"{folder}/key", "-out", f"{folder}/crt"]
    subprocess.run([*command, *(options or ("-nodes",)), *files], check=True, capture_output=True)
    return (folder / "crt").read_text(), (folder / "key").read_text()


def test_a_pair_is_taken_with_its_chain_and_any_other_is_refused(tmp_path: Path) -> None:
    certificate, key = made(tmp_path)
    other, other_key = made(tmp_path)
    _, locked = made(tmp_path, "-passout", "pass:word")
    secrets_of({"edge_certificate": certificate + other, "edge_private_key": key})
    for crt, its_key, where, says in (
        (certificate, other_key, "edge.tls.key", "not the private key of the certificate"),
        (certificate, certificate, "edge.tls.key", "no private key"),
        (certificate, locked, "edge.tls.key", "without a passphrase"),
        (key, certificate, "edge.tls.certificate", "no certificate"),
        ("none", key, "edge.tls.certificate", "no certificate"),
    ):
        with pytest.raises(StackError) as caught:
            secrets_of({"edge_certificate": crt, "edge_private_key": its_key})
        assert caught.value.where == where
        assert says in caught.value.what
        assert caught.value.fix
