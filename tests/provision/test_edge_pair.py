"""A certificate and a key that HAProxy could not show are refused before a host has them."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from infra.errors import StackError
from infra.launch.secret import revealed
from infra.provision.secret_values import secret_values
from infra.tasks.stack_secrets import given_or_read


def made(folder: Path, *options: str) -> tuple[str, str]:
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-days", "2", "-subj", "/CN=edge"]
    files = ["-keyout", f"{folder}/key", "-out", f"{folder}/crt"]
    subprocess.run([*command, *(options or ("-nodes",)), *files], check=True, capture_output=True)
    return (folder / "crt").read_text(), (folder / "key").read_text()


def read(folder: Path, certificate: str, key: str) -> dict[str, str]:
    """The two as whoever brings them to hosts or to a cluster reads them."""
    texts = {"edge_certificate": certificate, "edge_private_key": key}
    for name, text in texts.items():
        (folder / name).write_text(text)
    return secret_values({name: {"file": str(folder / name)} for name in texts})


def test_a_pair_is_taken_with_its_chain_and_any_other_is_refused(tmp_path: Path) -> None:
    certificate, key = made(tmp_path)
    other, other_key = made(tmp_path)
    _, locked = made(tmp_path, "-passout", "pass:word")
    read(tmp_path, certificate + other, key)
    for crt, its_key, where, says in (
        (certificate, other_key, "edge.tls.key", "not the private key of the certificate"),
        (certificate, certificate, "edge.tls.key", "no private key"),
        (certificate, locked, "edge.tls.key", "without a passphrase"),
        (key, certificate, "edge.tls.certificate", "no certificate"),
        ("none", key, "edge.tls.certificate", "no certificate"),
    ):
        with pytest.raises(StackError) as caught:
            read(tmp_path, crt, its_key)
        assert caught.value.where == where
        assert says in caught.value.what
        assert caught.value.fix


def test_what_another_tool_gives_is_a_pair_with_what_is_read(tmp_path: Path) -> None:
    certificate, key = made(tmp_path)
    _, other_key = made(tmp_path)
    (tmp_path / "key.pem").write_text(key)
    names = ("edge_certificate", "edge_private_key")
    references = {name: {"file": str(tmp_path / "key.pem")} for name in names}

    def taken(**given: str) -> dict[str, str]:
        return revealed(given_or_read(given, references))

    pair = {"edge_certificate": certificate, "edge_private_key": key}
    assert taken(**pair, other="left out") == pair
    assert taken(edge_certificate=certificate) == {**pair, "edge_private_key": key.rstrip()}
    (tmp_path / "key.pem").write_text(other_key)
    for given in ({**pair, "edge_private_key": other_key}, {"edge_certificate": certificate}):
        with pytest.raises(StackError, match="not the private key of the certificate"):
            taken(**given)
    with pytest.raises(StackError, match="empty"):
        taken(edge_certificate=" ", edge_private_key=key)
