"""The guards of conftest.py bite."""

from __future__ import annotations

import os
import socket
import time
from pathlib import Path

import pytest


def test_a_connection_beyond_loopback_is_refused() -> None:
    with socket.socket() as plug, pytest.raises(AssertionError, match="only loopback"):
        plug.connect(("192.0.2.1", 80))


def test_a_name_look_up_is_refused() -> None:
    with pytest.raises(AssertionError, match="no name is known"):
        socket.getaddrinfo("example.com", 80)


def test_loopback_works() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname(), timeout=5) as client,
    ):
        assert client.getpeername() == server.getsockname()


def test_the_developers_ssh_configuration_is_not_read() -> None:
    with pytest.raises(AssertionError, match="ssh/config"):
        Path("~/.ssh/config").expanduser().open(encoding="utf-8")


def test_a_long_sleep_is_refused() -> None:
    with pytest.raises(AssertionError, match="sleeps"):
        time.sleep(60)


def test_no_cloud_account_is_seen() -> None:
    assert not [name for name in os.environ if name.startswith(("AWS_", "PULUMI_"))]
    assert "KUBECONFIG" not in os.environ
