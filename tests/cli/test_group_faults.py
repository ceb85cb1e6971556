"""What befalls a group of ranks on two real hosts, and what `fab status` says of it: docs/decisions.md 21."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Iterator

import pytest

from infra.errors import Differs
from tests.cli.watched_group import (
    CONFIG,
    CONNECT_S,
    HASTE,
    HOSTS,
    LIMIT_S,
    PATIENCE,
    REPLACES,
    STACK,
    WATCH,
    Site,
    have_serve,
    kept_site,
)
from tests.naming import in_time

# Faults of hosts take the seconds that watchers wait before they believe them.
pytestmark = [pytest.mark.lab, pytest.mark.slow, pytest.mark.fault]


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with kept_site() as found:
        yield found


@pytest.fixture
def serving(site: Site) -> Site:
    have_serve(site)
    return site


def test_a_rank_that_is_killed_is_named_and_its_evidence_kept(serving: Site) -> None:
    before, why = serving.record(), "unified-1: unified-1/0 was ended by signal 9"
    with serving.slow_loads():
        serving.kill_rank()
        serving.names(why, before)
        serving.until(lambda: serving.record()["epoch"] > before["epoch"])
        serving.status_says(5, f"restarted once; the last time: {why}.", "nothing to type.")
    row = serving.serves_again(before["epoch"] + 1)
    assert row["why"] == why
    assert row["restarts"] == before["restarts"] + 2
    serving.status_says(0, why)
    folder = f"/var/lib/moe-infra/evidence/{STACK}/unified-0-{before['epoch']}"
    for host in HOSTS:
        facts = json.loads(serving.lab.read_file(host, f"{folder}/facts.json"))
        assert facts["epoch"] == before["epoch"]
        assert b"startup complete" in serving.lab.read_file(HOSTS[0], f"{folder}/journal.txt")


def test_a_frozen_rank_is_named_by_verify_and_goes_on_when_it_is_let(serving: Site) -> None:
    """`fab status` shows nothing of it before somebody asks something of it."""
    pids = " ".join(map(str, serving.engine_pids(HOSTS[1])))
    serving.sh(HOSTS[1], f"kill -STOP {pids}")
    code, checks, err = serving.fab("verify", "--timeout", "1")
    assert code == 5, err
    assert f"{HOSTS[1]}/0: process {pids} of it is stopped (SIGSTOP): `ssh " in checks
    assert f"sudo kill -CONT {pids}`" in checks
    last = err.splitlines()[-1]
    assert last.startswith("Next: fab bundle --stack")
    assert ", then fab restart --stack" in last
    serving.sh(HOSTS[1], f"kill -CONT {pids}")
    # every rank answers, and only the watchers' limits are not those of the stack; one may have begun a restart
    serving.until(lambda: serving.fab("verify")[0] == Differs.exit_code)


def test_a_frozen_rank_is_noticed_by_requests_that_make_no_token(serving: Site) -> None:
    before = serving.record()
    for pid in serving.engine_pids(HOSTS[1]):
        serving.sh(HOSTS[1], f"kill -STOP {pid}")
    assert serving.status()["ok"]  # the port is open and the health is green

    base = json.loads(serving.lab.read_file(HOSTS[0], CONFIG))["groups"][0]["metrics"][0]
    base = base.rpartition("/")[0]
    model = json.loads(serving.sh(HOSTS[0], f"curl -s {base}/v1/models"))["data"][0]["id"]
    body = json.dumps({"model": model, "prompt": "a " * 400, "max_tokens": 4})
    asked = f"curl -s -m 30 -H 'X-data-parallel-rank: 2' -H 'Content-Type: application/json' -d '{body}'"

    def ask() -> None:
        serving.sh(HOSTS[0], f"{asked} {base}/v1/completions")

    why = "rank 2 has requests and has made no token for 4 s"
    thread = threading.Thread(target=ask, daemon=True)
    with serving.slow_loads():
        thread.start()
        serving.names(why, before, PATIENCE["stuck_s"])
        serving.until(lambda: serving.record()["epoch"] > before["epoch"])
        last = serving.status_says(5, "the last time: ", f"{why}.", "nothing to type.")
        assert last.startswith(f"Next: fab logs --stack {STACK} "), "it loads"
    serving.serves_again(before["epoch"] + 1)
    serving.status_says(0)
    thread.join(30)


def test_a_frozen_rank_that_nobody_asks_is_noticed_by_the_token_that_it_owes(serving: Site) -> None:
    """No request comes, every port is open and the health is green: its watcher asks for one token."""
    before = serving.record()
    serving.set_limits(idle_s=2.0)
    try:
        time.sleep(3 * PATIENCE["stuck_s"])
        assert serving.record()["epoch"] == before["epoch"]  # who gives the token is left alone
        for pid in serving.engine_pids(HOSTS[1]):
            serving.sh(HOSTS[1], f"kill -STOP {pid}")
        serving.until(lambda: serving.record()["epoch"] > before["epoch"])
        why = serving.record()["why"]
        assert re.search(r"has (made no token|given none) for 4 s$", why), why
    finally:
        serving.set_limits()
    serving.serves_again(before["epoch"])


# Any user of a member's host: reads what all may read, and says in a member's name that its rank has ended.
FORGER = """
import json, os, socket
os.setgroups([]), os.setgid(65534), os.setuid(65534)
told = json.load(open("{config}"))
group = told["groups"][0]
try:
    open("/var/lib/moe-infra/groups/{stack}/key").read()
    print("the key is read")
except PermissionError:
    pass
own = dict(state="stopped", epoch=1, adopting=False, fault="it ended", serves=False, obeys=[1, "run"])
line = dict(release=told["release"], host="{member}", boot="b", at=9e9, hold_s=0.0, to=group["leader"])
line["reports"] = {{group["name"]: own}}
for text in (json.dumps(line), "0" * 64 + " " + json.dumps(line)):
    with socket.create_connection((group["address"], group["port"]), 2) as wire:
        wire.sendall(text.encode() + b"\\n")
        try:
            print(wire.makefile().read())
        except ConnectionResetError:
            print("closed")
"""


def test_a_line_that_any_user_can_forge_stops_nothing(serving: Site) -> None:
    before = serving.record()
    counted = ("epoch", "phase", "restarts", "why")  # attempts are forgotten by themselves
    script = FORGER.format(config=CONFIG, stack=STACK, member=HOSTS[1])
    said = serving.sh(HOSTS[1], f"python3 -c '{script}' 2>&1")
    assert "the key is read" not in said
    assert "Traceback" not in said
    assert '"orders"' not in said
    time.sleep(1.0)
    after = serving.record()
    assert [after[name] for name in counted] == [before[name] for name in counted]
    assert serving.status()["ok"]
    assert "not signed for their connection" in serving.sh(HOSTS[0], f"journalctl -u {WATCH}")


def test_a_host_that_is_cut_off_stops_its_ranks_and_joins_the_next_epoch(serving: Site) -> None:
    before = serving.record()
    serving.lab.cut(HOSTS[1])
    try:
        serving.names("unified-1: silent for more than 4 s", before, HASTE["lost_s"])
        serving.until(lambda: serving.record()["phase"] == "stop")
        serving.until(lambda: not serving.is_running(HOSTS[1]))
        serving.until(lambda: not serving.is_running(HOSTS[0]))
        view = f"cat /run/moe-infra/groups/{STACK}/*.json"
        serving.until(
            lambda: json.loads(serving.sh(HOSTS[0], view))["waits_for"] == ["unified-1 is silent"]
        )
        assert serving.record()["epoch"] == before["epoch"]  # nobody starts half a group
        silent = (
            f"restarts ({HOSTS[1]}: silent for more than 4 s); it waits for {HOSTS[1]} is silent."
        )
        serving.status_says(4, silent, "by itself as soon as unified-1 can be heard", REPLACES)
    finally:
        serving.lab.heal(HOSTS[1])
    row = serving.serves_again(before["epoch"])
    assert row["why"] == "unified-1: silent for more than 4 s"
    assert row["epoch"] == before["epoch"] + 1


def test_a_frozen_host_is_waited_for_and_joins_the_next_epoch(serving: Site) -> None:
    before = serving.record()
    serving.lab.freeze(HOSTS[1])
    try:
        serving.names("unified-1: silent for more than 4 s", before, HASTE["lost_s"])
        serving.until(lambda: serving.record()["phase"] == "stop")
        with in_time(CONNECT_S):
            serving.status_says(
                4, "Out of reach: unified-1: ", "silent for more than 4 s", REPLACES
            )
    finally:
        serving.lab.thaw(HOSTS[1])
    row = serving.serves_again(before["epoch"])
    assert row["why"] == "unified-1: silent for more than 4 s"


@pytest.mark.parametrize("host", HOSTS)
def test_a_host_that_was_rebooted_takes_part_again_without_anybody(
    serving: Site, host: str
) -> None:
    before = serving.record()
    boots = next(one.boots for one in serving.lab.status() if one.name == host)
    serving.lab.power_off(host)
    with in_time(CONNECT_S):
        after = serving.status_says(4, f"Out of reach: {host}: ", f"`fab replace-host {host} NEW ")
    assert after.startswith(f"Next: fab status --stack {STACK}")
    with in_time(CONNECT_S):
        code, _, err = serving.fab("up")
    assert code == 4, err
    assert f"{host}: " in err
    serving.lab.start(host)
    serving.lab.wait_reboot(host, boots, LIMIT_S)
    serving.names(host, before, HASTE["lost_s"])
    row = serving.serves_again(before["epoch"])
    assert host in row["why"]
    assert row["epoch"] == before["epoch"] + 1


@pytest.mark.parametrize("host", HOSTS)
def test_a_watcher_that_is_killed_comes_back_and_no_rank_is_touched(
    serving: Site, host: str
) -> None:
    serving.until(lambda: not serving.record()["attempts"])  # nothing is about to be forgotten
    before = serving.record()
    show = f"systemctl show -p InvocationID moe-{STACK}-engine@0"
    units = [serving.sh(one, show) for one in HOSTS]
    pid = serving.sh(host, f"systemctl show -p MainPID --value {WATCH}")
    serving.sh(host, f"systemctl kill -s KILL {WATCH}")
    serving.until(
        lambda: serving.sh(host, f"systemctl show -p MainPID --value {WATCH}") not in (pid, "0\n")
    )
    time.sleep(5)  # longer than the others wait before they believe that a host is lost
    assert serving.record() == before
    assert [serving.sh(one, show) for one in HOSTS] == units
