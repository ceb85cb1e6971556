"""HTTP for large files: redirects, ranges, credentials that stay with the server they were given for."""

import http.client
import ssl
import urllib.parse
from typing import Any, Dict, Optional, Tuple

from ..host import Refused

MAX_REDIRECTS = 8
REDIRECTS = (301, 302, 303, 307, 308)
HOPELESS = (400, 401, 403, 404, 405, 410, 416, 451)
MAX_DOCUMENT_BYTES = 64 << 20
MAX_QUOTED = 160


class Answer:
    """A response whose body is about to be read.

    Args:
        response: status, headers and body.
        url: where it came from in the end.
    """

    def __init__(
        self, connection: http.client.HTTPConnection, response: http.client.HTTPResponse, url: str
    ) -> None:
        """Take over the connection."""
        self.response = response
        self.url = url
        self._connection = connection

    def readinto(self, view: memoryview) -> int:
        """Take what has come, at most a buffer of it; 0 at the end.

        The response's own `readinto` waits until the buffer is full, on every host of a chain.
        """
        if self.response.chunked:
            return self.response.readinto(view)
        stream: Any = getattr(self.response, "fp", None)  # None once an empty body was announced
        return 0 if stream is None else int(stream.readinto1(view))

    def close(self) -> None:
        """Hang up."""
        self.response.close()
        self._connection.close()


class Hopeless(Refused):
    """The server has answered, and asking again would get the same answer."""


class Unanswered(Exception):
    """The server answers with an error that may pass."""


def get(
    url: str,
    timeout_s: float,
    headers: Optional[Dict[str, str]] = None,
    private: Optional[Dict[str, str]] = None,
    source: Optional[Tuple[str, int]] = None,
) -> Answer:
    """The answer to a GET with its body unread; redirects are followed.

    Args:
        url: http or https.
        timeout_s: how long the server may be silent.
        headers: sent to every server on the way.
        private: sent to the first server alone, and as safely as there: a store would refuse, and log, the hub's token.
        source: where to dial from, None for wherever the route begins.

    Raises:
        Hopeless: the server refuses for good.
        Unanswered: it refuses for now.
        OSError: it cannot be reached, or is silent.
    """
    first = origin_of(url)
    for _ in range(MAX_REDIRECTS):
        parts = urllib.parse.urlsplit(url)
        sent = dict(headers or {}, **{"Accept-Encoding": "identity", "User-Agent": "moe-infra"})
        sent["Connection"] = "close"  # so that the end of a body is the end of what comes
        if origin_of(url) != first:
            private = None  # for good: whoever sends back has chosen what is asked for
        sent.update(private or {})
        connection = _connect(parts, timeout_s, source)
        try:
            target = urllib.parse.urlunsplit(("", "", parts.path or "/", parts.query, ""))
            connection.request("GET", target, headers=sent)
            response = connection.getresponse()
        except BaseException:
            connection.close()
            raise
        location = response.getheader("Location")
        if response.status in REDIRECTS and location:
            connection.close()
            url = urllib.parse.urljoin(url, location)
            if parts.scheme == "https" and urllib.parse.urlsplit(url).scheme != "https":
                raise Hopeless("{} sends on to plain HTTP".format(_place(first)))
            continue
        if response.status in (200, 206):
            return Answer(connection, response, url)
        raise _refusal(connection, response, url)
    raise Hopeless("{} redirects more than {} times".format(_place(first), MAX_REDIRECTS))


def origin_of(url: str) -> str:
    """Scheme, host and port of an address: what is told to one origin is told to no other."""
    parts = urllib.parse.urlsplit(url)
    try:
        port = parts.port or {"http": 80, "https": 443}.get(parts.scheme)
    except ValueError as error:
        raise Hopeless("{} names no port".format(_place(url))) from error
    return "{}://{}:{}".format(parts.scheme, (parts.hostname or "").lower(), port)


def refuse_in_plain(url: str) -> None:
    """Refuse to send what is private where everybody on the way can read it; this host itself is no way.

    Raises:
        Hopeless: the address is one of plain HTTP.
    """
    parts = urllib.parse.urlsplit(url)
    if parts.scheme != "https" and parts.hostname not in ("127.0.0.1", "::1", "localhost"):
        raise Hopeless("{} would be sent a token over plain HTTP".format(_place(url)))


def get_document(answer: Answer) -> bytes:
    """The whole body of an answer."""
    try:
        return answer.response.read(MAX_DOCUMENT_BYTES)
    finally:
        answer.close()


def skip_to(answer: Answer, offset: int) -> None:
    """Bring an answer to a range that its server did not honour to the wanted byte."""
    if offset == 0 or answer.response.status == http.client.PARTIAL_CONTENT:
        return
    view = memoryview(bytearray(1 << 20))
    while offset > 0:
        count = answer.readinto(view[: min(offset, len(view))])
        if not count:
            raise Unanswered("{} ends before byte {}".format(_place(answer.url), offset))
        offset -= count


def range_header(offset: int) -> Dict[str, str]:
    """The header that asks for everything from a byte on."""
    return {"Range": "bytes={}-".format(offset)} if offset else {}


def _connect(
    parts: urllib.parse.SplitResult, timeout_s: float, source: Optional[Tuple[str, int]]
) -> http.client.HTTPConnection:
    if parts.scheme == "https":
        context = ssl.create_default_context()
        return http.client.HTTPSConnection(parts.netloc, timeout=timeout_s, context=context)
    if parts.scheme == "http":
        return http.client.HTTPConnection(parts.netloc, timeout=timeout_s, source_address=source)
    raise Hopeless("{}:// is not a way to fetch weights".format(parts.scheme))


def _refusal(
    connection: http.client.HTTPConnection, response: http.client.HTTPResponse, url: str
) -> Exception:
    try:
        words = " ".join(response.read(2000).decode("utf-8", "replace").split())[:MAX_QUOTED]
    except (OSError, http.client.HTTPException):
        words = ""
    connection.close()
    text = "{} answers {} {}".format(_place(url), response.status, response.reason)
    text += ": {}".format(words) if words else ""
    return Hopeless(text) if response.status in HOPELESS else Unanswered(text)


def _place(url: str) -> str:
    """A URL without its query: signed ones carry credentials there."""
    parts = urllib.parse.urlsplit(url)
    return "{}://{}{}".format(parts.scheme, parts.netloc, parts.path)
