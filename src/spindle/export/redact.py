"""Take out what looks like a key, a token or a password.

Works on values, not on JSON text, so that nothing around a secret can break. What carries the structure
(entry ids, links between calls and results) and the bytes of images stay as they are.
"""

import re
from collections.abc import Mapping
from typing import Any

REDACTED = "‹redacted›"

# What keys of known services begin with. Long parts of the alphabet with a digit in them follow.
_PREFIXES = (
    "sk-", "sk_live_", "sk_test_", "rk_live_", "rk_test_", "whsec_", "ghp_", "gho_", "ghu_", "ghs_", "ghr_",
    "github_pat_", "glpat-", "gldt-", "glrt-", "glsa_", "xoxa-", "xoxb-", "xoxe-", "xoxo-", "xoxp-", "xoxr-", "xoxs-",
    "xapp-", "AIza", "GOCSPX-", "ya29.", "1//0", "gsk_", "xai-", "pplx-", "nvapi-", "csk-", "tvly-", "lsv2_", "pcsk_",
    "dop_v1_", "shpat_", "lin_api_", "ATATT3", "figd_", "sntrys_", "sntryu_", "AGE-SECRET-KEY-1", "hvs.", "dp.pt.",
    "pscale_tkn_", "sb_secret_", "fm2_", "HRKU-", "NRAK-", "PMAK-", "dckr_pat_", "rubygems_", "pypi-AgE",
)  # fmt: skip
# These begin like ordinary names; what follows in a key has no hyphen or underscore in it.
_WORDLIKE = ("hf_", "npm_", "r8_", "fw_", "ntn_", "sbp_", "secret_", "key-")

# Every pattern starts at a fixed text or class and has no nested repeats, so hostile text cannot make it slow.
_START = r"(?<![A-Za-z0-9_-])"
# Of a key that was cut off: its first line, and the lines after it as far as they look like one.
_KEY_BEGIN = re.compile(
    r"-----BEGIN [A-Z0-9 ]{1,60}-----"
    r"(?:\s|\\[nr]|(?:Proc-Type|DEK-Info|Version|Comment): [^\n]{0,200}|[A-Za-z0-9+/=]{20,})*"
)
_KEY_END = re.compile(r"-----END [A-Z0-9 ]{1,60}-----")
_KEY_LENGTH = 20_000
_VENDOR = re.compile(
    _START + f"(?:{'|'.join(map(re.escape, _PREFIXES))})" + r"(?=[A-Za-z_-]{0,200}[0-9])[A-Za-z0-9_-]{16,}"
)
_VENDOR_WORDLIKE = re.compile(
    _START + f"(?:{'|'.join(map(re.escape, _WORDLIKE))})" + r"(?=[A-Za-z]{0,200}[0-9])[A-Za-z0-9]{20,}(?![A-Za-z0-9_-])"
)
_SHAPES = tuple(
    (hint, re.compile(pattern))
    for hint, pattern in (
        ("eyJ", _START + r"eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]*)?"),
        ("AKIA", _START + r"AKIA[0-9A-Z]{16}(?![A-Za-z0-9])"),
        ("ASIA", _START + r"ASIA[0-9A-Z]{16}(?![A-Za-z0-9])"),
        ("SG.", _START + r"SG\.[A-Za-z0-9_-]{16,64}\.[A-Za-z0-9_-]{16,}"),
        ("SK", _START + r"SK[0-9a-f]{32}(?![A-Za-z0-9])"),
        ("dapi", _START + r"dapi[0-9a-f]{32}(?![A-Za-z0-9])"),
        (":AA", _START + r"[0-9]{8,10}:AA[A-Za-z0-9_-]{30,}"),
        (".", _START + r"[MNO][A-Za-z0-9_-]{23,27}\.[A-Za-z0-9_-]{6}\.[A-Za-z0-9_-]{27,}"),
    )
)

# From here on the name of the secret stays and the rest is replaced. A quote may be escaped: JSON inside of text.
_ASSIGN = r"\\?[\"']?\s{0,4}(?::=|=>|[:=])\s{0,4}"
_QUOTE = r"\\?[\"']?"
_HEADER = re.compile(
    rf"(?i)((?:authorization|x-[a-z-]{{0,30}}(?:key|token|secret|auth)|api-key){_ASSIGN}{_QUOTE})"
    r"((?:bearer|basic|token|digest)\s{1,4})?([^\s\"',;\\‹$<{][^\s\"',;\\‹]{5,})"
)
_BEARER = re.compile(r"(?i)(?<![A-Za-z])(bearer\s{1,4})(?=[A-Za-z._~+/=-]{0,200}[0-9])[A-Za-z0-9._~+/=-]{12,}")
_COOKIE = re.compile(r"(?i)(cookie\s{0,4}:\s{0,4})[^\s=;‹]{1,100}=[^\r\n\"'‹]{4,}")
_URL_PASSWORD = re.compile(r"(?<=://)([^\s/:@\"'<>]{0,64}:)[^\s/@\"'<>]{1,256}(?=@)")
_URL_QUERY = re.compile(
    r"(?i)([?&](?:[a-z]{0,10}_?token|api_?key|sig|signature|[a-z]{0,10}_?secret|password|pwd)=)[^\s&#\"'<>‹${]{6,}"
)
_WEBHOOK = re.compile(r"(hooks\.slack\.com/services/|discord(?:app)?\.com/api/webhooks/)[A-Za-z0-9/_-]{20,}")
_LOGIN = re.compile(
    r"((?:\s-u|--user|\blogin\s{1,8}\S{1,64}\s{1,8}password)[ =]\s{0,4}(?!\d+:\d+\b))"
    r"([^\s:]{0,64}:)?([^\s‹$<]{4,})"
)
_FLAG = re.compile(
    r"(--?[a-z-]{0,20}(?:password|passwd|token|secret|api-?key)([ =])[\"']?)(?![$<{‹*-])([^\s\"'`;|&‹]{4,})"
)
_SHOUTED = re.compile(
    r"((?:(?:(?<![A-Za-z])|(?<=API))KEY|TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIALS?)"
    r"(?:_(?:[0-9]{1,3}|PROD|DEV|TEST|STAGING|LIVE|BASE64))?=[\"']?)(?![$<‹{])[^\s\"'`,;&|)‹]{6,}"
)
_PASSWORD = re.compile(
    rf"(?i)((?:password|passwd|passphrase|pwd|secret)(?:[_-]?(?:key|value))?{_ASSIGN})({_QUOTE})"
    r"([^\s\"'`,;&|(){}\[\]<>‹$*%\\/~][^\s\"'`,;&|(){}\[\]<>‹\\]{3,})(?=[\s\"'`,;&|)}\]<\\]|$)"
)
_ASSIGNED = re.compile(
    rf"(?i)((?:key|token|secret|password|credential|auth)[a-z0-9_-]{{0,20}}{_ASSIGN}{_QUOTE})([A-Za-z0-9+/_=.~-]{{16,}})"
)
_SECRET_KEY = re.compile(
    r"(?i)(?:api|access|private|secret|auth)[_-]?(?:key|token)|secret|password|passwd|passphrase"
    r"|(?:refresh|id|bearer)[_-]?token|authorization|credential"
)
_RUN = re.compile(r"(?=[0-9]{0,200}[A-Za-z])(?=[A-Za-z]{0,200}[0-9])[A-Za-z0-9]{16,}")
_TURN = re.compile(r"[A-Za-z][0-9]|[0-9][A-Za-z]")

_STRUCTURE = ("type", "id", "parentId", "targetId", "fromId", "firstKeptEntryId", "timestamp")
# Characters of the shortest text with a key in it, and of the shortest that names a secret.
_SHORTEST_KEY, _SHORTEST = 19, 8


def redact_text(text: str) -> str:
    """Return `text` without what looks like a secret."""
    if len(text) >= _SHORTEST_KEY:
        text = _redact_keys(text)
    if " -u " in text or "--" in text or "login" in text:
        text = _LOGIN.sub(_keep_user, text)
        text = _FLAG.sub(_keep_flag, text)
    if len(text) >= _SHORTEST and (":" in text or "=" in text):
        text = _redact_named(text)
    return _BEARER.sub(_keep_name, text) if "earer" in text else text


def _redact_keys(text: str) -> str:
    """Take out what looks like a key by itself."""
    if any(prefix in text for prefix in _PREFIXES):
        text = _VENDOR.sub(REDACTED, text)
    if any(prefix in text for prefix in _WORDLIKE):
        text = _VENDOR_WORDLIKE.sub(REDACTED, text)
    if "-----BEGIN " in text:
        text = _redact_key_files(text)
    for hint, pattern in _SHAPES:
        if hint in text:
            text = pattern.sub(REDACTED, text)
    return text


def _redact_key_files(text: str) -> str:
    """Take out what stands between the first and the last line of a key, whatever a tool put before its lines."""
    parts: list[str] = []
    at = 0
    end = _KEY_END.search(text)
    while (begin := _KEY_BEGIN.search(text, at)) is not None:
        while end is not None and end.start() < begin.start():
            end = _KEY_END.search(text, end.end())
        parts += [text[at : begin.start()], REDACTED]
        at = begin.end()
        if end is not None and end.end() - begin.start() <= _KEY_LENGTH:
            at = end.end()
    return "".join([*parts, text[at:]])


def _redact_named(text: str) -> str:
    """Take out what a name, a header or an address says to be secret."""
    lowered = text.lower()
    if "authorization" in lowered or "x-" in lowered or "api-key" in lowered:
        text = _HEADER.sub(_keep_scheme, text)
    if "cookie" in lowered:
        text = _COOKIE.sub(_keep_name, text)
    if "://" in text:
        text = _URL_PASSWORD.sub(_keep_name, text)
        text = _WEBHOOK.sub(_keep_name, text)
    if "=" in text:
        text = _URL_QUERY.sub(_keep_name, text)
        text = _SHOUTED.sub(_keep_name, text)
    if any(word in lowered for word in ("passw", "passphrase", "pwd", "secret")):
        text = _PASSWORD.sub(_keep_unless_word, text)
    if any(word in lowered for word in ("key", "token", "secret", "password", "credential", "auth")):
        text = _ASSIGNED.sub(_keep_unless_plain, text)
    return text


def redact_value(value: Any) -> Any:
    """Return a copy of a JSON value with every string in it redacted, keys included. Depth has no limit."""
    root: list[Any] = [None]
    # Work still to do: a value, and where its copy goes.
    waiting: list[tuple[Any, Any, Any]] = [(value, root, 0)]
    while waiting:
        item, place, at = waiting.pop()
        if isinstance(item, str):
            place[at] = redact_text(item)
        elif isinstance(item, dict):
            place[at] = copy = {}
            is_image = item.get("type") == "image"
            for key, inner in item.items():
                name = redact_text(key)
                copy[name] = inner
                if is_image and key == "data":
                    continue
                if isinstance(inner, str) and len(inner) >= 4 and _SECRET_KEY.search(key):
                    copy[name] = REDACTED
                else:
                    waiting.append((inner, copy, name))
        elif isinstance(item, list):
            place[at] = items = list(item)
            waiting.extend((inner, items, index) for index, inner in enumerate(item))
        else:
            place[at] = item
    return root[0]


def redact_entry(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return a redacted copy of a session entry (or header) that still fits into its tree."""
    copy: dict[str, Any] = redact_value(dict(entry))
    _restore(entry, copy, _STRUCTURE)
    message, message_copy = entry.get("message"), copy.get("message")
    if isinstance(message, dict) and isinstance(message_copy, dict):
        _restore(message, message_copy, ("role", "toolCallId", "toolName"))
        blocks, block_copies = message.get("content"), message_copy.get("content")
        if isinstance(blocks, list) and isinstance(block_copies, list):
            for block, block_copy in zip(blocks, block_copies, strict=True):
                if isinstance(block, dict) and block.get("type") == "toolCall":
                    _restore(block, block_copy, ("id", "name"))
    return copy


def _restore(source: Mapping[str, Any], target: dict[str, Any], keys: tuple[str, ...]) -> None:
    for key in keys:
        if key in source:
            target[key] = source[key]


def _keep_name(match: "re.Match[str]") -> str:
    return match[1] + REDACTED


def _keep_user(match: "re.Match[str]") -> str:
    """Replace the password after a user; a user alone is not secret."""
    if match[2] is None and "password" not in match[1]:
        return match[0]
    return f"{match[1]}{match[2] or ''}{REDACTED}"


def _keep_flag(match: "re.Match[str]") -> str:
    """Replace what follows an option; in a sentence about the option that is the next word."""
    return match[1] + REDACTED if match[2] == "=" or _has_digit(match[3]) else match[0]


def _keep_scheme(match: "re.Match[str]") -> str:
    """Replace what a header sends; a word without digits and scheme is a remark about the header."""
    return f"{match[1]}{match[2] or ''}{REDACTED}" if match[2] or _has_digit(match[3]) else match[0]


def _keep_unless_word(match: "re.Match[str]") -> str:
    """Replace the value of a password: what stands in quotes, and what is no name of a type or variable."""
    name, quote, value = match.groups()
    secret = len(value) >= 6 if quote else not value.replace("_", "").replace(".", "").replace("-", "").isalpha()
    return f"{name}{quote}{REDACTED}" if secret else match[0]


def _keep_unless_plain(match: "re.Match[str]") -> str:
    """Replace a long value only if it looks random: names of functions, files and settings stay readable."""
    value = match[2]
    mixed = _has_digit(value) and value != value.lower() and value != value.upper()
    random = mixed or _RUN.search(value) is not None or len(_TURN.findall(value)) >= 3
    return match[1] + REDACTED if random else match[0]


def _has_digit(text: str) -> bool:
    return any("0" <= c <= "9" for c in text)
