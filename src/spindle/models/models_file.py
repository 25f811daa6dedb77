"""`models.json`: providers and models that the user adds, and changes to those we know.

Every provider, model and override is checked on its own, so that one mistake costs one of them and the rest
still loads; `error` says path and problem of each.
"""

from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta, Struct, field

from spindle.config.files import BadFile, read_object
from spindle.shapes.content import Wire

__all__ = ["CostSpec", "ModelChange", "ModelSpec", "ModelsFile", "ProviderSpec", "check_provider", "read_models_file"]

T = TypeVar("T")
NonEmpty = Annotated[str, Meta(min_length=1)]
Positive = Annotated[int, Meta(gt=0)]


class CostSpec(Wire):
    """Prices that may be given in part."""

    input: float | None = None
    output: float | None = None
    cache_read: float | None = None
    cache_write: float | None = None
    tiers: list[dict[str, Any]] | None = None


class ModelChange(Wire, kw_only=True):
    """What `modelOverrides` may say of a model; None leaves it as it is."""

    name: NonEmpty | None = None
    reasoning: bool | None = None
    thinking_level_map: dict[str, str | None] | None = None
    input: list[str] | None = None
    cost: CostSpec | None = None
    context_window: Positive | None = None
    max_tokens: Positive | None = None
    headers: dict[str, str] | None = None
    compat: dict[str, Any] | None = None
    sampling_params: dict[str, Any] | None = None
    input_limits: dict[str, Any] | None = None
    prompt_cache: dict[str, Any] | None = None


class ModelSpec(ModelChange, kw_only=True):
    """A model of its own."""

    id: NonEmpty
    api: NonEmpty | None = None
    base_url: NonEmpty | None = None


class ProviderSpec(Wire, kw_only=True):
    name: str | None = None
    base_url: NonEmpty | None = None
    api_key: NonEmpty | None = None
    """Unresolved: a reference to a secret as often as the secret."""
    api: NonEmpty | None = None
    headers: dict[str, str] | None = None
    auth_header: bool = False
    compat: dict[str, Any] | None = None
    models: list[ModelSpec] = field(default_factory=list)
    model_overrides: dict[str, ModelChange] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"ProviderSpec(name={self.name!r}, base_url={self.base_url!r}, models={len(self.models)})"


class ModelsFile(Struct):
    path: Path
    providers: dict[str, ProviderSpec] = field(default_factory=dict)
    error: str | None = None
    """A text for the user if anything was wrong; what was right is in `providers` all the same."""


def read_models_file(path: Path, known: set[str]) -> ModelsFile:
    """Read the file; `known` are the providers that need neither address nor protocol."""
    result = ModelsFile(path)
    try:
        content = read_object(path, comments=True)
    except BadFile as error:
        result.error = f"Failed to parse models.json: {error}\n\nFile: {path}"
        return result
    if content is None:
        return result
    reader = _Reader()
    providers = content.get("providers", {})
    if not isinstance(providers, dict):
        reader.problem("providers", "must be an object")
        providers = {}
    for name, value in providers.items():
        if spec := reader.provider(name, value, name in known):
            result.providers[name] = spec
    if reader.problems:
        result.error = "Invalid models.json schema:\n" + "\n".join(reader.problems) + f"\n\nFile: {path}"
    return result


def check_provider(name: str, value: Any, *, known: bool) -> ProviderSpec:
    """Check one provider given by a program. Raises `ValueError` with every problem."""
    reader = _Reader()
    spec = reader.provider(name, value, known)
    if spec is None or reader.problems:
        raise ValueError("\n".join(reader.problems))
    return spec


class _Reader:
    def __init__(self) -> None:
        self.problems: list[str] = []

    def problem(self, path: str, text: str) -> None:
        self.problems.append(f"  - {path}: {text}")

    def convert(self, value: Any, shape: type[T], path: str) -> T | None:
        """Return the value in its shape, or None and a problem with the exact path."""
        try:
            return msgspec.convert(value, shape)
        except msgspec.ValidationError as error:
            text, _, inner = str(error).replace("`", "").partition(" - at $")
            self.problem(path + inner, text)
            return None

    def provider(self, name: str, value: Any, known: bool) -> ProviderSpec | None:
        path = f"providers.{name}"
        if not isinstance(value, dict):
            self.problem(path, "must be an object")
            return None
        own = {key: item for key, item in value.items() if key not in ("models", "modelOverrides")}
        spec = self.convert(own, ProviderSpec, path)
        if spec is None:
            return None
        models, overrides = value.get("models", []), value.get("modelOverrides", {})
        if not isinstance(models, list):
            self.problem(f"{path}.models", "must be a list")
            models = []
        if not isinstance(overrides, dict):
            self.problem(f"{path}.modelOverrides", "must be an object")
            overrides = {}
        for index, item in enumerate(models):
            model = self.convert(item, ModelSpec, f"{path}.models[{index}]")
            if model and self.complete(model, spec, f"{path}.models[{index}]", known):
                spec.models.append(model)
        for model_id, item in overrides.items():
            if change := self.convert(item, ModelChange, f"{path}.modelOverrides.{model_id}"):
                spec.model_overrides[model_id] = change
        if not models and not (spec.base_url or spec.headers or spec.compat or overrides or spec.api_key):
            self.problem(path, "needs models, or one of baseUrl, headers, compat, modelOverrides")
            return None
        return spec

    def complete(self, model: ModelSpec, spec: ProviderSpec, path: str, known: bool) -> bool:
        """Check that a model of a new provider can be reached."""
        missing = []
        if not known:
            missing += [] if model.api or spec.api else ["api"]
            missing += [] if model.base_url or spec.base_url else ["baseUrl"]
        for key in missing:
            self.problem(path, f"{key} is required here or at the provider")
        return not missing
