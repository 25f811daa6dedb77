"""Which model is meant: the rules of patterns, scopes and the first choice, as tables."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spindle.base.settings import Settings, decode_settings
from spindle.models.model_registry import ModelRegistry
from spindle.models.select import (
    ModelChoice,
    ModelNotFound,
    initial_model,
    match_model,
    parse_pattern,
    resolve_model,
    resolve_scope,
    thinking_level,
)
from spindle.shapes.model import Model

SERVER = {"baseUrl": "http://127.0.0.1:9/v1", "api": "openai-completions"}
PROVIDERS = {
    "alpha": {
        **SERVER,
        "apiKey": "k",
        "models": [
            {"id": "talk-2", "name": "Talk Two", "reasoning": True},
            {"id": "talk-2-20250101", "reasoning": True},
            {"id": "talk-3-20260101"},
            {"id": "talk-3-20260202"},
            {"id": "code-latest", "name": "Coder"},
            {"id": "colon:8b"},
            {"id": "shared"},
        ],
    },
    "beta": {**SERVER, "apiKey": "$NO_BETA_KEY", "models": [{"id": "shared"}, {"id": "beta-only"}, {"id": "twice"}]},
    "gamma": {**SERVER, "apiKey": "$NO_GAMMA_KEY", "models": [{"id": "twice"}, {"id": "alpha/talk-9"}]},
}


@pytest.fixture
def registry(agent: Path, write: Any) -> ModelRegistry:
    write("agent/models.json", {"providers": PROVIDERS})
    return ModelRegistry(agent)


def name(model: Model | None) -> str | None:
    return f"{model.provider}/{model.id}" if model else None


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("alpha/talk-2", "alpha/talk-2"),
        ("ALPHA/Talk-2", "alpha/talk-2"),
        ("talk-2-20250101", "alpha/talk-2-20250101"),
        ("talk-2", "alpha/talk-2"),
        ("talk", "alpha/talk-2"),
        ("talk-3", "alpha/talk-3-20260202"),
        ("Coder", "alpha/code-latest"),
        ("two", "alpha/talk-2"),
        ("nothing-like-it", None),
        ("", None),
    ],
)
def test_matching(registry: ModelRegistry, pattern: str, expected: str | None) -> None:
    assert name(match_model(pattern, registry.all("alpha"))) == expected


@pytest.mark.parametrize(
    ("pattern", "lenient", "expected"),
    [
        ("talk-2:high", False, ("alpha/talk-2", "high", None)),
        ("alpha/talk-2:off", False, ("alpha/talk-2", "off", None)),
        ("colon:8b", False, ("alpha/colon:8b", None, None)),
        ("colon:8b:low", False, ("alpha/colon:8b", "low", None)),
        ("talk-2:enormous", False, None),
        (
            "talk-2:enormous",
            True,
            (
                "alpha/talk-2",
                None,
                'Invalid thinking level "enormous" in pattern "talk-2:enormous". Using default instead.',
            ),
        ),
        ("nothing:high", True, None),
    ],
)
def test_levels_in_patterns(registry: ModelRegistry, pattern: str, lenient: bool, expected: Any) -> None:
    choice = parse_pattern(pattern, registry.all("alpha"), lenient=lenient)
    assert (choice and (name(choice.model), choice.level, choice.warning)) == expected


@given(st.text(alphabet="talk-23:/hig*", max_size=20))
def test_any_pattern_gets_an_answer(pattern: str) -> None:
    models = [ModelRegistry(Path("/nowhere")).find("anthropic", "claude-opus-4-8")]
    parse_pattern(pattern, [m for m in models if m], lenient=True)


@pytest.mark.parametrize(
    ("patterns", "expected", "warnings"),
    [
        (["talk-3*"], [("alpha/talk-3-20260101", None), ("alpha/talk-3-20260202", None)], []),
        (["ALPHA/*latest:high"], [("alpha/code-latest", "high")], []),
        (["code", "talk-2:low", "code:high"], [("alpha/code-latest", None), ("alpha/talk-2", "low")], []),
        (["beta-only"], [], ['No models match pattern "beta-only"']),
        (["zzz*", "talk-2"], [("alpha/talk-2", None)], ['No models match pattern "zzz*"']),
        ([" ", ""], [], []),
    ],
)
def test_scope_over_models_with_keys(
    registry: ModelRegistry, patterns: list[str], expected: Any, warnings: Any
) -> None:
    found, told = resolve_scope(patterns, registry)
    assert [(name(choice.model), choice.level) for choice in found] == expected
    assert told == warnings


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("hub/*", ["hub/plain"]),
        ("hub/**", ["hub/plain", "hub/maker/small", "hub/maker/big"]),
        ("*/*", ["hub/plain", "hub/maker/small", "hub/maker/big"]),
        ("maker/*", ["hub/maker/small", "hub/maker/big"]),
        ("*b?g", []),
        ("hub/*/[a-m]ig", ["hub/maker/big"]),
        ("[", []),
    ],
)
def test_a_star_stays_on_its_side_of_a_slash(agent: Path, write: Any, pattern: str, expected: list[str]) -> None:
    ids = ["plain", "maker/small", "maker/big"]
    hub = {**SERVER, "apiKey": "k", "models": [{"id": model_id} for model_id in ids]}
    write("agent/models.json", {"providers": {"hub": hub}})
    found, _ = resolve_scope([pattern], ModelRegistry(agent))
    assert [name(choice.model) for choice in found] == expected


@pytest.mark.parametrize(
    ("pattern", "provider", "expected", "level"),
    [
        ("alpha/talk-2:high", None, "alpha/talk-2", "high"),
        ("talk-2", "alpha", "alpha/talk-2", None),
        ("alpha/talk-2", "Alpha", "alpha/talk-2", None),
        ("talk", "alpha", "alpha/talk-2", None),
        ("beta-only", None, "beta/beta-only", None),
        ("beta-on", None, "beta/beta-only", None),
        ("shared", None, "alpha/shared", None),
        ("alpha/talk-9", None, "gamma/alpha/talk-9", None),
        ("gamma/alpha/talk-9", None, "gamma/alpha/talk-9", None),
        (None, "alpha", "alpha/talk-2", None),
        (None, "anthropic", "anthropic/claude-opus-4-8", None),
        ("claude-sonnet-4-5", None, "anthropic/claude-sonnet-4-5", None),
        ("sonnet", "anthropic", "anthropic/claude-sonnet-5-5", None),
        ("scripted/dir/talk.json", None, "scripted/dir/talk.json", None),
        ("talk.json", "scripted", "scripted/talk.json", None),
    ],
)
def test_model_option(registry: ModelRegistry, pattern: Any, provider: Any, expected: str, level: Any) -> None:
    choice = resolve_model(registry, pattern, provider)
    assert (name(choice.model), choice.level, choice.warning) == (expected, level, None)


@pytest.mark.parametrize(
    ("pattern", "provider", "told"),
    [
        ("x", "nobody", 'Unknown provider "nobody". Use --list-models to see available providers/models.'),
        ("zzzzzzzz", None, 'Model "zzzzzzzz" not found. Use --list-models to see available models.'),
        ("twice", None, 'Model "twice" is ambiguous. Name the provider: beta/twice, gamma/twice'),
        ("zzzzzzzz:high", None, 'Model "zzzzzzzz:high" not found. Use --list-models to see available models.'),
    ],
)
def test_model_option_errors(registry: ModelRegistry, pattern: str, provider: Any, told: str) -> None:
    with pytest.raises(ModelNotFound) as caught:
        resolve_model(registry, pattern, provider)
    assert str(caught.value) == told


def test_near_matches_are_named(registry: ModelRegistry) -> None:
    with pytest.raises(ModelNotFound) as caught:
        resolve_model(registry, "claud-sonet-4-5")
    text = str(caught.value)
    assert text.startswith(
        'Model "claud-sonet-4-5" not found. Use --list-models to see available models. Did you mean '
    )
    assert "anthropic/claude-sonnet-4-5" in text
    assert "\n" not in text


@pytest.mark.parametrize(
    ("pattern", "provider", "model_id", "level"),
    [("brand-new", "anthropic", "brand-new", None), ("brand-new:high", "anthropic", "brand-new", "high")],
)
def test_an_unknown_id_of_a_known_provider(
    registry: Any, pattern: str, provider: str, model_id: str, level: Any
) -> None:
    for choice in (resolve_model(registry, pattern, provider), resolve_model(registry, f"{provider}/{pattern}")):
        # Nothing is known of its family: the smallest window of the default model's family.
        smallest = min(m.context_window for m in registry.all("anthropic") if "opus" in m.id)
        assert (choice.model.id, choice.level, choice.model.context_window) == (model_id, level, smallest)
        assert choice.warning == f'Model "{model_id}" not found for provider "{provider}". Using custom model id.'


@pytest.mark.parametrize(
    ("id", "level"), [("claude-opus-4-1-20250805", None), ("claude-opus-4-1-20250805:high", "high")]
)
def test_an_old_id_alone_goes_to_the_provider_with_a_key(
    registry: Any, monkeypatch: pytest.MonkeyPatch, id: str, level: Any
) -> None:
    assert str(name(resolve_model(registry, id).model)).startswith("amazon-bedrock/"), "without a key, any that has it"
    monkeypatch.setenv("ANTHROPIC_API_KEY", "k")
    choice = resolve_model(registry, id)
    assert (name(choice.model), choice.level) == ("anthropic/claude-opus-4-1-20250805", level)
    assert "Using custom model id" in str(choice.warning)
    assert name(resolve_model(registry, "gemini-2.5-pro").model) == "google/gemini-2.5-pro", "another family"


@pytest.mark.parametrize(
    ("provider", "model_id", "nearest"),
    [
        ("anthropic", "claude-sonnet-4-20250101", "claude-sonnet-4-5"),  # and not 4-6, whose window is bigger
        ("anthropic", "claude-3-5-haiku-20241022", "claude-haiku-4-5"),
        ("openai", "gpt-5-2025-08-07", "gpt-5"),
        ("openai", "gpt-4o-audio-preview", "gpt-4o-2024-05-13"),
        ("openai", "o3-mini-2025-01-31", "o3-mini"),
        ("google", "gemini-2.5-flash-preview-09-2025", "gemini-2.5-flash"),
        ("amazon-bedrock", "eu.anthropic.claude-sonnet-4-9-v1:0", "eu.anthropic.claude-sonnet-4-5-20250929-v1:0"),
    ],
)
def test_limits_come_from_the_nearest_of_the_family(registry: Any, provider: str, model_id: str, nearest: str) -> None:
    found, listed = registry.unlisted(provider, model_id), registry.find(provider, nearest)
    assert (found.id, found.context_window, found.max_tokens, found.api, found.cost_unknown) == (
        model_id,
        listed.context_window,
        listed.max_tokens,
        listed.api,
        True,
    )


# -- the first choice ----------------------------------------------------------------------------


def first(registry: ModelRegistry, raw: dict[str, Any] | None = None, **more: Any) -> tuple[Any, Any, Any]:
    found = initial_model(registry, decode_settings(raw or {})[0], **more)
    return name(found.model), found.level, found.message


DEFAULT = {"defaultProvider": "alpha", "defaultModel": "shared"}


def test_initial_model(registry: ModelRegistry, monkeypatch: pytest.MonkeyPatch) -> None:
    def choice(pattern: str, level: Any = None) -> ModelChoice:
        found = parse_pattern(pattern, registry.all("alpha"))
        assert found
        return ModelChoice(found.model, level)

    scope = [choice("code", "high"), choice("shared")]
    session = ("alpha", "talk-2")
    chosen = choice("colon:8b", "low")
    assert first(registry, DEFAULT, chosen=chosen, scope=scope, session=session)[:2] == ("alpha/colon:8b", "low")
    assert first(registry, DEFAULT, scope=scope, session=session)[0] == "alpha/talk-2"
    assert first(registry, DEFAULT, scope=scope)[0] == "alpha/shared"
    assert first(registry, {}, scope=scope)[:2] == ("alpha/code-latest", "high")
    assert first(registry, DEFAULT)[0] == "alpha/shared"
    assert first(registry, {"defaultProvider": "beta", "defaultModel": "shared"})[0] == "alpha/talk-2"
    assert first(registry, {})[0] == "alpha/talk-2"
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    assert first(registry, {})[0] == "openai/gpt-6.1-sol"
    monkeypatch.setenv("ANTHROPIC_API_KEY", "k")
    assert first(registry, {})[0] == "anthropic/claude-opus-4-8"


def test_a_session_whose_model_is_gone(registry: ModelRegistry, agent: Path) -> None:
    assert first(registry, DEFAULT, session=("alpha", "gone")) == (
        "alpha/shared",
        None,
        "Could not restore model alpha/gone (model no longer exists). Using alpha/shared.",
    )
    assert first(registry, DEFAULT, session=("beta", "beta-only"))[2] == (
        "Could not restore model beta/beta-only (no auth configured). Using alpha/shared."
    )


def test_nothing_usable(agent: Path) -> None:
    assert first(ModelRegistry(agent)) == (None, None, None)
    assert thinking_level(None, Settings()) == "off"


@pytest.mark.parametrize(
    ("sources", "expected"),
    [
        ({"asked": "high", "given": "low", "session": "minimal"}, "high"),
        ({"given": "low", "session": "minimal"}, "low"),
        ({"session": "minimal"}, "minimal"),
        ({}, "low"),
        ({"asked": "nonsense"}, "low"),
        ({"asked": "max"}, "high"),
        ({"asked": "off"}, "off"),
    ],
)
def test_thinking_level(registry: ModelRegistry, sources: dict[str, str], expected: str) -> None:
    settings, _ = decode_settings({"modelThinkingLevels": {"alpha/talk-2": "low"}, "defaultThinkingLevel": "minimal"})
    assert thinking_level(registry.find("alpha", "talk-2"), settings, **sources) == expected
    assert thinking_level(registry.find("alpha", "talk-2-20250101"), settings) == "minimal"
    assert thinking_level(registry.find("alpha", "shared"), settings, **sources) == "off"
