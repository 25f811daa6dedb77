"""Models on this disk: every GGUF file in `<agent dir>/models`, by its name, and any other by its path."""

import os
from pathlib import Path

from spindle.agent_dir import expand_home
from spindle.llm.local.errors import LocalModelError
from spindle.llm.local.gguf import read_header
from spindle.shapes.models import Model, ModelCost

__all__ = ["API", "PROVIDER", "find_local_model", "local_models", "model_file"]

API = PROVIDER = "local"
SUFFIX = ".gguf"
DEFAULT_CONTEXT = 16384
"""Tokens, unless the model was made for fewer: memory for more is rarely there by chance."""


def local_models(models_dir: Path, *, context_size: int | None = None, threads: int | None = None) -> list[Model]:
    """Return a model for every sound file in the directory, which may not exist. Other files are passed over."""
    found = []
    try:
        names = sorted(name for name in os.listdir(models_dir) if name.endswith(SUFFIX) and not name.startswith("."))
    except OSError:
        return []
    for name in names:
        try:
            found.append(_model(name.removesuffix(SUFFIX), models_dir / name, context_size, threads))
        except LocalModelError:
            continue
    return found


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
    label = " ".join(part for part in (header.size_label, header.quantization) if part)
    name = path.name.removesuffix(SUFFIX)
    return Model(
        id=model_id,
        name=f"{name} ({label})" if label else name,
        api=API,
        provider=PROVIDER,
        base_url="",
        reasoning=False,
        input=["text"],
        cost=ModelCost(0, 0, 0, 0),
        context_window=context,
        max_tokens=max(256, context // 4),
        compat={"threads": threads} if threads else None,
    )
