"""Files to test with: small GGUF heads, a real one with another chat template, a wheel with a model in it."""

import struct
import zipfile
from pathlib import Path
from typing import Any

LLAMA = {
    "general.architecture": "llama",
    "general.size_label": "135M",
    "general.file_type": 3,
    "llama.context_length": 8192,
    "llama.block_count": 30,
    "llama.embedding_length": 576,
    "llama.attention.head_count": 9,
    "llama.attention.head_count_kv": 3,
    "tokenizer.ggml.model": "gpt2",
}


def gguf(values: dict[str, Any] | None = None, tail: bytes = b"") -> bytes:
    """Return a file with this head and no tensors."""
    values = LLAMA if values is None else values
    return b"GGUF" + struct.pack("<IQQ", 3, 0, len(values)) + b"".join(map(_pair, values.items())) + tail


def _pair(item: tuple[str, Any]) -> bytes:
    key, value = item
    if isinstance(value, str):
        return _text(key) + struct.pack("<I", 8) + _text(value)
    if isinstance(value, list):
        return _text(key) + struct.pack("<IIQ", 9, 4, len(value)) + struct.pack(f"<{len(value)}I", *value)
    return _text(key) + struct.pack("<II", 4, value)


def _text(text: str) -> bytes:
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def with_template(source: Path, target: Path, template: str) -> None:
    """Copy a model, giving it another chat template of at most the length the old one has."""
    data = source.read_bytes()
    key = _text("tokenizer.chat_template") + struct.pack("<I", 8)
    place = data.index(key) + len(key)
    (length,) = struct.unpack_from("<Q", data, place)
    padded = template.encode().ljust(length)
    assert len(padded) == length, "the new template must not be longer"
    target.write_bytes(data[: place + 8] + padded + data[place + 8 + length :])


def wheel(directory: Path, package: str, version: str, member: str, model: bytes) -> Path:
    """Write a package that contains a model and a licence."""
    stem = f"{package.replace('-', '_')}-{version}"
    path = directory / f"{stem}-py3-none-any.whl"
    info = f"{stem}.dist-info"
    files = {
        member: model,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\nRequires-Dist: nonsense\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/LICENSE": "Do as you please.\n",
    }
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
        archive.writestr(f"{info}/RECORD", "".join(f"{name},,\n" for name in [*files, f"{info}/RECORD"]))
    return path
