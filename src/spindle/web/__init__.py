"""The pages that a browser shows, as files: `chat/` talks to a running agent, `viewer/` shows an exported session.

Both are built from `shared/`. The chat page loads its scripts as modules, or as the bundle of a release (`web/site`);
the export puts the viewer into one text. This package knows files only and imports nothing of the agent.
"""

import re
from base64 import b64encode
from hashlib import sha256
from itertools import cycle
from pathlib import Path
from posixpath import dirname, join, normpath

__all__ = ["ROOT", "inline", "inline_policy", "lean", "modules", "page", "read"]

ROOT = Path(__file__).parent
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
    whole = "\n".join(IMPORT.sub("", read(name)) for name in names)
    is_style = names[0].endswith(".css")
    text = re.sub(r"^export ", "", lean(whole, STYLE_SPACE if is_style else SCRIPT_SPACE), flags=re.MULTILINE)
    return STYLE_BREAK.sub("", text) if is_style else text


def lean(text: str, space: re.Pattern[str] = SCRIPT_SPACE) -> str:
    """Return a script or a style sheet without comments, types, and most of the white space."""
    lines = (line.strip() for line in COMMENT.sub("", text).split("\n"))
    kept = (REMARK.sub("", line) for line in lines if line and not line.startswith("//"))
    return "".join(f"{_tight(line, space)}\n" for line in kept)


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
