"""A real llama.cpp server, as people run it, over each of the APIs that it offers."""

from pathlib import Path
from typing import Any

import pytest

from spindle.llm.local.llama_server import WantedModel, lease, stop_all
from spindle.llm.stream import Finished, StreamOptions, ToolSpec, builtin_stream
from spindle.shapes.messages import AssistantMessage, Text, ToolCall, ToolResultMessage, Usage, UserMessage
from spindle.shapes.model import ModelCost
from tests.llm.helpers import make_model, make_request

PATHS = {"openai-completions": "/v1", "openai-responses": "/v1", "anthropic-messages": ""}
LS = ToolSpec("ls", "List a folder", {"type": "object", "properties": {"path": {"type": "string"}}})


async def test_a_llama_server_over_all_its_apis(gguf_path: Path) -> None:
    async def ask(api: str, *messages: Any, tools: bool = False) -> AssistantMessage:
        model = make_model(
            api=api, base_url=facts.url + PATHS[api], id="smollm2", max_tokens=8, cost=ModelCost(1, 2, 0.5, 0)
        )
        request = make_request(*messages, tools=[LS] if tools else [])
        stream = builtin_stream(api)(model, request, StreamOptions(api_key=facts.key))
        chunks = [chunk async for chunk in stream]
        assert isinstance(chunks[-1], Finished)
        return chunks[-1].message

    try:
        async with lease(WantedModel(gguf_path, "smollm2", 2048)) as facts:
            for api in PATHS:
                first = await ask(api, "Say hello.")
                assert first.stop_reason in ("stop", "length"), first.error_message
                assert isinstance(first.content[0], Text) and first.content[0].text
                usage = first.usage
                assert usage.output > 0
                if usage.input + usage.cache_read:
                    assert usage.input + usage.cache_read > 10
                    dollars = (usage.input + usage.cache_read * 0.5 + usage.output * 2) / 1e6
                    assert (usage.cost.total, usage.cost.source) == (pytest.approx(dollars), "computed")
                else:  # on a busy machine the server answers before it has counted
                    assert usage.cost.source == "unknown"

                # The server has hung up by now without saying so, and remembers the beginning.
                second = await ask(api, "Say hello.", first, UserMessage("And goodbye.", 2))
                assert second.stop_reason in ("stop", "length"), second.error_message
                assert second.usage.cache_read > 10 or second.usage.cost.source == "unknown"

                called = AssistantMessage(
                    [Text("Looking."), ToolCall("c1", "ls", {"path": "."})], api, "mock", "m1", Usage(), "toolUse", 2
                )
                result = ToolResultMessage(
                    tool_call_id="c1", tool_name="ls", content=[Text("a.txt")], is_error=False, timestamp=3
                )
                third = await ask(api, "List it.", called, result, tools=True)
                assert third.stop_reason in ("stop", "length", "toolUse"), third.error_message

                refused = await ask(api, "word " * 4000)
                assert refused.stop_reason == "error"
                assert "context" in (refused.error_message or "")
    finally:
        stop_all()
