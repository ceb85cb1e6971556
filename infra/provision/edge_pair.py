"""The edge's certificate and its private key, read as HAProxy will read them, before a host has them."""

from __future__ import annotations

import ssl
import tempfile
from collections.abc import Mapping

from infra.errors import StackError
from infra.plan.edge import CERTIFICATE, FIELDS, PRIVATE_KEY

NO_PAIR = "KEY_VALUES_MISMATCH"


def refuse_no_pair(values: Mapping[str, str]) -> None:
    """Refuse what the edge could not show to clients: on its host it would end the edge at the next start.

    Args:
        values: the stack's secrets by name; without a certificate among them there is nothing to refuse.

    Raises:
        StackError: one of the two is no PEM, the key has a passphrase, or belongs to another certificate.
    """
    certificate, key = values.get(CERTIFICATE), values.get(PRIVATE_KEY)
    if certificate is None or key is None:
        return
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_verify_locations(cadata=certificate)
    except (ssl.SSLError, ValueError):
        fix = "Name a file with the certificate as PEM, its chain behind it."
        raise StackError(FIELDS[CERTIFICATE], "It holds no certificate.", fix) from None
    with tempfile.NamedTemporaryFile("w", encoding="utf-8", suffix=".pem") as file:
        file.write(f"{key}\n{certificate}\n")
        file.flush()
        try:
            context.load_cert_chain(file.name, password=lambda: "")
        except (ssl.SSLError, ValueError) as error:
            what = "It holds no private key that is read without a passphrase."
            if getattr(error, "reason", None) == NO_PAIR:
                what = f"It is not the private key of the certificate in {FIELDS[CERTIFICATE]}."
            fix = (
                "Name the file with the certificate's own private key as PEM, without a passphrase."
            )
            raise StackError(FIELDS[PRIVATE_KEY], what, fix) from None
