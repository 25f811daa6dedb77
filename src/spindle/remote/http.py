"""Plain HTTP on the server's port: the web page, its files, and the health check."""

from http import HTTPStatus

from websockets.datastructures import Headers
from websockets.http11 import Response

from spindle.shapes.codec import encode
from spindle.web import CHAT_POLICY, chat_file, chat_needs

__all__ = ["healthy", "page_file", "plain"]


def page_file(path: str) -> Response | None:
    """Return a file of the chat page for a path of the URL; None if there is no such file."""
    found = chat_file("chat/index.html" if path == "/" else path.removeprefix("/page/"))
    if found is None:
        return None
    kind, body = found
    answer = _answer(HTTPStatus.OK, body, kind)
    if path == "/":
        answer.headers["Link"] = chat_needs("page/")
    return answer


def healthy(*, auth: bool) -> Response:
    """Say that the server is there, and whether clients need a token."""
    return _answer(HTTPStatus.OK, encode({"status": "ok", "auth": auth}), "application/json")


def plain(status: int, text: str) -> Response:
    return _answer(HTTPStatus(status), f"{text}\n".encode(), "text/plain; charset=utf-8")


def _answer(status: HTTPStatus, body: bytes, kind: str) -> Response:
    headers = Headers(
        {
            "Content-Type": kind,
            "Content-Length": str(len(body)),
            "Connection": "close",
            "Cache-Control": "no-cache",
            "Content-Security-Policy": CHAT_POLICY,
            "X-Content-Type-Options": "nosniff",
            "Referrer-Policy": "no-referrer",
            "Cross-Origin-Opener-Policy": "same-origin",
            "Cross-Origin-Resource-Policy": "same-origin",
        }
    )
    return Response(status.value, status.phrase, headers, body)
