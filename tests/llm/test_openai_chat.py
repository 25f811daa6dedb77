"""The chat-completions API: how its stream is folded, and how it ends."""

import json

import pytest

from spindle.llm.errors import is_retryable
from spindle.llm.stream import Finished, Started
from spindle.shapes.messages import Text
from tests.support.mock_model import MockModel, call, cut, error, failure, raw, reply, sse, think

from .helpers import answer_of, collect, events_of, make_model, make_request, shape


def chat(mock: MockModel, **fields):
    return make_model(base_url=mock.openai_url, **fields)


def ask(*steps, **fields) -> list:
    with MockModel(list(steps)) as mock:
        return collect(chat(mock, **fields))


def chunk(delta: dict | None = None, finish: str | None = None, **fields) -> bytes:
    choice = {"index": 0, "delta": delta or {}, "finish_reason": finish}
    return b"data: " + json.dumps({"id": "x", "choices": [choice], **fields}).encode() + b"\n\n"


def test_blocks_stay_open_to_the_end():
    chunks = ask(reply(think("hm"), "Hel", call("bash", ['{"command"', ': "ls"}'], id="c1"), "lo", think("!")))
    assert isinstance(chunks[0], Started)
    arguments = {"command": "ls"}
    events = events_of(chunks)
    assert events[:-1] == [
        ("thinking_start", 0),
        ("thinking_delta", 0, "hm"),
        ("text_start", 1),
        ("text_delta", 1, "Hel"),
        ("toolcall_start", 2, "c1"),
        ("toolcall_delta", 2, '{"command"'),
        ("toolcall_delta", 2, ': "ls"}'),
        ("text_delta", 1, "lo"),
        ("thinking_delta", 0, "!"),
        ("thinking_end", 0, "hm!"),
        ("text_end", 1, "Hello"),
    ]
    assert events[-1][:2] == ("toolcall_end", 2)
    answer = answer_of(chunks)
    assert shape(answer) == [
        ("thinking", "hm!", "reasoning_content"),
        ("text", "Hello"),
        ("call", "c1", "bash", arguments),
    ]
    assert (answer.stop_reason, answer.raw_stop_reason) == ("toolUse", "tool_calls")
    assert (answer.response_id, answer.response_model) == ("chatcmpl-mock1", None)


def test_usage_and_cost():
    usage = answer_of(ask(reply("a", usage=(100, 7, 40)))).usage
    assert (usage.input, usage.output, usage.cache_read, usage.total_tokens) == (60, 7, 40, 107)
    assert usage.cost.total == pytest.approx((60 * 1 + 7 * 2 + 40 * 0.1) / 1e6)


@pytest.mark.parametrize(
    ("reported", "expected"),
    [
        ({"prompt_tokens": 10, "completion_tokens": 2, "prompt_cache_hit_tokens": 4}, (6, 2, 4, 0)),
        ({"prompt_tokens": 10, "completion_tokens": 2, "cached_tokens": 4}, (6, 2, 4, 0)),
        (
            {"prompt_tokens": 10, "prompt_tokens_details": {"cached_tokens": 3, "cache_write_tokens": 2}},
            (5, 0, 3, 2),
        ),
        ({"prompt_tokens": 10.0, "completion_tokens": None, "prompt_tokens_details": None}, (10, 0, 0, 0)),
        ({"prompt_tokens": 2, "cached_tokens": 5}, (0, 0, 5, 0)),
    ],
)
@pytest.mark.parametrize("place", ["chunk", "choice"])
def test_usage_of_many_servers(reported, expected, place):
    if place == "chunk":
        last = b"data: " + json.dumps({"choices": [], "usage": reported}).encode() + b"\n\n"
    else:
        last = b"data: " + json.dumps({"choices": [{"delta": {}, "usage": reported}]}).encode() + b"\n\n"
    usage = answer_of(ask(raw(chunk({"content": "a"}, "stop"), last))).usage
    assert (usage.input, usage.output, usage.cache_read, usage.cache_write) == expected


def test_reasoning_tokens_are_kept():
    usage = {"prompt_tokens": 1, "completion_tokens": 9, "completion_tokens_details": {"reasoning_tokens": 8}}
    assert answer_of(ask(raw(chunk({}, "stop", usage=usage)))).usage.reasoning == 8


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning", "reasoning_text"])
def test_thinking_remembers_its_field(field):
    answer = answer_of(ask(raw(chunk({field: "t"}), chunk({"content": "a"}, "stop"))))
    assert shape(answer) == [("thinking", "t", field), ("text", "a")]


def test_the_same_thinking_in_two_fields_counts_once():
    answer = answer_of(ask(raw(chunk({"reasoning": "t", "reasoning_content": "t"}, "stop"))))
    assert shape(answer) == [("thinking", "t", "reasoning_content")]


def test_another_model_answered():
    assert answer_of(ask(raw(chunk({"content": "a"}, "stop", model="m1-2024")))).response_model == "m1-2024"


def pieces(*calls: dict) -> bytes:
    return chunk({"tool_calls": list(calls)})


def fn(arguments=None, name=None) -> dict:
    return {key: value for key, value in (("name", name), ("arguments", arguments)) if value is not None}


@pytest.mark.parametrize(
    ("stream", "calls"),
    [
        pytest.param(
            [
                pieces(
                    {"index": 0, "id": "a", "function": fn("", "x")}, {"index": 1, "id": "b", "function": fn("", "y")}
                ),
                pieces({"index": 1, "function": fn('{"k":')}, {"index": 0, "function": fn("{")}),
                pieces({"index": 0, "function": fn("}")}, {"index": 1, "function": fn("2}")}),
            ],
            [("a", "x", {}), ("b", "y", {"k": 2})],
            id="interleaved",
        ),
        pytest.param(
            [pieces({"id": "a", "function": fn('{"k":', "x")}), pieces({"id": "a", "function": fn("1}")})],
            [("a", "x", {"k": 1})],
            id="no index",
        ),
        pytest.param(
            [pieces({"id": "a", "function": fn('{"k":', "x")}), pieces({"function": fn("1}")})],
            [("a", "x", {"k": 1})],
            id="no index, no id",
        ),
        pytest.param(
            [
                pieces({"index": 0, "id": "a", "function": fn("{}", "x")}),
                pieces({"index": 0, "id": "b", "function": fn("{}", "y")}),
            ],
            [("a", "x", {}), ("b", "y", {})],
            id="one index for all",
        ),
        pytest.param(
            [
                pieces({"index": 0, "id": "a", "function": fn('{"k"', "x")}),
                pieces({"index": 0, "id": "a", "function": fn(":1}", "x")}),
            ],
            [("a", "x", {"k": 1})],
            id="id and name repeated",
        ),
        pytest.param(
            [pieces({"index": 0, "id": "a", "function": fn("")}), pieces({"index": 0, "function": fn("{}", "x")})],
            [("a", "x", {})],
            id="name comes late",
        ),
        pytest.param(
            [pieces({"index": 0, "id": "a", "function": {"name": "x", "arguments": {"k": [1]}}})],
            [("a", "x", {"k": [1]})],
            id="arguments as a value",
        ),
        pytest.param(
            [pieces({"index": 0, "id": "a", "function": fn('{"command": "echo tru', "x")})],
            [("a", "x", {"command": "echo tru"})],
            id="arguments cut short",
        ),
        pytest.param([pieces({"index": 0, "id": "a", "function": fn(None, "x")})], [("a", "x", {})], id="no arguments"),
    ],
)
def test_tool_calls_of_many_servers(stream, calls):
    answer = answer_of(ask(raw(*stream, chunk({}, "tool_calls"))))
    assert [block[1:] for block in shape(answer)] == calls


def test_a_call_without_an_id_gets_one():
    one = answer_of(ask(raw(pieces({"index": 0, "function": fn("{}", "x")}), chunk({}, "tool_calls"))))
    two = answer_of(ask(raw(pieces({"index": 0, "function": fn("{}", "x")}), chunk({}, "tool_calls"))))
    assert one.content[0].id.startswith("call_")
    assert one.content[0].id != two.content[0].id


def test_encrypted_thinking_belongs_to_its_call():
    detail = {"type": "reasoning.encrypted", "id": "a", "data": "zzz"}
    stream = [
        chunk({"reasoning_details": [detail, {"type": "reasoning.text", "text": "t"}]}),
        pieces({"index": 0, "id": "a", "function": fn("{}", "x")}),
    ]
    answer = answer_of(ask(raw(*stream, chunk({}, "tool_calls"))))
    assert json.loads(answer.content[0].thought_signature) == detail


@pytest.mark.parametrize(
    ("reason", "stop"),
    [("stop", "stop"), ("end", "stop"), ("length", "length"), ("tool_calls", "toolUse"), ("function_call", "toolUse")],
)
def test_stop_reasons(reason, stop):
    assert answer_of(ask(reply("a", finish=reason))).stop_reason == stop


@pytest.mark.parametrize("reason", ["content_filter", "network_error", "moon_phase"])
def test_bad_stop_reasons(reason):
    answer = answer_of(ask(reply("a", finish=reason)))
    assert (answer.stop_reason, answer.error_message) == ("error", f"Provider finish_reason: {reason}")
    assert shape(answer) == [("text", "a")]


@pytest.mark.parametrize(
    "step",
    [
        raw(chunk({"content": "pa"}), chunk({"content": "rt"})),
        reply("pa", "rt", cut()),
        reply("pa", "rt", sse(b'data: {"choices": [{"del'), cut()),
    ],
    ids=["no finish_reason", "connection cut", "cut inside an event"],
)
def test_a_cut_stream(step):
    chunks = ask(step)
    answer = answer_of(chunks)
    assert (answer.stop_reason, answer.error_message) == ("error", "Stream ended without finish_reason")
    assert shape(answer) == [("text", "part")]
    assert is_retryable(answer.error_message)


def test_the_end_without_a_finish_reason_names_its_flag():
    step = raw(chunk({"content": "pa"}), chunk({"content": "rt"}), b"data: [DONE]\n\n")
    answer = answer_of(ask(step))
    assert answer.stop_reason == "error"
    assert "[DONE]" in answer.error_message
    assert "supportsFinishReason" in answer.error_message
    assert not is_retryable(answer.error_message)  # the server has ended its answer: it would end the next one so, too
    for fields in ({"compat": {"supportsFinishReason": False}}, {"provider": "snowflake-cortex"}):
        answer = answer_of(ask(step, **fields))
        assert (answer.stop_reason, shape(answer)) == ("stop", [("text", "part")])


def test_thinking_as_part_of_the_content():
    """As Mistral's models send it, from Mistral and from others who host them."""

    def thought(*texts):
        return {"content": [{"type": "thinking", "thinking": [{"type": "text", "text": text} for text in texts]}]}

    pieces = [thought("h"), thought("m", "!"), {"content": [{"type": "text", "text": "He"}]}, {"content": "llo"}]
    with MockModel([raw(*map(chunk, pieces), chunk({}, "stop")), reply("b")]) as mock:
        model = chat(mock, reasoning=True)
        answer = answer_of(collect(model))
        assert shape(answer) == [("thinking", "hm!", "content"), ("text", "Hello")]
        collect(model, make_request("hi", answer, "and?"))
        sent = mock.requests[1].body["messages"][2]["content"]
    assert sent == [
        {"type": "thinking", "thinking": [{"type": "text", "text": "hm!"}]},
        {"type": "text", "text": "Hello"},
    ]


def test_a_cut_after_the_finish_reason_is_no_harm():
    answer = answer_of(ask(raw(chunk({"content": "a"}, "stop"), cut())))
    assert (answer.stop_reason, shape(answer)) == ("stop", [("text", "a")])


@pytest.mark.parametrize(
    ("delta", "stop"),
    [({"content": "a"}, "stop"), ({"tool_calls": [{"id": "a", "function": fn("{}", "x")}]}, "toolUse")],
)
def test_servers_without_finish_reasons(delta, stop):
    answer = answer_of(ask(raw(chunk(delta)), compat={"supportsFinishReason": False}))
    assert answer.stop_reason == stop


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"message": "stream bad"}, "stream bad"),
        ({"code": 502}, '{"code":502}'),
    ],
)
def test_an_error_inside_the_stream(value, text):
    chunks = ask(reply("part", error(value), "more"))
    answer = answer_of(chunks)
    assert (answer.stop_reason, answer.error_message, shape(answer)) == ("error", text, [("text", "part")])
    assert events_of(chunks) == [("text_start", 0), ("text_delta", 0, "part")]


A, B = chunk({"content": "a"}), chunk({"content": "b"}, "stop")


@pytest.mark.parametrize(
    "stream",
    [
        [A, B, b"data: [DONE]\n\n"],
        [A, B],
        [A.replace(b"\n", b"\r\n"), B.replace(b"\n", b"\r\n")],
        [b": keep-alive\n\n", A, b": OPENROUTER PROCESSING\n\n", B],
        [A.replace(b"data: ", b"data:"), B],
        [A, B.rstrip(b"\n")],
        [A[:20], A[20:] + B[:9], B[9:]],
        [b'data: {"choices": null}\n\n', b'data: {"choices": [{"delta": null}]}\n\n', chunk({"content": "ab"}, "stop")],
        [chunk({"content": [{"type": "text", "text": "ab"}]}, "stop")],
        [chunk({"content": "ab", "tool_calls": None, "reasoning": None}, "stop", id=7)],
        [chunk({"content": "ab"}, "stop"), b"data: [DONE]\n\n", b"data: garbage\n\n"],
    ],
    ids=[
        "plain",
        "no [DONE]",
        "CRLF",
        "comments",
        "no space",
        "no final blank line",
        "split anywhere",
        "empty choices",
        "content as parts",
        "odd types",
        "more after [DONE]",
    ],
)
def test_streams_of_many_servers(stream):
    answer = answer_of(ask(raw(*stream)))
    assert (answer.stop_reason, answer.error_message, shape(answer)) == ("stop", None, [("text", "ab")])


def test_text_with_lone_surrogates_survives():
    data = b'data: {"choices": [{"delta": {"content": "a\\ud83d"}, "finish_reason": "stop"}]}\n\n'
    assert shape(answer_of(ask(raw(data)))) == [("text", "a\ud83d")]


def test_an_unreadable_event_ends_the_answer():
    answer = answer_of(ask(raw(chunk({"content": "a"}), b"data: {broken}\n\n", chunk({}, "stop"))))
    assert answer.stop_reason == "error"
    assert "cannot be read: {broken}" in answer.error_message


def test_something_else_than_an_event_stream_is_shown():
    answer = answer_of(ask(raw(b"<html>Please log in</html>", content_type="text/html")))
    assert answer.error_message == "The server did not answer with an event stream: <html>Please log in</html>"


@pytest.mark.parametrize(
    ("step", "text"),
    [
        (failure(429, "Rate limit reached"), "429 from mock: it takes no more requests for now: Rate limit reached"),
        (failure(500, b"boom"), "500 from mock: the server failed: boom"),
        (failure(403), "403 from mock: the server wants a key (no body)"),
    ],
)
def test_a_refusal_is_a_lone_end(step, text):
    chunks = ask(step)
    assert len(chunks) == 1
    assert isinstance(chunks[0], Finished)
    assert answer_of(chunks).error_message == text


def test_a_bad_compat_flag_is_named():
    answer = answer_of(collect(make_model(compat={"maxTokensField": "tokens"})))
    assert answer.error_message.startswith("Bad compat settings of model mock/m1: Invalid enum value 'tokens'")


def test_the_last_text_is_what_was_asked():
    with MockModel([reply("a")]) as mock:
        collect(chat(mock), make_request("question"))
        (request,) = mock.requests
    assert request.path == "/v1/chat/completions"
    assert request.body["messages"][-1] == {"role": "user", "content": "question"}


def test_usage_is_kept_when_the_stream_ends_in_an_error():
    usage = {"prompt_tokens": 100, "completion_tokens": 7}
    answer = answer_of(ask(raw(chunk({"content": "a"}), chunk(error={"message": "gone"}, usage=usage), b"data: x\n\n")))
    assert (answer.stop_reason, answer.error_message) == ("error", "gone")
    assert (answer.usage.input, answer.usage.output, answer.usage.cost.source) == (100, 7, "computed")


@pytest.mark.parametrize(
    ("line", "text"),
    [
        (b'error: {"code": 400, "message": "too much"}', "too much"),
        (b"error: out of memory", "out of memory"),
        (b'event: error\ndata: {"message": "no slot"}', "no slot"),
        (b"event:error\ndata: plain words", "plain words"),
    ],
)
@pytest.mark.parametrize(
    "api", ["openai-completions", "openai-responses", "anthropic-messages", "google-generative-ai"]
)
def test_an_error_that_is_no_data_is_told(api, line, text):
    with MockModel([raw(line + b"\n\n")]) as mock:
        answer = answer_of(collect(make_model(api=api, base_url=mock.openai_url), api_key="k"))
    assert answer.stop_reason == "error"
    assert text in answer.error_message


def test_a_refusal_is_the_text_of_the_answer() -> None:
    chunks = [{"content": None, "refusal": ""}, {"refusal": "I cannot "}, {"refusal": "do that."}]
    lines = [{"choices": [{"index": 0, "delta": delta}]} for delta in chunks]
    lines += [{"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}]
    body = b"".join(b"data: " + json.dumps(line).encode() + b"\n\n" for line in lines) + b"data: [DONE]\n\n"
    with MockModel([raw(body)]) as mock:
        answer = answer_of(collect(make_model(base_url=mock.openai_url), api_key="k"))
    assert (answer.stop_reason, answer.content) == ("stop", [Text("I cannot do that.")])
