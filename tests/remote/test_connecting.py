"""Connections to a real sshd: which keys are believed, which ways lead there, what a failure says."""

from __future__ import annotations

import logging
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from infra.remote.connecting import SshOptions
from infra.remote.corrections import ToldBy
from infra.remote.failures import HostKeyChanged, HostKeyUnknown, LoginRefused, Unreachable
from infra.remote.ssh_target import SshDefaults
from tests.naming import in_time
from tests.ports import free_port
from tests.remote.conftest import run_sshd
from tests.remote.loopback_sshd import Sshd, inventory_host
from tests.remote.opened import open_host

PASS_SOCKET = """\
import array, socket, sys
made = socket.create_connection((sys.argv[1], int(sys.argv[2])))
out = socket.socket(fileno=1)
out.sendmsg([b"\\0"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [made.fileno()]))])
"""
CARRY = """\
import os, select, socket, sys
made = socket.create_connection((sys.argv[1], int(sys.argv[2])))
while True:
    ready, _, _ = select.select([0, made], [], [])
    for one in ready:
        data = os.read(0, 65536) if one == 0 else made.recv(65536)
        if not data:
            sys.exit()
        made.sendall(data) if one == 0 else os.write(1, data)
"""


def says_hello(sshd: Sshd, options: SshOptions, **changes: object) -> bool:
    host = open_host(inventory_host(sshd, "loop-0", **changes), options)
    try:
        return host.run("echo hello", timeout_s=10).stdout == b"hello\n"
    finally:
        host.close()


def known_hosts(folder: Path, line: str) -> tuple[str, ...]:
    (folder / "known_hosts").write_text(line + "\n")
    return ("-o", f"UserKnownHostsFile={folder / 'known_hosts'}")


def test_the_key_of_the_inventory_is_believed(sshd: Sshd, options: SshOptions) -> None:
    assert says_hello(sshd, options)


@pytest.mark.fault
def test_another_key_than_the_inventory_s_is_refused(sshd: Sshd, options: SshOptions) -> None:
    with in_time(), pytest.raises(HostKeyChanged, match="known is ssh-ed25519 SHA256:") as caught:
        says_hello(sshd, options, host_key=sshd.public("stranger_key"))
    assert "moe.host_key" in caught.value.fix
    assert caught.value.exit_code == 4


@pytest.mark.fault
def test_an_unknown_key_is_refused_and_its_line_is_given(sshd: Sshd, options: SshOptions) -> None:
    with in_time(), pytest.raises(HostKeyUnknown, match="is not known") as caught:
        says_hello(sshd, options, host_key=None)
    assert sshd.public("host_key") in caught.value.fix


def test_known_hosts_decides_where_the_inventory_is_silent(
    sshd: Sshd, options: SshOptions, tmp_path: Path
) -> None:
    words = known_hosts(tmp_path, f"[127.0.0.1]:{sshd.port} {sshd.public('host_key')}")
    assert says_hello(sshd, options, host_key=None, ssh_arguments=words)


@pytest.mark.fault
def test_a_changed_key_names_the_way_out(sshd: Sshd, options: SshOptions, tmp_path: Path) -> None:
    words = known_hosts(tmp_path, f"[127.0.0.1]:{sshd.port} {sshd.public('stranger_key')}")
    with in_time(), pytest.raises(HostKeyChanged) as caught:
        says_hello(sshd, options, host_key=None, ssh_arguments=words)
    assert f"ssh-keygen -R '[127.0.0.1]:{sshd.port}' -f " in caught.value.fix
    subprocess.run(["sh", "-c", caught.value.fix.split("`")[1]], check=True)
    trusting = SshOptions(defaults=SshDefaults(accept_new=True))
    assert says_hello(sshd, trusting, host_key=None, ssh_arguments=words)


@pytest.mark.parametrize("is_first", [True, False])
def test_a_host_may_show_any_of_the_keys_that_are_known_of_it(
    sshd: Sshd, options: SshOptions, tmp_path: Path, is_first: bool
) -> None:
    """A key from before the host was installed anew lies in another file, or in the same one still."""
    lines = [
        f"[127.0.0.1]:{sshd.port} {sshd.public(name)}" for name in ("host_key", "stranger_key")
    ]
    words = known_hosts(tmp_path, "\n".join(lines if is_first else reversed(lines)))
    assert says_hello(sshd, options, host_key=None, ssh_arguments=words)
    revoked = known_hosts(tmp_path, "\n".join([*lines, f"@revoked {lines[0]}"]))
    with pytest.raises(HostKeyChanged):
        says_hello(sshd, SshOptions(), host_key=None, ssh_arguments=revoked)


def test_a_revoked_key_is_refused_even_on_first_contact(sshd: Sshd, tmp_path: Path) -> None:
    line = f"@revoked [127.0.0.1]:{sshd.port} {sshd.public('host_key')}"
    words = known_hosts(tmp_path, line)
    options = SshOptions(defaults=SshDefaults(accept_new=True))
    with pytest.raises(HostKeyChanged, match="revoked"):
        says_hello(sshd, options, host_key=None, ssh_arguments=words)


def test_accept_new_remembers_the_key_once(sshd: Sshd, tmp_path: Path) -> None:
    file = tmp_path / "deeper" / "known_hosts"
    words = ("-o", f"UserKnownHostsFile={file}")
    first = SshOptions(defaults=SshDefaults(accept_new=True))
    assert says_hello(sshd, first, host_key=None, ssh_arguments=words)
    assert says_hello(sshd, SshOptions(), host_key=None, ssh_arguments=words)
    assert len(file.read_text().splitlines()) == 1


@pytest.mark.fault
def test_another_key_than_the_one_accepted_earlier_in_the_run_is_refused(
    sshd: Sshd, tmp_path: Path
) -> None:
    file = tmp_path / "known_hosts"
    words = ("-o", f"UserKnownHostsFile={file}", "-o", "HostKeyAlias=loop-0")
    options = SshOptions(defaults=SshDefaults(accept_new=True))
    (tmp_path / "another").mkdir()
    with run_sshd(tmp_path / "another", "") as another:
        for _ in range(2):
            assert says_hello(sshd, options, host_key=None, ssh_arguments=words)
        with in_time(), pytest.raises(HostKeyChanged, match="has changed"):
            says_hello(another, options, host_key=None, ssh_arguments=words)
    assert file.read_text() == f"loop-0 {sshd.public('host_key')}\n"


def test_a_login_that_is_not_accepted_names_the_key(sshd: Sshd, options: SshOptions) -> None:
    stranger = str(sshd.folder / "stranger_key")
    with pytest.raises(LoginRefused) as caught:
        says_hello(sshd, options, private_key_file=stranger)
    assert stranger in caught.value.what


def test_a_key_that_is_not_there_is_named(sshd: Sshd, options: SshOptions) -> None:
    with pytest.raises(LoginRefused, match="no private key is there"):
        says_hello(sshd, options, private_key_file="/nowhere/id_ed25519")


@pytest.mark.parametrize(
    ("told_by", "says"),
    [
        ("inventory", ["ansible_user", "ansible_ssh_private_key_file", "moe.host_key: "]),
        ("command line", ["-H USER@HOST", "-i (or", "add the line [127.0.0.1]:"]),
        ("bastion", ["-J USER@HOST", "the key of the hosts behind", "add the line [127.0.0.1]:"]),
    ],
)
def test_what_to_correct_stands_where_the_host_is_told(
    sshd: Sshd, told_by: ToldBy, says: list[str]
) -> None:
    options = SshOptions(defaults=SshDefaults(told_by=told_by))
    with pytest.raises(LoginRefused) as refused:
        says_hello(sshd, options, private_key_file=str(sshd.folder / "stranger_key"))
    with pytest.raises(LoginRefused) as absent:
        says_hello(sshd, options, private_key_file="/nowhere/id_ed25519")
    with pytest.raises(HostKeyUnknown) as unknown:
        says_hello(sshd, options, host_key=None)
    assert says[0] in refused.value.fix
    assert says[1] in refused.value.fix
    assert says[1] in absent.value.fix
    assert says[2] in unknown.value.fix
    told = refused.value.fix + absent.value.fix + unknown.value.fix
    assert ("ansible_" in told, "inventory" in told) == ((told_by == "inventory"),) * 2


def test_a_bastion_of_an_unknown_key_is_no_host_of_the_inventory(
    sshd: Sshd, options: SshOptions, tmp_path: Path
) -> None:
    file = tmp_path / "known_hosts"
    config = tmp_path / "ssh_config"
    config.write_text(
        f"Host gate\n  HostName 127.0.0.1\n  Port {sshd.port}\n  UserKnownHostsFile {file}\n"
    )
    words = ("-F", str(config), "-J", "gate")
    with pytest.raises(HostKeyUnknown, match="bastion gate") as caught:
        says_hello(sshd, options, ssh_arguments=words)
    line = f"[127.0.0.1]:{sshd.port} {sshd.public('host_key')}"
    assert f"add the line {line} to {file}" in caught.value.fix


def test_a_key_that_is_garbage_is_named(sshd: Sshd, options: SshOptions, tmp_path: Path) -> None:
    (tmp_path / "id").write_text("garbage\n")
    with pytest.raises(LoginRefused, match="cannot be used"):
        says_hello(sshd, options, private_key_file=str(tmp_path / "id"))


@pytest.mark.fault
def test_a_refused_connection_says_so(sshd: Sshd, options: SshOptions) -> None:
    port = free_port()
    with in_time(), pytest.raises(Unreachable, match=f"127.0.0.1 port {port} refuses"):
        says_hello(sshd, options, port=port)


@pytest.mark.fault
def test_a_busy_sshd_is_tried_again(sshd: Sshd, options: SshOptions) -> None:
    with hangs_up_first(sshd.port, times=2) as port:
        assert says_hello(sshd, options, port=port)


@pytest.mark.fault
def test_a_host_that_says_nothing_is_not_waited_for_twice(sshd: Sshd) -> None:
    options = SshOptions(defaults=SshDefaults(greeting_timeout_s=0.3))
    with socket.create_server(("127.0.0.1", 0)) as frozen:
        port = frozen.getsockname()[1]
        with in_time(), pytest.raises(Unreachable, match=r"no SSH greeting in 0\.3 s"):
            says_hello(sshd, options, port=port)


def test_every_named_key_is_tried(sshd: Sshd, options: SshOptions) -> None:
    words = ("-i", str(sshd.folder / "login_key"))
    stranger = str(sshd.folder / "stranger_key")
    assert says_hello(sshd, options, private_key_file=stranger, ssh_arguments=words)


def test_paramiko_prints_nothing_by_itself() -> None:
    assert logging.getLogger("paramiko").handlers


def test_a_proxy_command_carries_the_bytes(sshd: Sshd, options: SshOptions, tmp_path: Path) -> None:
    (tmp_path / "carry.py").write_text(CARRY)
    words = ("-o", f"ProxyCommand={sys.executable} -I {tmp_path / 'carry.py'} %h %p")
    assert says_hello(sshd, options, ssh_arguments=words)


def test_a_proxy_command_hands_its_socket_over(
    sshd: Sshd, options: SshOptions, tmp_path: Path
) -> None:
    (tmp_path / "pass.py").write_text(PASS_SOCKET)
    command = f"{sys.executable} -I {tmp_path / 'pass.py'} %h %p"
    words = ("-o", f"ProxyCommand={command}", "-o", "ProxyUseFdpass=yes")
    assert says_hello(sshd, options, ssh_arguments=words)


def test_a_proxy_that_fails_is_quoted(sshd: Sshd, options: SshOptions, tmp_path: Path) -> None:
    (tmp_path / "no.py").write_text("import sys; sys.exit('the tunnel is down')")
    command = f"{sys.executable} -I {tmp_path / 'no.py'}"
    words = ("-o", f"ProxyCommand={command}", "-o", "ProxyUseFdpass=yes")
    with pytest.raises(Unreachable, match="the tunnel is down"):
        says_hello(sshd, options, ssh_arguments=words)


@pytest.mark.parametrize("passes", ["yes", "no"])
@pytest.mark.parametrize("command", ["/no/such/program", "nc 'x"], ids=["absent", "unclosed"])
def test_a_proxy_that_cannot_be_started_is_told(
    sshd: Sshd, options: SshOptions, command: str, passes: str
) -> None:
    words = ("-o", f"ProxyCommand={command}", "-o", f"ProxyUseFdpass={passes}")
    with pytest.raises(Unreachable, match="its ProxyCommand cannot be started"):
        says_hello(sshd, options, ssh_arguments=words)


@pytest.mark.parametrize("name", ["a..b", f"{'x' * 70}.example.com"])
def test_a_name_that_no_host_can_have_is_out_of_reach(
    sshd: Sshd, options: SshOptions, name: str
) -> None:
    with pytest.raises(Unreachable, match="cannot be resolved"):
        says_hello(sshd, options, ssh_arguments=("-o", f"HostName={name}"))


def test_two_hosts_behind_a_bastion_share_its_connection(
    sshd: Sshd, options: SshOptions, tmp_path: Path
) -> None:
    names = f"[127.0.0.1]:{sshd.port}"
    line = known_hosts(tmp_path, f"{names} {sshd.public('host_key')}")[1]
    config = tmp_path / "ssh_config"
    config.write_text(
        f"Host gate\n  HostName 127.0.0.1\n  Port {sshd.port}\n"
        f"Host *\n  {line.replace('=', ' ')}\n  IdentityFile {sshd.folder / 'login_key'}\n"
    )
    words = ("-F", str(config), "-J", "gate")
    hosts = [
        open_host(inventory_host(sshd, name, ssh_arguments=words), options)
        for name in ("one", "two")
    ]
    told = [host.run("echo $PPID; echo $SSH_CONNECTION", timeout_s=10).stdout for host in hosts]
    assert all(b"127.0.0.1" in words for words in told)
    assert gate_connections(sshd) == 1
    for host in hosts:
        host.close()


def test_a_bastion_that_is_down_is_waited_for_once(
    sshd: Sshd, options: SshOptions, tmp_path: Path
) -> None:
    config = tmp_path / "ssh_config"
    config.write_text(f"Host gate\n  HostName 127.0.0.1\n  Port {free_port()}\n")
    words = ("-F", str(config), "-J", "gate")
    for name in ("one", "two"):
        with pytest.raises(Unreachable, match="refuses connections"):
            open_host(inventory_host(sshd, name, ssh_arguments=words), options)


def test_a_host_that_the_bastion_cannot_reach_is_named(
    sshd: Sshd, options: SshOptions, tmp_path: Path
) -> None:
    line = known_hosts(tmp_path, f"[127.0.0.1]:{sshd.port} {sshd.public('host_key')}")[1]
    config = tmp_path / "ssh_config"
    config.write_text(
        f"Host gate\n  HostName 127.0.0.1\n  Port {sshd.port}\n  {line.replace('=', ' ')}\n"
    )
    words = ("-F", str(config), "-J", "gate")
    port = free_port()
    with pytest.raises(Unreachable, match=f"bastion gate reaches no 127.0.0.1 port {port}"):
        open_host(inventory_host(sshd, port=port, ssh_arguments=words), options)


def test_an_ssh_config_alone_is_enough(sshd: Sshd, options: SshOptions, tmp_path: Path) -> None:
    line = known_hosts(tmp_path, f"[127.0.0.1]:{sshd.port} {sshd.public('host_key')}")[1]
    config = tmp_path / "ssh_config"
    config.write_text(
        f"Host loop-alias\n  HostName 127.0.0.1\n  Port {sshd.port}\n  {line.replace('=', ' ')}\n"
        f"  IdentityFile {sshd.folder / 'login_key'}\n  IdentitiesOnly yes\n"
    )
    assert says_hello(
        sshd,
        options,
        address="loop-alias",
        port=22,
        host_key=None,
        private_key_file=None,
        ssh_arguments=("-F", str(config)),
    )


def test_no_descriptor_is_left_by_many_commands(sshd: Sshd, options: SshOptions) -> None:
    host = open_host(inventory_host(sshd), options)
    host.run("true", timeout_s=10)
    before = len(descriptors())
    for _ in range(10):
        host.run("true", timeout_s=10)
    assert len(descriptors()) <= before + 1
    host.close()


def gate_connections(sshd: Sshd) -> int:
    """Connections from this process straight to the sshd (those behind a bastion come from sshd itself)."""
    mine = 0
    inodes = set(descriptors())
    for line in Path("/proc/self/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        is_ours = f"socket:[{fields[9]}]" in inodes
        if is_ours and fields[3] == "01" and int(fields[2].split(":")[1], 16) == sshd.port:
            mine += 1
    return mine


def descriptors() -> list[str]:
    """What each open descriptor of this process is."""
    links = []
    for link in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # the one that listed the folder
            links.append(str(link.readlink()))
    return links


@contextmanager
def hangs_up_first(target_port: int, times: int) -> Iterator[int]:
    """A port that hangs up before any greeting, as MaxStartups does, then leads to a real sshd."""
    listener = socket.create_server(("127.0.0.1", 0))
    opened: list[socket.socket] = []

    def serve() -> None:
        for turn in range(times + 1):
            client, _ = listener.accept()
            if turn < times:
                client.close()
                continue
            server = socket.create_connection(("127.0.0.1", target_port))
            opened.extend((client, server))
            for source, sink in ((client, server), (server, client)):
                threading.Thread(target=_pump, args=(source, sink), daemon=True).start()

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    yield listener.getsockname()[1]
    thread.join(timeout=5)
    listener.close()
    for one in opened:
        one.close()


def _pump(source: socket.socket, sink: socket.socket) -> None:
    try:
        while data := source.recv(65536):
            sink.sendall(data)
        sink.shutdown(socket.SHUT_WR)
    except OSError:
        return


def test_a_proxy_command_that_dies_in_the_middle_is_noticed_at_once(
    sshd: Sshd, options: SshOptions, tmp_path: Path
) -> None:
    (tmp_path / "carry.py").write_text(
        f"import os\nopen({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid()))\n{CARRY}"
    )
    words = ("-o", f"ProxyCommand={sys.executable} -I {tmp_path / 'carry.py'} %h %p")
    host = open_host(inventory_host(sshd, ssh_arguments=words), options)
    proxy = int((tmp_path / "pid").read_text())
    begun = time.monotonic()
    outcome = host.run(f"kill {proxy}; sleep 20", timeout_s=30)
    assert outcome.exit_code is None
    assert time.monotonic() - begun < 5
    host.close()
