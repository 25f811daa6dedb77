"""Error texts and what is read from them."""

import json

import pytest

from spindle.llm.errors import error_words, hide_secrets, is_overflow, is_retryable, refusal_text, secrets_of
from spindle.shapes.messages import AssistantMessage, Usage

from .golden import rows


def answer(stop_reason: str, error: str | None = None, usage: Usage | None = None, provider: str = "mock"):
    return AssistantMessage([], "x", provider, "m", usage or Usage(), stop_reason, 0, error)


KNOWN_BETTER = ("model 5000 not found", "529 x", "Throttling error: Too many tokens, please wait")


@pytest.mark.parametrize("row", rows("classify"), ids=lambda row: row["error"])
def test_golden(row):
    assert is_overflow(answer("error", row["error"]), 100_000) == row["overflow"]
    if row["error"] not in KNOWN_BETTER:
        assert is_retryable(row["error"]) == row["retryable"]


@pytest.mark.parametrize(
    ("text", "retryable"),
    [
        ("model 5000 not found", False),
        ("max_tokens: at most 1500", False),
        ("max_tokens: at most 1,500", False),
        ('400: {"message":"max_tokens must be at most 500"}', False),
        ("mock API error (400): at most 500 tokens", False),
        ("mock API error (503): no more", True),
        ('502: {"message":"at most 1500"}', True),
        ("The gateway said 504.", True),
        ('{"code":429}', True),
    ],
)
def test_a_number_is_a_status_only_where_a_status_stands(text, retryable):
    assert is_retryable(text) is retryable


def test_cerebras_says_nothing_when_the_prompt_is_too_long():
    for text in (
        "413 status code (no body)",
        refusal_text(413, "", "cerebras"),
        refusal_text(400, "", "cerebras", "K"),
    ):
        assert is_overflow(answer("error", text, provider="cerebras"), 1000)
    assert not is_overflow(answer("error", refusal_text(404, "", "cerebras"), provider="cerebras"), 1000)


@pytest.mark.parametrize(
    ("stop_reason", "usage", "window", "overflow"),
    [
        ("stop", Usage(input=900, cache_read=101), 1000, True),
        ("stop", Usage(input=900, cache_read=100), 1000, False),
        ("stop", Usage(input=900), 0, False),
        ("length", Usage(input=990), 1000, True),
        ("length", Usage(input=989), 1000, False),
        ("length", Usage(input=990, output=1), 1000, False),
        ("toolUse", Usage(input=2000), 1000, False),
        ("aborted", Usage(input=2000), 1000, False),
    ],
)
def test_overflow_read_from_the_usage(stop_reason, usage, window, overflow):
    assert is_overflow(answer(stop_reason, usage=usage), window) == overflow


@pytest.mark.parametrize(
    ("status", "body", "source", "text"),
    [
        (
            401,
            '{"type":"error","error":{"type":"authentication_error","message":"invalid x-api-key"}}',
            "ANTHROPIC_API_KEY",
            "the key in ANTHROPIC_API_KEY was refused: invalid x-api-key (authentication_error)",
        ),
        (401, "no", "--api-key", "the key given with --api-key was refused: no"),
        (401, "no", "auth.json (login)", "the login in auth.json was refused: no"),
        (401, "no", "not needed", "the server wants a key: no"),
        (403, '{"detail": "bad"}', "auth.json", "the key in auth.json does not allow this: bad"),
        (402, '{"error": "Pay"}', None, "the account has no credit: Pay"),
        (404, '{"error":{"message":"no model x"}}', None, "there is no such model or address: no model x"),
        (
            429,
            '{"error":{"message":"slow","type":"rate","code":"r1"}}',
            None,
            "it takes no more requests for now: slow (r1, rate)",
        ),
        (
            400,
            '[{"error":{"code":400,"message":"too much","status":"INVALID_ARGUMENT"}}]',
            None,
            "the request was refused: too much (INVALID_ARGUMENT)",
        ),
        (500, "Internal trouble\n", None, "the server failed: Internal trouble"),
        (502, "<html><head><title>502 Bad\n Gateway</title>…", None, "the server failed: 502 Bad Gateway"),
        (418, '{"a": 1}', None, 'the request was refused: {"a":1}'),
        (529, "", None, "it is overloaded (no body)"),
        (500, "x" * 4001, None, "the server failed: " + "x" * 4000 + "... [truncated 1 chars]"),
    ],
)
def test_a_refusal_is_said_in_words(status, body, source, text):
    assert refusal_text(status, body, "mock", source) == f"{status} from mock: {text}"


def test_the_words_of_a_provider_behind_another():
    raw = '{"error": {"message": "prompt is too long", "type": "x"}}'
    body = json.dumps({"error": {"message": "Provider returned error", "metadata": {"raw": raw}}})
    assert error_words(body) == "Provider returned error: prompt is too long (x)"


@pytest.mark.parametrize(
    ("status", "error", "overflow", "retryable"),
    [
        (400, {"message": "m", "code": "context_length_exceeded"}, True, False),
        (413, {"message": "m", "type": "request_too_large"}, True, False),
        (429, {"message": "m", "type": "insufficient_quota"}, False, False),
        (429, {"message": "m", "type": "rate_limit_error"}, False, True),
        (529, {"message": "Overloaded", "type": "overloaded_error"}, False, True),
        (401, {"message": "m"}, False, False),
    ],
)
def test_what_it_means_can_be_read_from_the_words(status, error, overflow, retryable):
    text = refusal_text(status, json.dumps({"error": error}), "mock", "KEY")
    assert is_overflow(answer("error", text), 1000) is overflow
    assert is_retryable(text) is is_retryable(text, status) is retryable


def test_secrets_are_hidden():
    secrets = secrets_of("sk-verysecret", {"Authorization": "Bearer token-12345", "X-Other": "visible-value"})
    text = 'no such key sk-verysecret, "Bearer token-12345", token-12345, visible-value'
    assert hide_secrets(text, secrets) == 'no such key [hidden], "[hidden]", [hidden], visible-value'
    assert secrets_of("none", {}) == set()
