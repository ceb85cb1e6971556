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
        self._waiting: dict[tuple[str, int], tuple[list[Server], Server, int]] = {}
        loop.spawn(self._listen())

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
            return json_response({"detail": "Internal Server Error"}, 500)
        if body.get("type") not in ("prefill", "decode"):
            text = f"Instance type {body.get('type')!r} is not supported. "
            return json_response({"error": text + "Only 'prefill' and 'decode' are allowed."})
        pool = self.prefillers if body["type"] == "prefill" else self.decoders
        names = [f"{server.host}:{server.port}" for server in servers]
        if request.path.endswith("/add"):
            known = {server.key for server in pool} | set(self._waiting)
            waiting = [server for server in servers if server.key not in known]
            self._waiting.update({server.key: (pool, server, 0) for server in waiting})
            message = f"add {body['type']} instances: {names}."
            if waiting:
                message = (
                    f"Instances {[f'{x.host}:{x.port}' for x in waiting]} are waiting to be added."
                )
            return self._snapshot(message)
        keys = {server.key for server in servers}
        if servers and self._num_requests > 0:
            for server in pool:
                server.is_tainted = server.is_tainted or server.key in keys
            return self._snapshot(f"Instances {names} are isolated and waiting to be removed.")
        pool[:] = [server for server in pool if server.key not in keys]
        for key in keys:
            self._waiting.pop(key, None)
        return self._snapshot(f"remove {body['type']} instances: {names}.")

    def _snapshot(self, message: str) -> Response:
        return json_response(
            {
                "message": message,
                "current_prefill_instances": [f"{x.host}:{x.port}" for x in self.prefillers],
                "current_decode_instances": [f"{x.host}:{x.port}" for x in self.decoders],
            }
        )

    async def _listen(self) -> None:
        """Look at times after engines that wait to be added, and after marked ones once no request runs."""
        while True:
            for key, (pool, server, retries) in list(self._waiting.items()):
                if await self._is_up(server):
                    self._waiting.pop(key, None)
                    pool.append(server)
                elif retries + 1 >= self._tuning.max_waiting_retries:
                    self._waiting.pop(key, None)
                else:
                    self._waiting[key] = (pool, server, retries + 1)
            if self._num_requests == 0:
                self.prefillers[:] = [x for x in self.prefillers if not x.is_tainted]
                self.decoders[:] = [x for x in self.decoders if not x.is_tainted]
            await self._loop.sleep(self._tuning.waiting_retry_interval)

    async def _is_up(self, server: Server) -> bool:
        try:
            answer = await send(self._loop, "GET", f"{server.url}/v1/models", {})
            await answer.read()
        except OSError:
            return False
        return answer.status == OK


def _least_loaded(servers: list[Server]) -> Server:
    """Return the engine with the least load; among equals the one that waited longest."""
    usable = [x for x in servers if not x.is_tainted] or servers
    chosen = min(usable, key=lambda server: server.load)
    servers.remove(chosen)
    servers.append(chosen)
    return chosen
