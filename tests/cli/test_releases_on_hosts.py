"""The real `fab` against three simulated hosts: raced, out of disk, replaced, gone back."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from infra.inventory.ansible_file import read_inventory
from infra.launch.fleet import SshFleet, SystemClock, ask_all
from infra.launch.lease import Claim, leased, this_owner
from infra.rehearsal.lab.client import Lab
from infra.remote.connecting import SshOptions
from tests.cli.rack import HOSTS, STACK, Rack, end, kept_rack, until_said
from tests.naming import in_time

# Real sshd, systemd and engines on three simulated hosts: each call of `fab` takes seconds.
pytestmark = [pytest.mark.lab, pytest.mark.slow]

LIMIT_S = 90.0
# A host that is merely slow may take so long to answer a connection.
CONNECT_S = 10.0
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
TWO_MORE = """\
        unified-2:
          ansible_host: 192.0.2.4
        unified-3:
          ansible_host: 192.0.2.5
    spare:
"""
# The lab's names of the same machines: two that a group is on, and the spare one.
GROUP, SPARE = ("unified-3", "unified-4"), "unified-2"


def groups(number: int) -> list[str]:
    """The stack with so many groups of two hosts each, behind a router."""
    sets = (f"roles.unified.replicas={number}", "router.name=vllm-router")
    return [word for one in sets for word in ("--set", one)]


@pytest.fixture(scope="module")
def lab_and_config() -> Iterator[tuple[Lab, str]]:
    with kept_rack(*groups(3)) as (ssh_config, _, lab):
        yield lab, ssh_config


@pytest.fixture(scope="module")
def rack(lab_and_config: tuple[Lab, str], tmp_path_factory: pytest.TempPathFactory) -> Rack:
    """A group's hosts, and a spare one."""
    lab, ssh_config = lab_and_config
    inventory = tmp_path_factory.mktemp("rack") / "inventory.yml"
    inventory.write_text(INVENTORY.format(ssh_config=ssh_config))
    return Rack(inventory, ssh_config, lab)


@pytest.fixture
def wide(rack: Rack, tmp_path: Path) -> Rack:
    """The hosts of two groups, and the same spare one."""
    inventory = tmp_path / "wide.yml"
    inventory.write_text(rack.inventory.read_text().replace("    spare:\n", TWO_MORE))
    return Rack(inventory, rack.ssh_config, rack.lab)


@pytest.mark.fault
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
                with in_time():
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
@pytest.mark.fault
def test_a_full_disk_is_named_and_leaves_nothing_half_done(rack: Rack, full: str) -> None:
    assert rack.fab("down").returncode == 0
    host = HOSTS[1]
    rack.ssh(host, f"sudo mkdir -p {full} && sudo mount -t tmpfs -o size=8k tmpfs {full}")
    try:
        with in_time():
            done = rack.fab("up")
        assert done.returncode == 4, done.stderr
        assert all(word in done.stderr for word in (host, full, "No space left on device"))
        look = f"df -h {full}"  # a folder that is there
        assert look in done.stderr
        assert "run the command again" in done.stderr
        assert rack.ssh(host, look).endswith(f" {full}\n")
        assert "Traceback" not in done.stderr
        assert rack.ssh(host, f"sudo find {full} /etc/moe-infra -type f") == ""
        assert rack.ssh(host, f"ls /etc/systemd/system | grep moe-{STACK}") == ""
        assert rack.fab("down").returncode == 0
        assert rack.ssh(HOSTS[0], "ls -d /etc/moe-infra") == ""
    finally:
        rack.ssh(host, f"sudo umount {full}; sudo rmdir --ignore-fail-on-non-empty {full}")
    again = rack.fab("up")  # there is space now
    assert again.returncode == 0, again.stderr


def starts(rack: Rack, hosts: Sequence[str]) -> list[str]:
    """systemd's id of the start of each host's engine, and of the router on the first one."""
    units = f"moe-{STACK}-engine@0 moe-{STACK}-router@0"
    return [rack.ssh(host, f"systemctl show -p InvocationID --value {units}") for host in hosts]


@pytest.mark.fault
def test_whoever_stays_is_not_touched_by_a_replacement_that_is_killed_and_gone_on_with(
    rack: Rack, wide: Rack
) -> None:
    """A machine of the second group is replaced, and replaced back. It lives, and is cleared when it leaves."""
    two = groups(2)
    assert rack.fab("down").returncode == 0
    machines = (*HOSTS, *GROUP, SPARE)
    before, text = [wide.left(host) for host in machines], wide.inventory.read_text()
    done = wide.fab("up", *two)
    assert done.returncode == 0, done.stderr
    stay, leave = starts(wide, HOSTS), starts(wide, GROUP)
    done = wide.fab("replace-host", "unified-3", "spare-0", *two, "--json")
    assert done.returncode == 0, done.stderr
    rows = {row["id"]: row for row in json.loads(done.stdout)["processes"]}
    assert {row["ready"] for row in rows.values()} == {True}
    assert starts(wide, HOSTS) == stay
    assert not set(starts(wide, GROUP)) & set(leave)
    assert wide.left(GROUP[1]) == before[3]
    killed = wide.begin("replace-host", "unified-3", "spare-0", *two)
    until_said(killed, "stopping unified")
    assert end(killed, signal.SIGKILL).code == -signal.SIGKILL
    assert wide.inventory.read_text() == text  # it stands where it stood before both
    assert wide.left(SPARE) != before[4]
    done = wide.fab("up", *two, "--replace")
    assert done.returncode == 0, done.stderr
    assert wide.fab("status", *two).returncode == 0
    assert starts(wide, HOSTS) == stay
    assert wide.left(SPARE) == before[4]
    assert wide.fab("down").returncode == 0
    assert [wide.left(host) for host in machines] == before


@pytest.mark.fault
def test_a_dead_machine_is_replaced_under_its_name(rack: Rack) -> None:
    assert rack.fab("up").returncode == 0
    rack.ssh(HOSTS[1], "sudo systemctl poweroff")
    with in_time(CONNECT_S):
        named = rack.fab("status", "--json")
    assert named.returncode == 4, named.stdout
    states = {row["host"]: row["state"] for row in json.loads(named.stdout)["processes"]}
    assert states[HOSTS[1]] == "unknown"
    assert states[HOSTS[0]] != "unknown"  # it runs still, or has noticed that its peer is gone
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
    text = rack.inventory.read_text()
    typo = rack.fab("replace-host", "unified-1", "spare0.invalid")
    assert typo.returncode == 4
    meant = "unified-1 is the machine that was to come, spare0.invalid, in all that is said here; 192.0.2.3 stays. "
    assert f"{meant}The inventory is as it was. It has no host spare0.invalid, " in typo.stderr
    assert "Did you mean spare-0" in typo.stderr
    assert "unified-1: the name spare0.invalid cannot be resolved" in typo.stderr
    assert rack.inventory.read_text() == text
