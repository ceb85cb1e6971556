"""The real `fab` against three simulated hosts: raced, out of disk, replaced, gone back."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import signal
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from infra.inventory.ansible_file import read_inventory
from infra.launch.fleet import SshFleet, SystemClock, ask_all
from infra.launch.lease import Claim, leased, this_owner
from infra.rehearsal.lab.client import Lab
from infra.remote.connecting import SshOptions
from infra.spec.load import PROJECT
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
    back = rack.fab("up", *edited, "--release", before)
    assert back.returncode == 0, back.stderr
    assert "Next: fab verify" in back.stderr
    assert rack.fab("diff").returncode == 0
    proven = rack.fab("verify", *edited)
    assert proven.returncode == 0, proven.stdout + proven.stderr
    assert f"The hosts hold release {before}" in proven.stderr
    assert "--max-num-seqs" in proven.stdout
    assert " 0 wrong" in proven.stdout
    assert "fab down" not in proven.stdout + proven.stderr
    document = json.loads(rack.fab("verify", *edited, "--json").stdout)
    assert document["ok"] is True
    assert document["release"].startswith(before)
    assert {row["name"] for row in document["file_changes"] if row["what"] == "flag"} == {
        "--max-num-seqs"
    }
    spoilt = f"/etc/moe-infra/{STACK}/engine-0/environment"
    rack.ssh(HOSTS[0], f"sudo sh -c 'echo X=1 >> {spoilt}'")
    found = rack.fab("verify", *edited)
    assert found.returncode == 6, found.stdout + found.stderr
    assert found.stderr.rstrip().endswith(f"--release {before}")
    assert "fab down" not in found.stderr
    again = rack.fab("up", *edited)
    assert again.returncode == 3, again.stderr
    assert f"--release {before}` goes on with the release that is there" in again.stderr
    mended = rack.fab("up", *edited, "--release", before)
    assert mended.returncode == 0, mended.stderr
    assert rack.fab("verify").returncode == 0


def on_a_terminal(words: Sequence[str], typed: str) -> tuple[int, str]:
    """The exit code of a command that is typed on a terminal, and all that it shows there."""
    outer, inner = pty.openpty()
    with subprocess.Popen(
        words, cwd=PROJECT, stdin=inner, stdout=inner, stderr=inner, start_new_session=True
    ) as child:
        os.close(inner)
        os.write(outer, typed.encode())
        shown = b""
        with contextlib.suppress(OSError):  # the terminal of a process that has ended
            while more := os.read(outer, 4096):
                shown += more
        code = child.wait(timeout=LIMIT_S)
    os.close(outer)
    return code, shown.decode()


def test_on_a_terminal_whoever_stops_what_serves_is_asked_first(rack: Rack) -> None:
    assert rack.fab("up").returncode == 0
    before = [rack.left(host) for host in HOSTS]
    code, shown = on_a_terminal(rack.words("down"), "no\n")
    assert code == 3, shown
    assert f"{STACK} goes from 2 hosts (unified-0, unified-1): " in shown
    assert "Type yes to go on" in shown
    assert "Nothing was changed: you did not say yes. --yes goes on without a question." in shown
    edited = ("--set", "roles.unified.max_num_seqs=9", "--replace")
    code, shown = on_a_terminal(rack.words("up", *edited), "\n")
    assert code == 3, shown
    assert "unified/0 serve a release that is replaced, and stop. Replace?" in shown
    assert [rack.left(host) for host in HOSTS] == before
    code, shown = on_a_terminal(rack.words("up", *edited, "--yes"), "")
    assert code == 0, shown
    assert "Type yes" not in shown
    code, shown = on_a_terminal(rack.words("down"), "yes\n")
    assert code == 0, shown
    assert "So are the releases kept there (" in shown
    assert rack.fab("up").returncode == 0
    told = rack.fab("down")  # no terminal: as ever, and what goes is said first
    assert told.returncode == 0
    assert told.stderr.index("goes from 2 hosts") < told.stderr.index("stopping")
    assert "Type yes" not in told.stderr


def test_hosts_are_named_as_the_plan_and_as_the_inventory_has_them(
    rack: Rack, tmp_path: Path
) -> None:
    assert rack.fab("up").returncode == 0
    own = tmp_path / "own.yml"
    text = rack.inventory.read_text()
    own.write_text(text.replace("unified-0:", "gpu7a:").replace("unified-1:", "gpu7b:"))
    renamed = Rack(own, rack.ssh_config, rack.lab)
    shown = renamed.fab("status")
    assert shown.returncode == 0, shown.stderr
    head, first, second, *_ = shown.stdout.splitlines()
    assert "unified-0 (gpu7a)" in first
    assert "unified-1 (gpu7b)" in second
    assert head.index("state") == first.index("active") == second.index("active")
    named = json.loads(renamed.fab("status", "--json").stdout)["hosts"]
    assert named == {"unified-0": "gpu7a", "unified-1": "gpu7b", "spare-0": "spare-0"}
    spoilt = f"/etc/moe-infra/{STACK}/engine-0/environment"
    rack.ssh(HOSTS[1], f"sudo sh -c 'echo X=1 >> {spoilt}'")
    found = renamed.fab("verify")
    assert found.returncode == 6, found.stderr
    assert "unified-1 (gpu7b): is " in found.stdout
    rack.ssh(HOSTS[1], f"sudo sed -i '$d' {spoilt}")
    assert renamed.fab("verify").returncode == 0
    for name in ("gpu7b", "unified-1"):
        one = renamed.fab("status", "--limit", name)
        assert one.returncode == 0, one.stderr
        assert "unified-1 (gpu7b)" in one.stdout
        assert "gpu7a" not in one.stdout
    lines = renamed.fab("logs", "--limit", "gpu7b").stdout
    assert "unified-1/0" in lines
    assert "unified-0/0" not in lines
    tuned = renamed.fab("tune-hosts", "--check", "--limit", "gpu7a", "--json")
    assert [one["name"] for one in json.loads(tuned.stdout)["hosts"]] == ["unified-0"]
    seen = renamed.fab("preflight", "--limit", "unified-1", "--json")
    assert {one["host"] for one in json.loads(seen.stdout)["findings"]} == {"unified-1"}
    unknown = renamed.fab("status", "--limit", "gpu7c")
    assert unknown.returncode == 2
    assert "There is no host gpu7c. Did you mean unified-1 (gpu7b)" in unknown.stderr


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
