"""The files of the chat page, as a browser asks for them.

In a checkout the scripts are served as the modules that they are, and a change is seen with the next visit. A release
has a bundle of them in `dist/` (`make dist`), which is served instead.
"""

import gzip
import re
import time
from collections.abc import Mapping
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Final, NamedTuple

from spindle.web import ROOT, inline, lean, modules, page, read

CHAT_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; "
    "manifest-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_TYPES: Final = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".map": "application/json",
    ".svg": "image/svg+xml",
    ".webmanifest": "application/manifest+json",
}
_PAGE: Final = "chat/index.html"
_MAIN: Final = "chat/main.js"
_BUNDLE: Final = "dist/main.js"
_EARLY: Final = ("shared/theme.js", "chat/early.js")
_STYLES: Final = ("shared/base.css", "chat/chat.css", "chat/conversation.css", "chat/panels.css")
_MADE: Final = {"early.js": _EARLY, "chat.css": _STYLES, "seldom.css": ("chat/seldom.css", "chat/files.css")}
"""Files that are made of others, so that less has to be fetched."""
_LOOK_AGAIN: Final = 0.5
"""Seconds between two looks whether a file has changed."""


class PageFile(NamedTuple):
    """An answer to a request for a file of the chat page."""

    status: int
    headers: dict[str, str]
    body: bytes


def chat_answer(path: str, request: Mapping[str, str]) -> PageFile | None:
    """Answer a request for a path of the chat page (`/`, `/page/chat/main.js`); None if there is no such file.

    `request` has the headers `If-None-Match` and `Accept-Encoding` if they were sent. The page names its files under a
    folder with their common hash (`/page/<hash>/chat.css`): those never change, so a browser asks for them once.
    """
    version = _site.version()
    name = _PAGE if path == "/" else path.removeprefix("/page/")
    fixed = name.startswith(f"{version}/")
    name = name.removeprefix(f"{version}/")
    if name not in _site.names or (path != "/" and not path.startswith("/page/")):
        return None
    body, small, tag = _packed(name, version)
    headers = {
        "Content-Type": _TYPES[Path(name).suffix],
        "Cache-Control": "public, max-age=31536000, immutable" if fixed else "no-cache",
        "ETag": tag,
        "Vary": "Accept-Encoding",
    }
    if tag in request.get("If-None-Match", ""):
        return PageFile(304, headers, b"")
    if "gzip" in request.get("Accept-Encoding", "") and len(small) < len(body):
        return PageFile(200, {**headers, "Content-Encoding": "gzip"}, small)
    return PageFile(200, headers, body)


class _Site:
    """The files there are, and the hash of all of them."""

    def __init__(self) -> None:
        self.names: set[str] = set()
        self._version = ""
        self._state: object = None
        self._looked = 0.0

    def version(self) -> str:
        now = time.monotonic()
        if not self._version or now - self._looked > _LOOK_AGAIN:
            self._looked = now
            self._look()
        return self._version

    def _look(self) -> None:
        folders = [folder for folder in ("chat", "shared", "dist") if (ROOT / folder).is_dir()]
        found = [file for folder in folders for file in (ROOT / folder).iterdir() if file.suffix in _TYPES]
        state = {(str(file), (at := file.stat()).st_mtime_ns, at.st_size) for file in found}
        if state == self._state:
            return
        together = sha256()
        for file in sorted(found):
            together.update(file.name.encode() + b"\0" + file.read_bytes())
        self._state, self._version = state, together.hexdigest()[:12]
        self.names = {f"{file.parent.name}/{file.name}" for file in found} | _MADE.keys()


_site: Final = _Site()


@lru_cache(256)
def _packed(name: str, version: str) -> tuple[bytes, bytes, str]:
    """Return the bytes of a file, the same compressed, and its entity tag."""
    if name in _MADE:
        text = inline(*_MADE[name])
    elif name == _PAGE:
        text = _page(version)
    elif name.endswith(".js") and not name.startswith("dist/"):
        text = lean(read(name))
    else:
        text = read(name)
    body = text.encode()
    return body, gzip.compress(body, 9, mtime=0), f'"{sha256(body).hexdigest()[:20]}"'


def _page(version: str) -> str:
    """Return the page with what it needs at first named in it: all of that comes after one journey."""
    scripts = "".join(read(name) for name in sorted(_site.names) if name.endswith(".js") and name not in _MADE)
    text = page(_PAGE, scripts)
    if _BUNDLE in _site.names:
        needed = [_BUNDLE, *sorted(name for name in _static(read(_BUNDLE)) if name in _site.names)]
    else:
        needed = modules(_MAIN)[::-1]
    text = text.replace(f"page/{_MAIN}", f"page/{needed[0]}")
    links = "\n".join(f'<link rel="modulepreload" href="page/{name}">' for name in needed[1:])
    return text.replace("{{modules}}", links).replace('="page/', f'="page/{version}/')


def _static(bundle: str) -> set[str]:
    """Return the chunks that a bundle imports at its start."""
    return {f"dist/{name}" for name in re.findall(r'(?:from|import)\s*"\./([^"]+\.js)"', bundle)}
