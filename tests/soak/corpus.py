"""The kept inputs of the fuzzers, and how they are changed.

`corpus/<kind>/` holds one input per file. Files named `found-…` once broke something or were answered in a way that no
other input was; they are struck first in every run, as they are.
"""

import copy
import hashlib
import json
import random
from pathlib import Path
from typing import Any

__all__ = ["keep", "kept", "mutated", "mutated_json"]

PLACE = Path(__file__).parent / "corpus"
LARGEST = 20_000
"""Bytes of an input that is kept."""
VALUES: list[Any] = [
    *(None, True, False, 0, -1, 0.5, 1e308, 2**31, 2**53 + 1, 2**70, "", "x", "\ud800", "a\u2028b", "nul\0", "../x"),
    *("é" * 300, "x" * 5000, [], [None], [[[]]], {}, {"": {}}, {"a": {"b": [1]}}, [{}] * 50),
]
TOKENS = [
    *(b"", b"\0", b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xef\xbb\xbf", b"\r", b"\t", b'"', b"\\", b"\\u", b"\\ud800"),
    *(b"{", b"}", b"[" * 50, b"]", b",", b":", b"null", b"NaN", b"1e999", b"-", b"0" * 400, b"data: ", b"event: "),
    *(b"[DONE]", b": ", b"x" * 2000),
]


def kept(kind: str) -> list[bytes]:
    """Return the corpus of a kind, what was found first."""
    return [
        path.read_bytes() for path in sorted((PLACE / kind).iterdir(), key=lambda path: (path.name[0] != "f", path))
    ]


def keep(kind: str, data: bytes) -> None:
    if len(data) <= LARGEST:
        (PLACE / kind / f"found-{hashlib.sha256(data).hexdigest()[:12]}").write_bytes(data)


def mutated_json(value: Any, chance: random.Random) -> Any:
    """Change a JSON value in one to three places; mostly its leaves, sometimes whole branches."""
    value = json.loads(json.dumps(value))
    for _ in range(chance.randint(1, 3)):
        target = value
        while isinstance(target, dict | list) and target:
            key = chance.choice(list(target) if isinstance(target, dict) else range(len(target)))
            if isinstance(target[key], dict | list) and target[key] and chance.random() < 0.7:
                target = target[key]
                continue
            if chance.random() < 0.2:
                del target[key]
            elif chance.random() < 0.1 and isinstance(target, dict):
                target["extra"] = copy.deepcopy(chance.choice(VALUES))
            else:
                target[key] = copy.deepcopy(chance.choice(VALUES))
            break
    return value


def mutated(data: bytes, chance: random.Random) -> bytes:
    """Change bytes in one to four places: cut, doubled, flipped, or a token put in."""
    for _ in range(chance.randint(1, 4)):
        start = chance.randrange(len(data) + 1)
        end = min(len(data), start + chance.choice([0, 1, 1, 2, 8, 100]))
        match chance.randrange(5):
            case 0:
                data = data[:start] + data[end:]
            case 1:
                data = data[:end] + data[start:]
            case 2:
                data = data[:start] + chance.randbytes(end - start) + data[end:]
            case 3:
                data = data[:start] + chance.choice(TOKENS) + data[end:]
            case _ if chance.random() < 0.3:
                data = data[:start]
    return data
