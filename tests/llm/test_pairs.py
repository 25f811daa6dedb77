"""A conversation with one model goes on with another one, for every pair of APIs: what is sent fits what the published
SDK of the provider takes, and has nothing in it that only the first model understands.

Without the SDKs the rest is checked.
"""

import asyncio
import importlib
import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from spindle.llm.stream import Request, StreamOptions, ToolSpec, builtin_stream
from spindle.shapes.messages import AssistantMessage, Image, Text, Thinking, ToolCall, Usage, UserMessage
from spindle.shapes.model import Model

from . import sdk_types
from .helpers import make_model, result

SIGNATURE = "c2lnbmF0dXJlb2Zhbm90aGVyMDA="
"""It even looks like one of Google's."""
APIS: dict[str, tuple[str, str, str]] = {
    # api: provider, model, id of a call as it makes them
    "anthropic-messages": ("anthropic", "claude-sonnet-4-5", "toolu_01A09q90qw90lq917835lq9"),
    "openai-completions": ("openai", "gpt-5", "call_abc"),
    "openai-responses": ("openai", "gpt-5", "call_abc|fc_" + "0123456789abcdef" * 4),
    "google-generative-ai": ("google", "gemini-3-pro", "bash:0 µ"),
    "mistral-conversations": ("mistral", "magistral-medium", "D681PevKs"),
    "bedrock-converse-stream": (
        "amazon-bedrock",
        "eu.anthropic.claude-sonnet-4-5-v1:0",
        "tooluse_kZJMlvQmRJ6eAyJE5GIl7Q",
    ),
}
TOOL = ToolSpec("bash", "Run a command", {"type": "object", "properties": {"command": {"type": "string"}}})
IMAGE = Image(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==", "image/png"
)


def model(api: str, **changed: Any) -> Model:
    provider, id, _ = APIS[api]
    given = {"provider": provider, "id": id, "api": api, "reasoning": True, "input": ["text", "image"]}
    return make_model(**{**given, "base_url": "http://127.0.0.1:9", "max_tokens": 30_000, **changed})


def answer(api: str, *content: Any, stop: str = "toolUse") -> AssistantMessage:
    provider, id, _ = APIS[api]
    return AssistantMessage(list(content), api, provider, id, Usage(), stop, 0)


def history(api: str) -> list[Any]:
    """A question with an image, thinking that is signed, calls, an image as a result, a failed and an open call."""
    call = APIS[api][2]
    second = call[:-1] + ("2" if call[-1] != "2" else "3")
    thinking = Thinking("Hm, an image.", SIGNATURE)
    hidden = Thinking("", SIGNATURE, redacted=True)
    return [
        UserMessage([Text("What is this?"), IMAGE], 0),
        answer(api, Text("I was cut"), stop="error"),
        answer(
            api,
            thinking,
            hidden,
            Text("Let me look.", SIGNATURE),
            ToolCall(call, "bash", {"command": "ls"}, SIGNATURE),
            ToolCall(second, "bash", {"command": "false"}),
        ),
        result(Text("a.png"), IMAGE, id=call),
        result(Text("no"), id=second, is_error=True),
    ]


LATER = [Text("And now?")]


def body_for(target: Model, messages: list[Any], reasoning: str = "high") -> dict[str, Any]:
    """Return the body of a request as it would go out."""
    sent: list[Any] = []

    async def capture(body: Any) -> None:
        sent.append(body)
        raise RuntimeError("not sent")

    async def main() -> None:
        options = StreamOptions(
            api_key="k", reasoning=reasoning, on_payload=capture, session_id="s", env={"AWS_REGION": "eu-central-1"}
        )
        async for _ in builtin_stream(target.api)(target, Request("Be brief.", messages, [TOOL]), options):
            pass

    asyncio.run(main())
    assert len(sent) == 1
    found: dict[str, Any] = sent[0]
    return found


class Sdks:
    """The published SDKs in an environment of their own, which look at bodies (`sdk_types.py`)."""

    def __init__(self, python: str) -> None:
        program = [python, str(Path(sdk_types.__file__))]
        self.process = subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def error(self, api: str, body: dict[str, Any]) -> str | None:
        """Return why the SDK of the provider would not take the body."""
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(json.dumps([api, body]) + "\n")
        self.process.stdin.flush()
        found: str | None = json.loads(self.process.stdout.readline())
        return found


@pytest.fixture(scope="module")
def sdks() -> Iterator[Sdks | None]:
    python = os.environ.get("SPINDLE_TEST_SDKS")
    if python is None:
        yield None
        return
    made = Sdks(python)
    with made.process:
        yield made
        assert made.process.stdin is not None
        made.process.stdin.close()


def check_types(sdks: Sdks | None, api: str, body: dict[str, Any]) -> None:
    """Fail if the SDK of the provider would not take the body."""
    if api == "bedrock-converse-stream":
        session = pytest.importorskip("botocore.session").get_session()
        loader = session.get_component("data_loader").load_service_model("bedrock-runtime", "service-2")
        shape = importlib.import_module("botocore.model").ServiceModel(loader).operation_model("ConverseStream")
        report = importlib.import_module("botocore.validate").ParamValidator().validate
        given = {"modelId": "m", **body}
        assert not (found := report(given, shape.input_shape)).has_errors(), found.generate_report()
    elif sdks is None:
        pytest.skip("SPINDLE_TEST_SDKS names no Python with the SDKs of the providers")
    else:
        assert sdks.error(api, body) is None


def ids(api: str, value: Any) -> Iterator[tuple[str, str]]:
    """Yield `call` or `result` and the id, for all calls and results in a body."""
    if isinstance(value, list):
        for item in value:
            yield from ids(api, item)
    if not isinstance(value, dict):
        return
    kind = value.get("type")
    if kind == "tool_use" or (kind == "function" and "id" in value):
        yield "call", value["id"]
    elif kind == "function_call":
        yield "call", value["call_id"]
    elif kind == "tool_result":
        yield "result", value["tool_use_id"]
    elif kind == "function_call_output":
        yield "result", value["call_id"]
    elif value.get("role") == "tool":
        yield "result", value["tool_call_id"]
    for key, name in (("toolUse", "call"), ("toolResult", "result")):
        if key in value:
            yield name, value[key]["toolUseId"]
    for key, name in (("functionCall", "call"), ("functionResponse", "result")):
        if key in value:
            yield name, value[key]["id"]
    for item in value.values():
        yield from ids(api, item)


GOOD_ID = {"mistral-conversations": r"[A-Za-z0-9]{9}", "openai-completions": r"[A-Za-z0-9_-]{1,40}"}
PAIRS = [(source, target) for source in APIS for target in APIS if source != target]


@pytest.mark.parametrize("later", [False, True], ids=["in the middle of a turn", "with the next prompt"])
@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_a_conversation_goes_on_with_another_model(sdks, source, target, later):
    messages = history(source)
    if later:
        messages += [answer(source, Text("It is a dot."), stop="stop"), UserMessage(LATER, 0)]
    body = body_for(model(target), messages)
    text = json.dumps(body)
    assert SIGNATURE not in text and "I was cut" not in text
    assert text.count("Let me look.") == text.count("Hm, an image.") == 1
    found = list(ids(target, body))
    calls = [id for kind, id in found if kind == "call"]
    assert calls == [id for kind, id in found if kind == "result"] and len(set(calls)) == 2
    assert all(re.fullmatch(GOOD_ID.get(target, r"[A-Za-z0-9_-]{1,64}"), id) for id in calls)
    assert IMAGE.data in text
    check_types(sdks, target, body)


@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_a_model_that_does_not_see_gets_no_images(sdks, source, target):
    body = body_for(model(target, input=["text"]), history(source))
    assert IMAGE.data not in json.dumps(body) and "image omitted" in json.dumps(body)
    check_types(sdks, target, body)


@pytest.mark.parametrize("target", ["anthropic-messages", "bedrock-converse-stream"])
def test_claude_does_not_think_in_the_middle_of_a_turn_of_another_model(target):
    """It would refuse the request: calls of the turn have no signed thinking before them."""

    def thinks(messages: list[Any]) -> bool:
        return '"budget_tokens"' in json.dumps(body_for(model(target), messages))

    foreign, own = history("openai-completions"), history(target)
    assert not thinks(foreign)
    assert thinks([*foreign, UserMessage(LATER, 0)])
    assert thinks(own) and SIGNATURE in json.dumps(body_for(model(target), own))


def test_gemini_is_told_that_a_call_of_another_model_has_no_signature():
    calls = [
        part
        for content in body_for(model("google-generative-ai"), history("anthropic-messages"))["contents"]
        for part in content["parts"]
        if "functionCall" in part
    ]
    assert [part.get("thoughtSignature") for part in calls] == ["skip_thought_signature_validator", None]


@pytest.mark.parametrize("api", sdk_types.SDKS)
def test_the_sdks_take_no_key_that_they_do_not_know(sdks, api):
    """Else the tests above would see little."""
    if sdks is None:
        pytest.skip("SPINDLE_TEST_SDKS names no Python with the SDKs of the providers")
    for part in ("messages", "input", "contents", "tools"):
        body = body_for(model(api), history("bedrock-converse-stream"))
        if part in body:
            body[part][-1]["bogus"] = 1
            assert sdks.error(api, body) is not None
    assert sdks.error(api, {**body, "bogus": 1}) is not None
