"""Facts of all hosts judged: what each check has against a host, and that healthy hosts pass."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from infra.agent.staging.place import partial_path
from infra.catalog.load import Catalog
from infra.inventory.facts_file import RecordedHost
from infra.launch.preflight.asking import weight_folders
from infra.launch.preflight.finding import (
    Finding,
    Severity,
    grouped,
    preflight_document,
    worst_first,
)
from infra.launch.preflight.observed import ClockReading, Disk, Holder, read_observed
from infra.launch.preflight.recording import observed_record
from infra.launch.preflight.scene import Scene, odd_ones
from infra.launch.preflight.table import CHECKS, judge
from infra.render import boot_mark
from infra.render.release_record import RecordedProcess
from infra.render.supervision import plan_watch_port
from tests.launch.preflight.scenes import (
    amd_processes,
    change,
    fabric,
    gpus,
    healthy,
    imex,
    npus,
    only,
    row,
    tell,
    troubles,
)
from tests.launch.scripted_facts import addresses_text
from tests.launch.scripted_fleet import make_deployment

RACK, ASCEND, POD, AMD = "gb200-2p1d", "a2-2n-dp4tp4", "a3-2p1d", "mi355x-tp8"


@pytest.mark.parametrize("stack", [RACK, ASCEND, POD, AMD, "h200-2n-tp16", "vllm-native"])
def test_healthy_hosts_pass_every_check_that_applies(stack: str, catalog: Catalog) -> None:
    scene = healthy(stack, catalog)
    if stack == "vllm-native":
        scene = tell(
            scene,
            scene.plan.hosts[0].name,
            "service-limits",
            "Max locked memory  unlimited  unlimited  bytes\nMax open files  1048576  1048576  files\n",
        )
    assert troubles(scene) == []
    assert judge(scene)


def test_the_light_look_judges_only_what_it_asked(catalog: Catalog) -> None:
    scene = replace(healthy(RACK, catalog), depth="light")
    checks = {finding.check for finding in judge(scene)}
    assert checks <= {name for name, check in CHECKS.items() if check.depth == "light"}
    assert {"weights-staged", "ports-free", "driver-version", "clock-spread"} <= checks


def test_the_odd_one_is_named_beside_one_that_has_the_usual_value() -> None:
    assert odd_ones({"a": "1", "b": "2", "c": "2"}) == ("2", "b", {"a": "1"})
    assert odd_ones({"a": "1", "b": "2"}) == ("1", "a", {"b": "2"})
    assert odd_ones({}) == ("", "", {})


def test_findings_are_ordered_worst_first_and_equal_ones_are_told_once() -> None:
    def finding(host: str, severity: Severity, fix: str = "ssh {} ls") -> Finding:
        return Finding(
            host=host, check="c", severity=severity, observed="o", wanted="w", fix=fix.format(host)
        )

    found = [
        finding("a", "pass"),
        finding("a", "warn"),
        finding("b", "block"),
        finding("c", "block"),
    ]
    ordered = worst_first(found)
    assert [one.severity for one in ordered] == ["block", "block", "warn", "pass"]
    first = grouped(ordered)[0]
    assert (first.hosts, first.fix) == (("b", "c"), "ssh HOST ls")
    document = preflight_document("s", found)
    assert document["ok"] is False
    assert json.loads(json.dumps(document)) == document


DIAGNOSIS = (
    '{{"DCGM Diagnostic": {{"test_categories": '
    '[{{"tests": [{{"name": "PCIe", "results": [{{"status": "{}"}}]}}]}}]}}}}'
)
DOCKER = "LimitMEMLOCK={own}\nLimitNOFILE=infinity\nLimitSTACK=infinity\n{ids}\nCapEff: {can}\n"
HGX = "h200-2n-tp16"
# (stack, command, its answer, check, severity, part of what is observed)
ANSWERS = [
    (RACK, "nvidia.gpus", gpus(3), "accelerator-count", "block", "3 devices"),
    (RACK, "nvidia.gpus", gpus(4, name="NVIDIA H200"), "accelerator-type", "block", "NVIDIA H200"),
    (RACK, "nvidia.gpus", gpus(4, driver="570.1"), "driver-version", "block", "570.1"),
    (RACK, "nvidia.gpus", gpus(4, mig="Enabled"), "accelerator-partition", "block", "MIG"),
    (RACK, "nvidia.gpus", gpus(4).replace("189471", "90000"), "accelerator-memory", "block", "90000 MiB"),
    (RACK, "nvidia.gpus", gpus(4).replace(" 16,", " 8,"), "pcie-width", "warn", "8 PCIe lanes"),
    (RACK, "nvidia.gpus", gpus(4).replace("Disabled, 0", "Disabled, 2"), "device-memory-errors", "warn", "2 unc"),
    (RACK, "nvidia.gpus", "", "accelerator-answers", "block", "shows no device"),
    (RACK, "nvidia.query", fabric(4, state="In Progress"), "fabric-state", "block", "In Progress"),
    (RACK, "nvidia.query", fabric(4, clique=2), "nvlink-domain", "block", "c0ffee.2 (decode-3)"),
    (RACK, "nvidia.query", fabric(4, cluster="00000000-0000-0000-0000-000000000000"), "fabric-state", "block", "no"),
    (RACK, "nvidia.query", "", "fabric-state", "block", "tells nothing of a fabric"),
    (RACK, "nvidia.nvlink", "GPU 1: x\n\t Link 4: <inactive>\n\t Link 5: 53 GB/s\n", "nvlink", "block", "NVLink 4"),
    (RACK, "nvidia.nvlink", "GPU 0: x\nGPU 1: x\n", "nvlink", "block", "shows no link"),
    (HGX, "nvidia.nvlink", "\n", "nvlink", "block", "shows no link"),
    (RACK, "nvidia.imex", imex({"192.0.2.1": "READY"}), "imex-domain", "block", "lacks"),
    (RACK, "nvidia.imex", "", "imex-domain", "block", "no domain"),
    (RACK, "nvidia.rows", "GPU-1, 0, 1, 0\n", "device-memory-errors", "block", "remapping failed"),
    (RACK, "nvidia.rows", "GPU-1, Yes, No, 0\n", "device-memory-errors", "warn", "rows wait"),
    (RACK, "nvidia.rows", "GPU-1, No, Yes, 0\n", "device-memory-errors", "block", "remapping failed"),
    (RACK, "nvidia.apps", "77, python3, 900, GPU-2\n", "accelerator-processes", "block", "process 77 (python3)"),
    (RACK, "kernel-log", "NVRM: Xid (PCI:0008:01:00): 79, gone\n", "xid", "block", "Xid 79"),
    (RACK, "kernel-log", "NVRM: Xid (PCI:0008:01:00): 48, DBE\n", "xid", "warn", "Xid 48"),
    (RACK, "kernel-log", "NVRM: Xid (PCI:0008:01:00): 149, NVLink\n", "xid", "warn", "Xid 149"),
    (HGX, "kernel-log", "nvidia-nvswitch0: SXid (PCI:0000:86:00.0): 12028, x\n", "xid", "warn", "SXid 12028 of 1"),
    (RACK, "nvidia.dcgm", DIAGNOSIS.format("Fail"), "gpu-diagnosis", "block", "fail in PCIe"),
    (RACK, "nvidia.dcgm", DIAGNOSIS.format("Warn"), "gpu-diagnosis", "warn", "warn in PCIe"),
    (RACK, "nvidia.dcgm", "Error: unable to connect", "gpu-diagnosis", "warn", "cannot be told"),
    (ASCEND, "name:unified-0", "198.51.100.9 STREAM x\n", "peer-names", "warn", "takes unified-0 for 198.51.100.9"),
    (ASCEND, "docker-limits", DOCKER.format(own="65536", ids="0 100000 65536", can="00"), "docker-limits", "block",
     "docker's own LimitMEMLOCK is 65536"),
    (ASCEND, "docker-limits", DOCKER.format(own="65536", ids="0 0 4294967295", can="00"), "docker-limits", "block",
     "may not raise it to unlimited"),
    (RACK, "docker-info", "systemd 2\n", "cgroup-driver", "warn", "daemon-reload"),
    (RACK, "nvidia.services", "Id=nvidia-fabricmanager.service\nLoadState=loaded\nActiveState=failed\n",
     "fabric-manager", "block", "failed"),
    (ASCEND, "ascend.info", npus(8, health="Alarm"), "npu-health", "block", "health Alarm"),
    (ASCEND, "ascend.info", npus(7), "accelerator-count", "block", "7 devices"),
    (ASCEND, "ascend.tls.3", "dev_id:3, tls switch[1]\n", "tls-switch", "block", "TLS switch 1 on device 3"),
    (ASCEND, "ascend.tls.3", "", "tls-switch", "warn", "cannot be told of device 3"),
    (ASCEND, "ascend.link.5", "link status: DOWN\n", "device-network", "block", "device 5: link DOWN"),
    (ASCEND, "ascend.net_health.0", "net health status: Unreachable\n", "device-network", "block", "Unreachable"),
    (ASCEND, "ascend.address.0", "Get ipconf failed, because no ip was preset there!\n", "device-network", "block",
     "no address"),
    (ASCEND, "ascend.address.0", "", "device-network", "warn", "cannot be told of device 0"),
    (ASCEND, "ascend.link.5", "Link Status = UP\n", "device-network", "warn", "cannot be told of device 5"),
    (POD, "ascend.spod", "Super Pod ID : 4\n", "super-pod", "block", "super-pod 4, while"),
    (AMD, "amd.xgmi", '{"card2": {"XGMI Error count": "9"}}', "xgmi", "warn", "card2: 9"),
    (AMD, "amd.processes", '[{"gpu": 1, "process_list": [{"process_info": {"pid": 7}}]}]',
     "accelerator-processes", "block", "process 7"),
    (ASCEND, "own-name", "127.0.1.1 STREAM x\n", "own-name", "block", "127.0.1.1"),
    (AMD, "own-name", "127.0.1.1 STREAM x\n", "own-name", "warn", "127.0.1.1"),
    (ASCEND, "own-name", "", "own-name", "warn", "does not resolve"),
    (ASCEND, "timedatectl", "NTPSynchronized=no\n", "clock-service", "warn", "no time service"),
    (ASCEND, "chrony", "A,b,4,1.0,2.5,0\n", "clock-service", "block", "+2.500 s off"),
    (ASCEND, "route:unified-0", '[{"dev": "eth9"}]', "route", "block", "leaves by eth9"),
    (ASCEND, "addresses", "", "interface", "warn", "cannot be read"),
    (ASCEND, "addresses", addresses_text("ens3", "192.0.2.2"), "interface", "block", "ens3 carries 192.0.2.2"),
    (ASCEND, "addresses", addresses_text("eth0", "10.0.0.1"), "interface", "block", "does not carry 192.0.2.2"),
    (ASCEND, "addresses", addresses_text("eth0", "192.0.2.2", flags="UP"), "interface", "block", "without carrier"),
    (ASCEND, "addresses", addresses_text("eth0", "192.0.2.2", mtu=9000), "mtu", "warn", "MTU 9000 on eth0"),
]  # fmt: skip


@pytest.mark.parametrize(
    "case", ANSWERS, ids=[f"{case[3]}-{place}" for place, case in enumerate(ANSWERS)]
)
def test_an_answer_of_one_host_is_held_against_it(
    case: tuple[str, str, str, str, str, str], catalog: Catalog
) -> None:
    stack, command, answer, check, severity, part = case
    scene = healthy(stack, catalog)
    host = scene.plan.hosts[-1].name
    found = [f for f in judge(tell(scene, host, command, answer)) if f.severity != "pass"]
    assert (severity, host, check) in {(f.severity, f.host, f.check) for f in found}
    assert {f.host for f in found} == {host}
    told = next(f for f in found if f.check == check)
    assert part in told.observed
    assert told.fix
    assert told.wanted


@pytest.mark.parametrize(
    ("exit_code", "words", "part"),
    [
        (None, "nvidia-smi did not answer within 30 s and was killed", "hangs"),
        (None, "nvidia-smi: No such file or directory", "there is no nvidia-smi"),
        (9, "NVIDIA-SMI has failed because it couldn't communicate", "exit code 9"),
    ],
)
def test_a_tool_that_does_not_list_devices_blocks(
    exit_code: int | None, words: str, part: str, catalog: Catalog
) -> None:
    scene = tell(healthy(RACK, catalog), "decode-2", "nvidia.gpus", words, exit_code)
    found = [f for f in judge(scene) if f.severity == "block"]
    assert [(f.host, f.check) for f in found] == [("decode-2", "accelerator-answers")]
    assert part in found[0].observed


NO_MANAGER = "Id=nvidia-fabricmanager.service\nLoadState=not-found\nActiveState=inactive\n"


def test_switches_that_nobody_manages_block_unless_their_fabric_is_whole(catalog: Catalog) -> None:
    scene = tell(healthy(HGX, catalog), "unified-1", "nvidia.services", NO_MANAGER)
    assert troubles(scene) == []  # somebody else manages them
    waiting = tell(scene, "unified-1", "nvidia.query", fabric(8, state="In Progress"))
    (found,) = (one for one in judge(waiting) if one.check == "fabric-manager" if one.fix)
    assert (found.severity, "is not installed" in found.observed) == ("block", True)
    unseen = tell(scene, "unified-1", "nvidia.query", "")
    assert ("warn", "unified-1", "fabric-manager") in troubles(unseen)
    assert not [one for one in troubles(unseen) if one[0] == "block"]


def test_weights_that_are_missing_block_and_must_have_room(catalog: Catalog) -> None:
    scene = healthy(ASCEND, catalog)
    item = f"weights:{scene.plan.checkpoint}"
    scene = row(scene, "unified-1", item, state="blocked", why="it does not exist")
    assert troubles(scene) == [("block", "unified-1", "weights-staged")]
    disk = Disk(
        mount="/",
        kind="ext4",
        exists=True,
        free_bytes=10**10,
        free_inodes=10**6,
        total_inodes=10**6,
        is_read_only=False,
        error=None,
    )
    small = change(scene, "unified-1", disks={"/models": disk})
    assert ("block", "unified-1", "weights-room") in troubles(small)
    # what a staging that was cut off has left is not written again, and what is left of it fits
    item = f"weights:{scene.plan.checkpoint}"
    size = catalog.checkpoint(scene.plan.checkpoint).size_bytes
    begun = change(small, "unified-1", sizes={item: size - 8 * 10**9})
    assert troubles(begun) == [("block", "unified-1", "weights-staged")]
    early = change(small, "unified-1", sizes={item: size - 10**10})
    (room,) = (
        found
        for found in judge(early)
        if (found.check, found.host) == ("weights-room", "unified-1")
    )
    assert (
        room.wanted
        == f"10 GiB on a disk, for what is not staged yet ({(size - 10**10) / 2**30:.0f} GiB are)"
    )
    memory = replace(disk, kind="tmpfs", free_bytes=10**13)
    lost = change(scene, "unified-1", disks={"/models": memory})
    assert ("block", "unified-1", "weights-room") in troubles(lost)
    shut = replace(disk, free_bytes=10**13, is_read_only=True)
    assert ("block", "unified-1", "weights-room") in troubles(
        change(scene, "unified-1", disks={"/models": shut})
    )
    wide = change(scene, "unified-1", disks={"/models": replace(disk, free_bytes=10**13)})
    assert troubles(wide) == [("block", "unified-1", "weights-staged")]


def test_an_image_that_differs_blocks_and_one_that_is_missing_warns(catalog: Catalog) -> None:
    scene = healthy(RACK, catalog)
    item = f"image:{scene.plan.engine.image}"
    assert only(row(scene, "decode-3", item, before="sha256:bb")).check == "image-digest"
    missing = only(row(scene, "decode-3", item, state="changed", before=None, why=""))
    assert (missing.severity, missing.check) == ("warn", "image-present")
    broken = only(row(scene, "decode-3", item, state="failed", why="docker: no daemon"))
    assert broken.severity == "block"
    assert broken.observed.endswith("docker: no daemon")


def test_an_environment_that_is_missing_is_made_by_hand(catalog: Catalog) -> None:
    scene = healthy(RACK, catalog)
    item = f"image:{scene.plan.engine.image}"
    known = scene.hosts["decode-3"].items[item]
    lost = {
        "environment:/opt/e": {
            **known,
            "id": "environment:/opt/e",
            "state": "failed",
            "why": "make it: x",
        }
    }
    found = only(change(scene, "decode-3", items={**scene.hosts["decode-3"].items, **lost}))
    assert (found.check, found.fix) == (
        "image-present",
        "Run that command on decode-3: `fab` makes no environments.",
    )


@pytest.mark.parametrize(
    ("mark", "said"),
    [
        (boot_mark.RUNNING, "its boot script still runs"),
        (f"{boot_mark.FAILED}no disks", "its boot script failed: no disks"),
        (boot_mark.DONE, None),
    ],
)
def test_a_host_whose_boot_script_is_not_over_is_not_started_on(
    catalog: Catalog, mark: str, said: str | None
) -> None:
    scene = healthy(RACK, catalog)
    files = {**scene.hosts["decode-3"].files, boot_mark.FILE: f"{mark}\n"}
    booted = change(scene, "decode-3", files=files)
    if said is None:
        assert troubles(booted) == []
        return
    found = only(booted)
    assert (found.severity, found.check, found.observed) == ("block", "host-boot", said)
    again = boot_mark.SCRIPT if mark != boot_mark.RUNNING else "cloud-init status --wait"
    assert found.fix.endswith(f"ssh decode-3 sudo {again}")


def test_a_taken_port_blocks_unless_our_own_process_or_release_holds_it(catalog: Catalog) -> None:
    scene = healthy(ASCEND, catalog)
    taken = change(scene, "unified-0", listening=({"port": 8088, "pid": 9, "command": "nginx"},))
    assert "nginx" in only(taken).observed
    assert troubles(replace(taken, running=frozenset({"unified-0/0"}))) == []
    assert troubles(replace(taken, ours={"unified-0": (_recorded("old", ports=(8088,)),)})) == []


def test_where_a_checkpoint_lies_until_it_is_whole_is_where_the_agent_stages_it(
    catalog: Catalog,
) -> None:
    deployment, _, _ = make_deployment(ASCEND, catalog)
    for state in deployment.states.values():
        folders = weight_folders(state.items)
        assert folders["weights:kimi-k2.5-w4a8"][0].startswith("/models/kimi-k2.5-w4a8/")
        assert all(partial == partial_path(folder) for folder, partial in folders.values())


def test_the_watchers_port_blocks_where_a_group_is_led_unless_our_own_watcher_has_it(
    catalog: Catalog,
) -> None:
    scene = healthy(ASCEND, catalog)
    port = plan_watch_port(scene.plan)
    nginx = {"port": port, "pid": 9, "command": "nginx -g daemon"}
    found = only(change(scene, "unified-0", listening=(nginx,)))
    assert (found.severity, found.check) == ("block", "ports-free")
    assert f"port {port}, which the watcher of unified-0's groups needs" in found.observed
    assert "process 9 (nginx -g daemon)" in found.observed
    # engines that run, or are recorded, do not have it; only the leader's host answers there
    everyone = frozenset(process.id for process in scene.plan.processes)
    taken = change(scene, "unified-0", listening=(nginx,))
    assert only(replace(taken, running=everyone)).check == "ports-free"
    assert troubles(change(scene, "unified-1", listening=(nginx,))) == []
    alone = healthy(AMD, catalog)  # whose members are asked by nobody
    listening = ({**nginx, "port": plan_watch_port(alone.plan)},)
    assert troubles(change(alone, alone.plan.hosts[0].name, listening=listening)) == []
    program = f"/usr/bin/python3 -IS /etc/moe-infra/{ASCEND}/watch/program groups.json"
    assert troubles(change(scene, "unified-0", listening=({**nginx, "command": program},))) == []
    other = program.replace(ASCEND, "other")
    assert only(change(scene, "unified-0", listening=({**nginx, "command": other},))).fix


def test_a_held_device_blocks_unless_a_daemon_or_our_own_release_holds_it(catalog: Catalog) -> None:
    scene = healthy(ASCEND, catalog)
    holder = Holder(
        device="/dev/davinci2", pid=9, command="python3 train.py", control_group="/a.slice/x"
    )
    held = change(scene, "unified-1", holders=(holder,))
    assert "python3 train.py; x" in only(held).observed
    daemon = replace(holder, command="/usr/local/bin/npu-exporter -port 8082")
    assert troubles(change(scene, "unified-1", holders=(daemon,))) == []
    assert troubles(replace(held, running=frozenset({"unified-1/0"}))) == []
    assert troubles(replace(held, ours={"unified-1": (_recorded("old", devices=(2,)),)})) == []


def test_another_stacks_process_on_other_devices_is_left_in_peace(catalog: Catalog) -> None:
    scene = healthy("mi325x-tp4", catalog)
    (host,) = scene.hosts
    text = amd_processes(scene.plan.host(host).num_devices, gpu6=7)
    assert troubles(tell(scene, host, "amd.processes", text)) == []
    holder = Holder(device="/dev/kfd", pid=9, command="vllm", control_group="/b")
    assert troubles(change(scene, host, holders=(holder,))) == []


def test_a_clock_is_held_against_a_host_only_as_far_as_it_is_certain(catalog: Catalog) -> None:
    scene = healthy(RACK, catalog)

    def clock(least: float, most: float) -> Scene:
        return change(scene, "decode-1", clock=ClockReading(at_least_s=least, at_most_s=most))

    assert troubles(clock(-1.0, 1.5)) == []
    assert troubles(clock(0.4, 1.5)) == [("warn", "decode-1", "clock-spread")]
    assert troubles(clock(29.0, 31.0)) == [("block", "decode-1", "clock-spread")]
    assert troubles(clock(-31.0, -29.0)) == [("block", "decode-1", "clock-spread")]


def test_what_the_host_itself_leaves_open_of_its_clock_is_left_open() -> None:
    """Its `date` took half a second."""
    report = {"clock": {"now_s": 1000.0, "error_s": 0.25}}
    host = read_observed("h", report, sent_s=998.0, received_s=999.5, also={})
    assert host.clock == ClockReading(at_least_s=0.25, at_most_s=2.25)


@pytest.mark.parametrize("off_s", [30.0, -30.0])
def test_of_two_clocks_the_one_further_from_the_operators_is_wrong(
    off_s: float, catalog: Catalog
) -> None:
    clock = ClockReading(at_least_s=off_s - 0.1, at_most_s=off_s + 0.1)
    for host in ("unified-0", "unified-1"):
        scene = change(healthy(ASCEND, catalog), host, clock=clock)
        assert troubles(scene) == [("block", host, "clock-spread")]


def test_facts_that_are_stale_block(catalog: Catalog) -> None:
    scene = healthy(ASCEND, catalog)
    records = {
        name: observed_record(host, scene.plan.host(name).address)
        for name, host in scene.hosts.items()
    }
    assert troubles(replace(scene, recorded=records)) == []
    stale: dict[str, RecordedHost] = {
        **records,
        "unified-1": replace(records["unified-1"], machine_id="another"),
    }
    found = only(replace(scene, recorded=stale))
    assert (found.host, found.check) == ("unified-1", "facts-fresh")
    assert "machine-of-unified-1 (recorded another)" in found.observed
    assert found.fix == "fab facts --stack a2-2n-dp4tp4"


def test_a_reboot_alone_leaves_facts_fresh(catalog: Catalog) -> None:
    scene = healthy(ASCEND, catalog)
    records = {
        name: replace(
            observed_record(host, scene.plan.host(name).address), boot_id="the one before"
        )
        for name, host in scene.hosts.items()
    }
    assert troubles(replace(scene, recorded=records)) == []


def _recorded(
    name: str, *, devices: tuple[int, ...] = (), ports: tuple[int, ...] = ()
) -> RecordedProcess:
    return RecordedProcess(
        id=name,
        unit=f"{name}.service",
        kind="engine",
        group="g",
        role="unified",
        endpoint=None,
        devices=devices,
        ports=ports,
    )
