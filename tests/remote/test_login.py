"""Logging in: what is sent without waiting, and answers that come early."""

from __future__ import annotations

import getpass
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import paramiko
import pytest
from paramiko.common import cMSG_USERAUTH_REQUEST

from infra.remote import login
from infra.remote.connecting import SshOptions
from infra.remote.login import PromptTransport
from tests.remote.loopback_sshd import Sshd, inventory_host
from tests.remote.opened import open_host

FAR_S = 0.2


class FarWire:
    """Notes the order of what is sent and what has come; of that, the next `num_late` parts come late."""

    def __init__(self, port: int) -> None:
        self._inner = socket.create_connection(("127.0.0.1", port))
        self.events: list[str] = []
        self.num_late = 0
        self._closed = False  # paramiko's repr of a connection looks at it
        self.settimeout = self._inner.settimeout
        self.close = self._inner.close

    def send(self, data: bytes) -> int:
        self.events.append("sent")
        return self._inner.send(data)

    def recv(self, size: int) -> bytes:
        data = self._inner.recv(size)
        if self.num_late:
            self.num_late -= 1
            time.sleep(FAR_S)
        self.events.append("received")
        return data


class PromptServer(PromptTransport):
    """Stands for a server that answers a login before the question has been put away."""

    def __init__(self, end: socket.socket, *, lets_in: bool) -> None:
        super().__init__(end)
        self.active = self.initial_kex_done = True
        self.auth_timeout = 2.0
        self._lets_in = lets_in

    def _send_message(self, data: paramiko.Message) -> None:
        if data.asbytes()[:1] != cMSG_USERAUTH_REQUEST:
            return
        answer = paramiko.Message()
        answer.add_list(["password"])
        answer.add_boolean(b=False)
        answer.rewind()
        handler: Any = self.auth_handler  # the stubs leave these methods out
        if self._lets_in:
            handler._parse_userauth_success(answer)
        else:
            handler._parse_userauth_failure(answer)


def wait_for_extensions(transport: Any) -> None:  # the stubs leave this attribute out
    deadline = time.monotonic() + 20
    while not transport.server_extensions:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_the_login_follows_the_request_for_its_service_at_once(sshd: Sshd) -> None:
    far = FarWire(sshd.port)
    transport = PromptTransport(far)
    try:
        transport.start_client(timeout=20)
        # what the server says of its abilities comes by itself, once the keys are exchanged
        wait_for_extensions(transport)
        far.num_late = 1
        before = len(far.events)
        key = paramiko.Ed25519Key.from_private_key_file(str(sshd.folder / "login_key"))
        transport.auth_publickey(getpass.getuser(), key)
        assert transport.is_authenticated()
        assert far.events[before : before + 3] == ["sent", "sent", "received"]
    finally:
        transport.close()


def test_another_key_needs_no_other_request_for_the_service(sshd: Sshd) -> None:
    far = FarWire(sshd.port)
    transport = PromptTransport(far)
    try:
        transport.start_client(timeout=20)
        for name, is_let_in in (("stranger_key", False), ("login_key", True)):
            key = paramiko.Ed25519Key.from_private_key_file(str(sshd.folder / name))
            try:
                transport.auth_publickey(getpass.getuser(), key)
            except paramiko.AuthenticationException:
                assert not is_let_in
            assert transport.is_authenticated() == is_let_in
    finally:
        transport.close()


@pytest.fixture
def far_login(sshd: Sshd) -> Iterator[tuple[FarWire, PromptTransport]]:
    """A login on a wire on which the next that comes is late; what the server says of its keys has come."""
    far = FarWire(sshd.port)
    transport = PromptTransport(far)
    try:
        transport.start_client(timeout=20)
        key = paramiko.Ed25519Key.from_private_key_file(str(sshd.folder / "login_key"))
        transport.auth_publickey(getpass.getuser(), key)
        # answered in order, so what the server says of its keys by itself has come before it
        transport.global_request("nobody-knows@example.com", wait=True)
        far.num_late = 1
        yield far, transport
    finally:
        transport.close()


def output_of(transport: PromptTransport, command: str) -> bytes:
    channel = transport.start_command(command, window_bytes=None, timeout_s=20)
    with channel, channel.makefile("rb") as stream:
        return stream.read()


def test_the_first_command_follows_the_request_for_its_channel_at_once(
    far_login: tuple[FarWire, PromptTransport],
) -> None:
    far, transport = far_login
    before = len(far.events)
    assert output_of(transport, "echo first") == b"first\n"
    assert far.events[before : before + 3] == ["sent", "sent", "received"]


def test_a_later_command_waits_for_the_number_of_its_channel(
    far_login: tuple[FarWire, PromptTransport],
) -> None:
    far, transport = far_login
    with transport.open_session(timeout=20):
        far.num_late = 1
        before = len(far.events)
        assert output_of(transport, "echo second") == b"second\n"
        assert far.events[before : before + 2] == ["sent", "received"]


def test_servers_that_may_count_otherwise_are_asked_for_the_number(
    far_login: tuple[FarWire, PromptTransport],
) -> None:
    far, transport = far_login
    transport.remote_version = "SSH-2.0-dropbear_2022.83"
    before = len(far.events)
    assert output_of(transport, "echo first") == b"first\n"
    assert far.events[before : before + 2] == ["sent", "received"]


def test_commands_of_several_threads_keep_their_channels(
    far_login: tuple[FarWire, PromptTransport],
) -> None:
    far, transport = far_login
    far.num_late = 8  # a channel's number comes in two parts
    with ThreadPoolExecutor(4) as pool:
        asked = {number: pool.submit(output_of, transport, f"echo {number}") for number in range(4)}
        found = {number: each.result() for number, each in asked.items()}
    assert found == {number: b"%d\n" % number for number in range(4)}


def test_a_command_that_is_lost_with_its_connection_may_have_begun(
    far_login: tuple[FarWire, PromptTransport], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, transport = far_login
    monkeypatch.setattr(login, "FIRST_CHANNEL", 7)  # there is none of this number
    with pytest.raises(login.CommandLost):
        output_of(transport, "echo first")


class LateEvent(threading.Event):
    """Whoever waits for it looks late, as on a machine with much to do."""

    def wait(self, timeout: float | None = None) -> bool:
        time.sleep(2 * FAR_S)
        return super().wait(timeout)


def test_a_command_that_has_ended_before_its_channel_was_looked_for_is_heard(
    sshd: Sshd, options: SshOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = open_host(inventory_host(sshd), options)
    transport: Any = host.open()  # the stubs leave this method out
    own = SimpleNamespace(**{**vars(threading), "Event": LateEvent})
    monkeypatch.setattr("paramiko.transport.threading", own)
    forgotten = []
    unlink = transport._unlink_channel

    def forget(number: int) -> None:
        forgotten.append(number)
        unlink(number)

    monkeypatch.setattr(transport, "_unlink_channel", forget)
    try:
        done = host.run("echo ended; exit 7", timeout_s=20)
        assert (done.exit_code, done.stdout) == (7, b"ended\n")
        assert forgotten
    finally:
        host.close()


def test_a_server_that_only_calls_itself_one_that_counts_from_0_is_asked_for_the_number_then(
    sshd: Sshd, options: SshOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(login, "FIRST_CHANNEL", 7)
    ran = open_host(inventory_host(sshd), options)
    spoken = open_host(inventory_host(sshd), options)
    try:
        assert ran.run("echo first", timeout_s=20).exit_code is None  # unknown: it may have begun
        assert ran.run("echo second", timeout_s=20).stdout == b"second\n"
        talk = spoken.talk("cat")  # it waits to be told what to do: nothing was asked of it
        talk.close()
    finally:
        ran.close()
        spoken.close()


@pytest.fixture
def end() -> Iterator[socket.socket]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours


def test_an_answer_that_comes_early_is_heard(end: socket.socket) -> None:
    assert PromptServer(end, lets_in=True).auth_password("op", "secret") == []


def test_a_refusal_that_comes_early_is_one(end: socket.socket) -> None:
    with pytest.raises(paramiko.AuthenticationException, match=r"failed\.$"):
        PromptServer(end, lets_in=False).auth_password("op", "secret")
