"""The front as HAProxy itself runs it: real requests, valid and crooked, against a server that notes what arrives."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from infra.engines import haproxy
from infra.engines.haproxy import ALLOW, CHECK, MAX_BODY_BYTES, START_IN_POD, Front, write_config
from infra.rehearsal.cluster.certificate import make_certificate
from tests.needed import need_program
from tests.ports import free_ports

ALICE = "a" * 40
BOB = "b" * 40
AT_ONCE = 2
PER_ADDRESS = 1024
FEW = 3
# a connection that is reset before the handshake: CPython 3.11 leaves it to the collector
RESET_UNHEARD = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
# Idle limits of the front scaled down with a stream of two hours whose tokens come every half minute: 2 s for 3,700 s.
IDLE_S, EVENTS, EVENT_S = 2, 12, 0.5


@dataclass(slots=True)
class Arrived:
    """What the server behind the front has got."""

    requests: list[tuple[str, str, dict[str, str]]] = field(default_factory=list)
    release: threading.Event = field(default_factory=threading.Event)


@dataclass(slots=True, kw_only=True)
class Edge:
    """A front that runs."""

    port: int
    folder: Path
    arrived: Arrived
    process: subprocess.Popen[bytes]
    log: Path

    def raw(self, text: bytes, *, tls: bool = True, source: str = "127.0.0.1") -> bytes:
        """What is answered to bytes on the wire, up to the end of the connection."""
        with self.connect(source) as plain, self.over_tls(plain) if tls else plain as wire:
            wire.sendall(text)
            found = b""
            while chunk := wire.recv(65536):
                found += chunk
        return found

    def connect(self, source: str = "127.0.0.1") -> socket.socket:
        """A connection from an address of this machine."""
        return socket.create_connection(("127.0.0.1", self.port), 5, source_address=(source, 0))

    def lets_in(self, source: str) -> bool:
        """Whether an address with a right key is answered; what is closed unheard is not."""
        text = f"GET /health HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {ALICE}\r\nConnection: close\r\n\r\n"
        try:
            return status_of(self.raw(text.encode(), source=source)) == 200
        except (ssl.SSLError, ConnectionError):
            return False

    def closes_unheard(self, source: str) -> bool:
        """Whether one more connection of an address is closed at once."""
        try:
            with self.connect(source) as wire:
                return _is_closed(wire)
        except ConnectionResetError:
            return True

    def read_anew(self) -> None:
        """Have the front read its keys; a master that still starts does not hear the signal, and is told again."""
        said = b"Reloading HAProxy"
        before, told = self.log.read_bytes().count(said), 0.0
        until = time.monotonic() + 10
        while self.log.read_bytes().count(said) == before:
            assert time.monotonic() < until
            if time.monotonic() - told > 1:
                told = time.monotonic()
                self.process.send_signal(signal.SIGUSR2)
            time.sleep(0.02)

    def over_tls(
        self, plain: socket.socket, protocols: tuple[str, ...] = ("http/1.1",)
    ) -> ssl.SSLSocket:
        """A connection that trusts exactly the given certificate."""
        context = ssl.create_default_context(cafile=str(self.folder / "edge_certificate"))
        context.set_alpn_protocols(list(protocols))
        return context.wrap_socket(plain, server_hostname="127.0.0.1")

    def status(self, line: str, *headers: str, key: str | None = ALICE, body: bytes = b"") -> int:
        """The status of one request; a length is told where there is a body or a POST."""
        words = [f"{line} HTTP/1.1", "Host: front", "Connection: close", *headers]
        words += [f"Authorization: Bearer {key}"] if key else []
        words += [f"Content-Length: {len(body)}"] if body or line.startswith("POST") else []
        return status_of(self.raw("\r\n".join(words).encode() + b"\r\n\r\n" + body))


def status_of(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1]) if answer else 0


def _server(arrived: Arrived) -> ThreadingHTTPServer:
    class Behind(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None:
            pass

        def answer(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            body = self.rfile.read(length)
            headers = {name.lower(): value for name, value in self.headers.items()}
            arrived.requests.append((self.command, self.path, headers))
            self.send_response(200)
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            if b"wait" in body:
                self.wfile.write(b"5\r\nfirst\r\n")
                arrived.release.wait(10)
            for _ in range(EVENTS if b"slow" in body else 0):
                self.wfile.write(b"5\r\nevent\r\n")
                time.sleep(EVENT_S)
            self.wfile.write(b"2\r\nok\r\n0\r\n\r\n")

        do_GET = do_POST = do_DELETE = do_PUT = answer  # noqa: N815  # the names that http.server calls

    return ThreadingHTTPServer(("127.0.0.1", 0), Behind)


def _asking(key: str, word: str) -> bytes:
    """A request whose answer begins at once, and ends when it is released (`wait`) or comes drop by drop (`slow`)."""
    words = ["POST /v1/completions HTTP/1.1", "Host: x", f"Authorization: Bearer {key}"]
    return "\r\n".join([*words, "Connection: close", "Content-Length: 4", "", word]).encode()


def digest(key: str, name: str) -> str:
    return f"{hashlib.sha256(key.encode()).hexdigest()} {name}\n"


@pytest.fixture(scope="module")
def edge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Edge]:
    yield from running(tmp_path_factory.mktemp("edge"), lambda config: config)


@pytest.fixture
def few(tmp_path: Path) -> Iterator[Edge]:
    """One that lets an address hold few connections without a key."""
    yield from running(tmp_path, lambda config: config, FEW)


def running(
    folder: Path, change: Callable[[str], str], per_address: int = PER_ADDRESS
) -> Iterator[Edge]:
    """A front that runs until it is asked for no more, with its configuration changed."""
    need_program("haproxy", "haproxy")
    made = make_certificate(folder / "made")
    (folder / "edge_certificate").write_bytes(made.file.read_bytes())
    (folder / "edge_certificate.key").write_bytes(made.key.read_bytes())
    (folder / "edge_keys").write_text(digest(ALICE, "alice") + digest(BOB, "bob"))
    arrived = Arrived()
    server = _server(arrived)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    found = _start(folder, change, per_address, arrived, server.server_port)
    try:
        yield found
    finally:
        arrived.release.set()
        found.process.terminate()
        found.process.wait(10)
        server.shutdown()
        server.server_close()


def _start(
    folder: Path, change: Callable[[str], str], per_address: int, arrived: Arrived, behind: int
) -> Edge:
    """A front that answers; where somebody else has taken its port by then, at another."""
    environment = {"CREDENTIALS_DIRECTORY": str(folder), "PATH": os.environ["PATH"]}
    log = folder / "log"
    for _ in range(5):
        front = Front(
            port=free_ports()[0],
            has_tls=True,
            allow=ALLOW,
            connections_per_address=per_address,
            connections_per_key=AT_ONCE,
            behind=f"127.0.0.1:{behind}",
            sends_key=False,
        )
        (folder / "haproxy.cfg").write_text(change(write_config(front)))
        subprocess.run(CHECK, cwd=folder, env=environment, check=True)
        with log.open("wb") as opened:
            process = subprocess.Popen(
                START_IN_POD, cwd=folder, env=environment, stdout=opened, stderr=opened
            )
        found = Edge(port=front.port, folder=folder, arrived=arrived, process=process, log=log)
        until = time.monotonic() + 60  # a machine that is busy with other tests
        while time.monotonic() < until and process.poll() is None:
            if _answers(found):
                return found
            time.sleep(0.02)
        process.kill()
        process.wait(10)
        if b"cannot bind socket" not in log.read_bytes():
            break
    raise AssertionError(log.read_text())


def _answers(edge: Edge) -> bool:
    try:
        return edge.status("GET /health") == 200
    except OSError:
        return False


def _await(is_so: object, within_s: float = 10.0) -> None:
    assert callable(is_so)
    until = time.monotonic() + within_s
    while not is_so():
        assert time.monotonic() < until
        time.sleep(0.02)


@pytest.mark.parametrize("path", ["/health", "/v1/models", "/pause", "/"])
@pytest.mark.parametrize("key", [None, "c" * 40, "", "a" * 39])
def test_no_path_is_answered_without_a_key(edge: Edge, path: str, key: str | None) -> None:
    answer = edge.raw(
        f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: Bearer {key}\r\n\r\n".encode()
    )
    assert status_of(answer) == 401
    assert b"www-authenticate: Bearer" in answer
    assert json.loads(answer.split(b"\r\n\r\n", 1)[1])["error"]["code"] == "invalid_api_key"


def test_each_path_takes_its_own_method(edge: Edge) -> None:
    for path in ALLOW:
        is_get = path in ("/health", "/v1/models")
        assert edge.status(f"GET {path}") == (200 if is_get else 405)
        assert edge.status(f"POST {path}", body=b"{}") == (405 if is_get else 200)
        assert edge.status(f"DELETE {path}") == 405


@pytest.mark.parametrize(
    "target",
    [
        "/pause",
        "/v1/models/",
        "//v1/models",
        "/v1//models",
        "/V1/models",
        "/v1/./models",
        "/v1/models/../../pause",
        "/v1/models/%2e%2e/%2e%2e/pause",
        "/v1%2fmodels",
        "/%76%31/models",
        "/v1/models%00",
        "/v1/models;x",
        "/v1/models%3f",
        "/v1\\models",
        "/v1/models/..;/pause",
        "http://front/pause",
        "http://127.0.0.1:1/v1/models/../pause",
        "pause?/v1/models",
        "*",
        "/metrics",
        "/invocations",
        "/list_workers",
    ],
)
def test_what_is_not_exactly_an_allowed_path_goes_nowhere(edge: Edge, target: str) -> None:
    edge.arrived.requests.clear()
    for method in ("GET", "POST"):
        assert edge.status(f"{method} {target}", body=b"{}") in (400, 404)
    assert not edge.arrived.requests


@pytest.mark.parametrize(
    "headers",
    [
        "Content-Length: 2\r\nContent-Length: 3",
        "Content-Length: 2\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding: chunked",
        "Transfer-Encoding: xchunked",
        "Transfer-Encoding:\x0bchunked",
        "Content-Length: +2",
        "Content-Length : 2",
        "Content-Length: 2\r\n X: y\r\nTransfer-Encoding: chunked",
        "",
    ],
)
def test_a_body_of_no_certain_length_is_refused(edge: Edge, headers: str) -> None:
    edge.arrived.requests.clear()
    hidden = b"0\r\n\r\nPOST /pause HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
    told = f"{headers}\r\n" if headers else ""
    text = (
        f"POST /v1/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {ALICE}\r\n{told}\r\n"
    )
    assert status_of(edge.raw(text.encode() + hidden)) in (400, 411)
    assert not [path for _, path, _ in edge.arrived.requests if path == "/pause"]


def test_a_request_behind_another_is_judged_like_the_first(edge: Edge) -> None:
    edge.arrived.requests.clear()
    first = f"POST /v1/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {ALICE}\r\n"
    first += "Content-Length: 2\r\n\r\n{}"
    second = (
        "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    )
    answer = edge.raw((first + second).encode())
    assert (answer.count(b"HTTP/1.1 200"), answer.count(b"HTTP/1.1 401")) == (1, 1)
    assert len(edge.arrived.requests) == 1


def test_what_clients_say_of_themselves_stays_at_the_front(edge: Edge) -> None:
    edge.arrived.requests.clear()
    hop = "Connection: close, X-Request-Id, traceparent"
    names = ("X-Forwarded-For", "X-Forwarded-Host", "Forwarded", "X-Real-Ip", "Api-Key", "Cookie")
    told = [f"{name}: 192.0.2.1" for name in names]
    told += [
        "X-Api-Key: k",
        "Proxy-Authorization: Basic x",
        "traceparent: 00-1-2-01",
        "X-Request-Id: mine-1",
        hop,
    ]
    assert edge.status(
        "POST http://elsewhere/v1/completions?a=1", "Upgrade: h2c", *told, body=b"{}"
    ) in (200, 400)
    assert edge.status("POST /v1/completions?a=1", "Upgrade: h2c", *told, body=b"{}") == 200
    method, path, headers = edge.arrived.requests[-1]
    assert (method, path) == ("POST", "/v1/completions?a=1")
    assert headers.keys() == {"host", "traceparent", "x-request-id", "content-length", "connection"}
    assert (headers["traceparent"], headers["x-request-id"]) == ("00-1-2-01", "mine-1")


CONTROLS = [byte for byte in (*range(0x20), 0x7F) if byte != 0x09]


@pytest.mark.parametrize("byte", CONTROLS)
def test_no_control_character_goes_on_in_a_header(edge: Edge, byte: int) -> None:
    edge.arrived.requests.clear()
    start = f"POST /v1/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {ALICE}\r\n"
    start += "Connection: close\r\nContent-Length: 0\r\n"
    for header in (b"X-A: a%sb", b"X-A: %sb", b"X-A: a%s", b"X-%sA: a"):
        text = start.encode() + header % bytes((byte,)) + b"\r\n\r\n"
        answer = edge.raw(text)
        if 0x20 > byte > 0x0D or header != b"X-A: a%s" or byte not in (0x0A, 0x0D):
            assert status_of(answer) == 400, header
    assert not [
        _ for *_, headers in edge.arrived.requests if chr(byte) in "".join(headers.values())
    ]


def test_a_control_character_is_found_wherever_it_stands_in_long_headers(edge: Edge) -> None:
    step = haproxy.BUFFER_BYTES // 4
    for length in (*range(step - 240, step + 10, 30), 2 * step, 3 * step, 28000):
        long = "x" * length
        assert edge.status("GET /health", f"X-Long: {long}") == 200
        assert edge.status("GET /health", f"X-Long: {long}\0") == 400
        assert edge.status("GET /health", f"X-Long: {long}\x1by") == 400


def test_what_only_looks_like_one_goes_on(edge: Edge) -> None:
    looks = "X-Seen: 00. .1B. p0\t\\u0000 %00 é"
    assert edge.status("POST /v1/completions", looks, body=b"{}") == 200
    assert edge.arrived.requests[-1][2]["x-seen"].startswith("00. .1B. p0\t\\u0000 %00")


@pytest.mark.parametrize(
    "named",
    [
        "close, Upgrade, Content-Length, Authorization, X-Request-Id, traceparent",
        "Upgrade, Content-Length, Authorization, Host, close",
        "close\r\nConnection: content-length\r\nConnection: upgrade",
        "close\r\nProxy-Connection: Content-Length\r\nKeep-Alive: timeout=1\r\nTE: trailers\r\nTrailer: Host",
    ],
)
@pytest.mark.parametrize("upgrade", ["websocket", "h2c", "TLS/1.0, HTTP/1.1"])
def test_no_client_names_headers_that_are_dropped_behind(
    edge: Edge, named: str, upgrade: str
) -> None:
    edge.arrived.requests.clear()
    text = "POST /v1/completions HTTP/1.1\r\nHost: x\r\ntraceparent: 00-1-2-01\r\nX-Request-Id: mine\r\n"
    text += f"Authorization: Bearer {ALICE}\r\nUpgrade: {upgrade}\r\nHTTP2-Settings: AAMAAABk\r\n"
    text += f"Connection: {named}\r\nContent-Length: 2\r\n\r\n{{}}"
    answer = edge.raw(text.encode())
    assert status_of(answer) == 200
    ((_, _, headers),) = edge.arrived.requests
    assert headers.keys() == {"host", "traceparent", "x-request-id", "content-length", "connection"}
    assert headers["connection"] == "close"


def test_every_answer_names_its_request(edge: Edge) -> None:
    for given, is_kept in (("mine", True), ("two words", False), ("x" * 200, False), ("", False)):
        answer = edge.raw(
            f"GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\nX-Request-Id: {given}\r\n\r\n".encode()
        )
        told = answer.split(b"x-request-id: ")[1].split(b"\r\n")[0].decode()
        assert (told == given) is is_kept
        assert told


def test_the_other_way_to_send_a_key_is_of_one_path(edge: Edge) -> None:
    for path, status in (("/v1/messages", 200), ("/v1/completions", 401)):
        assert edge.status(f"POST {path}", f"X-Api-Key: {BOB}", key=None, body=b"{}") == status
    assert edge.status("POST /v1/messages", f"Authorization: Bearer {BOB}", body=b"{}") == 400


def test_bodies_are_bounded_where_images_fit(edge: Edge) -> None:
    large = 64 * 1024 * 1024
    assert edge.status("POST /v1/chat/completions", body=b"x" * large) == 200
    text = f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {ALICE}\r\n"
    text += f"Content-Length: {MAX_BODY_BYTES + 1}\r\nConnection: close\r\n\r\n"
    assert status_of(edge.raw(text.encode())) == 413


@pytest.mark.parametrize("length", [2**63 + 5, 10**19, 2**64 - 1, 2**64, 2**64 + 1])
def test_a_length_beyond_what_haproxy_counts_to_is_refused(edge: Edge, length: int) -> None:
    edge.arrived.requests.clear()
    text = f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {ALICE}\r\n"
    text += f"Content-Length: {length}\r\nConnection: close\r\n\r\nx"
    assert status_of(edge.raw(text.encode())) in (400, 413)
    assert not edge.arrived.requests


def test_headers_are_bounded(edge: Edge) -> None:
    assert edge.status("GET /health", "X-Long: " + "x" * 40000) == 400


def test_a_key_has_only_so_many_requests_at_once_and_a_stream_begins_at_once(edge: Edge) -> None:
    edge.arrived.release.clear()
    text = _asking(ALICE, "wait")
    wires = []
    for _ in range(AT_ONCE):
        plain = socket.create_connection(("127.0.0.1", edge.port), timeout=5)
        wire = edge.over_tls(plain)
        begun = time.monotonic()
        wire.sendall(text)
        found = b""
        while b"first" not in found:
            found += wire.recv(65536)
        assert time.monotonic() - begun < 0.3
        wires.append(wire)
    answer = edge.raw(
        f"GET /health HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {ALICE}\r\nConnection: close\r\n\r\n".encode()
    )
    assert status_of(answer) == 429
    assert b"retry-after: 1" in answer
    assert edge.status("GET /health", key=BOB) == 200
    edge.arrived.release.set()
    for wire in wires:
        while wire.recv(65536):
            pass
        wire.close()
    _await(lambda: edge.status("GET /health") == 200)


@RESET_UNHEARD
def test_silent_clients_of_one_address_keep_out_nobody_but_themselves(few: Edge) -> None:
    few.arrived.release.clear()
    streams = []
    for key in AT_ONCE * [ALICE, BOB]:
        wire = few.over_tls(few.connect("127.0.0.2"))
        streams.append(wire)
        wire.sendall(_asking(key, "wait"))
        while b"first" not in wire.recv(65536):
            pass
    # more streams than an address may have without a key, and still room for those that have shown none
    silent = [few.connect("127.0.0.2") for _ in range(FEW)]
    assert [_is_closed(wire) for wire in silent] == FEW * [False]
    assert [few.closes_unheard("127.0.0.2") for _ in range(20)] == 20 * [True]
    few.arrived.release.set()
    for wire in streams:
        while wire.recv(65536):
            pass
        wire.close()
    assert few.lets_in("127.0.0.3")
    assert not few.lets_in("127.0.0.2")
    for held in silent:
        held.close()
    _await(lambda: few.lets_in("127.0.0.2"))


@RESET_UNHEARD
def test_who_opens_connection_after_connection_is_closed_out_for_a_while(few: Edge) -> None:
    for _ in range(2 * FEW * haproxy.COUNTED_S):
        with suppress(ConnectionResetError):
            few.connect("127.0.0.2").close()
    assert not few.lets_in("127.0.0.2")
    assert few.lets_in("127.0.0.3")


def _is_closed(wire: socket.socket) -> bool:
    """Whether the front has closed a connection on which nothing was said."""
    wire.settimeout(0.5)
    try:
        return wire.recv(1) == b""
    except ConnectionResetError:
        return True
    except TimeoutError:
        return False


def test_of_a_flood_without_a_key_the_log_has_some_lines(few: Edge) -> None:
    refused = b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n"
    doubled = f"Authorization: Bearer {ALICE}\r\n" * 2
    refused += f"GET /health HTTP/1.1\r\nHost: x\r\n{doubled}\r\n".encode()
    last = b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    answer = few.raw(300 * refused + last)
    assert (answer.count(b"HTTP/1.1 401"), answer.count(b"HTTP/1.1 400")) == (301, 300)
    assert few.status("GET /health", "X-Request-Id: seen") == 200  # others' lines stay whole
    _await(lambda: b"id=seen" in few.log.read_bytes())
    logged = few.log.read_bytes()
    lines = logged.count(b"status=401") + logged.count(b"status=400")
    assert haproxy.LOGGED_REFUSALS <= lines < 100


@pytest.mark.slow  # a stream of six seconds
def test_a_stream_is_not_cut_however_long_and_silence_ends_one(tmp_path: Path) -> None:
    def scaled(config: str) -> str:
        assert f" {haproxy.IDLE_S}s" in config
        client = f"timeout client {haproxy.CLIENT_IDLE_S}s"
        assert client in config
        # a client is silent for longer than its own limit while it awaits an answer
        config = config.replace(client, "timeout client 250ms")
        return config.replace(f" {haproxy.IDLE_S}s", f" {IDLE_S}s").replace(" 10s", " 1s")

    for edge in running(tmp_path, scaled):
        begun = time.monotonic()
        answer = edge.raw(_asking(ALICE, "slow"))
        assert time.monotonic() - begun > EVENTS * EVENT_S > 2 * IDLE_S
        assert (answer.count(b"event"), answer.endswith(b"ok\r\n0\r\n\r\n")) == (EVENTS, True)
        edge.arrived.release.clear()
        begun = time.monotonic()
        silent = edge.raw(_asking(ALICE, "wait"))
        assert time.monotonic() - begun < 2 * IDLE_S
        assert b"first" in silent
        assert not silent.endswith(b"0\r\n\r\n")
        edge.arrived.release.set()
        # headers that drip are ended in time
        begun = time.monotonic()
        assert status_of(edge.raw(b"GET /health HTTP/1.1\r\nX: ")) == 408
        assert time.monotonic() - begun < 2 * IDLE_S
        # so are those who never begin with TLS, or stop in the middle of its first word
        for silent in (b"", b"\x16\x03\x01\x02\x00\x01"):
            begun = time.monotonic()
            assert edge.raw(silent, tls=False) == b""
            assert time.monotonic() - begun < 2 * IDLE_S


def test_keys_change_while_a_stream_runs_on(edge: Edge) -> None:
    edge.arrived.release.clear()
    text = _asking(BOB, "wait")
    wire = edge.over_tls(socket.create_connection(("127.0.0.1", edge.port), timeout=10))
    wire.sendall(text)
    found = b""
    while b"first" not in found:
        found += wire.recv(65536)
    keys = edge.folder / "edge_keys"
    new = "n" * 40
    keys.write_text(digest(ALICE, "alice") + digest(new, "new"))
    edge.read_anew()
    _await(lambda: edge.status("GET /health", key=new) == 200)
    assert edge.status("GET /health", key=BOB) == 401
    assert edge.status("GET /health", key=ALICE) == 200
    edge.arrived.release.set()
    while b"0\r\n\r\n" not in found:
        found += wire.recv(65536)
    assert b"ok" in found
    wire.close()
    keys.write_text(digest(ALICE, "alice") + digest(BOB, "bob"))
    edge.read_anew()
    _await(lambda: edge.status("GET /health", key=BOB) == 200)


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return (
        len(payload).to_bytes(3, "big") + bytes((kind, flags)) + stream.to_bytes(4, "big") + payload
    )


def _http_2_request(stream: int, path: str, key: str, body: bytes, more: str = "") -> bytes:
    """HEADERS, each header as a literal without index (RFC 7541, 6.2.2), and DATA that ends the stream."""
    pairs = {":method": "POST", ":scheme": "https", ":authority": "front", ":path": path}
    pairs |= {"authorization": f"Bearer {key}", "content-length": str(len(body))}
    pairs |= {"x-seen": more} if more else {}
    packed = b"".join(
        b"\0" + bytes((len(name),)) + name.encode() + bytes((len(value),)) + value.encode()
        for name, value in pairs.items()
    )
    return _frame(1, 4, stream, packed) + _frame(0, 1, stream, body)


def test_a_key_that_is_taken_away_opens_nothing_on_a_connection_of_before(edge: Edge) -> None:
    edge.arrived.release.clear()
    plain = socket.create_connection(("127.0.0.1", edge.port), timeout=10)
    wire = edge.over_tls(plain, protocols=("h2",))
    opening = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + _frame(4, 0, 0, b"")
    wire.sendall(opening + _http_2_request(1, "/v1/completions", BOB, b"wait"))
    found = b""
    while b"first" not in found:
        found += wire.recv(65536)
    keys = edge.folder / "edge_keys"
    new = "n" * 40
    keys.write_text(digest(ALICE, "alice") + digest(new, "new"))
    edge.read_anew()
    _await(lambda: edge.status("GET /health", key=new) == 200)
    edge.arrived.requests.clear()
    wire.sendall(_http_2_request(3, "/v1/completions", BOB, b"{}"))
    found = b""
    while b"unavailable" not in found and b"ok" not in found:
        found += wire.recv(65536)
    assert b"unavailable" in found
    assert not edge.arrived.requests
    edge.arrived.release.set()  # what was begun is not cut
    while b"ok" not in found:
        found += wire.recv(65536)
    wire.close()
    keys.write_text(digest(ALICE, "alice") + digest(BOB, "bob"))
    edge.read_anew()
    _await(lambda: edge.status("GET /health", key=BOB) == 200)


@pytest.mark.parametrize("byte", [*CONTROLS])
def test_no_control_character_goes_on_from_a_client_of_http_2(edge: Edge, byte: int) -> None:
    edge.arrived.requests.clear()
    wire = edge.over_tls(edge.connect(), protocols=("h2",))
    opening = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + _frame(4, 0, 0, b"")
    crooked = _http_2_request(1, "/v1/completions", ALICE, b"{}", f"a{chr(byte)}b")
    good = _http_2_request(3, "/v1/completions", ALICE, b"{}", "plain")
    wire.sendall(opening + crooked + good)
    found = b""
    while b"ok" not in found and (chunk := wire.recv(65536)):
        found += chunk
    wire.close()
    assert [headers["x-seen"] for *_, headers in edge.arrived.requests] in ([], ["plain"])


@pytest.mark.parametrize(
    ("path", "key", "status"),
    [
        ("/health", ALICE, "200"),
        ("/health", "c" * 40, "401"),
        ("/pause", ALICE, "404"),
        ("/v1/models/../pause", ALICE, "404"),
    ],
)
def test_a_client_of_http_2_is_judged_alike(edge: Edge, path: str, key: str, status: str) -> None:
    words = [
        "curl",
        "-s",
        "--http2",
        "--path-as-is",
        "-o",
        "/dev/null",
        "-w",
        "%{http_version} %{http_code}",
    ]
    words += [
        "--cacert",
        str(edge.folder / "edge_certificate"),
        "-H",
        f"Authorization: Bearer {key}",
    ]
    url = f"https://127.0.0.1:{edge.port}{path}"
    done = subprocess.run([*words, url], capture_output=True, text=True, check=True)
    assert done.stdout == f"2 {status}"


def test_old_forms_of_tls_and_plain_http_are_refused(edge: Edge) -> None:
    words = [
        "openssl",
        "s_client",
        "-connect",
        f"127.0.0.1:{edge.port}",
        "-cipher",
        "ALL:@SECLEVEL=0",
    ]
    for version, code in (("-tls1_1", 1), ("-tls1_2", 0), ("-tls1_3", 0)):
        done = subprocess.run(
            [*words, version], stdin=subprocess.DEVNULL, capture_output=True, check=False
        )
        assert done.returncode == code, version
    assert b"200" not in edge.raw(b"GET /health HTTP/1.0\r\n\r\n", tls=False)


def test_the_log_names_the_key_and_never_holds_it(edge: Edge) -> None:
    assert edge.status("GET /health", "X-Request-Id: seen-1") == 200
    assert edge.status("GET /x\x1b[31m", "X-Request-Id: seen-2") in (400, 404)
    _await(lambda: b"id=seen-1" in edge.log.read_bytes())
    text = edge.log.read_text()
    line = next(line for line in text.splitlines() if "id=seen-1" in line)
    assert "key=alice" in line
    assert "status=200" in line
    assert ALICE not in text
    assert "\x1b" not in text


def test_more_paths_than_a_line_has_words_are_a_configuration(tmp_path: Path) -> None:
    need_program("haproxy", "haproxy")
    (tmp_path / "edge_keys").write_text(digest(ALICE, "alice"))
    front = Front(
        port=free_ports()[0],
        has_tls=False,
        allow=(*ALLOW, *(f"/v1/{number:0190}" for number in range(200))),
        connections_per_address=PER_ADDRESS,
        connections_per_key=AT_ONCE,
        behind="127.0.0.1:9",
        sends_key=False,
    )
    (tmp_path / "haproxy.cfg").write_text(write_config(front))
    environment = {"CREDENTIALS_DIRECTORY": str(tmp_path), "PATH": os.environ["PATH"]}
    subprocess.run(CHECK, cwd=tmp_path, env=environment, check=True)
