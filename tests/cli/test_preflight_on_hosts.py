"""Hosts on which a stack cannot start: each fault stops `fab up` or `fab preflight`, and its culprit is named.

The hosts are simulated. Ports, processes, files, name service, nftables and SSH are real; device files, vendors' tools
and the wall clock (a `date` that is 30 s ahead) are stand-ins.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.cli.commands import FAB, need_lab, run

# Real sshd and systemd on two simulated hosts; each test is one or two calls of a second or three.
pytestmark = [pytest.mark.lab, pytest.mark.slow, pytest.mark.fault]

ASCEND = "a2-2n-dp4tp4"
RACK = "gb200-2p1d"
# One prefill and one decode tray of the same rack.
RACK_SETS = (
    "--set", "platform=existing-hosts", "--set", "roles.prefill.replicas=1", "--set",
    "roles.decode.data_parallel=4", "--set", "defaults.max_model_len=32768",
)  # fmt: skip
DRIVER_FILE = "/usr/local/Ascend/driver/version.info"
FACTS = "/var/lib/moe-rehearsal/host.json"
TABLE = "sudo nft add table inet t; sudo nft 'add chain inet t i { type filter hook input priority 0; }'; "
FAST_CLOCK = "printf '#!/bin/sh\\necho $(($(/usr/bin/date +%%s)+30)).5\\n'"


@dataclass(frozen=True)
class Kept:
    """A kept rehearsal: tuned hosts with nothing started."""

    stack: str
    sets: tuple[str, ...]
    inventory: str
    ssh_config: str

    def fab(self, *words: str) -> subprocess.CompletedProcess[str]:
        return run(
            FAB, words[0], "--stack", self.stack, *self.sets, "--inventory", self.inventory, *words[1:]
        )  # fmt: skip

    def ssh(self, host: str, command: str) -> str:
        done = run("ssh", "-n", "-F", self.ssh_config, host, command)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def blocking(self, *words: str) -> list[dict[str, str]]:
        """The findings that block, of a preflight that leaves with 3."""
        done = self.fab("preflight", "--json", *words)
        assert done.returncode == 3, done.stdout + done.stderr
        document = json.loads(done.stdout)
        assert list(document) == ["schema_version", "stack", "ok", "findings"]
        assert (document["stack"], document["ok"]) == (self.stack, False)
        severities = [finding["severity"] for finding in document["findings"]]
        assert severities == sorted(severities, key=["block", "warn", "pass"].index)
        return [finding for finding in document["findings"] if finding["severity"] == "block"]

    @contextmanager
    def changed(self, host: str, change: str, undo: str) -> Iterator[None]:
        """A host with a fault."""
        self.ssh(host, change)
        try:
            yield
        finally:
            self.ssh(host, undo)

    def refused_up(self, *words: str) -> str:
        """What `up` says when it refuses with 3; nothing of the stack is on any host then."""
        done = self.fab("up", *words)
        assert done.returncode == 3, done.stdout + done.stderr
        assert "Traceback" not in done.stderr
        for host in ("unified-0", "unified-1"):
            assert self.ssh(host, f"ls -d /etc/moe-infra/{self.stack} 2>/dev/null; true") == ""
        return done.stderr


@contextmanager
def kept_rehearsal(stack: str, sets: tuple[str, ...]) -> Iterator[Kept]:
    need_lab()
    done = run(FAB, "rehearse", "--stack", stack, *sets, "--keep", "--to-step", "tune", "--json")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    yield Kept(stack, sets, document["inventory"], document["ssh_config"])
    run(FAB, "rehearse", "--stop", document["id"])


@pytest.fixture(scope="module")
def ascend() -> Iterator[Kept]:
    with kept_rehearsal(ASCEND, ()) as kept:
        yield kept


@pytest.fixture(scope="module")
def rack() -> Iterator[Kept]:
    with kept_rehearsal(RACK, RACK_SETS) as kept:
        yield kept


def set_fault(text: str) -> str:
    """A shell command that gives a stand-in of the vendor's tool a fault."""
    code = f"import json; p='{FACTS}'; d=json.load(open(p)); d['faults']={text}; open(p,'w').write(json.dumps(d))"
    return f'sudo python3 -c "{code}"'


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
    facts.write_text(facts.read_text().replace("interface: eth0", "interface: ens5"))
    said = ascend.refused_up()
    assert "interface eth0 (recorded ens5)" in said
    assert "[facts-fresh]" in said
    facts.unlink()


def test_a_port_taken_by_somebody_else(ascend: Kept) -> None:
    start = "sudo systemd-run --quiet --unit=squatter python3 -m http.server 8088 && sleep 0.7"
    with ascend.changed("unified-0", start, "sudo systemctl stop squatter"):
        said = ascend.refused_up()
    assert all(
        w in said for w in ("unified-0:", "port 8088", "unified-0/0", "http.server", "[ports-free]")
    )


def test_a_device_held_by_somebody_else(ascend: Kept) -> None:
    start = "sudo systemd-run --quiet --unit=thief sh -c 'exec 3</dev/davinci5; sleep 60 & wait' && sleep 0.3"
    with ascend.changed("unified-1", start, "sudo systemctl stop thief"):
        said = ascend.refused_up()
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
        ascend.fab("down")
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
    assert [(f["host"], f["check"]) for f in found] == [("unified-1", "clock-spread")]


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


def test_one_peers_firewall(ascend: Kept) -> None:
    change = TABLE + "sudo nft add rule inet t i tcp dport 12321 drop"
    with ascend.changed("unified-0", change, "sudo nft delete table inet t"):
        (found,) = ascend.blocking()
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


def test_an_imex_node_that_is_not_ready(rack: Kept) -> None:
    change = set_fault("{'imex_down': ['192.0.2.2']}")
    with rack.changed("prefill-0", change, set_fault("{}")):
        found = rack.blocking("--timeout", "1")
    assert [(f["host"], f["check"]) for f in found] == [("prefill-0", "imex-domain")]
    assert "IMEX node decode-0 UNAVAILABLE" in found[0]["observed"]


def test_another_nvidia_driver_and_a_broken_link(rack: Kept) -> None:
    faults = "{'nvlink_inactive': {'2': [7]}, 'fabric_state': 'In Progress'}"
    with rack.changed("decode-0", set_fault(faults), set_fault("{}")):
        found = rack.blocking("--timeout", "1")
    assert {(f["host"], f["check"]) for f in found} == {
        ("decode-0", "nvlink"),
        ("decode-0", "fabric-state"),
    }
