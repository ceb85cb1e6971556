"""The words of HAProxy: the configuration of a front that asks for keys, and how it is started and checked.

Sources: the HAProxy 2.6 configuration and management manuals (docs.haproxy.org/2.6, checked 2026-11-26); what streams,
limits and refusals do was tried with Debian 12's package 2.6.12-1+deb12u4.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

PACKAGE = "haproxy"
# `http_auth_bearer` is of 2.5; 2.6 is the oldest release that is still mended, and the one that was tried.
OLDEST = "2.6"
CONFIG = "haproxy.cfg"
# The words of the package's own unit: a master that outlives its workers, and says to systemd when it serves.
START = ("haproxy", "-Ws", "-f", CONFIG)
# Where there is no systemd, in a pod: the master stays in the foreground.
START_IN_POD = ("haproxy", "-W", "-db", "-f", CONFIG)
CHECK = ("haproxy", "-c", "-q", "-f", CONFIG)
VERSION_FLAG = "-v"
# Has the master read everything anew: new workers take new requests, old ones end with their last stream.
RELOAD_SIGNAL = "SIGUSR2"
# The folder with what only this process may read; the configuration names it by this variable.
SECRETS_VARIABLE = "CREDENTIALS_DIRECTORY"
KEYS, CERTIFICATE, PRIVATE_KEY = "edge_keys", "edge_certificate", "edge_certificate.key"
ENGINE_KEY_VARIABLE = "MOE_ENGINE_KEY"

# Images are base64 in JSON: a request of 128 MiB holds some thirty photographs.
MAX_BODY_BYTES = 128 * 1024 * 1024
# A request's line and headers; what is longer is answered with 400.
BUFFER_BYTES = 32768
# Two descriptors each, within what a container has where nobody says more.
MAX_CONNECTIONS = 8000
# No limit is on a whole answer. A prompt of a million tokens is silent for minutes before its first one.
IDLE_S = 3700
# How long a client may be silent where it is its turn: in the handshake of TLS, in a body, in taking what it is sent.
# While an answer is awaited it does not run (tried with 2.6.12).
CLIENT_IDLE_S = 60
HEADERS_S = 10
CONNECT_S = 5
KEEP_ALIVE_S = 75
RETRY_AFTER_S = 1
# A worker of before a reload serves its last streams; a client that keeps asking would hold the worker for ever.
OLD_WORKER_S = 86400
# How long an address is counted: connections that it opens (ten seconds' worth of what it may hold), and refusals.
COUNTED_S = 10
# Refusals of one address in that time that stand in the log whole; of further ones one in so many does.
LOGGED_REFUSALS, LOGGED_ONE_OF = 20, 100
# Addresses that are counted at once: more than there are connections, or one of them would not be.
ADDRESSES = "16k"

_GET = ("/health", "/v1/models")
_POST = (
    "/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages", "/v1/embeddings",
)  # fmt: skip
ALLOW = (*_GET, *_POST)
_X_API_KEY_PATH = "/v1/messages"
# A line of a configuration has 64 words at most (include/haproxy/defaults.h 2.6, MAX_LINE_ARGS).
_MOST_PATHS = 32
# What clients may not tell the router: who they are is the front's to say.
_REMOVED = (
    "authorization", "proxy-authorization", "x-api-key", "api-key", "cookie", "forwarded", "x-forwarded-for",
    "x-forwarded-host", "x-forwarded-proto", "x-forwarded-port", "x-real-ip",
)  # fmt: skip
# What is between a client and the front alone (RFC 9110, 7.6.1). HAProxy 2.6 hands a `Connection` on as it came, but
# for `close`: a proxy behind would drop the headers that a client names there, and take part in an upgrade.
_HOP = (
    "connection", "keep-alive", "proxy-connection", "te", "trailer", "upgrade", "http2-settings",
)  # fmt: skip
# HAProxy 2.6.12 hands these on within a value, CR and LF excepted (RFC 9110, 5.5: what takes them is unsafe).
_CONTROL = tuple(f"{byte:02X}" for byte in (*range(0x20), 0x7F) if chr(byte) not in "\t\r\n")
# Of headers, what is looked at in one step: each byte becomes three letters, in one buffer.
_STEP = BUFFER_BYTES // 4
# By the name of OpenAI's API for each status.
_ERRORS: Mapping[int, tuple[str, str]] = {
    400: ("invalid_request_error", "The request is not well formed."),
    401: ("invalid_api_key", "A key is needed, and none that is known here was sent."),
    404: ("not_found", "There is nothing under this path."),
    405: ("method_not_allowed", "This path does not take this method."),
    408: ("timeout", "The request was not sent in time."),
    411: ("length_required", "A request with a body needs Content-Length."),
    413: ("request_too_large", f"A request may have {MAX_BODY_BYTES} bytes at most."),
    429: ("too_many_requests", "This key has as many requests running as it may."),
    502: ("bad_gateway", "What serves the model gave no answer."),
    503: ("unavailable", "What serves the model cannot be reached."),
    504: ("gateway_timeout", "What serves the model was silent for too long."),
}
# Those that HAProxy answers by itself.
_OWN_ERRORS = (400, 408, 502, 503, 504)


@dataclass(frozen=True, slots=True, kw_only=True)
class Front:
    """What a front is made of.

    Args:
        port: what clients dial, on every address.
        has_tls: whether clients speak TLS, with the certificate and key of the secrets' folder.
        allow: the paths that are let through, exact.
        connections_per_key: how many requests of one key run at once.
        connections_per_address: how many connections of one address run no request with a right key.
        behind: `address:port` of what requests go to; a name is resolved once, at the start.
        sends_key: whether requests go on with the engines' key, which `ENGINE_KEY_VARIABLE` holds.
    """

    port: int
    has_tls: bool
    allow: tuple[str, ...]
    connections_per_key: int
    connections_per_address: int
    behind: str
    sends_key: bool


def write_config(front: Front) -> str:
    """The configuration, as text; it holds no secret."""
    sections = [
        ("global", _process()),
        ("defaults", _defaults()),
        ("frontend clients", _frontend(front)),
        (f"backend {_KEYED}", ["stick-table type string len 64 size 10k expire 1h store conn_cur"]),
        (
            f"backend {_ADDRESSES}",
            [_of_addresses(f"conn_cur,conn_rate({COUNTED_S}s),gpc0_rate({COUNTED_S}s)")],
        ),
        (f"backend {_PROVEN}", [_of_addresses("conn_cur")]),
        ("backend serving", _backend(front)),
    ]
    lines = ["# Written by moe-infra; `fab plan` shows what it is made of."]
    for title, words in sections:
        lines += ["", title, *(f"    {word}" for word in words)]
    return "\n".join(lines) + "\n"


def _process() -> list[str]:
    return [
        "log stdout len 4096 format raw local0 info",
        f"maxconn {MAX_CONNECTIONS}",
        f"hard-stop-after {OLD_WORKER_S}s",
        f"tune.bufsize {BUFFER_BYTES}",
        "tune.maxrewrite 4096",
        "ssl-default-bind-options ssl-min-ver TLSv1.2 no-tls-tickets",
        "ssl-default-bind-ciphers ECDHE+AESGCM:ECDHE+CHACHA20",
    ]


def _defaults() -> list[str]:
    return [
        "mode http",
        "log global",
        "option dontlognull",
        "option http-no-delay",  # a token is sent on when it comes
        "option http-server-close",  # what one client's request leaves behind meets nobody else's
        "http-reuse never",
        "retries 0",
        "retry-on none",
        f"timeout http-request {HEADERS_S}s",
        f"timeout http-keep-alive {KEEP_ALIVE_S}s",
        f"timeout connect {CONNECT_S}s",
        f"timeout queue {CONNECT_S}s",
        f"timeout client {CLIENT_IDLE_S}s",
        f"timeout server {IDLE_S}s",
        *(f"http-error status {status} {_body(status)}" for status in _OWN_ERRORS),
    ]


def _frontend(front: Front) -> list[str]:
    tls = (
        f' ssl crt "${{{SECRETS_VARIABLE}}}/{CERTIFICATE}" alpn h2,http/1.1'
        if front.has_tls
        else ""
    )
    lines = [
        f"bind 0.0.0.0:{front.port}{tls}",
        f'log-format "{_LOG}"',
        *_address(front.connections_per_address),
        *_request_id(),
        *_client(),
        # After a reload the worker before knows the keys of before, and a connection of HTTP/2 goes on for as long as
        # its client likes: it ends what it has begun, and begins nothing. The retry comes on another connection.
        _refuse(503, "{ stopping }", f"Retry-After {RETRY_AFTER_S}"),
        _refuse(400, _TWO_KEYS),
        _refuse(401, _STRANGER, "WWW-Authenticate Bearer"),
        f"http-request track-sc2 src table {_PROVEN}",
        *(_refuse(400, f"{{ req.hdrs,{part} -m sub {_bytes()} }}") for part in _parts()),
        *_path(front.allow),
        # beyond 63 bits a length is a negative number to `req.body_size`, and 0 beyond 64
        _refuse(413, f"{{ req.hdr(content-length),length gt {len(str(MAX_BODY_BYTES))} }}"),
        _refuse(413, f"{{ req.body_size gt {MAX_BODY_BYTES} }}"),
        f"http-request track-sc0 var(txn.client) table {_KEYED}",
        _refuse(
            429,
            f"{{ sc_conn_cur(0,{_KEYED}) gt {front.connections_per_key} }}",
            f"Retry-After {RETRY_AFTER_S}",
        ),
        # one form for everything behind: no scheme and host in the request's line
        "http-request set-uri %[pathq]",
        *(f"http-request del-header {name}" for name in (*_REMOVED, *_HOP)),
    ]
    if front.sends_key:
        # not ${…}: what a key holds (`%`, `\\`) would be read as words of a format
        lines.append(
            f'http-request set-header Authorization "Bearer %[env({ENGINE_KEY_VARIABLE})]"'
        )
    return [*lines, "default_backend serving"]


# Tables of what is counted: requests of a key, connections of an address, and its requests with a right key.
_KEYED, _ADDRESSES, _PROVEN = "requests_per_key", "connections_per_address", "proven_per_address"
_TWO_KEYS = "{ req.fhdr_cnt(authorization) gt 1 } || { req.fhdr_cnt(x-api-key) gt 1 }"
_STRANGER = "!{ var(txn.client) -m found }"
_LOG = (
    "%ci:%cp key=%[var(txn.client)] id=%[var(txn.id)] %HM %{+Q,+E}[var(txn.path)] status=%ST "
    "bytes=%B/%U times=%TR/%Tw/%Tc/%Tr/%Ta end=%ts"
)


def _request_id() -> list[str]:
    """A client's own id is kept where it is short and plain, and every answer has one.

    No regular expression: where no memory may be written and run, as in the edge's unit, HAProxy compiles none.
    """
    is_plain = (
        "{ req.fhdr_cnt(x-request-id) eq 1 } { var(txn.asked),length -m int 1:128 } "
        "{ var(txn.asked),url_enc,strcmp(txn.asked) eq 0 }"
    )
    return [
        "http-request set-var(txn.asked) req.fhdr(x-request-id)",
        f"http-request set-var(txn.id) var(txn.asked) if {is_plain}",
        "http-request set-var(txn.id) uuid() unless { var(txn.id) -m found }",
        "http-request set-header X-Request-Id %[var(txn.id)]",
        "http-after-response set-header X-Request-Id %[var(txn.id)]",
        "http-request set-var(txn.path) path",
    ]


def _address(at_once: int) -> list[str]:
    """What one address may hold and open before a key was seen; a request with a right key is not held against it.

    A connection beyond that is closed before its TLS begins, without a line in the log.
    """
    return [
        f"tcp-request connection track-sc1 src table {_ADDRESSES}",
        f"tcp-request connection set-var(sess.proven) src_conn_cur({_PROVEN})",
        f"tcp-request connection reject if {{ sc_conn_cur(1,{_ADDRESSES}),sub(sess.proven) gt {at_once} }}",
        f"tcp-request connection reject if {{ sc_conn_rate(1,{_ADDRESSES}) gt {at_once * COUNTED_S} }}",
    ]


def _client() -> list[str]:
    """The name that belongs to a key. Only digests are compared: how long it takes tells nothing of a key.

    Of an address that is refused again and again the log has some lines, not all.
    """
    name = f'sha2(256),hex,lower,map("${{{SECRETS_VARIABLE}}}/{KEYS}")'
    anthropic = f"{{ path {_X_API_KEY_PATH} }} {{ req.hdr_cnt(authorization) eq 0 }} {{ req.hdr_cnt(x-api-key) eq 1 }}"
    is_often = (
        f"{{ sc_gpc0_rate(1,{_ADDRESSES}) gt {LOGGED_REFUSALS} }} {{ rand({LOGGED_ONE_OF}) gt 0 }}"
    )
    return [
        f"http-request set-var(txn.client) http_auth_bearer,{name}",
        f"http-request set-var(txn.client) req.fhdr(x-api-key),{name} if {anthropic}",
        f"http-request unset-var(txn.client) if {_TWO_KEYS}",
        f"http-request sc-inc-gpc0(1) if {_STRANGER}",
        f"http-request set-log-level silent if {_STRANGER} {is_often}",
    ]


def _parts() -> Iterable[str]:
    """The bytes of all headers, as two letters and a point each; whatever a buffer holds is in one of the parts."""
    return (f"bytes({start},{_STEP + 1}),be2hex(.,1)" for start in range(0, BUFFER_BYTES, _STEP))


def _bytes() -> str:
    return " ".join(f"{byte}." for byte in _CONTROL)


def _path(allow: Iterable[str]) -> Iterable[str]:
    """Exact paths alone: what is encoded, doubled or climbs is another text, and nothing is decoded before."""
    listed = list(allow)
    asked = [path for path in listed if path in _GET]
    posted = [path for path in listed if path in _POST]
    for index in range(0, len(listed), _MOST_PATHS):  # lines of one name add up
        yield f"acl allowed path -m str {' '.join(listed[index : index + _MOST_PATHS])}"
    yield _refuse(404, "!allowed")
    for method, paths in (("GET", asked), ("POST", posted)):
        if paths:
            name = f"takes_{method.lower()}"
            yield f"acl {name} path -m str {' '.join(paths)}"
            yield _refuse(405, f"{name} !{{ method {method} }}", f"Allow {method}")
    yield _refuse(405, "!{ method GET POST }", 'Allow "GET, POST"')
    # a length that is told first can be bounded
    yield _refuse(411, "{ req.hdr_cnt(transfer-encoding) gt 0 }")
    yield _refuse(411, "{ method POST } !{ req.hdr_cnt(content-length) eq 1 }")


def _of_addresses(counters: str) -> str:
    return f"stick-table type ip size {ADDRESSES} expire 1m store {counters}"


def _backend(front: Front) -> list[str]:
    return [f"server behind {front.behind}"]


def _refuse(status: int, condition: str, header: str = "") -> str:
    name, _, value = header.partition(" ")
    told = f" hdr {name} {value}" if header else ""
    return f"http-request return status {status} {_body(status)}{told} if {condition}"


def _body(status: int) -> str:
    """An error as OpenAI's API spells one; braces and quotes are escaped for HAProxy's words."""
    code, message = _ERRORS[status]
    error = {"message": message, "type": "invalid_request_error", "param": None, "code": code}
    text = json.dumps({"error": error}).replace("'", "")
    return f"content-type application/json string '{text}'"
