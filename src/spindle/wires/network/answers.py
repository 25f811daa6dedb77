"""Answers over plain HTTP: the page and its files, errors, and the headers for browsers."""

from collections.abc import Mapping
from typing import Any

from aiohttp import web

from spindle.shapes.codec import encode
from spindle.web.site import CHAT_POLICY, chat_answer

SAFETY = {
    "Cache-Control": "no-cache",
    "Content-Security-Policy": CHAT_POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Server": "spindle",
}
"""Headers of every answer."""
SHARED = web.RequestKey[Mapping[str, str]]("shared")
"""The key of a request under which there are the headers that let a page of another site read its answer."""
AHEAD = {
    "Access-Control-Allow-Methods": "GET, POST, PUT, PATCH, DELETE",
    "Access-Control-Allow-Headers": "Authorization, Content-Type, Last-Event-ID, traceparent",
    "Access-Control-Max-Age": "600",
}
"""What a browser is told that asks, for such a page, what it may request."""


def page_file(path: str, request: Mapping[str, str]) -> web.Response | None:
    """Return a file of the chat page for a path of the URL; None if there is no such file."""
    found = chat_answer(path, request)
    if found is None:
        return None
    return web.Response(status=found.status, body=found.body, headers={**SAFETY, **found.headers})


def plain(status: int, text: str) -> web.Response:
    return _marked(bytes_answer(status, f"{text}\n".encode(), "text/plain; charset=utf-8"), text)


def failed(status: int, text: str) -> web.Response:
    """Return an error as JSON, like all errors under `/v1`, and end the connection."""
    return _marked(json_answer({"error": text}, status), text)


def _marked(answer: web.Response, text: str) -> web.Response:
    if answer.status >= 400:
        answer.headers["X-Reason"] = text.encode("ascii", "replace").decode()  # WebSocket clients see no body
        answer.force_close()
    return answer


def json_answer(value: Any, status: int = 200) -> web.Response:
    return bytes_answer(status, encode(value), "application/json")


def bytes_answer(status: int, body: bytes, kind: str) -> web.Response:
    return web.Response(status=status, body=body, headers={**SAFETY, "Content-Type": kind})
