"""Connections over TLS to whoever holds the key of one given certificate."""

import http.client
import re
import socket
import ssl

from ..host import Refused

FIRST_CERTIFICATE = re.compile("-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", re.DOTALL)


def connection(host: str, port: int, timeout_s: float) -> http.client.HTTPSConnection:
    """A connection that is not made yet, to somebody of whom `refuse_other` knows who it should be.

    Nobody but the one who holds the key of the very certificate that is given passes there. Names and authorities add
    nothing to that, and a certificate that signs itself has none.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return http.client.HTTPSConnection(host, port, timeout=timeout_s, context=context)


def refuse_other(wire: socket.socket, certificate: object) -> None:
    """Refuse to say anything to whoever shows another certificate than the given one.

    Args:
        wire: the connection.
        certificate: PEM, the first of a chain; None says that any will do: only whether somebody answers is asked.

    Raises:
        Refused: it is another one.
    """
    if certificate is None:
        return
    found = FIRST_CERTIFICATE.search(str(certificate))
    shown = wire.getpeercert(binary_form=True) if isinstance(wire, ssl.SSLSocket) else None
    if found is None or shown != ssl.PEM_cert_to_DER_cert(found.group()):
        raise Refused("it shows another certificate than the stack's")
