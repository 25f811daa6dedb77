"""Virtual models: a function says for each request which model answers it."""

import json
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from spindle.inprocess import Agent
from tests.agent.rig import run
from tests.support.mock_model import MockModel, call, failure, reply


@pytest.fixture
def servers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Two models with a price, on servers of their own."""
    monkeypatch.setenv("SPINDLE_DIR", str(tmp_path / "agent"))
    (tmp_path / "agent").mkdir()
    with ExitStack() as stack:
        mocks = {
            "fast": stack.enter_context(MockModel([reply(call("read", {"path": "none"})), reply("fast")])),
            "smart": stack.enter_context(MockModel([reply("smart")])),
        }
        providers = {
            name: {
                "baseUrl": mock.openai_url,
                "api": "openai-completions",
                "apiKey": "k",
                "models": [{"id": "m", "cost": {"input": price, "output": 0, "cacheRead": 0, "cacheWrite": 0}}],
            }
            for (name, mock), price in zip(mocks.items(), (1e5, 1e6), strict=True)
        }
        (tmp_path / "agent/models.json").write_text(json.dumps({"providers": providers}))
        (tmp_path / "agent/settings.json").write_text(json.dumps({"retry": {"maxRetries": 0}}))
        yield mocks


def with_route(route: Any) -> Any:
    def extension(agent: Any) -> None:
        agent.virtual_model("fast-or-smart", route, contextWindow=50_000, maxTokens=1000)

    return extension


def by_length(request: Any) -> str:
    return "smart/m" if len(request.messages) > 1 else "fast/m"


def test_each_request_goes_where_the_route_says(tmp_path, servers):
    async def main() -> None:
        options = {"cwd": tmp_path, "model": "fast-or-smart", "extensions": [with_route(by_length)]}
        async with Agent.create(**options) as agent:
            assert any(model.id == "fast-or-smart" for model in agent.session.models.available())
            result = await agent.run("go").result()
            assert (result.status, result.text, result.fallbacks) == ("ok", "smart", [])
            assert result.cost == pytest.approx(8 * 0.1 + 8 * 1)  # two of ten tokens are cached
            assert [len(mock.requests) for mock in servers.values()] == [1, 1]
            answers = [message for message in agent.messages if message.role == "assistant"]
            assert [(a.provider, a.model) for a in answers] == [("fast", "m"), ("smart", "m")]
            assert agent.session.model.id == "fast-or-smart"
            path = result.session_file
        del options["cwd"], options["model"]
        async with Agent.open(path, **options) as agent:
            assert agent.session.model.id == "fast-or-smart"

    run(main())


def broken(request: Any) -> str:
    raise LookupError("no table")


@pytest.mark.parametrize(
    ("route", "words"),
    [
        (broken, 'The route of the model "fast-or-smart" failed: LookupError: no table'),
        (lambda request: None, 'The route of the model "fast-or-smart" gave None; it should give the name of a model'),
        (lambda request: "nowhere-9000", 'gave no model: Model "nowhere-9000" not found'),
        (lambda request: "fast-or-smart", "which is virtual, too"),
    ],
)
def test_a_route_that_fails_is_an_error_in_words(tmp_path, servers, route, words):
    async def main() -> None:
        async with Agent.create(cwd=tmp_path, model="fast-or-smart", extensions=[with_route(route)]) as agent:
            result = await agent.run("go").result()
            assert result.status == "error" and words in result.error
            assert not any(mock.requests for mock in servers.values())

    run(main())


def test_a_virtual_model_in_a_chain(tmp_path, servers):
    async def to_smart(request: Any) -> str:
        return "smart/m"

    async def main() -> None:
        servers["fast"]._steps[:] = [failure(402, "pay")]
        options: Any = {"fallback": ["fast-or-smart"], "extensions": [with_route(to_smart)]}
        async with Agent.create(cwd=tmp_path, model="fast/m", **options) as agent:
            result = await agent.run("go").result()
            assert result.text == "smart"
            assert [one.after for one in result.fallbacks] == ["fast-or-smart/fast-or-smart"]
            assert agent.session.session.model() == ("fast", "m")

    run(main())
