"""`spindle models refresh`: newer prices and models from models.dev, checked and put into the agent directory.

The new facts are laid over the built-in catalogue. Of a model that we know, only the price is taken: models.dev lists
the whole context window, we list the part of it at the plain price. A price of 0 never replaces a price, because
models.dev uses it for subscriptions too. A new model is added if it can call tools and we know how to reach it.
"""

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct, field

from spindle.base import limits
from spindle.base.user_files import write_atomic
from spindle.models.catalog import REFRESHED, Catalog, builtin_providers, load_catalog
from spindle.shapes.model import Model

URL = "https://models.dev/api.json"
_STATE = "refreshed.json"
_MAX_BYTES = 64 << 20
_THEIR_NAMES = {
    "fireworks": "fireworks-ai",
    "together": "togetherai",
    "vercel-ai-gateway": "vercel",
    "kimi-coding": "kimi-for-coding",
}
_APIS = {
    "@ai-sdk/anthropic": "anthropic-messages",
    "@ai-sdk/openai": "openai-responses",
    "@ai-sdk/openai-compatible": "openai-completions",
    "@ai-sdk/google": "google-generative-ai",
    "@openrouter/ai-sdk-provider": "openai-completions",
}
"""APIs by the npm package that models.dev names for a model."""
_AT_PLAIN_PRICE = ("openai", "openai-codex")
"""Providers whose windows end where the price rises."""
Price = Annotated[float, Meta(ge=0, lt=1e6)]


class RefreshError(Exception):
    """Nothing was changed; the text says why."""


class Refreshed(Struct, frozen=True):
    """The result of a refresh."""

    is_new: bool = True
    """False: the server has nothing newer than last time."""
    added: tuple[str, ...] = ()
    repriced: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()
    """Models whose description makes no sense."""


# -- shapes of models.dev --------------------------------------------------------------------------


class _Above(Struct):
    size: Annotated[int, Meta(gt=0)]
    type: str = "context"


class _Rates(Struct):
    input: Price
    output: Price
    cache_read: Price | None = None
    cache_write: Price | None = None


class _Tier(_Rates, kw_only=True):
    tier: _Above


class _Cost(_Rates):
    tiers: list[_Tier] = field(default_factory=list)


class _Limit(Struct):
    context: Annotated[int, Meta(ge=0)]
    output: Annotated[int, Meta(ge=0)]


class _Modalities(Struct):
    input: list[str]
    output: list[str]


class _Served(Struct):
    npm: str | None = None


class _Model(Struct):
    id: Annotated[str, Meta(min_length=1)]
    name: str
    reasoning: bool
    tool_call: bool
    modalities: _Modalities
    limit: _Limit
    cost: _Cost | None = None
    provider: _Served | None = None
    status: str | None = None


class _Provider(Struct):
    models: dict[str, msgspec.Raw]
    npm: str | None = None


class _State(Struct):
    url: str
    etag: str | None
    base: str
    """The built-in catalogue that was refreshed; another version of it is refreshed from the start."""


# -- refreshing ------------------------------------------------------------------------------------


def refresh(agent_dir: Path, url: str = URL) -> Refreshed:
    """Get the current facts from models.dev. Blocks. Raises `RefreshError`."""
    if os.environ.get("PI_OFFLINE"):
        raise RefreshError("PI_OFFLINE is set: the network is not used")
    folder = agent_dir / REFRESHED
    base = next(catalog.source for name in builtin_providers() if (catalog := load_catalog(name)))
    last = _read_state(folder)
    known = last.etag if last and (last.url, last.base) == (url, base) else None
    data, etag = _get(url, known)
    if data is None:
        return Refreshed(is_new=False)
    merges = _merged(data, url)
    if not merges:
        raise RefreshError(f"{url} lists none of the providers we know. Nothing was changed")
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for merge in merges:
            write_atomic(folder / f"{merge.provider}.json", _text(merge.catalog))
        write_atomic(folder / _STATE, _text(_State(url, etag, base)))
    except OSError as error:
        raise RefreshError(f"Cannot write to {folder}: {error.strerror or error}") from None
    return Refreshed(
        added=tuple(name for merge in merges for name in merge.added),
        repriced=tuple(name for merge in merges for name in merge.repriced),
        skipped=tuple(text for merge in merges for text in merge.skipped),
    )


def _merged(data: bytes, url: str) -> "list[_Merge]":
    """Merge the facts of models.dev into each provider that we know, too. Raises `RefreshError`."""
    try:
        listed = msgspec.json.decode(data, type=dict[str, _Provider])
    except (msgspec.DecodeError, UnicodeError) as error:
        raise RefreshError(f"{url} is not in the form of models.dev: {error}. Nothing was changed") from None
    today = time.strftime("%Y-%m-%d", time.gmtime())
    pairs = [(name, load_catalog(name), listed.get(_THEIR_NAMES.get(name, name))) for name in builtin_providers()]
    return [_Merge(name, own, theirs, url, today) for name, own, theirs in pairs if own and own.models and theirs]


def _read_state(folder: Path) -> _State | None:
    try:
        return msgspec.json.decode((folder / _STATE).read_bytes(), type=_State)
    except (OSError, msgspec.DecodeError):
        return None


def _text(value: Struct) -> str:
    return msgspec.json.format(msgspec.json.encode(value), indent=1).decode() + "\n"


def _get(url: str, etag: str | None) -> tuple[bytes | None, str | None]:
    """Return the body and its ETag; no body if it is still the same. Raises `RefreshError`."""
    import http.client
    from urllib.error import HTTPError
    from urllib.request import Request, urlopen

    if not url.startswith(("https://", "http://")):
        raise RefreshError(f"Not an http address: {url}")
    headers = {"Accept": "application/json", "User-Agent": "spindle", **({"If-None-Match": etag} if etag else {})}
    try:
        with urlopen(Request(url, headers=headers), timeout=limits.CATALOGUE_DOWNLOAD) as response:
            data: bytes = response.read(_MAX_BYTES + 1)
            if len(data) > _MAX_BYTES:
                raise RefreshError(f"{url} sends more than {_MAX_BYTES >> 20} MiB")
            return data, response.headers.get("ETag")
    except HTTPError as error:
        if error.code == 304:
            return None, etag
        raise RefreshError(f"{url} answered {error.code} {error.reason}") from None
    except (OSError, http.client.HTTPException) as error:
        cause = getattr(error, "reason", error)
        raise RefreshError(f"Cannot get {url}: {getattr(cause, 'strerror', None) or cause}") from None


# -- one provider ----------------------------------------------------------------------------------


class _Merge:
    """A provider's built-in models, merged with the facts of models.dev."""

    def __init__(self, provider: str, own: Catalog, theirs: _Provider, url: str, today: str) -> None:
        self.added: list[str] = []
        self.repriced: list[str] = []
        self.skipped: list[str] = []
        self.provider = provider
        self._own = own
        self._mark = {"source": url, "updated": today}
        models = {entry["id"]: entry for entry in own.models}
        for name, raw in theirs.models.items():
            try:
                model = msgspec.json.decode(raw, type=_Model)
            except msgspec.DecodeError as error:
                self.skipped.append(f"{provider}/{name}: {error}")
                continue
            entry = models.get(model.id)
            made = self._add(model, theirs.npm) if entry is None else self._reprice(entry, model)
            if made is not None:
                models[model.id] = made
        # Models without marks of their own are as old as before; the day of the file is that of the refresh.
        marked = [{"source": own.source, "updated": own.updated, **entry} for entry in models.values()]
        self.catalog = msgspec.structs.replace(own, updated=today, models=marked)

    def _reprice(self, entry: dict[str, Any], model: _Model) -> dict[str, Any] | None:
        if model.cost is None or not (model.cost.input or model.cost.output):
            return None
        cost = _rates(model.cost, entry["cost"])
        if cost != entry["cost"] or entry.get("costUnknown"):
            self.repriced.append(f"{self.provider}/{model.id}")
        known = {key: value for key, value in entry.items() if key != "costUnknown"}
        return {**known, "cost": cost, **self._mark}

    def _add(self, model: _Model, npm: str | None) -> dict[str, Any] | None:
        if not model.tool_call or "text" not in model.modalities.output or model.status == "deprecated":
            return None
        siblings = self._siblings((model.provider and model.provider.npm) or npm)
        if not siblings or not model.limit.context or not model.limit.output:
            return None
        cost = _rates(model.cost or _Cost(0, 0), {})
        window = model.limit.context
        if self.provider in _AT_PLAIN_PRICE and "tiers" in cost:
            window = min(window, *(tier["inputTokensAbove"] for tier in cost["tiers"]))
        entry: dict[str, Any] = {
            "id": model.id,
            "name": model.name,
            "api": siblings[0]["api"],
            "baseUrl": siblings[0]["baseUrl"],
            "reasoning": model.reasoning,
            "input": ["text", "image"] if "image" in model.modalities.input else ["text"],
            "cost": cost,
            "contextWindow": window,
            "maxTokens": model.limit.output,
            "compat": _shared(siblings, "compat"),
            "headers": _shared(siblings, "headers"),
            **self._mark,
        }
        if not cost["input"] and not cost["output"]:
            entry["costUnknown"] = True
        msgspec.convert({**entry, "provider": self.provider}, Model)
        self.added.append(f"{self.provider}/{model.id}")
        return {key: value for key, value in entry.items() if value != {}}

    def _siblings(self, npm: str | None) -> list[dict[str, Any]]:
        """Return the models we know that are reached in the same way as one served through that package."""
        common = {"api": self._own.api, "baseUrl": self._own.base_url}
        known = [{**common, **entry} for entry in self._own.models]
        apis = {entry["api"] for entry in known}
        api = self._own.api if len(apis) == 1 else _APIS.get(npm or "")
        return [entry for entry in known if entry["api"] == api]


def _rates(cost: _Rates, before: Mapping[str, Any]) -> dict[str, Any]:
    """Return prices in our form; cache rates that are not given stay as they were."""
    rates: dict[str, Any] = {"input": _plain(cost.input), "output": _plain(cost.output)}
    for name, value in (("cacheRead", cost.cache_read), ("cacheWrite", cost.cache_write)):
        rates[name] = before.get(name, 0) if value is None else _plain(value)
    tiers = [tier for tier in cost.tiers if tier.tier.type == "context"] if isinstance(cost, _Cost) else []
    if tiers:
        rates["tiers"] = [{"inputTokensAbove": tier.tier.size, **_rates(tier, rates)} for tier in tiers]
    elif isinstance(cost, _Cost) and "tiers" in before:
        rates["tiers"] = before["tiers"]
    return rates


def _plain(value: float) -> float:
    return int(value) if value == int(value) else value


def _shared(models: list[dict[str, Any]], key: str) -> dict[str, Any]:
    """Return the flags or headers that all of the models have."""
    first, *others = (model.get(key) or {} for model in models)
    return {name: value for name, value in first.items() if all(other.get(name, ...) == value for other in others)}
