"""Mistral's API: what is sent, how its chunks are folded, how it fails."""

import json
from typing import Any

import pytest

from spindle.llm.errors import is_retryable
from spindle.llm.history import transform_request
from spindle.llm.mistral import call_id, mistral_body
from spindle.llm.stream import Finished, Request, StreamOptions, ToolSpec
from spindle.shapes.messages import Image, Text, Thinking, ToolCall, UserMessage
from tests.support.mock_model import MockModel, Recorded, failure, raw, reply

from .helpers import answer_by, answer_of, collect, make_model, result, shape

API = "mistral-conversations"
TOOL = ToolSpec("bash", "Run a command", {"type": "object"})
EFFORTS = {"off": "none", "minimal": None, "low": None, "medium": None, "high": "high"}


def body(*messages: Any, tools: Any = (), model: Any = None, **options: Any) -> dict[str, Any]:
    made = make_model(**{"api": API, **(model or {})})
    request = transform_request(Request("Be brief.", list(messages) or [UserMessage("hi", 0)], list(tools)), made)
    return mistral_body(made, request, StreamOptions(**options))


def test_a_plain_request() -> None:
    assert body(tools=[TOOL], session_id="s1", model={"sampling_params": {"temperature": 0.5}}) == {
        "model": "m1",
        "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hi"}],
        "stream": True,
        "max_tokens": 4096,
        "tools": [
            {
                "type": "function",
                "function": {
                    "name": "bash",
                    "description": "Run a command",
                    "parameters": {"type": "object"},
                    "strict": False,
                },
            }
        ],
        "prompt_cache_key": "s1",
        "temperature": 0.5,
    }


def test_messages() -> None:
    ours, theirs = "call_0123456789", "aB3dE6gH9"
    history = [
        UserMessage([Text("see"), Image("QUJD", "image/png")], 0),
        answer_by(
            API,
            Thinking("hm", "reasoning_content"),
            Text("a"),
            ToolCall(ours, "bash", {"k": 1}),
            ToolCall(theirs, "ls", {}),
            stop_reason="toolUse",
        ),
        result(Text("no"), id=ours, is_error=True),
        result(Image("QUJD", "image/png"), id=theirs, tool="ls"),
    ]
    image = {"type": "image_url", "image_url": "data:image/png;base64,QUJD"}
    assert body(*history)["messages"][1:] == [
        {"role": "user", "content": [{"type": "text", "text": "see"}, image]},
        {
            "role": "assistant",
            "prefix": False,
            "content": [
                {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]},
                {"type": "text", "text": "a"},
            ],
            "tool_calls": [
                {"id": call_id(ours), "type": "function", "function": {"name": "bash", "arguments": '{"k":1}'}},
                {"id": theirs, "type": "function", "function": {"name": "ls", "arguments": "{}"}},
            ],
        },
        {
            "role": "tool",
            "tool_call_id": call_id(ours),
            "name": "bash",
            "content": [{"type": "text", "text": "[tool error] no"}],
        },
        {
            "role": "tool",
            "tool_call_id": theirs,
            "name": "ls",
            "content": [{"type": "text", "text": "(see attached image)"}, image],
        },
    ]


@pytest.mark.parametrize("id", ["call_1", "", "0123456789", "ä" * 9, "aaaa-bbbb", "x" * 500])
def test_ids_have_nine_letters_or_digits(id: str) -> None:
    made = call_id(id)
    assert len(made) == 9
    assert made.isascii()
    assert made.isalnum()
    assert call_id(made) == made
    assert call_id(id + "x") != made


@pytest.mark.parametrize(
    ("words", "level", "fields"),
    [
        (None, "high", {"prompt_mode": "reasoning"}),
        (None, "off", {}),
        (EFFORTS, "high", {"reasoning_effort": "high"}),
        (EFFORTS, "off", {"reasoning_effort": "none"}),
        ({**EFFORTS, "off": None}, "off", {}),
        ({**EFFORTS, "max": "max"}, "max", {"reasoning_effort": "max"}),
    ],
)
def test_thinking(words: Any, level: str, fields: dict[str, Any]) -> None:
    plain = body()
    assert body(model={"reasoning": True, "thinking_level_map": words}, reasoning=level) == plain | fields


# -- streams -------------------------------------------------------------------------------------


def chunk(delta: dict[str, Any], finish: str | None = None, **fields: Any) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return f"data: {json.dumps({'id': 'r1', 'model': 'm1', 'choices': [choice], **fields})}\n\n".encode()


def thought(text: str) -> dict[str, Any]:
    return {"content": [{"type": "thinking", "thinking": [{"type": "text", "text": text}]}]}


def ask(step: Any, **options: Any) -> tuple[list[Any], list[Recorded]]:
    with MockModel([step]) as mock:
        return collect(make_model(api=API, base_url=mock.url), api_key="mistral-key", **options), mock.requests


def test_thinking_text_and_calls() -> None:
    chunks, [request] = ask(
        raw(
            chunk({"role": "assistant", "content": ""}),
            chunk(thought("h")),
            chunk(thought("m")),
            chunk({"content": [{"type": "text", "text": "He"}, {"type": "reference", "reference_ids": [1]}]}),
            chunk({"content": "llo"}),
            chunk(
                {
                    "tool_calls": [
                        {"id": "null", "index": 0, "function": {"name": "bash", "arguments": {"command": "ls"}}}
                    ]
                }
            ),
            chunk(
                {"content": ""},
                "tool_calls",
                usage={"prompt_tokens": 100, "completion_tokens": 5, "num_cached_tokens": 60},
            ),
            b"data: [DONE]\n\n",
        ),
        session_id="s1",
    )
    found = answer_of(chunks)
    assert [block[:2] for block in shape(found)[:2]] == [("thinking", "hm"), ("text", "Hello")]
    kind, id, name, arguments = shape(found)[2]
    assert (kind, name, arguments) == ("call", "bash", {"command": "ls"})
    assert id not in ("", "null")
    assert found.stop_reason == "toolUse"
    assert (found.usage.input, found.usage.cache_read, found.usage.output) == (40, 60, 5)
    assert request.path == "/v1/chat/completions"
    assert (request.headers["authorization"], request.headers["x-affinity"]) == ("Bearer mistral-key", "s1")


def test_the_address_may_end_in_v1() -> None:
    with MockModel([reply("hi")]) as mock:
        answer_of(collect(make_model(api=API, base_url=mock.openai_url)))
        assert mock.requests[0].path == "/v1/chat/completions"


@pytest.mark.parametrize(
    ("finish", "expected"),
    [
        ("stop", "stop"),
        ("length", "length"),
        ("model_length", "length"),
        ("error", "Provider finish_reason: server_error"),
    ],
)
def test_endings(finish: str, expected: str) -> None:
    found = answer_of(ask(raw(chunk({"content": "a"}, finish)))[0])
    assert (found.error_message or found.stop_reason).startswith(expected)
    if found.error_message:
        assert is_retryable(found.error_message)


@pytest.mark.parametrize(
    "odd", [{"content": [None]}, {"content": [{"type": "thinking"}]}, {"content": {"thinking": 1}}]
)
def test_content_that_is_not_understood(odd: dict[str, Any]) -> None:
    found = answer_of(ask(raw(chunk(odd), chunk({"content": "a"}, "stop")))[0])
    assert found.stop_reason == "stop"
    assert shape(found)[-1] == ("text", "a")


def test_refusals() -> None:
    [finished] = ask(failure(401, {"message": "Unauthorized", "detail": "mistral-key"}), if_refused="Get a key")[0]
    assert isinstance(finished, Finished)
    assert finished.message.error_message == ("401 from mock: the server wants a key: Unauthorized\n\nGet a key")
