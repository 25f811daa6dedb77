"""Plain HTTP on the server's port: the web page, its files, and the health check."""

from http import HTTPStatus
from pathlib import Path

from websockets.datastructures import Headers
from websockets.http11 import Response

from spindle.shapes.codec import encode

__all__ = ["healthy", "page_file", "plain"]

PAGE = Path(__file__).parent / "page"
SHARED = Path(__file__).parents[1] / "export" / "assets"
"""Where modules come from that exported pages use, too."""
SHARED_FILES = ("markdown.js", "inline.js", "highlight.js")
CSP = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".png": "image/png",
    ".svg": "image/svg+xml",
    ".webmanifest": "application/manifest+json",
}


def page_file(path: str) -> Response | None:
    """Return a file of the page for a path of the URL; None if there is no such file."""
    name = "index.html" if path == "/" else path.removeprefix("/page/")
    file = (SHARED if name in SHARED_FILES else PAGE) / name
    # Only files that lie directly in the page's directory; nothing else is looked up outside of it.
    if "/" in name or name.startswith(".") or file.suffix not in TYPES or not file.is_file():
        return None
    answer = _answer(HTTPStatus.OK, file.read_bytes(), TYPES[file.suffix])
    if path == "/":
        answer.headers["Link"] = _needed()
    return answer


def _needed() -> str:
    """Name what the page is made of; the browser would find it import by import, one journey after the other."""
    styles = sorted(file.name for file in PAGE.glob("*.css"))
    modules = sorted({*SHARED_FILES, *(file.name for file in PAGE.glob("*.js"))} - {"theme.js"})
    links = [f"<page/{name}>; rel=preload; as=style" for name in styles]
    return ", ".join([*links, *(f"<page/{name}>; rel=modulepreload" for name in modules)])


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
            "Content-Security-Policy": CSP,
            "X-Content-Type-Options": "nosniff",
            "Referrer-Policy": "no-referrer",
            "Cross-Origin-Opener-Policy": "same-origin",
            "Cross-Origin-Resource-Policy": "same-origin",
        }
    )
    return Response(status.value, status.phrase, headers, body)
