"""The Responses API of a ChatGPT subscription: what is sent, and limits of the subscription in plain words."""

import json
import time
from base64 import urlsafe_b64encode
from typing import Any

import pytest

from spindle.llm.errors import is_retryable
from spindle.llm.openai_codex import account_id
from spindle.llm.stream import Finished, ToolSpec
from tests.support.mock_model import MockModel, Recorded, failure, raw

from .helpers import answer_of, collect, make_model, make_request, shape

API = "openai-codex-responses"


def token(account: Any = "acc-1") -> str:
    claims = {"https://api.openai.com/auth": {"chatgpt_account_id": account}, "name": "Jürgen"}
    return f"e30.{urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip('=')}.sig"


def sse(**fields: Any) -> bytes:
    return f"event: {fields['type']}\ndata: {json.dumps(fields)}\n\n".encode()


ANSWER = raw(
    sse(type="response.created", response={"id": "resp_1"}),
    sse(type="response.output_item.added", output_index=0, item={"type": "message", "id": "msg_1"}),
    sse(type="response.output_text.delta", output_index=0, delta="Hello"),
    sse(
        type="response.output_item.done",
        output_index=0,
        item={"type": "message", "id": "msg_1", "content": [{"type": "output_text", "text": "Hello"}]},
    ),
    sse(
        type="response.done",
        response={"id": "resp_1", "status": "completed", "usage": {"input_tokens": 7, "output_tokens": 1}},
    ),
)


def ask(step: Any = ANSWER, path: str = "", **options: Any) -> tuple[list[Any], list[Recorded]]:
    with MockModel([step]) as mock:
        model = make_model(api=API, provider="openai-codex", base_url=f"{mock.url}/backend-api{path}", reasoning=True)
        request = make_request(tools=[ToolSpec("bash", "Run", {"type": "object"})])
        return collect(model, request, **{"api_key": token(), **options}), mock.requests


@pytest.mark.parametrize("path", ["", "/", "/codex", "/codex/responses"])
def test_a_request(path: str) -> None:
    chunks, [request] = ask(path=path, session_id="s1", reasoning="high", cache_retention="long")
    assert shape(answer_of(chunks)) == [("text", "Hello")]
    assert request.path == "/backend-api/codex/responses"
    headers = request.headers
    assert headers["authorization"] == f"Bearer {token()}"
    assert headers["chatgpt-account-id"] == "acc-1"
    assert (headers["openai-beta"], headers["originator"]) == ("responses=experimental", "spindle")
    assert (headers["session-id"], headers["x-client-request-id"]) == ("s1", "s1")
    tool = {"type": "function", "strict": False, "name": "bash", "description": "Run", "parameters": {"type": "object"}}
    assert request.body == {
        "model": "m1",
        "instructions": "Be brief.",
        "input": [{"role": "user", "content": [{"type": "input_text", "text": "hi"}]}],
        "stream": True,
        "store": False,
        "tools": [tool],
        "tool_choice": "auto",
        "parallel_tool_calls": True,
        "text": {"verbosity": "low"},
        "include": ["reasoning.encrypted_content"],
        "reasoning": {"effort": "high", "summary": "auto"},
        "prompt_cache_key": "s1",
    }


@pytest.mark.parametrize("bad", ["", "sk-key", "a.b.c", "e30.e30.x", "a.!!.c", token(None), token("")])
def test_a_token_that_names_no_account(bad: str) -> None:
    assert account_id(bad) is None
    found = answer_of(ask(api_key=bad)[0])
    assert found.error_message == "This is no token of a ChatGPT sign-in. Sign in with: spindle login openai-codex"


def test_a_limit_of_the_subscription() -> None:
    resets = int(time.time()) + 42 * 60 + 5
    error = {"type": "usage_limit_reached", "message": "The limit", "plan_type": "Plus", "resets_at": resets}
    [finished] = ask(failure(429, {"error": error}))[0]
    assert isinstance(finished, Finished)
    text = finished.message.error_message or ""
    assert text.startswith("You have reached your ChatGPT usage limit (plus plan). Try again in about 42 min.\n")
    assert "openai-codex API error (429)" in text
    assert finished.failure is not None
    assert not is_retryable(text, finished.failure.status)


@pytest.mark.parametrize(
    ("body", "retry"), [({"error": {"code": "server_busy"}}, True), (b"", True), ({"detail": "x"}, True)]
)
def test_other_refusals(body: Any, retry: bool) -> None:
    [finished] = ask(failure(429, body))[0]
    assert (finished.message.error_message or "").startswith("openai-codex API error (429): ")
    assert is_retryable(finished.message.error_message, 429) is retry


def test_a_token_that_was_withdrawn() -> None:
    [finished] = ask(failure(401, "token_revoked"), if_refused="Sign in again with spindle login openai-codex")[0]
    text = finished.message.error_message or ""
    assert "(401)" in text
    assert text.endswith("\n\nSign in again with spindle login openai-codex")
