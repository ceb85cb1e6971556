"""SGLang's HTTP interface."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import Any

from .answers import answer, count_tokens
from .http_server import Request, Response, json_response
from .metrics import Totals, sglang_metrics
from .openai_api import (
    SGLANG,
    Job,
    Rejected,
    engine_request,
    error_response,
    new_id,
    understand,
)
from .openai_shape import shape
from .settings import Settings

Generate = Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]
COMPLETION_PATHS = ("/v1/completions", "/v1/chat/completions")
OPEN_PATHS = ("/health", "/metrics")


class SglangFrontEnd:
    """The HTTP server of node 0."""

    def __init__(
        self, settings: Settings, generate: Generate, token: Callable[[], Awaitable[bool]]
    ) -> None:
        self._settings = settings
        self._generate = generate
        self._token = token
        self._totals = Totals()
        self.is_starting = True

    async def handle(self, request: Request) -> Response:
        """Answer a request."""
        keys = self._settings.features.api_keys
        is_open = request.path.startswith(OPEN_PATHS)
        if keys and not is_open and request.headers.get("authorization") != f"Bearer {keys[0]}":
            return json_response({"error": "Unauthorized"}, 401)
        if request.method == "POST" and request.path in (*COMPLETION_PATHS, "/generate"):
            try:
                body = request.json()
            except ValueError:
                body = None
            try:
                if request.path == "/generate":
                    return await self._native(body if isinstance(body, dict) else {})
                return await self._complete(request.path, body)
            except Rejected as rejected:
                return error_response(SGLANG, rejected)
        if request.path == "/health_generate" and not self.is_starting:
            return Response(200 if await self._token() else 503)
        return self._status(request)

    async def _complete(self, path: str, body: Any) -> Response:
        job = understand(self._settings, SGLANG, path, body, None)
        result = await self._run(job)
        return shape(self._settings, SGLANG, job, result)

    async def _native(self, body: dict[str, Any]) -> Response:
        """SGLang's own ``/generate``."""
        sampling = body.get("sampling_params") or {}
        prompt = body.get("text") or body.get("input_ids") or ""
        said = answer(
            prompt if isinstance(prompt, str) else "", is_chat=False, picture=None, thinks=False
        )
        job = Job(
            identity=str(body.get("rid") or new_id()), path="/generate", is_chat=False, is_stream=False,
            has_usage_chunk=False, counts_every_chunk=False, num_choices=1, model=self._settings.served_names[0],
            num_prompt_tokens=count_tokens(prompt), max_tokens=int(sampling.get("max_new_tokens", 128)),
            tokens=said.content, tool=None, kv_params=None, body=body,
        )  # fmt: skip
        result = await self._run(job)
        count = len(result["tokens"])
        return json_response(
            {
                "text": "".join(result["tokens"]),
                "output_ids": list(range(count)),
                "meta_info": {
                    "id": job.identity,
                    "finish_reason": {"type": result["finish_reason"], "length": count},
                    "prompt_tokens": job.num_prompt_tokens,
                    "completion_tokens": count,
                    "cached_tokens": 0,
                },
            }
        )

    async def _run(self, job: Job) -> dict[str, Any]:
        self._totals.running += 1
        try:
            names = ("bootstrap_host", "bootstrap_port", "bootstrap_room", "data_parallel_rank")
            request = {**engine_request(job), **{name: job.body.get(name) for name in names}}
            result = await self._generate(request)
        finally:
            self._totals.running -= 1
        if "error" in result:
            self._totals.requests["error"] += 1
            raise Rejected(int(result["status"]), result["error"], result["reason"])
        self._totals.prompt_tokens += job.num_prompt_tokens
        self._totals.generation_tokens += len(result["tokens"])
        self._totals.requests[result["finish_reason"]] += 1
        return result

    def _status(self, request: Request) -> Response:
        settings = self._settings
        path = request.path.replace("/get_", "/")
        if path in ("/health", "/health_generate"):
            return Response(503 if self.is_starting else 200)
        if path == "/model_info":
            return json_response(
                {
                    "model_path": settings.checkpoint.path,
                    "tokenizer_path": settings.checkpoint.path,
                    "is_generation": True,
                    "preferred_sampling_params": None,
                    "weight_version": "default",
                    "has_image_understanding": settings.checkpoint.has_vision,
                    "has_audio_understanding": False,
                    "model_type": settings.checkpoint.model_type,
                    "architectures": [settings.checkpoint.architecture],
                }
            )
        if path == "/server_info":
            return json_response(
                {
                    **settings.shown,
                    "status": "ready",
                    "max_total_num_tokens": settings.kv_tokens,
                    "internal_states": [{}],
                    "version": settings.release.version,
                }
            )
        if path == "/v1/models":
            return json_response({"object": "list", "data": [self._card()]})
        if path == "/metrics" and settings.features.has_metrics:
            text = sglang_metrics(self._totals, settings.served_names[0])
            return Response(200, text.encode(), "text/plain; version=0.0.4; charset=utf-8")
        return json_response({"detail": "Not Found"}, 404)

    def _card(self) -> dict[str, Any]:
        name = self._settings.served_names[0]
        return {
            "id": name,
            "object": "model",
            "created": int(time.time()),
            "owned_by": "sglang",
            "root": name,
            "parent": None,
            "max_model_len": self._settings.max_model_len,
        }
