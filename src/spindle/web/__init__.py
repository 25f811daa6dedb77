"""The pages that a browser shows, as files: `chat/` talks to a running agent, `viewer/` shows an exported session.

Both are built from `shared/`. The chat page is served file by file, the viewer is made into one text by the export.
This package knows files only and imports nothing of the agent.
"""

import re
from base64 import b64encode
from hashlib import sha256
from pathlib import Path
from posixpath import dirname, join, normpath

__all__ = ["CHAT_POLICY", "chat_file", "chat_needs", "inline", "inline_policy", "modules", "read"]

ROOT = Path(__file__).parent
CHAT_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
IMPORT = re.compile(r"^import .* from '(.+)';$", re.MULTILINE)


def read(name: str) -> str:
    """Return a file of this package, with the symbols where a page asks for them."""
    text = (ROOT / name).read_text("utf-8")
    return text.replace("{{icons}}", read("shared/icons.svg")) if name.endswith(".html") else text


# -- the chat page, file by file -----------------------------------------------------------------


def chat_file(name: str) -> tuple[str, bytes] | None:
    """Return the type and the bytes of a file of the chat page (`chat/main.js`); None if there is no such file."""
    if name not in _chat_files():
        return None
    return TYPES[Path(name).suffix], read(name).encode()


def chat_needs(prefix: str) -> str:
    """Return a Link header that names what the chat page is made of.

    Without it the browser would find the modules import by import, one journey after the other.
    """
    files = sorted(set(_chat_files()) - {"shared/theme.js"})
    styles = [f"<{prefix}{name}>; rel=preload; as=style" for name in files if name.endswith(".css")]
    return ", ".join([*styles, *(f"<{prefix}{name}>; rel=modulepreload" for name in files if name.endswith(".js"))])


def _chat_files() -> list[str]:
    folders = (ROOT / "chat", ROOT / "shared")
    return [f"{folder.name}/{file.name}" for folder in folders for file in folder.iterdir() if file.suffix in TYPES]


# -- the viewer, as one text ---------------------------------------------------------------------


def modules(name: str) -> list[str]:
    """Return a script and all that it imports, each after what it needs itself."""
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
    """Return style sheets or scripts as one text, without indentation and the comments that fill whole lines.

    All scripts end up in one, so what modules say of each other is left out, too: imports and exports stand on one
    line, and no two modules declare the same name.
    """
    lines = (line.strip().removeprefix("export ") for name in names for line in read(name).split("\n"))
    return "".join(f"{line}\n" for line in lines if line and not line.startswith(("//", "/*", "import ")))


def inline_policy(style: str, *scripts: str) -> str:
    """Return the policy of a page that has its style and scripts in itself: by their hashes, so nothing else runs."""
    allowed = " ".join(map(_hash, scripts))
    return (
        f"default-src 'none'; script-src {allowed}; style-src {_hash(style)}; img-src data:; base-uri 'none'; "
        "form-action 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
    )


def _hash(text: str) -> str:
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"
