"""What servers add, leave out or misspell must not end an answer, whichever API they speak."""

import json
from typing import Any

import pytest

from spindle.shapes.messages import AssistantMessage
from tests.support.mock_model import MockModel, raw

from .helpers import answer_of, collect, make_model, shape

Event = dict[str, Any]
CHAT, RESPONSES, MESSAGES, GOOGLE = (
    "openai-completions",
    "openai-responses",
    "anthropic-messages",
    "google-generative-ai",
)
APIS = (CHAT, RESPONSES, MESSAGES, GOOGLE)
ARGUMENTS = '{"command": "ls"}'


def stream_of(api: str, stop: str, usage: Any) -> list[Event]:
    """Return the events of an answer: a text, a call, a reason to stop. A usage of None is left out."""
    counted = {} if usage is None else {"usageMetadata" if api == GOOGLE else "usage": usage}
    if api == CHAT:
        call = {"index": 0, "id": "c1", "function": {"name": "bash", "arguments": ARGUMENTS}}
        deltas: list[Event] = [{"role": "assistant"}, {"content": "Look"}, {"content": "ing"}, {"tool_calls": [call]}]
        chunks = [{"choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas]
        return [*chunks, {"choices": [{"delta": {}, "finish_reason": stop}]}, {"choices": [], **counted}]
    if api == RESPONSES:
        call = {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "bash", "arguments": ARGUMENTS}
        end = {"id": "r1", "status": "completed", **counted}
        if stop != "stop":
            end |= {"status": "incomplete", "incomplete_details": {"reason": stop}}
        return [
            {"type": "response.created", "response": {"id": "r1", "status": "in_progress"}},
            {"type": "response.output_item.added", "output_index": 0, "item": {"type": "message", "id": "m1"}},
            {"type": "response.output_text.delta", "output_index": 0, "delta": "Looking"},
            {"type": "response.output_item.done", "output_index": 0, "item": {"type": "message", "id": "m1"}},
            {"type": "response.output_item.added", "output_index": 1, "item": {**call, "arguments": ""}},
            {"type": "response.output_item.done", "output_index": 1, "item": call},
            {"type": "response.completed", "response": end},
        ]
    if api == MESSAGES:
        return [
            {"type": "message_start", "message": {"id": "m1", "model": "m1", **counted}},
            {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
            {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Looking"}},
            {"type": "content_block_stop", "index": 0},
            {
                "type": "content_block_start",
                "index": 1,
                "content_block": {"type": "tool_use", "id": "c1", "name": "bash"},
            },
            {
                "type": "content_block_delta",
                "index": 1,
                "delta": {"type": "input_json_delta", "partial_json": ARGUMENTS},
            },
            {"type": "content_block_stop", "index": 1},
            {"type": "message_delta", "delta": {"stop_reason": stop}, **counted},
            {"type": "message_stop"},
        ]
    call = {"functionCall": {"name": "bash", "args": json.loads(ARGUMENTS), "id": "c1"}}
    return [
        {"candidates": [{"content": {"role": "model", "parts": [{"text": "Looking"}]}}]},
        {"candidates": [{"content": {"parts": [call]}}]},
        {"candidates": [{"finishReason": stop}], **counted},
    ]


STOPS = {CHAT: "tool_calls", RESPONSES: "stop", MESSAGES: "tool_use", GOOGLE: "STOP"}
REFUSED = {CHAT: "content_filter", RESPONSES: "content_filter", MESSAGES: "refusal", GOOGLE: "SAFETY"}
USAGES: dict[str, Event] = {
    CHAT: {"prompt_tokens": 100, "completion_tokens": 20, "prompt_tokens_details": {"cached_tokens": 30}},
    RESPONSES: {"input_tokens": 100, "output_tokens": 20, "input_tokens_details": {"cached_tokens": 30}},
    MESSAGES: {"input_tokens": 70, "output_tokens": 20, "cache_read_input_tokens": 30},
    GOOGLE: {"promptTokenCount": 100, "candidatesTokenCount": 20, "cachedContentTokenCount": 30},
}
NOISE: dict[str, list[Event]] = {
    CHAT: [
        {"object": "chat.completion.keepalive"},
        {"choices": None},
        {"choices": [None]},
        {"choices": [{"index": 0, "delta": None, "finish_reason": None}]},
        {"choices": [{"delta": {"content": None, "tool_calls": None, "reasoning_content": None, "refusal": None}}]},
        {"choices": [{"delta": {"tool_calls": [None], "audio": {"data": "x"}}, "logprobs": None}], "usage": None},
        {"choices": "none", "usage": []},
    ],
    RESPONSES: [
        {"type": "response.something_new", "item": {"type": "message"}},
        {"type": "response.output_text.delta", "output_index": 0, "delta": None},
        {"type": "response.output_text.delta", "output_index": 0, "delta": {"text": "?"}},
        {"type": "response.output_item.added", "output_index": 9, "item": None},
        {"type": "response.output_item.added", "output_index": 8, "item": {"type": "web_search_call"}},
        {"type": "response.output_item.done", "output_index": 8, "item": {"type": "web_search_call", "content": 7}},
        {"type": "response.in_progress", "response": None, "error": None},
        {"type": None},
        {},
    ],
    MESSAGES: [
        {"type": "ping"},
        {"type": "something_new", "delta": {"text": "?"}},
        {"type": "content_block_delta", "index": 0, "delta": None},
        {"type": "content_block_delta", "index": 1, "delta": {"type": "citations_delta", "citation": {}}},
        {
            "type": "content_block_start",
            "index": 7,
            "content_block": {"type": "server_tool_use", "id": "s", "name": "w"},
        },
        {"type": "content_block_delta", "index": 7, "delta": {"type": "input_json_delta", "partial_json": "{}"}},
        {"type": "content_block_start", "index": 8, "content_block": {}},
        {"type": "content_block_stop", "index": 7},
        {"type": "message_delta", "delta": {"stop_reason": None}, "usage": None},
        {"type": "message_delta", "delta": None, "usage": {"output_tokens": None, "server_tool_use": {"x": 1}}},
    ],
    GOOGLE: [
        {"candidates": None},
        {"candidates": [None]},
        {"candidates": [{"content": None}], "usageMetadata": None},
        {"candidates": [{"content": {"parts": None}, "safetyRatings": [{"category": "x"}]}]},
        {"candidates": [{"content": {"parts": [None, {"executableCode": {"code": "x"}}, {"text": None}]}}]},
        {"candidates": [{"content": {"parts": [{"functionCall": None}, {"functionCall": {}}]}}]},
        {"promptFeedback": {"blockReason": None}, "somethingNew": True},
    ],
}


def ask(api: str, events: list[Event], **fields: Any) -> AssistantMessage:
    data = [b"data: " + json.dumps(event).encode() + b"\n\n" for event in events]
    with MockModel([raw(*data, *([b"data: [DONE]\n\n"] if api == CHAT else []))]) as mock:
        base = {MESSAGES: mock.anthropic_url, GOOGLE: f"{mock.url}/v1beta"}.get(api, mock.openai_url)
        return answer_of(collect(make_model(api=api, base_url=base, **fields), api_key="k"))


def said(answer: AssistantMessage) -> list[tuple[Any, ...]]:
    return [
        block if block[0] != "call" else (*block[:1], block[1].partition("|")[0], *block[2:]) for block in shape(answer)
    ]


WHOLE = [("text", "Looking"), ("call", "c1", "bash", {"command": "ls"})]
each_api = pytest.mark.parametrize("api", APIS)


@each_api
def test_what_we_do_not_know_is_passed_over(api: str) -> None:
    events = stream_of(api, STOPS[api], USAGES[api])
    noisy = [{**events[0], "xNew": {"deep": [1]}}]
    for event in events[1:]:
        noisy += [*NOISE[api], {**event, "xNew": None}]
    answer = ask(api, noisy)
    assert (said(answer), answer.stop_reason, answer.error_message) == (WHOLE, "toolUse", None)
    usage = answer.usage
    assert (usage.input, usage.cache_read, usage.output) == (70, 30, 20)
    assert usage.cost.total == pytest.approx((70 * 1 + 30 * 0.1 + 20 * 2) / 1e6)
    assert usage.cost.source == "computed"


@each_api
@pytest.mark.parametrize("usage", [None, {}, [], "lots", {"x": 1}], ids=["missing", "empty", "list", "text", "other"])
def test_an_answer_without_usage_is_an_answer_whose_cost_is_unknown(api: str, usage: Any) -> None:
    answer = ask(api, stream_of(api, STOPS[api], usage))
    assert (said(answer), answer.stop_reason) == (WHOLE, "toolUse")
    assert answer.usage.total_tokens == 0
    assert answer.usage.cost.source == "unknown"


@each_api
def test_numbers_as_text_are_numbers(api: str) -> None:
    usage = {key: str(value) if isinstance(value, int) else value for key, value in USAGES[api].items()}
    assert ask(api, stream_of(api, STOPS[api], usage)).usage.output == 20


@each_api
def test_numbers_below_zero_lower_no_cost(api: str) -> None:
    usage = {key: -value if isinstance(value, int) else value for key, value in USAGES[api].items()}
    answer = ask(api, stream_of(api, STOPS[api], usage))
    assert (said(answer), answer.stop_reason) == (WHOLE, "toolUse")
    counts = answer.usage
    assert min(counts.input, counts.output, counts.cache_read, counts.cache_write, counts.total_tokens) >= 0
    assert counts.cost.total >= 0 and counts.cost.source == "unknown"


@each_api
def test_an_unknown_reason_after_a_call_means_tool_use(api: str) -> None:
    answer = ask(api, stream_of(api, "brand_new_reason", USAGES[api]))
    assert (said(answer), answer.stop_reason, answer.error_message) == (WHOLE, "toolUse", None)
    assert answer.raw_stop_reason == "brand_new_reason"


@each_api
def test_a_refusal_after_a_call_is_a_refusal(api: str) -> None:
    answer = ask(api, stream_of(api, REFUSED[api], USAGES[api]))
    assert answer.stop_reason == "error"
    assert answer.error_message


def test_a_messages_server_may_forget_the_reason() -> None:
    events = [event for event in stream_of(MESSAGES, "", USAGES[MESSAGES]) if event["type"] != "message_delta"]
    assert ask(MESSAGES, events).stop_reason == "toolUse"


def test_a_responses_server_may_forget_to_announce_items_and_its_status() -> None:
    events: list[Event] = [
        {"type": "response.reasoning_text.delta", "output_index": 0, "delta": "Hm"},
        {"type": "response.output_text.delta", "output_index": 1, "delta": "Hello"},
        {"type": "response.completed", "response": {"id": "r1"}},
    ]
    answer = ask(RESPONSES, events)
    assert ([block[:2] for block in shape(answer)], answer.stop_reason) == (
        [("thinking", "Hm"), ("text", "Hello")],
        "stop",
    )
