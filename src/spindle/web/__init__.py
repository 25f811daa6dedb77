"""The pages that a browser shows, as files: `chat/` talks to a running agent, `viewer/` shows an exported session.

Both are built from `shared/`. The chat page loads its scripts as one file and its styles as another; the export puts
the viewer into one text. This package knows files only and imports nothing of the agent.
"""

import gzip
import re
from base64 import b64encode
from collections.abc import Mapping
from functools import cache
from hashlib import sha256
from itertools import cycle
from pathlib import Path
from posixpath import dirname, join, normpath
from typing import NamedTuple

__all__ = ["CHAT_POLICY", "PageFile", "chat_answer", "inline", "inline_policy", "modules", "page"]

ROOT = Path(__file__).parent
CHAT_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; "
    "manifest-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".webmanifest": "application/manifest+json",
}
PAGE = "chat/index.html"
MADE = frozenset(("early.js", "chat.js", "chat.css"))
"""Files that are made of others, so that one round trip loads all that the page needs."""
STYLES = ("shared/base.css", "chat/chat.css", "chat/conversation.css", "chat/panels.css")
COMMENT = re.compile(
    r"^[ ]*/\*\* @type [^\n]*\*/\n[ ]*\w+;$|^[ \t]*/\*(?:(?!\*/).)*\*/$|/\*\* @type .*?\*/ ?", re.MULTILINE | re.DOTALL
)
"""Also a member that is only declared, with its type."""
REMARK = re.compile(r"(?<=[;,{(]) // [^'\"`]*$")
PATTERN = re.compile(r"[\"`/\\]")
"""A line with such a character may have a pattern or a template in it."""
SCRIPT_SPACE = re.compile(r" (?=[=*%&|?:,;{}()\[\]])|(?<=[=*%&|?:,;{}()\[\]]) ")
STYLE_SPACE = re.compile(r"(?<=[:,]) | (?={)")
STYLE_BREAK = re.compile(r"(?<=[{};,:])\n")
ICON = re.compile(r'id="i-(\w+)"')
IMPORT = re.compile(r"^import [^;]+ from '(.+)';$", re.MULTILINE)


def read(name: str) -> str:
    """Return a file of this package."""
    return (ROOT / name).read_text("utf-8")


def page(name: str, script: str) -> str:
    """Return a page with the icons that are used by it or its script."""
    text = read(name)
    known = f"{script}{text}"
    icons = read("shared/icons.svg").split("\n")
    used = (line for line in icons if not (found := ICON.search(line)) or re.search(f"['-]{found[1]}['\"]", known))
    return text.replace("{{icons}}", "\n".join(map(str.strip, used)))


# -- the chat page, as files ----------------------------------------------------------------------


class PageFile(NamedTuple):
    """An answer to a request for a file of the chat page."""

    status: int
    headers: dict[str, str]
    body: bytes


def chat_answer(path: str, request: Mapping[str, str]) -> PageFile | None:
    """Answer a request for a path of the chat page (`/`, `/page/chat.js`); None if there is no such file.

    `request` has the headers `If-None-Match` and `Accept-Encoding` if they were sent. The page names its files under a
    folder with their common hash (`/page/<hash>/chat.js`): those never change, so a browser asks for them once.
    """
    version = _version()
    name = PAGE if path == "/" else path.removeprefix("/page/")
    fixed = name.startswith(f"{version}/")
    name = name.removeprefix(f"{version}/")
    if name not in _chat_files() or (path != "/" and not path.startswith("/page/")):
        return None
    body, small, tag = _packed(name)
    headers = {
        "Content-Type": TYPES[Path(name).suffix],
        "Cache-Control": "public, max-age=31536000, immutable" if fixed else "no-cache",
        "ETag": tag,
        "Vary": "Accept-Encoding",
    }
    if tag in request.get("If-None-Match", ""):
        return PageFile(304, headers, b"")
    if "gzip" in request.get("Accept-Encoding", "") and len(small) < len(body):
        return PageFile(200, {**headers, "Content-Encoding": "gzip"}, small)
    return PageFile(200, headers, body)


@cache
def _packed(name: str) -> tuple[bytes, bytes, str]:
    """Return the bytes of a file, the same compressed, and its entity tag."""
    if name == "early.js":
        text = inline("shared/theme.js", "chat/early.js")
    elif name == "chat.js":
        text = inline(*modules("chat/main.js"))
    elif name == "chat.css":
        text = inline(*STYLES)
    elif name == PAGE:
        text = page(name, inline(*modules("chat/main.js"))).replace('="page/', f'="page/{_version()}/')
    else:
        text = read(name)
    body = text.encode()
    return body, gzip.compress(body, 9, mtime=0), f'"{sha256(body).hexdigest()[:20]}"'


@cache
def _version() -> str:
    together = sha256()
    for name in sorted(_chat_files() - MADE):
        together.update(name.encode() + b"\0" + (ROOT / name).read_bytes())
    return together.hexdigest()[:12]


@cache
def _chat_files() -> frozenset[str]:
    folders = (ROOT / "chat", ROOT / "shared")
    files = [f"{folder.name}/{file.name}" for folder in folders for file in folder.iterdir() if file.suffix in TYPES]
    return MADE.union(files)


# -- many files as one text -----------------------------------------------------------------------


def modules(name: str) -> list[str]:
    """Return a script and all scripts that it imports, each after its own imports."""
    found: list[str] = []

    def add(script: str) -> None:
        for target in IMPORT.findall(read(script)):
            path = normpath(join(dirname(script), target))
            if path not in found:
                add(path)
        found.append(script)

    add(name)
    return found


def inline(*names: str) -> str:
    """Return style sheets or scripts as one text, without comments, types, and most of the white space.

    All scripts become one, so imports and the word `export` are left out, too. For this, no two modules may declare the
    same name.
    """
    whole = (IMPORT.sub("", COMMENT.sub("", read(name))) for name in names)
    lines = (line.strip().removeprefix("export ") for text in whole for line in text.split("\n"))
    kept = (REMARK.sub("", line) for line in lines if line and not line.startswith("//"))
    is_style = names[0].endswith(".css")
    space = STYLE_SPACE if is_style else SCRIPT_SPACE
    text = "".join(f"{_tight(line, space)}\n" for line in kept)
    return STYLE_BREAK.sub("", text) if is_style else text


def _tight(line: str, space: re.Pattern[str]) -> str:
    """Leave out spaces that mean nothing, where that is plain to see. No string has several lines (eslint)."""
    if PATTERN.search(line):
        return line
    return "'".join(part if inside else space.sub("", part) for part, inside in zip(line.split("'"), cycle((0, 1))))


def inline_policy(style: str, *scripts: str) -> str:
    """Return the policy of a page that has its style and scripts in itself: by their hashes, so nothing else runs."""
    allowed = " ".join(map(_hash, scripts))
    return (
        f"default-src 'none'; script-src {allowed}; style-src {_hash(style)}; img-src data:; base-uri 'none'; "
        "form-action 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
    )


def _hash(text: str) -> str:
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"
