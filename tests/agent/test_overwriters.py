"""Services that set our knobs, too: who is told of them, and when there is nothing to tell."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.agent.shared_tuning import GOVERNOR
from tests.agent.stubborn_host import StubbornHost

ITEMS: list[dict[str, object]] = [
    {
        "id": "governor", "group": "tuning", "kind": "sysfs", "want": "performance",
        "target": "/sys/devices/system/cpu/cpufreq/policy*/scaling_governor",
    },
    {"id": "vm.swappiness", "group": "tuning", "kind": "sysctl", "want": "0"},
]  # fmt: skip
ENABLED = "/etc/systemd/system/multi-user.target.wants/"
TUNED = "tuned.service sets it, too, when it starts and when its settings change: `sudo tuned-adm off` leaves it to us"


def why(host: StubbornHost, mode: str = "check") -> dict[str, str]:
    return {str(row["id"]): str(row["why"]) for row in host.state(mode, ITEMS).values()}


def test_a_knob_that_tuned_would_overwrite_says_so_before_and_after(untuned: StubbornHost) -> None:
    assert "tuned" not in str(why(untuned))
    untuned.put(ENABLED + "tuned.service", "")
    told = why(untuned)
    assert TUNED in told["governor"]
    # a file of sysctl.d stands above TuneD's profile: reapply_sysctl=1
    assert "tuned" not in told["vm.swappiness"]
    assert TUNED in why(untuned, "apply")["governor"]
    assert Path(untuned.path(GOVERNOR)).read_text() == "performance\n"
    assert why(untuned)["governor"] == f"already so; {TUNED}"


def test_one_that_runs_without_being_enabled_counts(untuned: StubbornHost) -> None:
    untuned.put("/sys/fs/cgroup/system.slice/power-profiles-daemon.service/cgroup.procs", "7\n")
    untuned.put(ENABLED + "cpupower.service", "")
    told = why(untuned)["governor"]
    assert "`sudo systemctl disable --now power-profiles-daemon` leaves it to us" in told
    assert "`sudo systemctl disable --now cpupower` leaves it to us" in told


@pytest.mark.parametrize("is_off", [True, False])
def test_tuned_without_a_profile_sets_nothing(untuned: StubbornHost, *, is_off: bool) -> None:
    untuned.put(ENABLED + "tuned.service", "")
    untuned.put("/etc/tuned/active_profile", "\n" if is_off else "throughput-performance\n")
    assert (TUNED in why(untuned)["governor"]) is not is_off


def test_a_masked_one_never_starts(untuned: StubbornHost) -> None:
    untuned.put(ENABLED + "tuned.service", "")
    Path(untuned.path("/etc/systemd/system/tuned.service")).symlink_to("/dev/null")
    assert "tuned" not in why(untuned)["governor"]
