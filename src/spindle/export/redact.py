"""Take out what looks like a key, a token or a password.

Works on values, not on JSON text, so that nothing around a secret can break. What carries the structure
(entry ids, links between calls and results) and the bytes of images stay as they are.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any

__all__ = ["REDACTED", "redact_entry", "redact_text", "redact_value"]

REDACTED = "‹redacted›"

# Every pattern starts at a fixed text or class and has no nested repeats, so hostile text cannot make it slow.
_START = r"(?<![A-Za-z0-9_-])"
_TOKENS: tuple[tuple[str, str], ...] = (
    ("-----BEGIN ", r"-----BEGIN [A-Z0-9 ]{1,60}-----[\s\S]*?(?:-----END [A-Z0-9 ]{1,60}-----|\Z)"),
    ("eyJ", _START + r"eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]*)?"),
    ("sk-", _START + r"sk-[A-Za-z0-9_-]{16,}"),
    ("k_", _START + r"[spr]k_(?:live|test)_[A-Za-z0-9]{16,}"),
    ("gh", _START + r"gh[pousr]_[A-Za-z0-9]{20,}"),
    ("github_pat_", _START + r"github_pat_[A-Za-z0-9_]{20,}"),
    ("glpat-", _START + r"glpat-[A-Za-z0-9_-]{16,}"),
    ("xox", _START + r"xox[abeoprs]-[A-Za-z0-9-]{10,}"),
    ("AKIA", _START + r"AKIA[0-9A-Z]{16}(?![A-Za-z0-9])"),
    ("ASIA", _START + r"ASIA[0-9A-Z]{16}(?![A-Za-z0-9])"),
    ("AIza", _START + r"AIza[A-Za-z0-9_-]{30,}"),
    ("ya29.", _START + r"ya29\.[A-Za-z0-9_-]{20,}"),
    ("hf_", _START + r"hf_[A-Za-z0-9]{20,}"),
    ("npm_", _START + r"npm_[A-Za-z0-9]{30,}"),
    ("pypi-", _START + r"pypi-[A-Za-z0-9_-]{30,}"),
    ("gsk_", _START + r"gsk_[A-Za-z0-9]{20,}"),
    ("xai-", _START + r"xai-[A-Za-z0-9]{20,}"),
)
_WHOLE = tuple((hint, re.compile(pattern)) for hint, pattern in _TOKENS)

# These keep what names the secret and replace the rest.
_HEADER = re.compile(r"(?i)(authorization[\"']?\s{0,4}[:=]\s{0,4}[\"']?(?:(?:bearer|basic|token)\s+)?)[^\s\"',;‹]{6,}")
_BEARER = re.compile(r"(?i)(?<![A-Za-z])(bearer\s{1,4})(?=[A-Za-z._~+/=-]{0,200}[0-9])[A-Za-z0-9._~+/=-]{12,}")
_URL_PASSWORD = re.compile(r"(?<=://)([^\s/:@\"'<>]{0,64}:)[^\s/@\"'<>]{1,256}(?=@)")
_SHOUTED = re.compile(
    r"((?:KEY|TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIALS?)(?:_[A-Z0-9]{1,20})?=[\"']?)(?![$<‹{])[^\s\"'`,;&|)‹]{6,}"
)
_ASSIGNED = re.compile(
    r"(?i)((?:key|token|secret|password|passwd|pwd|credential)[a-z0-9_]{0,20}[\"']?\s{0,4}[:=]\s{0,4}[\"']?)"
    r"([A-Za-z0-9+/_=-]{16,})"
)
_SECRET_KEY = re.compile(
    r"(?i)(?:api|access|private|secret|auth)[_-]?(?:key|token)|secret|password|passwd|passphrase"
    r"|(?:refresh|id|bearer)[_-]?token|authorization|credential"
)

_STRUCTURE = ("type", "id", "parentId", "targetId", "fromId", "firstKeptEntryId", "timestamp")


def redact_text(text: str) -> str:
    """Return `text` without what looks like a secret."""
    for hint, pattern in _WHOLE:
        if hint in text:
            text = pattern.sub(REDACTED, text)
    lowered = text.lower()
    if "authorization" in lowered:
        text = _HEADER.sub(_keep_name, text)
    if "bearer" in lowered:
        text = _BEARER.sub(_keep_name, text)
    if "://" in text:
        text = _URL_PASSWORD.sub(_keep_name, text)
    if "=" in text:
        text = _SHOUTED.sub(_keep_name, text)
    if "=" in text or ":" in text:
        text = _ASSIGNED.sub(_keep_unless_plain, text)
    return text


def redact_value(value: Any) -> Any:
    """Return a copy of a JSON value with every string in it redacted, keys included. Depth has no limit."""
    root: list[Any] = [None]
    # Work still to do: a value, and how to put its copy in place.
    waiting: list[tuple[Any, Callable[[Any], None]]] = [(value, lambda copy: root.__setitem__(0, copy))]
    while waiting:
        item, put = waiting.pop()
        if isinstance(item, str):
            put(redact_text(item))
        elif isinstance(item, dict):
            copy: dict[str, Any] = {}
            put(copy)
            is_image = item.get("type") == "image"
            for key, inner in item.items():
                name = redact_text(key)
                copy[name] = inner
                if is_image and key == "data":
                    continue
                if isinstance(inner, str) and len(inner) >= 6 and _SECRET_KEY.search(key):
                    copy[name] = REDACTED
                else:
                    waiting.append((inner, _setter(copy, name)))
        elif isinstance(item, list):
            items: list[Any] = list(item)
            put(items)
            waiting.extend((inner, _setter(items, index)) for index, inner in enumerate(item))
        else:
            put(item)
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


def _setter(container: Any, key: Any) -> Callable[[Any], None]:
    def put(value: Any) -> None:
        container[key] = value

    return put


def _restore(source: Mapping[str, Any], target: dict[str, Any], keys: tuple[str, ...]) -> None:
    for key in keys:
        if key in source:
            target[key] = source[key]


def _keep_name(match: "re.Match[str]") -> str:
    return match[1] + REDACTED


def _keep_unless_plain(match: "re.Match[str]") -> str:
    """Replace a long value only if it looks random: names of functions and settings stay readable."""
    value = match[2]
    looks_random = any(c.isdigit() for c in value) and any(c.isalpha() for c in value)
    return match[1] + REDACTED if looks_random else match[0]
