"""The catalogue: facts about the models of each provider that are known without a request.

`index.json` is written by hand and has the facts needed before a model is named: the providers in order of
preference, the variables that hold their keys, their default models. Beside it is one file of models per provider,
made by `scripts/catalogue` from a published source that it names, and read when that provider is first asked about.
`spindle models refresh` puts newer files into the folder `catalog` of the agent directory (`refresh`).
"""

import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from spindle.shapes.model import Model

FOLDER = Path(__file__).parent
REFRESHED = "catalog"
"""The folder of the agent directory with the files of `spindle models refresh`."""


class ProviderInfo(msgspec.Struct, rename="camel", frozen=True):
    name: str
    env: tuple[str, ...] = ()
    """Variables that may hold the key, first choice first."""
    default: str | None = None
    """Id of the model to use when only the provider is known."""
    needs: tuple[str, ...] = ()
    """Variables that addresses are made of; the addresses of the provider's models have them in braces."""
    key_header: str | None = None
    """The header that carries the key as a bearer token, if it is not the usual one."""


class Catalog(msgspec.Struct, rename="camel", frozen=True):
    """One provider's file. `api` and `base_url` hold for its models unless they say otherwise."""

    source: str
    """Where the facts come from, unless a model has its own `source`."""
    updated: str
    """The day of these facts."""
    api: str
    base_url: str
    models: list[dict[str, Any]]

    def build(self, provider: str) -> list[Model]:
        common = {"api": self.api, "baseUrl": self.base_url, "provider": provider, "reasoning": False}
        return msgspec.convert([{**common, **entry} for entry in self.models], list[Model])

    def source_of(self, model_id: str) -> str | None:
        """Return where the facts of a model come from; None if it is not listed."""
        entry = next((entry for entry in self.models if entry["id"] == model_id), None)
        return f"{entry.get('source', self.source)}, {entry.get('updated', self.updated)}" if entry else None


@cache
def builtin_providers() -> dict[str, ProviderInfo]:
    """Return the known providers, most preferred first."""
    return msgspec.json.decode((FOLDER / "index.json").read_bytes(), type=dict[str, ProviderInfo])


def load_catalog(provider: str, agent_dir: Path | None = None) -> Catalog | None:
    """Read the models of a built-in provider, as refreshed by the user if that is newer; None if there are none."""
    if provider not in builtin_providers():
        return None
    own = _read(FOLDER / f"{provider}.json")
    newer = _read(agent_dir / REFRESHED / f"{provider}.json") if agent_dir else None
    if newer is None or (own is not None and newer.updated < own.updated):
        return own
    try:
        newer.build(provider)
    except msgspec.ValidationError:  # damaged, although it is JSON
        return own
    return newer


def _read(path: Path) -> Catalog | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=Catalog)
    except (OSError, msgspec.DecodeError):  # a damaged file of the user counts as missing; ours are tested
        return None


# -- models that are not listed --------------------------------------------------------------------

_NO_WORDS = r"(?<!\d)(?:\d{4}-?\d\d-?\d\d|\d\d-\d{4}|\d{6})(?!\d)|latest|preview"
"""Parts of an id that say nothing of its family: `20250514`, `2024-07-18`, `09-2025`, `250514`, `latest`."""


def nearest_model(model_id: str, models: Sequence[Model], default: str) -> Model | None:
    """Return the model whose limits an unlisted id most likely has: the nearest of its family.

    A family is the words of an id without its version. An id of no family here is taken for one of the family of
    `default`. If several models are equally near, the one with the smallest window counts.
    """
    words, version = _family(model_id)
    if not any(words & _family(model.id)[0] for model in models):
        words, version = _family(default)[0], []

    def distance(model: Model) -> tuple[int, int, bool, int, int]:
        its_words, its_version = _family(model.id)
        others = len(words ^ its_words) - len(words & its_words)
        same = next((i for i, (a, b) in enumerate(zip(version, its_version, strict=False)) if a != b), len(version))
        return others, -same, its_version != version, model.context_window, model.max_tokens

    return min(models, key=distance, default=None)


def is_same_family(one: str, other: str) -> bool:
    return _family(one)[0] == _family(other)[0]


def _family(model_id: str) -> tuple[set[str], list[str]]:
    """Return the words of an id and the numbers of its version. `4o` is a word, `o3` a word and a number."""
    parts = re.findall(r"\d+[a-z]+|[a-z]+|\d+", re.sub(_NO_WORDS, "", model_id.lower()))
    return {part for part in parts if not part.isdigit()}, [part for part in parts if part.isdigit()]
