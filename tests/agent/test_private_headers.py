"""What is private to a server is told to it alone, and never where everybody on the way can read it."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from infra.agent.host import Host
from infra.agent.staging.sources import open_origin
from infra.agent.staging.web import Hopeless, get, origin_of

SECRET = "Bearer hf_" + "told"
PRIVATE = {"Authorization": SECRET}


class Server(http.server.ThreadingHTTPServer):
    """Answers what it is told to, and remembers who showed what."""

    daemon_threads = True

    def __init__(self, answer: Callable[[str], tuple[int, dict[str, str], bytes]]) -> None:
        self.answer = answer
        self.seen: list[tuple[str, str | None]] = []
        super().__init__(("127.0.0.1", 0), _Handler)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Handler(http.server.BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        self.server.seen.append((self.path, self.headers.get("Authorization")))
        status, headers, body = self.server.answer(self.path)
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Nothing."""


@contextmanager
def serving(answer: Callable[[str], tuple[int, dict[str, str], bytes]]) -> Iterator[Server]:
    server = Server(answer)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()


def test_another_server_is_shown_nothing_and_neither_is_the_first_once_it_was_left() -> None:
    with serving(lambda _: (200, {}, b"x")) as other:
        back = ""
        with serving(lambda _: (302, {"Location": f"{other.url}/a"}, b"")) as first:
            get(f"{first.url}/start", 5.0, None, PRIVATE).close()
            back = first.url
        assert other.seen == [("/a", None)]
        assert origin_of(back) != origin_of(other.url)

    def answer(path: str) -> tuple[int, dict[str, str], bytes]:
        if path == "/end":
            return 200, {}, b"x"
        return 302, {"Location": f"{second.url}/back"}, b""

    with (
        serving(answer) as first,
        serving(lambda _: (302, {"Location": f"{first.url}/end"}, b"")) as second,
    ):
        get(f"{first.url}/start", 5.0, None, PRIVATE).close()
        assert first.seen == [("/start", SECRET), ("/end", None)]


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("https://h/a", "https://H:443/b", True),
        ("https://h", "http://h", False),
        ("https://h", "https://h:8443", False),
        ("http://h:80", "http://h", True),
    ],
)
def test_an_origin_is_scheme_host_and_port(one: str, other: str, *, same: bool) -> None:
    assert (origin_of(one) == origin_of(other)) is same


def test_a_port_that_is_none_is_told() -> None:
    with (
        serving(lambda _: (302, {"Location": "http://h:99999999/"}, b"")) as first,
        pytest.raises(Hopeless, match="names no port"),
    ):
        get(first.url, 5.0)


def test_the_next_page_of_a_listing_that_lies_elsewhere_is_asked_without_the_token(
    tmp_path: Path,
) -> None:
    rows = b'[{"type": "file", "path": "a", "size": 1, "oid": "0"}]'
    with serving(lambda _: (200, {}, rows)) as other:

        def answer(path: str) -> tuple[int, dict[str, str], bytes]:
            if "/revision/" in path:
                return 200, {}, b'{"sha": "c"}'
            return 200, {"Link": f'<{other.url}/tree>; rel="next"'}, rows

        with serving(answer) as hub:
            source = {
                "kind": "huggingface", "endpoint": hub.url, "repository": "a/b", "revision": "main", "token": "hf_told",
            }  # fmt: skip
            open_origin(source, Host(str(tmp_path)), 5.0).list_files()
            assert {shown for _, shown in hub.seen} == {SECRET}
    assert [shown for _, shown in other.seen] == [None]


@pytest.mark.parametrize("kind", ["huggingface", "modelscope"])
def test_a_token_is_not_sent_over_plain_http_unless_the_request_says_so(
    kind: str, tmp_path: Path
) -> None:
    source = {
        "kind": kind,
        "endpoint": "http://192.0.2.9",
        "repository": "a/b",
        "revision": "m",
        "token": "hf_told",
    }
    with pytest.raises(Hopeless, match=r"192\.0\.2\.9 would be sent a token over plain HTTP"):
        open_origin(source, Host(str(tmp_path)), 5.0)
    open_origin({**source, "sends_in_plain": True}, Host(str(tmp_path)), 5.0)
    open_origin({**source, "token": None}, Host(str(tmp_path)), 5.0)
