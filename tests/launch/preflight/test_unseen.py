"""What was not seen never passes: every command of the facts request fails in three ways, and the whole is judged.

Which checks read a command is not written down here: it is noted what each of them asks a healthy host for.
"""

from __future__ import annotations

import shlex
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from infra.catalog.load import Catalog
from infra.inventory.book import documentation_hosts
from infra.launch.preflight.amd import DEVICES
from infra.launch.preflight.asking import KERNEL_QUESTION, asked_commands
from infra.launch.preflight.evidence import UNSEEN
from infra.launch.preflight.finding import Finding, grouped
from infra.launch.preflight.linux import parse_kernel_lines
from infra.launch.preflight.observed import Told
from infra.launch.preflight.recording import observed_record
from infra.launch.preflight.scene import Scene
from infra.launch.preflight.table import CHECKS, judge
from tests.launch.preflight.scenes import change, healthy, missing, tell, troubles
from tests.launch.preflight.test_links_and_places import with_cards

HGX, RACK, AMD, A2, A3 = "h200-2n-tp16", "gb200-2p1d", "mi355x-tp8", "a2-2n-dp4tp4", "a3-2p1d"
NATIVE = "vllm-native"
WAYS = {
    "missing": missing("program"),
    "hangs": Told(
        exit_code=None,
        stdout="",
        stderr="program did not answer within 30 s and was killed",
        seconds=30,
    ),
    "garbage": Told(exit_code=0, stdout="?=7: <html>\n{so: it\n", stderr="", seconds=0.1),
}
# The whole of one way is enough for whoever waits for the ordinary tests.
EACH_WAY = [
    "missing",
    *(pytest.param(way, marks=pytest.mark.slow) for way in WAYS if way != "missing"),
]
# (check, command) of which the check may pass without the answer: on which stacks, and why.
ALL = (HGX, RACK, AMD, A2, A3, NATIVE)
NEEDLESS = {
    ("stuck-processes", "kernel-log"): (ALL, "tells for how long what is seen elsewhere waits"),
    ("clock-service", "chrony"): (ALL, "timedatectl tells it, too"),
    ("driver-version", "ascend.info"): ((A2, A3), "no driver: the driver's own file tells it"),
    ("imex-domain", "nvidia.query"): ((RACK,), "the daemons tell their domain themselves"),
    ("facts-fresh", "page-size"): (ALL, "recorded, and compared by nobody"),
    ("facts-fresh", "nvidia.query"): ((HGX, NATIVE), "no NVLink domain of a rack is recorded"),
}
# What says of itself that it was not answered: engines do not start without it.
OWN_WORDS = {
    "accelerator-answers", "interface", "own-name", "fabric-state", "imex-domain", "docker-limits", "cgroup-driver",
    "service-limits",
}  # fmt: skip


@cache
def scene_of(stack: str) -> Scene:
    """A healthy scene with all that commands are asked for: cards, recorded facts, a declared network."""
    catalog = Catalog()
    scene = healthy(stack, catalog)
    if stack in (HGX, AMD):
        scene = with_cards(scene)
    if stack == NATIVE:
        limits = "Max locked memory  unlimited  unlimited  bytes\nMax open files  1048576  1048576  files\n"
        for name in scene.hosts:
            scene = tell(scene, name, "service-limits", limits)
    entries = documentation_hosts(list(scene.hosts)).hosts
    domain = "rack-a" if stack == RACK else None
    declared = {
        name: replace(entry, mtu=1500, nvlink_domain=domain) for name, entry in entries.items()
    }
    records = {
        name: observed_record(host, scene.plan.host(name).address)
        for name, host in scene.hosts.items()
    }
    plan = replace(scene.plan, secrets={"api_key": {}})
    scene = replace(scene, plan=plan, declared=declared, recorded=records)
    for name in scene.hosts:
        scene = tell(scene, name, "systemd", "systemd 252 (252.39-1~deb12u2)\n")
    return scene


class Noted(dict[str, Told]):
    """Answers of a host that note which of them were read."""

    def __init__(self, answers: Mapping[str, Told]) -> None:
        super().__init__(answers)
        self.read: set[str] = set()

    def get(self, key: str, default: object = None) -> object:  # type: ignore[override]
        self.read.add(key)
        return super().get(key, default)

    def __getitem__(self, key: str) -> Told:
        self.read.add(key)
        return super().__getitem__(key)


@cache
def readers(stack: str) -> dict[str, set[str]]:
    """The checks that read each answer of the first host, by command."""
    scene = scene_of(stack)
    host = next(iter(scene.hosts))
    found: dict[str, set[str]] = {}
    for name, check in CHECKS.items():
        noted = Noted(scene.hosts[host].commands)
        watched = change(scene, host, commands=noted)
        if host in check.applies(watched):
            noted.read.clear()  # whom it applies to is no judgement
            list(check.find(watched))
            for command in noted.read:
                found.setdefault(command, set()).add(name)
    return found


def asked() -> Iterator[tuple[str, str]]:
    """(stack, command) of the first host of each platform; of many devices the last one's."""
    for stack in ALL:
        scene = scene_of(stack)
        host = next(iter(scene.hosts))
        last = str(scene.plan.host(host).num_devices - 1)
        for command in asked_commands(scene, host):
            index = command.rpartition(".")[2]
            if not index.isdecimal() or index == last:
                yield stack, command


@pytest.mark.parametrize("way", EACH_WAY)
@pytest.mark.parametrize(("stack", "command"), list(asked()), ids=str)
def test_no_check_passes_on_an_answer_that_it_did_not_get(
    stack: str, command: str, way: str
) -> None:
    scene = scene_of(stack)
    host = next(iter(scene.hosts))
    resting = readers(stack).get(command, set())
    commands = {**scene.hosts[host].commands, command: WAYS[way]}
    found = [one for one in judge(change(scene, host, commands=commands)) if one.host == host]
    for check in resting:
        if stack in NEEDLESS.get((check, command), ((), ""))[0]:
            continue
        own = [one for one in found if one.check == check]
        assert own, check
        assert {one.severity for one in own} <= {"warn", "block"}, own
        assert all(one.observed and one.fix for one in own)
        if check not in OWN_WORDS:
            assert_told(own, host)


def _family(command: str) -> str:
    """What is asked, whatever the device or peer."""
    name = command.partition(":")[0]
    return name.rpartition(".")[0] if name.rpartition(".")[2].isdecimal() else name


def assert_told(own: list[Finding], host: str) -> None:
    """One of the findings says that it cannot be told, what was asked, and what to type; none blocks for it."""
    told = [one for one in own if one.observed.startswith(UNSEEN)]
    assert told, own
    assert {one.severity for one in own} == {"warn"}, own
    for one in told:
        ssh, name, sudo, *typed = shlex.split(one.fix.partition("   #")[0])
        assert (ssh, name) == ("ssh", host)
        assert [sudo, *typed]


@pytest.mark.parametrize("stack", ALL)
def test_the_hosts_that_are_spoilt_here_were_healthy(stack: str) -> None:
    assert troubles(scene_of(stack)) == []


def test_every_command_is_read_by_a_check_of_some_platform() -> None:
    """A command that no check reads would be asked for nothing, or be read where this test does not look."""
    read = {_family(command) for stack in ALL for command in readers(stack)}
    assert {_family(command) for _, command in asked()} <= read


def test_a_clock_that_no_tool_tells_of_is_told(catalog: Catalog) -> None:
    scene = healthy(A2, catalog)
    for command in ("chrony", "timedatectl"):
        scene = change(
            scene, "unified-1", commands={**scene.hosts["unified-1"].commands, command: missing()}
        )
    assert troubles(scene) == [("warn", "unified-1", "clock-service")]
    silent = change(healthy(A2, catalog), "unified-1", clock=None)
    assert troubles(silent) == [("warn", "unified-1", "clock-spread")]


def test_devices_that_could_not_be_pinged_are_told(catalog: Catalog) -> None:
    scene = healthy(A3, catalog)
    host = next(iter(scene.hosts))
    found = judge(tell(scene, host, "ascend.address.3", "vnic address 29.0.0.3\n"))
    (told,) = (one for one in found if (one.host, one.check) == (host, "device-ping"))
    assert told.observed.startswith("cannot be told of device 3: hccn_tool prints what cannot be")


@pytest.mark.parametrize("family", ["route", "name"])
def test_peers_of_whom_nothing_can_be_told_are_named(family: str, catalog: Catalog) -> None:
    scene = healthy(A3, catalog)
    first, *peers = scene.hosts
    check = {"route": "route", "name": "peer-names"}[family]
    lost = Told(exit_code=1, stdout="", stderr="Network is unreachable\n", seconds=0.1)

    def observed(unknown: list[str]) -> str:
        asked = {f"{family}:{peer}": lost for peer in unknown}
        spoilt = change(scene, first, commands={**scene.hosts[first].commands, **asked})
        (told,) = (one for one in judge(spoilt) if one.severity != "pass")
        assert (told.host, told.check, told.severity) == (first, check, "warn")
        typed = next(iter(asked_commands(scene, first)[one].argv for one in asked))
        assert told.fix == f"ssh {first} sudo {shlex.join(typed)}"
        return told.observed.partition(": ")[0]

    assert observed(peers[:1]) == f"{UNSEEN} of {peers[0]}"
    assert observed(peers[:2]) == f"{UNSEEN} of {peers[0]}, {peers[1]}"
    assert observed(peers) == f"{UNSEEN} of any peer"


def test_a_tool_that_may_not_be_run_is_told_as_such(catalog: Catalog) -> None:
    scene = healthy(HGX, catalog)
    host = next(iter(scene.hosts))
    for command, program in (("nvidia.dcgm", "dcgmi"), ("nvidia.gpus", "nvidia-smi")):
        words = f"{program}: Permission denied"
        refused = Told(exit_code=None, stdout="", stderr=words, seconds=0.0)
        commands = {**scene.hosts[host].commands, command: refused}
        found = judge(change(scene, host, commands=commands))
        told = {one.observed for one in found if one.severity != "pass"}
        assert f"{UNSEEN}: {program} cannot be run: Permission denied" in told
        assert not [one for one in told if "exit code" in one]


def test_a_label_that_is_spelt_otherwise_disables_no_check_in_silence(catalog: Catalog) -> None:
    scene = healthy(A3, catalog)
    for host in scene.hosts:
        scene = tell(scene, host, "ascend.spod", "SuperPod Id : 3\n")
    found = [one for one in judge(scene) if one.severity != "pass"]
    assert [(one.host, one.check) for one in found] == [(host, "super-pod") for host in scene.hosts]
    assert (
        found[0].observed == "cannot be told: npu-smi prints what cannot be read: SuperPod Id : 3"
    )
    assert found[0].fix == (f"ssh {found[0].host} sudo npu-smi info -t spod-info -i 0 -c 0")


def test_one_tool_that_is_missing_is_one_paragraph_of_all_checks_that_rest_on_it() -> None:
    scene = scene_of(HGX)
    for host in scene.hosts:
        commands = {**scene.hosts[host].commands, "nvidia.gpus": missing("nvidia-smi")}
        scene = change(scene, host, commands=commands)
    found = grouped([one for one in judge(scene) if one.severity != "pass"])
    (blocks, warns) = found
    assert (blocks.checks, blocks.finding.severity) == (("accelerator-answers",), "block")
    assert (warns.hosts, warns.finding.severity) == (("unified-0", "unified-1"), "warn")
    assert {"accelerator-count", "pcie-width", "device-memory-errors"} <= set(warns.checks)
    assert warns.finding.observed == "cannot be told: there is no nvidia-smi"


@pytest.mark.parametrize("text", [None, "?\n"], ids=["missing", "garbage"])
@pytest.mark.parametrize(
    ("stack", "end", "check"),
    [
        (A2, "/proc/meminfo", "memory"),
        (A2, "/driver/version.info", "driver-version"),
        (A3, "/firmware/version.info", "device-firmware"),
        (AMD, "/vbios_version", "device-firmware"),
        (AMD, "/current_link_width", "pcie-width"),
        (HGX, "/current_clocksource", "clock-source"),
    ],
)
def test_no_check_passes_on_a_file_that_it_did_not_read(
    stack: str, end: str, check: str, text: str | None, catalog: Catalog
) -> None:
    scene = healthy(stack, catalog)
    host = next(iter(scene.hosts))
    kept = {path: one for path, one in scene.hosts[host].files.items() if not path.endswith(end)}
    gone = scene.hosts[host].files.keys() - kept.keys()
    spoilt = {} if text is None else dict.fromkeys(gone, text)
    assert gone
    told = troubles(change(scene, host, files={**kept, **spoilt}))
    is_any_word_one = text is not None and end in ("/vbios_version", "/current_clocksource")
    assert told == ([] if is_any_word_one else [("warn", host, check)])


# (stack, command, what one device's part of the answer has, what it has instead, check)
OF_ONE_DEVICE = [
    (HGX, "nvidia.gpus", "16, Disabled, 0, Enabled\n", "16, Disabled, [N/A], Enabled\n", "device-memory-errors"),
    (HGX, "nvidia.gpus", "16, Disabled, 0, Enabled\n", "16, Disabled, [Unknown Error], Enabled\n",
     "device-memory-errors"),
    (HGX, "nvidia.gpus", "16, Disabled, 0, Enabled\n", "[N/A], Disabled, 0, Enabled\n", "pcie-width"),
    (HGX, "nvidia.gpus", "16, Disabled, 0, Enabled\n", "16, [Unknown Error], 0, Enabled\n", "accelerator-partition"),
    (HGX, "nvidia.rows", "GPU-3, No, No, 0\n", "GPU-3, No, [Unknown Error], 0\n", "device-memory-errors"),
    (HGX, "nvidia.rows", "GPU-3, No, No, 0\n", "", "device-memory-errors"),
    (HGX, "nvidia.query", "    VBIOS Version : 97.00\n", "    VBIOS Version : N/A\n", "device-firmware"),
    (HGX, "nvidia.query", "        HW Slowdown : Not Active\n", "", "held-clocks"),
    (HGX, "nvidia.nvlink", "GPU 3: x\n\t Link 0: 53.125 GB/s\n", "", "nvlink"),
    (AMD, "amd.ecc", '"total_uncorrectable_count": 0', '"total_uncorrectable_count": "N/A"', "device-memory-errors"),
    (AMD, "amd.xgmi", '"XGMI Error count": "0"', '"XGMI Error count": "N/A"', "xgmi"),
    (AMD, "amd.static", '"memory_partition": "NPS1"', '"memory_partition": "N/A"', "accelerator-partition"),
]  # fmt: skip


@pytest.mark.parametrize(("stack", "command", "part", "instead", "check"), OF_ONE_DEVICE)
def test_no_check_passes_on_an_answer_that_leaves_out_one_device_of_several(
    stack: str, command: str, part: str, instead: str, check: str
) -> None:
    scene = scene_of(stack)
    host = next(iter(scene.hosts))
    text = scene.hosts[host].commands[command].stdout
    assert part in text
    spoilt = text.replace(part, instead, 1)
    found = [one for one in judge(tell(scene, host, command, spoilt)) if one.severity != "pass"]
    assert [(one.host, one.check, one.severity) for one in found] == [(host, check, "warn")]
    assert found[0].observed.startswith(f"{UNSEEN}: ")
    assert found[0].observed.endswith(" tells it of 7 of 8 devices")


@pytest.mark.parametrize(
    ("end", "check"), [("/vbios_version", "device-firmware"), ("/current_link_width", "pcie-width")]
)
def test_no_check_passes_on_files_of_all_devices_but_one(end: str, check: str) -> None:
    scene = scene_of(AMD)
    host = next(iter(scene.hosts))
    (first, *others) = (path for path in scene.hosts[host].files if path.endswith(end))
    files = {path: text for path, text in scene.hosts[host].files.items() if path != first}
    (told,) = (one for one in judge(change(scene, host, files=files)) if one.severity != "pass")
    assert (told.host, told.check, told.severity, len(others)) == (host, check, "warn", 7)
    assert told.observed == f"{UNSEEN}: 7 of 8 {DEVICES}/*{end} can be read"


def test_ecc_that_is_switched_off_is_told_as_such() -> None:
    scene = scene_of(HGX)
    host = next(iter(scene.hosts))
    text = scene.hosts[host].commands["nvidia.gpus"].stdout
    off = text.replace("0, Enabled\n", "[N/A], Disabled\n", 2)
    (told,) = (
        one for one in judge(tell(scene, host, "nvidia.gpus", off)) if one.severity != "pass"
    )
    assert (told.host, told.check, told.severity) == (host, "device-memory-errors", "warn")
    assert told.observed.startswith("ECC is off on GPU 0, 1: ")


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("command", ["addresses", "own-name", "systemd"])
def test_a_start_is_not_refused_for_what_it_could_not_see(command: str, way: str) -> None:
    scene = replace(scene_of(A2), depth="light")
    assert troubles(scene) == []
    assert set(asked_commands(scene, "unified-0")) == {"addresses", "own-name", "systemd"}
    commands = {**scene.hosts["unified-0"].commands, command: WAYS[way]}
    found = troubles(change(scene, "unified-0", commands=commands))
    assert {severity for severity, _, _ in found} == {"warn"}


@pytest.mark.parametrize(
    ("journalctl", "printed", "lines"),
    [
        ("echo a; echo 'x kernel: NVRM: Xid (PCI:0008:01:00): 79, gone'", "NVRM: Xid", 2),
        ("echo a", "## 1 lines", 1),
        (":", "", 0),
        ("echo 'No journal files were found.' >&2; exit 1", "", 0),
        (None, "", 0),
    ],
)
def test_a_kernel_log_that_cannot_be_read_is_not_an_empty_one(
    journalctl: str | None, printed: str, lines: int, tmp_path: Path
) -> None:
    for name in ("sh", "awk", "tail"):
        (tmp_path / name).symlink_to(str(shutil.which(name)))
    if journalctl is not None:
        program = tmp_path / "journalctl"
        program.write_text(f"#!/bin/sh\n{journalctl}\n")
        program.chmod(0o755)
    argv = ["/bin/sh", "-c", KERNEL_QUESTION]
    done = subprocess.run(
        argv, env={"PATH": str(tmp_path)}, capture_output=True, text=True, check=False
    )
    assert printed in done.stdout
    assert parse_kernel_lines(done.stdout) == lines
