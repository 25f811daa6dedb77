"""`models.json`: providers and models that the user adds, and changes to those we know.

Every provider, model and override is checked on its own, so that a mistake costs only the one it is in;
`error` has path and problem of each mistake. `merge_provider` makes models of the descriptions.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta, Struct, field
from msgspec.structs import replace

from spindle.base.spelling import nearest
from spindle.base.user_files import BadFile, read_object
from spindle.shapes.messages import Wire
from spindle.shapes.model import Model, ModelCost, masked_url

_CONTEXT_WINDOW = 128000
_MAX_TOKENS = 16384
_MERGED = ("thinking_level_map", "cost", "headers", "compat")
"""Fields of a `ModelChange` that do not simply replace those of the model."""
T = TypeVar("T")
NonEmpty = Annotated[str, Meta(min_length=1)]
Positive = Annotated[int, Meta(gt=0)]
Price = Annotated[float, Meta(ge=0)]


class TierSpec(Wire, kw_only=True):
    """Prices above a number of input tokens; a price that is not given stays as below it."""

    input_tokens_above: Annotated[int, Meta(ge=0)]
    input: Price | None = None
    output: Price | None = None
    cache_read: Price | None = None
    cache_write: Price | None = None


class CostSpec(Wire):
    """Prices that may be given in part."""

    input: Price | None = None
    output: Price | None = None
    cache_read: Price | None = None
    cache_write: Price | None = None
    tiers: list[TierSpec] | None = None


class ModelChange(Wire, kw_only=True):
    """The fields of a model that `modelOverrides` may change; None changes nothing."""

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
    sampling_params_by_thinking_level: dict[str, dict[str, Any]] | None = None
    input_limits: dict[str, Any] | None = None
    prompt_cache: dict[str, Any] | None = None


class ModelSpec(ModelChange, kw_only=True):
    """A model that the user adds."""

    id: NonEmpty
    api: NonEmpty | None = None
    base_url: NonEmpty | None = None


class ProviderSpec(Wire, kw_only=True):
    name: str | None = None
    base_url: NonEmpty | None = None
    api_key: NonEmpty | None = None
    """Unresolved: the secret, or a reference to it."""
    api: NonEmpty | None = None
    headers: dict[str, str] | None = None
    auth_header: bool = False
    compat: dict[str, Any] | None = None
    models: list[ModelSpec] = field(default_factory=list)
    model_overrides: dict[str, ModelChange] = field(default_factory=dict)

    def __repr__(self) -> str:
        return (
            f"ProviderSpec(name={self.name!r}, base_url={masked_url(self.base_url or '')!r}, models={len(self.models)})"
        )


class _File(Wire):
    """The outermost object."""

    providers: Any = None


class ModelsFile(Struct):
    providers: dict[str, ProviderSpec] = field(default_factory=dict)
    error: str | None = None
    """A text for the user if anything was wrong; `providers` holds the correct ones all the same."""


def read_models_file(path: Path, known: set[str]) -> ModelsFile:
    """Read the file; `known` are the providers that need neither address nor protocol."""
    result = ModelsFile()
    try:
        content = read_object(path, comments=True)
    except BadFile as error:
        result.error = f"Failed to parse models.json: {error}\n\nFile: {path}"
        return result
    if content is None:
        return result
    reader = _ModelsReader()
    providers = content.get("providers", {})
    if not isinstance(providers, dict):
        reader.problem("providers", "must be an object")
        providers = {}
    reader.misspelt(content, _File, "the file")
    for name, value in providers.items():
        if spec := reader.provider(name, value, name in known):
            result.providers[name] = spec
    if reader.problems:
        result.error = "Invalid models.json schema:\n" + "\n".join(reader.problems) + f"\n\nFile: {path}"
    return result


def check_provider(name: str, value: Any, *, known: bool) -> ProviderSpec:
    """Check one provider given by a program. Raises `ValueError` with every problem."""
    reader = _ModelsReader()
    spec = reader.provider(name, value, known)
    if spec is None or reader.problems:
        raise ValueError("\n".join(reader.problems))
    return spec


class _ModelsReader:
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

    def misspelt(self, value: Any, shape: type[Struct], path: str) -> None:
        """Note keys that are almost one of ours. Other unknown keys belong to other programs."""
        names = [item.encode_name for item in msgspec.structs.fields(shape)]
        for key in value if isinstance(value, dict) else ():
            if key not in names and (near := nearest(key, names)):
                self.problem(path, f'unknown key "{key}": did you mean "{near}"?')

    def provider(self, name: str, value: Any, known: bool) -> ProviderSpec | None:
        path = f"providers.{name}"
        if not isinstance(value, dict):
            self.problem(path, "must be an object")
            return None
        self.misspelt(value, ProviderSpec, path)
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
            self.misspelt(item, ModelSpec, f"{path}.models[{index}]")
            model = self.convert(item, ModelSpec, f"{path}.models[{index}]")
            if model and self.complete(model, spec, f"{path}.models[{index}]", known):
                if model.cost is not None and None in (model.cost.input, model.cost.output):
                    self.problem(f"{path}.models[{index}].cost", "needs input and output: the price counts as unknown")
                spec.models.append(model)
        for model_id, item in overrides.items():
            self.misspelt(item, ModelChange, f"{path}.modelOverrides.{model_id}")
            if change := self.convert(item, ModelChange, f"{path}.modelOverrides.{model_id}"):
                spec.model_overrides[model_id] = change
        if not models and not (spec.base_url or spec.headers or spec.compat or overrides or spec.api_key):
            self.problem(path, "needs models, or one of baseUrl, headers, compat, modelOverrides")
            return None
        return spec

    def complete(self, model: ModelSpec, spec: ProviderSpec, path: str, known: bool) -> bool:
        found = {"api": model.api or spec.api, "baseUrl": model.base_url or spec.base_url}
        missing = [key for key, value in found.items() if not value and not known]
        for key in missing:
            self.problem(path, f"{key} is required here or at the provider")
        return not missing


# -- models made of these descriptions ------------------------------------------------------------


def open_model(provider: str, model_id: str, api: str, base_url: str, *, free: bool = False) -> Model:
    """Make a model of which only the address is known, and perhaps that it is free."""
    return Model(
        id=model_id,
        name=model_id,
        api=api,
        provider=provider,
        base_url=base_url,
        reasoning=False,
        input=["text"],
        cost=ModelCost(0, 0, 0, 0),
        context_window=_CONTEXT_WINDOW,
        max_tokens=_MAX_TOKENS,
        cost_unknown=not free,
    )


def _change(model: Model, change: ModelChange) -> Model:
    """Return the model with `change` applied; cost, compat and thinking levels are merged key by key.

    Headers are left out on purpose: they may hold secrets, and a `Model` goes out on the wire.
    """
    plain = _given(change, [name for name in ModelChange.__struct_fields__ if name not in _MERGED])
    if change.cost is not None:
        plain |= _priced(model, change.cost)
    if change.compat is not None:
        plain["compat"] = {**(model.compat or {}), **change.compat}
    if change.thinking_level_map is not None:
        plain["thinking_level_map"] = {**(model.thinking_level_map or {}), **change.thinking_level_map}
    return replace(model, **plain)


def _priced(model: Model, cost: CostSpec) -> dict[str, Any]:
    """Return the price with the given parts of it. Half a price is ignored: a missing part must not count as free."""
    given = _given(cost, cost.__struct_fields__)
    if cost.tiers is not None:
        given["tiers"] = msgspec.to_builtins(cost.tiers)
    if model.cost_unknown:
        if cost.input is None or cost.output is None:
            return {}
        given = {"cache_read": cost.input, "cache_write": cost.input, "tiers": None, **given}
    return {"cost": replace(model.cost, **given), "cost_unknown": False}


def _given(source: ModelChange | CostSpec, keys: Sequence[str]) -> dict[str, Any]:
    return {key: value for key in keys if (value := getattr(source, key)) is not None}


def merge_provider(base: Sequence[Model], provider: str, spec: ProviderSpec, api: str, base_url: str) -> list[Model]:
    """Return the models of a provider after a `models.json` entry: patched, replaced by id, added."""
    models = {model.id: replace(model, base_url=spec.base_url or model.base_url) for model in base}
    for item in spec.models:
        where = item.base_url or spec.base_url or base_url
        models[item.id] = _change(open_model(provider, item.id, item.api or spec.api or api, where), item)
    for model_id, model in models.items():
        if spec.compat:
            # Flags of a model come before flags of its provider.
            own = model.compat or {}
            built_in = not any(item.id == model_id for item in spec.models)
            model = replace(model, compat={**own, **spec.compat} if built_in else {**spec.compat, **own})
        if change := spec.model_overrides.get(model_id):
            model = _change(model, change)
        models[model_id] = model
    return list(models.values())
