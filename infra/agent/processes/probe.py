"""The operation `probe`: HTTP requests from the host itself, so that only SSH has to reach it."""

import http.client
import json
import re
import socket
import time
from typing import Dict, List, Optional, Tuple
from urllib.parse import SplitResult, urlsplit

from ..at_once import each_at_once
from ..host import Host, Refused
from . import tls

MAX_BODY_BYTES = 4194304
MAX_TEXT_CHARACTERS = 65536
KEPT_END = 8192
CUT = "\n...\n"
CHUNK_BYTES = 65536
DEFAULT_S = 10.0
# Between two tries of a probe that is repeated until it is answered.
AGAIN_S = 0.1
MAX_PARALLEL = 64
FIRST_ERROR_STATUS = 400

Step = Dict[str, object]
Answer = Dict[str, object]


def answer(request: Dict[str, object], _host: Host) -> Dict[str, object]:
    """Run every probe, several at a time; the steps of one follow each other.

    With `until_s` a probe that fails is tried again for so long: whoever waits for an endpoint learns of it at once.
    """
    listed = request.get("probes")
    probes = listed if isinstance(listed, list) else []
    deadline = time.monotonic() + float(str(request.get("until_s") or 0.0))
    parallel = min(int(str(request.get("parallel") or 16)), MAX_PARALLEL)
    answers = each_at_once(lambda probe: _probe_until(probe, deadline), probes, parallel)
    return {"schema_version": 1, "probes": answers}


def _probe_until(probe: Dict[str, object], deadline: float) -> Dict[str, object]:
    """The answers of a probe, of the first time that nothing failed or of the last before the deadline."""
    while True:
        answered = _probe(probe)
        steps = answered["steps"]
        is_good = isinstance(steps, list) and not any(_has_failed(step) for step in steps)
        if is_good or time.monotonic() + AGAIN_S > deadline:
            return answered
        time.sleep(AGAIN_S)


def _has_failed(answered: Answer) -> bool:
    status = answered["status"]
    return not isinstance(status, int) or status >= FIRST_ERROR_STATUS or bool(answered["error"])


def _probe(probe: Dict[str, object]) -> Dict[str, object]:
    """The answers of a probe's steps; it ends at the first that fails."""
    listed = probe.get("steps")
    answers: List[Answer] = []
    for step in listed if isinstance(listed, list) else []:
        begun = time.monotonic()
        try:
            answered = _send(step, answers)
        except Refused as error:
            answered = {"status": None, "body": None, "error": str(error)}
        except (OSError, http.client.HTTPException, ValueError) as error:
            answered = {"status": None, "body": None, "error": _words(error)}
        answered["elapsed_s"] = round(time.monotonic() - begun, 6)
        answers.append(answered)
        if _has_failed(answered):
            break
    return {"id": probe.get("id"), "steps": answers}


def _send(step: Step, earlier: List[Answer]) -> Answer:
    """One request and its whole answer, within the step's time."""
    url = urlsplit(str(step["url"]))
    if url.scheme not in ("http", "https") or url.hostname is None:
        raise Refused("{} is not an http:// or https:// address".format(step["url"]))
    deadline = time.monotonic() + float(str(step.get("timeout_s") or DEFAULT_S))
    body = merged_body(step, earlier)
    given = step.get("headers")
    headers = dict(given) if isinstance(given, dict) else {}
    if body is not None:
        headers.setdefault("Content-Type", "application/json")
    path = (url.path or "/") + ("?" + url.query if url.query else "")
    connection = _connection(url, deadline)
    first: List[float] = []
    try:
        connection.connect()
        wire = connection.sock  # the connection forgets it when the answer says `close`
        if url.scheme == "https":
            tls.refuse_other(wire, step.get("certificate"))
        begun = time.monotonic()
        connection.request(str(step.get("method") or "GET"), path, body=body, headers=headers)
        wire.settimeout(_left(deadline))
        response = connection.getresponse()
        content, error = _read(wire, response, deadline, first)
    finally:
        connection.close()
    keep = step.get("keep")
    return {
        "status": response.status,
        "body": parsed_body(content, None if keep is None else str(keep)),
        "error": error,
        "first_byte_s": round(first[0] - begun, 6) if first else None,
    }


def _connection(url: SplitResult, deadline: float) -> http.client.HTTPConnection:
    host, left = url.hostname or "", _left(deadline)
    if url.scheme == "http":
        return http.client.HTTPConnection(host, url.port, timeout=left)
    return tls.connection(host, url.port or 443, left)


def merged_body(step: Step, earlier: List[Answer]) -> Optional[bytes]:
    """The body to send, with a key of an earlier step's answer copied into it.

    Raises:
        Refused: that answer does not have the key.
    """
    body, merge = step.get("body"), step.get("merge")
    if isinstance(merge, dict):
        key, source = str(merge["key"]), earlier[int(merge["from_step"])]["body"]
        if not isinstance(source, dict) or source.get(key) is None:
            message = "the answer of step {} has no {}"
            raise Refused(message.format(merge["from_step"], key))
        body = dict(body if isinstance(body, dict) else {})
        body[key] = source[key]
    return None if body is None else json.dumps(body).encode("utf-8")


def parsed_body(content: bytes, keep: Optional[str]) -> object:
    """JSON where it is JSON, else its text; `keep` leaves only the lines that match it."""
    text = content.decode("utf-8", "replace")
    if keep is not None:
        pattern = re.compile(keep)
        text = "\n".join(line for line in text.splitlines() if pattern.search(line))
        return shortened(text)
    try:
        return json.loads(text)
    except ValueError:
        return shortened(text)


def shortened(text: str) -> str:
    """The beginning and the end of a long text: how a stream ended stands at its end."""
    if len(text) <= MAX_TEXT_CHARACTERS:
        return text
    return text[: MAX_TEXT_CHARACTERS - KEPT_END - len(CUT)] + CUT + text[-KEPT_END:]


def _read(
    wire: socket.socket, response: http.client.HTTPResponse, deadline: float, first: List[float]
) -> Tuple[bytes, Optional[str]]:
    """The body, and why it is not whole; a drip of bytes cannot go past the deadline.

    When its first byte came is put into `first`.
    """
    content = b""
    while len(content) < MAX_BODY_BYTES:
        try:
            wire.settimeout(_left(deadline))
            chunk = response.read1(CHUNK_BYTES)
        except OSError as error:
            message = "the answer stopped after {} bytes: {}"
            return content, message.format(len(content), _words(error))
        if not chunk:
            return content, None
        if not first:
            first.append(time.monotonic())
        content += chunk
    return content, "the answer is larger than {} bytes".format(MAX_BODY_BYTES)


def _left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise OSError("timed out")
    return left


def _words(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) or type(error).__name__
