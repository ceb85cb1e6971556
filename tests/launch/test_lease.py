from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from infra.agent.lease import LeaseRefused, keep_lease, release_lease, renew_lease
from infra.errors import HostsFailed, PrerequisiteError
from infra.launch.fleet import Answers, Request
from infra.launch.lease import (
    Claim,
    LeasedFleet,
    Owner,
    is_dead,
    lease_document,
    leased,
    this_owner,
)
from infra.remote.failures import AgentFailed, LeaseHeld, LostConnection, Unreachable
from tests.launch.agent_fleet import AgentFleet, WaitingClock

HOSTS = ("decode-0", "decode-1", "prefill-0")
ANN = Owner(operator="ann@desk", machine="desk 1", process=1, started="1")
BOB = Owner(operator="bob@rack", machine="rack 1", process=1, started="1")
LOOK = {"operation": "read", "paths": ["/etc/x"]}


def claim_of(owner: Owner, *, forces: bool = False, command: str = "fab up") -> Claim:
    return Claim(stack="s", hosts=HOSTS, command=command, owner=owner, forces=forces)


def holder_of(fleet: AgentFleet, owner: Owner, *, forces: bool = False) -> LeasedFleet:
    return LeasedFleet(fleet, claim_of(owner, forces=forces), WaitingClock())


def look(fleet: LeasedFleet, hosts: tuple[str, ...] = HOSTS) -> None:
    fleet.ask(dict.fromkeys(hosts, LOOK), timeout_s=5.0)


def holders(fleet: AgentFleet) -> list[str]:
    found = []
    for name in HOSTS:
        path = Path(fleet.host(name).path("/run/moe-infra/leases/s.json"))
        found.append(json.loads(path.read_text())["operator"] if path.exists() else "")
    return found


def age(fleet: AgentFleet, name: str, seconds: float) -> None:
    """Let a host's lease be that much older."""
    path = Path(fleet.host(name).path("/run/moe-infra/leases/s.json"))
    document = json.loads(path.read_text())
    path.write_text(json.dumps({**document, "renewed": document["renewed"] - seconds}))


def test_the_first_look_takes_the_lease_on_every_host_and_the_end_gives_it_back(
    tmp_path: Path,
) -> None:
    fleet = AgentFleet(tmp_path)
    with leased(fleet, claim_of(ANN), WaitingClock()) as held:
        look(held, HOSTS[:1])
        assert holders(fleet) == ["ann@desk"] * 3
    assert holders(fleet) == [""] * 3


def test_a_second_operator_is_told_who_and_since_when_and_holds_nothing(tmp_path: Path) -> None:
    fleet = AgentFleet(tmp_path)
    look(holder_of(fleet, ANN))
    with pytest.raises(
        PrerequisiteError, match=r"ann@desk holds stack s with `fab up` since 20"
    ) as caught:
        look(holder_of(fleet, BOB))
    assert caught.value.exit_code == 3
    assert "--force lease" in caught.value.fix
    assert holders(fleet) == ["ann@desk"] * 3


def test_two_holders_are_both_named(tmp_path: Path) -> None:
    fleet = AgentFleet(tmp_path)
    for owner, host in ((ANN, "decode-0"), (BOB, "decode-1")):
        claim = Claim(stack="s", hosts=(host,), command="fab down", owner=owner, forces=False)
        LeasedFleet(fleet, claim, WaitingClock()).ask({host: LOOK}, timeout_s=5.0)
    third = replace(ANN, operator="eve@home", machine="home 1")
    with pytest.raises(PrerequisiteError) as caught:
        look(holder_of(fleet, third))
    assert "decode-0: ann@desk holds" in caught.value.what
    assert "decode-1: bob@rack holds" in caught.value.what


def test_what_was_refused_was_not_done(tmp_path: Path) -> None:
    fleet = AgentFleet(tmp_path)
    look(holder_of(fleet, ANN))
    item = {
        "id": "file:/etc/x",
        "group": "files",
        "kind": "file",
        "target": "/etc/x",
        "content": "x",
    }
    request = {"operation": "state", "mode": "apply", "stack": "s", "items": [item]}
    with pytest.raises(PrerequisiteError):
        holder_of(fleet, BOB).ask(dict.fromkeys(HOSTS, request), timeout_s=5.0)
    assert not any(fleet.host(name).exists("/etc/x") for name in HOSTS)


def test_a_refusal_by_one_host_gives_the_others_back(tmp_path: Path) -> None:
    fleet = AgentFleet(tmp_path)
    ann = LeasedFleet(fleet, replace(claim_of(ANN), hosts=HOSTS[:1]), WaitingClock())
    look(ann, HOSTS[:1])
    with pytest.raises(PrerequisiteError) as caught:
        look(holder_of(fleet, BOB))
    assert caught.value.where == "decode-0"
    assert holders(fleet) == ["ann@desk", "", ""]


def test_a_lease_on_a_host_beside_the_claimed_ones_fails_that_host_alone(tmp_path: Path) -> None:
    fleet = AgentFleet(tmp_path)
    other = Claim(stack="s", hosts=("spare-0",), command="fab down", owner=ANN, forces=False)
    LeasedFleet(fleet, other, WaitingClock()).ask({"spare-0": LOOK}, timeout_s=5.0)
    own = holder_of(fleet, BOB)
    look(own)  # from now on it may have changed something
    answers = own.ask({"spare-0": LOOK, "decode-0": LOOK}, timeout_s=5.0)
    assert isinstance(answers["spare-0"], LeaseHeld)
    assert "ann@desk" in answers["spare-0"].what
    assert isinstance(answers["decode-0"], dict)
    assert holders(fleet) == ["bob@rack"] * 3  # it goes on


def test_of_two_that_meet_the_one_with_the_first_host_waits_for_the_other_to_give_up(
    tmp_path: Path,
) -> None:
    fleet = AgentFleet(tmp_path)
    ann = LeasedFleet(fleet, replace(claim_of(ANN), hosts=HOSTS[2:]), WaitingClock())
    look(ann, HOSTS[2:])
    bob = LeasedFleet(fleet, claim_of(BOB), WaitingClock(ann.release))
    look(bob)
    assert holders(fleet) == ["bob@rack"] * 3


def test_another_stack_s_lease_is_another_lease(tmp_path: Path) -> None:
    fleet = AgentFleet(tmp_path)
    look(holder_of(fleet, ANN))
    other = LeasedFleet(fleet, replace(claim_of(BOB), stack="t"), WaitingClock())
    look(other)


def test_a_lease_that_nobody_renews_ends(tmp_path: Path) -> None:
    fleet = AgentFleet(tmp_path)
    look(holder_of(fleet, ANN))
    for name in HOSTS:
        age(fleet, name, 19.0)
    with pytest.raises(PrerequisiteError):
        look(holder_of(fleet, BOB))
    for name in HOSTS:
        age(fleet, name, 1.5)
    look(holder_of(fleet, BOB))
    assert holders(fleet) == ["bob@rack"] * 3


def test_a_lease_from_before_a_reboot_ends(tmp_path: Path) -> None:
    fleet = AgentFleet(tmp_path)
    look(holder_of(fleet, ANN))
    for name in HOSTS:
        age(fleet, name, -1e9)
    look(holder_of(fleet, BOB))


def test_whoever_lost_the_lease_is_stopped_and_not_told_that_nothing_was_changed(
    tmp_path: Path,
) -> None:
    fleet = AgentFleet(tmp_path)
    ann = holder_of(fleet, ANN)
    look(ann)
    look(holder_of(fleet, BOB, forces=True))
    with pytest.raises(HostsFailed, match="lease was lost: bob@rack") as caught:
        look(ann)
    assert caught.value.exit_code == 4


def test_a_lease_that_another_took_and_gave_back_is_lost_too(tmp_path: Path) -> None:
    fleet = AgentFleet(tmp_path)
    ann = holder_of(fleet, ANN)
    look(ann)
    bob = holder_of(fleet, BOB, forces=True)
    look(bob)
    bob.release()
    with pytest.raises(HostsFailed, match="has gone"):
        look(ann)


def test_its_owner_s_death_on_this_machine_is_seen_at_once(tmp_path: Path) -> None:
    fleet = AgentFleet(tmp_path)
    script = (
        "import sys; from pathlib import Path; from tests.launch.test_lease import *;"
        "look(holder_of(AgentFleet(Path(sys.argv[1])), this_owner()))"
    )
    subprocess.run([sys.executable, "-c", script, str(tmp_path)], check=True)
    assert all(holders(fleet))
    with pytest.raises(PrerequisiteError):
        look(holder_of(fleet, BOB))
    look(holder_of(fleet, this_owner()))


def test_a_living_process_of_this_machine_keeps_its_lease() -> None:
    owner = this_owner()
    alive = {"machine": owner.machine, "process": owner.process, "started": owner.started}
    assert not is_dead(alive, owner)
    assert is_dead({**alive, "started": "1"}, owner)
    assert not is_dead({**alive, "started": "1", "machine": "another"}, owner)


def test_a_host_out_of_reach_is_not_told_to_give_anything_back(tmp_path: Path) -> None:
    fleet = AgentFleet(tmp_path)
    fleet.fails["decode-1"] = Unreachable("decode-1", "no answer.", "Look.")
    fleet.fails["prefill-0"] = LostConnection("prefill-0", "lost.", "Again.")
    held = holder_of(fleet, ANN)
    answers = held.ask(dict.fromkeys(HOSTS, LOOK), timeout_s=5.0)
    assert isinstance(answers["decode-1"], Unreachable)
    fleet.asked.clear()
    held.release()
    assert [name for name, _ in fleet.asked] == ["decode-0", "prefill-0"]


def test_a_half_written_lease_is_nobody_s(tmp_path: Path) -> None:
    fleet = AgentFleet(tmp_path)
    look(holder_of(fleet, ANN))
    for name in HOSTS:
        Path(fleet.host(name).path("/run/moe-infra/leases/s.json")).write_text('{"token": ')
    look(holder_of(fleet, BOB))


def leases(fleet: AgentFleet) -> list[str]:
    """Everything that lies where hosts keep leases."""
    folders = [Path(fleet.host(name).path("/run/moe-infra/leases")) for name in HOSTS]
    return [str(path) for folder in folders if folder.exists() for path in folder.rglob("*")]


def test_a_renewal_that_comes_after_the_lease_was_given_back_takes_none(tmp_path: Path) -> None:
    """It is given back in the moment between who is to be asked and what."""
    fleet = AgentFleet(tmp_path)
    ann = holder_of(fleet, ANN)
    look(ann)

    class GivesBack(WaitingClock):
        """A clock that is asked in that moment."""

        def now(self) -> float:
            ann.release()
            return super().now()

    for name in HOSTS:
        look(ann)
        ann.clock = GivesBack()
        ann.renew(name)
        ann.clock = WaitingClock()
        asked, request = fleet.asked[-1]
        assert (asked, request["operation"]) == (name, "lease")
        assert "held_s" in str(request["lease"])  # the renewal, and not the end
        assert leases(fleet) == []
    look(holder_of(fleet, BOB))


def test_a_host_that_nobody_asks_is_renewed(tmp_path: Path) -> None:
    fleet = AgentFleet(tmp_path)
    ann = holder_of(fleet, ANN)
    look(ann)
    for name in HOSTS:
        age(fleet, name, 19.0)
    ann.contacts["decode-0"] -= 6.0
    assert ann.due_hosts() == ["decode-0"]
    ann.renew("decode-0")
    for name in HOSTS:
        age(fleet, name, 1.5)
    taken = LeasedFleet(fleet, replace(claim_of(BOB), hosts=HOSTS[1:]), WaitingClock())
    look(taken, HOSTS[1:])
    assert holders(fleet) == ["ann@desk", "bob@rack", "bob@rack"]


class PartlyHung:
    """Hosts of which one does not answer as long as somebody wants; `asked` counts how often each was asked."""

    def __init__(self, fleet: AgentFleet, hung: str) -> None:
        self.fleet, self.hung, self.answers = fleet, hung, threading.Event()
        self.asked: Counter[str] = Counter()
        self.is_asked = threading.Condition()
        self.answers.set()

    def ask(self, requests: Mapping[str, Request], *, timeout_s: float) -> Answers:
        with self.is_asked:
            self.asked.update(list(requests))
            self.is_asked.notify_all()
        answers = self.fleet.ask(requests, timeout_s=timeout_s)
        if self.hung in requests:
            assert self.answers.wait(10)
        return answers

    def wait_for(self, host: str, times: int) -> None:
        """Until a host has been asked so often."""
        with self.is_asked:
            assert self.is_asked.wait_for(lambda: self.asked[host] >= times, 5), self.asked


class HandClock(WaitingClock):
    """A clock that somebody moves."""

    time_s = 0.0

    def now(self) -> float:
        return self.time_s


def test_no_renewal_waits_for_a_host_that_hangs(tmp_path: Path) -> None:
    fleet, clock = PartlyHung(AgentFleet(tmp_path), HOSTS[0]), HandClock()
    held = LeasedFleet(fleet, claim_of(ANN), clock)
    with held.renewing(look_s=0.01):
        look(held)
        fleet.asked.clear()
        fleet.answers.clear()
        try:
            for times in (1, 2):
                clock.time_s += 6.0
                for host in HOSTS[1:]:
                    fleet.wait_for(host, times)
            assert fleet.asked == {HOSTS[0]: 1, HOSTS[1]: 2, HOSTS[2]: 2}
        finally:
            fleet.answers.set()


def test_who_has_answered_is_renewed_while_another_is_at_work(tmp_path: Path) -> None:
    fleet, clock = PartlyHung(AgentFleet(tmp_path), HOSTS[0]), HandClock()
    held = LeasedFleet(fleet, claim_of(ANN), clock)
    with ThreadPoolExecutor(1) as pool, held.renewing(look_s=0.01):
        look(held)
        fleet.answers.clear()
        waits = pool.submit(look, held)
        try:
            fleet.wait_for(HOSTS[2], 2)
            clock.time_s += 6.0
            fleet.wait_for(HOSTS[2], 3)
            assert not waits.done()
        finally:
            fleet.answers.set()


def test_a_last_request_that_fails_gives_the_lease_back_all_the_same(tmp_path: Path) -> None:
    fleet = AgentFleet(tmp_path)
    ann = holder_of(fleet, ANN)
    look(ann)
    released = {**lease_document("s", ann.token, ANN, "fab up"), "release": True}
    request = {"operation": "staging", "action": "none such", "lease": released}
    answers = fleet.ask(dict.fromkeys(HOSTS, request), timeout_s=5.0)
    assert all(isinstance(answer, AgentFailed) for answer in answers.values())
    assert holders(fleet) == [""] * 3


def test_who_asks_without_a_lease_that_is_there_leaves_no_file(tmp_path: Path) -> None:
    fleet = AgentFleet(tmp_path)
    host = fleet.host("decode-0")
    document = {
        **lease_document("s", "token", ANN, "fab up"), "held_s": 1.0, "takes": None,
    }  # fmt: skip
    with pytest.raises(LeaseRefused, match="has gone"):
        keep_lease(host, document)
    renew_lease(host, document)
    release_lease(host, document)
    assert leases(fleet) == []
