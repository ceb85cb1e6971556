"""paramiko's connection as this project makes it: quick ciphers, and two round trips less until a command runs."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import paramiko
from paramiko.auth_handler import AuthOnlyHandler
from paramiko.common import cMSG_CHANNEL_OPEN, cMSG_CHANNEL_REQUEST, cMSG_SERVICE_REQUEST
from paramiko.transport import ServiceRequestingTransport

LOGIN_SERVICE = "ssh-userauth"
# Its channels have the lowest number that is free (channels.c, channel_new; 1.2.1 of 1999 to 10.2): the first is 0.
COUNTS_FROM_ZERO = "SSH-2.0-OpenSSH_"
FIRST_CHANNEL = 0


class CommandLost(Exception):
    """A command was asked for, and whether it was started is not known."""


class PromptTransport(ServiceRequestingTransport):
    """A connection that logs in right behind its request for the login service (RFC 4253, 10).

    Servers take what comes in order, and one that refuses the service hangs up. paramiko waits for the answer, its
    older class before each key. sshd then also says in one piece what it has to say, and a channel is confirmed a
    round trip sooner. The first command follows the request for its channel in the same way (decision 36).
    """

    def __init__(self, *wire: Any, **settings: Any) -> None:
        """Prefer ciphers with their own checksum: paramiko computes a separate one in Python."""
        super().__init__(*wire, **settings)
        self._has_asked = False
        self._opening = threading.Lock()
        self._has_opened = False
        self._following = threading.local()
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

    def start_command(
        self, command: str, *, window_bytes: int | None, timeout_s: float, sends_ahead: bool = True
    ) -> paramiko.Channel:
        """A channel on which a command was started.

        Args:
            command: shell text.
            window_bytes: how much of its output may be on its way unread, None for paramiko's own measure.
            timeout_s: until the channel is there.
            sends_ahead: whether the first command may follow the request for its channel.

        Raises:
            CommandLost: the connection ended when the command had been asked for.
            paramiko.SSHException: the server gives no channel; nothing was started.
        """
        self._following.command = command if sends_ahead else None
        self._following.channel = None
        try:
            channel = self.open_session(window_size=window_bytes, timeout=timeout_s)
            is_asked = sends_ahead and self._following.command is None
        except paramiko.ChannelException:
            raise
        except (paramiko.SSHException, EOFError, OSError) as error:
            ended = self._following.channel
            if not sends_ahead or self._following.command is not None:
                raise  # the command was not asked for
            if ended is None or not ended.event_ready:
                raise CommandLost(str(error)) from error
            channel, is_asked = (
                ended,
                True,
            )  # paramiko forgets a channel whose command has ended already
        finally:
            self._following.command = self._following.channel = None
        try:
            if is_asked:
                inner: Any = channel  # the stubs leave this method out
                inner._wait_for_event()  # noqa: SLF001 - as above
            else:
                channel.exec_command(command)
        except (paramiko.SSHException, EOFError, OSError) as error:
            channel.close()
            raise CommandLost(str(error)) from error
        return channel

    def _send_user_message(self, data: paramiko.Message) -> None:
        """Send a message; behind the first request for a channel the command that it is wanted for."""
        send: Callable[[paramiko.Message], None] = super()._send_user_message  # type: ignore[misc]  # not in the stubs
        if not data.asbytes().startswith(cMSG_CHANNEL_OPEN):
            send(data)
            return
        with self._opening:  # nobody else's channel becomes the first in between
            is_first, self._has_opened = not self._has_opened, True
            send(data)
            command = getattr(self._following, "command", None)
            counts = self.remote_version.startswith(COUNTS_FROM_ZERO)
            if is_first and counts and command is not None and self.is_active():
                self._following.command = None
                inner: Any = self  # the stubs leave its channels out
                self._following.channel = inner._channels.get(_own_number(data))  # noqa: SLF001
                send(_exec_request(FIRST_CHANNEL, command))

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


def _own_number(opening: paramiko.Message) -> int:
    """Our number of the channel that a request opens (RFC 4254, 5.1)."""
    read = paramiko.Message(opening.asbytes())
    read.get_byte()
    read.get_text()
    return read.get_int()


def _exec_request(channel: int, command: str) -> paramiko.Message:
    """The request to start a command on a channel, by the server's number of it (RFC 4254, 6.5)."""
    request = paramiko.Message()
    request.add_byte(cMSG_CHANNEL_REQUEST)
    request.add_int(channel)
    request.add_string("exec")
    request.add_boolean(b=True)
    request.add_string(command)
    return request
