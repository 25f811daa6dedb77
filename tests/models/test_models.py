"""Models: `models.json` with all its mistakes, and what extensions add."""

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

from spindle.llm.live import LiveMessage
from spindle.llm.stream import Chunk, Finished, Request, StreamOptions
from spindle.models.model_registry import ModelRegistry
from spindle.shapes.codec import decode, encode
from spindle.shapes.model import Model

LOCAL = {"baseUrl": "http://127.0.0.1:9/v1", "api": "openai-completions", "apiKey": "k"}


def registry(agent: Path) -> ModelRegistry:
    return ModelRegistry(agent)


def test_a_model_goes_out_whole(agent: Path) -> None:
    model = registry(agent).find("anthropic", "claude-opus-4-8")
    value = decode(encode(model))
    assert {
        "id",
        "name",
        "api",
        "provider",
        "baseUrl",
        "reasoning",
        "input",
        "cost",
        "contextWindow",
        "maxTokens",
    } <= set(value)


# -- models.json ---------------------------------------------------------------------------------


def test_a_provider_of_ones_own(agent: Path, write: Any) -> None:
    write(
        "agent/models.json",
        """{
          // my server
          "providers": {
            "mine": {
              "baseUrl": "http://127.0.0.1:9/v1", "api": "openai-completions", "apiKey": "k",
              "compat": {"supportsStore": false, "maxTokensField": "max_tokens"},
              "models": [
                {"id": "small"},
                {"id": "big", "name": "Big", "reasoning": true, "input": ["text", "image"], "contextWindow": 1e6,
                 "maxTokens": 32000, "cost": {"input": 1, "output": 0}, "compat": {"supportsStore": true},
                 "thinkingLevelMap": {"xhigh": "max", "low": null}, "api": "anthropic-messages", "baseUrl": "http://x"},
              ],
            },
          },
        }""",
    )
    models = registry(agent)
    assert models.error is None
    small, big = models.all("mine")
    assert (small.name, small.reasoning, small.input, small.context_window, small.max_tokens) == (
        "small",
        False,
        ["text"],
        128000,
        16384,
    )
    assert small.compat == {"supportsStore": False, "maxTokensField": "max_tokens"}
    assert (big.name, big.api, big.base_url, big.context_window) == ("Big", "anthropic-messages", "http://x", 1000000)
    assert big.compat == {"supportsStore": True, "maxTokensField": "max_tokens"}
    assert (big.cost.input, big.cost.output) == (1, 0)
    assert big.thinking_levels() == ["off", "minimal", "medium", "high", "xhigh"]
    assert models.available() == [small, big]


def test_changes_to_built_in_models(agent: Path, write: Any) -> None:
    write(
        "agent/models.json",
        {
            "providers": {
                "anthropic": {
                    "baseUrl": "http://proxy",
                    "compat": {"supportsTemperature": True},
                    "modelOverrides": {
                        "claude-opus-4-8": {"name": "Mine", "cost": {"output": 1}, "thinkingLevelMap": {"max": None}},
                        "no-such-model": {"name": "ignored"},
                    },
                    "models": [{"id": "claude-haiku-4-5", "contextWindow": 5}, {"id": "new"}],
                }
            }
        },
    )
    models = registry(agent)
    assert models.error is None
    opus = models.find("anthropic", "claude-opus-4-8")
    assert opus is not None
    assert (opus.name, opus.base_url, opus.cost.input, opus.cost.output) == ("Mine", "http://proxy", 5, 1)
    assert "xhigh" in opus.thinking_levels()
    assert "max" not in opus.thinking_levels()
    assert (opus.compat or {})["supportsTemperature"] is True
    haiku, new = models.find("anthropic", "claude-haiku-4-5"), models.find("anthropic", "new")
    assert haiku is not None
    assert new is not None
    assert (haiku.context_window, haiku.reasoning) == (5, False)
    assert (new.api, new.base_url) == ("anthropic-messages", "http://proxy")
    assert models.find("anthropic", "no-such-model") is None


GOOD = {**LOCAL, "models": [{"id": "ok"}]}


@pytest.mark.parametrize(
    ("bad", "told"),
    [
        ({**LOCAL, "models": [{"name": "no id"}, {"id": "m"}]}, "providers.bad.models[0]: "),
        (
            {**LOCAL, "models": [{"id": "x", "contextWindow": 0}, {"id": "m"}]},
            "providers.bad.models[0].contextWindow: ",
        ),
        (
            {**LOCAL, "models": [{"id": "x", "cost": {"input": "1"}}, {"id": "m"}]},
            "providers.bad.models[0].cost.input: ",
        ),
        *(
            ({**LOCAL, "models": [{"id": "x", "cost": cost}, {"id": "m"}]}, f"providers.bad.models[0].cost{where}: ")
            for cost, where in (
                ({"input": -1, "output": 2}, ".input"),
                ({"input": 1, "output": 2, "tiers": [{"inputTokensAbove": "200k"}]}, ".tiers[0].inputTokensAbove"),
                ({"input": 1, "output": 2, "tiers": [{"inputTokensAbove": 5, "input": "3"}]}, ".tiers[0].input"),
                ({"input": 1, "output": 2, "tiers": [{"input": 3}]}, ".tiers[0]"),
            )
        ),
        ({**LOCAL, "models": [{"id": "m"}], "modelOverrides": {"m": 5}}, "providers.bad.modelOverrides.m: "),
        ({**LOCAL, "models": [{"id": ""}, {"id": "m"}]}, "providers.bad.models[0].id: "),
        ({"apiKey": "k", "baseUrl": "http://x", "models": [{"id": "x"}]}, "providers.bad.models[0]: api is required"),
        ({"apiKey": "k", "api": "a", "models": [{"id": "x"}]}, "providers.bad.models[0]: baseUrl is required"),
        ({**LOCAL, "models": {"id": "x"}}, "providers.bad.models: must be a list"),
        ({**LOCAL, "headers": ["a"]}, "providers.bad.headers: "),
        ({}, "providers.bad: needs models"),
        ("text", "providers.bad: must be an object"),
    ],
)
def test_one_mistake_hides_nothing_else(agent: Path, write: Any, bad: Any, told: str) -> None:
    path = write("agent/models.json", {"providers": {"bad": bad, "good": GOOD}})
    models = registry(agent)
    assert models.error is not None
    assert models.error.startswith("Invalid models.json schema:\n  - " + told)
    assert models.error.endswith(f"\n\nFile: {path}")
    assert [m.id for m in models.all("good")] == ["ok"]
    assert models.find("anthropic", "claude-opus-4-8")
    if isinstance(bad, dict) and isinstance(bad.get("models"), list) and {"id": "m"} in bad["models"]:
        assert [m.id for m in models.all("bad")] == ["m"]


def test_half_a_price_is_no_price(agent: Path, write: Any) -> None:
    half, whole = {"input": 3}, {"input": 3, "output": 15}
    tiers = [{"inputTokensAbove": 10, "output": 30}]
    models = [
        {"id": "half", "cost": half},
        {"id": "whole", "cost": whole},
        {"id": "tiers", "cost": {**whole, "tiers": tiers}},
    ]
    override = {"modelOverrides": {"claude-opus-4-8": {"cost": half}}}
    write("agent/models.json", {"providers": {"w": {**LOCAL, "models": models}, "anthropic": override}})
    found = registry(agent)
    assert "providers.w.models[0].cost: needs input and output: the price counts as unknown" in (found.error or "")
    assert [model.cost_unknown for model in found.all("w")] == [True, False, False]
    priced = found.find("w", "tiers")
    opus = found.find("anthropic", "claude-opus-4-8")
    assert priced is not None and opus is not None
    # What a cache saves or costs is not known: it counts as any other input.
    cost = priced.cost
    assert (cost.input, cost.output, cost.cache_read, cost.cache_write, cost.tiers) == (3, 15, 3, 3, tiers)
    assert (opus.cost_unknown, opus.cost.input) == (False, 3) and opus.cost.output > 3


@pytest.mark.parametrize("text", ["{", "[]", '{"providers": 5}', '{"providers": {"x": }}'])
def test_a_broken_file_hides_no_built_in_model(agent: Path, write: Any, text: str) -> None:
    path = write("agent/models.json", text)
    models = registry(agent)
    assert models.error is not None
    assert models.error.endswith(f"File: {path}")
    assert models.error.startswith(("Failed to parse models.json: ", "Invalid models.json schema:"))
    assert models.find("openai", "gpt-5.5")


def test_reload_sees_a_mended_file(agent: Path, write: Any) -> None:
    write("agent/models.json", "{")
    models = registry(agent)
    assert models.error
    write("agent/models.json", {"providers": {"good": GOOD}})
    models.reload()
    assert models.error is None
    assert models.find("good", "ok")


# -- extensions ----------------------------------------------------------------------------------


def test_providers_of_extensions(agent: Path) -> None:
    models = registry(agent)
    before = models.find("openai", "gpt-5.5")
    models.register_provider("ext", GOOD)
    assert [m.id for m in models.available()] == ["ok"]
    models.register_provider("openai", {"baseUrl": "http://proxy"})
    patched = models.find("openai", "gpt-5.5")
    assert patched is not None
    assert patched.base_url == "http://proxy"
    models.register_provider("openai", GOOD)
    assert [m.id for m in models.all("openai")] == ["ok"]
    models.unregister_provider("openai")
    models.unregister_provider("ext")
    assert models.find("openai", "gpt-5.5") == before
    assert models.available() == []
    with pytest.raises(ValueError, match="baseUrl is required"):
        models.register_provider("x", {"api": "a", "models": [{"id": "m"}]})


def test_a_stream_function_is_for_the_models_of_its_provider(agent: Path) -> None:
    async def own(model: Model, request: Request, options: StreamOptions) -> AsyncGenerator[Chunk, None]:
        yield Finished(LiveMessage(model).finish("stop"))

    models, others = registry(agent), registry(agent)
    chat = {**GOOD, "models": [{"id": "own"}, {"id": "usual", "api": "openai-responses"}]}
    models.register_provider("ext", chat, own)
    models.register_provider("other", {**chat, "api": "home-made"}, own)
    models.register_provider("third", {**chat, "api": "home-made"})

    def has_own(provider: str, model_id: str, where: ModelRegistry = models) -> bool:
        model = models.find(provider, model_id)
        assert model is not None
        return where.stream_for(model) is own

    assert has_own("ext", "own") and not has_own("ext", "usual")
    assert has_own("third", "own")  # nothing else speaks this API
    assert not has_own("ext", "own", others)
    assert not any(has_own(name, model_id) for name, model_id in (("groq", "openai/gpt-oss-120b"), ("ollama", "m")))
    models.unregister_provider("other")
    with pytest.raises(LookupError, match="Unknown model API 'home-made'"):
        has_own("third", "own")
    models.register_provider("ext", chat)
    assert not has_own("ext", "own")


# -- special providers ---------------------------------------------------------------------------


def test_scripts_need_no_key(agent: Path) -> None:
    models = registry(agent)
    model = models.find("scripted", "demo/talk.json")
    assert model is not None
    assert (model.api, model.base_url) == ("scripted", "demo/talk.json")
    assert models.has_credentials("scripted")
    assert asyncio.run(models.auth_for(model)).api_key is None
    assert models.available() == []


def test_local_servers_are_usable_by_name_but_not_listed(agent: Path) -> None:
    models = registry(agent)
    model = models.find_available("ollama", "qwen3:8b")
    assert model is not None
    assert (model.api, model.base_url) == ("openai-completions", "http://127.0.0.1:11434/v1")
    assert models.available() == []


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("box", "http://box:11434/v1"),
        ("box:80", "http://box:80/v1"),
        ("https://box:1/", "https://box:1/v1"),
        ("0.0.0.0", "http://127.0.0.1:11434/v1"),
    ],
)
def test_ollama_may_be_elsewhere(agent: Path, monkeypatch: pytest.MonkeyPatch, host: str, url: str) -> None:
    monkeypatch.setenv("OLLAMA_HOST", host)
    model = registry(agent).find("ollama", "m")
    assert model is not None
    assert model.base_url == url
