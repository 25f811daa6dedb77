"""Models made of what the catalogue, `models.json` and extensions say of them."""

from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from spindle.models.models_file import CostSpec, ModelChange, ModelSpec, ProviderSpec
from spindle.shapes.models import Model, ModelCost

__all__ = ["build_model", "merge_provider", "open_model"]

_CONTEXT_WINDOW = 128000
_MAX_TOKENS = 16384
_PLAIN = (
    "name",
    "reasoning",
    "input",
    "context_window",
    "max_tokens",
    "sampling_params",
    "input_limits",
    "prompt_cache",
)


def build_model(spec: ModelSpec, provider: str, api: str, base_url: str) -> Model:
    """Make a model of its description and the provider's protocol and address."""
    return change_model(open_model(provider, spec.id, spec.api or api, spec.base_url or base_url), spec)


def open_model(provider: str, model_id: str, api: str, base_url: str) -> Model:
    """Make a model of which nothing is known but where it is."""
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
    )


def change_model(model: Model, change: ModelChange) -> Model:
    """Return the model with what `change` says; cost, compat and thinking levels are merged key by key.

    Headers are left out on purpose: they may hold secrets, and a `Model` goes out on the wire.
    """
    plain = _given(change, _PLAIN)
    if change.cost is not None:
        plain["cost"] = replace(model.cost, **_given(change.cost, change.cost.__struct_fields__))
    if change.compat is not None:
        plain["compat"] = {**(model.compat or {}), **change.compat}
    if change.thinking_level_map is not None:
        plain["thinking_level_map"] = {**(model.thinking_level_map or {}), **change.thinking_level_map}
    return replace(model, **plain)


def _given(source: ModelChange | CostSpec, keys: Sequence[str]) -> dict[str, Any]:
    return {key: value for key in keys if (value := getattr(source, key)) is not None}


def merge_provider(base: Sequence[Model], provider: str, spec: ProviderSpec, api: str, base_url: str) -> list[Model]:
    """Return the models of a provider after a `models.json` entry: patched, replaced by id, added."""
    models: dict[str, Model] = {}
    for model in base:
        if spec.base_url:
            model = replace(model, base_url=spec.base_url)
        models[model.id] = model
    for item in spec.models:
        models[item.id] = build_model(item, provider, spec.api or api, spec.base_url or base_url)
    for model_id, model in models.items():
        if spec.compat:
            # What a model says of itself outweighs what is said of its provider.
            own = model.compat or {}
            built_in = not any(item.id == model_id for item in spec.models)
            model = replace(model, compat={**own, **spec.compat} if built_in else {**spec.compat, **own})
        if change := spec.model_overrides.get(model_id):
            model = change_model(model, change)
        models[model_id] = model
    return list(models.values())
