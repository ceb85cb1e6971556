"""A table of nftables on a host: on trial, kept, changed by somebody, and taken away."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from infra.agent.kinds.firewall import TRIAL_S, kept_path, trial_path
from tests.agent.nft_host import NftHost

TEXT = """\
table inet moe-s
delete table inet moe-s
table inet moe-s {
	set spared {
		type inet_service
		flags interval
	}
	chain members {
		tcp dport 7100 accept
		tcp dport @ports counter drop
	}
}
"""
ITEM: dict[str, object] = {
    "id": "firewall:moe-s",
    "group": "firewall",
    "kind": "firewall",
    "target": "moe-s",
    "stack": "s",
    "content": TEXT,
    "guards": [[7100, 7103], [32768, 60999]],
    "own": [[7100, 7103]],
    "units": [],
    "why": "closed",
}
TIMER = "moe-s-firewall-back"
RULE = "\t\ttcp dport @ports counter drop\n"


@pytest.fixture
def host(tmp_path: Path) -> NftHost:
    found = NftHost(tmp_path / "root")
    found.put("/proc/self/stat", "")
    return found


def row(host: NftHost, mode: str, item: dict[str, object] = ITEM) -> dict[str, object]:
    return host.state(mode, [item])["firewall:moe-s"]


def closed(host: NftHost) -> NftHost:
    """The host with the table loaded and kept."""
    assert row(host, "apply")["state"] == "changed"
    assert host.ask("firewall", stack="s") == {"schema_version": 1, "kept": True}
    return host


def by_another_process(host: NftHost) -> None:
    place = Path(host.path(trial_path("s")))
    place.write_text(place.read_text().replace(f"# {os.getpid()}\n", "# 1\n", 1))


def test_a_table_is_on_trial_until_it_is_kept(host: NftHost) -> None:
    done = row(host, "apply")
    assert (done["state"], done["before"], done["wanted"]) == ("changed", "not loaded", "loaded")
    assert host.timers == {TIMER: f"{TRIAL_S}s"}
    # what ends the trial is there before the trial begins
    assert host.ran.index("systemd-run --quiet --collect") < host.ran.index(
        f"nft -f {host.path(trial_path('s'))}"
    )
    assert not host.exists(kept_path("s"))
    assert host.ask("firewall", stack="s")["kept"]
    assert host.timers == {}
    assert host.read_bytes(kept_path("s")).decode().partition("\n")[2] == TEXT
    assert not host.exists(trial_path("s"))
    assert row(host, "check")["state"] == "ok"
    host.ran.clear()
    assert row(host, "apply")["state"] == "ok"
    assert not [words for words in host.ran if words.startswith(("nft -f", "systemd-run"))]


def test_a_trial_that_another_run_has_begun_counts_for_nothing(host: NftHost) -> None:
    row(host, "apply")
    by_another_process(host)
    assert row(host, "check")["state"] == "changed"
    assert row(host, "apply")["state"] == "changed"
    assert host.timers == {TIMER: f"{TRIAL_S}s"}


def test_what_was_taken_back_in_time_is_not_kept(host: NftHost) -> None:
    row(host, "apply")
    Path(host.path(trial_path("s"))).unlink()  # as the timer's program does
    error = host.ask("firewall", stack="s")["error"]
    assert isinstance(error, dict)
    assert error["what"] == "the table of s was taken back: nobody kept it in time"
    assert not host.exists(kept_path("s"))


def test_nothing_is_loaded_that_nothing_would_end(host: NftHost) -> None:
    host.cannot_arm = "Failed to connect to bus"
    done = row(host, "apply")
    assert done["state"] == "blocked"
    assert "cannot end a trial of the table: Failed to connect to bus" in str(done["why"])
    assert host.tables == {}


@pytest.mark.parametrize("mode", ["check", "apply"])
def test_a_host_without_nft_says_what_to_install(host: NftHost, mode: str) -> None:
    host.has_nft = False
    done = row(host, mode)
    assert done["state"] == "blocked"
    assert "install the package nftables" in str(done["why"])


def test_a_table_that_this_nft_does_not_take_is_refused_before_it_is_loaded(host: NftHost) -> None:
    host.refuses = "Error: syntax error, unexpected mark"
    done = row(host, "check")
    assert done["state"] == "blocked"
    assert done["why"] == "nft does not take the table here: Error: syntax error, unexpected mark"


def test_a_rule_that_somebody_deleted_or_added_is_told_and_comes_back(host: NftHost) -> None:
    closed(host)
    host.tables["moe-s"] = host.tables["moe-s"].replace(RULE, "\t\ttcp dport 1 accept\n")
    seen = row(host, "check")
    assert seen["state"] == "changed"
    told = "loaded, without `tcp dport @ports counter drop`, with `tcp dport 1 accept`"
    assert seen["before"] == told
    assert row(host, "apply")["state"] == "changed"
    assert RULE in host.tables["moe-s"]
    del host.tables["moe-s"]
    assert row(host, "check")["before"] == "not loaded"


def test_every_rule_that_differs_is_told_whole(host: NftHost) -> None:
    closed(host)
    addresses = ", ".join(f"192.0.2.{n}" for n in range(100))
    ours = [f"ip saddr {{ {addresses} }} tcp dport {port} accept" for port in (1, 2)]
    rules = "".join(f"\t\t{rule}\n" for rule in ours)
    host.tables["moe-s"] = host.tables["moe-s"].replace(RULE, rules)
    told = str(row(host, "check")["before"])
    assert told == f"loaded, without `{RULE.strip()}`, with `{ours[0]}`, with `{ours[1]}`"
    host.tables["moe-s"] = host.tables["moe-s"].replace(rules, rules * 4)
    assert str(row(host, "check")["before"]).endswith("with 4 more")


def test_a_table_that_the_next_boot_would_not_load_is_no_closed_host(host: NftHost) -> None:
    closed(host)
    Path(host.path(kept_path("s"))).unlink()
    assert row(host, "check")["state"] == "changed"


@pytest.mark.parametrize("change", ["none", "edited", "flushed", "on trial"])
def test_all_of_it_is_taken_away_whatever_was_done_to_it(host: NftHost, change: str) -> None:
    closed(host)
    if change == "edited":
        host.tables["moe-s"] = host.tables["moe-s"].replace(RULE, "")
    if change == "flushed":
        host.tables.clear()
    if change == "on trial":
        row(host, "apply", {**ITEM, "content": TEXT.replace("7100", "7101")})
    done = host.state("rollback", [], groups=["firewall", "files"])
    assert done["firewall:moe-s"]["state"] == "changed"
    assert host.tables == {}
    assert host.timers == {}
    assert not Path(host.path("/var/lib/moe-infra")).exists()


def test_a_release_that_closes_nothing_takes_the_table_away(host: NftHost) -> None:
    closed(host)
    kept = host.state("apply", [], prunes=True, spares=["firewall:moe-s"])
    assert kept == {}
    assert list(host.tables) == ["moe-s"]
    gone = host.state("apply", [], prunes=True)
    assert gone["firewall:moe-s"]["state"] == "changed"
    assert host.tables == {}


def listening(port: int, address: str, inode: int) -> str:
    """A line of /proc/net/tcp."""
    head = f"0: {address}:{port:04X} 00000000:0000 0A 00000000:00000000 00:00000000 00000000"
    return f"   {head} 0 0 {inode} 1 0000000000000000 100 0 0 10 0\n"


def test_ports_on_which_others_listen_stay_open(host: NftHost) -> None:
    """Sshd on an odd port, or where the plan wants one; not what the host alone reaches, nor what is the stack's.

    Nor who else holds a port of the plan: it would be open to everybody, for whoever has it next.
    """
    everywhere, loopback = "00000000", "0100007F"
    sockets = {
        40022: "other",
        7101: "sshd",
        45000: "engine",
        50000: "imex",
        17: "far",
        7102: "squatter",
        7103: "users",
    }
    text = "head\n"
    for inode, port in enumerate(sockets, start=500):
        text += listening(port, everywhere, inode)
    text += listening(46000, loopback, 600)
    host.put("/proc/net/tcp", text)
    for pid, (inode, name) in enumerate(enumerate(sockets.values(), start=500), start=90):
        folder = Path(host.path(f"/proc/{pid}/fd"))
        folder.mkdir(parents=True)
        (folder / "3").symlink_to(f"socket:[{inode}]")
        group = "/moe_infra-s.slice/moe-s-engine@0.service" if name == "engine" else f"/{name}"
        host.put(f"/proc/{pid}/cgroup", f"0::{group}\n")
        program, uid = ("sshd", 1000) if name == "users" else (name, 0)
        host.put(f"/proc/{pid}/status", f"Name:\t{program}\nUid:\t{uid}\t{uid}\t{uid}\t{uid}\n")
    row(host, "apply")
    assert "elements = { 7101, 40022, 50000 }" in host.tables["moe-s"]
    assert host.ask("firewall", stack="s")["kept"]
    assert row(host, "check")["state"] == "ok"  # they are no difference
    assert "elements = { 7101, 40022, 50000 }" in host.read_bytes(kept_path("s")).decode()
