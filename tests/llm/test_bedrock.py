"""Bedrock's Converse API: what is sent, beside botocore's model of it; how the stream is folded; how it fails."""

import base64
from functools import partial
from typing import Any

import pytest

from spindle.llm.bedrock import bedrock_address, converse_body
from spindle.llm.errors import is_overflow, is_retryable
from spindle.llm.history import transform_request
from spindle.llm.stream import Finished, Request, StreamOptions, ToolSpec
from spindle.shapes.messages import Image, Text, Thinking, ToolCall, UserMessage
from tests.support.mock_model import MockModel, Recorded, cut, dropped, failure, raw

from .frames import CONTENT_TYPE, event, exception, frame
from .helpers import answer_by, answer_of, collect, events_of, make_model, result, shape

API = "bedrock-converse-stream"
CLAUDE, OLD_CLAUDE, NOVA = "us.anthropic.claude-opus-5", "anthropic.claude-sonnet-4-5-v1:0", "amazon.nova-pro-v1:0"
TOOL = ToolSpec("bash", "Run a command", {"type": "object", "properties": {"command": {"type": "string"}}})
USER = UserMessage("hi", 0)
PIXELS = base64.b64encode(b"pixels").decode()
IMAGE = Image(PIXELS, "image/png")
IMAGE_PART = {"image": {"format": "png", "source": {"bytes": PIXELS}}}
POINT = {"cachePoint": {"type": "default"}}


@pytest.fixture(autouse=True)
def no_wishes(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("BEARER_TOKEN_BEDROCK", "REGION", "DEFAULT_REGION", "PROFILE", "BEDROCK_FORCE_CACHE"):
        monkeypatch.delenv(f"AWS_{name}", raising=False)


answer = partial(answer_by, API, model=CLAUDE)


def body(
    *messages: Any, id: str = CLAUDE, tools: Any = (), system: str = "Be brief.", model: Any = None, **options: Any
):
    made = make_model(**{"api": API, "id": id, "name": id, **(model or {})})
    request = transform_request(Request(system, list(messages) or [USER], list(tools)), made)
    return checked(converse_body(made, request, StreamOptions(**options)))


def checked(body: dict[str, Any]) -> dict[str, Any]:
    """Let botocore say whether the service would take this."""
    session = pytest.importorskip("botocore.session", reason="botocore is not installed")
    from botocore.validate import validate_parameters

    model = _service_model(session)
    validate_parameters({"modelId": "m", **_with_bytes(body)}, model.operation_model("ConverseStream").input_shape)
    return body


def _service_model(session: Any, known: list[Any] = []) -> Any:  # noqa: B006 - read once
    if not known:
        known.append(session.get_session().get_service_model("bedrock-runtime"))
    return known[0]


def _with_bytes(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            key: base64.b64decode(item) if key in ("bytes", "redactedContent") else _with_bytes(item)
            for key, item in value.items()
        }
    return [_with_bytes(item) for item in value] if isinstance(value, list) else value


# -- requests ------------------------------------------------------------------------------------


def test_a_plain_request() -> None:
    assert body(tools=[TOOL], id=NOVA, model={"sampling_params": {"temperature": 0.5}}) == {
        "messages": [{"role": "user", "content": [{"text": "hi"}]}],
        "system": [{"text": "Be brief."}],
        "inferenceConfig": {"maxTokens": 4096, "temperature": 0.5},
        "toolConfig": {
            "tools": [
                {
                    "toolSpec": {
                        "name": "bash",
                        "description": "Run a command",
                        "inputSchema": {"json": TOOL.parameters},
                    }
                }
            ]
        },
    }


def test_messages() -> None:
    sealed = base64.b64encode(b"sealed").decode()
    history = [
        UserMessage([Text("see"), Text("  "), IMAGE], 0),
        answer(
            Thinking("hm", "signature"),
            Thinking("unsigned"),
            Thinking("[Reasoning redacted]", sealed, True),
            Text(" "),
            Text("a"),
            ToolCall("c1", "bash", {"command": "ls"}),
            ToolCall("c2", "bash", {}),
        ),
        result(Text("x"), IMAGE),
        result(Text("bad"), IMAGE, id="c2", is_error=True),
        UserMessage("", 0),
    ]
    found = body(*history, system=" ")
    assert "system" not in found
    assert found["messages"] == [
        {"role": "user", "content": [{"text": "see"}, IMAGE_PART]},
        {
            "role": "assistant",
            "content": [
                {"reasoningContent": {"reasoningText": {"text": "hm", "signature": "signature"}}},
                {"text": "unsigned"},
                {"reasoningContent": {"redactedContent": sealed}},
                {"text": "a"},
                {"toolUse": {"toolUseId": "c1", "name": "bash", "input": {"command": "ls"}}},
                {"toolUse": {"toolUseId": "c2", "name": "bash", "input": {}}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"toolResult": {"toolUseId": "c1", "content": [{"text": "x"}, IMAGE_PART], "status": "success"}},
                {"toolResult": {"toolUseId": "c2", "content": [{"text": "bad"}], "status": "error"}},
                {"text": "Image of the failed call:"},
                IMAGE_PART,
            ],
        },
        {"role": "user", "content": [{"text": "<empty>"}, POINT]},
    ]
    # The tools of calls in the history must be named, even when none are offered.
    assert [tool["toolSpec"]["name"] for tool in found["toolConfig"]["tools"]] == ["bash"]


def test_other_models_sign_nothing_and_keep_images_of_errors() -> None:
    history = [
        answer(Thinking("hm", "x"), ToolCall("c1", "bash", {}), model=NOVA),
        result(IMAGE, is_error=True),
    ]
    first, second = body(*history, id=NOVA)["messages"]
    assert first["content"][0] == {"reasoningContent": {"reasoningText": {"text": "hm"}}}
    assert second["content"] == [{"toolResult": {"toolUseId": "c1", "content": [IMAGE_PART], "status": "error"}}]


def test_an_image_that_bedrock_does_not_take() -> None:
    model = make_model(api=API)
    found = answer_of(collect(model, Request("", [UserMessage([Image(PIXELS, "image/bmp")], 0)]), api_key="k"))
    assert found.error_message == "Bedrock takes images as jpeg, png, gif or webp, not image/bmp"


@pytest.mark.parametrize(
    ("id", "name", "takes"),
    [
        (CLAUDE, "", True),
        ("anthropic.claude-3-7-sonnet-20250219-v1:0", "", True),
        ("anthropic.claude-3-5-haiku-20241022-v1:0", "", True),
        ("anthropic.claude-3-5-sonnet-20241022-v2:0", "", False),
        ("anthropic.claude-instant-v1", "", False),
        ("arn:aws:bedrock:us-east-1:1:application-inference-profile/abc", "Claude Opus 4.8", True),
        (NOVA, "", False),
    ],
)
def test_cache_points(id: str, name: str, takes: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    found = body(id=id, model={"name": name})
    assert found["system"] == [{"text": "Be brief."}, *([POINT] if takes else [])]
    assert found["messages"][-1]["content"] == [{"text": "hi"}, *([POINT] if takes else [])]
    monkeypatch.setenv("AWS_BEDROCK_FORCE_CACHE", "1")
    hour = {"cachePoint": {"type": "default", "ttl": "1h"}}
    assert body(id=id, model={"name": name}, cache_retention="long")["system"][-1] == hour


BINDING = {"prefix_mismatch_behavior": "drop_block"}


@pytest.mark.parametrize(
    ("id", "level", "fields", "limit"),
    [
        (
            CLAUDE,
            "high",
            {
                "thinking": {"type": "adaptive", "display": "summarized", "block_binding": BINDING},
                "output_config": {"effort": "high"},
                "anthropic_beta": ["thinking-binding-controls-2026-08-01"],
            },
            4096,
        ),
        (
            "anthropic.claude-sonnet-4-6",
            "minimal",
            {"thinking": {"type": "adaptive", "display": "summarized"}, "output_config": {"effort": "low"}},
            4096,
        ),
        (
            OLD_CLAUDE,
            "low",
            {
                "thinking": {"type": "enabled", "budget_tokens": 2048, "display": "summarized"},
                "anthropic_beta": ["interleaved-thinking-2025-05-14"],
            },
            4096,
        ),
        (
            "us-gov.anthropic.claude-opus-5",
            "medium",
            {"thinking": {"type": "adaptive"}, "output_config": {"effort": "medium"}},
            4096,
        ),
        ("openai.gpt-oss-120b-1:0", "xhigh", {"reasoning_effort": "high"}, 4096),
        ("openai.gpt-oss-120b-1:0", "minimal", {"reasoning_effort": "low"}, 4096),
        ("openai.gpt-6-sol", "minimal", {"reasoning": {"effort": "low"}}, 4096),
        (NOVA, "high", None, 4096),
        (CLAUDE, "off", None, 4096),
    ],
)
def test_thinking(id: str, level: str, fields: dict[str, Any] | None, limit: int) -> None:
    found = body(id=id, model={"reasoning": True}, reasoning=level)
    assert found.get("additionalModelRequestFields") == fields
    assert found["inferenceConfig"]["maxTokens"] == limit


@pytest.mark.parametrize(
    ("base_url", "id", "chosen", "expected"),
    [
        ("https://bedrock-runtime.us-east-1.amazonaws.com", CLAUDE, None, "us-east-1"),
        ("https://bedrock-runtime.eu-central-1.amazonaws.com/", CLAUDE, "us-west-2", "us-west-2"),
        ("https://bedrock-runtime-fips.us-east-1.amazonaws.com", CLAUDE, "us-gov-west-1", "us-gov-west-1"),
        (
            "https://bedrock-runtime.us-east-1.amazonaws.com",
            "arn:aws:bedrock:ap-south-1:1:x/y",
            "eu-west-1",
            "ap-south-1",
        ),
        ("https://vpce-1.example.com/bedrock", CLAUDE, "eu-west-1", "eu-west-1"),
        ("https://vpce-1.example.com/bedrock", CLAUDE, None, "us-east-1"),
    ],
)
def test_addresses(base_url: str, id: str, chosen: str | None, expected: str) -> None:
    region, address = bedrock_address(make_model(id=id, base_url=base_url), chosen)
    assert region == expected
    host = base_url.rstrip("/").replace("us-east-1", expected).replace("eu-central-1", expected)
    assert address == host


# -- what goes over the wire ---------------------------------------------------------------------

HELLO = b"".join(
    (
        event("messageStart", role="assistant"),
        event("contentBlockDelta", contentBlockIndex=0, delta={"text": "Hel"}),
        event("contentBlockDelta", contentBlockIndex=0, delta={"text": "lo"}),
        event("contentBlockStop", contentBlockIndex=0),
        event("messageStop", stopReason="end_turn"),
        event("metadata", usage={"inputTokens": 10, "outputTokens": 2, "totalTokens": 12}, metrics={"latencyMs": 1}),
    )
)


def ask(*pieces: Any, id: str = CLAUDE, model: Any = None, **options: Any) -> tuple[list[Any], list[Recorded]]:
    step = raw(*pieces, content_type=CONTENT_TYPE) if not pieces or isinstance(pieces[0], bytes) else pieces[0]
    with MockModel([step]) as mock:
        made = make_model(**{"api": API, "id": id, "base_url": mock.url, **(model or {})})
        return collect(made, **{"api_key": "bedrock-token", **options}), mock.requests


def test_a_bearer_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "id")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    chunks, [request] = ask(HELLO, id=OLD_CLAUDE)
    assert shape(answer_of(chunks)) == [("text", "Hello")]
    assert request.path == "/model/anthropic.claude-sonnet-4-5-v1%3A0/converse-stream"
    assert request.headers["authorization"] == "Bearer bedrock-token"
    assert "x-amz-date" not in request.headers
    assert request.headers["accept"] == CONTENT_TYPE
    monkeypatch.setenv("AWS_BEARER_TOKEN_BEDROCK", "of-the-environment")
    _, [request] = ask(HELLO, api_key=None)
    assert request.headers["authorization"] == "Bearer of-the-environment"
    monkeypatch.setenv("AWS_BEDROCK_SKIP_AUTH", "1")
    _, [request] = ask(HELLO)
    assert "authorization" not in request.headers


def test_a_signed_request_is_what_botocore_would_have_signed(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("botocore", reason="botocore is not installed")
    from .test_aws import AwsKeys, their_authorization

    env = {"AWS_ACCESS_KEY_ID": "AKID", "AWS_SECRET_ACCESS_KEY": "very-secret", "AWS_SESSION_TOKEN": "session-token"}

    with MockModel([raw(HELLO, content_type=CONTENT_TYPE)]) as mock:
        model = make_model(api=API, id=OLD_CLAUDE, base_url=mock.url)
        found = answer_of(collect(model, env={**env, "AWS_REGION": "eu-west-3"}, headers={"X-Own": "1"}))
        [request] = mock.requests
    assert found.stop_reason == "stop"
    assert request.headers["x-own"] == "1"
    covered = {
        "Content-Type": request.headers["content-type"],
        "X-Amz-Date": request.headers["x-amz-date"],
        "X-Amz-Security-Token": request.headers["x-amz-security-token"],
    }
    keys = AwsKeys("AKID", "very-secret", "session-token")
    from spindle.shapes.codec import encode

    theirs = their_authorization(f"{mock.url}{request.path}", covered, encode(request.body), keys, "eu-west-3")
    assert request.headers["authorization"] == theirs


def test_no_credentials_at_all(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    from spindle.llm import aws

    for name in ("ACCESS_KEY_ID", "SECRET_ACCESS_KEY"):
        monkeypatch.delenv(f"AWS_{name}", raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    aws._chain.cache_clear()
    chunks, requests = ask(HELLO, api_key=None)
    assert "AWS_BEARER_TOKEN_BEDROCK" in (answer_of(chunks).error_message or "")
    assert requests == []


# -- streams -------------------------------------------------------------------------------------


def test_thinking_text_and_calls() -> None:
    chunks, _ = ask(
        event("messageStart", role="assistant", p="abc"),
        event("contentBlockDelta", contentBlockIndex=0, delta={"reasoningContent": {"text": "h"}}),
        event("contentBlockDelta", contentBlockIndex=0, delta={"reasoningContent": {"text": "m"}}),
        event("contentBlockDelta", contentBlockIndex=0, delta={"reasoningContent": {"signature": "si"}}),
        event("contentBlockDelta", contentBlockIndex=0, delta={"reasoningContent": {"signature": "g"}}),
        event("contentBlockStop", contentBlockIndex=0),
        event("contentBlockDelta", contentBlockIndex=1, delta={"text": "a"}),
        event("contentBlockStop", contentBlockIndex=1),
        event("contentBlockStart", contentBlockIndex=2, start={"toolUse": {"toolUseId": "t1", "name": "bash"}}),
        event("contentBlockDelta", contentBlockIndex=2, delta={"toolUse": {"input": '{"command"'}}),
        event("contentBlockDelta", contentBlockIndex=2, delta={"toolUse": {"input": ':"ls"}'}}),
        event("contentBlockStop", contentBlockIndex=2),
        event("contentBlockStart", contentBlockIndex=3, start={"toolUse": {"toolUseId": "t2", "name": "ls"}}),
        event("contentBlockStop", contentBlockIndex=3),
        event("somethingNew", what=1),
        event("messageStop", stopReason="tool_use"),
        event(
            "metadata",
            usage={
                "inputTokens": 10,
                "outputTokens": 20,
                "cacheReadInputTokens": 1000,
                "cacheWriteInputTokens": 300,
                "cacheDetails": [{"ttl": "1h", "inputTokens": 100}, {"ttl": "5m", "inputTokens": 200}],
            },
        ),
    )
    found = answer_of(chunks)
    assert shape(found) == [
        ("thinking", "hm", "sig"),
        ("text", "a"),
        ("call", "t1", "bash", {"command": "ls"}),
        ("call", "t2", "ls", {}),
    ]
    assert found.stop_reason == "toolUse"
    assert [name for name, *_ in events_of(chunks)] == [
        "thinking_start",
        "thinking_delta",
        "thinking_delta",
        "thinking_end",
        "text_start",
        "text_delta",
        "text_end",
        "toolcall_start",
        "toolcall_delta",
        "toolcall_delta",
        "toolcall_end",
        "toolcall_start",
        "toolcall_end",
    ]
    usage = found.usage
    assert (usage.input, usage.output, usage.cache_read, usage.cache_write) == (10, 20, 1000, 300)
    assert usage.cache_write_1h == 100
    assert usage.total_tokens == 1330
    assert usage.cost.total == pytest.approx((10 * 1 + 20 * 2 + 1000 * 0.1 + 100 * 2) / 1e6)


def test_thinking_that_only_the_provider_can_read() -> None:
    pieces = [base64.b64encode(part).decode() for part in (b"abcd", b"efgh")]
    chunks, _ = ask(
        *(
            event("contentBlockDelta", contentBlockIndex=0, delta={"reasoningContent": {"redactedContent": piece}})
            for piece in pieces
        ),
        event("contentBlockStop", contentBlockIndex=0),
        event("messageStop", stopReason="end_turn"),
    )
    [block] = answer_of(chunks).content
    assert block == Thinking("[Reasoning redacted]", base64.b64encode(b"abcdefgh").decode(), True)
    sent_back = body(answer(block), USER)["messages"][0]["content"]
    assert sent_back == [{"reasoningContent": {"redactedContent": base64.b64encode(b"abcdefgh").decode()}}]


@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        ("end_turn", "stop"),
        ("stop_sequence", "stop"),
        ("max_tokens", "length"),
        ("model_context_window_exceeded", "length"),
        ("guardrail_intervened", "Provider stopped with: guardrail_intervened"),
    ],
)
def test_endings(reason: str, expected: str) -> None:
    chunks, _ = ask(event("messageStop", stopReason=reason))
    found = answer_of(chunks)
    assert (found.error_message or found.stop_reason) == expected
    assert found.raw_stop_reason == reason


def test_an_answer_that_a_guardrail_has_masked_is_an_answer() -> None:
    text = event("contentBlockDelta", contentBlockIndex=0, delta={"text": "I live in {ADDRESS}."})
    found = answer_of(ask(text, event("messageStop", stopReason="guardrail_intervened"))[0])
    assert (found.stop_reason, found.raw_stop_reason) == ("stop", "guardrail_intervened")


def test_an_unknown_ending_with_calls_means_tool_use() -> None:
    start = event("contentBlockStart", contentBlockIndex=0, start={"toolUse": {"toolUseId": "t", "name": "ls"}})
    chunks, _ = ask(start, event("messageStop", stopReason="something_new"))
    assert answer_of(chunks).stop_reason == "toolUse"


@pytest.mark.parametrize(
    "odd",
    [
        event("newEvent", anything=[1]),
        event("contentBlockDelta", contentBlockIndex=None, delta=None),
        event("contentBlockDelta", contentBlockIndex=0, delta={}),
        event("contentBlockDelta", contentBlockIndex=0, delta={"text": None, "citation": {}}),
        event("contentBlockDelta", contentBlockIndex=7, delta={"toolUse": {"input": "x"}}),
        event("contentBlockDelta", contentBlockIndex=0, delta={"reasoningContent": {}}),
        event("contentBlockStart", contentBlockIndex=9, start={}),
        event("contentBlockStart"),
        event("contentBlockStop", contentBlockIndex=42),
        event("metadata", usage=None),
        event("metadata", usage={"inputTokens": None}, trace={"x": 1}),
        frame(b"null", event_type="metadata", message_type="event"),
        frame(b"\xff\x00", event_type="newEvent", message_type="event", content_type="application/octet-stream"),
        frame(b'{"p":"padding"}', event_type="ping", message_type="event", x_new="1"),
    ],
)
def test_what_a_server_may_add(odd: bytes) -> None:
    text = event("contentBlockDelta", contentBlockIndex=0, delta={"text": "Hello"})
    found = answer_of(ask(odd, text, odd, event("messageStop", stopReason="end_turn"), odd)[0])
    assert found.stop_reason == "stop", found.error_message
    assert shape(found) == [("text", "Hello")]


# -- failures ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "text", "retry"),
    [
        ("throttlingException", "Throttling error: what", True),
        ("validationException", "Validation error: what", False),
        ("internalServerException", "Internal server error: what", True),
        ("modelStreamErrorException", "Model stream error: what", True),
        ("serviceUnavailableException", "Service unavailable: what", True),
        ("modelTimeoutException", "modelTimeoutException: what", True),
        ("accessDeniedException", "accessDeniedException: what", False),
    ],
)
def test_exceptions_in_the_stream(kind: str, text: str, retry: bool) -> None:
    chunks, _ = ask(event("contentBlockDelta", contentBlockIndex=0, delta={"text": "par"}), exception(kind, "what"))
    found = answer_of(chunks)
    assert (found.error_message, shape(found)) == (text, [("text", "par")])
    assert is_retryable(text) is retry


@pytest.mark.parametrize(
    ("status", "body", "text", "retry"),
    [
        (400, {"message": "The model id is invalid"}, "Validation error: The model id is invalid", False),
        (403, {"Message": "no"}, "Access denied: no", False),
        (429, {"message": "Too many requests"}, "Throttling error: Too many requests", True),
        (503, b"<html>", "Service unavailable: <html>", True),
        (418, b"", "Bedrock error 418: 418 status code (no body)", False),
    ],
)
def test_refusals(status: int, body: Any, text: str, retry: bool) -> None:
    chunks, _ = ask(failure(status, body))
    [finished] = chunks
    assert isinstance(finished, Finished)
    assert finished.message.error_message == text
    assert finished.failure is not None
    assert is_retryable(text, finished.failure.status) is retry


def test_a_conversation_that_is_too_long() -> None:
    chunks, _ = ask(failure(400, {"message": "Input is too long for requested model."}))
    assert is_overflow(answer_of(chunks), 100_000)


@pytest.mark.parametrize("size", [30, len(HELLO) - 200])
def test_a_cut_stream(size: int) -> None:
    chunks, _ = ask(HELLO[:size], cut())
    found = answer_of(chunks)
    assert found.stop_reason == "error"
    assert (found.error_message or "").startswith("Stream ended without")
    assert is_retryable(found.error_message)


def test_a_damaged_stream() -> None:
    damaged = bytearray(HELLO)
    damaged[HELLO.index(b"Hel") + 1] ^= 1
    found = answer_of(ask(bytes(damaged))[0])
    assert "checksum is wrong" in (found.error_message or "")


def test_a_server_that_hangs_up() -> None:
    assert (answer_of(ask(dropped())[0]).error_message or "").startswith("Connection error.")


def test_secrets_are_hidden() -> None:
    found = answer_of(ask(failure(403, {"message": "token bedrock-token is not valid"}))[0])
    assert found.error_message == "Access denied: token [hidden] is not valid"
