"""Kernel knobs of a host: what procfs and sysfs do, per host, with faults and a log."""

from __future__ import annotations

import pytest

from infra.rehearsal.lab.client import Lab
from infra.rehearsal.lab.errors import LabError

pytestmark = pytest.mark.lab

GOVERNOR = "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"
SWAPPINESS = "/proc/sys/vm/swappiness"
HUGE_PAGES = "/sys/kernel/mm/transparent_hugepage/enabled"
LOCKDOWN = "/sys/kernel/security/lockdown"
DEBUG_COST = "/sys/kernel/debug/sched/migration_cost_ns"
SYSCTL_COST = "/proc/sys/kernel/sched_migration_cost_ns"


def shell(lab: Lab, host: str, script: str) -> str:
    result = lab.run(host, ["sh", "-c", script])
    return (result.stdout + result.stderr).decode()


def test_a_value_out_of_range_is_invalid_and_changes_nothing(lab: Lab) -> None:
    shell(lab, "prefill-0", f"echo 61 > {SWAPPINESS}")
    assert "Invalid argument" in shell(lab, "prefill-0", "sysctl -w vm.swappiness=201")
    assert "rror" in shell(lab, "prefill-0", f"echo foo > {GOVERNOR}")
    assert shell(lab, "prefill-0", f"cat {SWAPPINESS} {GOVERNOR}") == "61\npowersave\n"


def test_a_shorter_value_leaves_nothing_of_the_longer_one(lab: Lab) -> None:
    script = f"echo 100 > {SWAPPINESS}; echo 0 > {SWAPPINESS}; cat {SWAPPINESS}"
    assert shell(lab, "prefill-0", script) == "0\n"


def test_a_choice_shows_in_brackets(lab: Lab) -> None:
    script = f"echo never > {HUGE_PAGES}; cat {HUGE_PAGES}"
    assert shell(lab, "prefill-0", script) == "always madvise [never]\n"


def test_a_governor_is_one_file_by_two_paths(lab: Lab) -> None:
    script = (
        "cd /sys/devices/system/cpu; echo performance > cpufreq/policy1/scaling_governor;"
        "cat cpu1/cpufreq/scaling_governor"
    )
    assert shell(lab, "prefill-0", script) == "performance\n"


def test_read_only_knobs_refuse_root(lab: Lab) -> None:
    driver = "/sys/devices/system/cpu/cpu0/cpufreq/scaling_driver"
    assert "Permission denied" in shell(lab, "prefill-0", f"echo x > {driver}")


def test_hosts_keep_their_values_apart(lab: Lab) -> None:
    shell(lab, "prefill-0", f"echo 17 > {SWAPPINESS}")
    assert lab.read_file("decode-0", SWAPPINESS) == b"60\n"


def test_first_values_are_the_hosts(lab: Lab) -> None:
    assert lab.read_file("decode-1", SWAPPINESS) == b"1\n"


def test_a_knob_that_no_folder_holds_covers_its_own_file_alone(lab: Lab) -> None:
    """One that the host's network namespace has, one that it lacks or cannot write, and one of a driver."""
    network, partition = (
        "/proc/sys/net",
        "/sys/bus/pci/drivers/amdgpu/0000:05:00.0/current_compute_partition",
    )
    script = (
        f"echo 1 2 3 > {network}/ipv4/tcp_rmem; echo 5 > {network}/core/rmem_max; echo SPX > {partition};"
        f"cat {network}/ipv4/tcp_rmem {network}/core/rmem_max {partition}; test -e {network}/core/somaxconn"
    )
    result = lab.run("decode-1", ["sh", "-c", script])
    assert (result.returncode, result.stdout) == (0, b"1 2 3\n5\nSPX\n")
    lab.inject("decode-1", "net.core.rmem_max", "EPERM")
    assert "not permitted" in shell(lab, "decode-1", "sysctl -w net.core.rmem_max=6")
    lab.inject("decode-1", "net.core.rmem_max", None)
    assert lab.knob_log("decode-1")[-1].path == "/proc/sys/net/core/rmem_max"


def test_registers_are_written_where_they_are_refuse_and_stick(lab: Lab) -> None:
    path = "/sys/bus/pci/devices/0000:00:1f.7/config"
    write = f"printf '\\376\\377' | dd of={path} bs=1 seek=4 conv=notrunc 2>&1"
    whole = bytes(range(256))
    for fault in ("EPERM", "sticky"):
        lab.inject("decode-1", path, fault)
        said = shell(lab, "decode-1", write)
        assert ("not permitted" in said) == (fault == "EPERM")
        assert lab.run("decode-1", ["cat", path]).stdout == whole
    lab.inject("decode-1", path, None)
    shell(lab, "decode-1", write)
    assert lab.run("decode-1", ["cat", path]).stdout == whole[:4] + b"\376\377" + whole[6:]


def test_each_kernel_has_the_migration_cost_in_its_place(lab: Lab) -> None:
    assert lab.read_file("prefill-0", DEBUG_COST) == b"500000\n"
    assert lab.read_file("prefill-1", SYSCTL_COST) == b"500000\n"
    for host, path in (("prefill-0", SYSCTL_COST), ("prefill-1", DEBUG_COST)):
        with pytest.raises(FileNotFoundError):
            lab.read_file(host, path)
    assert "Operation not permitted" in shell(lab, "decode-0", f"cat {DEBUG_COST}")


def test_a_virtual_machine_has_no_governor(lab: Lab) -> None:
    with pytest.raises(FileNotFoundError):
        lab.read_file("prefill-1", GOVERNOR)


def test_injected_faults_fail_or_stick_until_healed(lab: Lab) -> None:
    shell(lab, "prefill-0", f"echo 33 > {SWAPPINESS}")
    lab.inject("prefill-0", "vm.swappiness", "EIO")
    assert "rror" in shell(lab, "prefill-0", f"echo 1 > {SWAPPINESS}")
    lab.inject("prefill-0", SWAPPINESS, "sticky")
    assert shell(lab, "prefill-0", f"echo 1 > {SWAPPINESS}; cat {SWAPPINESS}") == "33\n"
    lab.inject("prefill-0", SWAPPINESS, None)
    assert shell(lab, "prefill-0", f"echo 1 > {SWAPPINESS}; cat {SWAPPINESS}") == "1\n"


def test_every_write_is_logged_with_its_outcome_and_no_read_is(lab: Lab) -> None:
    before = len(lab.knob_log("decode-0"))
    shell(lab, "decode-0", f"echo 12 > {SWAPPINESS}; echo 999 > {SWAPPINESS}; cat {SWAPPINESS}")
    new = [(write.path, write.value, write.error) for write in lab.knob_log("decode-0")[before:]]
    assert new == [(SWAPPINESS, "12", 0), (SWAPPINESS, "999", 22)]


def test_an_unknown_knob_is_refused_with_its_name(lab: Lab) -> None:
    with pytest.raises(LabError, match=r"vm\.no_such_thing"):
        lab.inject("prefill-0", "vm.no_such_thing", "EIO")


def test_a_locked_down_kernel_says_so(lab: Lab) -> None:
    modes = {host: lab.read_file(host, LOCKDOWN) for host in ("prefill-0", "decode-0")}
    assert modes == {
        "prefill-0": b"[none] integrity confidentiality\n",
        "decode-0": b"none [integrity] confidentiality\n",
    }


def test_write_only_knobs_refuse_readers(lab: Lab) -> None:
    script = "cat /proc/sys/vm/compact_memory; echo 1 > /proc/sys/vm/compact_memory && echo ok"
    assert shell(lab, "prefill-0", script).splitlines()[0] == "ok"


def test_idle_states_are_switched_one_by_one(lab: Lab) -> None:
    state = "/sys/devices/system/cpu/cpu1/cpuidle/state2"
    script = f"cat {state}/name; echo 1 > {state}/disable; cat {state}/disable"
    assert shell(lab, "prefill-0", script) == "C2\n1\n"
