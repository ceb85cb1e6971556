"""The inventory, ssh arguments and ssh_config joined into one way to a host."""

from __future__ import annotations

from pathlib import Path

import pytest

from infra.errors import StackError
from infra.inventory.hosts import InventoryHost
from infra.remote.ssh_config import SshConfigFile
from infra.remote.ssh_target import (
    SshDefaults,
    SshTarget,
    bastion_of,
    parse_arguments,
    resolve_target,
)

HOST = {
    "name": "prefill-0",
    "groups": (),
    "address": "192.0.2.1",
    "service_address": "192.0.2.1",
    "port": 22,
    "user": "op",
    "private_key_file": None,
    "ssh_arguments": (),
    "host_key": None,
    "interface": "eth0",
    "rdma_devices": (),
    "instance_id": None,
}


def resolve(*, accept_new: bool = False, **changes: object) -> SshTarget:
    host = InventoryHost(**{**HOST, **changes})  # type: ignore[arg-type]
    return resolve_target(host, SshDefaults(accept_new=accept_new), SshConfigFile.read)


def config_of(folder: Path, text: str) -> tuple[str, ...]:
    (folder / "ssh_config").write_text(text)
    return ("-F", str(folder / "ssh_config"))


def test_the_inventory_alone_is_enough() -> None:
    target = resolve(private_key_file="/keys/id", port=2222)
    assert (target.host, target.port, target.user) == ("192.0.2.1", 2222, "op")
    assert target.identity_files == (Path("/keys/id"),)
    assert target.host_key_name == "[192.0.2.1]:2222"
    assert not target.accept_new


def test_arguments_beat_the_config_and_the_inventory_beats_both(tmp_path: Path) -> None:
    words = config_of(tmp_path, "Host *\n  Port 2000\n  User nobody\n  HostName 192.0.2.9\n")
    target = resolve(ssh_arguments=(*words, "-o", "Port=2001", "-o", "User=else"))
    assert (target.host, target.port, target.user) == ("192.0.2.9", 2001, "op")
    assert resolve(port=2222, ssh_arguments=words).port == 2222


def test_the_config_is_looked_up_by_address_as_ssh_would(tmp_path: Path) -> None:
    words = config_of(tmp_path, "Host prefill-0 192.0.2.1\n  ProxyCommand dial %h %p\n")
    target = resolve(ssh_arguments=words)
    assert target.proxy_command == "dial 192.0.2.1 22"


def test_known_hosts_files_and_aliases_are_honoured(tmp_path: Path) -> None:
    words = ("-oUserKnownHostsFile=/a /b", "-o", "GlobalKnownHostsFile none", "-oHostKeyAlias=x")
    target = resolve(ssh_arguments=words)
    assert target.known_hosts_files == (Path("/a"), Path("/b"))
    assert target.host_key_name == "x"


def test_accept_new_is_explicit() -> None:
    assert resolve(accept_new=True).accept_new
    assert resolve(ssh_arguments=("-o", "StrictHostKeyChecking=accept-new")).accept_new
    assert not resolve(ssh_arguments=("-o", "StrictHostKeyChecking=yes")).accept_new


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("-o", "StrictHostKeyChecking=no"), "any machine pass"),
        (("-X",), "'-X' is not understood"),
        (("-o",), "lacks its value"),
        (("-o", "LocalForward=1"), "'localforward' is not honoured"),
        (("-F", "/nowhere/ssh_config"), "there is no ssh_config"),
        (("-F", "/"), "cannot be read"),
        (("-o", "Port=http"), "port 'http' is not a whole number"),
        (("-o", "ConnectTimeout=0"), "connecttimeout '0' is not a whole number"),
    ],
)
def test_a_wrong_argument_is_the_inventory_s_fault(words: tuple[str, ...], message: str) -> None:
    with pytest.raises(StackError, match=message) as caught:
        resolve(ssh_arguments=words)
    assert caught.value.where == "inventory host prefill-0"
    assert caught.value.exit_code == 2


def test_harmless_arguments_are_passed_over() -> None:
    words = ("-o", "ControlMaster=auto", "-o", "ControlPersist=60s", "-o", "LogLevel ERROR")
    assert parse_arguments("x", words) == {}


def test_zero_arguments_are_no_settings() -> None:
    assert parse_arguments("x", ()) == {}


def test_bastions_are_crossed_in_order() -> None:
    target = resolve(ssh_arguments=("-J", "me@gate:2222,inner"))
    inner = bastion_of(target)
    assert inner is not None
    assert (inner.address, inner.port, inner.user) == ("inner", 22, None)
    outer = resolve(ssh_arguments=inner.ssh_arguments)
    gate = bastion_of(outer)
    assert gate is not None
    assert (gate.address, gate.port, gate.user) == ("gate", 2222, "me")
    assert bastion_of(resolve(ssh_arguments=gate.ssh_arguments)) is None


@pytest.mark.parametrize(
    ("jump", "user", "address", "port"),
    [
        ("gate", None, "gate", 22),
        ("[2001:db8::1]", None, "2001:db8::1", 22),
        ("2001:db8::1", None, "2001:db8::1", 22),
        ("me@[2001:db8::1]:2222", "me", "2001:db8::1", 2222),
        ("ssh://me@gate:2222", "me", "gate", 2222),
    ],
)
def test_a_bastion_is_user_host_and_port(
    jump: str, user: str | None, address: str, port: int
) -> None:
    gate = bastion_of(resolve(ssh_arguments=("-J", jump)))
    assert gate is not None
    assert (gate.user, gate.address, gate.port) == (user, address, port)


@pytest.mark.parametrize("jump", ["gate:x", "gate:", "gate:99999", "gate:²", "a b", "one,"])
def test_a_bastion_that_is_no_host_is_refused(jump: str) -> None:
    with pytest.raises(StackError, match="is no host"):
        resolve(ssh_arguments=("-J", jump))


@pytest.mark.parametrize("port", ["99999", "²", "0"])
def test_a_port_that_is_none_is_refused(port: str) -> None:
    with pytest.raises(StackError):
        resolve(ssh_arguments=("-p", port))
