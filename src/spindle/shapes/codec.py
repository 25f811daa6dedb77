"""Reading and writing JSON, in one way for all of Spindle.

`encode` writes compact UTF-8, escapes U+2028/U+2029 (many clients read with line readers that split on
them) and writes a lone surrogate as an escape. `decode` falls back to the standard decoder for the rare
line that msgspec refuses but other programs accept (lone surrogates, invalid UTF-8); most processes never load it.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import msgspec

DecodeError = msgspec.DecodeError


class WireValue(ABC):
    """A value that is not a Struct itself but knows its form on the wire."""

    __slots__ = ()

    @abstractmethod
    def to_wire(self) -> Any:
        """Return the value to write instead: a Struct, a builtin, or `msgspec.Raw`."""


def _enc_hook(value: Any) -> Any:
    if isinstance(value, WireValue):
        return value.to_wire()
    raise NotImplementedError(f"Objects of type {type(value).__name__} cannot be written as JSON")


_encoder = msgspec.json.Encoder(enc_hook=_enc_hook)
_decoder = msgspec.json.Decoder()
_LINE_SEPARATOR, _PARAGRAPH_SEPARATOR = b"\xe2\x80\xa8", b"\xe2\x80\xa9"


def encode(value: Any) -> bytes:
    """Return `value` as one line of JSON without the newline."""
    try:
        data = _encoder.encode(value)
    except UnicodeEncodeError:
        data = _encode_surrogates(value)
    return data if data.isascii() else _without_separators(data)  # the test is quick, and most lines are


def _without_separators(data: bytes) -> bytes:
    if b"\xe2\x80" in data:
        return data.replace(_LINE_SEPARATOR, b"\\u2028").replace(_PARAGRAPH_SEPARATOR, b"\\u2029")
    return data


def to_builtins(value: Any) -> Any:
    """Return `value` as it would be read back: dicts, lists, strings, numbers."""
    return msgspec.to_builtins(value, enc_hook=_enc_hook)


def encode_str(text: str) -> bytes:
    """Return `text` as a JSON string literal, quotes included."""
    # Most pieces of an answer are ASCII, which has neither separators nor surrogates.
    return _encoder.encode(text) if text.isascii() else encode(text)


def encode_strs(texts: Sequence[str]) -> bytes:
    """Return each text as a JSON string literal with a newline after it."""
    try:
        data = _encoder.encode_lines(texts)
    except UnicodeEncodeError:
        return b"".join([encode(text) + b"\n" for text in texts])
    return _without_separators(data)


def decode(data: bytes | str) -> Any:
    """Parse one JSON value. Raises `DecodeError` with a text for people."""
    try:
        return _decoder.decode(data)
    except UnicodeError:
        pass
    except RecursionError:
        raise DecodeError("JSON is nested too deeply") from None
    except msgspec.DecodeError as error:
        # msgspec refuses lone surrogates, which JSON.parse and json.loads accept.
        if b"\\u" not in (data if isinstance(data, bytes) else data.encode("utf-8", "replace")):
            raise error from None
    import json

    text = data.decode("utf-8", "replace") if isinstance(data, bytes) else data
    try:
        return json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise DecodeError(str(error) or type(error).__name__) from None


def decode_strict(text: str) -> Any:
    """Parse one JSON value whose objects have no key twice. Raises `DecodeError`."""
    import json

    try:
        return json.loads(text, object_pairs_hook=_unique, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise DecodeError(str(error) or type(error).__name__) from None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise ValueError("an object has the same key twice")
    return value


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _encode_surrogates(value: Any) -> bytes:
    import json

    plain = msgspec.to_builtins(value, enc_hook=_enc_hook, builtin_types=(msgspec.Raw,))
    text = json.dumps(plain, ensure_ascii=False, separators=(",", ":"), allow_nan=False, default=_plain_raw)
    return "".join(f"\\u{ord(c):04x}" if "\ud800" <= c <= "\udfff" else c for c in text).encode()


def _plain_raw(value: Any) -> Any:
    if isinstance(value, msgspec.Raw):
        import json

        return json.loads(bytes(value))
    raise TypeError(f"Objects of type {type(value).__name__} cannot be written as JSON")
