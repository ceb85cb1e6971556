"""Every item of every profile on simulated hosts: it changes, is already so, refuses, sticks, is absent, comes back."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from subprocess import CompletedProcess
from typing import Any

import pytest

from infra.agent.bundle import program
from infra.agent.condensing import sources_in
from infra.rehearsal.lab.client import Lab
from infra.rehearsal.lab.starting import start_lab
from infra.render.wanted_tuning import WantedTuning
from infra.spec.load import PROJECT
from tests.cli.commands import FAB, need_lab, run
from tests.cli.tuning_cells import Shown, all_shown, read_rows, wanted_by_profile
from tests.cli.tuning_faults import (
    NEEDS_BOOT,
    READ_ONLY,
    REFUSING,
    STICKING,
    Trouble,
    bring_trouble,
    end_trouble,
    said_by,
    shell,
)
from tests.cli.tuning_flavours import TOOL_FAULT, Flavour, flavours, without_anything

# A host with systemd for every flavour; each item is brought about and taken back several times over real processes.
pytestmark = [pytest.mark.lab, pytest.mark.slow]

RICH, BARE = "x86-baremetal-nvidia", without_anything()
AGENT = "/opt/agent.py"
SEARCHED = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
RECORDS = "ls -A /var/lib/moe-infra 2>/dev/null || :"
BOOT_LIMIT_S = 60.0
# No boot has to be waited for: the driver tells numbers alone; systemd takes the policy when it reads its units anew.
AT_ONCE = ("gpu.coherent_memory_mode", "numa.policy")
Rows = dict[str, dict[str, Any]]

FLAVOURS = {one.name: one for one in flavours()}
CELLS = read_rows()
SHOWN = all_shown(CELLS)
BY_PROFILE = wanted_by_profile()


@dataclass(frozen=True)
class Hosts:
    """The lab, with the agent in place."""

    lab: Lab

    def state(self, host: str, mode: str, items: Sequence[WantedTuning] = ()) -> Rows:
        """The rows by id."""
        done = self.agent(host, mode, items)
        assert done.returncode == 0, done.stderr
        report = json.loads(done.stdout)
        assert "items" in report, report
        return {row["id"]: row for row in report["items"]}

    def agent(
        self, host: str, mode: str, items: Sequence[WantedTuning] = ()
    ) -> CompletedProcess[bytes]:
        """One run of the agent."""
        request = {
            "schema_version": 1,
            "operation": "state",
            "mode": mode,
            "stack": "s",
            "groups": ["tuning"],
            "items": [document(item) for item in items],
            "allow": ["drain", "reboot", "running"],
        }
        return self.lab.run(
            host,
            ["/usr/bin/python3", "-I", "-S", AGENT],
            stdin=json.dumps(request).encode(),
            environment={"PATH": SEARCHED},
        )

    def take_back(self, host: str) -> None:
        rows = self.state(host, "rollback")
        wrong = [row for row in rows.values() if row["state"] not in {"ok", "changed"}]
        assert wrong == []
        assert self.shell(host, RECORDS) == ""

    def reboot(self, host: str) -> None:
        """Boot anew, to where nothing is left to start."""
        boots = next(one.boots for one in self.lab.status() if one.name == host)
        self.lab.run(host, ["/bin/systemctl", "reboot"])
        self.lab.wait_reboot(host, boots, BOOT_LIMIT_S)
        deadline = time.monotonic() + BOOT_LIMIT_S
        while self.shell(host, "/bin/systemctl list-jobs --no-legend || echo starting") != "":
            assert time.monotonic() < deadline
            time.sleep(0.1)

    def shell(self, host: str, script: str) -> str:
        return shell(self.lab, host, script)

    def tools(self, fault: str) -> None:
        """What all tools of the host do that is rich in them."""
        self.shell(RICH, f"echo {fault} > {TOOL_FAULT}" if fault else f"rm -f {TOOL_FAULT}")


def document(item: WantedTuning) -> dict[str, object]:
    return {
        "id": item.id,
        "group": "tuning",
        "kind": item.kind,
        "target": item.target,
        "why": item.why,
        "want": item.want,
        **item.details,
    }


def items_of(flavour: Flavour) -> list[WantedTuning]:
    """What a flavour's profile wants, as far as it is there for that."""
    items = BY_PROFILE[flavour.profile].values()
    return [item for item in items if not flavour.only or item.kind in flavour.only]


def item_of(shown: Shown) -> WantedTuning:
    return BY_PROFILE[FLAVOURS[shown.flavour].profile][shown.item]


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    need_lab()
    text = program(sources_in(str(PROJECT / "infra" / "agent"))).encode()
    boxes = (*(one.host for one in FLAVOURS.values()), BARE)
    with start_lab(tmp_path_factory.mktemp("lab") / "l", boxes) as lab:
        lab.wait_ready(BOOT_LIMIT_S)
        running = Hosts(lab)
        for host in boxes:
            lab.write_file(host.name, AGENT, text)
        for flavour in FLAVOURS.values():
            if flavour.services:
                words = " ".join(flavour.services)
                running.shell(flavour.name, f"systemctl enable --now {words}")
        yield running


@dataclass(frozen=True, kw_only=True)
class Told:
    """What was reported of a flavour's items in each situation.

    Args:
        found, checked: before anything, twice.
        applied, again: when all was well, twice.
        booted: after a reboot.
        restored: after everything was taken back, and another reboot where one was needed.
        stuck, stuck_boot: when every write was in vain, and after a reboot; {} where nothing waits for one.
        read_only, refused: when nothing could be written to folders, and when knobs and tools said no.
    """

    found: Rows
    checked: Rows
    applied: Rows
    again: Rows
    booted: Rows
    restored: Rows
    stuck: Rows
    stuck_boot: Rows
    read_only: Rows
    refused: Rows


@pytest.fixture(scope="module")
def told(hosts: Hosts) -> dict[str, Told]:
    """Every flavour through all situations, all of its items at a time."""
    with ThreadPoolExecutor() as threads:
        rows = threads.map(lambda flavour: tell(hosts, flavour), FLAVOURS.values())
        return dict(zip(FLAVOURS, rows, strict=True))


def tell(hosts: Hosts, flavour: Flavour) -> Told:
    name, items = flavour.name, items_of(flavour)
    waits_for_boot = any(one.flavour == name and one.way == "boot" for one in SHOWN)
    found, checked = (hosts.state(name, "check", items) for _ in range(2))
    applied, again = (hosts.state(name, "apply", items) for _ in range(2))
    hosts.reboot(name)
    booted = hosts.state(name, "check", items)
    hosts.take_back(name)
    if any(item.kind in NEEDS_BOOT for item in items):
        hosts.reboot(name)
    restored = hosts.state(name, "check", items)
    stuck, stuck_boot = in_trouble(hosts, flavour, STICKING, boots=waits_for_boot)
    read_only, _ = in_trouble(hosts, flavour, READ_ONLY)
    refused, _ = in_trouble(hosts, flavour, REFUSING)
    return Told(
        found=found,
        checked=checked,
        applied=applied,
        again=again,
        booted=booted,
        restored=restored,
        stuck=stuck,
        stuck_boot=stuck_boot,
        read_only=read_only,
        refused=refused,
    )


def in_trouble(
    hosts: Hosts, flavour: Flavour, trouble: Trouble, *, boots: bool = False
) -> tuple[Rows, Rows]:
    """What is told when all is applied in trouble, and what a check tells after a reboot; then all is as before."""
    name, items = flavour.name, items_of(flavour)
    promised = [(one, item_of(one)) for one in SHOWN if one.flavour == name]
    bring_trouble(hosts.lab, flavour, promised, trouble)
    try:
        first = hosts.state(name, "apply", items)
        if boots:
            hosts.reboot(name)
        later = hosts.state(name, "check", items) if boots else {}
    finally:
        end_trouble(hosts.lab, flavour, promised)
    hosts.take_back(name)
    return first, later


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_a_flavour_is_brought_about_once_survives_a_reboot_and_comes_back(
    told: dict[str, Told], flavour: str
) -> None:
    one = told[flavour]
    assert one.checked == one.found, "a check has changed something"
    kinds = {item.id: item.kind for item in items_of(FLAVOURS[flavour])}
    for name, kind in kinds.items():
        found = one.found[name]
        assert found["state"] in ("changed", "ok", "not_applicable"), found
        applied = one.applied[name]
        assert (applied["state"], applied["before"]) == (found["state"], found["before"]), applied
        again = one.again[name]
        if kind in NEEDS_BOOT and name not in AT_ONCE:
            assert (again["state"], "reboot this host" in again["why"]) == ("blocked", True), again
        else:
            assert again["state"] in ("ok", "not_applicable"), again
        assert one.booted[name]["state"] in ("ok", "not_applicable"), one.booted[name]
    assert one.restored == one.found


@pytest.mark.parametrize("shown", [one for one in SHOWN if one.column == "exists"], ids=str)
def test_it_exists(told: dict[str, Told], shown: Shown) -> None:
    row = told[shown.flavour].found[shown.item]
    if shown.way == "changed":
        assert row["state"] == "changed", row
        return
    assert row["state"] == "ok", row
    assert row["before"] is not None, "its value is not shown"
    assert (row["wanted"] is None) == (shown.way == "read")


@pytest.mark.parametrize("shown", [one for one in SHOWN if one.column == "refuses"], ids=str)
@pytest.mark.fault
def test_one_that_refuses_is_blocked_with_the_reason(told: dict[str, Told], shown: Shown) -> None:
    one = told[shown.flavour]
    row = (one.read_only if shown.way == "read-only" else one.refused)[shown.item]
    assert row["state"] == "blocked", row
    assert said_by(shown.way) in row["why"], row


@pytest.mark.parametrize("shown", [one for one in SHOWN if one.column == "sticks"], ids=str)
@pytest.mark.fault
def test_one_that_keeps_its_value_is_blocked(told: dict[str, Told], shown: Shown) -> None:
    one = told[shown.flavour]
    if shown.way == "boot":  # nothing tells before the boot that it was in vain
        first, row = one.stuck[shown.item], one.stuck_boot[shown.item]
        assert "reboot this host" in first["why"], first
        assert "reboot this host" in row["why"], row
    else:
        row = one.stuck[shown.item]
        assert "kept" in row["why"], row
    assert row["state"] == "blocked", row
    assert row["after"] == one.found[shown.item]["before"]


@pytest.fixture(scope="module")
def on_bare(hosts: Hosts) -> list[Rows]:
    """What each profile is told on a host that has nothing."""
    every = (list(items.values()) for items in BY_PROFILE.values())
    return [hosts.state(BARE.name, "check", items) for items in every]


@pytest.mark.parametrize("item", CELLS)
def test_a_host_without_it_is_not_a_failure(on_bare: list[Rows], item: str) -> None:
    rows = [rows[item] for rows in on_bare if item in rows]
    for row in rows:
        expected = CELLS[item].bare
        if row["wanted"] is None:
            expected = (*expected, "ok")
        assert row["state"] in expected, row


@pytest.mark.fault
def test_an_agent_that_is_killed_between_items_leaves_a_way_out(hosts: Hosts) -> None:
    """SIGKILL by the tool of the second item: the first is written, the second is not."""
    items = BY_PROFILE[RICH]
    swappiness, persistence = items["vm.swappiness"], items["gpu.persistence_mode"]
    hosts.tools("kills")
    done = hosts.agent(RICH, "apply", [swappiness, persistence])
    hosts.tools("")
    assert done.returncode != 0
    assert hosts.shell(RICH, "cat /proc/sys/vm/swappiness") == "0\n"
    looked = hosts.state(RICH, "check", [persistence])
    assert looked["gpu.persistence_mode"]["before"] == "Disabled"
    rows = hosts.state(RICH, "rollback")
    assert (rows["vm.swappiness"]["state"], rows["gpu.persistence_mode"]["state"]) == (
        "changed", "ok",
    )  # fmt: skip
    assert hosts.shell(RICH, "cat /proc/sys/vm/swappiness") == "60\n"
    assert hosts.shell(RICH, RECORDS) == ""


def fab(hosts: Hosts, *words: str) -> list[str]:
    """The words of `fab -H` on hosts of the lab."""
    return [FAB, "-S", str(hosts.lab.ssh_config), *words]


def run_fab(hosts: Hosts, *words: str) -> CompletedProcess[str]:
    return run(*fab(hosts, *words), timeout_s=60)


def test_hosts_named_on_the_command_line_get_the_profiles_that_they_are(hosts: Hosts) -> None:
    names = ",".join([*FLAVOURS, f"root@{BARE.name}"])
    done = run_fab(hosts, "-H", names, "tune-hosts", "--check", "--json")
    assert done.returncode == 6, done.stderr
    told = json.loads(done.stdout)
    assert (told["stack"], told["failed"]) == (None, 0)
    assert {host["name"]: host["profile"] for host in told["hosts"]} == {
        **{name: one.profile for name, one in FLAVOURS.items()},
        BARE.name: "any-host",
    }
    named = run_fab(hosts, "-H", BARE.name, "tune-hosts", "--check", "--profile", "grace-nvidia")
    assert f"grace-nvidia: {BARE.name} (--profile)" in named.stdout


@pytest.mark.fault
def test_a_fab_that_is_killed_half_way_is_run_again_or_taken_back(hosts: Hosts) -> None:
    hosts.tools("waits")
    with subprocess.Popen(
        fab(hosts, "-H", RICH, "tune-hosts"), cwd=PROJECT, stdout=subprocess.DEVNULL
    ) as process:
        deadline = time.monotonic() + 30
        while hosts.shell(RICH, "cat /proc/sys/vm/swappiness") != "0\n":
            assert time.monotonic() < deadline
            time.sleep(0.05)
        process.kill()
    hosts.tools("")
    assert run_fab(hosts, "-H", RICH, "tune-hosts").returncode == 0
    assert run_fab(hosts, "-H", RICH, "tune-hosts", "--check").returncode == 0
    assert run_fab(hosts, "-H", RICH, "tune-hosts", "--rollback").returncode == 0
    assert hosts.shell(RICH, "cat /proc/sys/vm/swappiness") == "60\n"
    assert hosts.shell(RICH, RECORDS) == ""
