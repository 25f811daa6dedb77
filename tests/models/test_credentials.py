"""Keys: where they come from, in which order, and that they are never shown."""

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

from spindle.models.credentials import MissingCredentials, ModelAuth, UnresolvedValue, is_resolvable, resolve_value
from spindle.models.model_registry import NO_MODEL, ModelRegistry

SECRET = "sk-very-secret"


def auth(registry: ModelRegistry, provider: str, model_id: str) -> ModelAuth:
    model = registry.find(provider, model_id)
    assert model is not None
    return asyncio.run(registry.auth_for(model))


def openai(agent: Path) -> tuple[ModelRegistry, Any]:
    registry = ModelRegistry(agent)
    return registry, lambda: auth(registry, "openai", "gpt-5.5").api_key


def test_priority(agent: Path, write: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    registry, key = openai(agent)
    with pytest.raises(MissingCredentials):
        key()
    monkeypatch.setenv("OPENAI_API_KEY", "from-env")
    assert (key(), registry.credential_source("openai")) == ("from-env", "OPENAI_API_KEY")
    write("agent/models.json", {"providers": {"openai": {"apiKey": "from-models"}}})
    registry.reload()
    assert (key(), registry.credential_source("openai")) == ("from-models", "models.json")
    write("agent/auth.json", {"openai": {"type": "api_key", "key": "from-auth"}})
    registry.reload()
    assert (key(), registry.credential_source("openai")) == ("from-auth", "auth.json")
    registry.auth.api_keys["openai"] = "from-cli"
    assert (key(), registry.credential_source("openai")) == ("from-cli", "--api-key")


@pytest.mark.parametrize(
    ("variable", "provider"),
    [
        ("ANTHROPIC_API_KEY", "anthropic"),
        ("OPENAI_API_KEY", "openai"),
        ("GEMINI_API_KEY", "google"),
        ("OPENROUTER_API_KEY", "openrouter"),
        ("GROQ_API_KEY", "groq"),
        ("CEREBRAS_API_KEY", "cerebras"),
        ("XAI_API_KEY", "xai"),
        ("ZAI_API_KEY", "zai"),
        ("MINIMAX_API_KEY", "minimax"),
        ("MINIMAX_CN_API_KEY", "minimax-cn"),
        ("HF_TOKEN", "huggingface"),
        ("DEEPSEEK_API_KEY", "deepseek"),
        ("MOONSHOT_API_KEY", "moonshotai"),
        ("FIREWORKS_API_KEY", "fireworks"),
        ("TOGETHER_API_KEY", "together"),
    ],
)
def test_variables(agent: Path, monkeypatch: pytest.MonkeyPatch, variable: str, provider: str) -> None:
    assert not ModelRegistry(agent).has_credentials(provider)
    monkeypatch.setenv(variable, "k")
    registry = ModelRegistry(agent)
    assert registry.available()[0].provider == provider
    assert {registry.credential_source(model.provider) for model in registry.available()} == {variable}


def test_missing_key_names_the_variable(agent: Path) -> None:
    registry, key = openai(agent)
    with pytest.raises(MissingCredentials) as caught:
        key()
    text = str(caught.value)
    assert text.startswith("No API key found for openai.\n\n")
    assert "OPENAI_API_KEY" in text
    assert "spindle keys set openai" in text
    assert registry.no_model_text() == NO_MODEL


def test_bearer_tokens(agent: Path, write: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_AUTH_TOKEN", "t1")
    found = auth(ModelRegistry(agent), "anthropic", "claude-opus-4-8")
    assert found.headers == {"Authorization": "Bearer t1"}
    monkeypatch.setenv("ANTHROPIC_API_KEY", "k")
    found = auth(ModelRegistry(agent), "anthropic", "claude-opus-4-8")
    assert (found.api_key, found.headers) == ("k", {})


def test_headers_are_merged_and_resolved(agent: Path, write: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEAM_TOKEN", "team")
    provider = {
        "baseUrl": "http://h",
        "api": "openai-completions",
        "apiKey": "$TEAM_TOKEN",
        "authHeader": True,
        "headers": {"X-A": "a", "X-B": "pre-${TEAM_TOKEN}"},
        "models": [{"id": "m", "headers": {"X-A": "model"}}, {"id": "n"}],
    }
    write("agent/models.json", {"providers": {"p": provider}})
    registry = ModelRegistry(agent)
    expected = {"X-A": "model", "X-B": "pre-team", "Authorization": "Bearer team"}
    assert auth(registry, "p", "m") == ModelAuth("team", expected)
    assert auth(registry, "p", "n").headers["X-A"] == "a"
    assert all(model.headers is None for model in registry.all("p"))


def test_unset_reference(agent: Path, write: Any) -> None:
    provider = {"baseUrl": "http://h", "api": "openai-completions", "apiKey": "$NOT_SET", "models": [{"id": "m"}]}
    write("agent/models.json", {"providers": {"p": provider}})
    registry = ModelRegistry(agent)
    assert registry.available() == []
    with pytest.raises(MissingCredentials) as caught:
        auth(registry, "p", "m")
    assert str(caught.value) == 'Failed to resolve API key for provider "p" from environment variable: NOT_SET'


def test_an_unset_reference_leaves_the_way_to_the_environment(
    agent: Path, write: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    write("agent/models.json", {"providers": {"openai": {"apiKey": "$NOT_SET"}}})
    monkeypatch.setenv("OPENAI_API_KEY", "from-env")
    registry, key = openai(agent)
    assert (key(), registry.credential_source("openai")) == ("from-env", "OPENAI_API_KEY")


def test_a_loopback_server_needs_no_key(agent: Path, write: Any) -> None:
    provider = {"baseUrl": "http://localhost:1/v1", "api": "openai-completions", "models": [{"id": "m"}]}
    far = {**provider, "baseUrl": "http://example.org/v1"}
    write("agent/models.json", {"providers": {"near": provider, "far": far}})
    registry = ModelRegistry(agent)
    assert [model.provider for model in registry.available()] == ["near"]
    assert auth(registry, "near", "m").api_key is None


# -- values --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("literal", "literal"),
        ("$THE_KEY", "found"),
        ("${THE_KEY}", "found"),
        ("a-$THE_KEY-b", "a-found-b"),
        ("$$THE_KEY", "$THE_KEY"),
        ("$!x", "!x"),
        ("THE_KEY", "found"),
        ("NOT_SET", "NOT_SET"),
        ("the_key", "the_key"),
        ("!printf ' out '", "out"),
        ("!printf $THE_KEY", "found"),
        ("!echo noise >&2; echo x", "x"),
    ],
)
def test_resolution(monkeypatch: pytest.MonkeyPatch, value: str, expected: str) -> None:
    monkeypatch.setenv("THE_KEY", "found")
    assert is_resolvable(value)
    assert asyncio.run(resolve_value(value)) == expected


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ("$NOT_SET", "environment variable: NOT_SET"),
        ("x${NOT_SET}", "environment variable: NOT_SET"),
        ("!exit 3", "shell command: exit 3"),
        ("!true", "shell command: true"),
    ],
)
def test_what_cannot_be_resolved(value: str, told: str) -> None:
    with pytest.raises(UnresolvedValue) as caught:
        asyncio.run(resolve_value(value))
    assert str(caught.value) == told


def test_a_command_that_hangs_is_ended_with_its_children(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("spindle.base.limits.CREDENTIAL_COMMAND", 1.0)
    started = time.monotonic()
    with pytest.raises(UnresolvedValue):
        asyncio.run(resolve_value(f"!sh -c 'echo $$ > {tmp_path}/pid; sleep 60'; true"))
    assert time.monotonic() - started < 50
    pid = int((tmp_path / "pid").read_text())
    deadline = time.monotonic() + 20
    while Path(f"/proc/{pid}/stat").exists() and "Z" not in Path(f"/proc/{pid}/stat").read_text().split()[2]:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_the_loop_goes_on_while_a_command_runs() -> None:
    async def both() -> tuple[str, int]:
        ticks = 0
        task = asyncio.create_task(resolve_value("!sleep 0.2; echo x"))
        while not task.done():
            await asyncio.sleep(0.01)
            ticks += 1
        return await task, ticks

    value, ticks = asyncio.run(both())
    assert value == "x"
    assert ticks > 3


def test_stored_commands_run_once_others_each_time(agent: Path, write: Any, tmp_path: Path) -> None:
    count = f"!echo x >> {tmp_path}/runs; echo key"
    write("agent/auth.json", {"openai": {"type": "api_key", "key": count}})
    registry, key = openai(agent)
    assert (key(), key()) == ("key", "key")
    assert (tmp_path / "runs").read_text() == "x\n"
    (tmp_path / "runs").unlink()
    (agent / "auth.json").unlink()
    write("agent/models.json", {"providers": {"openai": {"apiKey": count}}})
    registry.reload()
    assert (key(), key()) == ("key", "key")
    assert (tmp_path / "runs").read_text() == "x\nx\n"


def test_asking_whether_there_is_a_key_runs_nothing(agent: Path, write: Any, tmp_path: Path) -> None:
    write("agent/auth.json", {"openai": {"type": "api_key", "key": f"!touch {tmp_path}/ran; echo k"}})
    assert ModelRegistry(agent).available()
    assert not (tmp_path / "ran").exists()


def test_extra_environment_of_a_stored_key(agent: Path, write: Any) -> None:
    write("agent/auth.json", {"openai": {"type": "api_key", "key": "$MY_KEY", "env": {"MY_KEY": "inner"}}})
    _, key = openai(agent)
    assert key() == "inner"


@pytest.mark.parametrize(
    "text", ["{", "[]", '{"openai": "k"}', '{"openai": {"type": "api_key"}}', '{"openai": {"key": 5}}']
)
def test_a_broken_auth_file_is_no_key(agent: Path, write: Any, text: str) -> None:
    write("agent/auth.json", text)
    registry, key = openai(agent)
    with pytest.raises(MissingCredentials):
        key()
    assert (registry.auth.problem is not None) == (text in ("{", "[]"))


def test_nothing_shows_a_key(agent: Path, write: Any) -> None:
    provider = {"baseUrl": "http://h", "api": "x", "apiKey": SECRET, "models": [{"id": "m"}]}
    write("agent/models.json", {"providers": {"p": provider}})
    write("agent/auth.json", {"openai": {"type": "api_key", "key": SECRET}})
    registry = ModelRegistry(agent)
    registry.auth.api_keys["google"] = SECRET
    shown = [registry, registry.auth, registry.file, auth(registry, "p", "m"), auth(registry, "openai", "gpt-5.5")]
    shown += [ModelAuth(SECRET, {"Authorization": SECRET}), registry.available()]
    assert SECRET not in "".join(repr(item) for item in shown)
