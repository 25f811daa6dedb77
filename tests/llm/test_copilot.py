"""GitHub Copilot behind three APIs: what it wants to know of a request."""

from typing import Any

import pytest

from spindle.shapes.messages import (
    AssistantMessage,
    Image,
    Text,
    ToolCall,
    ToolResultMessage,
    Usage,
    UserMessage,
)
from tests.support.mock_model import MockModel, reply

from .helpers import collect, make_model, make_request

APIS = ("openai-completions", "anthropic-messages", "openai-responses")
IMAGE = Image("QUJD", "image/png")
CALL = AssistantMessage([ToolCall("c1", "read", {})], "x", "x", "x", Usage(), "toolUse", 0)


def result(*content: Any) -> ToolResultMessage:
    return ToolResultMessage(tool_call_id="c1", tool_name="read", content=list(content), is_error=False, timestamp=0)


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize(
    ("messages", "sees", "initiator", "vision"),
    [
        (["hi"], True, "user", None),
        ([UserMessage([Text("look"), IMAGE], 0)], True, "user", "true"),
        ([UserMessage([Text("look"), IMAGE], 0)], False, "user", None),
        (["hi", CALL, result(Text("x"))], True, "agent", None),
        (["hi", CALL, result(IMAGE)], True, "agent", "true"),
    ],
)
def test_headers(api: str, messages: list[Any], sees: bool, initiator: str, vision: str | None) -> None:
    with MockModel([reply("OK")]) as mock:
        inputs = ["text", "image"] if sees else ["text"]
        model = make_model(api=api, provider="github-copilot", base_url=mock.url, input=inputs)
        token = {"Authorization": "Bearer copilot-token"}
        collect(model, make_request(*messages), api_key="copilot-token", headers=token)
        [request] = mock.requests
    assert request.headers["authorization"] == "Bearer copilot-token"
    assert "x-api-key" not in request.headers
    assert request.headers["openai-intent"] == "conversation-edits"
    assert request.headers["x-initiator"] == initiator
    assert request.headers.get("copilot-vision-request") == vision


def test_other_providers_are_told_nothing() -> None:
    with MockModel([reply("OK")]) as mock:
        collect(make_model(base_url=mock.openai_url))
        assert "x-initiator" not in mock.requests[0].headers
