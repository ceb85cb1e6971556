"""The real `fab` against three simulated hosts: killed, raced, out of disk, replaced, gone back."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from infra.inventory.ansible_file import read_inventory
from infra.launch.fleet import SshFleet, SystemClock, ask_all
from infra.launch.lease import Claim, leased, this_owner
from infra.remote.connecting import SshOptions
from infra.spec.load import PROJECT
from tests.cli.commands import FAB, need_lab, run

# Real sshd, systemd and engines on three simulated hosts: each call of `fab` takes seconds.
pytestmark = [pytest.mark.lab, pytest.mark.slow]

STACK = "a2-2n-dp4tp4"
HOSTS = ("unified-0", "unified-1")
LIMIT_S = 90.0
INVENTORY = """\
# the rack in row 3
all:
  vars:
    ansible_user: ubuntu
    ansible_ssh_common_args: -F {ssh_config}
  children:
    unified:
      hosts:
        unified-0:
          ansible_host: 192.0.2.1
        unified-1:  # keeps failing
          ansible_host: 192.0.2.2
    spare:
      hosts:
        spare-0:
          ansible_host: 192.0.2.3
"""


@dataclass(frozen=True)
class Rack:
    """Three tuned hosts, of which the stack uses two."""

    inventory: Path
    ssh_config: str

    def words(self, *words: str) -> list[str]:
        return [FAB, words[0], "--stack", STACK, "--inventory", str(self.inventory), *words[1:]]

    def fab(self, *words: str) -> subprocess.CompletedProcess[str]:
        return run(*self.words(*words))

    def begin(self, *words: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            self.words(*words),
            cwd=PROJECT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )

    def ssh(self, host: str, command: str) -> str:
        return run("ssh", "-n", "-F", self.ssh_config, host, command).stdout

    def left(self, host: str) -> str:
        """Everything of ours and every unit of the stack on a host."""
        return self.ssh(
            host,
            "sudo find /etc /var/lib/moe-infra -path '*moe*' | sort;"
            f"systemctl list-units --all --no-legend 'moe-{STACK}*'; sudo docker ps -aq",
        )


def kill_at(started: subprocess.Popen[str], sign: str) -> None:
    """SIGKILL a command as soon as it has said something."""
    assert started.stderr is not None
    for line in started.stderr:
        if sign in line:
            break
    else:
        pytest.fail(f"it ended with {started.wait()} and never said {sign!r}")
    started.kill()
    started.wait()
    started.stderr.close()


def kill_when_there(rack: Rack, started: subprocess.Popen[str], path: str) -> None:
    """SIGKILL a command as soon as a path is there on the last host."""
    look = f"until sudo test -e {path}; do sleep 0.01; done"
    rack.ssh(HOSTS[-1], f"timeout 30 sh -c {look!r}")
    started.kill()
    started.wait()
    assert started.stderr is not None
    started.stderr.close()


@pytest.fixture(scope="module")
def rack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rack]:
    need_lab()
    sizes = ("--set", "roles.unified.data_parallel=6")
    done = run(FAB, "rehearse", "--stack", STACK, *sizes, "--keep", "--to-step", "tune", "--json")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    inventory = tmp_path_factory.mktemp("rack") / "inventory.yml"
    inventory.write_text(INVENTORY.format(ssh_config=document["ssh_config"]))
    yield Rack(inventory, document["ssh_config"])
    run(FAB, "rehearse", "--stop", document["id"])


def test_killed_at_every_phase_up_goes_on_and_down_leaves_what_it_found(rack: Rack) -> None:
    found = [rack.left(host) for host in HOSTS]
    state = f"/var/lib/moe-infra/releases/{STACK}"
    kill_when_there(rack, rack.begin("up"), f"/run/moe-infra/leases/{STACK}.json")
    kill_when_there(rack, rack.begin("up"), f"{state}/unfinished")
    assert rack.fab("down").returncode == 0
    assert [rack.left(host) for host in HOSTS] == found
    for sign in ("installed on", "started 2 engine", "ranks has generated"):
        kill_at(rack.begin("up"), sign)
    done = rack.fab("up", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["ok"] is True
    kill_at(rack.begin("down"), "stopping unified")
    assert rack.fab("down").returncode == 0
    assert [rack.left(host) for host in HOSTS] == found


def test_a_second_operator_is_refused_and_the_first_is_not_disturbed(rack: Rack) -> None:
    hosts = {host.name: host for host in read_inventory(rack.inventory).hosts}
    owner = replace(this_owner(), operator="ann@desk")
    claim = Claim(stack=STACK, hosts=HOSTS, command="fab up", owner=owner, forces=False)
    before = [rack.left(host) for host in HOSTS]
    fleet = SshFleet(hosts, SshOptions())
    try:
        with leased(fleet, claim, SystemClock()) as held:
            ask_all(held, {HOSTS[0]: {"operation": "read", "paths": []}}, timeout_s=LIMIT_S)
            for verb in ("down", "up"):
                second = rack.fab(verb)
                assert second.returncode == 3, second.stderr
                assert f"ann@desk holds stack {STACK} with `fab up` since 20" in second.stderr
                assert "Nothing was changed" in second.stderr
    finally:
        fleet.close()
    assert [rack.left(host) for host in HOSTS] == before
    assert rack.ssh(HOSTS[0], "ls /run/moe-infra/leases 2>/dev/null") == ""


def test_what_changes_is_shown_replaced_only_when_asked_and_taken_back_by_hash(
    rack: Rack,
) -> None:
    assert rack.fab("up").returncode == 0
    assert rack.fab("diff").returncode == 0
    edited = ("--set", "roles.unified.max_num_seqs=9")
    shown = rack.fab("diff", *edited, "--json")
    assert shown.returncode == 6, shown.stderr
    changes = json.loads(shown.stdout)["changes"]
    before = next(row["before"] for row in changes if row["what"] == "release")
    assert {row["name"] for row in changes if row["what"] == "flag"} == {"--max-num-seqs"}
    refused = rack.fab("up", *edited)
    assert refused.returncode == 3, refused.stderr
    assert "--replace" in refused.stderr
    assert rack.fab("up", *edited, "--replace").returncode == 0
    assert rack.fab("diff", *edited).returncode == 0
    unknown = rack.fab("up", "--release", "0000")
    assert unknown.returncode == 2
    assert before in unknown.stderr
    assert rack.fab("up", "--release", before).returncode == 0
    assert rack.fab("diff").returncode == 0


@pytest.mark.parametrize("full", ["/etc/moe-infra", "/var/lib/moe-infra"])
def test_a_full_disk_is_named_and_leaves_nothing_half_done(rack: Rack, full: str) -> None:
    assert rack.fab("down").returncode == 0
    host = HOSTS[1]
    rack.ssh(host, f"sudo mkdir -p {full} && sudo mount -t tmpfs -o size=8k tmpfs {full}")
    try:
        done = rack.fab("up")
        assert done.returncode == 4, done.stderr
        assert all(word in done.stderr for word in (host, full, "No space left on device"))
        assert "Traceback" not in done.stderr
        assert rack.ssh(host, f"sudo find {full} /etc/moe-infra -type f") == ""
        assert rack.ssh(host, f"ls /etc/systemd/system | grep moe-{STACK}") == ""
        assert rack.fab("down").returncode == 0
    finally:
        rack.ssh(host, f"sudo umount {full}; sudo rmdir --ignore-fail-on-non-empty {full}")
    assert rack.ssh(HOSTS[0], "ls -d /etc/moe-infra") == ""


def test_a_dead_machine_is_replaced_under_its_name(rack: Rack) -> None:
    assert rack.fab("up").returncode == 0
    rack.ssh(HOSTS[1], "sudo systemctl poweroff")
    done = rack.fab("replace-host", "unified-1", "spare-0", "--json")
    assert done.returncode == 0, done.stderr
    rows = {row["id"]: row for row in json.loads(done.stdout)["processes"]}
    assert {row["ready"] for row in rows.values()} == {True}
    assert rows["unified-1/0"]["host"] == "unified-1"
    text = rack.inventory.read_text()
    assert "unified-1:  # keeps failing\n          ansible_host: 192.0.2.3\n" in text
    assert "spare-0:\n          ansible_host: 192.0.2.2\n" in text
    assert "unified-1 (192.0.2.2) is left as it is" in done.stderr
    wrong = rack.fab("replace-host", "unified-1", "unified-0")
    assert wrong.returncode == 2
    assert "unified-0 of the same stack" in wrong.stderr
