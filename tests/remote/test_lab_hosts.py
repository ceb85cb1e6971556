"""The agent over SSH on simulated hosts: real sshd, sudo and systemd, knobs that refuse and stick, a reboot."""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from infra.launch.unit_states import read_units, units_request, why_ended
from infra.rehearsal.lab.client import Lab
from infra.rehearsal.lab.hosts import LabFile, LabHost, LabUser
from infra.rehearsal.lab.starting import start_lab
from infra.remote import pulse
from infra.remote.agent_call import call_agent
from infra.remote.connecting import SshOptions
from infra.remote.failures import NoPython, OverTime, SudoRefused
from infra.remote.fan_out import run_on_all
from infra.remote.host import SshHost
from infra.remote.outcome import Outcome
from tests.naming import in_time
from tests.needed import need_lab
from tests.remote.lab_inventory import lab_host
from tests.remote.opened import open_host

# five hosts that all tests share, one of which boots anew
pytestmark = [pytest.mark.lab, pytest.mark.slow]

BOOT_LIMIT_S = 30.0
# openssl passwd -6 -salt x secret
SECRET_HASH = (
    "$6$x$mQUKLCQR1S846TztirS7Ejo4KyTtZWzcyuF2/43jqoJTDZXRb8L.bXBNxX9GCZhKdADbfqEnGZyv89igC73DL/"
)
HOSTS = (
    LabHost(name="plain", address="192.0.2.1"),
    LabHost(name="old", address="192.0.2.2", kernel="sysctl", has_cpufreq=False),
    LabHost(
        name="locked",
        address="192.0.2.3",
        kernel="locked-down",
        users=(
            LabUser(name="op", sudo_rule="ALL=(ALL) ALL", password_hash=SECRET_HASH),
            LabUser(name="guest", uid=1001, sudo_rule=""),
        ),
    ),
    LabHost(
        name="strict",
        address="192.0.2.4",
        sshd_settings=("MaxStartups 2:100:2",),
        hidden=("/usr/bin/python3",),
    ),
    LabHost(
        name="tty",
        address="192.0.2.5",
        users=(LabUser(name="op"), LabUser(name="pty", uid=1001)),
        files={
            "/etc/sudoers.d/tty": LabFile(
                content=b"Defaults:op requiretty\nDefaults:pty use_pty\n", mode=0o440
            )
        },
    ),
)
GOVERNOR = "/sys/devices/system/cpu/cpufreq/policy*/scaling_governor"
ITEMS: list[dict[str, object]] = [
    {"id": "vm.swappiness", "kind": "sysctl", "want": "0"},
    {"id": "kernel.numa_balancing", "kind": "sysctl", "want": "0"},
    {
        "id": "governor",
        "kind": "sysfs",
        "target": GOVERNOR,
        "want": "performance",
        "tolerate_absent": True,
    },
    {"id": "cost", "kind": "migration-cost", "want": "50000", "tolerate_absent": True},
    {"id": "ports", "kind": "reserved-ports", "want": "60000-60031"},
]


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    need_lab()
    with start_lab(tmp_path_factory.mktemp("lab") / "l", HOSTS) as running:
        running.wait_ready(BOOT_LIMIT_S)
        yield running


@pytest.fixture
def options() -> Iterator[SshOptions]:
    made = SshOptions()
    yield made
    made.resources.close()


def state(host: SshHost, mode: str, **keys: object) -> dict[str, dict[str, Any]]:
    request = {"operation": "state", "mode": mode, "stack": "s", "items": ITEMS, **keys}
    items = call_agent(host, request, timeout_s=30)["items"]
    assert isinstance(items, list)
    return {row["id"]: row for row in items}


def states(rows: dict[str, dict[str, Any]]) -> dict[str, str]:
    return {str(item["id"]): rows[str(item["id"])]["state"] for item in ITEMS}


@pytest.fixture
def plain(lab: Lab, options: SshOptions) -> Iterator[SshHost]:
    host = open_host(lab_host(lab, "plain"), options)
    yield host
    state(host, "rollback")
    host.close()


def test_check_writes_nothing_apply_once_rollback_all(lab: Lab, plain: SshHost) -> None:
    before = len(lab.knob_log("plain"))
    assert set(states(state(plain, "check")).values()) == {"changed"}
    assert len(lab.knob_log("plain")) == before
    assert set(states(state(plain, "apply")).values()) == {"changed"}
    written = len(lab.knob_log("plain"))
    assert set(states(state(plain, "apply")).values()) == {"ok"}
    assert len(lab.knob_log("plain")) == written
    assert lab.read_file("plain", "/etc/sysctl.d/60-moe-infra.conf").startswith(b"# Written by")
    state(plain, "rollback")
    for knob, value in (
        ("/proc/sys/vm/swappiness", b"60\n"),
        ("/proc/sys/kernel/numa_balancing", b"1\n"),
    ):
        assert lab.run("plain", ["cat", knob]).stdout == value
    left = lab.run(
        "plain", ["sh", "-c", "find /etc/sysctl.d /etc/systemd/system /var/lib | grep moe"]
    )
    assert left.stdout == b""


@pytest.mark.fault
def test_a_knob_that_refuses_and_one_that_sticks(lab: Lab, plain: SshHost) -> None:
    lab.inject("plain", "vm.swappiness", "EINVAL")
    lab.inject("plain", "kernel.numa_balancing", "sticky")
    try:
        with in_time():
            rows = state(plain, "apply")
    finally:
        lab.inject("plain", "vm.swappiness", None)
        lab.inject("plain", "kernel.numa_balancing", None)
    assert (rows["vm.swappiness"]["state"], rows["vm.swappiness"]["after"]) == ("blocked", "60")
    assert "Invalid argument (EINVAL)" in rows["vm.swappiness"]["why"]
    assert rows["kernel.numa_balancing"]["state"] == "blocked"
    assert "the kernel kept 1" in rows["kernel.numa_balancing"]["why"]
    assert rows["governor"]["state"] == "changed"


# It fails twice; then it goes on, and says so to whoever reads the pipe.
FAILS_TWICE = """
mkfifo /run/goes-on
cat >/run/fails-twice <<'PROGRAM'
#!/bin/sh
echo x >>/run/starts
[ $(wc -l </run/starts) -gt 2 ] || { echo 'ValueError: no such policy'; exit 3; }
echo 'here again' >/run/goes-on
exec sleep 600
PROGRAM
chmod +x /run/fails-twice
printf '[Service]\nType=exec\nExecStart=/run/fails-twice\nRestart=always\nRestartSec=10ms\n' \
  >/run/systemd/system/again.service
systemctl daemon-reload; systemctl start again
timeout 20 cat /run/goes-on; journalctl --sync
"""


def test_what_systemd_has_started_again_tells_how_it_had_ended(lab: Lab, plain: SshHost) -> None:
    assert lab.run("plain", ["sh", "-c", FAILS_TWICE]).stdout == b"here again\n"
    request = units_request("status", ["again.service"], log_lines=60)
    report = call_agent(plain, request, timeout_s=30)
    (found,) = read_units("plain", report, {"again.service": "router/0"}).values()
    lab.run("plain", ["systemctl", "stop", "again"])
    assert (found.is_running, found.restarts, found.result) == (True, 2, "success")
    assert why_ended(found) == "it ended with exit code 3: ValueError: no such policy"


def reboot(lab: Lab, plain: SshHost) -> None:
    """Boot anew, until the tuning has been applied."""
    boots = next(one.boots for one in lab.status() if one.name == "plain")
    plain.run("sudo systemctl reboot", timeout_s=10)
    lab.wait_reboot("plain", boots, BOOT_LIMIT_S)
    unit = "moe-infra-tuning.service"
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        report = call_agent(plain, {"operation": "units", "units": [unit]}, timeout_s=10)
        shown: Any = report["units"]
        if shown[0]["active_state"] == "active":
            break
        time.sleep(0.1)


@pytest.mark.fault
def test_tuning_survives_a_reboot(lab: Lab, plain: SshHost) -> None:
    state(plain, "apply")
    reboot(lab, plain)
    assert set(states(state(plain, "check")).values()) == {"ok"}


# What TuneD does at boot: it sets its own profile's governor, a while after its process has begun, and goes on running.
# From 2.9 it takes its name on the bus, and so has started for systemd, once its profile is applied
# (tuned/daemon/daemon.py at v2.28.0-rc.1, 2026-11-23); before 2.9 it did so at once.
SETS = f"sleep 1; for f in {GOVERNOR}; do echo powersave > $f; done"
READY = "systemd-notify --ready"
TUNED = """[Unit]
Description=Stand-in of TuneD
[Service]
Type=notify
NotifyAccess=all
ExecStart=/bin/sh -c '{steps}; exec sleep infinity'
[Install]
WantedBy=multi-user.target
"""


@contextmanager
def tuned(lab: Lab, *steps: str) -> Iterator[None]:
    """A stand-in of TuneD on the plain host, enabled, which does these steps when it starts."""
    unit = "/etc/systemd/system/tuned.service"
    text = shlex.quote(TUNED.format(steps="; ".join(steps)))
    made = f"printf %s {text} > {unit} && systemctl enable -q tuned"
    assert lab.run("plain", ["sh", "-c", made]).returncode == 0
    try:
        yield
    finally:
        gone = f"systemctl disable -q --now tuned; rm -f {unit}; systemctl daemon-reload"
        lab.run("plain", ["sh", "-c", gone])


@pytest.mark.fault
def test_tuning_outlives_a_service_that_sets_the_same_until_it_has_started(
    lab: Lab, plain: SshHost
) -> None:
    with tuned(lab, SETS, READY):
        row = state(plain, "apply")["governor"]
        assert row["state"] == "changed"
        assert "`sudo tuned-adm off` leaves it to us" in row["why"]
        reboot(lab, plain)
        assert lab.run("plain", ["systemctl", "is-active", "-q", "tuned"]).returncode == 0
        assert set(states(state(plain, "check")).values()) == {"ok"}


@pytest.mark.fault
def test_what_a_service_sets_after_it_has_started_is_told_with_its_name(
    lab: Lab, plain: SshHost
) -> None:
    with tuned(lab, READY, SETS):
        state(plain, "apply")
        reboot(lab, plain)
        waited = f"until grep -q powersave {GOVERNOR}; do sleep 0.1; done"
        with in_time():
            assert lab.run("plain", ["timeout", "10", "sh", "-c", waited]).returncode == 0
            row = state(plain, "check")["governor"]
        assert row["state"] == "changed"
        assert "tuned.service sets it, too" in row["why"]


def test_units_start_stop_and_tell_their_last_words(plain: SshHost) -> None:
    text = "[Service]\nType=exec\nExecStart=/bin/sh -c 'echo hello %i; exec sleep 1%i'\n"
    target = "/etc/systemd/system/moe-s-engine@.service"
    item = {
        "id": "u",
        "group": "files",
        "kind": "file",
        "target": target,
        "content": text,
        "unit": True,
    }
    request = {"operation": "state", "mode": "apply", "stack": "s", "items": [item]}
    # systemd reads what it has never heard of when it is started
    assert call_agent(plain, request, timeout_s=20)["daemon_reloaded"] is False
    units = ["moe-s-engine@00.service", "moe-s-engine@x.service"]

    def act(action: str) -> Any:
        asked = {"operation": "units", "action": action, "units": units, "timeout_s": 10}
        return call_agent(plain, asked, timeout_s=20)["units"]

    act("start")
    deadline = time.monotonic() + 5
    while (rows := act("status"))[1]["active_state"] != "failed" and time.monotonic() < deadline:
        time.sleep(0.05)
    assert (rows[0]["active_state"], rows[0]["log_tail"]) == ("active", [])
    assert rows[1]["result"] == "exit-code"
    assert "hello x" in rows[1]["log_tail"]
    rewritten = {**request, "items": [{**item, "content": text + "# rewritten\n"}]}
    assert call_agent(plain, rewritten, timeout_s=20)["daemon_reloaded"] is True
    assert [row["active_state"] for row in act("stop")] == ["inactive", "inactive"]
    call_agent(plain, {**request, "mode": "rollback", "groups": ["files"]}, timeout_s=20)


def test_kernels_and_hosts_differ(lab: Lab, options: SshOptions) -> None:
    old = open_host(lab_host(lab, "old"), options)
    assert states(state(old, "check")) == {
        "vm.swappiness": "changed",
        "kernel.numa_balancing": "changed",
        "governor": "not_applicable",
        "cost": "changed",
        "ports": "changed",
    }
    old.close()
    locked = open_host(lab_host(lab, "locked", "root"), options)
    assert states(state(locked, "check"))["cost"] == "blocked"
    locked.close()


@pytest.mark.parametrize(
    ("login", "message", "fix"),
    [
        (("locked", "op"), "wants a password", "NOPASSWD"),
        (("locked", "guest"), "wants a password", "NOPASSWD"),  # with -n sudo says the same
        (("tty", "op"), "wants a terminal", "!requiretty"),
    ],
)
@pytest.mark.fault
def test_sudo_s_refusals_name_their_fix(
    lab: Lab, options: SshOptions, login: tuple[str, str], message: str, fix: str
) -> None:
    host = open_host(lab_host(lab, *login), options)
    with in_time(), pytest.raises(SudoRefused, match=message) as caught:
        state(host, "check")
    assert fix in caught.value.fix
    host.close()


def test_sudo_is_found_by_a_login_that_cannot_write_to_dev_null(lab: Lab, plain: SshHost) -> None:
    lab.run("plain", ["chmod", "600", "/dev/null"])
    try:
        assert call_agent(plain, {"operation": "read", "paths": []}, timeout_s=20)["files"] == {}
    finally:
        lab.run("plain", ["chmod", "666", "/dev/null"])


def test_a_sudo_with_a_terminal_of_its_own_does_no_harm(lab: Lab, options: SshOptions) -> None:
    """`use_pty` is the default of newer releases; the agent still ends when nobody waits."""
    host = open_host(lab_host(lab, "tty", "pty"), options)
    assert states(state(host, "check"))["vm.swappiness"] == "changed"
    slow = "#!/bin/sh\nexec sleep 77\n"
    lab.write_file("tty", "/usr/local/bin/docker", slow.encode(), 0o755)
    item = {"id": "image", "kind": "image", "runtime": "docker", "target": "x"}
    request = {"operation": "state", "mode": "check", "stack": "s", "items": [item]}
    with pytest.raises(OverTime):
        call_agent(host, request, timeout_s=1.0)
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline and _agents(lab, "tty"):
        time.sleep(0.05)
    assert _agents(lab, "tty") == []
    host.close()


def _agents(lab: Lab, name: str) -> list[tuple[str, ...]]:
    """The agent's processes and what they started there."""
    signs = ("zlib", "77")
    return [
        argv
        for _, argv in lab.processes(name)
        if any(sign in word for word in argv for sign in signs)
    ]


@pytest.mark.fault
def test_a_host_without_python_says_so(lab: Lab, options: SshOptions) -> None:
    host = open_host(lab_host(lab, "strict"), options)
    with in_time(), pytest.raises(NoPython):
        state(host, "check")
    host.close()


@pytest.mark.fault
def test_max_startups_is_waited_out(lab: Lab) -> None:
    """Eight at once against `MaxStartups 2:100:2`: all get in."""

    def say(_: int) -> bytes:
        host = open_host(lab_host(lab, "strict"), SshOptions())
        try:
            return host.run("echo in", timeout_s=20).stdout
        finally:
            host.close()

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(say, range(8))) == [b"in\n"] * 8


def test_many_hosts_answer_at_once_in_order(lab: Lab, options: SshOptions) -> None:
    names = ["old", "plain"]
    results = run_on_all(
        [lab_host(lab, name) for name in names], lambda host: open_host(host, options)
    )
    assert list(results) == names
    for result in results.values():
        result.unwrap().close()


NOTICED_S = 15.0


@pytest.mark.slow  # a silent peer is noticed after 12 s
@pytest.mark.fault
def test_a_cut_host_is_noticed_and_called_unknown_also_behind_a_bastion(
    lab: Lab, options: SshOptions
) -> None:
    """Directly by the kernel; behind a bastion, whose own connection stays up, by asking."""
    jumping = ("-F", str(lab.ssh_config), "-J", "plain")
    hosts = {
        "began": open_host(lab_host(lab, "old"), options),
        "began-behind": open_host(lab_host(lab, "old", arguments=jumping), options),
    }
    with ThreadPoolExecutor(2) as pool:
        asked = {
            name: pool.submit(timed, host, f"touch /tmp/{name}; sleep 60")
            for name, host in hosts.items()
        }
        for name in hosts:
            while lab.run("old", ["test", "-e", f"/tmp/{name}"]).returncode != 0:
                time.sleep(0.05)
        lab.cut("old")
        cut_at = time.monotonic()
        try:
            ends = {name: one.result(timeout=40) for name, one in asked.items()}
        finally:
            lab.heal("old")
    for name, (outcome, at) in ends.items():
        assert outcome.exit_code is None, name
        assert at - cut_at < NOTICED_S, name
    for host in hosts.values():
        assert host.run("echo back", timeout_s=10).stdout == b"back\n"
        host.close()


def test_a_host_that_works_in_silence_behind_a_bastion_is_not_given_up(
    lab: Lab, options: SshOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pulse, "ASK_AFTER_S", 0.2)
    monkeypatch.setattr(pulse, "DEAD_AFTER_S", 0.6)
    jumping = ("-F", str(lab.ssh_config), "-J", "plain")
    host = open_host(lab_host(lab, "old", arguments=jumping), options)
    assert host.run("sleep 1.5; echo done", timeout_s=10).stdout == b"done\n"
    host.close()


def timed(host: SshHost, command: str) -> tuple[Outcome, float]:
    return host.run(command, timeout_s=60), time.monotonic()


def test_nothing_of_a_request_is_left_on_the_host(lab: Lab, plain: SshHost, tmp_path: Path) -> None:
    call_agent(plain, {"operation": "read", "paths": ["/etc/hostname"]}, timeout_s=10)
    assert _agents(lab, "plain") == []
