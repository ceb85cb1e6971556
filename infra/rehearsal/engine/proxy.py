"""Stands in for vllm-ascend's load_balance_proxy_server_example.py: same arguments, same protocol."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import AsyncIterator, Iterator
from typing import Any, NamedTuple

from .failures import Failed, Refused
from .http_server import OK, Request, Response, json_response, serve_http
from .log import Log
from .loop import Future, Loop
from .openai_api import new_id
from .streams import bind
from .web_client import Answer
from .web_client import request as send

NO_TRANSFER: dict[str, Any] = {
    "do_remote_decode": True,
    "do_remote_prefill": False,
    "remote_engine_id": None,
    "remote_block_ids": None,
    "remote_host": None,
    "remote_port": None,
    "aborted_request": [],
    "metaserver": None,
}
ALIASES = ("localhost", "127.0.0.1", "0.0.0.0")


class Server:
    """One engine behind the proxy."""

    def __init__(self, host: str, port: int) -> None:
        self.host, self.port = host, port
        self.load = 0.0
        self.is_tainted = False

    @property
    def key(self) -> tuple[str, int]:
        """What identifies an engine; the proxy takes the names of this host for one."""
        return ("0.0.0.0" if self.host in ALIASES else self.host, self.port)

    @property
    def url(self) -> str:
        """Where the engine answers."""
        return f"http://{self.host}:{self.port}"


class Tuning(NamedTuple):
    """Retry behaviour."""

    max_retries: int
    retry_delay: float
    max_waiting_retries: int
    waiting_retry_interval: float


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> Any:
        raise Refused(self.format_usage(), self.prog, message)


def run_proxy(argv: list[str]) -> None:
    """Serve until a signal ends the process.

    Raises:
        Refused: argparse's verdict.
        Failed: host and port lists differ in length, or the port is taken.
    """
    options = _parse(argv)
    loop = Loop()
    proxy = Proxy(loop, options)
    try:
        listener = bind(options.host, options.port)
        listener.listen(512)
    except OSError as error:
        text = f"error while attempting to bind on address ('{options.host}', {options.port})"
        raise Failed(
            "ERROR", f"[Errno {error.errno}] {text}: {(error.strerror or '').lower()}", ""
        ) from error
    serve_http(loop, listener, proxy.handle)
    sys.stdout.write(f"INFO:     Uvicorn running on http://{options.host}:{options.port}\n")
    sys.stdout.flush()
    loop.run(_for_ever())


async def _for_ever() -> None:
    await Future[None]()


def _parse(argv: list[str]) -> argparse.Namespace:
    parser = _Parser(prog="load_balance_proxy_server_example.py")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--host", type=str, default="localhost")
    parser.add_argument("--prefiller-hosts", type=str, nargs="+", default=["localhost"])
    parser.add_argument("--prefiller-ports", type=int, nargs="+", default=[8001])
    parser.add_argument("--decoder-hosts", type=str, nargs="+", default=["localhost"])
    parser.add_argument("--decoder-ports", type=int, nargs="+", default=[8002])
    parser.add_argument("--max-retries", type=int, default=3)
    parser.add_argument("--retry-delay", type=float, default=0.001)
    parser.add_argument("--max-waiting-retries", type=int, default=3)
    parser.add_argument("--waiting-retry-interval", type=float, default=10)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--log-level", type=str, default="info")
    options = parser.parse_args(argv)
    for noun in ("prefiller", "decoder"):
        hosts, ports = getattr(options, f"{noun}_hosts"), getattr(options, f"{noun}_ports")
        if len(hosts) != len(ports):
            message = f"Number of {noun} hosts must match number of {noun} ports"
            raise Failed("ValueError", message, process="")
    return options


class Proxy:
    """Chooses engines and passes requests on."""

    def __init__(self, loop: Loop, options: argparse.Namespace) -> None:
        self._loop = loop
        self._log = Log("")

        def pairs(noun: str) -> Iterator[tuple[str, int]]:
            hosts, ports = getattr(options, f"{noun}_hosts"), getattr(options, f"{noun}_ports")
            return zip(hosts, ports)  # noqa: B905 - not in Python 3.9; lengths are checked

        self.prefillers = [Server(*pair) for pair in pairs("prefiller")]
        self.decoders = [Server(*pair) for pair in pairs("decoder")]
        self._tuning = Tuning(
            max(1, options.max_retries),
            options.retry_delay,
            options.max_waiting_retries,
            options.waiting_retry_interval,
        )
        self._num_requests = 0

    async def handle(self, request: Request) -> Response:
        """Answer a request."""
        if request.path == "/healthcheck":
            return json_response(
                {
                    "status": "ok",
                    "prefill_instances": len(self.prefillers),
                    "decode_instances": len(self.decoders),
                    "request_num": self._num_requests,
                }
            )
        if request.path in ("/v1/completions", "/v1/chat/completions") and request.method == "POST":
            return await self._complete(request)
        if request.path == "/v1/models":
            return await self._forward_models()
        if request.path in ("/instances/add", "/instances/remove") and request.method == "POST":
            return await self._change(request)
        if request.path == "/reset_prefix_cache" and request.method == "POST":
            for server in [*self.prefillers, *self.decoders]:
                await self._send(server, "POST", request.path, b"", new_id())
            return json_response({"status": "ok"})
        return json_response({"detail": "Not Found"}, 404)

    async def _complete(self, request: Request) -> Response:
        try:
            body = request.json()
        except ValueError:
            return json_response({"detail": "Internal Server Error"}, 500)
        self._num_requests += 1
        is_handed_on = False
        try:
            identity = new_id()
            try:
                params = await self._prefill(request, body, identity)
                answer, server = await self._decode(
                    request, {**body, "kv_transfer_params": params}, identity
                )
            except (OSError, ValueError) as error:
                self._log.complain("proxy", f"{type(error).__name__}: {error}")
                return json_response({"detail": "Internal Server Error"}, 500)
            content_type = answer.headers.get("content-type", "application/json")
            if not body.get("stream"):
                text = await answer.read()
                server.load -= len(request.body)
                return Response(answer.status, text, content_type)
            is_handed_on = True
            return Response(
                answer.status, b"", content_type, self._relay(answer, server, len(request.body))
            )
        finally:
            if not is_handed_on:
                self._finished()

    async def _relay(self, answer: Answer, server: Server, weight: int) -> AsyncIterator[bytes]:
        try:
            async for chunk in answer.chunks():
                yield chunk
        finally:
            server.load -= weight
            self._finished()

    def _finished(self) -> None:
        self._num_requests -= 1
        if self._num_requests == 0:
            self.prefillers[:] = [x for x in self.prefillers if not x.is_tainted]
            self.decoders[:] = [x for x in self.decoders if not x.is_tainted]

    async def _prefill(self, request: Request, body: dict[str, Any], identity: str) -> Any:
        """Have the prompt computed; return what the prefill engine says about its blocks."""
        content = {
            **body,
            "stream": False,
            "max_tokens": 1,
            "min_tokens": 1,
            "kv_transfer_params": NO_TRANSFER,
        }
        content.pop("stream_options", None)
        if "max_completion_tokens" in content:
            content["max_completion_tokens"] = 1
        server = _least_loaded(self.prefillers)
        server.load += len(request.body)
        try:
            answer = await self._send(
                server, "POST", request.path, json.dumps(content).encode(), identity
            )
            text = await answer.read()
        finally:
            server.load -= len(request.body)
        if answer.status != OK:
            raise ValueError(f"prefill {server.url} answered {answer.status}: {text[:300]!r}")
        return json.loads(text).get("kv_transfer_params") or {}

    async def _decode(
        self, request: Request, body: dict[str, Any], identity: str
    ) -> tuple[Answer, Server]:
        server = _least_loaded(self.decoders)
        server.load += len(request.body)
        answer = await self._send(server, "POST", request.path, json.dumps(body).encode(), identity)
        return answer, server

    async def _send(
        self, server: Server, method: str, path: str, body: bytes, identity: str
    ) -> Answer:
        headers = {
            "content-type": "application/json",
            "authorization": f"Bearer {os.environ.get('OPENAI_API_KEY')}",
            "x-request-id": identity,
        }
        for attempt in range(self._tuning.max_retries):
            try:
                return await send(self._loop, method, server.url + path, headers, body)
            except OSError as error:
                self._log.caution(
                    "proxy", f"Attempt {attempt + 1} failed for {path} on {server.url}: {error}"
                )
                await self._loop.sleep(self._tuning.retry_delay * 2**attempt)
        raise ConnectionError(f"All connection attempts failed: {server.url}")

    async def _forward_models(self) -> Response:
        try:
            answer = await self._send(self.prefillers[0], "GET", "/v1/models", b"", new_id())
        except OSError:
            return json_response({"detail": "Internal Server Error"}, 500)
        return Response(answer.status, await answer.read())

    async def _change(self, request: Request) -> Response:
        try:
            body = request.json() or {}
            names = body.get("instances", [])
            pairs = [x.rsplit(":", 1) for x in ([names] if isinstance(names, str) else names)]
            servers = [Server(host, int(port)) for host, port in pairs]
        except (ValueError, AttributeError):
            return json_response({"error": "instances are written host:port"}, 400)
        if body.get("type") not in ("prefill", "decode"):
            return json_response({"error": f"Unsupported instance type: {body.get('type')}"}, 400)
        pool = self.prefillers if body["type"] == "prefill" else self.decoders
        if request.path.endswith("/add"):
            for server in servers:
                self._loop.spawn(self._add(pool, server))
            return json_response({"message": f"waiting for {len(servers)} instances"})
        keys = {server.key for server in servers}
        for server in pool:
            server.is_tainted = server.is_tainted or server.key in keys
        if self._num_requests == 0:
            pool[:] = [x for x in pool if not x.is_tainted]
        return json_response({"message": f"removing {len(servers)} instances"})

    async def _add(self, pool: list[Server], server: Server) -> None:
        for _ in range(self._tuning.max_waiting_retries):
            try:
                answer = await send(self._loop, "GET", f"{server.url}/v1/models", {})
                await answer.read()
            except OSError:
                await self._loop.sleep(self._tuning.waiting_retry_interval)
            else:
                if answer.status == OK and server.key not in {x.key for x in pool}:
                    pool.append(server)
                return


def _least_loaded(servers: list[Server]) -> Server:
    """Return the engine with the least load; among equals the one that waited longest."""
    usable = [x for x in servers if not x.is_tainted] or servers
    chosen = min(usable, key=lambda server: server.load)
    servers.remove(chosen)
    servers.append(chosen)
    return chosen
