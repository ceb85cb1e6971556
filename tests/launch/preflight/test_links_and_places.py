"""Places that a start writes to, cards and devices as carriers, firmware, and a collective over a host's devices."""

from __future__ import annotations

import shlex
from dataclasses import replace
from typing import Any

import pytest

from infra.catalog.load import Catalog
from infra.launch.preflight.ascend_port_checks import hccl_ports
from infra.launch.preflight.asking import collective_request, facts_request, listening_request
from infra.launch.preflight.collectives import (
    HCCL_PROGRAMS,
    collective_argv,
    collective_program,
    idle_hosts,
)
from infra.launch.preflight.finding import Finding
from infra.launch.preflight.observed import Disk, Holder, Stuck, Told, Written
from infra.launch.preflight.scene import Scene
from infra.launch.preflight.table import judge
from tests.launch.preflight.scenes import change, healthy, only, row, tell, troubles
from tests.launch.preflight.test_rdma import port

RACK, HGX, ASCEND, POD, AMD = "gb200-2p1d", "h200-2n-tp16", "a2-2n-dp4tp4", "a3-2p1d", "mi355x-tp8"
CARDS = "/sys/class/infiniband"
TEST = "/opt/nccl-tests/build/all_reduce_perf"
READ_ONLY = Written(at="/etc", error="Read-only file system", code="EROFS")
FULL = Written(at="/var/lib", error="No space left on device", code="ENOSPC")
QOS = (
    "## ens1\nPriority trust state: {trust}\ndscp2prio mapping:\n\tprio:0 dscp:01,00,\n\tprio:3 dscp:26,24,\n"
    "PFC configuration:\n\tenabled     {enabled}\n"
)
CARRIES = {
    "roce.qos": QOS.format(trust="dscp", enabled="0 0 0 1 0 0 0 0"),
    "roce.ber": "## mlx5_0\nEffective Physical BER             : 15E-255\n",
    "roce.counters": "## ens1\n rx_bits_phy: 9000000\n rx_pcs_symbol_err_phy: 0\n",
}
SPOILT = "mac_rx_fcs_err_pkt_num:{}\nmac_rx_total_pkt_num:90000\n"
NO_GATEWAY = "Get gateway failed, because no gateway was preset there!\n"
PFC = "PFC configuration:\nenabled    {}\n"


def found(scene: Scene, check: str) -> list[Finding]:
    return [one for one in judge(scene) if one.check == check and one.severity != "pass"]


def with_cards(scene: Scene, **files: str) -> Scene:
    """Every host with one healthy RoCE card behind ens1; more files of the first host's card."""
    for host in scene.hosts:
        vendor = {f"{CARDS}/mlx5_0/device/vendor": "0x15b3\n"}
        own = {**scene.hosts[host].files, **port("mlx5_0"), **vendor}
        paths = scene.hosts[host].paths | {f"{CARDS}/mlx5_0/device/net/ens1"}
        scene = change(scene, host, files=own, paths=paths)
        for command, answer in CARRIES.items():
            scene = tell(scene, host, command, answer)
    first = next(iter(scene.hosts))
    more = {f"{CARDS}/mlx5_0/{name.replace('__', '/')}": text for name, text in files.items()}
    return change(scene, first, files={**scene.hosts[first].files, **more})


def test_what_takes_no_writes_is_named_once_with_the_way_out(catalog: Catalog) -> None:
    scene = healthy(ASCEND, catalog)
    places = {
        "/etc/moe-infra/a2-2n-dp4tp4": READ_ONLY,
        "/etc/systemd/system": READ_ONLY,
        "/var/lib/moe-infra": FULL,
    }
    told = found(change(scene, "unified-1", written=places), "writable")
    assert [(one.host, one.severity, one.observed) for one in told] == [
        ("unified-1", "block", "nothing can be written to /etc: Read-only file system"),
        ("unified-1", "block", "nothing can be written to /var/lib: No space left on device"),
    ]
    assert told[0].fix.startswith("ssh unified-1 sudo mount -o remount,rw /etc")
    assert shlex.split(told[1].fix, comments=True) == [
        "ssh",
        "unified-1",
        "df -h /var/lib; df -i /var/lib",
    ]
    odd = {"/var/lib/moe-infra": Written(at="/var/lib", error="Permission denied", code="EACCES")}
    (told_odd,) = found(change(scene, "unified-1", written=odd), "writable")
    whole = ["ssh", "unified-1", "ls -ld /var/lib; findmnt --target /var/lib"]
    assert shlex.split(told_odd.fix, comments=True) == whole
    fine = dict.fromkeys(places, replace(READ_ONLY, error=None, code=None))
    assert troubles(change(scene, "unified-1", written=fine)) == []


def test_the_weights_folder_must_take_writes_only_while_something_is_missing(
    catalog: Catalog,
) -> None:
    disk = Disk(
        mount="/models", kind="nfs4", exists=True, free_bytes=10**13, free_inodes=0, total_inodes=0,
        is_read_only=False, error=None,
    )  # fmt: skip
    scene = change(healthy(ASCEND, catalog), "unified-0", disks={"/models": disk})
    scene = change(scene, "unified-0", written={"/models": replace(READ_ONLY, at="/models")})
    assert troubles(scene) == []
    missing = row(
        scene,
        "unified-0",
        f"weights:{scene.plan.checkpoint}",
        state="blocked",
        why="it does not exist",
    )
    (told,) = found(missing, "weights-room")
    assert told.observed == "nothing can be written to /models: Read-only file system"


SHARED = Disk(
    mount="/dev/shm", kind="tmpfs", exists=True, free_bytes=1 << 20, free_inodes=9, total_inodes=9,
    is_read_only=False, error=None,
)  # fmt: skip


@pytest.mark.parametrize(("stack", "host"), [(RACK, "prefill-0"), (AMD, "unified-0")])
def test_shared_memory_that_is_left_over_leaves_room(
    stack: str, host: str, catalog: Catalog
) -> None:
    scene = healthy(stack, catalog)
    num = sum(p.kind == "engine" for p in scene.plan.on_host(host))
    told = only(change(scene, host, disks={"/dev/shm": SHARED}))
    assert (told.host, told.check, told.severity) == (host, "shared-memory", "block")
    assert told.observed == "1 MiB of /dev/shm are free"
    assert told.wanted.startswith(f"{num * 1024} MiB free: {num} engine")
    room = replace(SHARED, free_bytes=num << 30)
    assert troubles(change(scene, host, disks={"/dev/shm": room})) == []
    unseen = replace(SHARED, error="it does not answer")
    assert only(change(scene, host, disks={"/dev/shm": unseen})).severity == "warn"


def test_processes_that_run_already_have_their_shared_memory(catalog: Catalog) -> None:
    scene = change(healthy(ASCEND, catalog), "unified-0", disks={"/dev/shm": SHARED})
    assert [one.host for one in found(scene, "shared-memory")] == ["unified-0"]
    running = frozenset(process.id for process in scene.plan.processes)
    assert found(replace(scene, running=running), "shared-memory") == []


def test_the_hosts_of_the_plan_are_asked_for_their_shared_memory(catalog: Catalog) -> None:
    scene = healthy(RACK, catalog)
    disks = facts_request(scene, "prefill-0", [])["disks"]
    assert isinstance(disks, list)
    assert "/dev/shm" in disks


@pytest.mark.parametrize(
    ("bits", "is_on"),
    [("0x001d", True), ("0x0000 ×2, 0x0004 ×1", True), ("0x0000", False), ("0x0001", False)],
)
def test_access_control_that_redirects_is_said(bits: str, catalog: Catalog, *, is_on: bool) -> None:
    scene = row(healthy(AMD, catalog), "unified-0", "pcie.acs", before=bits)
    assert [one.host for one in found(scene, "access-control")] == ["unified-0"] * is_on
    assert {one.severity for one in found(scene, "access-control")} <= {"warn"}


def test_access_control_is_left_to_whoever_may_not_turn_it_off(catalog: Catalog) -> None:
    for stack, host in ((RACK, "prefill-0"), (ASCEND, "unified-0")):
        scene = row(healthy(stack, catalog), host, "pcie.acs", before="0x001d")
        assert troubles(scene) == []


def test_what_a_container_is_given_must_be_there(catalog: Catalog) -> None:
    scene = healthy(ASCEND, catalog)
    source = "/etc/ascend_install.info"
    paths = scene.hosts["unified-1"].paths - {source}
    told = only(change(scene, "unified-1", paths=paths))
    assert (told.host, told.check, told.severity) == ("unified-1", "container-sources", "block")
    assert told.observed.startswith(
        f"{source}, which unified-1/0's container is given, is not there"
    )
    native = replace(scene, plan=replace(scene.plan, runtime="native"))
    assert found(change(native, "unified-1", paths=frozenset()), "container-sources") == []


def test_a_stuck_process_blocks_once_the_kernel_has_said_so(catalog: Catalog) -> None:
    one = Stuck(pid=40, task=41, command="npu-smi info", where="rpc_wait_bit_killable")
    scene = change(
        healthy(ASCEND, catalog), "unified-0", stuck=(one, replace(one, task=42, where=""))
    )
    told = only(scene)
    assert (told.check, told.severity) == ("stuck-processes", "warn")
    assert told.observed == "process 40 (npu-smi info) waits in the kernel in rpc_wait_bit_killable"
    said = tell(
        scene,
        "unified-0",
        "kernel-log",
        "INFO: task npu-smi:41 blocked for more than 120 seconds.\n",
    )
    assert only(said).severity == "block"
    assert only(said).observed.endswith("for more than 120 s")
    other = tell(
        scene, "unified-0", "kernel-log", "INFO: task sshd:9 blocked for more than 120 seconds.\n"
    )
    assert only(other).severity == "warn"


@pytest.mark.parametrize(
    ("files", "part"),
    [
        (
            {"device__current_link_width": "8", "device__max_link_width": "16"},
            "mlx5_0 has 8 of 16 lanes",
        ),
        (
            {
                "device__current_link_speed": "16.0 GT/s PCIe",
                "device__max_link_speed": "32.0 GT/s PCIe",
            },
            "mlx5_0 runs at 16 of 32 GT/s",
        ),
        ({"device__current_link_width": "16", "device__max_link_width": "16"}, None),
        ({"device__current_link_width": "0", "device__max_link_width": "255"}, None),
        (
            {"device__current_link_speed": "Unknown", "device__max_link_speed": "32.0 GT/s PCIe"},
            None,
        ),
    ],
)
def test_a_card_has_all_lanes_of_its_slot(
    files: dict[str, str], part: str | None, catalog: Catalog
) -> None:
    told = found(with_cards(healthy(HGX, catalog), **files), "card-slots")
    assert [(one.host, one.severity, one.observed) for one in told] == (
        [("unified-0", "warn", part)] if part else []
    )


@pytest.mark.parametrize(
    ("answer", "variables", "part"),
    [
        (QOS.format(trust="dscp", enabled="0 0 0 1 0 0 0 0"), {}, None),
        (QOS.format(trust="pcp", enabled="0 0 0 1 0 0 0 0"), {}, "ens1 goes by pcp"),
        (QOS.format(trust="dscp", enabled="0 0 0 0 0 0 0 0"), {}, "ens1 has no flow control"),
        (QOS.format(trust="dscp", enabled="0 0 0 1 1 0 0 0"), {}, "ens1 has flow control on 3, 4"),
        (
            QOS.format(trust="dscp", enabled="0 0 0 0 1 0 0 0"),
            {},
            "flow control on priority 3, while unified-0 has flow control on priority 4",
        ),
        (QOS.format(trust="dscp", enabled="0 0 0 1 0 0 0 0"), {"NCCL_IB_TC": "106"}, None),
        (
            QOS.format(trust="dscp", enabled="0 0 0 1 0 0 0 0"),
            {"UCX_IB_TRAFFIC_CLASS": "4"},
            "ens1 gives UCX_IB_TRAFFIC_CLASS=4 priority 0, which may lose packets",
        ),
        (QOS.format(trust="dscp", enabled="0 0 0 1 0 0 0 0"), {"NCCL_IB_TC": "auto"}, None),
        ("", {}, "cannot be told: mlnx_qos prints nothing"),
    ],
)
def test_rails_have_one_lossless_priority_and_engines_use_it(
    answer: str, variables: dict[str, str], part: str | None, catalog: Catalog
) -> None:
    scene = with_cards(healthy(HGX, catalog))
    processes = tuple(
        replace(process, env={**process.env, **(variables if process.host == "unified-0" else {})})
        for process in scene.plan.processes
    )
    scene = replace(scene, plan=replace(scene.plan, processes=processes))
    scene = tell(
        scene, "unified-1", "roce.qos", QOS.format(trust="dscp", enabled="0 0 0 1 0 0 0 0")
    )
    scene = tell(scene, "unified-0", "roce.qos", answer)
    told = found(scene, "roce-priorities")
    if part is None:
        assert told == []
    else:
        assert part in " ".join(one.observed for one in told)
        assert {one.severity for one in told} == {"warn"}


@pytest.mark.parametrize(
    ("command", "answer", "part"),
    [
        (
            "roce.ber",
            "## mlx5_0\nEffective Physical BER             : 3E-7\n",
            "mlx5_0 loses one bit of 1E7",
        ),
        ("roce.ber", "## mlx5_0\nEffective Physical BER             : 15E-255\n", None),
        (
            "roce.counters",
            "## ens1\n rx_bits_phy: 9000000\n rx_pcs_symbol_err_phy: 12\n",
            "ens1 has 12 symbol errors",
        ),
        ("roce.counters", "## ens1\n rx_bits_phy: 9000000\n rx_pcs_symbol_err_phy: 9\n", None),
        (
            "roce.counters",
            "## ens1\n rx_bits_phy: 90000000000000\n rx_pcs_symbol_err_phy: 12\n",
            None,
        ),
        (
            "roce.counters",
            "## ens1\n rx_prio3_buf_discard: 4\n rx_prio3_cong_discard: 1\n",
            "dropped 5 packets",
        ),
        (
            "roce.counters",
            "## ens1\n tx_pause_storm_error_events: 2\n",
            "stopped its peers for too long 2 times",
        ),
    ],
)
def test_errors_on_the_wire_are_told(
    command: str, answer: str, part: str | None, catalog: Catalog
) -> None:
    told = found(
        tell(with_cards(healthy(HGX, catalog)), "unified-0", command, answer), "link-errors"
    )
    assert [one.host for one in told] == (["unified-0"] if part else [])
    assert all(part is not None and part in one.observed for one in told)


@pytest.mark.parametrize(
    ("errors", "words", "count"), [(12, 1000, 1), (12, 10**12, 0), (9, 1000, 0)]
)
def test_infiniband_s_own_counters_are_held_against_what_was_carried(
    errors: int, words: int, count: int, catalog: Catalog
) -> None:
    folder = "ports__1__counters__"
    files = {f"{folder}symbol_error": f"{errors}\n", f"{folder}port_rcv_data": f"{words}\n"}
    assert len(found(with_cards(healthy(HGX, catalog), **files), "link-errors")) == count


def test_devices_of_other_firmware_are_named_beside_the_usual_one(catalog: Catalog) -> None:
    def query(usual: str, last: str) -> str:
        versions = [*[usual] * 7, last]
        return "".join(
            f"GPU 0:{i}\n    VBIOS Version : {version}\n" for i, version in enumerate(versions)
        )

    scene = healthy(HGX, catalog)
    for host in scene.hosts:
        scene = tell(scene, host, "nvidia.query", query("97", "97"))
    assert found(scene, "device-firmware") == []
    (mixed,) = found(tell(scene, "unified-1", "nvidia.query", query("97", "96")), "device-firmware")
    assert (mixed.host, mixed.observed) == ("unified-1", "0:7 has firmware 96, the others 97")
    (other,) = found(tell(scene, "unified-1", "nvidia.query", query("96", "96")), "device-firmware")
    assert other.observed == "firmware 96, while unified-0 has firmware 97"


def test_firmware_that_files_tell_is_compared_too(catalog: Catalog) -> None:
    scene = healthy(ASCEND, catalog)
    for host, version in {"unified-0": "7.7.0", "unified-1": "7.5.0"}.items():
        files = {
            **scene.hosts[host].files,
            "/usr/local/Ascend/firmware/version.info": f"Version={version}\n",
        }
        scene = change(scene, host, files=files)
    assert [one.host for one in found(scene, "device-firmware")] == ["unified-1"]
    amd = healthy(AMD, catalog)
    name = next(iter(amd.hosts))
    device = "/sys/module/amdgpu/drivers/pci:amdgpu/0000:0{}:00.0/{}"
    files = {
        device.format(i, "vbios_version"): text
        for i, text in enumerate(("113-A\n", "113-A\n", "113-B\n"))
    }
    (told,) = found(change(amd, name, files={**amd.hosts[name].files, **files}), "device-firmware")
    assert told.observed == "0000:02:00.0 has firmware 113-B, the others 113-A"
    lanes = {
        device.format(1, "current_link_width"): "8\n",
        device.format(0, "current_link_width"): "16\n",
    }
    (narrow,) = found(change(amd, name, files={**amd.hosts[name].files, **lanes}), "pcie-width")
    assert narrow.observed == "GPU 0000:01:00.0 has 8 PCIe lanes"


def test_clocks_that_hardware_holds_down_are_told_and_idle_is_not(catalog: Catalog) -> None:
    text = (
        "GPU 0:{}\n    Clocks Event Reasons\n        Idle : Active\n        SW Power Cap : Active\n"
        "        HW Slowdown : {}\n"
    )
    rest = "".join(text.format(place, "Not Active") for place in (0, *range(2, 8)))
    cool, hot = (rest + text.format(1, word) for word in ("Not Active", "Active"))
    scene = healthy(HGX, catalog)
    assert found(tell(scene, "unified-0", "nvidia.query", cool), "held-clocks") == []
    (told,) = found(
        tell(scene, "unified-0", "nvidia.query", hot),
        "held-clocks",
    )
    assert told.observed == "clocks are held down: 0:1 HW Slowdown"


@pytest.mark.parametrize(
    ("command", "answer", "expected"),
    [
        ("gateway.3", NO_GATEWAY, None),
        ("gateway.3", "default gateway:29.9.9.9, Iface:eth3\n", ("device-gateway", "block", "29.9.9.9 lies outside")),
        ("netdetect.3", "netdetect address: 0.0.0.0\n", ("device-detection", "warn", "device 3: no detection")),
        ("pfc.3", PFC.format("0 0 0 1 0 0 0 0"), ("device-flow-control", "warn", "flow control on priority 3")),
        ("pfc.3", PFC.format("0 0 0 0 0 0 0 0"), ("device-flow-control", "warn", "device 3: no flow control")),
        ("link_stat.3", "link down count : 6\n", ("device-link-errors", "warn", "went down 6 times")),
        ("link_stat.3", "link down count : 4\n", None),
        ("stat.3", SPOILT.format(20), ("device-link-errors", "warn", "20 of 90000 ")),
        ("stat.3", SPOILT.format(9), None),
    ],
)  # fmt: skip
def test_a_device_s_own_port(
    command: str, answer: str, expected: tuple[str, str, str] | None, catalog: Catalog
) -> None:
    scene = tell(healthy(ASCEND, catalog), "unified-1", f"ascend.{command}", answer)
    told = [one for one in judge(scene) if one.severity != "pass"]
    assert [(one.host, one.check, one.severity) for one in told] == (
        [("unified-1", *expected[:2])] if expected else []
    )
    assert all(expected and expected[2] in one.observed and one.fix for one in told)


def test_a_gateway_is_needed_where_peers_lie_in_another_network(catalog: Catalog) -> None:
    scene = healthy(ASCEND, catalog)
    scene = tell(scene, "unified-1", "ascend.address.3", "ipaddr:29.0.7.3\nnetmask:255.255.255.0\n")
    scene = tell(scene, "unified-1", "ascend.gateway.3", NO_GATEWAY)
    told = found(scene, "device-gateway")
    assert [(one.host, one.observed) for one in told] == [
        (
            "unified-1",
            "device 3: no gateway, and the same device of unified-0 is in another network",
        )
    ]


def test_flow_control_that_no_device_has_is_told_of_every_host(catalog: Catalog) -> None:
    scene = healthy(ASCEND, catalog)
    for host in scene.hosts:
        for index in range(8):
            scene = tell(scene, host, f"ascend.pfc.{index}", PFC.format("0 0 0 0 0 0 0 0"))
    told = found(scene, "device-flow-control")
    assert [one.host for one in told] == ["unified-0", "unified-1"]
    assert "no flow control" in told[0].observed


def test_health_means_nothing_without_an_address_to_ask(catalog: Catalog) -> None:
    scene = tell(
        healthy(ASCEND, catalog), "unified-1", "ascend.net_health.3", "net health status: Init\n"
    )
    assert troubles(scene) == [("block", "unified-1", "device-network")]
    blind = tell(scene, "unified-1", "ascend.netdetect.3", "netdetect address: 0.0.0.0\n")
    assert troubles(blind) == [("warn", "unified-1", "device-detection")]
    unseen = tell(scene, "unified-1", "ascend.netdetect.3", "Cmd execute failed!\n", 1)
    told = [(one.severity, one.check) for one in judge(unseen) if one.severity != "pass"]
    assert sorted(told) == [("warn", "device-detection"), ("warn", "device-network")]


def test_hccl_s_own_ports_are_asked_for_free_and_reserved(catalog: Catalog) -> None:
    scene = healthy(ASCEND, catalog)
    assert set(hccl_ports(scene, "unified-0")) == {*range(60000, 60032), 16666}
    assert {60000, 60031, 16666} <= set(_list(listening_request(scene, "unified-0"), "ports"))
    assert hccl_ports(healthy(HGX, catalog), "unified-0") == ()
    taken = change(
        scene, "unified-1", listening=({"port": 60003, "pid": 9, "command": "python3 train.py"},)
    )
    told = only(taken)
    assert (told.host, told.check, told.severity) == ("unified-1", "hccl-ports", "block")
    assert (
        "port 60003, on which HCCL listens, is taken by process 9 (python3 train.py)"
        in told.observed
    )
    assert troubles(replace(taken, running=frozenset({"unified-1/0"}))) == []
    open_to_all = row(scene, "unified-0", "net.ipv4.ip_local_reserved_ports", state="changed")
    assert ("warn", "unified-0", "hccl-ports") in troubles(open_to_all)


def with_outcomes(scene: Scene, texts: dict[str, str]) -> Scene:
    """The scene with a collective's outcome on some hosts."""
    for host in texts:
        scene = change(scene, host, paths=scene.hosts[host].paths | {TEST})
    outcomes = {
        host: Told(exit_code=0, stdout=text, stderr="", seconds=3.0) for host, text in texts.items()
    }
    return replace(scene, collectives=outcomes)


def nccl(gb_s: float, wrong: int = 0) -> str:
    return f"# Out of bounds values : {wrong} {'FAILED' if wrong else 'OK'}\n# Avg bus bandwidth    : {gb_s}\n"


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        (nccl(470.0), nccl(471.0), []),
        (nccl(470.0), nccl(300.0), [("warn", "unified-1", "reaches 300 GB/s")]),
        (
            nccl(380.0),
            nccl(381.0),
            [("warn", "unified-0", "380 GB/s"), ("warn", "unified-1", "381 GB/s")],
        ),
        # a little behind a figure of twice the size
        (nccl(425.0), nccl(426.0), []),
        (nccl(470.0), nccl(470.0, wrong=3), [("block", "unified-1", "gives 3 wrong results")]),
        (nccl(470.0), "Test NCCL failure\n", [("block", "unified-1", "fails: Test NCCL failure")]),
    ],
)
def test_a_collective_is_right_and_as_fast_as_its_peers_and_as_published(
    first: str, second: str, expected: list[tuple[str, str, str]], catalog: Catalog
) -> None:
    scene = with_outcomes(healthy(HGX, catalog), {"unified-0": first, "unified-1": second})
    told = found(scene, "collective")
    assert [(one.severity, one.host) for one in told] == [(s, h) for s, h, _ in expected]
    assert all(part in one.observed for one, (_, _, part) in zip(told, expected, strict=True))


@pytest.mark.parametrize(
    ("exit_code", "said", "why"),
    [
        (127, "sh: 1: exec: mpirun: not found\n", "exec: mpirun: not found"),
        (126, "sh: 1: exec: /opt/t: Permission denied\n", "Permission denied"),
        (None, "[Errno 2] No such file or directory: 'all_reduce_perf'\n", "No such file"),
        (1, "sh: /x/set_env.sh: No such file or directory\n", "set_env.sh"),
        (2, "sh: 1: .: cannot open /x/set_env.sh: No such file\n", "set_env.sh"),
        (
            1,
            "t: error while loading shared libraries: libmpi.so.12: cannot open it\n---\nprimary job ended\n",
            "libmpi.so.12",
        ),
        (
            1,
            f"{'-' * 74}\nmpirun has detected an attempt to run as root.\n\nRunning so is bad.\n{'-' * 74}\n",
            "attempt to run as root",
        ),
    ],
)
def test_a_collective_that_did_not_begin_says_nothing_against_the_host(
    exit_code: int | None, said: str, why: str, catalog: Catalog
) -> None:
    scene = with_outcomes(healthy(HGX, catalog), {"unified-0": nccl(470.0)})
    failed = Told(exit_code=exit_code, stdout="", stderr=said, seconds=1.0)
    scene = replace(scene, collectives={**scene.collectives, "unified-1": failed})
    assert found(scene, "collective") == []
    notes = {one.host: one for one in judge(scene) if one.check == "collective"}
    assert notes["unified-1"].severity == "pass"
    assert notes["unified-1"].observed.startswith("not run: ")
    assert why in notes["unified-1"].observed


@pytest.mark.parametrize("exit_code", [1, 3, 139, None])
def test_a_collective_that_began_and_failed_stops_the_start(
    exit_code: int | None, catalog: Catalog
) -> None:
    said = "Test NCCL failure common.cu:1000 'unhandled cuda error'\n"
    failed = Told(exit_code=exit_code, stdout=said, stderr="", seconds=1.0)
    scene = replace(healthy(HGX, catalog), collectives={"unified-1": failed})
    assert [(one.host, one.severity) for one in found(scene, "collective")] == [
        ("unified-1", "block")
    ]


@pytest.mark.parametrize("stack", [HGX, ASCEND])
def test_a_collective_typed_again_is_the_same_on_the_host(stack: str, catalog: Catalog) -> None:
    failed = Told(exit_code=1, stdout="failed", stderr="", seconds=1.0)
    scene = healthy(stack, catalog)
    program = HCCL_PROGRAMS[0] if stack == ASCEND else TEST
    scene = change(scene, "unified-0", paths=scene.hosts["unified-0"].paths | {program})
    (told,) = found(replace(scene, collectives={"unified-0": failed}), "collective")
    ssh, host, *words = shlex.split(told.fix)
    assert (ssh, host) == ("ssh", "unified-0")
    # ssh hands its words on with spaces between, and the host's shell splits them
    sudo, *argv = shlex.split(" ".join(words))
    assert (sudo, tuple(argv)) == ("sudo", collective_argv(scene, "unified-0", program))


def test_a_collective_that_was_not_run_is_a_note_with_the_way_to_it(catalog: Catalog) -> None:
    scene = healthy(HGX, catalog)
    notes = {one.host: one for one in judge(scene) if one.check == "collective"}
    assert {note.severity for note in notes.values()} == {"pass"}
    assert notes["unified-0"].observed == "not run: there is no test of collectives"
    assert "nccl-tests" in notes["unified-0"].fix
    busy = change(scene, "unified-1", paths=scene.hosts["unified-1"].paths | {TEST})
    note = next(one for one in judge(busy) if (one.check, one.host) == ("collective", "unified-1"))
    assert (note.severity, note.observed) == ("pass", "not run: its devices are in use")
    assert TEST in note.fix


def test_it_is_run_only_where_it_lies_and_nobody_uses_the_devices(catalog: Catalog) -> None:
    scene = healthy(HGX, catalog)
    assert idle_hosts(scene) == ("unified-0", "unified-1")
    assert collective_program(scene, "unified-0") is None
    found_there = change(
        scene,
        "unified-0",
        paths=frozenset({TEST, "/usr/local/cuda-13/efa/test-cuda-13/all_reduce_perf"}),
    )
    assert collective_program(found_there, "unified-0") == TEST
    (command,) = _list(collective_request(found_there, "unified-0", TEST), "commands")
    assert command["argv"][:7] == [TEST, "-b", "8G", "-e", "8G", "-g", "8"]
    assert idle_hosts(replace(scene, running=frozenset({"unified-1/0"}))) == ("unified-0",)
    thief = Holder(device="/dev/nvidia2", pid=9, command="python3 train.py", control_group="/x")
    assert idle_hosts(change(scene, "unified-0", holders=(thief,))) == ("unified-1",)
    watcher = replace(thief, command="/usr/bin/nvidia-persistenced --verbose")
    assert idle_hosts(change(scene, "unified-0", holders=(watcher,))) == ("unified-0", "unified-1")
    computing = tell(scene, "unified-1", "nvidia.apps", "77, python3, 900, GPU-2\n")
    assert idle_hosts(computing) == ("unified-0",)


def test_hccl_s_test_is_started_with_its_toolkit_and_mpi(catalog: Catalog) -> None:
    scene = healthy(ASCEND, catalog)
    program = "/usr/local/Ascend/ascend-toolkit/latest/tools/hccl_test/bin/all_reduce_test"
    (command,) = _list(collective_request(scene, "unified-0", program), "commands")
    assert command["argv"][2] == (
        ". /usr/local/Ascend/ascend-toolkit/latest/set_env.sh; exec mpirun -n 8 "
        f"{program} -b 1G -e 1G -d fp32 -o sum -c 1 -p 8"
    )


def test_the_light_look_writes_but_starts_no_tool(catalog: Catalog) -> None:
    light = replace(healthy(RACK, catalog), depth="light")
    request = facts_request(light, "decode-0", [])
    assert request["stuck"] is False
    assert "/var/lib/moe-infra" in _list(request, "writable")
    commands = {command["id"] for command in _list(request, "commands")}
    assert commands == {"addresses", "own-name"}


def _list(request: dict[str, object], key: str) -> list[Any]:
    value = request[key]
    assert isinstance(value, list)
    return value


class Counted(dict[str, Told]):
    """What commands said, and how often it was read."""

    num_read = 0

    def get(self, key: str, default: object = None) -> Any:
        self.num_read += 1
        return super().get(key, default)


def test_what_a_tray_says_is_read_no_more_often_among_many(catalog: Catalog) -> None:
    """Minutes went by on a hundred trays, each of which was held against each other one by one."""

    def num_read(num_decode: int) -> int:
        scene = healthy(RACK, catalog, (f"roles.decode.data_parallel={num_decode * 4}",))
        hosts = {
            name: replace(seen, commands=Counted(seen.commands))
            for name, seen in scene.hosts.items()
        }
        troubles(replace(scene, hosts=hosts))
        last = hosts[scene.plan.hosts[-1].name].commands
        assert isinstance(last, Counted)
        return last.num_read

    assert num_read(16) <= 2 * num_read(4)
