"""Files of one checkpoint from host to host: plain HTTP on the hosts' own network, while they still arrive.

`GET /<token>/file/<name>` with a range gives what is there and waits for the rest. Nothing but files of the manifest
is served, to nobody but the hosts of this staging, and not without the token, for as long as the staging runs. What a
peer sends is held against the checksums of the operator's request. A flood costs its own address places (`doors`).
"""

import hmac
import http.server
import os
import re
import select
import socket
import socketserver
import threading
import time
import urllib.parse
from typing import Any, Dict, Optional, Tuple

from ..doors import Doors, family_of, own_source
from .transfers import Transfer
from .web import Answer, Hopeless, Unanswered, get, range_header, skip_to

SEND_BYTES = 1 << 20
SILENT_S = 60.0
NUM_PARTS = 4  # "", token, "file", name
# A peer opens one connection per stream. A request has so long to be whole, and so many bytes.
PER_ADDRESS = 64
REQUEST_S = 5.0
MAX_REQUEST = 16384
RANGE = re.compile(r"^bytes=(\d+)-$")


class PeerServer(socketserver.ThreadingMixIn, http.server.HTTPServer):
    """Serves files on their way.

    Args:
        address: of this host, as its peers dial it, and the port.
        token: what they must know.
        transfers: by file name.
        members: the address of every host that may dial, by name.
    """

    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 128

    def __init__(
        self,
        address: Tuple[str, int],
        token: str,
        transfers: Dict[str, Transfer],
        members: Dict[str, str],
    ) -> None:
        """Listen; `serve_forever` answers."""
        self.doors = Doors(members, PER_ADDRESS)
        self.token = token
        self.transfers = transfers
        self.num_open = 0
        self.last_asked = time.monotonic()
        self.guard = threading.Lock()
        self.address_family = family_of(address[0])
        http.server.HTTPServer.__init__(self, address, _Handler)

    def server_bind(self) -> None:
        """Bind without asking a name server who we are."""
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = "", self.server_address[1]

    def get_request(self) -> Tuple[socket.socket, Any]:
        """A connection of a host of ours; any other one ends here, unread.

        Raises:
            OSError: there is none now, which the server's loop takes for what it is.
        """
        wire, address = self.socket.accept()
        if not self.doors.admit(wire, str(address[0])):
            raise ConnectionError
        return wire, address

    def process_request(self, request: Any, client_address: Any) -> None:
        """Begin a thread; where the host has none left, the connection ends."""
        try:
            super().process_request(request, client_address)
        except RuntimeError:
            self.shutdown_request(request)

    def shutdown_request(self, request: Any) -> None:
        """A connection is over, and its place is free."""
        self.doors.leave(request)
        super().shutdown_request(request)

    def service_actions(self) -> None:
        """Now and then: end the connections whose request does not come."""
        self.doors.hang_up_late(REQUEST_S)
        news = self.doors.news()
        if news:
            print(news, flush=True)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A peer that hangs up is no news."""

    def idle_s(self) -> float:
        """How long nobody has wanted anything, in seconds."""
        with self.guard:
            return 0.0 if self.num_open else time.monotonic() - self.last_asked

    def began(self, change: int) -> None:
        """One answer more, or one less, is under way."""
        with self.guard:
            self.num_open += change
            self.last_asked = time.monotonic()


class Request:
    """The lines of a request, so many bytes in all; behind them it seems to end."""

    def __init__(self, stream: Any) -> None:
        """Read them from a stream."""
        self._stream, self._left = stream, MAX_REQUEST
        self.close = stream.close

    def readline(self, limit: int) -> bytes:
        """The next line, or what of it there is room for."""
        line: bytes = self._stream.readline(min(limit, self._left))
        self._left -= len(line)
        return line


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.0"
    timeout = SILENT_S
    server: Any = None

    def setup(self) -> None:
        """Read a request, and no more than one can hold."""
        super().setup()
        self.rfile: Any = Request(self.rfile)

    def do_GET(self) -> None:
        """Answer one request."""
        words = self.path.split("/", 3)
        if (
            len(words) != NUM_PARTS
            or words[2] != "file"
            or not hmac.compare_digest(
                words[1].encode("utf-8", "replace"), self.server.token.encode("ascii")
            )
        ):
            self.server.doors.count("without the token")
            self.send_error(404)
            return
        transfer = self.server.transfers.get(urllib.parse.unquote(words[3]))
        if transfer is None:
            self.send_error(404)
            return
        self.server.doors.prove(self.connection)
        self.server.began(1)
        try:
            self._send_file(transfer)
        finally:
            self.server.began(-1)

    def _send_file(self, transfer: Transfer) -> None:
        match = RANGE.match(self.headers.get("Range") or "bytes=0-")
        offset = int(match.group(1)) if match else 0
        size = transfer.entry.size_bytes
        if offset > size or transfer.is_given_up:
            self.send_error(410 if transfer.is_given_up else 416)
            return
        beginning = transfer.beginning()
        self.send_response(206 if offset else 200)
        self.send_header("Content-Length", str(size - offset))
        self.end_headers()
        self.wfile.flush()
        handle: Optional[int] = None
        try:
            while offset < size:
                count = transfer.await_bytes(offset, beginning)
                if count <= 0:
                    return
                if handle is None:
                    handle = _open(transfer)
                sent = _send(self.connection, handle, offset, min(count, SEND_BYTES))
                if not sent:
                    return
                offset += sent
        finally:
            if handle is not None:
                os.close(handle)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - its parent's name
        """A line per request would be a line per file and peer."""


class Peer:
    """Another host that has the files, or is getting them.

    Args:
        name: the host's.
        address: where it serves.
        token: of this staging.
        timeout_s: how long it may be silent.
        own: this host's address, which it knows it by; None where it serves none.
    """

    def __init__(
        self, name: str, address: str, token: str, timeout_s: float, own: Optional[str]
    ) -> None:
        """Keep where it is; nothing is asked yet."""
        self.endpoint = name
        self._base = "http://{}/{}".format(address, token)
        self._timeout_s = timeout_s
        self._source = None if own is None else own_source(own, address.rpartition(":")[0])

    def open_file(self, name: str, offset: int) -> Answer:
        """A file from a byte on; more of it may still be on its way there."""
        url = "{}/file/{}".format(self._base, urllib.parse.quote(name))
        try:
            answer = get(url, self._timeout_s, range_header(offset), source=self._source)
        except Unanswered as error:
            raise Hopeless(str(error)) from error
        except Hopeless as error:
            raise Hopeless("it has failed itself, or is another staging") from error
        skip_to(answer, offset)
        return answer


def _open(transfer: Transfer) -> int:
    """A descriptor of a file that may be renamed at this moment."""
    try:
        return transfer.open_it()
    except FileNotFoundError:
        time.sleep(0.1)
        return transfer.open_it()


def _send(connection: socket.socket, handle: int, offset: int, count: int) -> int:
    """Send a piece of a file; 0 when the peer takes nothing any more."""
    while True:
        try:
            return os.sendfile(connection.fileno(), handle, offset, count)
        except BlockingIOError:
            poll = select.poll()
            poll.register(connection.fileno(), select.POLLOUT)
            if not poll.poll(SILENT_S * 1000):
                return 0
