"""The launcher of pods, run as a pod would run it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from infra.agent.pod_launch import NOT_IN_TIME, REFUSED, STOPPED, expand, pod_name
from infra.rehearsal.cluster.pods import resolved
from infra.spec.load import PROJECT

LAUNCHER = PROJECT / "infra" / "agent" / "pod_launch.py"
FOREVER = "trap 'echo stopped; exit 0' TERM; echo up; while :; do sleep 0.05; done"
ENVIRONMENT = {"PATH": os.environ["PATH"], "POD_IP": "127.0.0.1", "MOE_WORKER_INDEX": "0"}


def row(name: str, script: str = "", **more: Any) -> dict[str, Any]:
    own = {"id": name, "wrapper": [], "argv": ["sh", "-c", script], "env": {}}
    return {**own, "health": [], "proof": [], **more}


def document(tmp_path: Path, *hosts: list[dict[str, Any]], **more: Any) -> Path:
    path = tmp_path / "processes.json"
    awaits = [{"name": name} for name in more.pop("names", [])]
    awaits += more.pop("awaits", [])
    listed = [
        {"name": f"host-{i}", "awaits": awaits, "processes": rows} for i, rows in enumerate(hosts)
    ]
    common = {"group": "decode/0", "group_size": len(hosts), "urls": [], "stop_s": 5, "wait_s": 0.1}
    path.write_text(json.dumps({**common, "hosts": listed, **more}))
    return path


def start(path: Path, operation: str = "run", **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, str(LAUNCHER), operation, str(path)],
        env={**ENVIRONMENT, "TMPDIR": str(path.parent), **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def run(path: Path, operation: str = "run", **environment: str) -> tuple[int, str]:
    child = start(path, operation, **environment)
    said, _ = child.communicate(timeout=30)
    return child.returncode, said


def test_each_index_starts_its_own_processes_with_their_environment(tmp_path: Path) -> None:
    first = [row("host-0/0", "exit 1")]
    second = [
        row(
            "host-1/0",
            'echo "$MASK at $ADDRESS of $0"',
            env={"MASK": "0,1", "ADDRESS": "$(POD_IP)"},
        )
    ]
    path = document(tmp_path, first, second)
    code, said = run(path, MOE_WORKER_INDEX="1")
    assert (code, said.splitlines()[0]) == (0, "0,1 at 127.0.0.1 of sh")
    assert run(path)[0] == 1


def test_it_ends_with_the_first_that_ends_and_stops_the_others(tmp_path: Path) -> None:
    path = document(
        tmp_path, [row("a/0", FOREVER), row("a/1", "sleep 0.3; exit 7"), row("a/2", FOREVER)]
    )
    code, said = run(path)
    assert code == 7
    assert "moe-infra: a/1 has ended with 7: the pod ends with it" in said
    assert "[a/0] stopped" in said
    assert "[a/2] stopped" in said


def test_a_process_that_ignores_its_order_is_killed_in_time(tmp_path: Path) -> None:
    deaf = "trap '' TERM; while :; do sleep 0.05; done"
    begun = time.monotonic()
    code, _ = run(document(tmp_path, [row("a/0", deaf), row("a/1", "exit 3")], stop_s=0.3))
    assert code == 3
    assert time.monotonic() - begun < 10


def test_a_killed_process_is_told_as_the_shell_does(tmp_path: Path) -> None:
    assert run(document(tmp_path, [row("a/0", "kill -9 $$$$")]))[0] == 128 + signal.SIGKILL


def test_what_a_process_leaves_behind_ends_with_it(tmp_path: Path) -> None:
    script = f"sleep 600 & echo $! > {tmp_path / 'pid'}"
    assert run(document(tmp_path, [row("a/0", script)]))[0] == 0
    state = Path("/proc") / (tmp_path / "pid").read_text().strip() / "stat"
    until = time.monotonic() + 10
    while state.is_file() and state.read_text().rpartition(")")[2].split()[0] != "Z":
        assert time.monotonic() < until, "it runs on"
        time.sleep(0.05)


def test_an_order_to_stop_reaches_every_process(tmp_path: Path) -> None:
    child = start(document(tmp_path, [row("a/0", FOREVER), row("a/1", FOREVER)]))
    assert child.stdout is not None
    assert sorted(child.stdout.readline() for _ in range(2)) == ["[a/0] up\n", "[a/1] up\n"]
    child.send_signal(signal.SIGTERM)
    said, _ = child.communicate(timeout=30)
    assert child.returncode == STOPPED
    stopped = [line for line in said.splitlines() if line.endswith("stopped")]
    assert sorted(stopped) == ["[a/0] stopped", "[a/1] stopped"]


def test_a_wrapper_stands_before_the_command(tmp_path: Path) -> None:
    wrapper = ["sh", "-c", 'export LIB=/x"${LIB:+:$LIB}"; exec "$@"', "sh"]
    path = document(tmp_path, [row("a/0", "echo $LIB", wrapper=wrapper)])
    assert run(path, LIB="/y")[1].splitlines()[0] == "/x:/y"


@pytest.mark.parametrize("index", ["", "2", "x"])
def test_a_pod_of_no_group_is_refused(tmp_path: Path, index: str) -> None:
    path = document(tmp_path, [row("a/0", "echo no")], [row("b/0", "echo no")])
    code, said = run(path, MOE_WORKER_INDEX=index)
    assert code == REFUSED
    assert f"MOE_WORKER_INDEX={index!r} is none of the 2 hosts of decode/0" in said


def test_a_missing_program_is_named(tmp_path: Path) -> None:
    code, said = run(document(tmp_path, [row("a/0", argv=["no-such-engine", "serve"])]))
    assert code == REFUSED
    assert "a/0: no-such-engine cannot be started" in said


def test_names_that_never_resolve_are_told(tmp_path: Path) -> None:
    path = document(tmp_path, [row("a/0", "echo no")], names=["127.0.0.1", "no.such.invalid"])
    code, said = run(path)
    assert code == NOT_IN_TIME
    assert "gave up on the names of pods after 0 s: no.such.invalid" in said


def test_a_pod_of_several_groups_runs_the_host_of_its_own(tmp_path: Path) -> None:
    rows = [[row(f"host-{i}/0", f"exit {i}")] for i in range(6)]
    path = document(tmp_path, *rows, group_size=2)
    for group, worker in ((0, 1), (1, 0), (2, 1)):
        found = run(path, MOE_GROUP_INDEX=str(group), MOE_WORKER_INDEX=str(worker))
        assert found[0] == 2 * group + worker
    assert run(path, MOE_GROUP_INDEX="0", MOE_WORKER_INDEX="2")[0] == REFUSED
    assert run(path, MOE_GROUP_INDEX="3")[0] == REFUSED


def test_workers_are_named_after_the_leader_of_their_own_revision() -> None:
    leader = "x-0f1e2d3c-decode-1.x-0f1e2d3c-decode.serving"
    assert pod_name(leader, None) == ""
    assert pod_name(leader, 0) == leader
    assert pod_name(leader, 3) == "x-0f1e2d3c-decode-1-3.x-0f1e2d3c-decode.serving"


def test_a_name_that_still_leads_to_another_revision_is_waited_for(tmp_path: Path) -> None:
    """127.0.0.2 stands for the pod of an older revision, under the service's name."""
    rows = [row("a/0", "echo up")]
    same = document(tmp_path, rows, awaits=[{"name": "127.0.0.1", "worker": 0}])
    assert run(same, LWS_LEADER_ADDRESS="127.0.0.1")[0] == 0
    other = document(tmp_path, rows, awaits=[{"name": "127.0.0.2", "worker": 0}])
    code, said = run(other, LWS_LEADER_ADDRESS="127.0.0.1")
    assert code == NOT_IN_TIME
    assert "gave up on the names of pods after 0 s: 127.0.0.2" in said


@pytest.mark.parametrize(
    "text",
    ["", "plain", "$(POD_IP):80", "$(NONE)", "$$(POD_IP)", "$$$(POD_IP)", "$", "a$b", "$(", "$()", "$(A$(POD_IP))"],
)  # fmt: skip
def test_expressions_are_resolved_as_the_kubelet_does(text: str) -> None:
    environment = {"POD_IP": "10.0.0.1"}
    assert expand(text, environment) == resolved(text, environment)


@pytest.fixture
def endpoint() -> Iterator[Callable[[int, Any], int]]:
    """A server that answers every request with a status and a document; returns its port."""
    servers: list[ThreadingHTTPServer] = []

    def serve(status: int, answer: Any) -> int:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._answer(200, {})

            def do_POST(self) -> None:
                self.rfile.read(int(self.headers["Content-Length"]))
                secret = self.headers.get("Authorization") == "Bearer key"
                self._answer(status if secret else 401, answer)

            def _answer(self, code: int, body: Any) -> None:
                text = json.dumps(body).encode()
                self.send_response(code)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, *_: Any) -> None:
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        servers.append(server)
        return int(server.server_address[1])

    yield serve
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize(
    ("status", "answer", "code"),
    [
        (200, {"usage": {"completion_tokens": 4}}, 0),
        (200, {"usage": {"completion_tokens": 0}}, 1),
        (200, {"choices": []}, 1),
        (500, {"error": "loading"}, 1),
    ],
)
def test_a_pod_has_started_when_its_ranks_have_generated(
    tmp_path: Path, endpoint: Callable[[int, Any], int], status: int, answer: Any, code: int
) -> None:
    port = endpoint(status, answer)
    proof = {
        "port": port,
        "path": "/v1/completions",
        "body": {"prompt": "x"},
        "key_variable": "KEY",
    }
    rows = [row("a/0", health=[{"port": port, "path": "/health"}], proof=[proof])]
    path = document(tmp_path, rows)
    assert run(path, "started", KEY="key")[0] == code
    assert run(path, "ready") == (0, "")
    assert run(path, "started")[0] == 1  # without the key


@pytest.mark.parametrize("operation", ["started", "ready"])
def test_a_pod_without_endpoints_has_started_when_its_processes_are(
    tmp_path: Path, operation: str
) -> None:
    rows = [row("a/0", FOREVER)]
    path = document(tmp_path, rows, names=["no.such.invalid"], wait_s=60)
    waiting = start(path)
    try:
        assert run(path, operation) == (1, "its processes are not started yet\n")
    finally:
        waiting.kill()
        waiting.communicate(timeout=30)
    child = start(document(tmp_path, rows))
    assert child.stdout is not None
    assert child.stdout.readline() == "up\n"
    until = time.monotonic() + 10
    while (answer := run(path, operation)) != (0, ""):
        assert time.monotonic() < until, answer
    child.terminate()
    child.communicate(timeout=30)


def test_a_container_that_begins_again_has_not_started(tmp_path: Path) -> None:
    rows = [row("a/0", "exit 1")]
    path = document(tmp_path, rows)
    assert run(path)[0] == 1
    assert run(document(tmp_path, rows, names=["no.such.invalid"]))[0] == NOT_IN_TIME
    assert run(path, "started")[0] == 1


def test_a_silent_endpoint_is_named(tmp_path: Path) -> None:
    path = document(tmp_path, [row("a/0", health=[{"port": 1, "path": "/health"}])])
    code, said = run(path, "ready")
    assert code == 1
    assert said.startswith("port 1/health: ")


def test_a_router_starts_when_its_endpoints_are_healthy(
    tmp_path: Path, endpoint: Callable[[int, Any], int]
) -> None:
    url = f"http://127.0.0.1:{endpoint(200, {})}/health"
    code, said = run(document(tmp_path, [row("r/0", "echo up")], urls=[url]))
    assert (code, said.splitlines()[0]) == (0, "up")
    silent = "http://127.0.0.1:1/health"
    code, said = run(document(tmp_path, [row("r/0", "echo up")], urls=[url, silent]))
    assert (code, said.splitlines()[0]) != (0, "up")
    assert code == NOT_IN_TIME
    assert silent in said
