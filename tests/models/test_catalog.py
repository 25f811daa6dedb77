"""The catalogue: what is in it, that it is what its source says, and what becomes of models that we cannot ask."""

import asyncio
import json
import os
import runpy
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from spindle.agent import AgentError
from spindle.agent.model_choice import ModelState
from spindle.llm.stream import BUILTIN_APIS
from spindle.models.catalog import FOLDER, builtin_providers, load_catalog
from spindle.models.credentials import MissingCredentials
from spindle.models.model_registry import ModelRegistry
from spindle.models.select import ModelNotFound, resolve_model
from spindle.shapes.model import THINKING_LEVELS

PACKAGE = os.environ.get("SPINDLE_TEST_PI_AI")
SCRIPT = Path(__file__).parents[2] / "scripts" / "catalogue"
LISTED = sorted(path.stem for path in FOLDER.glob("*.json") if path.stem != "index")


@pytest.mark.parametrize("provider", LISTED)
def test_it_makes_sense(provider: str) -> None:
    catalog, info = load_catalog(provider), builtin_providers()[provider]
    assert catalog is not None
    assert catalog.source.startswith("npm @earendil-works/pi-ai ")
    assert catalog.updated.startswith("20")
    models = catalog.build(provider)
    assert (info.default in {model.id for model in models}) == bool(models)
    assert len({model.id for model in models}) == len(models)
    for model in models:
        assert model.base_url.startswith("https://") or provider == "azure"
        assert all(f"{{{name}}}" in model.base_url for name in info.needs)
        assert model.max_tokens > 0 < model.context_window
        assert model.input[0] == "text"
        prices = (model.cost.input, model.cost.output, model.cost.cache_read, model.cost.cache_write)
        assert min(prices) >= 0
        if not any(prices):
            assert model.cost_unknown == (not model.id.endswith((":free", "-free", "/free", "recursive/flint")))
        assert set(model.thinking_level_map or {}) <= set(THINKING_LEVELS)
        assert all("inputTokensAbove" in tier for tier in model.cost.tiers or [])
        assert model.thinking_levels()


def test_all_providers_of_the_source_are_there() -> None:
    assert len(LISTED) == 42
    assert (
        sum(len(models.models) for name in LISTED if (models := load_catalog(name))) == 1593
    )  # one of them is kept from an older source


def test_a_window_ends_where_every_token_costs_double(agent: Path) -> None:
    model = ModelRegistry(agent).find("openai", "gpt-5.5")
    assert model is not None and model.cost.tiers is not None
    assert model.context_window == model.cost.tiers[0]["inputTokensAbove"] == 272_000


def test_it_is_read_per_provider(agent: Path) -> None:
    models = ModelRegistry(agent)
    assert models.find("anthropic", "claude-sonnet-4-5") is not None
    assert list(models._models) == ["anthropic"]


# -- the source ----------------------------------------------------------------------------------


def test_it_is_what_the_source_says() -> None:
    if not PACKAGE:
        pytest.skip("SPINDLE_TEST_PI_AI does not name the unpacked npm package @earendil-works/pi-ai")
    script = runpy.run_path(str(SCRIPT))
    files = script["make"](Path(PACKAGE))
    assert script["differences"](files) == []


def test_drift_is_named(tmp_path: Path) -> None:
    script = runpy.run_path(str(SCRIPT))
    ours = {path.name: path.read_text() for path in FOLDER.glob("*.json") if path.stem != "index"}
    assert script["differences"](ours) == []
    changed = json.loads(ours["groq.json"])
    changed["models"][0]["cost"]["input"] = 77
    del changed["models"][1]
    found = script["differences"](ours | {"groq.json": json.dumps(changed)})
    assert found == [
        'groq/llama-3.1-8b-instant: cost is {"input": 0.05, "output": 0.08, "cacheRead": 0, "cacheWrite": 0}, '
        'the source says {"input": 77, "output": 0.08, "cacheRead": 0, "cacheWrite": 0}',
        "groq/llama-3.3-70b-versatile: not in the source",
    ]


# -- models that cannot be asked -----------------------------------------------------------------


def unspoken(registry: ModelRegistry) -> Any:
    return next(model for model in registry.all("radius") if model.api not in BUILTIN_APIS)


def test_a_model_whose_api_we_do_not_speak_is_known_but_not_offered(
    agent: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RADIUS_API_KEY", "k")
    registry = ModelRegistry(agent)
    model = unspoken(registry)
    assert registry.find("radius", model.id) == model
    assert registry.find_available("radius", model.id) is None
    assert registry.unlisted("radius", "brand-new") is None
    assert "radius" not in {model.provider for model in registry.available()}
    text = f'Cannot use radius/{model.id}: it speaks the API "pi-messages", which this version of Spindle does not.'
    with pytest.raises(ModelNotFound, match=text):
        resolve_model(registry, f"radius/{model.id}")
    with pytest.raises(MissingCredentials, match=text):
        registry.require_credentials(model)
    with pytest.raises(AgentError, match=text):
        asyncio.run(ModelState(registry, None, "off").find("radius", model.id))


def test_an_extension_may_speak_it(agent: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RADIUS_API_KEY", "k")
    registry = ModelRegistry(agent)
    registry.register_provider(
        "radius",
        {"api": "pi-messages", "baseUrl": "http://127.0.0.1:9"},
        stream=lambda *_: None,  # type: ignore[arg-type]
    )
    assert "radius" in {model.provider for model in registry.available()}


# -- addresses with parts ------------------------------------------------------------------------


def test_an_address_is_filled_in(agent: Path, write: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLOUDFLARE_API_KEY", "k")
    monkeypatch.setenv("CLOUDFLARE_ACCOUNT_ID", "me")
    registry = ModelRegistry(agent)
    assert registry.has_credentials("cloudflare-workers-ai")
    assert registry.all("cloudflare-workers-ai")[0].base_url.endswith("/accounts/me/ai/v1")
    assert not registry.has_credentials("cloudflare-ai-gateway")
    assert "set CLOUDFLARE_GATEWAY_ID" in registry.no_key_text("cloudflare-ai-gateway")


def test_a_key_goes_in_its_own_header(agent: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("API_KEY", "ACCOUNT_ID", "GATEWAY_ID"):
        monkeypatch.setenv(f"CLOUDFLARE_{name}", name.lower())
    registry = ModelRegistry(agent)
    auth = asyncio.run(registry.auth_for(registry.all("cloudflare-ai-gateway")[0]))
    assert auth.api_key is None
    assert auth.headers == {"cf-aig-authorization": "Bearer api_key"}


# -- the page ------------------------------------------------------------------------------------


def test_the_page_has_every_provider() -> None:
    page = (SCRIPT.parents[1] / "docs" / "providers.md").read_text()
    table = page.partition("<!-- providers -->\n")[2].partition("<!-- /providers -->")[0].splitlines()[2:]
    rows = [[cell.strip() for cell in line.split("|")[1:6]] for line in table]
    wanted = []
    for name in LISTED:
        catalog, info = load_catalog(name), builtin_providers()[name]
        assert catalog is not None
        apis = Counter(model.api for model in catalog.build(name))
        wanted.append(
            [
                f"`{name}`",
                info.name,
                ", ".join(f"`{variable}`" for variable in info.env) or "–",
                ", ".join(f"{api} ({count})" for api, count in sorted(apis.items())) or "–",
                f"`{info.default}`" if info.default else "–",
            ]
        )
    assert rows == wanted
