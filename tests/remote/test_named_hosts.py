"""Hosts as -H names them."""

from __future__ import annotations

import pytest

from infra.errors import StackError
from infra.remote.named_hosts import named_hosts


@pytest.mark.parametrize(
    ("word", "name", "address", "port", "user"),
    [
        ("h1", "h1", "h1", 22, None),
        ("root@h1", "h1", "h1", 22, "root"),
        ("op@h1:2222", "h1:2222", "h1", 2222, "op"),
        ("10.0.0.7:22", "10.0.0.7:22", "10.0.0.7", 22, None),
        ("fe80::1", "fe80::1", "fe80::1", 22, None),
        ("op@[fe80::1]:2222", "[fe80::1]:2222", "fe80::1", 2222, "op"),
    ],
)
def test_a_word_is_user_host_and_port(
    word: str, name: str, address: str, port: int, user: str | None
) -> None:
    host = named_hosts(word)[name]
    assert (host.address, host.port, host.user) == (address, port, user)


def test_hosts_keep_their_order_and_take_the_keys() -> None:
    hosts = named_hosts("b, a,", ["~/.ssh/one", "two"])
    assert list(hosts) == ["b", "a"]
    assert hosts["a"].ssh_arguments == ("-i", "~/.ssh/one", "-i", "two")


@pytest.mark.parametrize(
    "text", ["", ",", "a,a", "a b", "@h", "h:", "h:0", "h:70000", "u@v@h", "a:b:"]
)
def test_what_names_no_host_is_refused(text: str) -> None:
    with pytest.raises(StackError):
        named_hosts(text)
