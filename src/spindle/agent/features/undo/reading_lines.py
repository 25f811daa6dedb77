"""Shell lines that plainly only read, so that no checkpoint is needed before them.

This is no fence: it saves a look at all files before what agents run most. What is not known counts as writing: other
programs, what the shell would run or work out (`$(…)`, `${x:=1}`), files that output goes to.
"""

import re
from typing import Final

_TOKEN: Final = re.compile(
    r"""(?s)[ \t]*(?:(?P<end>(?:&&|\|\||[;|\n])\s*)"""
    r"""|(?:[12&]?>[ \t]?/dev/null|2>&1)(?=[\s;|&]|\Z)"""
    r"""|(?P<word>(?:[\w./:=,@%+~^*?\[\]-]+|\$(?:\w+|\{\w+\}|[?#@])|'[^']*'"""
    r"""|"(?:[^"$`\\]|\\.|\$(?:\w+|\{\w+\}|[?#@]))*+")++))"""
)
_QUOTED: Final = re.compile(r"""(?s)'([^']*)'|"((?:[^"\\]|\\.)*)\"""")
_ALWAYS: Final = re.compile(
    r"true|false|:|pwd|cd|ls|cat|head|tail|wc|[ef]?grep|cut|tr|nl|diff|cmp|comm|stat|du|df|basename|dirname|realpath|readlink|"
    r"which|type|echo|whoami|id|uname|ps|jq|md5sum|sha\d+sum|od|strings|seq|sleep"
)
"""Programs of which no form writes a file, whatever their words become."""
_IF: Final = {
    **dict.fromkeys(("test", "["), r"(?!.*\0-[vR]).*"),  # the index of a variable that is asked for may be a command
    "printf": r"(?!.*\0-v).*",
    "find": r"(?!.*\0-(?:delete|exec|ok|fprint|fls)).*",
    "rg": r"(?!.*\0--(?:pre|hostname-bin)).*",
    "sort": r"(?!.*\0(?:-[^-\0]*[oT]|--[ocft])).*",
    "uniq": r"(?:\0-[a-z]+)*",
    "sed": r"\0-n\0\d+(?:,(?:\d+|\$))?p(?:\0[^-\0][^\0]*)*",
    "git": r"(?:\0--no-pager)?\0(?:status|log|diff|show|blame|ls-files|rev-parse)(?!.*\0--(?:ou|ext)).*",
}
"""Program → what its other words have to be, each behind a zero, if it only reads."""
_LONGEST: Final = 1000


def plainly_reads(line: str) -> bool:
    """Say whether a line for bash writes no file, whatever there is in the folder."""
    if len(line) > _LONGEST:
        return False
    line, at, words = line.strip().removesuffix(";"), 0, list[str]()
    while at < len(line):
        if (token := _TOKEN.match(line, at)) is None:
            return False
        at = token.end()
        if token["word"] is not None:
            words.append(token["word"])
        elif token["end"] is not None:
            if not _reads(words):
                return False
            words = []
    return _reads(words)


def _reads(words: list[str]) -> bool:
    if not words or _ALWAYS.fullmatch(words[0]):
        return bool(words)
    # A file may have the name of an option, and a variable its text: neither pattern nor variable is known here.
    bare = [_QUOTED.sub(lambda quoted: "$" * re.sub(r"\\.", "", quoted[2] or "").count("$"), word) for word in words]
    values = [_QUOTED.sub(lambda quoted: quoted[1] or quoted[2] or "", word) for word in words]
    allowed, rest = _IF.get(words[0]), "".join(f"\0{value}" for value in values[1:])
    is_known = allowed is not None and not any(char in word for word in bare[1:] for char in "*?[$")
    return is_known and re.fullmatch(f"(?s){allowed}", rest) is not None
