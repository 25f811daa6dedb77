"""Every API against other people's idea of it: the mock server of npm `@copilotkit/aimock`, and its chaos modes."""

import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from spindle.llm.errors import is_retryable
from spindle.llm.stream import Finished, ToolSpec
from spindle.shapes.messages import AssistantMessage, Image, Text, ToolResultMessage, UserMessage
from tests.support.agent_process import AgentProcess
from tests.support.images import PIXEL

from .helpers import answer_of, collect, events_of, make_model, make_request, shape

SERVER = Path(os.environ.get("SPINDLE_TEST_NODE_MODULES", "/nowhere")) / "@copilotkit/aimock/dist/cli.js"
pytestmark = pytest.mark.skipif(
    not SERVER.exists(), reason="SPINDLE_TEST_NODE_MODULES does not hold @copilotkit/aimock"
)
APIS = {
    "openai-completions": ("/v1", "gpt-5"),
    "openai-responses": ("/v1", "gpt-5"),
    "azure-openai-responses": ("", "gpt-5"),
    "anthropic-messages": ("", "claude-opus-4-8"),
    "google-generative-ai": ("/v1beta", "gemini-3-pro"),
}
TOOL = ToolSpec("bash", "Run a command", {"type": "object", "properties": {"command": {"type": "string"}}})
LS: dict[str, Any] = {"name": "bash", "arguments": '{"command": "ls"}', "id": "call_abc"}
LONG = "This answer is cut off long before its end has come, because it has enough pieces for that."
FIXTURES: list[dict[str, Any]] = [
    {"match": {"userMessage": "text"}, "response": {"content": "Hello there, piece by piece, to whom it may concern."}},
    {"match": {"userMessage": "think"}, "response": {"content": "42", "reasoning": "Six by seven."}},
    {"match": {"userMessage": "call", "hasToolResult": False}, "response": {"content": "Looking.", "toolCalls": [LS]}},
    {"match": {"userMessage": "call", "hasToolResult": True}, "response": {"content": "There is a.txt."}},
    {"match": {"userMessage": "both"}, "response": {"toolCalls": [LS, LS | {"id": "call_def"}]}},
    {"match": {"userMessage": "odd"}, "response": {"toolCalls": [LS], "finishReason": "something_new"}},
    {"match": {"userMessage": "long"}, "response": {"content": "Too", "finishReason": "length"}},
    {"match": {"userMessage": "busy"}, "response": {"error": {"message": "Slow down"}, "status": 429, "retryAfter": 3}},
    {"match": {"userMessage": "deny"}, "response": {"error": {"message": "No such key"}, "status": 401}},
    {"match": {"userMessage": "cut"}, "response": {"content": LONG}, "truncateAfterChunks": 9, "latency": 10},
    {"match": {"userMessage": "tear"}, "response": {"content": LONG * 9}, "disconnectAfterMs": 600, "latency": 10},
    *(
        {"match": {"userMessage": name}, "response": {"content": "ok"}, "chaos": {name: 1}}
        for name in ("dropRate", "malformedRate", "disconnectRate", "rateLimitRate")
    ),
    {
        "match": {"userMessage": "bill"},
        "response": {"content": "ok", "usage": {"prompt_tokens": 10, "completion_tokens": 5, "cost": 0.0123}},
    },
    {
        "match": {"userMessage": "count"},
        "response": {"content": "ok", "usage": {"prompt_tokens": 1000, "completion_tokens": 500}},
    },
]


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    fixtures = tmp_path_factory.mktemp("aimock") / "fixtures.json"
    fixtures.write_text(json.dumps({"fixtures": FIXTURES}))
    command = ["node", str(SERVER), "-p", "0", "-f", str(fixtures), "-c", "8"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as server:
        try:
            assert server.stdout is not None
            said = ""
            while not (found := re.search(r"listening on (http://\S+)", said)):
                line = server.stdout.readline()
                assert line, f"aimock did not start: {said}"
                said += line
            yield found[1]
        finally:
            server.kill()


def ask(url: str, api: str, *messages: Any, provider: str = "mock") -> list[Any]:
    path, model_id = APIS[api]
    path = "/api/v1" if provider == "openrouter" else path
    model = make_model(api=api, base_url=url + path, id=model_id, provider=provider, reasoning=True)
    return collect(model, make_request(*messages, tools=[TOOL]), api_key="k", reasoning="high")


def blocks(answer: AssistantMessage) -> list[Any]:
    """Return what an answer says, without ids and thoughts that nothing was said of."""
    shapes = [block[:2] if block[0] != "call" else (*block[:1], *block[2:]) for block in shape(answer)]
    return [block for block in shapes if block != ("thinking", "")]


def may_pass(chunks: list[Any]) -> bool:
    """Tell whether the agent would ask again after this failure."""
    end = chunks[-1]
    return is_retryable(end.message.error_message, end.failure and end.failure.status)


each_api = pytest.mark.parametrize("api", APIS)


@each_api
def test_text_comes_in_pieces(url: str, api: str) -> None:
    chunks = ask(url, api, "text")
    answer = answer_of(chunks)
    assert blocks(answer) == [("text", "Hello there, piece by piece, to whom it may concern.")]
    assert answer.stop_reason == "stop"
    assert len([event for event in events_of(chunks) if event[0] == "text_delta"]) > 3


@each_api
def test_thinking(url: str, api: str) -> None:
    assert blocks(answer_of(ask(url, api, "think"))) == [("thinking", "Six by seven."), ("text", "42")]


@each_api
def test_a_tool_and_its_result(url: str, api: str) -> None:
    answer = answer_of(ask(url, api, "call"))
    assert blocks(answer) == [("text", "Looking."), ("call", "bash", {"command": "ls"})]
    assert answer.stop_reason == "toolUse"
    call = answer.content[-1]
    result = ToolResultMessage(
        tool_call_id=call.id, tool_name="bash", content=[Text("a.txt")], is_error=False, timestamp=2
    )
    again = answer_of(ask(url, api, "call", answer, result))
    assert (blocks(again), again.stop_reason) == ([("text", "There is a.txt.")], "stop")


@each_api
def test_two_tools_at_once(url: str, api: str) -> None:
    calls = [block for block in shape(answer_of(ask(url, api, "both"))) if block[0] == "call"]
    assert [call[2:] for call in calls] == [("bash", {"command": "ls"})] * 2
    assert calls[0][1] != calls[1][1]


@each_api
def test_an_unknown_reason_after_a_tool_call_means_tool_use(url: str, api: str) -> None:
    answer = answer_of(ask(url, api, "odd"))
    assert (answer.stop_reason, answer.error_message) == ("toolUse", None)


@each_api
def test_an_image_is_taken(url: str, api: str) -> None:
    picture = UserMessage([Text("text"), Image(PIXEL, "image/png")], 1)
    assert answer_of(ask(url, api, picture)).stop_reason == "stop"


@each_api
def test_the_limit_of_tokens(url: str, api: str) -> None:
    assert answer_of(ask(url, api, "long")).stop_reason == "length"


@each_api
def test_refusals(url: str, api: str) -> None:
    chunks = ask(url, api, "busy")
    assert isinstance(chunks[-1], Finished) and chunks[-1].failure is not None
    assert (chunks[-1].failure.status, chunks[-1].failure.retry_after) == (429, 3)
    assert "Slow down" in (chunks[-1].message.error_message or "")
    assert may_pass(chunks)
    chunks = ask(url, api, "deny")
    assert "No such key" in (answer_of(chunks).error_message or "")
    assert not may_pass(chunks)


@each_api
@pytest.mark.parametrize("how", ["cut", "tear"])
def test_a_stream_that_is_cut_keeps_what_came_and_is_no_answer(url: str, api: str, how: str) -> None:
    chunks = ask(url, api, how)
    answer = answer_of(chunks)
    assert answer.stop_reason == "error"
    assert may_pass(chunks)
    said = "".join(block[1] for block in blocks(answer) if block[0] == "text")
    assert said and said != LONG and said != LONG * 9 and (LONG * 9).startswith(said)
    assert answer.usage.cost.unknown is True


@each_api
@pytest.mark.parametrize(
    ("mode", "retryable"),
    [("dropRate", True), ("malformedRate", False), ("disconnectRate", True), ("rateLimitRate", True)],
)
def test_chaos(url: str, api: str, mode: str, retryable: bool) -> None:
    chunks = ask(url, api, mode)
    answer = answer_of(chunks)
    assert (answer.stop_reason, answer.content) == ("error", [])
    assert answer.error_message
    assert may_pass(chunks) == retryable
    assert (answer.usage.cost.source, answer.usage.cost.total) == ("computed", 0)


# -- money ---------------------------------------------------------------------------------------


@each_api
def test_tokens_are_counted_and_priced(url: str, api: str) -> None:
    usage = answer_of(ask(url, api, "count")).usage
    assert (usage.input, usage.output) == (1000, 500)
    assert usage.cost.total == pytest.approx((1000 * 1 + 500 * 2) / 1e6)
    assert usage.cost.source == "computed"


def test_openrouter_bills(url: str) -> None:
    cost = answer_of(ask(url, "openai-completions", "bill", provider="openrouter")).usage.cost
    assert (cost.total, cost.source) == (0.0123, "billed")
    assert answer_of(ask(url, "openai-completions", "bill")).usage.cost.source == "computed"


# -- the whole program ---------------------------------------------------------------------------


def test_the_program_works_through_a_tool_on_every_api(url: str) -> None:
    class Shop(AgentProcess):
        def configure(self) -> None:
            sizes = {"contextWindow": 100_000, "maxTokens": 4096, "cost": {"input": 1, "output": 2}}
            providers = {
                api: {"baseUrl": url + path, "apiKey": "k", "api": api, "models": [{"id": model_id, **sizes}]}
                for api, (path, model_id) in APIS.items()
            }
            (self.agent_dir / "models.json").write_text(json.dumps({"providers": providers}))

    with Shop(model="openai-completions/gpt-5") as agent:
        for api, (_, model_id) in APIS.items():
            agent.data("new_session")
            agent.data("set_model", provider=api, modelId=model_id)
            frames = agent.run("call")
            assert [frame["toolName"] for frame in frames if frame["type"] == "tool_execution_end"] == ["bash"], api
            result = agent.data("get_run_result")["result"]
            assert (result["status"], result["text"], result["turns"]) == ("ok", "There is a.txt.", 2), api
