"""Error texts and what is read from them."""

import pytest

from spindle.llm.errors import error_object_text, hide_secrets, is_overflow, is_retryable, secrets_of
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
    assert is_overflow(answer("error", "413 status code (no body)", provider="cerebras"), 1000)


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
    ("status", "body", "text"),
    [
        (429, '{"error": {"message": "slow", "type": "rate"}}', '429: {"message":"slow","type":"rate"}'),
        (400, '{"error": "bad thing"}', '400: "bad thing"'),
        (400, '{"detail": "bad"}', '400: {"detail":"bad"}'),
        (500, "Internal trouble\n", "500 Internal trouble"),
        (403, "", "403 status code (no body)"),
        (500, "x" * 4001, "500 " + "x" * 4000 + "... [truncated 1 chars]"),
    ],
)
def test_http_failures_keep_status_and_body(status, body, text):
    assert error_object_text(status, body) == text


def test_secrets_are_hidden():
    secrets = secrets_of("sk-verysecret", {"Authorization": "Bearer token-12345", "X-Other": "visible-value"})
    text = 'no such key sk-verysecret, "Bearer token-12345", token-12345, visible-value'
    assert hide_secrets(text, secrets) == 'no such key [hidden], "[hidden]", [hidden], visible-value'
    assert secrets_of("none", {}) == set()
