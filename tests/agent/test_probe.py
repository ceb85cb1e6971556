"""The operation `probe`, against a small HTTP server on loopback."""

from __future__ import annotations

import json
import socket
import ssl
import threading
import time
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from infra.rehearsal.cluster.certificate import Certificate, make_certificate
from tests.agent.stubborn_host import StubbornHost

METRICS = "# HELP x\n" + "noise 1\n" * 20000 + "generation_tokens_total 7\n"


class Engine(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        if self.path == "/metrics":
            self._answer(200, METRICS.encode())
        elif self.path == "/big":
            self._answer(200, b"begin" + b"x" * 200000 + b"data: [DONE]\n\n")
        elif self.path == "/drip":
            self.send_response(200)
            self.end_headers()
            for _ in range(100):
                self.wfile.write(b"x")
                self.wfile.flush()
                time.sleep(0.05)
        else:
            self._answer(503, b"starting")

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        rank = self.headers.get("X-data-parallel-rank")
        params = {"engine": 7} if "ask" in body else None
        answer = {"got": body, "rank": rank, "kv_transfer_params": params}
        self._answer(200, json.dumps(answer).encode())

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the parent's name
        pass


@pytest.fixture(scope="module")
def base() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Engine)
    server.handle_error = lambda *_: None  # type: ignore[method-assign]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def probe(host: StubbornHost, *steps: Mapping[str, object]) -> list[dict[str, Any]]:
    report = host.ask("probe", probes=[{"id": "p", "steps": list(steps)}], parallel=4)
    probes = report["probes"]
    assert isinstance(probes, list)
    assert probes[0]["id"] == "p"
    answers: list[dict[str, Any]] = probes[0]["steps"]
    return answers


def test_json_goes_and_comes(host: StubbornHost, base: str) -> None:
    step = {"method": "POST", "url": f"{base}/v1/x?a=b", "body": {"n": 0}}
    answer = probe(host, {**step, "headers": {"X-data-parallel-rank": "3"}})[0]
    assert (answer["status"], answer["error"]) == (200, None)
    assert answer["body"]["got"] == {"n": 0}
    assert answer["body"]["rank"] == "3"
    assert answer["elapsed_s"] > 0


def test_a_key_of_an_earlier_answer_is_merged(host: StubbornHost, base: str) -> None:
    first = {"method": "POST", "url": base, "body": {"ask": 1}}
    merge = {"from_step": 0, "key": "kv_transfer_params"}
    second = {"method": "POST", "url": base, "body": {"n": 1}, "merge": merge}
    answers = probe(host, first, second)
    assert answers[1]["body"]["got"] == {"n": 1, "kv_transfer_params": {"engine": 7}}


def test_a_key_that_did_not_come_ends_the_probe(host: StubbornHost, base: str) -> None:
    first = {"method": "POST", "url": base, "body": {}}
    merge = {"from_step": 0, "key": "kv_transfer_params"}
    answers = probe(host, first, {**first, "merge": merge}, first)
    assert len(answers) == 2
    assert answers[1]["error"] == "the answer of step 0 has no kv_transfer_params"


def test_a_probe_ends_at_the_first_bad_status(host: StubbornHost, base: str) -> None:
    answers = probe(host, {"url": f"{base}/health"}, {"url": f"{base}/metrics"})
    assert [(answer["status"], answer["body"]) for answer in answers] == [(503, "starting")]


def test_a_long_text_is_cut_and_lines_can_be_kept(host: StubbornHost, base: str) -> None:
    answers = probe(
        host,
        {"url": f"{base}/big"},
        {"url": f"{base}/metrics", "keep": "^generation_tokens"},
    )
    assert len(answers[0]["body"]) == 65536
    assert answers[0]["body"].startswith("begin")
    assert answers[0]["body"].endswith("data: [DONE]\n\n")
    assert answers[1]["body"] == "generation_tokens_total 7"


def test_a_drip_of_bytes_cannot_pass_the_limit(host: StubbornHost, base: str) -> None:
    begun = time.monotonic()
    answer = probe(host, {"url": f"{base}/drip", "timeout_s": 0.3})[0]
    assert time.monotonic() - begun < 2
    assert "stopped after" in answer["error"]


def test_nobody_there_is_an_error_of_the_step(host: StubbornHost) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        answer = probe(host, {"url": f"http://127.0.0.1:{closed.getsockname()[1]}/"})[0]
    assert (answer["status"], answer["error"]) == (None, "Connection refused")


@pytest.mark.parametrize("url", ["ftp://127.0.0.1/", "garbage", ""])
def test_garbage_is_no_address(host: StubbornHost, url: str) -> None:
    assert "is not an http:// or https:// address" in probe(host, {"url": url})[0]["error"]


def test_no_probes_are_no_answers(host: StubbornHost) -> None:
    assert host.ask("probe", probes=[])["probes"] == []


def test_probes_run_side_by_side(host: StubbornHost, base: str) -> None:
    steps = [{"url": f"{base}/drip", "timeout_s": 0.3}]
    begun = time.monotonic()
    host.ask("probe", probes=[{"id": str(n), "steps": steps} for n in range(8)], parallel=8)
    assert time.monotonic() - begun < 2


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Certificate, Certificate]:
    folder = tmp_path_factory.mktemp("certificates")
    return make_certificate(folder / "own"), make_certificate(folder / "other")


def test_over_tls_nothing_is_said_to_who_shows_another_certificate(
    host: StubbornHost, made: tuple[Certificate, Certificate]
) -> None:
    own, other = made
    heard: list[str] = []

    class Front(Engine):
        def do_GET(self) -> None:
            heard.append(str(self.headers.get("Authorization")))
            self._answer(200, b"{}")

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(own.file, own.key)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Front)
    server.handle_error = lambda *_: None  # type: ignore[method-assign]
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    step = {"url": f"https://127.0.0.1:{server.server_port}/", "headers": {"Authorization": "k"}}
    try:
        wrong = probe(host, {**step, "certificate": other.file.read_text()})[0]
        none = probe(host, {**step, "certificate": "no certificate"})[0]
        right = probe(host, {**step, "certificate": f"chain\n{own.file.read_text()}"})[0]
        any_one = probe(host, step)[0]
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
    for answer in (wrong, none):
        assert (answer["status"], answer["error"]) == (
            None,
            "it shows another certificate than the stack's",
        )
    assert (right["status"], any_one["status"]) == (200, 200)
    assert right["first_byte_s"] >= 0
    assert heard == ["k", "k"]
