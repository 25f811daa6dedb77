"""The messages API: what is sent, how its stream is folded, and how it ends."""

import json
from functools import partial

import pytest

from spindle.llm.anthropic import messages_body, messages_headers
from spindle.llm.compat import MessagesCompat
from spindle.llm.errors import is_overflow, is_retryable
from spindle.llm.history import transform_request
from spindle.llm.stream import Request, StreamOptions, ToolSpec
from spindle.shapes.messages import Image, Text, Thinking, ToolCall, UserMessage
from tests.support.mock_model import NOTHING, MockModel, call, cut, error, failure, raw, reply, think

from .helpers import answer_by, answer_of, collect, events_of, make_model, result, shape

API = "anthropic-messages"
TOOL = ToolSpec("bash", "Run a command", {"type": "object", "properties": {"command": {"type": "string"}}})
IMAGE = Image("QUJD", "image/png")
IMAGE_PART = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "QUJD"}}
CACHE = {"cache_control": {"type": "ephemeral"}}
USER = UserMessage("hi", 0)
answer = partial(answer_by, API)


def request(*messages, compat=None, tools=(), system="Be brief.", model=None, **options) -> tuple[dict, dict]:
    model = make_model(**{"api": API, "compat": compat, **(model or {})})
    flags = MessagesCompat.of(model)
    clean = transform_request(Request(system, list(messages) or [USER], list(tools)), model)
    body = messages_body(model, clean, StreamOptions(**options), flags)
    return body, messages_headers(StreamOptions(**options), flags, body)


def body(*messages, **options) -> dict:
    return request(*messages, **options)[0]


def sent(*messages, **options) -> list[dict]:
    """Return the messages of a request without the cache mark on the last block of the user's."""
    messages = body(*messages, **options)["messages"]
    for message in messages:
        if message["role"] == "user" and message["content"][-1].pop("cache_control", None):
            plain = len(message["content"]) == 1 and message["content"][0]["type"] == "text"
            message["content"] = message["content"][0]["text"] if plain else message["content"]
    return messages  # type: ignore[return-value]


# -- requests ------------------------------------------------------------------------------------


def test_a_plain_request():
    sent_body, headers = request(api_key="key", tools=[TOOL])
    assert sent_body == {
        "model": "m1",
        "max_tokens": 4096,
        "system": [{"type": "text", "text": "Be brief.", **CACHE}],
        "messages": [{"role": "user", "content": [{"type": "text", "text": "hi", **CACHE}]}],
        "tools": [
            {
                "name": "bash",
                "description": "Run a command",
                "input_schema": {**TOOL.parameters, "required": []},
                "eager_input_streaming": True,
                **CACHE,
            }
        ],
        "stream": True,
    }
    assert headers == {"anthropic-version": "2023-06-01", "x-api-key": "key"}


def test_ways_to_log_in():
    assert request(api_key="sk-ant-oat-1")[1]["authorization"] == "Bearer sk-ant-oat-1"
    _, headers = request(api_key="key", headers={"Authorization": "Bearer mine"})
    assert not {"x-api-key", "authorization"} & set(headers)


def test_cache_marks():
    long = {"cache_control": {"type": "ephemeral", "ttl": "1h"}}
    marked = body(USER, answer(ToolCall("c1", "bash", {})), result(Text("r")), tools=[TOOL], cache_retention="long")
    assert marked["system"][0]["cache_control"] == long["cache_control"]
    assert marked["tools"][-1]["cache_control"] == long["cache_control"]
    assert marked["messages"][0] == {"role": "user", "content": [{"type": "text", "text": "hi"}]}
    assert marked["messages"][-1]["content"][-1]["cache_control"] == long["cache_control"]


@pytest.mark.parametrize(
    ("compat", "options", "check"),
    [
        ({"supportsLongCacheRetention": False}, {"cache_retention": "long"}, lambda b, h: "ttl" not in str(b)),
        ({"supportsCacheControlOnTools": False}, {}, lambda b, h: "cache_control" not in b["tools"][0]),
        (
            {"supportsEagerToolInputStreaming": False},
            {},
            lambda b, h: (
                "eager_input_streaming" not in b["tools"][0]
                and h.get("anthropic-beta") == "fine-grained-tool-streaming-2025-05-14"
            ),
        ),
        ({"sendSessionAffinityHeaders": True}, {"session_id": "s"}, lambda b, h: h.get("x-session-affinity") == "s"),
        (
            {"forceAdaptiveThinking": True},
            {"model": {"reasoning": True}, "reasoning": "minimal"},
            lambda b, h: (
                b["thinking"] == {"type": "adaptive", "display": "summarized"}
                and b["output_config"] == {"effort": "low"}
                and "anthropic-beta" not in h
            ),
        ),
    ],
    ids=lambda value: next(iter(value), "") if isinstance(value, dict) else "",
)
def test_flags(compat, options, check):
    assert check(*request(tools=[TOOL], compat=compat, **options))
    assert not check(*request(tools=[TOOL], **options))


def test_an_unsigned_thought_may_have_an_empty_signature():
    thought = answer(Thinking("hm"), Text("a"))
    assert sent(thought)[0]["content"][0] == {"type": "text", "text": "hm"}
    allowed = sent(thought, compat={"allowEmptySignature": True})[0]["content"][0]
    assert allowed == {"type": "thinking", "thinking": "hm", "signature": ""}


THINKS = {"reasoning": True, "max_tokens": 32_000, "context_window": 200_000}


@pytest.mark.parametrize(
    ("level", "max_tokens", "budget", "limit"),
    [
        ("minimal", 8000, 1024, 9024),
        ("low", 8000, 2048, 10_048),
        ("medium", 8000, 8192, 16_192),
        ("high", 8000, 16_384, 24_384),
        ("xhigh", 8000, 16_384, 24_384),
        ("high", None, 16_384, 32_000),
        ("high", 30_000, 16_384, 32_000),
    ],
)
def test_thinking_budgets(level, max_tokens, budget, limit):
    sent_body, headers = request(model=THINKS, reasoning=level, max_tokens=max_tokens)
    assert sent_body["thinking"] == {"type": "enabled", "budget_tokens": budget, "display": "summarized"}
    assert sent_body["max_tokens"] == limit
    assert headers["anthropic-beta"] == "interleaved-thinking-2025-05-14"


def test_a_thinking_budget_leaves_room_for_the_answer():
    small = {**THINKS, "max_tokens": 4000}
    sent_body = body(model=small, reasoning="high")
    assert (sent_body["max_tokens"], sent_body["thinking"]["budget_tokens"]) == (4000, 2976)
    assert body(model={**THINKS, "max_tokens": 1500}, reasoning="high")["thinking"] == {"type": "disabled"}


def test_thinking_off():
    assert body(model=THINKS)["thinking"] == {"type": "disabled"}
    assert "thinking" not in body(model={**THINKS, "thinking_level_map": {"off": None}})
    assert "thinking" not in body(reasoning="high")


def test_efforts_are_translated():
    model = {**THINKS, "thinking_level_map": {"xhigh": "max"}}
    adaptive = body(model=model, reasoning="xhigh", compat={"forceAdaptiveThinking": True})
    assert adaptive["output_config"] == {"effort": "max"}


def test_messages():
    history = [
        UserMessage([Text("see"), Text("  "), IMAGE], 0),
        answer(
            Thinking("hm", "SIG"),
            Thinking("", "DATA", redacted=True),
            Text(" "),
            Text("a"),
            ToolCall("c1", "bash", {"k": 1}),
            ToolCall("c2", "bash", "odd"),
        ),
        result(Text("a"), Text("b"), is_error=True),
        result(IMAGE, id="c2"),
        UserMessage(" ", 0),
        answer(),
        USER,
    ]
    assert sent(*history) == [
        {"role": "user", "content": [{"type": "text", "text": "see"}, IMAGE_PART]},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "hm", "signature": "SIG"},
                {"type": "redacted_thinking", "data": "DATA"},
                {"type": "text", "text": "a"},
                {"type": "tool_use", "id": "c1", "name": "bash", "input": {"k": 1}},
                {"type": "tool_use", "id": "c2", "name": "bash", "input": {}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "c1", "content": "a\nb", "is_error": True},
                {
                    "type": "tool_result",
                    "tool_use_id": "c2",
                    "content": [{"type": "text", "text": "(see attached image)"}, IMAGE_PART],
                    "is_error": False,
                },
            ],
        },
        {"role": "user", "content": "hi"},
    ]


@pytest.mark.parametrize("suffix", ["", "/", "/v1", "/v1/"])
def test_the_address(suffix):
    with MockModel() as mock:
        collect(make_model(api=API, base_url=mock.url + suffix))
        assert mock.requests[0].path == "/v1/messages"


# -- streams -------------------------------------------------------------------------------------


def ask(*steps, **fields) -> list:
    with MockModel(list(steps)) as mock:
        return collect(make_model(api=API, base_url=mock.anthropic_url, **fields))


def event(type: str, **fields) -> bytes:
    return f"event: {type}\ndata: {json.dumps({'type': type, **fields})}\n\n".encode()


def test_blocks_are_closed_one_by_one():
    chunks = ask(reply(think("hm"), "Hel", "lo", call("bash", ['{"command"', ': "ls"}'], id="c1")))
    events = events_of(chunks)
    assert events[:-1] == [
        ("thinking_start", 0),
        ("thinking_delta", 0, "hm"),
        ("thinking_end", 0, "hm"),
        ("text_start", 1),
        ("text_delta", 1, "Hel"),
        ("text_delta", 1, "lo"),
        ("text_end", 1, "Hello"),
        ("toolcall_start", 2, "c1"),
        ("toolcall_delta", 2, '{"command"'),
        ("toolcall_delta", 2, ': "ls"}'),
    ]
    assert events[-1][:2] == ("toolcall_end", 2)
    result = answer_of(chunks)
    assert shape(result) == [("thinking", "hm", "SIG=="), ("text", "Hello"), ("call", "c1", "bash", {"command": "ls"})]
    assert (result.stop_reason, result.raw_stop_reason) == ("toolUse", "tool_use")
    assert (result.response_id, result.response_model) == ("msg_mock1", None)


def test_usage_comes_in_two_parts():
    start = {
        "input_tokens": 5,
        "output_tokens": 1,
        "cache_read_input_tokens": 3,
        "cache_creation_input_tokens": 10,
        "cache_creation": {"ephemeral_1h_input_tokens": 4},
    }
    stream = [
        event("message_start", message={"id": "x", "model": "other", "usage": start}),
        event("message_delta", delta={"stop_reason": "end_turn"}, usage={"output_tokens": 9, "input_tokens": None}),
        event("message_stop"),
    ]
    result = answer_of(ask(raw(*stream)))
    usage = result.usage
    assert (usage.input, usage.output, usage.cache_read, usage.cache_write, usage.cache_write_1h) == (5, 9, 3, 10, 4)
    assert usage.total_tokens == 27
    assert result.response_model == "other"


def test_redacted_thinking():
    stream = [
        event("content_block_start", index=0, content_block={"type": "redacted_thinking", "data": "DATA"}),
        event("content_block_stop", index=0),
        event("message_delta", delta={"stop_reason": "end_turn"}),
        event("message_stop"),
    ]
    (block,) = answer_of(ask(raw(*stream))).content
    assert (block.redacted, block.thinking, block.thinking_signature) == (True, "", "DATA")


def test_arguments_that_come_whole_are_not_lost_with_the_end_of_their_block():
    calls = [{"type": "tool_use", "id": f"c{n}", "name": "ls", "input": {"path": f"{n}"}} for n in (1, 2)]
    stream = [
        *(event("content_block_start", index=0, content_block=call) for call in calls),
        event("message_delta", delta={"stop_reason": "tool_use"}),
        event("message_stop"),
    ]
    chunks = ask(raw(*stream))
    assert shape(answer_of(chunks)) == [("call", "c1", "ls", {"path": "1"}), ("call", "c2", "ls", {"path": "2"})]
    assert [event[:2] for event in events_of(chunks)] == [
        *(("toolcall_start", 0), ("toolcall_delta", 0), ("toolcall_end", 0)),
        *(("toolcall_start", 1), ("toolcall_delta", 1), ("toolcall_end", 1)),
    ]


def test_content_that_comes_with_the_start_of_a_block():
    blocks = [
        {"type": "text", "text": "a"},
        {"type": "thinking", "thinking": "t", "signature": "S"},
        {"type": "tool_use", "id": "c", "name": "x", "input": {"k": 1}},
    ]
    stream = []
    for index, block in enumerate(blocks):
        stream.append(event("content_block_start", index=index, content_block=block))
        stream.append(event("content_block_stop", index=index))
    end = [event("message_delta", delta={"stop_reason": "tool_use"}), event("message_stop")]
    chunks = ask(raw(*stream, *end))
    assert shape(answer_of(chunks)) == [("text", "a"), ("thinking", "t", "S"), ("call", "c", "x", {"k": 1})]
    assert ("toolcall_delta", 2, '{"k":1}') in events_of(chunks)


def test_what_is_not_known_is_passed_over():
    stream = [
        event("ping"),
        event("message_start", message={"id": "x"}),
        event("content_block_start", index=0, content_block={"type": "server_tool_use", "id": "s"}),
        event("content_block_delta", index=0, delta={"type": "input_json_delta", "partial_json": "{}"}),
        event("content_block_stop", index=0),
        event("content_block_start", index=1, content_block={"type": "text", "text": ""}),
        event("content_block_delta", index=1, delta={"type": "citations_delta", "citation": {}}),
        event("content_block_delta", index=1, delta={"type": "text_delta", "text": "a"}),
        event("content_block_delta", index=1, delta={"type": "text_delta", "text": "\ud83d"}),
        event("content_block_stop", index=1),
        event("brand_new_event", data=1),
        event("message_delta", delta={"stop_reason": "end_turn"}, usage=None),
        event("message_stop"),
        event("nonsense"),
    ]
    assert shape(answer_of(ask(raw(*stream)))) == [("text", "a\ud83d")]


@pytest.mark.parametrize(
    ("reason", "stop"),
    [
        ("end_turn", "stop"),
        ("pause_turn", "stop"),
        ("stop_sequence", "stop"),
        ("max_tokens", "length"),
        ("tool_use", "toolUse"),
    ],
)
def test_stop_reasons(reason, stop):
    assert answer_of(ask(reply("a", finish=reason))).stop_reason == stop


@pytest.mark.parametrize("reason", ["sensitive", "moon_phase"])
def test_bad_stop_reasons(reason):
    result = answer_of(ask(reply("a", finish=reason)))
    assert (result.stop_reason, result.error_message) == ("error", f"Provider stop_reason: {reason}")


def test_a_full_context_window_is_an_overflow():
    assert is_overflow(answer_of(ask(reply("a", finish="model_context_window_exceeded"))), 1000)


@pytest.mark.parametrize(
    ("details", "text"),
    [({}, "The model refused to answer"), ({"stop_details": {"explanation": "Not that."}}, "Not that.")],
)
def test_a_refusal(details, text):
    stream = [event("message_delta", delta={"stop_reason": "refusal", **details}), event("message_stop")]
    assert answer_of(ask(raw(*stream))).error_message == text


@pytest.mark.parametrize("step", [reply("pa", "rt", finish=NOTHING), reply("pa", "rt", cut())])
def test_a_cut_stream(step):
    result = answer_of(ask(step))
    assert (result.stop_reason, result.error_message) == ("error", "Stream ended before message_stop")
    assert shape(result) == [("text", "part")]
    assert is_retryable(result.error_message)


def test_an_error_inside_the_stream():
    chunks = ask(reply("part", error({"type": "overloaded_error", "message": "Overloaded"}), "more"))
    result = answer_of(chunks)
    assert result.error_message == "Overloaded (overloaded_error)"
    assert shape(result) == [("text", "part")]
    assert is_retryable(result.error_message)


@pytest.mark.parametrize(
    ("step", "text"),
    [
        (
            failure(429, {"type": "error", "error": {"m": 1}}),
            '429 from mock: it takes no more requests for now: {"type":"error","error":{"m":1}}',
        ),
        (failure(500, b"boom"), "500 from mock: the server failed: boom"),
        (failure(403), "403 from mock: the server wants a key (no body)"),
    ],
)
def test_a_failure_is_said_in_words(step, text):
    chunks = ask(step)
    assert len(chunks) == 1
    assert answer_of(chunks).error_message == text
