"""Hosts of a plan from elsewhere: their root is nobody of the machine, and holds nothing of it."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from infra.rehearsal.lab import user_range
from infra.rehearsal.lab.client import Lab
from infra.rehearsal.lab.errors import LabError
from infra.rehearsal.lab.hosts import Bind, LabHost
from infra.rehearsal.lab.starting import start_lab

pytestmark = [pytest.mark.lab, pytest.mark.slow]  # one host that all tests share, which boots twice

BOOT_LIMIT_S = 20.0
DEVICES = {"null", "zero", "full", "random", "urandom", "tty", "davinci0"}


@pytest.fixture(scope="module")
def lent(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("lent")
    (folder / "program").write_text("of the machine\n")
    (folder / "program").chmod(0o600)
    return folder


@pytest.fixture(scope="module")
def canary(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A file of the machine's own /etc."""
    path = Path(f"/etc/moe-lab-canary-{os.getpid()}")
    path.write_text("as it was\n")
    yield path
    path.unlink()


@pytest.fixture(scope="module")
def lab(
    lab_is_possible: None, lent: Path, canary: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Lab]:
    host = LabHost(
        name="unified-0",
        address="192.0.2.1",
        device_nodes=("/dev/davinci0",),
        binds=(Bind(source=str(lent), target="/opt/lent"),),
    )
    directory = tmp_path_factory.mktemp("rehearsal") / "lab"
    with start_lab(directory, (host,), strangers="yes") as running:
        running.wait_ready(BOOT_LIMIT_S)
        yield running


@pytest.fixture
def sh(lab: Lab) -> Callable[[str], tuple[int, str]]:
    """What root on the host is told by its shell."""

    def call(script: str) -> tuple[int, str]:
        done = lab.run("unified-0", ["sh", "-c", script])
        return done.returncode, (done.stdout + done.stderr).decode()

    return call


Sh = Callable[[str], tuple[int, str]]


def test_its_root_is_nobody_of_the_machine(sh: Sh) -> None:
    assert sh("cat /proc/self/uid_map")[1].split() == ["0", str(user_range.FIRST), "65536"]
    assert sh("cat /proc/1/gid_map")[1].split() == ["0", str(user_range.FIRST), "65536"]
    assert sh("id -u; systemctl is-system-running")[1].split() == ["0", "running"]


def test_the_machine_sees_a_strangers_process(lab: Lab) -> None:
    own = {
        (folder / "status").read_text().split("Uid:")[1].split()[0]
        for folder in Path("/proc").iterdir()
        if folder.name.isdigit() and _is_sshd_of_a_lab(folder)
    }
    assert str(user_range.FIRST) in own


def _is_sshd_of_a_lab(folder: Path) -> bool:
    try:
        is_sshd = b"/usr/sbin/sshd" in (folder / "cmdline").read_bytes()
        return is_sshd and not (folder / "ns/user").samefile("/proc/self/ns/user")
    except OSError:
        return False


def test_what_it_writes_to_the_machines_files_stays_on_the_host(sh: Sh, canary: Path) -> None:
    script = f"cat {canary}; echo pwned > {canary}; rm /etc/hostname; cat {canary}; touch /etc/x"
    assert sh(script) == (0, "as it was\npwned\n")
    assert canary.read_text() == "as it was\n"
    assert not Path("/etc/x").exists()
    assert Path("/etc/hostname").exists()


def test_it_has_no_device_of_the_machine_and_makes_none(sh: Sh) -> None:
    code, said = sh("cd /dev; for f in * */*; do test ! -c $f -a ! -b $f || echo $f; done")
    assert (
        code,
        {name for name in said.split() if not name.startswith(("pts/", "std", "fd/"))},
    ) == (
        0,
        DEVICES | {"ptmx"},
    )
    for device in ("b 254 0", "c 1 1", "c 10 232"):
        assert sh(f"mknod /tmp/node {device}")[0] != 0
    assert sh("chmod 600 /dev/null")[0] != 0
    assert stat.S_IMODE(Path("/dev/null").stat().st_mode) == 0o666


@pytest.mark.parametrize(
    "script", ["date -s @$(date +%s)", "dmesg --clear", "prlimit --nofile=4000000:4000000 true"]
)
def test_it_cannot_do_what_the_machines_root_can(sh: Sh, script: str) -> None:
    code, said = sh(script)
    assert code != 0
    assert "not permitted" in said


def test_what_is_lent_is_read_by_its_root_and_written_by_nobody(sh: Sh, lent: Path) -> None:
    assert sh("cat /opt/lent/program") == (0, "of the machine\n")
    for script in (
        "echo x > /opt/lent/program",
        "mount -o remount,rw /opt/lent; echo x > /opt/lent/program",
        "mount -o bind,remount,rw /opt/lent; echo x > /opt/lent/program",
        "mount --bind /opt/lent /mnt; mount -o bind,remount,rw /mnt; echo x > /mnt/program",
        "rm /opt/lent/program",
    ):
        assert sh(script)[0] != 0, script
    assert (lent / "program").read_text() == "of the machine\n"


def test_its_knobs_are_its_own(sh: Sh) -> None:
    before = Path("/proc/sys/vm/swappiness").read_text()
    assert sh("echo 1 > /proc/sys/vm/swappiness; cat /proc/sys/vm/swappiness") == (0, "1\n")
    assert Path("/proc/sys/vm/swappiness").read_text() == before
    pattern = Path("/proc/sys/kernel/core_pattern").read_text()
    sh("echo '|/bin/sh' > /proc/sys/kernel/core_pattern")
    assert Path("/proc/sys/kernel/core_pattern").read_text() == pattern


def test_it_has_what_a_host_needs(sh: Sh, lab: Lab) -> None:
    lab.write_file("unified-0", "/etc/token", b"secret", 0o600)
    unit = "systemd-run --quiet --wait --pipe -p LoadCredential=token:/etc/token"
    assert sh(f"{unit} -p DynamicUser=yes sh -c 'cat $CREDENTIALS_DIRECTORY/token'") == (
        0,
        "secret",
    )
    assert sh("su ubuntu -c 'sudo -n id -u'") == (0, "0\n")
    lab.reset("unified-0")
    lab.wait_ready(BOOT_LIMIT_S)
    assert sh("cat /etc/token; tr -s ' ' < /proc/self/uid_map") == (
        0,
        f"secret 0 {user_range.FIRST} 65536\n",
    )


def test_a_machine_that_cannot_refuses_with_what_to_do(
    lab_is_possible: None, tmp_path: Path
) -> None:
    users = user_range.open_range()
    with pytest.raises(LabError, match="nobody here") as caught:
        user_range.show_with_owners(Path("/proc"), tmp_path, users)
    os.close(users)
    assert caught.value.exit_code == 3
    assert "check and render --plan need no hosts" in caught.value.fix
