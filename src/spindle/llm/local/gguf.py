"""The head of a GGUF file: what kind of model it holds and how much memory it will want.

Reading stops at the vocabulary, which is most of the head and of no interest here, so it takes well under a
millisecond whatever the size of the file.
"""

import struct
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from spindle.llm.local.errors import LocalModelError

__all__ = ["MAGIC", "Header", "read_header"]

MAGIC = b"GGUF"
_VERSIONS = (2, 3)
_MAX_KEYS = 100_000
_MAX_STRING = 1 << 20
_STRING, _ARRAY = 8, 9
_NUMBERS = {0: "B", 1: "b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "?", 10: "<Q", 11: "<q", 12: "<d"}
# From `llama_ftype`; only for showing.
_QUANTIZATIONS = {
    0: "F32", 1: "F16", 2: "Q4_0", 3: "Q4_1", 7: "Q8_0", 8: "Q5_0", 9: "Q5_1", 10: "Q2_K", 11: "Q3_K_S",
    12: "Q3_K_M", 13: "Q3_K_L", 14: "Q4_K_S", 15: "Q4_K_M", 16: "Q5_K_S", 17: "Q5_K_M", 18: "Q6_K", 32: "BF16",
}  # fmt: skip


class Header(msgspec.Struct, frozen=True):
    architecture: str
    size_label: str
    """Such as `135M` or `7B`; empty if the file does not say."""
    quantization: str
    context_length: int
    """Tokens the model was trained for."""
    bytes_per_token: int
    """Memory that one token of context takes."""
    file_size: int

    def memory(self, context: int) -> int:
        """Return roughly how many bytes it takes to run the model with that much context."""
        return self.file_size + context * self.bytes_per_token


def read_header(path: Path) -> Header:
    """Read what the file says of itself. Raises `LocalModelError` if it is not there or not sound."""
    try:
        with path.open("rb") as file:
            values = _read_values(file)
            size = path.stat().st_size
    except FileNotFoundError:
        raise LocalModelError(f"No such model file: {path}. See what there is with: spindle models list") from None
    except OSError as error:
        raise LocalModelError(f"Cannot read {path}: {error.strerror}. Check its permissions") from None
    except (struct.error, ValueError, UnicodeDecodeError) as error:
        reason = str(error) if type(error) is ValueError else "it ends too early"
        raise LocalModelError(f"{path} is not a sound GGUF file ({reason}). Remove it and get it again") from None
    name = values.get("general.architecture")
    prefix = f"{name}."
    facts = {key.removeprefix(prefix): value for key, value in values.items() if key.startswith(prefix)}
    return Header(
        architecture=str(name or "unknown"),
        size_label=str(values.get("general.size_label", "")),
        quantization=_QUANTIZATIONS.get(values.get("general.file_type", -1), ""),
        context_length=_count(facts.get("context_length")),
        bytes_per_token=_bytes_per_token(facts),
        file_size=size,
    )


def _bytes_per_token(facts: dict[str, Any]) -> int:
    layers, heads = _count(facts.get("block_count")), max(1, _count(facts.get("attention.head_count")))
    shared = _count(facts.get("attention.head_count_kv")) or heads
    width = _count(facts.get("embedding_length")) // heads
    key = _count(facts.get("attention.key_length")) or width
    value = _count(facts.get("attention.value_length")) or width
    return layers * shared * (key + value) * 2  # two bytes a number


def _count(value: Any) -> int:
    """Return a number of the file; of a number per layer the largest."""
    if isinstance(value, list):
        return max(map(_count, value), default=0)
    return value if isinstance(value, int) and value > 0 else 0


# -- the format ----------------------------------------------------------------------------------


def _read_values(file: BinaryIO) -> dict[str, Any]:
    if file.read(4) != MAGIC:
        raise ValueError("it does not begin like one")
    version, _tensors, keys = _unpack(file, "<IQQ")
    if version not in _VERSIONS or keys > _MAX_KEYS:
        raise ValueError(f"version {version} is unknown")
    values: dict[str, Any] = {}
    for _ in range(keys):
        key = _read_string(file)
        if key.startswith("tokenizer."):
            break
        (kind,) = _unpack(file, "<I")
        values[key] = _read_value(file, kind)
    return values


def _read_value(file: BinaryIO, kind: int) -> Any:
    if kind == _STRING:
        return _read_string(file)
    if kind == _ARRAY:
        item, length = _unpack(file, "<IQ")
        if length > _MAX_KEYS or item == _ARRAY:
            raise ValueError("an impossible list")
        return [_read_value(file, item) for _ in range(length)]
    if kind not in _NUMBERS:
        raise ValueError(f"value type {kind} is unknown")
    return _unpack(file, _NUMBERS[kind])[0]


def _read_string(file: BinaryIO) -> str:
    (length,) = _unpack(file, "<Q")
    if length > _MAX_STRING:
        raise ValueError("an impossible text")
    return file.read(length).decode()


def _unpack(file: BinaryIO, form: str) -> tuple[Any, ...]:
    return struct.unpack(form, file.read(struct.calcsize(form)))
