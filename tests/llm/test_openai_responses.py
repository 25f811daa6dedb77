"""The responses API and its Azure form: what is sent, how the stream is folded, how it ends."""

import json
from functools import partial

import pytest

from spindle.llm.compat import ResponsesCompat
from spindle.llm.errors import is_retryable
from spindle.llm.history import transform_request
from spindle.llm.openai_responses import responses_body, responses_headers, responses_url
from spindle.llm.stream import Request, StreamOptions, ToolSpec
from spindle.shapes.messages import Image, Text, Thinking, ToolCall, UserMessage
from tests.support.mock_model import MockModel, cut, failure, raw

from .helpers import answer_by, answer_of, collect, events_of, make_model, shape
from .helpers import result as result_of

API, AZURE = "openai-responses", "azure-openai-responses"
TOOL = ToolSpec("bash", "Run a command", {"type": "object"})
USER = UserMessage("hi", 0)
THINKS = {"reasoning": True}
answer, result = partial(answer_by, API), partial(result_of, id="c1|fc_1")


def body(*messages, compat=None, tools=(), system="Be brief.", model=None, **options) -> dict:
    model = make_model(**{"api": API, "compat": compat, **(model or {})})
    request = transform_request(Request(system, list(messages) or [USER], list(tools)), model)
    return responses_body(model, request, StreamOptions(**options), ResponsesCompat.of(model))


def items(*messages, **options) -> list[dict]:
    return body(*messages, system="", **options)["input"]


HI = {"role": "user", "content": [{"type": "input_text", "text": "hi"}]}


def test_a_plain_request():
    assert body(tools=[TOOL]) == {
        "model": "m1",
        "input": [{"role": "system", "content": "Be brief."}, HI],
        "stream": True,
        "store": False,
        "max_output_tokens": 4096,
        "tools": [
            {
                "type": "function",
                "name": "bash",
                "description": "Run a command",
                "parameters": {"type": "object"},
                "strict": False,
            }
        ],
    }


def test_options():
    sent = body(session_id="s" * 70, cache_retention="long", max_tokens=3)
    assert (sent["prompt_cache_key"], sent["prompt_cache_retention"]) == ("s" * 64, "24h")
    assert sent["max_output_tokens"] == 16
    assert "prompt_cache_key" not in body()
    short = body(cache_retention="long", compat={"supportsLongCacheRetention": False})
    assert "prompt_cache_retention" not in short
    assert body(model=THINKS)["input"][0]["role"] == "developer"
    assert body(model=THINKS, compat={"supportsDeveloperRole": False})["input"][0]["role"] == "system"


def test_reasoning():
    on = body(model=THINKS, reasoning="low")
    assert on["reasoning"] == {"effort": "low", "summary": "auto"}
    assert on["include"] == ["reasoning.encrypted_content"]
    assert body(model=THINKS)["reasoning"] == {"effort": "none"}
    assert body(model={**THINKS, "thinking_level_map": {"off": "minimal"}})["reasoning"] == {"effort": "minimal"}
    assert "reasoning" not in body(model={**THINKS, "thinking_level_map": {"off": None}})
    assert "reasoning" not in body(model={**THINKS, "provider": "github-copilot"})
    assert "reasoning" not in body(reasoning="low")


@pytest.mark.parametrize(
    ("fields", "compat", "expected"),
    [
        ({}, None, {"authorization": "Bearer key", "session_id": "s", "x-client-request-id": "s"}),
        (
            {},
            {"sessionAffinityFormat": "openai-nosession"},
            {"authorization": "Bearer key", "x-client-request-id": "s"},
        ),
        ({"provider": "openrouter"}, None, {"authorization": "Bearer key", "x-session-id": "s"}),
        ({"api": AZURE}, None, {"api-key": "key", "session_id": "s", "x-client-request-id": "s"}),
    ],
)
def test_headers(fields, compat, expected):
    model = make_model(**{"api": API, "compat": compat, **fields})
    assert responses_headers(model, StreamOptions(api_key="key", session_id="s"), ResponsesCompat.of(model)) == expected


IMAGE = Image("QUJD", "image/png")
IMAGE_PART = {"type": "input_image", "detail": "auto", "image_url": "data:image/png;base64,QUJD"}
REASONING = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "zzz"}


def test_items():
    history = [
        UserMessage([Text("see"), IMAGE], 0),
        answer(
            Thinking("hm", json.dumps(REASONING)),
            Text("a", '{"v":1,"id":"msg_a","phase":"commentary"}'),
            Text("b", "msg_b"),
            Text("c"),
            ToolCall("c1|fc_1", "bash", {"k": 1}),
        ),
        result(Text("x"), Text("y")),
        answer(ToolCall("c2", "bash", {}), ToolCall("c3", "bash", {})),
        result(IMAGE, id="c2"),
        result(id="c3"),
    ]
    sent = items(*history)
    assert sent[0]["content"] == [{"type": "input_text", "text": "see"}, IMAGE_PART]
    assert sent[1] == REASONING
    assert sent[2] == {
        "type": "message",
        "role": "assistant",
        "id": "msg_a",
        "status": "completed",
        "content": [{"type": "output_text", "text": "a", "annotations": []}],
        "phase": "commentary",
    }
    assert [item["id"] for item in sent[3:5]] == ["msg_b", "msg_4"]
    assert sent[5] == {"type": "function_call", "call_id": "c1", "id": "fc_1", "name": "bash", "arguments": '{"k":1}'}
    assert sent[6] == {"type": "function_call_output", "call_id": "c1", "output": "x\ny"}
    assert "id" not in sent[7]
    assert [item["output"] for item in sent[9:]] == [[IMAGE_PART], "(no tool output)"]


def test_items_of_another_model_lose_their_ids():
    history = [answer(Text("a", "msg_a"), ToolCall("c1|fc_1", "bash", {}), model="other"), result(Text("r"))]
    message, call, output = items(*history)
    assert message["id"] == "msg_0"
    assert "id" not in call
    assert call["call_id"] == output["call_id"]


# -- azure ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("base_url", "environment", "url"),
    [
        ("https://r.openai.azure.com", {}, "https://r.openai.azure.com/openai/v1/responses?api-version=v1"),
        ("https://r.openai.azure.com/openai/v1/", {}, "https://r.openai.azure.com/openai/v1/responses?api-version=v1"),
        (
            "",
            {"AZURE_OPENAI_RESOURCE_NAME": "res", "AZURE_OPENAI_API_VERSION": "v2"},
            "https://res.openai.azure.com/openai/v1/responses?api-version=v2",
        ),
        ("https://x", {"AZURE_OPENAI_BASE_URL": "https://y/"}, "https://y/openai/v1/responses?api-version=v1"),
        (
            "https://x",
            {"AZURE_OPENAI_RESOURCE_NAME": "res"},
            "https://res.openai.azure.com/openai/v1/responses?api-version=v1",
        ),
        (
            "https://r.ai.azure.com/openai/v1/responses?api-version=old",
            {},
            "https://r.ai.azure.com/openai/v1/responses?api-version=v1",
        ),
        ("https://gateway/team/ai/", {}, "https://gateway/team/ai/responses?api-version=v1"),
    ],
)
def test_azure_addresses(monkeypatch, base_url, environment, url):
    for name in ("BASE_URL", "RESOURCE_NAME", "API_VERSION", "DEPLOYMENT_NAME_MAP"):
        monkeypatch.delenv(f"AZURE_OPENAI_{name}", raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert responses_url(make_model(api=AZURE, base_url=base_url), StreamOptions()) == url


def test_an_azure_resource_must_be_named(monkeypatch):
    monkeypatch.delenv("AZURE_OPENAI_BASE_URL", raising=False)
    monkeypatch.delenv("AZURE_OPENAI_RESOURCE_NAME", raising=False)
    answer = answer_of(collect(make_model(api=AZURE, base_url="")))
    assert "AZURE_OPENAI_BASE_URL" in answer.error_message


def test_azure_deployments(monkeypatch):
    monkeypatch.setenv("AZURE_OPENAI_DEPLOYMENT_NAME_MAP", "m0=zero, m1=one")
    assert body(model={"api": AZURE})["model"] == "one"
    assert body(model={"api": AZURE, "id": "m2"})["model"] == "m2"


# -- streams -------------------------------------------------------------------------------------


def event(type: str, **fields) -> bytes:
    return f"event: {type}\ndata: {json.dumps({'type': type, **fields})}\n\n".encode()


def added(index: int, **item) -> bytes:
    return event("response.output_item.added", output_index=index, item=item)


def done(index: int, **item) -> bytes:
    return event("response.output_item.done", output_index=index, item=item)


def delta(kind: str, index: int, text: str) -> bytes:
    return event(f"response.{kind}.delta", output_index=index, delta=text)


def end(status: str = "completed", **fields) -> bytes:
    return event(f"response.{status}", response={"id": "resp_1", "status": status, **fields})


def ask(*stream, **fields) -> list:
    with MockModel([raw(*stream)]) as mock:
        return collect(make_model(**{"api": API, "base_url": mock.openai_url, **fields}))


USAGE = {
    "input_tokens": 100,
    "output_tokens": 20,
    "input_tokens_details": {"cached_tokens": 30},
    "output_tokens_details": {"reasoning_tokens": 7},
}


def test_a_stream_of_everything():
    reasoning = {"id": "rs_1", "summary": [{"text": "one"}, {"text": "two"}], "encrypted_content": "z"}
    message = {"id": "msg_1", "content": [{"type": "output_text", "text": "Hello"}]}
    call = {"id": "fc_1", "call_id": "c1", "name": "bash"}
    chunks = ask(
        event("response.created", response={"id": "resp_1", "model": "m1-2025"}),
        added(0, type="reasoning", id="rs_1"),
        delta("reasoning_summary_text", 0, "one"),
        event("response.reasoning_summary_part.done", output_index=0),
        delta("reasoning_summary_text", 0, "two"),
        event("response.reasoning_summary_part.done", output_index=0),
        done(0, type="reasoning", **reasoning),
        added(1, type="message", id="msg_1"),
        delta("output_text", 1, "Hel"),
        delta("output_text", 1, "lo"),
        done(1, type="message", **message),
        added(2, type="function_call", **call),
        delta("function_call_arguments", 2, '{"k":'),
        event("response.function_call_arguments.done", output_index=2, arguments='{"k":1}'),
        done(2, type="function_call", arguments='{"k":1}', **call),
        added(3, type="web_search_call", id="ws"),
        done(3, type="web_search_call", id="ws"),
        end(usage=USAGE),
    )
    events = events_of(chunks)
    assert events[:-1] == [
        ("thinking_start", 0),
        ("thinking_delta", 0, "one"),
        ("thinking_delta", 0, "\n\n"),
        ("thinking_delta", 0, "two"),
        ("thinking_end", 0, "one\n\ntwo"),
        ("text_start", 1),
        ("text_delta", 1, "Hel"),
        ("text_delta", 1, "lo"),
        ("text_end", 1, "Hello"),
        ("toolcall_start", 2, "c1|fc_1"),
        ("toolcall_delta", 2, '{"k":'),
        ("toolcall_delta", 2, "1}"),
    ]
    assert events[-1][:2] == ("toolcall_end", 2)
    result = answer_of(chunks)
    thinking, text, tool_call = result.content
    assert json.loads(thinking.thinking_signature) == {"type": "reasoning", **reasoning}
    assert json.loads(text.text_signature) == {"v": 1, "id": "msg_1"}
    assert tool_call.arguments == {"k": 1}
    assert (result.stop_reason, result.response_id, result.response_model) == ("toolUse", "resp_1", "m1-2025")
    usage = result.usage
    assert (usage.input, usage.output, usage.cache_read, usage.reasoning) == (70, 20, 30, 7)


def test_items_may_take_turns():
    chunks = ask(
        added(0, type="reasoning", id="rs_1"),
        added(1, type="message", id="msg_1"),
        delta("reasoning_summary_text", 0, "one"),
        event("response.reasoning_summary_part.done", output_index=0),
        delta("output_text", 1, "Hel"),
        delta("reasoning_summary_text", 0, "two"),
        done(1, type="message", id="msg_1", content=[]),
        delta("output_text", 1, "too late"),
        done(0, type="reasoning", id="rs_1", summary=[{"text": None}]),
        end(),
    )
    assert [block[:2] for block in shape(answer_of(chunks))] == [("thinking", "one\n\ntwo"), ("text", "Hel")]


def test_the_final_item_has_the_last_word():
    final = {"id": "m", "content": [{"type": "refusal", "refusal": "No."}]}
    chunks = ask(added(0, type="message", id="m"), delta("refusal", 0, "N"), done(0, type="message", **final), end())
    assert shape(answer_of(chunks)) == [("text", "No.")]
    assert ("text_end", 0, "No.") in events_of(chunks)


@pytest.mark.parametrize(("tier", "factor"), [("default", 1), ("flex", 0.5), ("priority", 2)])
def test_service_tiers(tier, factor):
    cost = answer_of(ask(end(usage=USAGE, service_tier=tier))).usage.cost
    assert cost.total == pytest.approx(factor * (70 + 40 + 3) / 1e6)


@pytest.mark.parametrize(
    ("stream", "stop", "text"),
    [
        ([end()], "stop", None),
        ([end("incomplete", incomplete_details={"reason": "max_output_tokens"})], "length", None),
        (
            [end("incomplete", incomplete_details={"reason": "content_filter"})],
            "error",
            "Provider finish_reason: content_filter",
        ),
        ([end("failed", error={"code": "server_error", "message": "Oops"})], "error", "server_error: Oops"),
        ([end("failed")], "error", "The response failed"),
        ([event("error", code="rate_limit", message="Slow")], "error", "rate_limit: Slow"),
        ([event("error", error={"message": "Slow"})], "error", "Slow"),
        ([added(0, type="message", id="m")], "error", "Stream ended before a terminal response event"),
        ([added(0, type="message", id="m"), cut()], "error", "Stream ended before a terminal response event"),
        ([b"data: {nope\n\n"], "error", "The server sent an event that cannot be read: {nope"),
    ],
)
def test_endings(stream, stop, text):
    result = answer_of(ask(*stream))
    assert (result.stop_reason, result.error_message) == (stop, text)


def test_a_missing_end_is_worth_a_retry():
    assert is_retryable("Stream ended before a terminal response event")


@pytest.mark.parametrize(
    ("api", "step", "text"),
    [
        (API, failure(429, {"error": 1}), '429 from mock: it takes no more requests for now: {"error":1}'),
        (API, failure(403), "403 from mock: the server wants a key (no body)"),
        (AZURE, failure(429, {"error": 1}), '429 from mock: it takes no more requests for now: {"error":1}'),
    ],
)
def test_failures(monkeypatch, api, step, text):
    monkeypatch.delenv("AZURE_OPENAI_BASE_URL", raising=False)
    with MockModel([step]) as mock:
        result = answer_of(collect(make_model(api=api, base_url=mock.url)))
        expected = "/openai/v1/responses?api-version=v1" if api == AZURE else "/responses"
        assert mock.requests[0].path == expected
    assert result.error_message == text
