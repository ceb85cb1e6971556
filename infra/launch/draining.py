"""Has the router send nothing to a group before it is restarted, and take it back when it is proven again.

What the router was told is remembered on its host before it is told: a command that is killed in between leaves a group
that `fab status` names and that the next `fab up` or `fab restart` has taken back. A router that begins anew has all
its members, whatever is remembered.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from infra.engines.router_members import (
    Listing,
    Member,
    Step,
    drains_when_idle,
    joining_steps,
    leaving_steps,
    listing_step,
    read_listing,
    why_fixed,
)
from infra.engines.serving import METRICS, open_pattern, open_requests
from infra.errors import NotReady
from infra.launch.deployment import Deployment
from infra.launch.fleet import ask_all
from infra.launch.proof.probing import probe_hosts
from infra.launch.supervision import groups_request
from infra.plan.process import Process
from infra.render.host_paths import unit_name
from infra.render.supervision import groups_of

# Requests of minutes are not waited for without end: what still runs then is lost, and said.
DRAIN_S = 120.0
# From the last request of a prefill rank until a decode rank has fetched what it computed.
SETTLE_S = 1.0
LOOK_S = 0.5
JOIN_S = 60.0
ANSWER_S = 60.0


@dataclass(frozen=True, slots=True)
class Draining:
    """The router of a deployment, and what it may be told."""

    deployment: Deployment
    router: Process

    @property
    def base(self) -> str:
        """`http://address:port`."""
        return str(self.router.endpoint)

    def leave(self, groups: Sequence[str], left_out: Sequence[str]) -> tuple[str, ...]:
        """Have the router send nothing to groups, and wait until nothing runs there; those that it leaves out then.

        Interrupted, it has the router take them back, where that can be done at once.

        Args:
            groups: that are about to be stopped; of a role, at least one other must serve.
            left_out: what it leaves out already.

        Raises:
            NotReady: the router does not do what it is told; nothing was stopped.
        """
        chosen = self._spared(groups, left_out)
        if not chosen:
            return ()
        reason = why_fixed(self.router.argv)
        if reason:
            self.deployment.say(
                f"{reason}: requests are lost until it has noticed that {', '.join(chosen)} does not answer"
            )
            return ()
        try:
            self._remember([*left_out, *chosen])
            for group in chosen:
                members = self._members(group)
                listing = self._listing(members[0].role)
                self._tell(leaving_steps(self.router.argv, self.base, members, listing))
            self._wait_until_idle(chosen)
        except KeyboardInterrupt:
            # nothing was stopped; a router that waits for an idle moment would keep the operator waiting, too
            if not drains_when_idle(self.router.argv):
                self.join(chosen, [*left_out, *chosen])
            raise
        return tuple(chosen)

    def join(self, groups: Sequence[str], left_out: Sequence[str]) -> None:
        """Have the router take groups back that serve again.

        Args:
            groups: which ones.
            left_out: all that it leaves out.

        Raises:
            NotReady: it does not take one back.
        """
        clock = self.deployment.clock
        begun, waiting = clock.now(), list(groups)
        # What a router that drains when idle lists may be marked to leave: only what has been away is back.
        returned = set() if drains_when_idle(self.router.argv) else set(groups)
        while waiting:
            for group in tuple(waiting):
                members = self._members(group)
                listing = self._listing(members[0].role)
                is_whole = all(member.place in listing.names for member in members)
                if not is_whole:
                    returned.add(group)
                    self._tell(joining_steps(self.router.argv, self.base, members, listing))
                elif group in returned:
                    waiting.remove(group)
                else:
                    self._tell(leaving_steps(self.router.argv, self.base, members, listing))
            if waiting and clock.now() - begun > JOIN_S:
                raise self._not_taken_back(waiting)
            if waiting:
                clock.sleep(LOOK_S)
        if groups:
            self._remember([name for name in left_out if name not in groups])
            self.deployment.say(f"the router sends requests to {', '.join(groups)} again")

    def _spared(self, groups: Sequence[str], left_out: Sequence[str]) -> list[str]:
        """Those of some groups beside which another one of their role serves."""
        known = groups_of(self.deployment.plan)
        away = {*groups, *left_out}
        serving = {processes[0].role for name, processes in known.items() if name not in away}
        return [g for g in groups if known[g][0].role in serving and g not in left_out]

    def _members(self, group: str) -> tuple[Member, ...]:
        """The endpoints of a group, each once."""
        ranks = [r for r in self.deployment.endpoints.ranks if r.group == group]
        found = {
            rank.url: Member(role=rank.role, url=rank.url, bootstrap_port=_port(rank.bootstrap))
            for rank in ranks
        }
        return tuple(found.values())

    def _listing(self, role: str) -> Listing:
        answer = self._tell([listing_step(self.router.argv, self.base, role)])
        return read_listing(self.router.argv, answer, role)

    def _tell(self, steps: Sequence[Step]) -> object:
        """Send the router requests, from its own host; the body of the last answer.

        Raises:
            NotReady: it refuses one.
        """
        if not steps:
            return None
        probe: dict[str, object] = {"id": self.router.id, "steps": list(steps)}
        found = probe_hosts(self.deployment, {self.router.host: [probe]}, ANSWER_S)
        answers = found.get(self.router.id, [])
        last: Mapping[str, object] = answers[-1] if answers else {}
        status = last.get("status")
        if not isinstance(status, int) or status >= 400 or last.get("error"):  # noqa: PLR2004
            reason = str(last.get("error") or f"HTTP {status}: {last.get('body')}")
            stack = self.deployment.plan.stack
            raise NotReady(
                self.router.id,
                f"It does not answer {steps[-1]['url']}: {reason}.",
                f"`fab status --stack {stack}` shows what it leaves out; `fab up --stack {stack}` has it taken back.",
            )
        return last.get("body")

    def _wait_until_idle(self, groups: Sequence[str]) -> None:
        """Until no engine of some groups has a request, for two looks in a row."""
        clock, say = self.deployment.clock, self.deployment.say
        begun, calm = clock.now(), 0
        while calm < 2:  # noqa: PLR2004
            num = self._num_open(groups)
            calm = 0 if num else calm + 1
            if num and clock.now() - begun > DRAIN_S:
                say(
                    f"{num:g} requests still run on {', '.join(groups)} after {DRAIN_S:g} s: they are lost"
                )
                return
            clock.sleep(LOOK_S)
        clock.sleep(SETTLE_S)
        say(f"the router sends nothing to {', '.join(groups)}, and no request runs there")

    def _num_open(self, groups: Sequence[str]) -> float:
        engine = self.deployment.endpoints.engine
        urls = {r.url: r.host for r in self.deployment.endpoints.ranks if r.group in groups}
        probes: dict[str, list[dict[str, object]]] = {}
        for url, host in urls.items():
            step = {"method": "GET", "url": url + METRICS, "keep": open_pattern(engine)}
            probes.setdefault(host, []).append({"id": url, "steps": [step]})
        found = probe_hosts(self.deployment, probes, ANSWER_S)
        texts = [str(answers[-1].get("body") or "") for answers in found.values() if answers]
        return sum(open_requests(engine, text) for text in texts)

    def _remember(self, groups: Sequence[str]) -> None:
        """On the router's host: what it leaves out."""
        stack = self.deployment.plan.stack
        request = {
            **groups_request("leave-out", stack, groups),
            "router": unit_name(stack, self.router),
        }
        limit = self.deployment.limits.ask_s
        ask_all(self.deployment.fleet, {self.router.host: request}, timeout_s=limit)

    def _not_taken_back(self, groups: Sequence[str]) -> NotReady:
        stack = self.deployment.plan.stack
        why, fix = "", ""
        if drains_when_idle(self.router.argv):
            why = ": vllm-ascend's proxy takes an endpoint back when no request at all has run for a moment"
            fix = " Or restart the router, which ends what runs through it."
        return NotReady(
            ", ".join(groups),
            f"It serves, but the router has not taken it back within {JOIN_S:g} s{why}.",
            f"`fab up --stack {stack}` tries again; the others serve meanwhile.{fix}",
        )


def draining(deployment: Deployment) -> Draining | None:
    """How the deployment's router is told; None without one."""
    router = deployment.endpoints.router
    return None if router is None else Draining(deployment, router)


def _port(url: str | None) -> int | None:
    return None if url is None else int(url.rpartition(":")[2])
