"""`ansible/tune.yml` beside `fab tune-hosts`: the same state by either, on two simulated hosts."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.playbooks.kept_hosts import KeptHosts, rehearse, stop

# One lab for all; each playbook takes about three seconds, most of them Ansible's own start.
pytestmark = [pytest.mark.lab, pytest.mark.slow]

STACK = "a2-2n-dp4tp4"
BY_FAB, BY_ANSIBLE = "unified-0", "unified-1"
SWAPPINESS = "/proc/sys/vm/swappiness"
# Every file with mode, owner and target, then every content; not what differs between any two hosts.
FILES = (
    'cd /; find etc var/lib/moe-infra ! -type d -printf "%p %m %U:%G %l\\n" 2>/dev/null | '
    'grep -vE "^etc/(host|hccn|ssh/ssh_host|machine-id|mtab|resolv)" | sort; '
    "find etc var/lib/moe-infra -type f 2>/dev/null | "
    'grep -vE "^etc/(host|hccn|ssh/ssh_host|machine-id)" | sort | xargs sha256sum; '
)
KNOBS = (
    "sysctl vm.swappiness vm.max_map_count vm.zone_reclaim_mode kernel.numa_balancing "
    "net.ipv4.ip_local_reserved_ports; "
    "grep . /sys/devices/system/cpu/cpufreq/policy*/scaling_governor /sys/kernel/mm/transparent_hugepage/enabled; "
    "systemctl is-enabled moe-infra-tuning.service irqbalance.service"
)


@pytest.fixture(scope="module")
def hosts(lab_is_possible: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KeptHosts]:
    kept = rehearse(("--stack", STACK), "hosts", tmp_path_factory.mktemp("temporary"), {})
    yield kept
    stop(kept)


@pytest.fixture
def untuned(hosts: KeptHosts) -> Iterator[KeptHosts]:
    """As the hosts were found; whatever a test does is taken back."""
    yield hosts
    assert hosts.fab("tune-hosts", "--rollback").code == 0
    assert list(hosts.temporary.iterdir()) == []


def state_of(hosts: KeptHosts, host: str) -> list[str]:
    """All files and knobs of a host that can tell how it was tuned."""
    return hosts.on(host, FILES + KNOBS).splitlines()


def taken_back(state: list[str]) -> list[str]:
    """A state without the clock service, which a simulated host does not give back (`blocked`), and its record."""
    return [
        line for line in state if not any(word in line for word in ("chrony", "rollback/.host"))
    ]


def test_each_tool_leaves_the_same_bytes_and_ansible_takes_back_both(untuned: KeptHosts) -> None:
    found = state_of(untuned, BY_FAB)
    assert state_of(untuned, BY_ANSIBLE) == found
    assert len(found) > 50
    limited = untuned.play("tune.yml", "--limit", BY_ANSIBLE)
    assert limited.code == 0, limited.out
    tuned = state_of(untuned, BY_ANSIBLE)
    assert (tuned != found, state_of(untuned, BY_FAB)) == (True, found)
    by_fab = untuned.fab("tune-hosts")
    assert by_fab.code == 0, by_fab.out
    assert state_of(untuned, BY_FAB) == state_of(untuned, BY_ANSIBLE) == tuned
    back = untuned.play("tune.yml", "-e", "mode=rollback")
    assert back.code == 0, back.out
    assert state_of(untuned, BY_FAB) == state_of(untuned, BY_ANSIBLE)
    assert taken_back(state_of(untuned, BY_ANSIBLE)) == taken_back(found)


def test_check_says_what_would_change_then_a_second_run_is_quiet_and_fab_takes_it_back(
    untuned: KeptHosts, tmp_path: Path
) -> None:
    found = state_of(untuned, BY_ANSIBLE)
    rendered = tmp_path / "out"
    assert untuned.fab("render", "--to", str(rendered)).code == 0
    checked = untuned.play("tune.yml", "--check", "--diff", "-e", f"rendered={rendered}")
    assert (checked.code, checked.recap(BY_ANSIBLE)["changed"]) == (0, 1), checked.out
    assert "vm.swappiness: 60 → 0" in checked.out
    assert "+vm.swappiness = 0" in checked.out
    assert max(map(len, checked.out.splitlines())) < 1000
    assert state_of(untuned, BY_ANSIBLE) == found
    assert untuned.play("tune.yml").recap(BY_ANSIBLE)["changed"] == 1
    tuned = state_of(untuned, BY_ANSIBLE)
    again = untuned.play("tune.yml", "--diff")
    assert (again.code, again.recap(BY_ANSIBLE)["changed"]) == (0, 0)
    assert state_of(untuned, BY_ANSIBLE) == tuned
    assert untuned.fab("tune-hosts", "--check").code == 0
    assert untuned.fab("tune-hosts", "--rollback").code == 0
    assert taken_back(state_of(untuned, BY_ANSIBLE)) == taken_back(found)


def test_a_knob_that_keeps_its_value_warns_and_a_file_that_cannot_be_written_fails_its_host(
    untuned: KeptHosts,
) -> None:
    lab, target = untuned.lab(), "/etc/sysctl.d/60-moe-infra.conf"
    lab.inject(BY_ANSIBLE, SWAPPINESS, "sticky")
    untuned.on(BY_FAB, f"mkdir {target}")
    try:
        played = untuned.play("tune.yml")
    finally:
        lab.inject(BY_ANSIBLE, SWAPPINESS, None)
        untuned.on(BY_FAB, f"rmdir {target}")
    assert played.code == 2, played.out
    assert played.recap(BY_ANSIBLE)["failed"] == 0
    assert "[WARNING]: vm.swappiness blocked: 60 → 60 (the kernel kept 60" in played.out
    assert "vm.max_map_count = 1048576" in state_of(untuned, BY_ANSIBLE)
    assert played.recap(BY_FAB)["failed"] == 1
    assert f"file:{target}: {target} is no regular file" in played.out
    assert "Traceback" not in played.out


def test_the_file_of_the_inventory_names_the_stack_and_hosts_beyond_the_plan_are_skipped(
    hosts: KeptHosts, tmp_path: Path
) -> None:
    text = Path(hosts.inventory).read_text(encoding="utf-8")
    named = tmp_path / f"{STACK}.yml"
    spare = "    spare:\n      hosts:\n        spare-0: {ansible_host: 192.0.2.99}\n"
    named.write_text(text.rstrip("\n") + "\n" + spare, encoding="utf-8")
    played = hosts.play("tune.yml", "--check", inventory=str(named))
    assert played.code == 0, played.out
    assert played.recap("spare-0")["skipped"] >= 1
    assert played.recap(BY_FAB)["changed"] == 1


def test_a_folder_that_was_rendered_without_an_inventory_is_refused(
    hosts: KeptHosts, tmp_path: Path
) -> None:
    folder = tmp_path / "out"
    assert hosts.fab("render", "--to", str(folder)).code == 0
    stack = json.loads((folder / "stack.json").read_text(encoding="utf-8"))
    (folder / "stack.json").write_text(json.dumps({**stack, "hosts": None}), encoding="utf-8")
    refused = hosts.play("tune.yml", "--check", "-e", f"rendered={folder}")
    assert refused.code == 2
    assert "its addresses are examples" in refused.out


def test_a_stack_that_is_wrong_is_refused_in_the_words_of_fab(hosts: KeptHosts) -> None:
    played = hosts.play("tune.yml", "-e", "stack=a2-2n-dp4tp", inventory=hosts.inventory)
    assert played.code == 2
    assert "a2-2n-dp4tp4" in played.out
    assert list(hosts.temporary.iterdir()) == []
