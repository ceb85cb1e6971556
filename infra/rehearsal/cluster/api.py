"""The API of a room's Kubernetes, spoken by the stand-ins of the room and by whoever looks at it."""

from __future__ import annotations

import http.client
import json
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

Document = dict[str, Any]  # an object of the API, as JSON has it

NOT_FOUND, CONFLICT = 404, 409
_NOT_NOW = (429, 503)
AGAIN_S = 0.1
_WATCH_S = 300
_CONTENT = {
    "merge": "application/merge-patch+json",
    "strategic": "application/strategic-merge-patch+json",
    "apply": "application/apply-patch+yaml",
}


class RefusedError(Exception):
    """The API server said no.

    Args:
        code: of HTTP.
        said: its message.
    """

    def __init__(self, code: int, said: str) -> None:
        super().__init__(f"{code}: {said}")
        self.code = code
        self.said = said


class Api:
    """One API server, from any thread."""

    def __init__(self, port: int, *, token: str, certificate: Path) -> None:
        """Dial nothing yet.

        Args:
            port: on loopback.
            token: whose bearer may do everything.
            certificate: that the server shows.
        """
        self.port = port
        self._headers = {"Authorization": f"Bearer {token}", "Accept": "application/json"}
        self._tls = ssl.create_default_context(cafile=str(certificate))
        self._own = threading.local()
        self._is_over = threading.Event()
        self._dialled: list[http.client.HTTPSConnection] = []  # of all threads

    def end(self) -> None:
        """Let nobody follow anything any more; the server is about to go."""
        self._is_over.set()

    def close(self) -> None:
        """Hang up everywhere; threads that use it must have ended."""
        for connection in self._dialled:
            connection.close()

    def get(self, path: str) -> Document | None:
        """An object, None where there is none of that name."""
        try:
            return self.ask("GET", path)
        except RefusedError as refused:
            if refused.code == NOT_FOUND:
                return None
            raise

    def items(self, path: str, **query: str) -> list[Document]:
        """The objects of a collection."""
        found: list[Document] = self.ask("GET", _with(path, query))["items"]
        return found

    def create(self, path: str, document: Mapping[str, object]) -> Document:
        """Make an object in a collection."""
        return self.ask("POST", path, document)

    def patch(self, path: str, document: Mapping[str, object], *, kind: str = "merge") -> Document:
        """Change an object by a `merge` or `strategic` patch, or `apply` it whole."""
        if kind == "apply":
            path = _with(path, {"fieldManager": "moe-infra-room", "force": "true"})
        return self.ask("PATCH", path, document, _CONTENT[kind])

    def delete(self, path: str, options: Mapping[str, object] | None = None) -> None:
        """Have an object deleted; one that is not there is none."""
        try:
            self.ask("DELETE", path, options)
        except RefusedError as refused:
            if refused.code not in (NOT_FOUND, CONFLICT):
                raise

    def ask(
        self,
        method: str,
        path: str,
        document: Mapping[str, object] | None = None,
        content: str = "application/json",
    ) -> Document:
        """Any request; its answer.

        Raises:
            RefusedError: the server said no.
            OSError: it does not answer, or has no time.
        """
        body = None if document is None else json.dumps(document)
        try:
            status, said = self._exchange(method, path, body, content)
        except http.client.HTTPException as error:
            raise OSError(f"{method} {path}: {error}") from error
        found: Document = json.loads(said) if said.startswith(b"{") else {"message": said.decode()}
        if status in _NOT_NOW:
            raise OSError(f"{method} {path}: {found.get('message')}")
        if status >= http.client.BAD_REQUEST:
            raise RefusedError(status, str(found.get("message")))
        return found

    def follow(self, path: str, handle: Callable[[str, Document], None]) -> None:
        """Hand every object of a collection over, and each of its changes, until `end`.

        Objects come again whenever the server has hung up: `handle` must find nothing to do then.

        Args:
            path: of the collection.
            handle: gets `ADDED`, `MODIFIED` or `DELETED` and the object.

        Raises:
            RefusedError: the server says no, and would go on to.
        """
        while not self._is_over.is_set():
            try:
                listed = self.ask("GET", path)
                for item in listed["items"]:
                    handle("ADDED", item)
                for event in self._changes(path, listed["metadata"]["resourceVersion"]):
                    handle(event["type"], event["object"])
            except OSError:
                self._is_over.wait(AGAIN_S)
            except RefusedError as refused:
                # a kind that was just defined is served a moment later
                if refused.code != NOT_FOUND:
                    raise
                self._is_over.wait(AGAIN_S)

    def _changes(self, path: str, version: str) -> Iterator[Document]:
        """Events after a version, until the server ends the stream or has forgotten that version."""
        query = {"watch": "1", "resourceVersion": version, "timeoutSeconds": str(_WATCH_S)}
        connection = http.client.HTTPSConnection("127.0.0.1", self.port, context=self._tls)
        try:
            connection.request("GET", _with(path, query), headers=self._headers)
            answer = connection.getresponse()
            for line in answer if answer.status == http.client.OK else ():
                event: Document = json.loads(line)
                if event["type"] == "ERROR":
                    return
                yield event
        except http.client.HTTPException as error:
            raise OSError(f"watch of {path}: {error}") from error
        finally:
            connection.close()

    def _exchange(
        self, method: str, path: str, body: str | None, content: str
    ) -> tuple[int, bytes]:
        """Status and text of the answer."""
        connection = self._connection()
        headers = {**self._headers, "Content-Type": content}
        for is_last in (False, True):
            try:
                connection.request(method, path, body, headers)
                answer = connection.getresponse()
                return answer.status, answer.read()
            except (http.client.HTTPException, OSError) as error:
                connection.close()
                # the server hangs up on whoever was silent for long: dialled again, it answers
                if is_last or not isinstance(error, ConnectionError):
                    raise
        raise AssertionError(method)

    def _connection(self) -> http.client.HTTPSConnection:
        """This thread's own; it is dialled again by itself after it was closed."""
        known: http.client.HTTPSConnection | None = getattr(self._own, "connection", None)
        if known is None:
            known = http.client.HTTPSConnection(
                "127.0.0.1", self.port, context=self._tls, timeout=30
            )
            self._own.connection = known
            self._dialled.append(known)
        return known


def _with(path: str, query: Mapping[str, str]) -> str:
    if not query:
        return path
    return f"{path}{'&' if '?' in path else '?'}{urlencode(query)}"
