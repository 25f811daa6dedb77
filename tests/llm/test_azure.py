"""Models on Azure that speak chat completions: the resource and the deployment are the user's."""

from typing import Any

import pytest

from spindle.llm.azure import azure_base
from spindle.llm.stream import StreamOptions
from tests.support.mock_model import MockModel, reply

from .helpers import answer_of, collect, make_model, shape


@pytest.fixture(autouse=True)
def no_wishes(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("BASE_URL", "RESOURCE_NAME", "API_VERSION", "DEPLOYMENT_NAME_MAP"):
        monkeypatch.delenv(f"AZURE_OPENAI_{name}", raising=False)


def ask(mock: MockModel, env: dict[str, str], **fields: Any) -> Any:
    model = make_model(**{"provider": "azure", "id": "deepseek-v4-pro", "base_url": "", **fields})
    return answer_of(collect(model, api_key="azure-key", env=env))


def test_chat_completions() -> None:
    with MockModel([reply("Hello")]) as mock:
        names = "x=y, deepseek-v4-pro=my-deepseek"
        env = {"AZURE_OPENAI_BASE_URL": f"{mock.url}/", "AZURE_OPENAI_DEPLOYMENT_NAME_MAP": names}
        found = ask(mock, env)
        [request] = mock.requests
    assert shape(found) == [("text", "Hello")]
    assert found.model == "deepseek-v4-pro"
    assert request.path == "/openai/v1/chat/completions"
    assert request.headers["authorization"] == "Bearer azure-key"
    assert request.body["model"] == "my-deepseek"


def test_settings_stored_with_the_key_come_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_OPENAI_BASE_URL", "http://127.0.0.1:1")
    with MockModel([reply("Hello")]) as mock:
        assert shape(ask(mock, {"AZURE_OPENAI_BASE_URL": f"{mock.url}/gateway"})) == [("text", "Hello")]
        assert mock.requests[0].path == "/gateway/chat/completions"


@pytest.mark.parametrize(
    ("given", "address"),
    [
        ("mine.openai.azure.com", "https://mine.openai.azure.com/openai/v1"),
        ("localhost:8080", "https://localhost:8080/openai/v1"),
        (" https://mine.openai.azure.com/ ", "https://mine.openai.azure.com/openai/v1"),
        ("http://gateway/azure?api-version=1", "http://gateway/azure"),
    ],
)
def test_addresses(given: str, address: str) -> None:
    options = StreamOptions(env={"AZURE_OPENAI_BASE_URL": given})
    assert azure_base(make_model(provider="azure", base_url=""), options) == address


def test_the_resource_must_be_named() -> None:
    with MockModel() as mock:
        found = ask(mock, {})
    assert found.error_message == "Set AZURE_OPENAI_BASE_URL or AZURE_OPENAI_RESOURCE_NAME to use Azure OpenAI"


def test_other_providers_are_not_touched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_OPENAI_BASE_URL", "http://127.0.0.1:1")
    with MockModel([reply("Hello")]) as mock:
        assert shape(ask(mock, {}, provider="other", base_url=mock.openai_url)) == [("text", "Hello")]
