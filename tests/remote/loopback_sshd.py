"""A real sshd on loopback with keys of its own; it needs no root and touches nothing of the machine's."""

from __future__ import annotations

import getpass
import os
import shutil
import socket
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from infra.inventory.hosts import InventoryHost
from tests.ports import free_port

CONFIG = """\
ListenAddress 127.0.0.1:{port}
HostKey {folder}/host_key
AuthorizedKeysFile {folder}/authorized_keys
PidFile none
UsePAM no
StrictModes no
PasswordAuthentication no
KbdInteractiveAuthentication no
AllowTcpForwarding yes
LogLevel VERBOSE
{startups}
SetEnv HOME={folder}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sshd:
    """A running sshd.

    Args:
        folder: its keys: `host_key`, `login_key`, `stranger_key` (not authorized), each with `.pub`.
        port: where it listens on 127.0.0.1.
    """

    folder: Path
    port: int

    def public(self, name: str) -> str:
        """The public line of a key, without its comment."""
        return " ".join((self.folder / f"{name}.pub").read_text().split()[:2])


def program() -> str | None:
    """The sshd of this machine, None when there is none."""
    return shutil.which("sshd", path=os.environ["PATH"] + ":/usr/sbin:/usr/local/sbin")


def start(folder: Path, startups: str) -> tuple[Sshd, subprocess.Popen[bytes]]:
    """Start one and wait until it greets."""
    sshd = program()
    assert sshd is not None
    for name in ("host_key", "login_key", "stranger_key"):
        argv = [
            "ssh-keygen",
            "-q",
            "-t",
            "ed25519",
            "-N",
            "",
            "-C",
            "test",
            "-f",
            str(folder / name),
        ]
        subprocess.run(argv, check=True)
    shutil.copy(folder / "login_key.pub", folder / "authorized_keys")
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(
            mode=0o755, exist_ok=True
        )  # sshd refuses to start as root without it
    port = free_port()
    (folder / "sshd_config").write_text(CONFIG.format(port=port, folder=folder, startups=startups))
    process = subprocess.Popen(
        [sshd, "-D", "-f", str(folder / "sshd_config"), "-E", str(folder / "log")],
        stdin=subprocess.DEVNULL,
    )
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline and process.poll() is None:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return Sshd(folder=folder, port=port), process
        time.sleep(0.02)
    process.kill()
    process.wait()
    raise AssertionError((folder / "log").read_text())


def inventory_host(sshd: Sshd, name: str = "loop-0", **changes: object) -> InventoryHost:
    """The sshd as a host of an inventory; `changes` replace fields."""
    fields: dict[str, object] = {
        "name": name,
        "groups": (),
        "address": "127.0.0.1",
        "service_address": "127.0.0.1",
        "port": sshd.port,
        "user": getpass.getuser(),
        "private_key_file": str(sshd.folder / "login_key"),
        "ssh_arguments": ("-o", f"UserKnownHostsFile={sshd.folder / 'no_known_hosts'}"),
        "host_key": sshd.public("host_key"),
        "interface": "lo",
        "rdma_devices": (),
        "instance_id": None,
        **changes,
    }
    return InventoryHost(**fields)  # type: ignore[arg-type]
