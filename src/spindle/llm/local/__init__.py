"""Models that run on this machine, from GGUF files, without a server to set up and without a key.

It is imported only when a local model is asked for. This module says which models are on this disk (every GGUF file in
`<agent dir>/models`, by its name, and any other by its path) and whether they can run; `adapter` is the model API
`local`, `pull` gets a model.

The weights live in a child process (`worker`), so a load that takes seconds, a broken file or a lack of memory never
stalls or harms the agent; `llama_server` owns that process. Small models cannot call tools by themselves: `prompts` has
the short prompt they get, `grammar` the form of their reply.
"""

import importlib.util
import os
import struct
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from spindle.base.agent_dir import expand_home
from spindle.llm.errors import ModelError
from spindle.shapes.model import Model, ModelCost

LOCAL = "local"
"""Name of the provider and of the API."""
SUFFIX = ".gguf"
RUNTIME = "xllamacpp"
DEFAULT_CONTEXT = 16384
"""Tokens, unless the model was made for fewer: few machines have memory to spare for more."""
_PROCESSORS = ("x86_64", "amd64", "aarch64", "arm64")


class LocalModelError(ModelError):
    """A local model cannot be used. The text is one line: what is wrong, and what to do next."""


def local_models(models_dir: Path, *, context_size: int | None = None, threads: int | None = None) -> list[Model]:
    """Return a model for every sound file in the directory, which may not exist. Other files are passed over."""
    found = []
    for path in files_in(models_dir):
        with suppress(LocalModelError):
            found.append(_model(path.name.removesuffix(SUFFIX), path, context_size, threads))
    return found


def files_in(models_dir: Path) -> list[Path]:
    """Return the model files of the directory, none if it cannot be read."""
    with suppress(OSError):
        return sorted(models_dir.glob(f"[!.]*{SUFFIX}"))
    return []


def find_local_model(
    models_dir: Path, model_id: str, *, context_size: int | None = None, threads: int | None = None
) -> Model:
    """Return the model of that name or path. Raises `LocalModelError` if there is no such file or it is not sound."""
    return _model(model_id, model_file(models_dir, model_id), context_size, threads)


def model_file(models_dir: Path, model_id: str) -> Path:
    """Return the file that a model's id names; it may not exist."""
    if os.sep in model_id or "/" in model_id or model_id.endswith(SUFFIX):
        return Path(os.path.abspath(expand_home(model_id)))
    return models_dir / f"{model_id}{SUFFIX}"


def _model(model_id: str, path: Path, context_size: int | None, threads: int | None) -> Model:
    header = read_header(path)
    context = min(context_size or DEFAULT_CONTEXT, header.context_length or DEFAULT_CONTEXT)
    label = " ".join(filter(None, (header.size_label, header.quantization)))
    name = path.name.removesuffix(SUFFIX)
    return Model(
        id=model_id,
        name=f"{name} ({label})" if label else name,
        api=LOCAL,
        provider=LOCAL,
        base_url="",
        reasoning=False,
        input=["text"],
        cost=ModelCost(0, 0, 0, 0),
        context_window=context,
        max_tokens=max(256, context // 4),
        compat={"threads": threads} if threads else None,
    )


def check_machine() -> None:
    """Raise `LocalModelError` if the runtime is not installed; the text says whether it can be."""
    if importlib.util.find_spec(RUNTIME) is not None:
        return
    import platform

    from spindle.base.installation import extra_command

    system, processor = platform.system(), platform.machine()
    foreign_libc = system == "Linux" and platform.libc_ver()[0] != "glibc"
    if system not in ("Linux", "Darwin", "Windows") or processor.lower() not in _PROCESSORS or foreign_libc:
        here = f"{system} on {processor}{' without glibc' if foreign_libc else ''}"
        raise LocalModelError(
            f"There is no local model runtime for this platform ({here}). Use a model server such as Ollama instead"
        )
    raise LocalModelError(f"Local models need a runtime that is not installed. Install it: {extra_command('local')}")


# -- the head of a GGUF file ---------------------------------------------------------------------

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


class ModelHeader(msgspec.Struct, frozen=True):
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


def read_header(path: Path) -> ModelHeader:
    """Read the head of a file. Raises `LocalModelError` if the file is missing or damaged.

    Reading stops at the vocabulary, which is most of the head and of no interest here, so it takes well under a
    millisecond whatever the size of the file.
    """
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
    prefix = f"{values.get('general.architecture')}."
    facts = {key.removeprefix(prefix): value for key, value in values.items() if key.startswith(prefix)}
    return ModelHeader(
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
    """Return a number from the file; if there is one per layer, the largest."""
    if isinstance(value, list):
        return max(map(_count, value), default=0)
    return value if isinstance(value, int) and value > 0 else 0


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
