"""What an SSH client needs to reach the hosts: configuration, keys, known hosts."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path

from infra.rehearsal.lab.hosts import HostKey, LabHost

CONFIG = "ssh_config"
KNOWN_HOSTS = "known_hosts"
LOGIN_KEY = "id_ed25519"
PROXY_PROGRAM = Path(__file__).with_name("proxy.py")

_HOST = """\
Host {name} {address}
  HostName {address}
  User {user}

"""
_ALL_HOSTS = """\
Host {names}
  IdentityFile {directory}/{login_key}
  IdentitiesOnly yes
  UserKnownHostsFile {directory}/{known_hosts}
  GlobalKnownHostsFile /dev/null
  StrictHostKeyChecking yes
  UpdateHostKeys no
  PasswordAuthentication no
  KexAlgorithms curve25519-sha256
  ProxyCommand {proxy}
  ProxyUseFdpass yes
"""


def write_ssh_files(
    directory: Path,
    control_socket: Path,
    hosts: tuple[LabHost, ...],
    keys: Mapping[str, HostKey],
    login_key: HostKey,
) -> None:
    """Write them into the lab's folder.

    Args:
        directory: the lab's folder.
        control_socket: where the lab hands out connections.
        hosts: all of them.
        keys: host key by host name.
        login_key: accepted by every account.
    """
    identity = directory / LOGIN_KEY
    identity.touch(mode=0o600)
    identity.write_text(login_key.private)
    identity.with_suffix(".pub").write_text(login_key.public + "\n")
    (directory / KNOWN_HOSTS).write_text(
        "".join(f"{host.name},{host.address} {keys[host.name].public}\n" for host in hosts)
    )
    sections = [
        _HOST.format(
            name=host.name,
            address=host.address,
            user=host.users[0].name if host.users else "root",
        )
        for host in hosts
    ]
    sections.append(
        _ALL_HOSTS.format(
            names=" ".join(f"{host.name} {host.address}" for host in hosts),
            directory=str(directory).replace("%", "%%"),
            login_key=LOGIN_KEY,
            known_hosts=KNOWN_HOSTS,
            proxy=_proxy_command(control_socket),
        )
    )
    (directory / CONFIG).write_text("".join(sections))


def _proxy_command(control_socket: Path) -> str:
    python = os.path.realpath(sys.executable)  # past the virtual environment: nothing of it is used
    words = (python, "-I", "-S", str(PROXY_PROGRAM), str(control_socket))
    return shlex.join(words).replace("%", "%%") + " %h %p"
