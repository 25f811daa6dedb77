"""The APIs of the clouds against a mock server that is not ours: npm `@copilotkit/aimock`, and its chaos modes."""

import json
import os
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from spindle.llm.errors import is_retryable
from spindle.llm.stream import Finished
from spindle.shapes.messages import AssistantMessage, Image, Text, ToolCall, ToolResultMessage, Usage, UserMessage

from .helpers import answer_of, collect, make_model, make_request, shape

SERVER = Path(os.environ.get("SPINDLE_TEST_NODE_MODULES", "/nowhere")) / "@copilotkit/aimock/dist/cli.js"
pytestmark = pytest.mark.skipif(
    not SERVER.exists(), reason="SPINDLE_TEST_NODE_MODULES does not hold @copilotkit/aimock"
)

FIXTURES = [
    {"match": {"userMessage": "think"}, "response": {"content": "Forty-two", "reasoning": "Let me see"}},
    {"match": {"userMessage": "list"}, "response": {"toolCalls": [{"name": "bash", "arguments": {"command": "ls"}}]}},
    {
        "match": {"userMessage": "fail"},
        "response": {"error": {"message": "Rate limited", "type": "rate_limit_error"}, "status": 429},
    },
    {"match": {"userMessage": "hello"}, "response": {"content": "Hello there", "usage": {"input_tokens": 9}}},
]
PLACE = {"GOOGLE_CLOUD_PROJECT": "p1", "GOOGLE_CLOUD_LOCATION": "global"}
APIS = ("bedrock-converse-stream", "google-vertex", "mistral-conversations", "azure-openai-responses")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    fixtures = tmp_path_factory.mktemp("aimock") / "fixtures.json"
    fixtures.write_text(json.dumps({"fixtures": FIXTURES}))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = subprocess.Popen(
        ["node", str(SERVER), "-p", str(port), "-f", str(fixtures), "--log-level", "silent"], stdout=subprocess.DEVNULL
    )
    try:
        end = time.monotonic() + 30
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            except OSError:
                assert process.poll() is None
                assert time.monotonic() < end
                time.sleep(0.05)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(10)


def ask(server: str, api: str, *messages: Any, id: str = "us.anthropic.claude-opus-5", **options: Any) -> list[Any]:
    provider = "azure" if api.startswith("azure") else "mock"
    model = make_model(api=api, provider=provider, base_url=server, id=id, reasoning=True)
    return collect(model, make_request(*messages), **{"api_key": "key", "env": PLACE, **options})


@pytest.mark.parametrize("api", APIS)
def test_text_and_images(server: str, api: str) -> None:
    image = Image("iVBORw0KGgo=", "image/png")
    found = answer_of(ask(server, api, UserMessage([Text("hello"), image], 0)))
    assert (shape(found), found.stop_reason) == ([("text", "Hello there")], "stop")


@pytest.mark.parametrize("api", APIS)
def test_thinking(server: str, api: str) -> None:
    found = answer_of(ask(server, api, "think", reasoning="high"))
    assert [block[:2] for block in shape(found)] == [("thinking", "Let me see"), ("text", "Forty-two")]


@pytest.mark.parametrize("api", APIS)
def test_calls_and_their_results(server: str, api: str) -> None:
    found = answer_of(ask(server, api, "list"))
    [call] = found.content
    assert isinstance(call, ToolCall)
    assert (call.name, call.arguments) == ("bash", {"command": "ls"})
    assert found.stop_reason == "toolUse" or found.raw_stop_reason == "FUNCTION_CALL"
    answer = AssistantMessage([call], api, found.provider, found.model, Usage(), "toolUse", 0)
    result = ToolResultMessage(
        tool_call_id=call.id, tool_name="bash", content=[Text("a.py")], is_error=False, timestamp=0
    )
    again = answer_of(ask(server, api, "list", answer, result, UserMessage("hello", 0)))
    assert shape(again) == [("text", "Hello there")]


@pytest.mark.parametrize("api", APIS)
def test_refusals(server: str, api: str) -> None:
    [finished] = ask(server, api, "fail")
    assert isinstance(finished, Finished)
    assert finished.failure is not None
    text = finished.message.error_message or ""
    assert "Rate limited" in text
    assert (finished.failure.status, is_retryable(text, finished.failure.status)) == (429, True)


@pytest.mark.parametrize("chaos", ["drop", "malformed", "disconnect"])
@pytest.mark.parametrize("api", APIS)
def test_chaos(server: str, api: str, chaos: str) -> None:
    found = answer_of(ask(server, api, "hello", headers={f"x-aimock-chaos-{chaos}": "1"}))
    assert found.stop_reason == "error"
    assert found.error_message


def test_a_signed_request(server: str) -> None:
    keys = {"AWS_ACCESS_KEY_ID": "AKID", "AWS_SECRET_ACCESS_KEY": "secret"}
    found = answer_of(
        ask(server, APIS[0], "hello", id="anthropic.claude-sonnet-4-5-20250929-v1:0", api_key=None, env=keys)
    )
    assert shape(found) == [("text", "Hello there")]
