"""Hosts that answer as their agents would, by script: units, files, ports, HTTP, lost connections."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from infra.catalog.load import Catalog
from infra.errors import InfraError
from infra.launch.deployment import Deployment, Limits
from infra.launch.fleet import Answers, Report, Request
from infra.launch.proof.known_answer import ANSWER, PROMPT
from infra.plan.compile import compile_file
from infra.plan.endpoints import read_endpoints
from infra.plan.process import Plan, Process
from infra.remote.failures import LostConnection
from infra.render.host_paths import release_path, unit_name
from infra.render.host_state import host_state
from infra.render.wanted_tuning import Tuning
from tests.launch.scripted_facts import facts_report

Respond = Callable[[str, Mapping[str, object]], Mapping[str, object]]


@dataclass(slots=True)
class FakeClock:
    """Time that passes only when somebody sleeps."""

    at: float = 1000.0

    def now(self) -> float:
        return self.at

    def sleep(self, seconds: float) -> None:
        self.at += seconds


@dataclass(slots=True)
class FakeUnit:
    """One unit of a scripted host."""

    process: Process
    load_state: str = "loaded"
    active_state: str = "inactive"
    result: str = "success"
    exit_status: int = 0
    since: str | None = None
    log: list[str] = field(default_factory=list)
    started_at: float | None = None
    # What systemd is still to do with it, 0 for nothing.
    job: int = 0
    # What systemctl says of a start that it does not take, "" where it does.
    not_taken: str = ""
    # What it is when it was stopped.
    stops_as: str = "inactive"

    @property
    def is_engine(self) -> bool:
        return self.process.kind == "engine"

    def row(self, name: str, log_lines: int) -> dict[str, object]:
        return {
            "unit": name,
            "load_state": self.load_state,
            "active_state": self.active_state,
            "sub_state": "running" if self.active_state == "active" else "dead",
            "result": self.result,
            "exec_main_status": self.exit_status,
            "main_pid": 0,
            "n_restarts": 0,
            "job": self.job,
            "since": self.since,
            "log_tail": self.log[-log_lines:] if log_lines else [],
        }


class ScriptedFleet:
    """The hosts of one plan.

    Tests change `units`, `listeners`, `wrong_items`, `live`, `lose`, `fails`, `last`, `refuses` and `on_start`, and
    read `asked`.
    """

    def __init__(self, plan: Plan, clock: FakeClock, *, load_s: float = 2.0) -> None:
        self.plan = plan
        self.clock = clock
        self.load_s = load_s
        self.units = {
            (p.host, unit_name(plan.stack, p)): FakeUnit(process=p) for p in plan.processes
        }
        self.listeners: dict[str, list[dict[str, object]]] = {}
        self.wrong_items: dict[tuple[str, str], tuple[str, str]] = {}
        self.files: dict[str, dict[str, str]] = {host.name: {} for host in plan.hosts}
        self.foreign_units: dict[tuple[str, str], Mapping[str, object]] = {}
        self.other_records: dict[str, dict[str, str]] = {}
        self.unfinished: dict[str, str] = {}
        self.kept: dict[str, dict[str, Mapping[str, object]]] = {}
        self.facts: dict[str, dict[str, object]] = {}
        self.lose: list[tuple[str, str]] = []
        self.fails: dict[str, InfraError] = {}
        # What a host answers last: what it is asked behind that fails.
        self.last: dict[tuple[str, str], InfraError] = {}
        self.refuses: dict[tuple[str, str], Mapping[str, str]] = {}
        self.on_start: dict[str, Callable[[FakeUnit], None]] = {}
        self.silent: set[str] = set()
        self.answer_with: dict[str, Mapping[str, object]] = {}
        self.tokens: dict[tuple[str, str], int] = {}
        self.ranks: dict[tuple[str, str], str] = {}
        self.counts_tokens = True
        self.image_ids = ["sha256:1"]
        # Bytes that engines have compiled, by host.
        self.compiled: dict[str, int] = {}
        self.live: dict[str, Mapping[str, object]] = {}
        self.watched: set[str] = set()
        # By host the key of its watcher; what a real host tells is only a mark of it.
        self.keys: dict[str, str] = {}
        # By host what its watcher remembers: when each engine was started, None where it is told to adopt them.
        self.memories: dict[str, dict[str, float | None] | None] = {}
        # Hosts whose watcher was stopped, and not disabled: it acts as soon as it is started.
        self.stopped: set[str] = set()
        # What systemctl says of a watcher that it does not start, by host.
        self.no_watchers: dict[str, str] = {}
        self.group_rows: dict[str, Mapping[str, object]] = {}
        self.left_out: list[str] = []
        self.members: Callable[[Mapping[str, object]], Mapping[str, object]] | None = None
        self.open_requests: dict[str, list[int]] = {}
        self.asked: list[tuple[str, str, Mapping[str, object]]] = []

    def ask(self, requests: Mapping[str, Request], *, timeout_s: float) -> Answers:
        assert timeout_s > 0
        answers: Answers = {}
        for host, request in requests.items():
            operation = str(request["operation"])
            json.dumps(request)
            if host in self.fails:
                self.asked.append((host, operation, request))
                answers[host] = self.fails[host]
                continue
            answer = self._answer(host, request)
            if (host, operation) in self.last:
                self.fails[host] = self.last[host, operation]
            if (host, operation) in self.lose:
                self.lose.remove((host, operation))
                answers[host] = LostConnection(host, "the connection was lost.", "Run it again.")
            else:
                answers[host] = answer
        return answers

    def _answer(self, host: str, request: Mapping[str, object]) -> Report:
        """The report of a request, with those of the requests that it carries along."""
        operation = str(request["operation"])
        self.asked.append((host, operation, request))
        if (host, operation) in self.refuses:
            return {"error": self.refuses[host, operation]}
        report = self._operations()[operation](host, request)
        also = request.get("also", [])
        assert isinstance(also, list)
        return {**report, "also": [self._answer(host, one) for one in also]} if also else report

    def unit(self, process_id: str) -> FakeUnit:
        """The unit of a process."""
        return next(unit for unit in self.units.values() if unit.process.id == process_id)

    def end(self, process_id: str, log: list[str], since: str = "2026-11-20T14:00:00.000Z") -> None:
        """Let a unit fail when it is started."""

        def fail(unit: FakeUnit) -> None:
            unit.active_state, unit.result, unit.exit_status = "failed", "exit-code", 1
            unit.log, unit.since = log, since

        self.on_start[process_id] = fail

    def _operations(self) -> dict[str, Callable[[str, Mapping[str, object]], Report]]:
        return {
            "state": self._state,
            "units": self._units,
            "probe": self._probe,
            "listening": self._listening,
            "read": self._read,
            "status": self._status,
            "live": self._live,
            "releases": self._releases,
            "facts": self._facts,
            "groups": self._groups,
            "caches": self._caches,
        }

    def _state(self, host: str, request: Mapping[str, object]) -> Report:
        mode, rows = request["mode"], []
        if mode == "rollback":
            removed = list(self.files[host])
            self.files[host].clear()
            rows = [
                _row({"id": f"file:{path}", "group": "files"}, "changed", "") for path in removed
            ]
            forgotten = list(self.kept.pop(host, {})) if request.get("forgets_releases") else []
            also = {"forgotten_releases": forgotten} if forgotten else {}
            return {**also, "items": rows, "daemon_reloaded": True}
        items = request["items"]
        assert isinstance(items, list)
        for item in items:
            state, why = self.wrong_items.get((host, str(item["id"])), ("ok", "already so"))
            if item["kind"] == "file":
                content = str(item.get("content") or item.get("secret"))
                is_there = self.files[host].get(item["target"]) == content
                state = state if state != "ok" else ("ok" if is_there else "changed")
                if mode == "apply" and state != "failed":
                    self.files[host][item["target"]] = content
            rows.append(_row(item, state, why))
        if mode == "apply" and isinstance(request.get("keep"), Mapping):
            keep = request["keep"]
            assert isinstance(keep, Mapping)
            self.kept.setdefault(host, {})[str(keep["hash"])] = keep["document"]
        told = self._told(host) if request.get("tells_releases") else {}
        return {**told, "items": rows, "daemon_reloaded": mode == "apply"}

    def _told(self, host: str) -> Report:
        own = self.files.get(host, {}).get(release_path(self.plan.stack))
        records = {self.plan.stack: own} if own is not None else {}
        return {
            "records": {**records, **self.other_records.get(host, {})},
            "kept": list(self.kept.get(host, {}))[::-1],
            "unfinished": self.unfinished.get(host),
        }

    def _releases(self, host: str, request: Mapping[str, object]) -> Report:
        name = request.get("document")
        document = None if name is None else self.kept.get(host, {}).get(str(name))
        return {**self._told(host), "document": document}

    def _units(self, host: str, request: Mapping[str, object]) -> Report:
        names, action = request["units"], request["action"]
        assert isinstance(names, list)
        rows, said = [], []
        for name in names:
            unit = self.units.get((host, name))
            if unit is None:
                rows.append({**_foreign_unit(name), **self.foreign_units.get((host, name), {})})
                continue
            if action == "renew":
                unit.active_state, unit.started_at = "active", unit.started_at or self.clock.at
            elif action == "start" and unit.not_taken:
                said.append(unit.not_taken)
            elif action == "start" and unit.active_state != "active":
                unit.active_state, unit.started_at = "active", self.clock.at
                started = self.on_start.get(unit.process.id)
                if started is not None:
                    started(unit)
            elif action == "stop":
                unit.active_state = unit.stops_as
            rows.append(unit.row(name, int(str(request.get("log_lines") or 0))))
        if request.get("beside") and host in self.no_watchers:
            said.append(self.no_watchers[host])
        elif request.get("beside") and host in self.stopped:
            self._watch(host)
        return {"units": rows, "message": "\n".join(said) or None, **self._look(host, request)}

    def _groups(self, host: str, request: Mapping[str, object]) -> Report:
        action = request["action"]
        if action == "arm":
            self._take_key(host, str(request["key"]))
            self._watch(host)
        elif action == "hold":
            self.watched.discard(host)
        elif action in ("disarm", "forget"):
            self.watched.discard(host)
            self.stopped.discard(host)
            if action == "forget":
                self.memories.pop(host, None)
            elif host in self.memories:
                self.memories[host] = None
        elif action == "restart":
            meant = request.get("epochs", {})
            assert isinstance(meant, Mapping)
            for group in request["groups"]:  # type: ignore[attr-defined]
                epoch = int(str(self.group_rows.get(group, {}).get("epoch", 1)))
                if meant.get(group, epoch) != epoch:
                    continue
                self.group_rows[group] = {**self.group_rows.get(group, {}), "epoch": epoch + 1}
        elif action == "leave-out":
            self.left_out = list(request["groups"])  # type: ignore[call-overload]
        return self._look(host, request)

    def _take_key(self, host: str, key: str) -> None:
        """A watcher that was handed its groups speaks on with the key that it has."""
        if host not in self.watched | self.stopped or not self.keys.get(host):
            self.keys[host] = key

    def _watch(self, host: str) -> None:
        """The watcher acts: it takes over what it is told to, and ends what it does not remember to have started."""
        self.stopped.discard(host)
        self.watched.add(host)
        engines = [u for (name, _), u in self.units.items() if name == host and u.is_engine]
        runs = {unit.process.id: unit.started_at for unit in engines}
        if self.memories.setdefault(host, None) is None:
            self.memories[host] = runs
        elif self.memories[host] != runs:
            for unit in engines:
                unit.active_state = "inactive"

    def _look(self, host: str, request: Mapping[str, object]) -> Report:
        """The groups that this host leads: all its hosts met, unless a test has said what is the matter."""
        if "stack" not in request:
            return {}
        led: dict[str, str] = {}
        for process in self.plan.processes:
            if process.kind == "engine":
                led.setdefault(process.group, process.host)
        rows = [
            {
                "group": group,
                "leads": True,
                "epoch": 1,
                "phase": "adopt" if self.memories[host] is None else "run",
                "adopting": self.memories[host] is None,
                "restarts": 0,
                "why": "",
                **self.group_rows.get(group, {}),
            }
            for group, leader in led.items()
            if leader == host and host in self.memories
        ]
        here = {p.group for p in self.plan.on_host(host) if p.kind == "engine"}
        rows += [
            {"group": group, "leads": False, "adopting": self.memories[host] is None}
            for group in sorted(here)
            if led[group] != host and host in self.memories
        ]
        told = self.left_out if any(p.kind == "router" for p in self.plan.on_host(host)) else []
        return {
            "watch": {
                "active": host in self.watched,
                "enabled": host in self.watched or host in self.stopped,
                "key": self.keys.get(host, ""),
            },
            "groups": rows,
            "left_out": told,
        }

    def _status(self, host: str, request: Mapping[str, object]) -> Report:
        text = self.files[host].get(str(request["record"]))
        try:
            rows = json.loads(text)["processes"] if text is not None else []
        except ValueError as error:
            raise AssertionError("the agent refuses a damaged record") from error
        names = [row["unit"] for row in rows]
        report = dict(self._units(host, {**request, "action": "status", "units": names}))
        paths = request["paths"]
        assert isinstance(paths, Mapping)
        report["record"] = text
        report["answers"] = {
            row["id"]: self._respond({"url": row["endpoint"] + paths[row["kind"]]}, [])["status"]
            for row in rows
            if row["endpoint"] is not None
            and self.units[host, row["unit"]].active_state == "active"
        }
        return report

    def _live(self, host: str, request: Mapping[str, object]) -> Report:
        asked = request["processes"]
        assert isinstance(asked, list)
        rows = []
        for row in asked:
            unit = self.units[host, row["unit"]]
            process = unit.process
            limits = {
                "Max locked memory": -1,
                "Max open files": 1048576,
                "Max stack size": 67108864,
            }
            found: dict[str, object] = {
                "id": process.id,
                "pid": 1 if unit.active_state == "active" else None,
                "env": {**process.env, **process.env_prepend},
                "limits": {name: [limit, limit] for name, limit in limits.items()},
                "libraries": dict.fromkeys(row["libraries"], True),
                "image": "sha256:1",
                "lines": [],
                "changes": [],
                "stopped": [],
            }
            rows.append({**found, **self.live.get(process.id, {})})
        return {"processes": rows, "ceiling": None, "image_ids": self.image_ids}

    def _listening(self, host: str, request: Mapping[str, object]) -> Report:
        ports = request["ports"]
        assert isinstance(ports, list)
        return {"listening": [r for r in self.listeners.get(host, []) if r["port"] in ports]}

    def _facts(self, host: str, request: Mapping[str, object]) -> Report:
        report = facts_report(self.plan, host, request)
        report.update(self.facts.get(host, {}))
        return report

    def _caches(self, host: str, request: Mapping[str, object]) -> Report:
        assert request["action"] == "clear"
        running = [
            unit.process.id
            for (name, _), unit in self.units.items()
            if name == host and unit.active_state == "active"
        ]
        assert not running, "what runs still writes there"
        return {"removed_bytes": self.compiled.pop(host, 0)}

    def _read(self, host: str, request: Mapping[str, object]) -> Report:
        paths = request["paths"]
        assert isinstance(paths, list)
        return {"files": {path: self.files[host].get(path) for path in paths}}

    def _probe(self, _host: str, request: Mapping[str, object]) -> Report:
        probes = request["probes"]
        assert isinstance(probes, list)
        rows = []
        for probe in probes:
            steps: list[Mapping[str, object]] = []
            for step in probe["steps"]:
                steps.append(self._respond(step, steps))
                status = steps[-1]["status"]
                if not isinstance(status, int) or status >= 400:
                    break
            rows.append({"id": probe["id"], "steps": steps})
        return {"probes": rows}

    def _respond(
        self, step: Mapping[str, object], earlier: list[Mapping[str, object]]
    ) -> Mapping[str, object]:
        url = str(step["url"])
        base, _, path = url.removeprefix("http://").partition("/")
        server = next((u for u in self.units.values() if base in _addresses(u.process)), None)
        is_up = (
            server is not None
            and server.active_state == "active"
            and self.clock.at - (server.started_at or 0.0) >= self.load_s
            and server.process.id not in self.silent
        )
        if server is None or not is_up:
            return {"status": None, "body": None, "error": "Connection refused", "elapsed_s": 0.0}
        if server.process.kind == "router" and self.members and not path.startswith("v1/"):
            return {"error": None, "elapsed_s": 0.0, **self.members(step)}
        if server.process.id in self.answer_with and path.startswith("v1/"):
            return {"error": None, "elapsed_s": 0.0, **self.answer_with[server.process.id]}
        return {
            "status": 200,
            "body": self._body(step, path, base, earlier),
            "error": None,
            "elapsed_s": 0.0,
        }

    def _body(
        self, step: Mapping[str, object], path: str, base: str, earlier: list[Mapping[str, object]]
    ) -> object:
        headers = step.get("headers") or {}
        assert isinstance(headers, Mapping)
        index = str(headers.get("X-data-parallel-rank", ""))
        if path == "metrics":
            lines = [
                f'vllm:generation_tokens_total{{engine="{rank}",model_name="m"}} {count}'
                for (where, rank), count in self.tokens.items()
                if where == base
            ]
            waiting = self.open_requests.get(base)
            if waiting:
                lines.append(f'vllm:num_requests_running{{engine="0"}} {waiting.pop(0)}')
            return "\n".join(lines)
        if path == "query":
            return {"0": {"engine_id": f"engine-at-{base}", "worker_addr": {}}}
        if not path.startswith("v1/"):
            return ""
        body = step.get("body")
        body = dict(body) if isinstance(body, Mapping) else {}
        merge = step.get("merge")
        if isinstance(merge, Mapping):
            source = earlier[int(str(merge["from_step"]))]["body"]
            assert isinstance(source, Mapping)
            body[str(merge["key"])] = source[str(merge["key"])]
        if self.counts_tokens:
            rank = self.ranks.get((base, index), "0")
            self.tokens[base, rank] = self.tokens.get((base, rank), 0) + 1
        answer: dict[str, object] = {
            "choices": [
                {"message": {"content": "The answer is 42."}}
                if path == "v1/chat/completions"
                else {"text": f" {ANSWER}" if body.get("prompt") == PROMPT else " 42"}
            ],
            "usage": {"completion_tokens": 1},
        }
        if isinstance(body.get("kv_transfer_params"), Mapping):
            answer["kv_transfer_params"] = {"do_remote_prefill": True, "remote_engine_id": base}
        return answer


def make_deployment(
    stack: str, catalog: Catalog, *, sets: tuple[str, ...] = ()
) -> tuple[Deployment, ScriptedFleet, list[str]]:
    """A deployment of a stack on scripted hosts, its fleet, and the lines that it says."""
    plan = compile_file(stack, catalog=catalog, sets=sets).plan
    clock = FakeClock()
    fleet = ScriptedFleet(plan, clock)
    tuning = Tuning(profile=catalog.tuning(plan.tuning))
    said: list[str] = []
    deployment = Deployment(
        plan=plan,
        states={
            h.name: host_state(plan, h.name, tuning=tuning, catalog=catalog) for h in plan.hosts
        },
        endpoints=read_endpoints(plan, catalog),
        fleet=fleet,
        clock=clock,
        limits=Limits(ready_s=60.0, router_s=20.0, progress_s=5.0, settle_s=6.0),
        headers={},
        say=said.append,
        nonce="test",
    )
    for rank in deployment.endpoints.ranks:
        base = rank.url.removeprefix("http://")
        fleet.tokens[base, str(rank.rank)] = 0
        fleet.ranks[base, "" if rank.index is None else str(rank.index)] = str(rank.rank)
    return deployment, fleet, said


def record_path_of(plan: Plan) -> str:
    """The record of a release."""
    return str(Path(release_path(plan.stack)))


def _addresses(process: Process) -> set[str]:
    """`address:port` of every HTTP endpoint of a process."""
    address = (process.endpoint or "").removeprefix("http://").rpartition(":")[0]
    names = {"http", "bootstrap"}
    return {
        f"{address}:{bind.port + i}"
        for bind in process.binds
        if bind.name in names and address
        for i in range(bind.count)
    }


def _row(item: Mapping[str, object], state: str, why: str) -> dict[str, object]:
    return {
        "id": item["id"],
        "group": item.get("group"),
        "kind": item.get("kind"),
        "state": state,
        "before": "before",
        "wanted": "wanted",
        "after": "after",
        "why": why,
        "needs": None,
        "diff": None,
    }


def _foreign_unit(name: str) -> dict[str, object]:
    """A unit that is none of the plan's processes, such as the one that removes containers."""
    return {"unit": name, "load_state": "loaded", "active_state": "inactive", "log_tail": []}
