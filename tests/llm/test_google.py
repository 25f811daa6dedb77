"""The Gemini API: what is sent, how the stream is folded, how it ends."""

import json
from functools import partial

import pytest

from spindle.llm.google import google_body
from spindle.llm.history import transform_request
from spindle.llm.stream import Request, StreamOptions, ToolSpec
from spindle.shapes.messages import Image, Text, Thinking, ToolCall, UserMessage
from tests.support.mock_model import MockModel, cut, failure, raw

from .helpers import answer_by, answer_of, collect, events_of, make_model, result, shape

API = "google-generative-ai"
OLD, NEW = "gemini-2.5-pro", "gemini-3-pro-preview"
TOOL = ToolSpec("bash", "Run a command", {"type": "object"})
USER = UserMessage("hi", 0)
IMAGE = Image("QUJD", "image/png")
IMAGE_PART = {"inlineData": {"mimeType": "image/png", "data": "QUJD"}}
answer = partial(answer_by, API, model=OLD)


def body(*messages, id: str = OLD, tools=(), system="Be brief.", model=None, **options) -> dict:
    model = make_model(**{"api": API, "id": id, **(model or {})})
    request = transform_request(Request(system, list(messages) or [USER], list(tools)), model)
    return google_body(model, request, StreamOptions(**options))


def test_a_plain_request():
    assert body(tools=[TOOL], model={"sampling_params": {"temperature": 0.5}}) == {
        "contents": [{"role": "user", "parts": [{"text": "hi"}]}],
        "systemInstruction": {"parts": [{"text": "Be brief."}]},
        "tools": [
            {
                "functionDeclarations": [
                    {"name": "bash", "description": "Run a command", "parametersJsonSchema": {"type": "object"}}
                ]
            }
        ],
        "generationConfig": {"maxOutputTokens": 4096, "temperature": 0.5},
    }


def history(id: str) -> list:
    return [
        UserMessage([Text("see"), IMAGE], 0),
        answer(
            Thinking("hm", "QUJD"),
            Thinking("ah", "not base64!"),
            Text("a", "QUJD"),
            ToolCall("c1", "bash", {"k": 1}, "QUJD"),
            ToolCall("c2", "bash", {}),
            model=id,
        ),
        result(Text("x"), IMAGE),
        result(Text("bad"), id="c2", is_error=True),
        USER,
    ]


@pytest.mark.parametrize("id", [OLD, NEW])
def test_contents(id):
    new = id == NEW
    ids = [{"id": "c1"}, {"id": "c2"}] if new else [{}, {}]
    first = {"name": "bash", "response": {"output": "x"}, **ids[0], **({"parts": [IMAGE_PART]} if new else {})}
    expected = [
        {"role": "user", "parts": [{"text": "see"}, IMAGE_PART]},
        {
            "role": "model",
            "parts": [
                {"thought": True, "text": "hm", "thoughtSignature": "QUJD"},
                {"thought": True, "text": "ah"},
                {"text": "a", "thoughtSignature": "QUJD"},
                {"functionCall": {"name": "bash", "args": {"k": 1}, **ids[0]}, "thoughtSignature": "QUJD"},
                {"functionCall": {"name": "bash", "args": {}, **ids[1]}},
            ],
        },
        {
            "role": "user",
            "parts": [
                {"functionResponse": first},
                {"functionResponse": {"name": "bash", "response": {"error": "bad"}, **ids[1]}},
            ],
        },
        *([] if new else [{"role": "user", "parts": [{"text": "Tool result image:"}, IMAGE_PART]}]),
        {"role": "user", "parts": [{"text": "hi"}]},
    ]
    assert body(*history(id), id=id)["contents"] == expected


def test_thoughts_of_another_model_are_plain_text():
    parts = body(answer(Thinking("hm", "QUJD"), Text("a"), model="other"))["contents"][0]["parts"]
    assert parts == [{"text": "hm"}, {"text": "a"}]


@pytest.mark.parametrize(
    ("id", "level", "config"),
    [
        ("gemini-2.5-pro", "minimal", {"includeThoughts": True, "thinkingBudget": 128}),
        ("gemini-2.5-pro", "high", {"includeThoughts": True, "thinkingBudget": 32768}),
        ("gemini-2.5-pro", "off", {"thinkingBudget": 128}),
        ("gemini-2.5-flash", "xhigh", {"includeThoughts": True, "thinkingBudget": 24576}),
        ("gemini-2.5-flash", "off", {"thinkingBudget": 0}),
        ("gemini-2.5-flash-lite", "minimal", {"includeThoughts": True, "thinkingBudget": 512}),
        ("gemini-2.0-other", "low", {"includeThoughts": True, "thinkingBudget": -1}),
        ("gemini-3-pro-preview", "medium", {"includeThoughts": True, "thinkingLevel": "MEDIUM"}),
        ("gemini-3-pro-preview", "off", {"thinkingLevel": "LOW"}),
        ("gemini-3-flash", "off", {"thinkingLevel": "MINIMAL"}),
        ("gemma-4-27b", "max", {"includeThoughts": True, "thinkingLevel": "HIGH"}),
    ],
)
def test_thinking(id, level, config):
    assert body(id=id, model={"reasoning": True}, reasoning=level)["generationConfig"]["thinkingConfig"] == config
    assert "thinkingConfig" not in body(id=id, reasoning=level)["generationConfig"]


def test_the_users_budgets_come_first():
    sent = body(model={"reasoning": True}, reasoning="low", thinking_budgets={"low": 77})
    assert sent["generationConfig"]["thinkingConfig"]["thinkingBudget"] == 77


# -- streams -------------------------------------------------------------------------------------


def chunk(*parts: dict, finish: str | None = None, **fields) -> bytes:
    candidate = {"content": {"parts": list(parts), "role": "model"}}
    if finish:
        candidate["finishReason"] = finish
    return b"data: " + json.dumps({"candidates": [candidate], **fields}).encode() + b"\n\n"


def ask(*stream) -> list:
    with MockModel([raw(*stream)]) as mock:
        return collect(make_model(api=API, base_url=f"{mock.url}/v1beta"), api_key="key-12345")


def test_the_address_and_the_key():
    with MockModel([raw(chunk({"text": "a"}, finish="STOP"))]) as mock:
        collect(make_model(api=API, base_url=f"{mock.url}/v1beta/"), api_key="key")
        (request,) = mock.requests
    assert request.path == "/v1beta/models/m1:streamGenerateContent?alt=sse"
    assert request.headers["x-goog-api-key"] == "key"


def test_a_stream_of_everything():
    usage = {
        "promptTokenCount": 100,
        "cachedContentTokenCount": 30,
        "candidatesTokenCount": 5,
        "thoughtsTokenCount": 7,
    }
    chunks = ask(
        chunk({"text": "h", "thought": True}, responseId="r1", modelVersion="m1-001"),
        chunk({"text": "m", "thought": True, "thoughtSignature": "SIG"}),
        chunk({"text": "Hel"}),
        chunk(
            {"text": "lo"}, {"functionCall": {"name": "bash", "args": {"k": 1}, "id": "c1"}, "thoughtSignature": "S2"}
        ),
        chunk({"functionCall": {"name": "bash", "id": "c1"}}, finish="STOP", usageMetadata=usage),
    )
    events = events_of(chunks)
    assert events[:9] == [
        ("thinking_start", 0),
        ("thinking_delta", 0, "h"),
        ("thinking_delta", 0, "m"),
        ("thinking_end", 0, "hm"),
        ("text_start", 1),
        ("text_delta", 1, "Hel"),
        ("text_delta", 1, "lo"),
        ("text_end", 1, "Hello"),
        ("toolcall_start", 2, "c1"),
    ]
    assert events[9] == ("toolcall_delta", 2, '{"k":1}')
    result = answer_of(chunks)
    assert shape(result)[:3] == [("thinking", "hm", "SIG"), ("text", "Hello"), ("call", "c1", "bash", {"k": 1})]
    assert result.content[2].thought_signature == "S2"
    assert result.content[3].id.startswith("bash_")
    assert (result.stop_reason, result.response_id, result.response_model) == ("toolUse", "r1", "m1-001")
    reported = result.usage
    assert (reported.input, reported.output, reported.cache_read, reported.reasoning) == (70, 12, 30, 7)


@pytest.mark.parametrize(
    ("stream", "stop", "text"),
    [
        ([chunk({"text": "a"}, finish="STOP")], "stop", None),
        ([chunk({"text": "a"}, finish="MAX_TOKENS")], "length", None),
        ([chunk({"text": "a"}, finish="SAFETY")], "error", "Provider stopped with: SAFETY"),
        ([b'data: {"promptFeedback": {"blockReason": "OTHER"}}\n\n'], "error", "Provider stopped with: OTHER"),
        (
            [chunk({"text": "a"}), b'data: {"error": {"code": 503, "message": "later", "status": "UNAVAILABLE"}}\n\n'],
            "error",
            "503 later (UNAVAILABLE)",
        ),
        ([chunk({"text": "a"}), cut()], "error", "Stream ended without finishReason"),
        ([b'data: {"candidates": [{}]}\n\n', b"data: {}\n\n", chunk({"text": "a"}, finish="STOP")], "stop", None),
        ([b"data: [nope\n\n"], "error", "The server sent an event that cannot be read: [nope"),
    ],
)
def test_endings(stream, stop, text):
    result = answer_of(ask(*stream))
    assert (result.stop_reason, result.error_message) == (stop, text)


@pytest.mark.parametrize(
    ("step", "text"),
    [
        (failure(429, {"error": 1}), '429 from mock: it takes no more requests for now: {"error":1}'),
        (failure(403), "403 from mock: the server wants a key (no body)"),
    ],
)
def test_failures(step, text):
    with MockModel([step]) as mock:
        assert answer_of(collect(make_model(api=API, base_url=mock.url))).error_message == text


def test_arguments_that_come_value_by_value():
    def call(*pieces, **fields):
        partial = [{"jsonPath": path, **value} for path, value in pieces]
        return {"functionCall": ({"partialArgs": partial} if partial else {}) | fields}

    parts = [
        call(name="edit", id="c1", willContinue=True),
        call(("$.path", {"stringValue": "a", "willContinue": True}), willContinue=True),
        call(("$.path", {"stringValue": '"\u00e4\n.py'}), willContinue=True),
        call(("$.edits[0].oldText", {"stringValue": "x"}), ("$.edits[0].n", {"numberValue": 2}), willContinue=True),
        call(
            ("$.edits[1]['new text']", {"stringValue": ""}),
            ("$.edits[1].deep.er[0]", {"boolValue": False}),
            willContinue=True,
        ),
        call(("$.nothing", {"nullValue": "NULL_VALUE"}), willContinue=True),
        call(),
        call(name="ls", id="c2", args={}),
    ]
    events = [{"candidates": [{"content": {"parts": [part]}}]} for part in parts]
    events += [{"candidates": [{"finishReason": "STOP"}]}]
    with MockModel([raw(*(f"data: {json.dumps(event)}\n\n".encode() for event in events))]) as mock:
        chunks = collect(make_model(api=API, base_url=mock.url + "/v1beta"), api_key="k")
    arguments = {
        "path": 'a"\u00e4\n.py',
        "edits": [{"oldText": "x", "n": 2}, {"new text": "", "deep": {"er": [False]}}],
        "nothing": None,
    }
    assert shape(answer_of(chunks)) == [("call", "c1", "edit", arguments), ("call", "c2", "ls", {})]
    deltas = [event[2] for event in events_of(chunks) if event[:2] == ("toolcall_delta", 0)]
    assert json.loads("".join(deltas)) == arguments
    assert len(deltas) > 5  # a client sees them come


def test_usage_is_kept_when_the_stream_ends_in_an_error():
    usage = {"promptTokenCount": 100, "candidatesTokenCount": 7}
    for end in ({"error": {"code": 503, "message": "busy"}}, {"promptFeedback": {"blockReason": "SAFETY"}}):
        with MockModel([raw(f"data: {json.dumps(end | {'usageMetadata': usage})}\n\n".encode())]) as mock:
            found = answer_of(collect(make_model(api=API, base_url=mock.url + "/v1beta"), api_key="k"))
        assert found.stop_reason == "error"
        assert (found.usage.input, found.usage.output) == (100, 7)
