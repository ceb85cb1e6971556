"""The real routers, started by our words: how long they let an answer last, and where their metrics are served."""

from __future__ import annotations

import http.client
import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from infra.catalog.load import Catalog
from infra.engines.routers import Endpoint, RouterContext, longest_answer_s, write_router
from infra.errors import PrerequisiteError
from infra.spec.stack import RouterName
from tests.needed import lacks
from tests.ports import free_ports
from tests.rehearsal.engine.simulated_host import call

pytestmark = pytest.mark.slow  # the real routers

NUM_EVENTS = 12
EVENT_S = 0.25
PROGRAMS: dict[RouterName, tuple[str, ...]] = {
    "vllm-router": ("vllm-router",),
    "sglang-router": ("sglang-router", "launch"),
}


class Worker(BaseHTTPRequestHandler):
    """As much of an engine as a router asks for; an answer takes three seconds."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        """Nothing."""

    def do_GET(self) -> None:
        """Healthy, with one model."""
        told = {"data": [{"id": "m"}], "model_path": "m", "dp_size": 1, "is_generation": True}
        body = json.dumps(told).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self) -> None:
        """A stream of events, one each quarter of a second."""
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        event = b'data: {"choices": [{"index": 0, "text": "x"}]}\n\n'
        try:
            for _ in range(NUM_EVENTS):
                self.wfile.write(b"%x\r\n%s\r\n" % (len(event), event))
                time.sleep(EVENT_S)
            self.wfile.write(b"0\r\n\r\n")
        except OSError:
            self.close_connection = True


@pytest.fixture
def worker() -> Iterator[int]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Worker)
    Thread(target=server.serve_forever, daemon=True).start()
    yield server.server_port
    server.shutdown()
    server.server_close()


@contextmanager
def router(
    name: RouterName, worker_port: int, folder: Path, *, limit_s: int, metrics_address: str
) -> Iterator[tuple[int, int]]:
    """Start a router as a plan does, but for clients of this machine alone; yield its port, and that of its metrics."""
    program, *rest = PROGRAMS[name]
    path = Path(sys.executable).parent / program
    if not path.exists():
        lacks(PrerequisiteError("tests", f"{name} is not installed.", "Type: scripts/setup"))
    port, prometheus_port = free_ports(2)
    release = Catalog().router(name).model_copy(update={"program": (str(path), *rest)})
    context = RouterContext(
        release=release,
        address="127.0.0.1",
        port=port,
        metrics_address=metrics_address,
        prometheus_port=prometheus_port,
        longest_answer_s=limit_s,
        policy=None,
        kv_transfer=None,
        endpoints=(
            Endpoint(role="unified", address="127.0.0.1", port=worker_port, bootstrap_port=None),
        ),
    )
    words = [word.replace("0.0.0.0", "127.0.0.1") for word in write_router(name, context)]
    with (folder / "router.log").open("w") as log:
        process = subprocess.Popen(words, stdout=log, stderr=subprocess.STDOUT, cwd=folder)
        try:
            deadline = time.monotonic() + 20
            while not _is_ready(port):
                assert process.poll() is None, (folder / "router.log").read_text()
                assert time.monotonic() < deadline, (folder / "router.log").read_text()
                time.sleep(0.05)
            yield port, prometheus_port
        finally:
            process.kill()
            process.wait()


def _is_ready(port: int) -> bool:
    try:
        return call(port, "/readiness")[0] == 200
    except OSError:
        return False


def events(port: int) -> tuple[int, int, bool]:
    """Status of a streamed answer, how many of its events came, and whether its end did."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    body = json.dumps({"model": "m", "prompt": "x", "stream": True})
    connection.request("POST", "/v1/completions", body, {"Content-Type": "application/json"})
    answer = connection.getresponse()
    text, is_whole = b"", True
    try:
        while piece := answer.read1(65536):
            text += piece
    except (http.client.HTTPException, OSError):
        is_whole = False
    connection.close()
    return answer.status, text.count(b"data:"), is_whole


def listens(address: str, port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(2)
        return probe.connect_ex((address, port)) == 0


@pytest.mark.parametrize("name", list(PROGRAMS))
def test_a_stream_ends_at_the_limit_in_total_and_ours_is_not_met(
    name: RouterName, worker: int, tmp_path: Path
) -> None:
    with router(name, worker, tmp_path, limit_s=1, metrics_address="127.0.0.1") as (port, _):
        status, num_events, _ = events(port)
        assert status == 200  # nothing tells the client
        assert 0 < num_events < NUM_EVENTS
    ours = longest_answer_s(262144)
    with router(name, worker, tmp_path, limit_s=ours, metrics_address="127.0.0.1") as (port, _):
        assert events(port) == (200, NUM_EVENTS, True)


@pytest.mark.parametrize("name", list(PROGRAMS))
@pytest.mark.parametrize("address", ["127.0.0.1", "127.0.0.2"])
def test_metrics_are_served_at_one_address_and_no_other(
    name: RouterName, address: str, worker: int, tmp_path: Path
) -> None:
    with router(name, worker, tmp_path, limit_s=60, metrics_address=address) as (_, metrics):
        assert {
            where for where in ("127.0.0.1", "127.0.0.2", "127.0.0.3") if listens(where, metrics)
        } == {address}
