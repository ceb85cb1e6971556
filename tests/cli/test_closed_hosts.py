"""The real `fab` closes simulated hosts: who still reaches what, and how a host gets out by itself."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import yaml

from infra.agent.kinds.firewall import TRIAL_S
from infra.catalog.load import Catalog
from infra.errors import HostsFailed
from infra.inventory.ansible_file import read_inventory
from infra.launch.closing import close_hosts
from infra.launch.deployment import Deployment
from infra.plan.compile import compile_file
from infra.rehearsal.lab import registry
from infra.rehearsal.lab.client import Lab
from infra.rehearsal.operating import operator_at_work
from infra.render.firewall import firewall_text
from infra.render.items import Item
from infra.render.wanted_tuning import Tuning
from tests.cli.commands import FAB, need_lab, run
from tests.cli.port_matrix import Dial, passing
from tests.cli.rack import until
from tests.needed import need_program

# Nine hosts with sshd, systemd and engines; trials that nobody keeps last half a minute.
pytestmark = [pytest.mark.lab, pytest.mark.slow]

STACK = "gb200-2p1d"
TABLE = f"moe-{STACK}"
PREFILL = ("prefill-0", "prefill-1")
DECODE = ("decode-0", "decode-1", "decode-2", "decode-3")
HOSTS = (*PREFILL, *DECODE)
# Hosts of the lab that are in no plan.
OUTSIDER, CLIENT, MONITOR = "prefill-2", "prefill-3", "prefill-4"
SSH, UNGUARDED, STAGING, EPHEMERAL = 22, 9100, 17103, 40123
ODD_SSH, FOREIGN = 40022, 45555
STARTED = f"systemctl show -p MainPID,ActiveEnterTimestamp 'moe-{STACK}-engine@*'"
LEFT = "nft list tables | grep moe-; find / -xdev -path '*moe*firewall*'"
ROUTER, PROMETHEUS, GROUP = 8000, 29000, 12321


@dataclass(frozen=True)
class Closed:
    """Hosts of a lab, six of them in the inventory."""

    lab: Lab
    inventory: str
    ssh_config: str
    sets: tuple[str, ...]

    def fab(self, verb: str, *words: str) -> tuple[int, str]:
        done = run(
            FAB, verb, "--stack", STACK, "--inventory", self.inventory, *self.words(), *words
        )
        return done.returncode, done.stdout + done.stderr

    def words(self) -> list[str]:
        return [word for each in self.sets for word in ("--set", each)]

    def on(self, host: str, command: str) -> str:
        done = self.lab.run(host, ["sh", "-c", command])
        return (done.stdout + done.stderr).decode()

    def table(self, host: str, table: str = TABLE) -> str:
        return self.on(host, f"nft list table inet {table}")

    def matrix(self, *callers: str, ports: dict[str, set[int]]) -> set[Dial]:
        return passing(self.lab, callers, ports)


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Closed]:
    need_lab()
    need_program("nft", "nftables")
    words = ("--set", "roles.prefill.replicas=5", "--keep", "--to-step", "tune", "--json")
    done = run(FAB, "rehearse", "--stack", STACK, *words)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    try:
        lab = Lab(next(one for one in registry.read_entries() if one.id == document["id"]))
        inventory = yaml.safe_load(Path(document["inventory"]).read_text())
        prefill = inventory["all"]["children"]["prefill"]["hosts"]
        others = {name: prefill.pop(name) for name in (OUTSIDER, CLIENT, MONITOR)}
        # who comes in the place of another one is listed, and in no plan before
        inventory["all"]["children"]["spare"] = {"hosts": {OUTSIDER: others[OUTSIDER]}}
        path = tmp_path_factory.mktemp("closed") / "hosts.yml"
        path.write_text(yaml.safe_dump(inventory))
        sets = (
            "firewall=plan",
            f"clients=[{others[CLIENT]['ansible_host']}]",
            f"monitors=[{others[MONITOR]['ansible_host']}]",
        )
        yield Closed(lab, str(path), document["ssh_config"], sets)
    finally:
        run(FAB, "rehearse", "--stop", document["id"])


@pytest.fixture(scope="module")
def ports(closed: Closed) -> dict[str, set[int]]:
    """What is dialled on each host: what its processes bind, and some that they do not."""
    code, out = closed.fab("plan", "--json")
    plan = json.loads(out.splitlines()[0])
    assert code == 0
    found = {host: {SSH, UNGUARDED, STAGING, EPHEMERAL, ODD_SSH, FOREIGN} for host in HOSTS}
    for process in plan["processes"]:
        for bind in process["binds"]:
            found[process["host"]] |= set(range(bind["port"], bind["port"] + bind["count"]))
    return found


def allowed(dial: Dial, bound: dict[str, set[int]], spared: set[tuple[str, int]]) -> bool:
    """Who may dial what of gb200-2p1d: written down here, and read from nothing."""
    caller, host, port = dial
    if port not in bound[host] or port in {SSH, UNGUARDED} or (host, port) in spared:
        return True
    is_peer, in_group = caller in HOSTS, caller in DECODE and host in DECODE
    is_pair = is_peer and (caller in DECODE) != (host in DECODE)
    named = {
        ROUTER: is_peer or caller == CLIENT,
        PROMETHEUS: caller == MONITOR,
        STAGING: is_peer,
        GROUP: in_group and host == "decode-0",
        **dict.fromkeys(range(7100, 7104), is_pair or caller in {MONITOR, "prefill-0"}),
        # side channels, and what engines choose themselves
        **dict.fromkeys((*range(17600, 17700), EPHEMERAL, ODD_SSH, FOREIGN), is_pair or in_group),
    }
    return named[port]


def test_strangers_are_shut_out_and_nobody_else(closed: Closed, ports: dict[str, set[int]]) -> None:
    callers = (*HOSTS, OUTSIDER, CLIENT, MONITOR)
    every = {
        (caller, host, port)
        for caller in callers
        for host in HOSTS
        if host != caller
        for port in ports[host]
    }
    # what others have there already: sshd on another port, somebody's server, one that only the host itself reaches
    closed.on("decode-1", f"systemd-run --unit odd-ssh /usr/sbin/sshd -D -p {ODD_SSH}")
    server = "python3 -I -S -m http.server"
    closed.on("decode-2", f"systemd-run --unit other {server} {FOREIGN}")
    closed.on("decode-3", f"systemd-run --unit local {server} --bind 127.0.0.1 {FOREIGN}")
    spared = {("decode-1", ODD_SSH), ("decode-2", FOREIGN)}
    assert closed.matrix(*callers, ports=ports) == every

    code, told = closed.fab("up")
    assert code == 0, told
    assert "and 3 more reached through the new tables, which are kept" in told
    passed = closed.matrix(*callers, ports=ports)
    wanted = {dial for dial in every if allowed(dial, ports, spared)}
    assert passed == wanted
    strangers = {dial for dial in passed if dial[0] == OUTSIDER}
    assert {port for _, _, port in strangers} == {SSH, UNGUARDED, ODD_SSH, FOREIGN}

    # the watcher's port: its group's other hosts, and nobody else
    config = closed.lab.read_file("decode-0", f"/etc/moe-infra/{STACK}/watch/groups.json")
    watched = int(json.loads(config)["groups"][0]["port"])
    found = closed.matrix(*callers, ports={"decode-0": {watched}, "prefill-1": {watched}})
    assert found == {(host, "decode-0", watched) for host in DECODE[1:]}
    assert closed.fab("verify")[0] == 0


def test_a_client_that_is_named_later_is_let_in_while_engines_serve_on(closed: Closed) -> None:
    code, told = closed.fab("up", "--set", "firewall=none")
    assert code == 0, told
    began = closed.on("decode-2", STARTED)
    open_port = {"decode-2": {EPHEMERAL}}
    assert (OUTSIDER, "decode-2", EPHEMERAL) in closed.matrix(OUTSIDER, ports=open_port)
    assert closed.fab("up")[0] == 0
    door = {"prefill-0": {ROUTER}}
    assert closed.matrix(OUTSIDER, CLIENT, ports=door) == {(CLIENT, "prefill-0", ROUTER)}
    both = [host.address for host in closed.lab.status() if host.name in {OUTSIDER, CLIENT}]
    code, told = closed.fab("up", "--set", f"clients=[{', '.join(both)}]")
    assert code == 0, told
    assert len(closed.matrix(OUTSIDER, CLIENT, ports=door)) == 2
    assert closed.on("decode-2", STARTED) == began


def test_a_rule_that_somebody_deletes_is_seen_and_comes_back(closed: Closed) -> None:
    assert closed.fab("up")[0] == 0
    chain = f"inet {TABLE} strangers"
    handle = f"nft -a list chain {chain} | sed -n 's/.*counter.*handle //p'"
    closed.on("decode-1", f"nft delete rule {chain} handle $({handle})")
    assert (OUTSIDER, "decode-1", EPHEMERAL) in closed.matrix(
        OUTSIDER, ports={"decode-1": {EPHEMERAL}}
    )
    code, told = closed.fab("verify")
    assert code == 6, told
    assert "decode-1: is loaded, without `tcp dport @ranges counter drop`" in told
    assert f"Next: fab up --stack {STACK}" in told  # beneath what serves
    code, told = closed.fab("diff")
    assert code == 6
    assert f"firewall {TABLE}: loaded, without" in told
    code, told = closed.fab("up")
    assert code == 0
    assert "decode-1 reached through the new tables" in told
    assert not closed.matrix(OUTSIDER, ports={"decode-1": {EPHEMERAL}})
    assert closed.fab("verify")[0] == 0


def test_a_host_is_closed_again_after_a_boot_and_after_somebody_flushed_all_rules(
    closed: Closed,
) -> None:
    assert closed.fab("up")[0] == 0
    before = closed.table("decode-3")
    boots = next(one.boots for one in closed.lab.status() if one.name == "decode-3")
    closed.lab.reset("decode-3")
    closed.lab.wait_reboot("decode-3", boots, 60.0)
    assert without_counts(closed.table("decode-3")) == without_counts(before)
    assert not closed.matrix(OUTSIDER, ports={"decode-3": {EPHEMERAL}})
    closed.on(
        "decode-3", "systemctl start nftables"
    )  # it flushes all rules, and ours come behind it
    until(lambda: without_counts(closed.table("decode-3")) == without_counts(before))


def test_two_closed_stacks_share_a_host(closed: Closed) -> None:
    assert closed.fab("up")[0] == 0
    # another stack, whose hosts are decode-0 and the outsider; its ports are none of the first one's
    address = {host.name: host.address for host in closed.lab.status()}
    other = compile_file(
        "sglang-pd-nixl", catalog=Catalog(), sets=["firewall=plan", "port=8123"]
    ).plan
    hosts = tuple(
        replace(each, address=address[name])
        for each, name in zip(other.hosts, (OUTSIDER, "decode-0"), strict=True)
    )
    text = firewall_text(replace(other, hosts=hosts), other.hosts[1].name)
    closed.lab.write_file("decode-0", "/root/other.nft", text.encode())
    assert closed.on("decode-0", "nft -f /root/other.nft") == ""
    dialled = {"decode-0": {EPHEMERAL, GROUP, 7101}, "decode-1": {EPHEMERAL}}
    try:
        found = closed.matrix(OUTSIDER, CLIENT, "decode-1", ports=dialled)
    finally:
        closed.on("decode-0", f"nft delete table inet moe-{other.stack}")
    assert found == {
        (
            OUTSIDER,
            "decode-0",
            EPHEMERAL,
        ),  # the other stack's peer, which the first one's table would drop
        ("decode-1", "decode-0", EPHEMERAL),  # the first one's, which the other's would
        ("decode-1", "decode-0", GROUP),
    }


def test_a_machine_that_comes_is_let_in_by_all_and_one_that_leaves_by_nobody(
    closed: Closed,
) -> None:
    assert closed.fab("up")[0] == 0
    inventory = Path(closed.inventory).read_text()
    port = {"decode-3": {EPHEMERAL}}
    try:
        code, told = closed.fab("replace-host", "prefill-1", OUTSIDER)
        assert code == 0, told
        assert closed.matrix("prefill-0", "prefill-1", OUTSIDER, ports=port) == {
            ("prefill-0", "decode-3", EPHEMERAL),
            (OUTSIDER, "decode-3", EPHEMERAL),
        }
        assert closed.table("prefill-1").startswith("Error: No such file or directory")
        assert closed.fab("verify")[0] == 0
        assert closed.fab("down")[0] == 0
    finally:
        Path(closed.inventory).write_text(inventory)


def test_hosts_whose_tables_shut_the_operator_out_take_them_back(closed: Closed) -> None:
    assert closed.fab("up")[0] == 0
    before = {host: without_counts(closed.table(host)) for host in HOSTS}
    catalog, said = Catalog(), list[str]()
    inventory = read_inventory(Path(closed.inventory))
    plan = compile_file(STACK, catalog=catalog, inventory=inventory, sets=closed.sets).plan
    tuning = Tuning(profile=catalog.tuning(plan.tuning))
    with operator_at_work(plan, inventory, catalog, tuning, said.append) as operator:
        deployment = without_ssh(operator.deployment, "decode-2")
        begun = time.monotonic()
        with pytest.raises(HostsFailed) as failed:
            close_hosts(deployment, catalog, list(HOSTS), frozenset())
    assert failed.value.exit_code == 4
    assert "decode-2" in failed.value.where
    assert "every host takes its own back by itself" in said[-1]
    # nobody kept the others' tables either
    until(
        lambda: {host: without_counts(closed.table(host)) for host in HOSTS} == before,
        TRIAL_S + 30.0,
    )
    assert time.monotonic() - begun < TRIAL_S + 40
    assert run("ssh", "-n", "-F", closed.ssh_config, "decode-2", "true").returncode == 0
    assert closed.fab("verify")[0] == 0


def test_down_takes_the_tables_away(closed: Closed) -> None:
    assert closed.fab("up")[0] == 0
    assert closed.fab("down")[0] == 0
    for host in HOSTS:
        assert closed.on(host, LEFT) == ""


def test_a_stack_that_closes_its_hosts_no_more_leaves_them_open(closed: Closed) -> None:
    assert closed.fab("up")[0] == 0
    code, told = closed.fab("up", "--set", "firewall=none")
    assert code == 0, told
    for host in HOSTS:
        assert closed.on(host, LEFT) == ""
    assert closed.fab("down")[0] == 0


def without_counts(table: str) -> list[str]:
    """A table's lines without what has been counted so far."""
    return [line.partition("counter")[0] for line in table.splitlines()]


def without_ssh(deployment: Deployment, host: str) -> Deployment:
    """A deployment whose table of one host lets nobody in over SSH."""
    state = deployment.states[host]
    items = tuple(_cutting(item) if item.kind == "firewall" else item for item in state.items)
    return replace(deployment, states={**deployment.states, host: replace(state, items=items)})


def _cutting(item: Item) -> Item:
    first = "\t\tmeta l4proto != tcp accept\n"
    text = str(item.details["content"]).replace(
        first, f"{first}\t\ttcp dport 22 tcp flags syn drop\n", 1
    )
    return replace(item, details={**item.details, "content": text})
