"""Hosts on which a stack cannot start: each fault stops `fab up` or `fab preflight`, and its culprit is named in time.

The hosts are simulated. Ports, processes, files, name service, nftables and SSH are real; device files, vendors' tools
and the wall clock (a `date` that is 30 s ahead) are stand-ins.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import yaml

from infra.rehearsal.standins import LIBRARY
from infra.render.host_paths import ENGINE_ENVIRONMENTS
from infra.spec.load import PROJECT
from tests.cli.commands import FAB, run
from tests.cli.kept_hosts import FACTS, Kept, kept_rehearsal, set_fault
from tests.naming import in_time

# Real sshd and systemd on two simulated hosts; each test is one or two calls of a second or three.
pytestmark = [pytest.mark.lab, pytest.mark.slow, pytest.mark.fault]

ASCEND = "a2-2n-dp4tp4"
RACK = "gb200-2p1d"
# One prefill and two decode trays of the same rack.
RACK_SETS = (
    "--set", "platform=existing-hosts", "--set", "roles.prefill.replicas=1", "--set",
    "roles.decode.data_parallel=8", "--set", "defaults.max_model_len=32768",
)  # fmt: skip
DRIVER_FILE = "/usr/local/Ascend/driver/version.info"
TABLE = "sudo nft add table inet t; sudo nft 'add chain inet t i { type filter hook input priority 0; }'; "
FAST_CLOCK = "printf '#!/bin/sh\\necho $(($(/usr/bin/date +%%s)+30)).5\\n'"
# Somebody who has a device open, and goes.
THIEF = (
    "sudo systemd-run --quiet --unit=thief sh -c 'exec 3</dev/davinci5; sleep 60 & wait' && sleep 0.3",
    "sudo systemctl stop thief; true",  # it may have been ended meanwhile
)
# What is no TCP goes elsewhere: hosts still reach each other, and the kernel names that route.
ELSEWHERE = (
    "sudo ip route add 192.0.2.1/32 dev lo table 100; sudo ip rule add not ipproto tcp lookup 100",
    "sudo ip rule del not ipproto tcp lookup 100; sudo ip route flush table 100",
)
# A daemon that removes nothing, for units and for us.
REFUSES_RM = "#!/bin/sh\\ntest $1 != rm || { echo Error response from daemon: busy; exit 1; }\\n"
DOCKER = "/usr/local/sbin/docker"
NO_REMOVAL = (
    f"printf '{REFUSES_RM}exec /usr/local/bin/docker \"$@\"\\n' | sudo install -m 755 /dev/stdin {DOCKER}",
    f"sudo rm {DOCKER}",
)


@pytest.fixture(scope="module")
def ascend() -> Iterator[Kept]:
    with kept_rehearsal(ASCEND, ()) as kept:
        yield kept


@pytest.fixture(scope="module")
def board() -> Iterator[Kept]:
    with kept_rehearsal("h200-tp8", ("--set", "platform=existing-hosts")) as kept:
        yield kept


@pytest.fixture(scope="module")
def rack() -> Iterator[Kept]:
    with kept_rehearsal(RACK, RACK_SETS) as kept:
        yield kept


def test_healthy_hosts_pass_and_their_facts_are_recorded_and_go_stale(ascend: Kept) -> None:
    recorded = ascend.fab("facts", "--json")
    assert recorded.returncode == 0, recorded.stderr
    document = json.loads(recorded.stdout)
    assert [row["interface"] for row in document["hosts"]] == ["eth0", "eth0"]
    assert document["hosts"][0]["accelerators"] == ["Ascend910B"] * 8
    facts = Path(document["file"])
    assert facts == Path(ascend.inventory).with_name("inventory.facts.yml")
    done = ascend.fab("preflight", "--json")
    assert done.returncode == 0, done.stdout
    assert {f["severity"] for f in json.loads(done.stdout)["findings"]} == {"pass", "warn"}
    assert "cannot be told" not in done.stdout
    facts.write_text(facts.read_text().replace("interface: eth0", "interface: ens5"))
    said = ascend.refused_up()
    assert "interface eth0 (recorded ens5)" in said
    assert "[facts-fresh]" in said
    facts.unlink()


def test_everything_can_be_told_of_a_healthy_board_and_a_missing_tool_is_a_warning(
    board: Kept,
) -> None:
    # what this machine lacks, and how its docker is set up
    assert set(board.told("unified-0")) <= {"memory", "cgroup-driver"}
    away, back = (
        f"sudo mv /usr/local/bin/{old} /usr/local/bin/{new}"
        for old, new in (("dcgmi", ".dcgmi"), (".dcgmi", "dcgmi"))
    )
    with board.changed("unified-0", away, back):
        told = board.told("unified-0")
        done = board.fab("preflight")
    assert told["gpu-diagnosis"] == ("warn", "cannot be told: there is no dcgmi")
    assert (done.returncode, "sudo dcgmi diag -r 1" in done.stdout) == (0, True)
    stop, start = (f"sudo systemctl {verb} nvidia-persistenced" for verb in ("stop", "start"))
    with board.changed("unified-0", stop, start):
        told = board.told("unified-0")
        assert "Enable persistence mode" in board.ssh("unified-0", "sudo dcgmi diag -r 1; true")
    assert told["gpu-diagnosis"] == ("warn", "dcgmi diag -r 1: warn in software")


def test_what_the_kernel_says_is_told_and_the_printed_commands_show_it(board: Kept) -> None:
    """The machine's own journalctl reads it: patterns, formats, refusals and exit codes are the real ones."""
    xid = "NVRM: Xid (PCI:0000:18:00): {}, pid=4711, name=VLLM::Worker"
    faults = str(
        {
            "kernel_log": [
                "Out of memory: Killed process 4711 (vllm)",
                xid.format(79),
                xid.format(48),
            ]
        }
    )
    asked = {
        "-k -b -g XID; echo $?": ("-- No entries --", 1),
        "-kqg 'link down|lost carrier'; echo $?": ("", 1),
        "-k -o cat -n1; echo $?": (xid.format(48), 0),
        "--dmesg -q -o cat -g 'out of memory'; echo $?": (
            "Out of memory: Killed process 4711 (vllm)",
            0,
        ),
        "-k --frobnicate 2>&1; echo $?": ("journalctl: unrecognized option '--frobnicate'", 1),
        "-k -o nonsense 2>&1; echo $?": ("Unknown output format 'nonsense'.", 1),
    }
    with board.changed("unified-0", set_fault(faults), set_fault("{}")):
        (found,) = board.blocking()
        told = board.told("unified-0")
        document = json.loads(board.fab("preflight", "--json").stdout)
        (fix,) = (
            one["fix"]
            for one in document["findings"]
            if (one["check"], one["severity"]) == ("xid", "warn")
        )
        shown = run("sh", "-c", fix.partition("; ")[0]).stdout
        answers = {each: board.ssh("unified-0", f"sudo journalctl {each}") for each in asked}
    assert (found["check"], found["observed"]) == ("xid", "Xid 79 on PCI:0000:18:00 since boot")
    assert "Xid 48" in told["xid"][1]
    assert re.fullmatch(
        r"(\w{3} \d\d \d\d:\d\d:\d\d unified-0 kernel: NVRM: Xid .*: (79|48), .*\n){2}", shown
    )
    assert answers == {
        each: f"{text}\n{code}\n" if text else f"{code}\n" for each, (text, code) in asked.items()
    }
    assert "xid" not in board.told("unified-0")


def test_everything_can_be_told_of_healthy_trays(rack: Kept) -> None:
    assert set(rack.told("decode-0", "--timeout", "1")) <= {"memory", "cgroup-driver"}


def test_a_port_taken_by_somebody_else(ascend: Kept) -> None:
    start = "sudo systemd-run --quiet --unit=squatter python3 -m http.server 8088 && sleep 0.7"
    with ascend.changed("unified-0", start, "sudo systemctl stop squatter; true"):
        said = ascend.refused_up()
        ascend.mend_as_said(said)
        assert "ports-free" not in ascend.told("unified-0")
    assert all(
        w in said for w in ("unified-0:", "port 8088", "unified-0/0", "http.server", "[ports-free]")
    )


def test_a_device_held_by_somebody_else(ascend: Kept) -> None:
    with ascend.changed("unified-1", *THIEF):
        said = ascend.refused_up()
        ascend.mend_as_said(said)
        assert "devices-free" not in ascend.told("unified-1")
    assert all(
        w in said for w in ("unified-1:", "/dev/davinci5", "thief.service", "[devices-free]")
    )


def test_one_host_with_another_driver_version_unless_it_is_forced(ascend: Kept) -> None:
    change, undo = (
        f"sudo sed -i 's/^Version=.*/Version={v}/' {DRIVER_FILE}" for v in ("24.1.0", "25.2.0")
    )
    with ascend.changed("unified-1", change, undo):
        said = ascend.refused_up()
        assert "unified-1: driver 24.1.0, while unified-0 has driver 25.2.0" in said
        assert "--force driver-version" in said
        assert "no such check" in ascend.fab("up", "--force", "drivers").stderr
        forced = ascend.fab("up", "--force", "driver-version")
        with ascend.changed("unified-1", *THIEF), ascend.changed("unified-0", *NO_REMOVAL):
            held = ascend.fab("down")
        down = ascend.fab("down")
    # down looks whether containers are gone and devices free, keeps what it needs to be run again, and is
    assert held.returncode == 4, held.stdout + held.stderr
    assert "stopped there, but /dev/davinci5 is held by process " in held.stderr
    assert all(word in held.stderr for word in ("thief.service", "sudo kill", "fab down"))
    assert (
        f"cannot remove moe-{ASCEND}-engine-0: Error response from daemon: busy" in held.stderr
    ), held.stderr
    assert (down.returncode, "nobody holds the 16 devices" in down.stderr) == (0, True), down.stderr
    assert ascend.ssh("unified-0", "sudo docker ps -aq") == ""
    assert forced.returncode == 0, forced.stderr
    assert "forced by --force driver-version: unified-1" in forced.stderr


def test_a_clock_that_is_thirty_seconds_off(ascend: Kept) -> None:
    change = (
        f"{FAST_CLOCK} | sudo tee /usr/local/bin/date >/dev/null; sudo chmod +x /usr/local/bin/date"
    )
    with ascend.changed("unified-1", change, "sudo rm /usr/local/bin/date"):
        said = ascend.refused_up()
        found = ascend.blocking()
    # how much is certain follows from how long the look took
    assert re.search(r"unified-1: its clock is at least [123]\d\S* s away", said)
    assert "[clock-spread]" in said
    assert " sudo timedatectl set-ntp true   # then: chronyc makestep" in said
    assert [(f["host"], f["check"]) for f in found] == [("unified-1", "clock-spread")]


def test_the_command_that_a_finding_names_mends_it_as_it_is_printed(ascend: Kept) -> None:
    forget = "sudo sysctl -qw net.ipv4.ip_local_reserved_ports="
    with ascend.changed("unified-1", forget, "true"):
        seen = json.loads(ascend.fab("preflight", "--json").stdout)["findings"]
        fixes = [f["fix"] for f in seen if (f["host"], f["check"]) == ("unified-1", "hccl-ports")]
        assert ascend.inventory in fixes[0]
        # typed at a shell: neither the inventory nor anything else is added
        mended = run("sh", "-c", f"PATH={Path(FAB).parent}:$PATH; {fixes[0]}")
        assert mended.returncode == 0, f"{fixes[0]}: {mended.stderr}"
        assert "hccl-ports" not in ascend.told("unified-1")


def test_weights_missing_on_one_host(ascend: Kept) -> None:
    path = ascend.ssh("unified-1", "ls /models/kimi-k2.5-w4a8/*/manifest.json").strip()
    with ascend.changed("unified-1", f"sudo mv {path} {path}.away", f"sudo mv {path}.away {path}"):
        said = ascend.refused_up()
    assert all(
        w in said
        for w in ("unified-1: weights:kimi-k2.5-w4a8", "manifest.json", "fab stage-weights")
    )
    assert "unified-0" not in said


def test_a_name_that_means_the_loopback(ascend: Kept) -> None:
    change, undo = (
        "sudo sed -i 's/^192.0.2.2 unified-1/127.0.1.1 unified-1/' /etc/hosts",
        "sudo sed -i 's/^127.0.1.1 unified-1/192.0.2.2 unified-1/' /etc/hosts",
    )
    with ascend.changed("unified-1", change, undo):
        said = ascend.refused_up()
    assert "unified-1: its own name resolves to 127.0.1.1" in said
    assert "[own-name]" in said


def test_places_that_take_nothing_are_named_before_anything_is_changed(ascend: Kept) -> None:
    full = "/var/lib/moe-infra"
    change = (
        "sudo mkdir -p /etc/moe-infra; sudo mount --bind /etc/moe-infra /etc/moe-infra; "
        f"sudo mount -o remount,bind,ro /etc/moe-infra; sudo mkdir -p {full}; "
        f"sudo mount -t tmpfs -o size=4k tmpfs {full}; sudo dd if=/dev/zero of={full}/x bs=4k count=1 2>/dev/null"
    )
    undo = f"sudo umount {full} /etc/moe-infra; sudo rmdir --ignore-fail-on-non-empty {full} /etc/moe-infra"
    with ascend.changed("unified-1", change, undo), in_time():
        said = ascend.fab("up")
    assert said.returncode == 3, said.stderr
    assert (
        "unified-1: nothing can be written to /etc/moe-infra: Read-only file system" in said.stderr
    )
    assert f"unified-1: nothing can be written to {full}: No space left on device" in said.stderr
    assert "[writable]" in said.stderr
    assert "unified-0" not in said.stderr


def test_a_file_that_containers_are_given_is_missing(ascend: Kept) -> None:
    path = "/etc/ascend_install.info"
    with ascend.changed("unified-0", f"sudo mv {path} {path}.away", f"sudo mv {path}.away {path}"):
        said = ascend.refused_up()
    assert f"unified-0: {path}, which unified-0/0's container is given, is not there" in said


def test_somebody_listens_where_hccl_does(ascend: Kept) -> None:
    start = "sudo systemd-run --quiet --unit=leftover python3 -m http.server 60002 && sleep 0.7"
    with ascend.changed("unified-0", start, "sudo systemctl stop leftover"):
        said = ascend.refused_up()
    assert all(
        w in said for w in ("unified-0:", "port 60002, on which HCCL listens", "[hccl-ports]")
    )


def test_what_devices_ports_and_routes_tell(ascend: Kept) -> None:
    faults = (
        "{'gateway': {'1': '203.0.113.9'}, 'netdetect': {'2': '0.0.0.0'}, 'lossless': {'3': 3}, "
        "'spoilt': {'4': 400}, 'link_downs': {'5': 7}}"
    )
    with (
        ascend.changed("unified-1", set_fault(faults), set_fault("{}")),
        ascend.changed("unified-1", *ELSEWHERE),
    ):
        told = ascend.told("unified-1")
    assert told["route"] == ("block", "the route to unified-0 (192.0.2.1) leaves by lo")
    gateway = "device 1: its gateway 203.0.113.9 lies outside of its network"
    assert told["device-gateway"] == ("block", gateway)
    assert told["device-detection"][1].startswith("device 2: no detection address")
    assert told["device-flow-control"] == ("warn", "device 3: flow control on priority 3")
    assert "device 4: 400 of 170045 packets arrived spoilt" in told["device-link-errors"][1]
    assert "device 5: its link went down 7 times" in told["device-link-errors"][1]


def test_one_peers_firewall(ascend: Kept) -> None:
    change = TABLE + "sudo nft add rule inet t i tcp dport 12321 drop"
    with ascend.changed("unified-0", change, "sudo nft delete table inet t"):
        (found,) = ascend.blocking()
        assert "sudo nft list ruleset" in found["fix"]
        assert "tcp dport 12321 drop" in ascend.ssh("unified-0", "sudo nft list ruleset")
    assert (found["host"], found["check"]) == ("unified-0", "peer-ports")
    assert all(w in found["observed"] for w in ("12321", "dp_rpc", "from unified-1", "timed out"))


def test_large_packets_that_get_lost(ascend: Kept) -> None:
    change = (
        TABLE
        + "sudo nft add rule inet t i ip saddr 192.0.2.2 tcp dport != 22 meta length gt 1000 drop"
    )
    with ascend.changed("unified-0", change, "sudo nft delete table inet t"):
        (found,) = ascend.blocking()
    assert (found["host"], found["check"]) == ("unified-1", "path-mtu")
    assert "full-sized packets to unified-0 get lost" in found["observed"]


def test_the_tls_switch_of_one_host(ascend: Kept) -> None:
    with ascend.changed("unified-1", set_fault("{'tls_switch': {'3': 1}}"), set_fault("{}")):
        (found,) = ascend.blocking()
    assert (found["host"], found["check"]) == ("unified-1", "tls-switch")
    assert found["observed"] == "TLS switch 1 on device 3, 0 on the others"
    assert "hccn_tool -i $i -tls -s enable 0" in found["fix"]


def test_an_imex_node_that_is_not_ready_and_a_daemon_that_does_not_run(rack: Kept) -> None:
    change = set_fault("{'imex_down': ['192.0.2.2']}")
    with rack.changed("prefill-0", change, set_fault("{}")):
        found = rack.blocking("--timeout", "1")
    assert [(f["host"], f["check"]) for f in found] == [("prefill-0", "imex-domain")]
    assert "IMEX node decode-0 UNAVAILABLE" in found[0]["observed"]
    stop, start = (f"sudo systemctl {verb} nvidia-imex" for verb in ("stop", "start"))
    with rack.changed("decode-0", stop, start):
        found = rack.blocking("--timeout", "1")
    assert [(f["host"], f["check"]) for f in found] == [("decode-0", "imex-domain")]
    assert "nvidia-imex-ctl" in found[0]["observed"]


def test_another_nvidia_driver_and_a_broken_link(rack: Kept) -> None:
    faults = "{'nvlink_inactive': {'2': [7]}, 'fabric_state': 'In Progress'}"
    with rack.changed("decode-0", set_fault(faults), set_fault("{}")):
        found = rack.blocking("--timeout", "1")
    assert {(f["host"], f["check"]) for f in found} == {
        ("decode-0", "nvlink"),
        ("decode-0", "fabric-state"),
    }


def test_a_group_over_two_nvlink_domains(rack: Kept) -> None:
    change, undo = (
        f'sudo sed -i \'s/"clique_id": {old}/"clique_id": {new}/\' {FACTS}'
        for old, new in ((1, 2), (2, 1))
    )
    with rack.changed("decode-1", change, undo):
        found = {(f["host"], f["check"]): f for f in rack.blocking("--timeout", "1")}
    said = found["decode-1", "nvlink-domain"]["observed"]
    assert said.startswith("group decode/0 spans 2 NVLink domains: ")
    assert "(decode-0) and " in said
    assert said.endswith(".2 (decode-1)")
    assert {check for _, check in found} == {"nvlink-domain", "imex-domain"}


def test_what_the_inventory_declares_of_the_network(rack: Kept) -> None:
    inventory = Path(rack.inventory)
    before = inventory.read_text()
    moe = "{mtu: 9000, rdma_devices: ['mlx5_0:1', 'mlx5_1:1']}"
    assert before.startswith("all:\n  vars:\n")
    inventory.write_text(before.replace("  vars:\n", f"  vars:\n    moe: {moe}\n", 1))
    gone = "sudo mv /sys/class/infiniband/mlx5_1 /sys/class/infiniband/.mlx5_1"
    back = "sudo mv /sys/class/infiniband/.mlx5_1 /sys/class/infiniband/mlx5_1"
    try:
        with rack.changed("decode-1", gone, back):
            found = {
                (f["host"], f["check"]): f["observed"] for f in rack.blocking("--timeout", "1")
            }
    finally:
        inventory.write_text(before)
    hosts = ("prefill-0", "decode-0", "decode-1")
    assert {f"{host}: {found[host, 'declared-mtu']}" for host in hosts} == {
        f"{host}: eth0 carries 1500 bytes" for host in hosts
    }
    assert "1500 bytes go to decode-0" in found["decode-1", "declared-path-mtu"]
    assert found["decode-1", "rdma-devices"] == "there is no HCA mlx5_1:1"
    assert {check for _, check in found} == {"declared-mtu", "declared-path-mtu", "rdma-devices"}


def test_an_instance_without_its_efa_devices_and_links_that_flap(rack: Kept) -> None:
    product = "/sys/devices/virtual/dmi/id/product_name"
    downed = "/sys/class/infiniband/mlx5_0/ports/1/counters/link_downed"
    change = f"cat {product} > /tmp/was; echo p5en.48xlarge | sudo tee {product}; echo 7 | sudo tee {downed}"
    undo = f"sudo cp /tmp/was {product}; echo 0 | sudo tee {downed}"
    with rack.changed("decode-0", change, undo):
        done = rack.fab("preflight", "--json", "--timeout", "1")
    findings = json.loads(done.stdout)["findings"]
    told = {f["check"]: f for f in findings if f["severity"] != "pass" and f["host"] == "decode-0"}
    assert (told["efa-devices"]["severity"], told["efa-devices"]["observed"]) == (
        "block",
        "0 EFA devices",
    )
    assert told["efa-devices"]["wanted"] == "16, as p5en.48xlarge has"
    assert told["rdma-flaps"]["observed"] == "links went down since boot: mlx5_0 7 times"


def test_what_cards_and_gpus_tell_of_how_they_carry_and_run(rack: Kept) -> None:
    faults = (
        "{'trust': {'eth0': 'pcp'}, 'discards': {'eth0': 12}, 'bit_errors': {'mlx5_1': '3E-7'}, "
        "'vbios': {'2': '96.00.01'}, 'held_clocks': {'1': 'HW Power Brake Slowdown'}, 'all_reduce_gb_s': 210}"
    )
    width = "/sys/class/infiniband/mlx5_3/device/current_link_width"
    change = f"{set_fault(faults)}; echo 8 | sudo tee {width}"
    with rack.changed("decode-1", change, f"{set_fault('{}')}; echo 16 | sudo tee {width}"):
        told = rack.told("decode-1", "--timeout", "1")
    observed = {check: said for check, (_, said) in told.items()}
    assert {severity for severity, _ in told.values()} == {"warn"}
    assert observed["cgroup-driver"].startswith("docker's cgroup driver is systemd")
    assert observed["roce-priorities"].startswith("eth0 goes by pcp")
    assert observed["link-errors"] == (
        "mlx5_1 loses one bit of 1E7, eth0 dropped 12 packets of its priorities"
    )
    assert observed["card-slots"] == "mlx5_3 has 8 of 16 lanes"
    assert observed["device-firmware"].endswith("has firmware 96.00.01, the others 97.00.A5.00.01")
    assert "HW Power Brake Slowdown" in observed["held-clocks"]
    assert observed["collective"] == "an all-reduce over its devices reaches 210 GB/s"


def left_of_groups(kept: Kept, *hosts: str) -> set[str]:
    """Units, containers and listeners of a group's collective that are left on hosts."""
    look = (
        "systemctl list-units --all --no-legend '*-collective-*'; sudo docker ps -aq; sudo podman ps -aq;"
        " sudo ss -Htln 'sport = :12321'"
    )
    return {kept.ssh(host, look) for host in hosts}


def test_a_group_adds_up_and_what_it_reaches_is_its_baseline(rack: Kept) -> None:
    facts = Path(rack.inventory).with_name("inventory.facts.yml")
    facts.unlink(missing_ok=True)
    done = rack.fab("preflight", "--timeout", "1")
    assert done.returncode == 0, done.stdout + done.stderr
    said = "decode-0: group decode/0 adds up "
    (line,) = (one for one in done.stderr.splitlines() if one.startswith(said))
    # whoever reads it knows that it is no measurement
    assert "torch 0 (moe-infra rehearsal stand-in), over RDMA and NVLink between hosts" in line
    assert "slowest is rank " in line
    assert "recorded what decode/0 reached" in done.stderr
    (entry,) = yaml.safe_load(facts.read_text())["collectives"]
    assert (entry["group"], entry["num_ranks"], entry["backend"]) == ("decode/0", 8, "nccl")
    before = facts.read_text()
    slow = set_fault("{'collective_gb_s': 10}")
    with rack.changed("decode-1", slow, set_fault("{}")):
        severity, observed = rack.told("decode-0", "--timeout", "1")["group-collective"]
    assert (severity, facts.read_text()) == ("warn", before)
    assert observed.startswith("group decode/0 adds up ")
    assert left_of_groups(rack, "decode-0", "decode-1") == {""}
    facts.unlink()


# Nothing of docker is there then. Simulated hosts cannot raise limits above this machine's, so what a service would get
# is told by a stand-in; all other units are systemd's.
AWAY, BACK = (
    f"sudo mv /usr/local/bin/{before} /usr/local/bin/{after}"
    for before, after in (("docker", ".docker"), (".docker", "docker"))
)
# On the host that has no part in the group it gives less, or nothing.
LIMITS = """\
#!/bin/sh
case "$*" in
*" cat /proc/self/limits")
  echo "Max locked memory  unlimited  unlimited  bytes"
  echo "Max open files  1048576  1048576  files" ;;
*) exec /usr/bin/systemd-run "$@" ;;
esac
"""
FILE = "/usr/local/bin/systemd-run"
GIVEN = f"{AWAY}; echo '{LIMITS}' | sudo tee {FILE} >/dev/null; sudo chmod +x {FILE}"
TAKEN = f"{BACK}; sudo rm {FILE}"
# For `native`, a virtual environment as hosts of a rehearsal of that runtime have it.
ENVIRONMENT = (
    f"sudo mkdir -p ENV/bin; sudo cp {LIBRARY}/installed/pyvenv.cfg ENV;"
    f" for name in python3 vllm; do sudo install {LIBRARY}/native.py ENV/bin/$name; done"
)
OTHER_RUNTIMES = {
    "podman": (
        GIVEN,
        TAKEN,
        "s/1048576  1048576/1024  1024/",
        "a service gets max open files 1024",
    ),
    "native": (
        f"{GIVEN}; {ENVIRONMENT}",
        f"{TAKEN}; sudo rm -r ENV",
        r"s/^  echo .*locked.*/  echo Failed to start transient unit >\&2; exit 1/",
        "a service with our limits does not start: Failed to start transient unit",
    ),
}


@pytest.mark.parametrize("runtime", OTHER_RUNTIMES)
def test_a_group_adds_up_in_whatever_its_engines_run(rack: Kept, runtime: str) -> None:
    stack = yaml.safe_load((PROJECT / "stacks" / f"{RACK}.yaml").read_text())
    environment = f"{ENGINE_ENVIRONMENTS}/{stack['engine']['name']}-{stack['engine']['version']}"
    change, undo, less, said = (
        text.replace("ENV", environment) for text in OTHER_RUNTIMES[runtime]
    )
    with ExitStack() as undone:
        for host in ("prefill-0", "decode-0", "decode-1"):
            undone.enter_context(rack.changed(host, change, undo))
        rack.ssh("prefill-0", f"sudo sed -i '{less}' {FILE}")
        done = rack.fab("preflight", "--timeout", "1", "--set", f"runtime={runtime}")
    assert "decode-0: group decode/0 adds up " in done.stderr, done.stdout + done.stderr
    assert "[group-collective]" not in done.stdout
    (limits,) = (line for line in done.stdout.splitlines() if "service-limits" in line)
    assert "prefill-0" in limits
    assert said in done.stdout
    assert left_of_groups(rack, "decode-0", "decode-1") == {""}
    Path(rack.inventory).with_name("inventory.facts.yml").unlink()


def test_a_host_that_does_not_join_its_group(rack: Kept) -> None:
    with rack.changed("decode-1", set_fault("{'collective_silent': True}"), set_fault("{}")):
        (found,) = rack.blocking("--timeout", "1", "--join", "3")
    assert (found["host"], found["check"]) == ("decode-1", "group-collective")
    assert "group decode/0 does not add up: ranks 4-7 did not join" in found["observed"]
    assert "still loading torch" in found["observed"]
    assert left_of_groups(rack, "decode-0", "decode-1") == {""}


def test_a_group_that_adds_up_wrongly_and_over_sockets(rack: Kept) -> None:
    change, undo = (
        f"sudo sed -i 's/{old}/{new}/' {FACTS}"
        for old, new in (
            ('"vendor"', '"network": "socket", "vendor"'),
            ('"network": "socket", ', ""),
        )
    )
    wrong = set_fault("{'collective_wrong': {'2': 5}}")
    with rack.changed("decode-0", change, undo), rack.changed("decode-1", wrong, set_fault("{}")):
        found = {(f["host"], f["check"]): f["observed"] for f in rack.blocking("--timeout", "1")}
    assert set(found) == {("decode-0", "group-collective"), ("decode-1", "group-collective")}
    said = found["decode-0", "group-collective"]
    assert "its group fell back to sockets: " in said
    assert "NCCL INFO Using network Socket" in said
    said = found["decode-1", "group-collective"]
    assert said.endswith("rank 6 (decode-1, device 2) has 5 wrong sums")


def test_a_collective_that_adds_up_wrongly(board: Kept) -> None:
    host = "host-0" if "host-0" in Path(board.inventory).read_text() else "unified-0"
    with board.changed(host, set_fault("{'all_reduce_wrong': 3}"), set_fault("{}")):
        (found,) = board.blocking()
    assert (found["check"], found["host"]) == ("collective", host)
    assert found["observed"] == "an all-reduce over its devices gives 3 wrong results"


def test_limits_that_docker_may_not_give_and_a_peers_name_that_means_another(ascend: Kept) -> None:
    folder = "/run/systemd/system/docker.service.d"
    change = (
        f"sudo mkdir -p {folder}; printf '[Service]\\nLimitMEMLOCK=65536\\n' | sudo tee {folder}/low.conf; "
        "sudo systemctl daemon-reload; sudo sed -i 's/^192.0.2.1 unified-0/192.0.2.99 unified-0/' /etc/hosts"
    )
    undo = (
        f"sudo rm -r {folder}; sudo systemctl daemon-reload; "
        "sudo sed -i 's/^192.0.2.99 unified-0/192.0.2.1 unified-0/' /etc/hosts"
    )
    with ascend.changed("unified-1", change, undo):
        done = ascend.fab("preflight", "--json")
    told = {f["check"]: f for f in json.loads(done.stdout)["findings"] if f["host"] == "unified-1"}
    assert told["docker-limits"]["severity"] == "block"
    assert "docker's own LimitMEMLOCK is 65536" in told["docker-limits"]["observed"]
    assert "systemctl edit docker" in told["docker-limits"]["fix"]
    assert told["peer-names"]["observed"] == "it takes unified-0 for 192.0.2.99, which is 192.0.2.1"


def test_a_fabric_manager_that_is_down_or_of_another_version_and_a_failed_diagnosis(
    board: Kept,
) -> None:
    host = "host-0" if "host-0" in Path(board.inventory).read_text() else "unified-0"
    unit = "nvidia-fabricmanager"
    with board.changed(host, f"sudo systemctl stop {unit}", f"sudo systemctl start {unit}"):
        (found,) = board.blocking()
    assert (found["check"], found["observed"]) == ("fabric-manager", f"{unit} is inactive")
    older = f'sudo sed -i \'s/"driver_version"/"fabric_manager_version": "575.57.08", &/\' {FACTS}'
    test = '{"name": "pcie", "results": [{"status": "Fail"}]}'
    failed = f'{{"DCGM Diagnostic": {{"test_categories": [{{"tests": [{test}]}}]}}}}'
    program = "printf '#!/bin/sh\\ncat /tmp/diagnosis\\n' | sudo tee /usr/local/bin/dcgmi"
    put = f"echo '{failed}' > /tmp/diagnosis; {program}"
    with board.changed(
        host, f"{older}; {put}; sudo chmod +x /usr/local/bin/dcgmi", "sudo rm /usr/local/bin/dcgmi"
    ):
        told = {f["check"]: f["observed"] for f in board.blocking()}
    assert told["fabric-manager"] == "fabric manager 575.57.08 beside driver 580.95.05"
    assert told["gpu-diagnosis"] == "dcgmi diag -r 1: fail in pcie"
