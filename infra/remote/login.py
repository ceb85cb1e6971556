"""paramiko's connection as this project makes it: quick ciphers, and a round trip less until the login."""

from __future__ import annotations

import threading
from typing import Any

import paramiko
from paramiko.auth_handler import AuthOnlyHandler
from paramiko.common import cMSG_SERVICE_REQUEST
from paramiko.transport import ServiceRequestingTransport

LOGIN_SERVICE = "ssh-userauth"


class PromptTransport(ServiceRequestingTransport):
    """A connection that logs in right behind its request for the login service (RFC 4253, 10).

    Servers take what comes in order, and one that refuses the service hangs up. paramiko waits for the answer, its
    older class before each key. sshd then also says in one piece what it has to say, and a channel is confirmed a
    round trip sooner (decision 36).
    """

    def __init__(self, *wire: Any, **settings: Any) -> None:
        """Prefer ciphers with their own checksum: paramiko computes a separate one in Python."""
        super().__init__(*wire, **settings)
        self._has_asked = False
        security = self.get_security_options()
        quick = [cipher for cipher in security.ciphers if "gcm" in cipher]
        security.ciphers = (*quick, *(name for name in security.ciphers if name not in quick))

    def ensure_session(self) -> None:
        """Ask for the login service, once.

        Raises:
            paramiko.SSHException: the connection has ended.
        """
        if not self.is_active() or not self.initial_kex_done:
            raise paramiko.SSHException("No existing session")
        if self._has_asked:
            return
        self._has_asked = True
        request = paramiko.Message()
        request.add_byte(cMSG_SERVICE_REQUEST)
        request.add_string(LOGIN_SERVICE)
        sender: Any = self  # the stubs leave this method out
        sender._send_message(request)  # noqa: SLF001 - as above
        self.auth_handler = self.get_auth_handler()

    def get_auth_handler(self) -> AuthOnlyHandler:
        """What sends a login and waits for its answer."""
        return _Login(self)


class _Login(AuthOnlyHandler):
    """Hears an answer however early it comes: paramiko makes the event for it after the question was sent."""

    _answered: threading.Event | None = None

    def send_auth_request(self, *question: Any, **more: Any) -> list[str]:
        """Ask whether a login is let in, and wait for the answer."""
        self._answered = threading.Event()
        return super().send_auth_request(*question, **more)

    @property
    def auth_event(self) -> threading.Event | None:
        """Is set when the answer has come."""
        return self._answered

    @auth_event.setter
    def auth_event(self, event: threading.Event | None) -> None:
        """Do without paramiko's own, which comes too late."""
