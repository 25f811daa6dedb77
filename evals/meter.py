"""The way to the model, the same for every harness: it sets the sampling, counts what goes through, and keeps it.

Each trial has a meter of its own, a small HTTP server between the harness and an API like OpenAI's. A harness cannot
choose its own temperature here, and tokens are counted by one rule whatever the harness reports.
"""

import json
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import aiohttp
from aiohttp import web

_DROPPED = ("host", "content-length", "transfer-encoding", "connection", "accept-encoding", "authorization")
_COUNTED = ("chat/completions", "responses")


@dataclass
class Sampling:
    """What every request is given, whatever the harness asked for."""

    temperature: float = 0.2
    top_p: float = 0.95
    seed: int | None = None
    max_tokens: int = 2048


@dataclass
class Usage:
    calls: int = 0
    input: int = 0
    output: int = 0
    failed: int = 0
    """Calls that the model's server refused or broke off."""
    refused: int = 0
    """Calls beyond the limit, which never reached the model."""
    last_text: str = ""
    """The text of the last answer."""
    last_calls: int = 0
    """Tool calls in the last answer."""
    broken: bool = False
    """The server could not be reached, or failed, at the last call."""


@dataclass
class Meter:
    upstream: str
    """Address of the model's API, as `http://127.0.0.1:8080/v1`."""
    key: str
    sampling: Sampling
    log: Path
    """Every answer goes here, one JSON object a line; the last request beside it, as `request.json`."""
    model: str = ""
    """The name by which the server knows the model, put into every request; empty: as the harness calls it."""
    most_calls: int | None = None
    """Further model calls are refused, so that this limit holds for every harness."""
    usage: Usage = field(default_factory=Usage)
    url: str = ""
    answering: int = 0
    """Calls that the model is at work on."""

    async def __aenter__(self) -> Self:
        # llama.cpp hangs up after a streamed answer without saying so.
        connector = aiohttp.TCPConnector(force_close=True)
        self._session = aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=None))
        app = web.Application(client_max_size=64 << 20)
        app.router.add_route("*", "/v1/{path:.*}", self._handle)
        # A harness that has gone waits for no answer: the model is free for the next trial.
        self._runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        port = self._runner.addresses[0][1]
        self.url = f"http://127.0.0.1:{port}/v1"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self._runner.cleanup()
        await self._session.close()

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        self.answering += 1
        try:
            return await self._pass_on(request)
        finally:
            self.answering -= 1

    async def _pass_on(self, request: web.Request) -> web.StreamResponse:
        path = request.match_info["path"]
        body = await request.read()
        headers = {name: value for name, value in request.headers.items() if name.lower() not in _DROPPED}
        headers["Authorization"] = f"Bearer {self.key}"
        counted = path in _COUNTED and request.method == "POST"
        if counted:
            if self.most_calls is not None and self.usage.calls >= self.most_calls:
                self.usage.refused += 1
                text = f"The limit of {self.most_calls} model calls is reached."
                return web.json_response({"error": {"message": text, "type": "invalid_request_error"}}, status=400)
            body = self._with_sampling(body, path)
            self.log.with_name("request.json").write_bytes(body)
        begin = time.monotonic()
        address = f"{self.upstream}/{path}"
        try:
            async with self._session.request(request.method, address, data=body, headers=headers) as answer:
                return await self._hand_on(request, answer, begin if counted else None)
        except aiohttp.ClientConnectionError as error:
            if counted:
                self._count(b"", None, time.monotonic() - begin)
            return web.json_response({"error": {"message": f"The model's server: {error}"}}, status=502)

    async def _hand_on(
        self, request: web.Request, answer: aiohttp.ClientResponse, begin: float | None
    ) -> web.StreamResponse:
        """Pass an answer on as it comes; `begin`: when a call that counts was made."""
        response = web.StreamResponse(status=answer.status)
        response.content_type = answer.content_type
        pieces, ended = [], False
        try:
            await response.prepare(request)
            async for piece in answer.content.iter_any():
                pieces.append(piece)
                await response.write(piece)
            ended = True
        except (aiohttp.ClientError, ConnectionError):  # one of the two sides has gone
            self.usage.failed += begin is not None
            return response
        finally:
            if begin is not None:
                self._count(b"".join(pieces), answer.status, time.monotonic() - begin, ended)
        await response.write_eof()
        return response

    def _with_sampling(self, body: bytes, path: str) -> bytes:
        asked: dict[str, Any] = json.loads(body)
        wanted = {name: value for name, value in asdict(self.sampling).items() if value is not None}
        if path == "responses":
            wanted["max_output_tokens"] = wanted.pop("max_tokens")
            wanted.pop("seed", None)  # that API has none
        asked.pop("max_completion_tokens", None)
        asked |= wanted
        if self.model:
            asked["model"] = self.model
        if asked.get("stream") and path == "chat/completions":
            asked["stream_options"] = {"include_usage": True}
        return json.dumps(asked).encode()

    def _count(self, data: bytes, status: int | None, seconds: float, ended: bool = True) -> None:
        """Count a call; `status` is None if the server could not be reached, `ended` says that it closed the answer."""
        text, calls, used, finish = read_answer(data)
        cut = ended and status == 200 and finish is None and b"[DONE]" not in data
        self.usage.calls += 1
        self.usage.broken = cut or status is None or status >= 500 or status == 429
        self.usage.failed += cut or status != 200
        self.usage.input += used.get("prompt_tokens") or used.get("input_tokens") or 0
        self.usage.output += used.get("completion_tokens") or used.get("output_tokens") or 0
        self.usage.last_text, self.usage.last_calls = text, len(calls)
        row = {
            "status": status,
            "seconds": round(seconds, 2),
            "usage": used,
            "finish": finish,
            "text": text,
            "calls": calls,
        }
        with self.log.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row, ensure_ascii=False) + "\n")


def read_answer(data: bytes) -> tuple[str, list[str], dict[str, Any], str | None]:
    """Return text, names of tool calls, usage and finish reason of an answer, streamed or whole."""
    text, finish = "", None
    calls: list[str] = []
    usage: dict[str, Any] = {}
    lines = data.decode("utf-8", "replace").splitlines()
    parts = [line.removeprefix("data:").strip() for line in lines if line.startswith("data:")] or ["".join(lines)]
    for part in parts:
        try:
            chunk = json.loads(part)
        except ValueError:
            continue
        if not isinstance(chunk, dict):
            continue
        response = chunk.get("response")
        if chunk.get("type") in ("response.completed", "response.incomplete") and isinstance(response, dict):
            said, made, usage = _read_response(response)
            text, calls, finish = text + said, calls + made, str(response.get("status"))
            continue
        usage = chunk.get("usage") or usage
        for choice in chunk.get("choices") or ():
            message = choice.get("delta") or choice.get("message") or {}
            text += message.get("content") or ""
            calls += [
                name for call in message.get("tool_calls") or () if (name := (call.get("function") or {}).get("name"))
            ]
            finish = choice.get("finish_reason") or finish
    return text, calls, usage, finish


def _read_response(response: dict[str, Any]) -> tuple[str, list[str], dict[str, Any]]:
    """Return text, names of tool calls and usage of an answer of the responses API."""
    items = [item for item in response.get("output") or () if isinstance(item, dict)]
    parts = [part for item in items if item.get("type") == "message" for part in item.get("content") or ()]
    calls = [str(item.get("name")) for item in items if item.get("type") in ("function_call", "custom_tool_call")]
    return "".join(part.get("text") or "" for part in parts), calls, response.get("usage") or {}
