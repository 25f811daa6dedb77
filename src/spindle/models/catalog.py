"""The built-in list of models, one data file per provider, each read when that provider is first asked about.

`catalog/index.json` holds what must be known without reading them: the providers in order of preference, their
environment variables and default models.
"""

from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from spindle.shapes.models import Model

__all__ = ["Catalog", "ProviderInfo", "builtin_providers", "load_catalog"]

_DIRECTORY = Path(__file__).with_name("catalog")


class ProviderInfo(msgspec.Struct, rename="camel", frozen=True):
    name: str
    env: tuple[str, ...] = ()
    """Variables that may hold the key, first choice first."""
    default: str | None = None
    """Id of the model to use when only the provider is known."""


class Catalog(msgspec.Struct, rename="camel", frozen=True):
    """One provider's file. `api` and `base_url` hold for its models unless they say otherwise."""

    updated: str
    """The day its facts were checked."""
    api: str
    base_url: str
    models: list[dict[str, Any]]

    def build(self, provider: str) -> list[Model]:
        common = {"api": self.api, "baseUrl": self.base_url, "provider": provider, "reasoning": False}
        return msgspec.convert([{**common, **entry} for entry in self.models], list[Model])


@cache
def builtin_providers() -> dict[str, ProviderInfo]:
    """Return the known providers, most preferred first."""
    return msgspec.json.decode((_DIRECTORY / "index.json").read_bytes(), type=dict[str, ProviderInfo])


def load_catalog(provider: str) -> Catalog | None:
    """Read the models of a built-in provider; None if we have no list of them."""
    if provider not in builtin_providers():
        return None
    try:
        data = (_DIRECTORY / f"{provider}.json").read_bytes()
    except FileNotFoundError:
        return None
    return msgspec.json.decode(data, type=Catalog)
