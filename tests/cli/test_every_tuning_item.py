"""Every item of every profile on simulated hosts: it changes, is already so, refuses, sticks, is absent, comes back."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from subprocess import CompletedProcess
from typing import Any

import pytest

from infra.agent.bundle import program, sources_in
from infra.catalog.load import Catalog
from infra.catalog.schema import TuningItem
from infra.rehearsal.lab.client import Lab
from infra.rehearsal.lab.hosts import LabFile, LabHost
from infra.rehearsal.lab.starting import start_lab
from infra.render.wanted_tuning import Tuning, WantedTuning, profile_tuning
from infra.spec.load import PROJECT
from tests.agent.test_pcie_acs import ON, space
from tests.cli.commands import FAB, need_lab, run

# Two hosts with systemd; each item is brought about and taken back several times over real processes.
pytestmark = [pytest.mark.lab, pytest.mark.slow]

RICH, BARE = "rich", "bare"
AGENT = "/opt/agent.py"
FAULT = "/run/tool-fault"
SEARCHED = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
Rows = dict[str, dict[str, Any]]
FILES = {
    "login-limits": "/etc/security/limits.d",
    "imex-nodes": "/etc/nvidia-imex",
    "kernel-arguments": "/etc/default/grub.d",
    "numa-policy": "/etc/systemd",
    "module-options": "/etc/modprobe.d",
    "pcie-acs": "/sys/bus/pci/devices/ffff:00:01.0",  # what is above it is a mount of the lab's own
}
PARTITIONS = "/sys/bus/pci/drivers/amdgpu"
NETWORK = "/proc/sys/net/ipv4"
PLACES = (
    *FILES.values(), "/etc/modules-load.d", PARTITIONS, f"{NETWORK}/ip_local_reserved_ports", f"{NETWORK}/tcp_rmem",
    f"{NETWORK}/tcp_wmem",
)  # fmt: skip
SERVICES = (
    "irqbalance", "nvidia-persistenced", "nvidia-imex", "nvidia-fabricmanager", "chrony",
)  # fmt: skip
# A stand-in for a tool: as real ones do, it ends with an error, or with success and no effect.
TOOL = """\
#!/bin/sh
case "$(cat {fault} 2>/dev/null) $1" in
  *" is-enabled"|*" show"|*" list-units"|*" daemon-reload"|*" --query"*|*" --dry-run"|*" --show"|*" -L") ;;
  refuses*) echo "{name}: Access denied" >&2; exit 1;;
  sticks*) exit 0;;
  kills*) kill -9 $PPID; exit 1;;
  waits*) sleep 20; exit 1;;
esac
{body}
"""
BODIES = {
    "systemctl": 'exec /usr/bin/systemctl "$@"',
    "ip": 'exec /usr/sbin/ip "$@"',
    "update-grub": "exit 0",
    "timedatectl": "echo NTPSynchronized=yes",
    "update-initramfs": "exit 0",
    "modprobe": """\
[ "$1" != --dry-run ] || case "$4" in nvidia|nvidia_peermem|gdrdrv|ib_umad) exit 0;; *) exit 1;; esac
mkdir -p /sys/module/$2""",
    "rmmod": "rmdir /sys/module/$2",
    "dpkg-query": "cat /var/packages; exit 1",
    "apt-mark": '[ $1 = hold ] && word=hi || word=ii; sed -i "s/^.. $3\\$/$word $3/" /var/packages',
    # A file per value and GPU, with what each boot begins with.
    "nvidia-smi": """\
d=/run/gpu
[ -d $d ] || { mkdir $d; for gpu in 0 1; do while read field value; do echo "$value" > $d/$field.$gpu; done <<FIRST
persistence_mode Disabled
power.limit 600.00
power.max_limit 700.00
clocks.applications.memory 1593
clocks.applications.graphics 1200
clocks.max.memory 3201
clocks.max.graphics 1980
mig.mode.pending Enabled
mig.mode.current Enabled
FIRST
done; }
case "$1 $3" in
-L*) ;;
--query*) for gpu in 0 1; do
    line=$gpu
    for field in $(echo "$1" | sed 's/--query-gpu=index,//; s/,/ /g'); do line="$line, $(cat $d/$field.$gpu)"; done
    echo "$line"
  done;;
*-pl) echo $4.00 > $d/power.limit.$2;;
*-ac) echo ${4%,*} > $d/clocks.applications.memory.$2; echo ${4#*,} > $d/clocks.applications.graphics.$2;;
*) [ $4 = 1 ] && mode=Enabled || mode=Disabled
  case $3 in -pm) echo $mode > $d/persistence_mode.$2;;
  *) echo $mode > $d/mig.mode.pending.$2; echo $mode > $d/mig.mode.current.$2;; esac;;
esac""",
}
# What systemd-modules-load does with a kernel; here it finds the stand-in.
MODULES_UNIT = b"""\
[Service]
Type=oneshot
ExecStart=/bin/sh -c 'for m in $$(grep -hv ^# /etc/modules-load.d/60-*.conf); do /usr/local/sbin/modprobe -- $$m; done'
[Install]
WantedBy=multi-user.target
"""
NFS_VOLUMES = "NV SERVER PORT DEV FSID FSC\nv4 0a000001 801 0:52 d3f1c2a8:0 no\n"


SERVICE = LabFile(
    content=b"[Service]\nType=exec\nExecStart=/bin/sleep infinity\n[Install]\nWantedBy=multi-user.target\n"
)


def rich_host() -> LabHost:
    files = {
        f"/usr/local/sbin/{name}": LabFile(
            content=TOOL.format(name=name, fault=FAULT, body=body).encode(), mode=0o755
        )
        for name, body in BODIES.items()
    }
    files |= {f"/usr/lib/systemd/system/{name}.service": SERVICE for name in SERVICES}
    timer = b"[Timer]\nOnCalendar=daily\n[Install]\nWantedBy=timers.target\n"
    for name in ("apt-daily-upgrade", "dnf-automatic"):
        files[f"/usr/lib/systemd/system/{name}.timer"] = LabFile(content=timer)
        files[f"/usr/lib/systemd/system/{name}.service"] = SERVICE
    files |= {
        "/etc/default/grub.d/50-image.cfg": LabFile(content=b"#\n"),
        "/etc/nvidia-imex/nodes_config.cfg": LabFile(content=b"192.0.2.7\n"),
        "/etc/systemd/system.conf.d/x.conf": LabFile(content=b"[Manager]\n"),
        "/proc/cpuinfo": LabFile(content=b"processor\t: 0\nflags\t\t: fpu vme\n"),
        "/proc/cmdline": LabFile(content=b"BOOT_IMAGE=/vmlinuz ro\n"),
        "/proc/fs/nfsfs/volumes": LabFile(content=NFS_VOLUMES.encode()),
        "/etc/modules-load.d/modules.conf": LabFile(content=b"#\n"),
        "/etc/modprobe.d/image.conf": LabFile(content=b"#\n"),
        "/etc/systemd/system/modules.service": LabFile(content=MODULES_UNIT),
        "/sys/module/ib_core/initstate": LabFile(content=b"live\n"),
        "/proc/driver/nvidia/params": LabFile(content=b"CreateImexChannel0: 0\n"),
        "/var/packages": LabFile(content=b"ii nvidia-driver-580\nrc amdgpu-dkms\n"),
        f"{FILES['pcie-acs']}/config": LabFile(content=space(ON)),
        f"{PARTITIONS}/0000:05:00.0/current_compute_partition": LabFile(content=b"CPX\n"),
        f"{PARTITIONS}/0000:05:00.0/current_memory_partition": LabFile(content=b"NPS1\n"),
        "/sys/devices/system/node/has_memory": LabFile(content=b"0-1,2\n"),
        "/sys/devices/system/node/has_cpu": LabFile(content=b"0-1\n"),
    }
    knobs = {
        "/proc/sys/vm/zone_reclaim_mode": "1",
        "/sys/kernel/mm/transparent_hugepage/enabled": "always",
        "/sys/kernel/mm/transparent_hugepage/defrag": "always",
    }
    return LabHost(
        name=RICH,
        address="192.0.2.1",
        files=files,
        knobs=knobs,
        device_nodes=("/dev/nvidia0",),
    )


@dataclass(frozen=True)
class Hosts:
    """The lab, with the agent in place."""

    lab: Lab

    def state(self, mode: str, items: Sequence[WantedTuning] = (), host: str = RICH) -> Rows:
        """The rows by id."""
        done = self.agent(mode, items, host)
        assert done.returncode == 0, done.stderr
        report = json.loads(done.stdout)
        assert "items" in report, report
        return {row["id"]: row for row in report["items"]}

    def agent(
        self, mode: str, items: Sequence[WantedTuning] = (), host: str = RICH
    ) -> CompletedProcess[bytes]:
        """One run of the agent."""
        request = {
            "schema_version": 1,
            "operation": "state",
            "mode": mode,
            "stack": "s",
            "groups": ["tuning"],
            "items": [document(item) for item in items],
            "allow": ["drain", "reboot"],
        }
        return self.lab.run(
            host,
            ["/usr/bin/python3", "-I", "-S", AGENT],
            stdin=json.dumps(request).encode(),
            environment={"PATH": SEARCHED},
        )

    def shell(self, script: str, host: str = RICH) -> str:
        done = self.lab.run(host, ["/bin/sh", "-c", script])
        assert done.returncode == 0, (script, done.stderr)
        return done.stdout.decode()

    def boots(self) -> int:
        """How often the host was booted."""
        return next(one.boots for one in self.lab.status() if one.name == RICH)

    def tools(self, fault: str) -> None:
        self.shell(f"echo {fault} > {FAULT}" if fault else f"rm -f {FAULT}")


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


def every_item() -> list[WantedTuning]:
    """Every item of the catalogue once per wish, those switched on that a stack must name."""
    catalog = Catalog()
    found: dict[tuple[str, str | None], WantedTuning] = {}
    for name in catalog.ids("tuning"):
        profile = catalog.tuning(name)
        optional = tuple(item.id for item in profile.items if is_optional(item))
        for wanted in profile_tuning(Tuning(profile=profile, enable=optional)):
            want = "192.0.2.1,192.0.2.9" if wanted.kind == "imex-nodes" else wanted.want
            found[wanted.id, want] = WantedTuning(
                id=wanted.id,
                kind=wanted.kind,
                target=wanted.target,
                want=want,
                why=wanted.why,
                details=wanted.details,
            )
    return list(found.values())


def is_optional(item: TuningItem) -> bool:
    return not item.enabled or item.opt_in is not None


def rounds(items: Sequence[WantedTuning]) -> list[list[WantedTuning]]:
    """The items in as few requests as hold no id twice."""
    result: list[list[WantedTuning]] = []
    for item in items:
        free = (one for one in result if item.id not in {other.id for other in one})
        target = next(free, None)
        if target is None:
            result.append([item])
        else:
            target.append(item)
    return result


ITEMS = every_item()
LOOKED_AT = [item for item in ITEMS if item.want is None and item.kind != "login-limits"]
# Engine units are only read; a network namespace of its own has no such sysctl.
NO_NETWORK = (
    "net.core.rmem_max", "net.core.wmem_max", *(f"net.ipv4.neigh.default.gc_thresh{n}" for n in (1, 2, 3)),
)  # fmt: skip
ABSENT = ("limits.engine_units", *NO_NETWORK)
WRITTEN = [item for item in ITEMS if item not in LOOKED_AT and item.id not in ABSENT]
# A file holds what is written to it, and so does this kernel's own network tree.
CANNOT_STICK = [
    item
    for item in WRITTEN
    if item.kind in FILES or item.id.startswith("net.ipv4") or item.target.startswith(PARTITIONS)
]
BOOT_LATER = ("kernel-arguments", "numa-policy", "module-options")
UNTOLD = "gpu.coherent_memory_mode"  # the driver tells numbers alone


def name_of(item: WantedTuning) -> str:
    return f"{item.id}={item.want or '-'}"[:60]


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    need_lab()
    bare = LabHost(
        name=BARE,
        address="192.0.2.2",
        kernel="locked-down",
        has_cpufreq=False,
        hidden=tuple(
            f"/usr/lib/systemd/system/{name}"
            for name in ("systemd-timesyncd.service", "apt-daily-upgrade.timer")
        ),
    )
    text = program(sources_in(str(PROJECT / "infra" / "agent"))).encode()
    with start_lab(tmp_path_factory.mktemp("lab") / "l", (rich_host(), bare)) as lab:
        lab.wait_ready(30)
        for name in (RICH, BARE):
            lab.write_file(name, AGENT, text)
        running = Hosts(lab)
        running.shell(
            "systemctl enable --now irqbalance apt-daily-upgrade.timer dnf-automatic.timer; systemctl enable modules"
        )
        yield running


@dataclass(frozen=True)
class Told:
    """What was reported of an item in each situation."""

    found: dict[str, Any]
    checked: dict[str, Any]
    applied: dict[str, Any]
    again: dict[str, Any]
    restored: dict[str, Any]
    refused: dict[str, Any]
    stuck: dict[str, Any]


@pytest.fixture(scope="module")
def told(hosts: Hosts) -> dict[str, Told]:
    """Every item that can be written through all situations, as few requests as possible at a time."""
    result: dict[str, Told] = {}
    for items in rounds(WRITTEN):
        rows = [hosts.state(mode, items) for mode in ("check", "check", "apply", "apply")]
        take_back(hosts)
        rows.append(hosts.state("check", items))
        for fault in ("refuses", "sticks"):
            break_down(hosts, items, fault)
            try:
                rows.append(hosts.state("apply", items))
            finally:
                heal(hosts, items)
            take_back(hosts)
        for item in items:
            result[name_of(item)] = Told(*(row[item.id] for row in rows))
    return result


def take_back(hosts: Hosts) -> None:
    rows = hosts.state("rollback")
    wrong = [row for row in rows.values() if row["state"] not in {"ok", "changed"}]
    assert wrong == []
    assert hosts.shell("ls -A /var/lib/moe-infra 2>/dev/null || :") == ""


@pytest.mark.parametrize("item", WRITTEN, ids=name_of)
def test_it_is_changed_once_and_comes_back(told: dict[str, Told], item: WantedTuning) -> None:
    one = told[name_of(item)]
    assert one.found["state"] == "changed", one.found
    assert one.checked == one.found, "a check has changed something"
    assert one.applied["state"] == "changed", one.applied
    assert one.applied["before"] == one.found["before"]
    if item.kind in BOOT_LATER and item.id != UNTOLD:
        assert (one.again["state"], "reboot this host" in one.again["why"]) == ("blocked", True)
    else:
        assert one.again["state"] == "ok", one.again
    is_first = (
        item.kind != "numa-policy"
    )  # systemd keeps a policy that its configuration no longer names
    assert one.restored["state"] == "changed", one.restored
    assert one.restored["before"] == one.found["before"] or not is_first


@pytest.mark.parametrize("item", WRITTEN, ids=name_of)
def test_one_that_refuses_is_blocked_with_the_reason(
    told: dict[str, Told], item: WantedTuning
) -> None:
    row = told[name_of(item)].refused
    assert row["state"] == "blocked", row
    assert any(words in row["why"] for words in ("(EPERM)", "(EROFS)", "Access denied")), row


@pytest.mark.parametrize(
    "item", [item for item in WRITTEN if item not in CANNOT_STICK], ids=name_of
)
def test_one_that_keeps_its_value_is_blocked(told: dict[str, Told], item: WantedTuning) -> None:
    row = told[name_of(item)].stuck
    assert row["state"] == "blocked", row
    assert "kept" in row["why"]
    assert row["after"] == row["before"]


@pytest.fixture(scope="module")
def on_bare(hosts: Hosts) -> dict[str, dict[str, Any]]:
    return {
        name_of(item): row
        for items in rounds(ITEMS)
        for rows in [hosts.state("check", items, BARE)]
        for item, row in ((item, rows[item.id]) for item in items)
    }


@pytest.mark.parametrize("item", ITEMS, ids=name_of)
def test_a_host_without_it_is_not_a_failure(
    on_bare: dict[str, dict[str, Any]], item: WantedTuning
) -> None:
    row = on_bare[name_of(item)]
    is_lone = item.kind in (
        "gpu-persistence", "gpu-setting", "imex-nodes", "kernel-module", "module-options", "nfs-read-ahead",
        "unit-limits",
    )  # fmt: skip
    if is_lone or (item.id.startswith("cpu.") and item.id != "cpu.smt"):
        assert row["state"] == "not_applicable", row
    elif item.kind in ("clock", "kernel-arguments") or (item.kind, item.want) == (
        "migration-cost", "50000",
    ):  # fmt: skip
        assert row["state"] == "blocked", row
    else:
        assert row["state"] != "failed", row


@pytest.mark.parametrize("item", LOOKED_AT, ids=name_of)
def test_what_is_left_alone_is_never_drift(hosts: Hosts, item: WantedTuning) -> None:
    row = hosts.state("check", [item])[item.id]
    assert row["state"] in ("ok", "not_applicable"), row
    assert row["wanted"] is None


@pytest.mark.fault
def test_an_agent_that_is_killed_between_items_leaves_a_way_out(hosts: Hosts) -> None:
    """SIGKILL by the tool of the second item: the first is written, the second is not."""
    swappiness = next(item for item in ITEMS if item.id == "vm.swappiness")
    persistence = next(item for item in ITEMS if item.kind == "gpu-persistence")
    hosts.tools("kills")
    done = hosts.agent("apply", [swappiness, persistence])
    hosts.tools("")
    assert done.returncode != 0
    assert hosts.shell("cat /proc/sys/vm/swappiness") == "0\n"
    assert hosts.state("check", [persistence])["gpu.persistence_mode"]["before"] == "Disabled"
    rows = hosts.state("rollback")
    assert (rows["vm.swappiness"]["state"], rows["gpu.persistence_mode"]["state"]) == (
        "changed", "ok",
    )  # fmt: skip
    assert hosts.shell("cat /proc/sys/vm/swappiness") == "60\n"
    assert hosts.shell("ls -A /var/lib/moe-infra 2>/dev/null || :") == ""


@pytest.mark.fault
def test_what_is_tuned_survives_a_reboot(hosts: Hosts) -> None:
    """Every knob of the lab begins anew at a boot; only what brings it about again is as wanted."""
    items = [item for item in rounds(WRITTEN)[0] if item.kind not in BOOT_LATER]
    hosts.state("apply", items)
    boots = hosts.boots()
    hosts.lab.run(RICH, ["/bin/systemctl", "reboot"])
    hosts.lab.wait_reboot(RICH, boots, 30)
    deadline = time.monotonic() + 20
    while hosts.shell("systemctl is-active moe-infra-tuning.service || :") != "active\n":
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert {row["state"] for row in hosts.state("check", items).values()} == {"ok"}
    take_back(hosts)


def fab(hosts: Hosts, *words: str) -> list[str]:
    """The words of `fab -H` on hosts of the lab."""
    return [FAB, "-S", str(hosts.lab.ssh_config), *words]


def run_fab(hosts: Hosts, *words: str) -> CompletedProcess[str]:
    return run(*fab(hosts, *words), timeout_s=60)


def test_hosts_named_on_the_command_line_get_the_profiles_that_they_are(hosts: Hosts) -> None:
    done = run_fab(hosts, "-H", f"{RICH},root@{BARE}", "tune-hosts", "--check", "--json")
    assert done.returncode == 6, done.stderr
    told = json.loads(done.stdout)
    assert (told["stack"], told["failed"]) == (None, 0)
    assert {host["name"]: host["profile"] for host in told["hosts"]} == {
        RICH: "x86-baremetal-nvidia",
        BARE: "any-host",
    }
    named = run_fab(hosts, "-H", BARE, "tune-hosts", "--check", "--profile", "grace-nvidia")
    assert f"grace-nvidia: {BARE} (--profile)" in named.stdout


@pytest.mark.fault
def test_a_fab_that_is_killed_half_way_is_run_again_or_taken_back(hosts: Hosts) -> None:
    hosts.tools("waits")
    with subprocess.Popen(
        fab(hosts, "-H", RICH, "tune-hosts"), cwd=PROJECT, stdout=subprocess.DEVNULL
    ) as process:
        deadline = time.monotonic() + 30
        while hosts.shell("cat /proc/sys/vm/swappiness") != "0\n":
            assert time.monotonic() < deadline
            time.sleep(0.05)
        process.kill()
    hosts.tools("")
    assert run_fab(hosts, "-H", RICH, "tune-hosts").returncode == 0
    assert run_fab(hosts, "-H", RICH, "tune-hosts", "--check").returncode == 0
    assert run_fab(hosts, "-H", RICH, "tune-hosts", "--rollback").returncode == 0
    assert hosts.shell("cat /proc/sys/vm/swappiness") == "60\n"
    assert hosts.shell("ls -A /var/lib/moe-infra 2>/dev/null || :") == ""


def knobs_of(hosts: Hosts, items: Sequence[WantedTuning]) -> list[str]:
    """The simulated knobs behind items."""
    knobs: list[str] = []
    for item in items:
        if item.kind == "sysctl" and not item.target.startswith("net."):
            knobs.append(item.target)
        elif item.kind == "migration-cost":
            knobs.append("/sys/kernel/debug/sched/migration_cost_ns")
        elif item.kind == "nfs-read-ahead":
            knobs.append("/sys/class/bdi/0:52/read_ahead_kb")
        elif item.kind in ("sysfs", "choice") and not item.target.startswith(PARTITIONS):
            knobs += hosts.shell(f"ls {item.target}").split()
    return knobs


def break_down(hosts: Hosts, items: Sequence[WantedTuning], fault: str) -> None:
    """Make every write fail, or every one that can succeed in vain do that."""
    hosts.tools(fault)
    for knob in knobs_of(hosts, items):
        hosts.lab.inject(RICH, knob, "EPERM" if fault == "refuses" else "sticky")
    if fault == "refuses":
        hosts.shell("".join(f"mount --bind {p} {p}; mount -o remount,ro,bind {p};" for p in PLACES))


def heal(hosts: Hosts, items: Sequence[WantedTuning]) -> None:
    hosts.tools("")
    for knob in knobs_of(hosts, items):
        hosts.lab.inject(RICH, knob, None)
    hosts.shell("".join(f"umount {place} 2>/dev/null; " for place in PLACES) + ":")
