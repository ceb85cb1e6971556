"""vLLM's HTTP interface in front of one or more ranks."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import Any

from .answers import tokens_of
from .http_server import Request, Response, json_response
from .metrics import Totals, vllm_metrics
from .openai_api import (
    VLLM,
    Job,
    Rejected,
    check_model,
    check_tokens,
    engine_request,
    error_response,
    new_id,
    understand,
)
from .openai_shape import shape
from .request_checks import checked_body, checked_text
from .sampling_checks import check_sampling
from .settings import Settings

Generate = Callable[[int, dict[str, Any]], Awaitable[dict[str, Any]]]
GENERATION_PATHS = ("/v1/completions", "/v1/chat/completions")
GET_PATHS = ("/health", "/load", "/version", "/v1/models", "/metrics")
RANK_HEADER = "x-data-parallel-rank"
PERMISSION = {
    "object": "model_permission",
    "allow_create_engine": False,
    "allow_sampling": True,
    "allow_logprobs": True,
    "allow_search_indices": False,
    "allow_view": True,
    "allow_fine_tuning": False,
    "organization": "*",
    "group": None,
    "is_blocking": False,
}
NOT_ALLOWED = json_response({"detail": "Method Not Allowed"}, 405)


class FrontEnd:
    """One API server: its ranks, their totals, its routes."""

    def __init__(
        self,
        settings: Settings,
        ranks: tuple[int, ...],
        generate: Generate,
        is_dead: Callable[[], bool],
    ) -> None:
        self._settings = settings
        self._is_dead = is_dead
        self._ranks = ranks
        self._generate = generate
        self._totals = {rank: Totals() for rank in ranks}
        self._next = 0

    async def handle(self, request: Request) -> Response:
        """Answer a request."""
        keys = self._settings.features.api_keys
        if keys and request.path.startswith("/v1") and not _is_authorised(request, keys):
            return json_response({"error": "Unauthorized"}, 401)
        if request.path in GENERATION_PATHS:
            if request.method != "POST":
                return NOT_ALLOWED
            return await self._complete(request)
        if request.path in ("/tokenize", "/detokenize"):
            return self._tokenize(request) if request.method == "POST" else NOT_ALLOWED
        return self._status(request)

    async def _complete(self, request: Request) -> Response:
        try:
            body = checked_body(request)
            identity = request.headers.get("x-request-id")
            job = understand(self._settings, VLLM, request.path, body, identity)
            check_sampling(body, self._settings.checkpoint.vocabulary)
            check_tokens(self._settings, body)
            rank = self._choose(request.headers.get(RANK_HEADER))
        except Rejected as rejected:
            return error_response(VLLM, rejected)
        result = await self._run(rank, job)
        if "error" in result and not job.is_stream:
            return error_response(
                VLLM, Rejected(500, "InternalServerError", "Internal server error")
            )
        return shape(self._settings, VLLM, job, result)

    def _choose(self, header: str | None) -> int:
        """Return the rank that answers: the header's, else the least busy one."""
        if header is None or not header.isdigit():  # what is no number is passed over
            self._next += 1
            count = len(self._ranks)
            order = [self._ranks[(self._next + shift) % count] for shift in range(count)]
            return min(order, key=lambda rank: self._totals[rank].running)
        first = self._ranks[0] if self._settings.parallel.mode != "internal" else 0
        count = len(self._ranks)
        if int(header) >= count:
            message = f"data_parallel_rank {header} is out of range [0, {count})."
            raise Rejected(400, "BadRequestError", message)
        return first + int(header)

    async def _run(self, rank: int, job: Job) -> dict[str, Any]:
        totals = self._totals[rank]
        totals.running += 1
        try:
            result = await self._generate(rank, engine_request(job))
        finally:
            totals.running -= 1
        if "error" in result:
            totals.requests["error"] += 1
        else:
            totals.prompt_tokens += job.num_prompt_tokens
            totals.generation_tokens += len(result["tokens"])
            totals.requests[result["finish_reason"]] += 1
            totals.transfers += result.get("kv_from") is not None
        return result

    def _tokenize(self, request: Request) -> Response:
        try:
            body = checked_text(request)
            check_model(self._settings, body)
        except Rejected as rejected:
            return error_response(VLLM, rejected)
        text = body.get("prompt") or " ".join(
            str(m.get("content")) for m in body.get("messages", [])
        )
        tokens = list(range(len(tokens_of(text))))
        if request.path == "/detokenize":
            return json_response({"prompt": " ".join(str(x) for x in body.get("tokens", []))})
        limit = self._settings.max_model_len
        return json_response(
            {"count": len(tokens), "max_model_len": limit, "tokens": tokens, "token_strs": None}
        )

    def _status(self, request: Request) -> Response:
        settings = self._settings
        if request.path in GET_PATHS and request.method not in ("GET", "HEAD"):
            return NOT_ALLOWED
        if request.path in ("/health", "/ping"):
            return Response(503 if self._is_dead() else 200, content_type="")
        documents = {
            "/load": {"server_load": sum(totals.running for totals in self._totals.values())},
            "/version": {"version": settings.release.version},
            "/v1/models": {
                "object": "list",
                "data": [self._card(name) for name in settings.served_names],
            },
        }
        if request.path in documents:
            return json_response(documents[request.path])
        if request.path == "/metrics":
            totals = self._totals if settings.features.has_metrics else {}
            blocks = settings.kv_tokens // settings.block_size
            has_nixl = settings.kv is not None and settings.kv.connector == "nixl"
            text = vllm_metrics(totals, settings.served_names[0], blocks, has_nixl=has_nixl)
            return Response(200, text.encode(), "text/plain; version=1.0.0; charset=utf-8")
        return json_response({"detail": "Not Found"}, 404)

    def _card(self, name: str) -> dict[str, Any]:
        now = int(time.time())
        return {
            "id": name,
            "object": "model",
            "created": now,
            "owned_by": "vllm",
            "root": self._settings.checkpoint.path,
            "parent": None,
            "max_model_len": self._settings.max_model_len,
            "permission": [{**PERMISSION, "id": f"modelperm-{new_id()}", "created": now}],
        }


def _is_authorised(request: Request, keys: tuple[str, ...]) -> bool:
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    return scheme.lower() == "bearer" and token in keys
