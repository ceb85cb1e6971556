"""A host of the lab is what a real one is to those who log in."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from infra.rehearsal.lab.client import Lab
from infra.rehearsal.lab.errors import LabError, UnknownHost

# three hosts that all tests share, some of which boot anew
pytestmark = [pytest.mark.lab, pytest.mark.slow]

Ssh = Callable[[str, str], subprocess.CompletedProcess[str]]
BOOT_LIMIT_S = 20.0
FABRIC = """
import sys
from concurrent.futures import ThreadPoolExecutor
import fabric

def ask(name):
    config = fabric.Config(runtime_ssh_path=sys.argv[1], lazy=True)
    config.load_ssh_config()
    with fabric.Connection(name, config=config) as connection:
        return connection.run("hostname", hide=True, in_stream=False).stdout.strip()

with ThreadPoolExecutor(3) as pool:
    print(*pool.map(ask, sys.argv[2:]))
"""


def test_its_user_logs_in_by_name_and_by_address_and_may_sudo(ssh: Ssh) -> None:
    assert ssh("prefill-0", "id -un; sudo -n id -un; hostname").stdout.split() == [
        "ubuntu",
        "root",
        "prefill-0",
    ]
    assert ssh("192.0.2.1", "hostname").stdout == "prefill-0\n"


def test_root_logs_in_with_the_same_key(lab: Lab) -> None:
    command = ["ssh", "-F", str(lab.ssh_config), "-l", "root", "decode-0", "id -u"]
    assert subprocess.run(command, capture_output=True, check=True).stdout == b"0\n"


def test_sudo_wants_a_password_where_the_rule_says_so(ssh: Ssh) -> None:
    result = ssh("decode-1", "id -un; sudo -n true")
    assert result.stdout == "op\n"
    assert "a password is required" in result.stderr
    assert result.returncode == 1


def test_another_key_of_the_host_is_refused(lab: Lab, ssh: Ssh, tmp_path: Path) -> None:
    known = tmp_path / "known_hosts"
    lines = (lab.directory / "known_hosts").read_text().splitlines()
    known.write_text(lines[0].split()[0] + " " + lines[1].split(maxsplit=1)[1] + "\n")
    command = ["ssh", "-F", str(lab.ssh_config), "-o", f"UserKnownHostsFile={known}"]
    result = subprocess.run([*command, "prefill-0", "true"], capture_output=True, check=False)
    assert result.returncode == 255
    assert b"REMOTE HOST IDENTIFICATION HAS CHANGED" in result.stderr


def test_systemd_runs_units_with_credentials_and_limits(lab: Lab) -> None:
    lab.write_file("prefill-0", "/etc/token", b"secret", 0o600)
    unit = """
        systemd-run --quiet --wait --pipe -p LoadCredential=token:/etc/token -p LimitNOFILE=4321 \
            -p DynamicUser=yes sh -c 'cat $CREDENTIALS_DIRECTORY/token; ulimit -Hn'
        systemctl is-system-running; systemctl --failed --no-legend
    """
    result = lab.run("prefill-0", ["sh", "-c", unit])
    assert result.stdout.decode().split() == ["secret4321", "running"], result.stderr


def test_hosts_reach_each_other_by_name_whatever_their_addresses(ssh: Ssh) -> None:
    names = ("prefill-1", "decode-0", "decode-1")
    loop = f"for n in {' '.join(names)}; do echo > /dev/tcp/$n/22 && echo $n; done"
    assert ssh("prefill-0", f"bash -c '{loop}'").stdout.split() == list(names)


def test_files_device_nodes_and_lent_folders_are_there(ssh: Ssh, lent_folder: Path) -> None:
    result = ssh(
        "prefill-0",
        f"""
        /opt/engine/run; cat /run/device-state; echo
        cat /sys/class/infiniband/mlx5_0/ports/1/state; test -d /sys/class/net/eth0 && echo net
        stat -c '%s %b' /models/kimi/weights.safetensors
        test -c /dev/davinci0 && echo node
        sudo cat {lent_folder}/catalogue; sudo touch {lent_folder}/x 2>&1 | grep -o Read-only
        ls /usr/bin/which 2>/dev/null || echo hidden
        getconf PAGESIZE; getconf _NPROCESSORS_ONLN
        """,
    )
    assert result.stdout.splitlines() == [
        "ran",
        "{}",
        "4: ACTIVE",
        "net",
        "1000000000000 0",
        "node",
        "from the machine",
        "Read-only",
        "hidden",
        "65536",
        "3",
    ]


def test_what_is_private_to_the_machine_does_not_show(lab: Lab) -> None:
    script = "ls -A /root /home /opt /srv /mnt /etc/ssh | grep -v ssh_host; ls /; cat /etc/shadow"
    result = lab.run("prefill-1", ["sh", "-c", script]).stdout.decode()
    top = set(result.split("/srv:\n")[1].split("bin\n", 1)[1].split())
    assert not top & {"work", "workspace", "old_root"}
    passwords = [line.split(":")[1] for line in result.splitlines() if line.count(":") > 6]
    assert passwords
    assert set(passwords) == {"*"}


def test_root_on_a_host_cannot_change_what_the_machine_shares_with_it(lab: Lab) -> None:
    script = "echo 0 > /proc/irq/default_smp_affinity; echo b > /proc/sysrq-trigger; \
        echo 1 > /sys/class/bdi/*/read_ahead_kb; echo 7 > /proc/sys/fs/inotify/max_user_instances"
    lab.run("prefill-1", ["sh", "-c", script])
    assert lab.read_file("prefill-1", "/proc/sys/fs/inotify/max_user_instances") == b"7\n"
    assert Path("/proc/sys/fs/inotify/max_user_instances").read_text() != "7\n"


def test_root_on_a_host_changes_its_own_devices_alone(lab: Lab, ssh: Ssh) -> None:
    devices = [Path("/dev", name) for name in ("null", "zero", "tty")]
    before = [device.stat().st_mode for device in devices]
    assert lab.run("prefill-1", ["chmod", "600", *map(str, devices)]).returncode == 0
    assert [device.stat().st_mode for device in devices] == before
    says = "echo x > /dev/null && echo written; head -c 3 /dev/zero | wc -c"
    as_root = lab.run("prefill-1", ["sh", "-c", f"{says}; chmod 666 /dev/null /dev/zero /dev/tty"])
    assert as_root.stdout.split() == [b"written", b"3"]
    assert ssh("prefill-1", says).stdout.split() == ["written", "3"]
    assert ssh("prefill-1", "stat -c '%A %t:%T' /dev/null").stdout == "crw-rw-rw- 1:3\n"


def test_reserved_ports_are_the_hosts_own(lab: Lab, ssh: Ssh) -> None:
    command = ["sysctl", "-w", "net.ipv4.ip_local_reserved_ports=61000-61999"]
    assert lab.run("prefill-0", command).returncode == 0
    path = "/proc/sys/net/ipv4/ip_local_reserved_ports"
    assert ssh("prefill-0", f"cat {path}").stdout == "61000-61999\n"
    assert ssh("prefill-1", f"cat {path}").stdout == "\n"
    assert Path(path).read_text() != "61000-61999\n"


def test_a_reboot_keeps_the_disk_and_changes_the_boot_id(lab: Lab, ssh: Ssh) -> None:
    before = next(host for host in lab.status() if host.name == "prefill-1")
    lab.write_file("prefill-1", "/etc/sysctl.d/90-x.conf", b"vm.swappiness = 0\n")
    lab.run("prefill-1", ["sysctl", "-w", "vm.max_map_count=99"])
    assert ssh("prefill-1", "sudo systemctl reboot").returncode in (0, 255)
    after = lab.wait_reboot("prefill-1", before.boots, BOOT_LIMIT_S)
    assert after.last_end == "reboot"
    assert ssh(
        "prefill-1",
        "cat /proc/sys/vm/swappiness /proc/sys/vm/max_map_count /proc/sys/kernel/random/boot_id",
    ).stdout.split() == ["0", "65530", after.boot_id]
    assert after.boot_id != before.boot_id


def test_power_can_be_cut_and_restored(lab: Lab) -> None:
    lab.write_file("decode-0", "/etc/kept", b"kept")
    lab.power_off("decode-0")
    with pytest.raises(TimeoutError):
        lab.dial("decode-0", 22, 0.2)
    assert lab.read_file("decode-0", "/etc/kept") == b"kept"
    lab.start("decode-0")
    states = {host.name: host.state for host in lab.wait_ready(BOOT_LIMIT_S)}
    assert states["decode-0"] == "ready"
    lab.reset("decode-0")
    lab.wait_ready(BOOT_LIMIT_S)
    assert lab.run("decode-0", ["cat", "/etc/kept"]).stdout == b"kept"


@pytest.mark.parametrize("carrier", [False, True])
def test_a_host_that_is_cut_off_never_answers_until_it_is_healed(lab: Lab, carrier: bool) -> None:
    lab.cut("decode-0", carrier=carrier)
    begin = time.monotonic()
    with pytest.raises(TimeoutError):
        lab.dial("decode-0", 22, 0.3)
    assert time.monotonic() - begin >= 0.3
    state = lab.read_file("decode-0", "/sys/class/net/eth0/operstate")
    assert state == (b"down\n" if carrier else b"up\n")
    lab.heal("decode-0")
    lab.dial("decode-0", 22, 2.0).close()


def test_a_frozen_host_accepts_and_says_nothing(lab: Lab) -> None:
    lab.freeze("decode-0")
    with lab.dial("decode-0", 22) as connection:
        connection.settimeout(0.2)
        with pytest.raises(TimeoutError):
            connection.recv(1)
        lab.thaw("decode-0")
        connection.settimeout(5)
        assert connection.recv(4) == b"SSH-"


def test_sshd_settings_of_a_host_are_obeyed(lab: Lab) -> None:
    waiting = [lab.dial("decode-1", 22) for _ in range(2)]  # they never say who they are
    for connection in waiting:
        assert connection.recv(4) == b"SSH-"
    with lab.dial("decode-1", 22) as third:
        assert third.recv(4) in (b"", b"Exce")  # MaxStartups 2:100:2
    for connection in waiting:
        connection.close()


def test_nobody_listening_is_refused_at_once(lab: Lab) -> None:
    with pytest.raises(ConnectionRefusedError):
        lab.dial("decode-0", 9)


def test_http_is_spoken_without_a_forward(lab: Lab) -> None:
    script = "cd /etc/ssh; exec /usr/bin/python3 -m http.server 8000"
    lab.run("decode-0", ["systemd-run", "--quiet", "sh", "-c", script])
    for _ in range(200):
        try:
            connection = lab.http("decode-0", 8000)
        except ConnectionRefusedError:
            time.sleep(0.02)
            continue
        break
    connection.request("GET", "/ssh_host_ed25519_key.pub")
    assert connection.getresponse().read().startswith(b"ssh-ed25519 ")
    connection.close()


def test_fabric_reaches_hosts_through_the_configuration(lab: Lab) -> None:
    # in a process of its own: paramiko leaves ProxyCommand processes to the garbage collector
    names = ["prefill-0", "prefill-1", "decode-0"]
    command = [sys.executable, "-c", FABRIC, str(lab.ssh_config), *names]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.stdout.split() == names, result.stderr


def test_ansible_reaches_hosts_through_the_configuration(lab: Lab, tmp_path: Path) -> None:
    ansible = Path(sys.executable).with_name("ansible")
    command = [str(ansible), "all", "-i", "prefill-0,10.77.3.4,"]
    command += ["--ssh-common-args", f"-F {lab.ssh_config}", "-m", "raw", "-a", "hostname"]
    settings = {"ANSIBLE_SSH_ARGS": "-o ControlMaster=no", "ANSIBLE_HOME": str(tmp_path)}
    environment = os.environ | settings  # no connection stays open after the test
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    assert {"prefill-0", "decode-0"} < set(result.stdout.splitlines())


def test_programs_run_inside_and_tell_their_end(lab: Lab) -> None:
    result = lab.run(
        "decode-0", ["sh", "-c", "cat; echo $X >&2; exit 3"], stdin=b"in", environment={"X": "err"}
    )
    assert (result.returncode, result.stdout, result.stderr) == (3, b"in", b"err\n")
    assert lab.run("decode-0", ["no-such-program"]).returncode == 127
    with pytest.raises(LabError, match="did not end within"):
        lab.run("decode-0", ["sleep", "321"], limit_s=0.1)
    deadline = time.monotonic() + 2
    while ("sleep", "321") in [argv for _, argv in lab.processes("decode-0")]:
        assert time.monotonic() < deadline


def test_files_are_changed_from_outside_within_the_hosts_root(lab: Lab) -> None:
    lab.run("decode-0", ["ln", "-s", "/etc/hostname", "/etc/link"])
    lab.append_file("decode-0", "/etc/link", b"more\n")
    assert lab.read_file("decode-0", "/etc/hostname") == b"decode-0\nmore\n"
    assert "more" not in Path("/etc/hostname").read_text()
    with pytest.raises(FileNotFoundError):
        lab.read_file("decode-0", "/etc/absent")


def test_a_host_that_is_not_there_is_named_with_those_that_are(lab: Lab) -> None:
    with pytest.raises(UnknownHost, match=r"prefill-9.*Hosts: prefill-0, prefill-1"):
        lab.reset("prefill-9")


def test_the_machine_sees_no_interface_of_the_lab(lab: Lab) -> None:
    names = {name for _, name in socket.if_nameindex()}
    assert not {"sink", "drain", "v0b1"} & names
