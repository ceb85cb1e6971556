"""Follows stagings until every host has ended its work, and says how far they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Literal

from infra.errors import InfraError
from infra.launch.fleet import rows_of
from infra.launch.staging.order import Order, Staging, texts_of
from infra.launch.staging.plan import (
    Checkpoint,
)
from infra.launch.staging.progress import Standing, progress_lines, read_standing
from infra.remote.failures import AgentFailed

# A host that cannot be asked for so long is given up; its staging goes on by itself.
LOST_S = 60.0
TOLD = {"failed": "failed", "lost": "given up"}
NEVER_SAID = "it ended without a word (killed?): `journalctl -u moe-staging-{}` there says more"
FORGOTTEN = (
    "it is not whole, and nothing runs there: somebody else has ended it, or the host was started anew; "
    "the same command goes on from what has arrived"
)
UNCHECKED = "somebody else has ended it, so nobody knows what was found: check it again"
STAGED_MEANWHILE = "it was staged meanwhile: check it again"
STILL_DAMAGED = "{}; the same command fetches what is wrong"
Goal = Literal["complete", "checked"]


def follow(
    staging: Staging,
    orders: Mapping[str, Order],
    refused: Mapping[str, Mapping[str, InfraError]],
    *,
    goal: Goal,
) -> dict[str, dict[str, Standing]]:
    """Watch until every host has ended its work, or is given up; standing by host, by job.

    Args:
        staging: the run.
        orders: what was asked of whom, by job.
        refused: why a host was not set to work, by host, by job.
        goal: the phase in which the work of these orders ends.
    """
    watch = Watch(staging, orders, refused, goal)
    while watch.open_hosts():
        watch.look()
        if watch.open_hosts():
            staging.pace.clock.sleep(watch.pause_s())
    return watch.standings


class Watch:
    """Looks at stagings again and again, and says what changes."""

    def __init__(
        self,
        staging: Staging,
        orders: Mapping[str, Order],
        refused: Mapping[str, Mapping[str, InfraError]],
        goal: Goal,
    ) -> None:
        self._goal = goal
        self._staging = staging
        self._orders = orders
        self._shown = staging.pace.clock.now()
        self._lost: dict[str, float] = {}
        self.standings: dict[str, dict[str, Standing]] = {}
        for job, order in orders.items():
            self.standings[job] = {seat.host: read_standing(seat.host, {}) for seat in order.seats}
            for host, error in refused[job].items():
                # unless the host itself says no, the work may have been begun there
                phase = "failed" if isinstance(error, AgentFailed) else "lost"
                standing = read_standing(host, {"phase": phase, "problem": error.what})
                lost = error if phase == "lost" else None
                self._settle(job, replace(standing, error=lost))

    def open_hosts(self) -> dict[str, list[str]]:
        """Jobs that are not settled, by host."""
        found: dict[str, list[str]] = {}
        for job, standings in self.standings.items():
            for one in standings.values():
                if not one.is_settled:
                    found.setdefault(one.host, []).append(job)
        return found

    def pause_s(self) -> float:
        """How long nothing is worth a look: the nearer somebody's end, the shorter."""
        left = [one.left_s for of in self.standings.values() for one in of.values()]
        limits = self._staging.pace.limits
        return max(min([limits.longest_poll_s, *(one / 4 for one in left)]), limits.first_poll_s)

    def look(self) -> None:
        """Ask every host that is not settled."""
        asked = self.open_hosts()
        requests = {
            host: look_request([self._orders[job].checkpoint for job in jobs], with_files=False)
            for host, jobs in asked.items()
        }
        limit_s = self._staging.pace.limits.ask_s
        for host, answer in self._staging.fleet.ask(requests, timeout_s=limit_s).items():
            if isinstance(answer, InfraError):
                self._lose(host, asked[host], answer)
                continue
            self._lost.pop(host, None)
            for job, row in zip(asked[host], rows_of(answer, "checkpoints"), strict=True):
                self._take(job, host, row)
        now = self._staging.pace.clock.now()
        if now - self._shown >= self._staging.pace.limits.progress_s:
            self._shown = now
            for job, order in self._orders.items():
                for line in progress_lines(order.checkpoint.id, list(self.standings[job].values())):
                    self._staging.pace.say(line)

    def _take(self, job: str, host: str, row: Mapping[str, object]) -> None:
        standing = read_standing(host, self._status(job, host, row))
        before = self.standings[job][host]
        for note in standing.notes[len(before.notes) :]:
            self._staging.pace.say(f"{self._orders[job].checkpoint.id} on {host}: {note}")
        for what in standing.damaged[len(before.damaged) :]:
            self._staging.pace.say(f"{self._orders[job].checkpoint.id} on {host}: damaged: {what}")
        self._settle(job, standing)

    def _status(self, job: str, host: str, row: Mapping[str, object]) -> Mapping[str, object]:
        """What a host says of a job, judged by what this run is about.

        Whoever follows the same job may have ended it, and then nothing is left of it but the files. The job may also
        be of the other kind: a check that a staging met, or a staging that a check met.
        """
        status = row.get("status")
        known: Mapping[str, object] = status if isinstance(status, dict) else {}
        phase = known.get("phase")
        if phase in (self._goal, "failed"):
            return known
        if row.get("is_running") and phase != "complete":
            return {**known, "phase": "verifying"} if phase == "checked" else known
        damaged = known.get("damaged") if phase == "checked" else None
        is_there = row.get("state") in {"complete", "unverified"}
        if self._goal == "complete" and is_there and not damaged:
            return {**self._whole(job, host), **known, "phase": "complete"}
        if damaged:
            problem = STILL_DAMAGED.format("; ".join(texts_of(damaged)))
        elif phase == "complete":  # it may serve others still
            return {**known, "phase": "lost", "problem": STAGED_MEANWHILE}
        elif known:
            problem = NEVER_SAID.format(job)
        else:
            problem = FORGOTTEN if self._goal == "complete" else UNCHECKED
        return {**known, "phase": "failed", "problem": problem}

    def _whole(self, job: str, host: str) -> dict[str, object]:
        """The amounts of a checkpoint of which nothing is missing."""
        order = self._orders[job]
        files = order.files or order.found[host].files
        size = sum(int(str(file["size_bytes"])) for file in files)
        num = len(files)
        return {"num_files": num, "files_done": num, "size_bytes": size, "num_bytes": size}

    def _settle(self, job: str, standing: Standing) -> None:
        self.standings[job][standing.host] = standing
        if standing.phase in TOLD:
            name = self._orders[job].checkpoint.id
            told = f"{name} on {standing.host}: {TOLD[standing.phase]}: {standing.problem}"
            self._staging.pace.say(told)

    def _lose(self, host: str, jobs: Sequence[str], error: InfraError) -> None:
        """A host that cannot be asked: its work goes on; after a while nobody waits for it."""
        now = self._staging.pace.clock.now()
        if host not in self._lost:
            self._lost[host] = now
            self._staging.pace.say(f"{host}: cannot be asked, its work goes on: {error.what}")
        if now - self._lost[host] >= LOST_S:
            for job in jobs:
                text = f"cannot be asked for {LOST_S:g} s, its work goes on: {error.what}"
                standing = read_standing(host, {"phase": "lost", "problem": text})
                self._settle(job, replace(standing, error=error))


def look_request(checkpoints: Sequence[Checkpoint], *, with_files: bool) -> dict[str, object]:
    """The request that asks a host how far it is."""
    return {
        "operation": "staging",
        "action": "look",
        "checkpoints": [{"job": one.job, "target": one.target} for one in checkpoints],
        "with_files": with_files,
        "ports": [],
    }
