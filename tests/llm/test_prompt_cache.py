"""Prompt caches: what was sent once is sent again byte for byte, so that a provider finds it in its cache."""

import itertools
import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from spindle.llm.anthropic import messages_body
from spindle.llm.compat import ChatCompat, MessagesCompat, ResponsesCompat
from spindle.llm.google import google_body
from spindle.llm.history import transform_request
from spindle.llm.openai_chat import chat_body
from spindle.llm.openai_responses import responses_body
from spindle.llm.stream import Request, StreamOptions, ToolSpec
from spindle.shapes.codec import decode, encode
from spindle.shapes.messages import Image, Text, Thinking, ToolCall, UserMessage
from tests.support.agent_process import AgentProcess
from tests.support.images import PIXEL
from tests.support.mock_model import call, reply, think

from .helpers import answer_by, make_model, result

TOOLS = [ToolSpec(name, f"The tool {name}", {"type": "object"}) for name in ("read", "bash", "edit")]


def without_marks(value: Any) -> Any:
    """Return a body without the marks that say up to where it is to be cached; they move, and are not content."""
    if isinstance(value, dict):
        return {key: without_marks(item) for key, item in value.items() if key != "cache_control"}
    return [without_marks(item) for item in value] if isinstance(value, list) else value


def text_of_prefix(body: dict[str, Any], count: int | None = None) -> bytes:
    """Return the bytes a provider looks up: tools, system prompt, and so many of the messages."""
    body = without_marks(body)
    messages = body.get("messages") or body.get("input") or body.get("contents")
    return json.dumps([body.get("tools"), body.get("system"), body.get("systemInstruction"), messages[:count]]).encode()


def count_of(body: dict[str, Any]) -> int:
    return len(body.get("messages") or body.get("input") or body["contents"])


def history(api: str, model: str) -> list[Any]:
    answer = partial(answer_by, api, model=model)
    return [
        UserMessage("hi", 0),
        answer(
            Thinking("hm", "QUJD"), Text("Looking"), ToolCall("c1", "bash", {"b": 1, "a": 2}), stop_reason="toolUse"
        ),
        result(Text("one"), id="c1"),
        answer(ToolCall("c2|fc_2", "bash", {}), ToolCall("c3|fc_3", "bash", {}), stop_reason="toolUse"),
        result(Text("two"), Image(PIXEL, "image/png"), id="c2|fc_2"),
        result(Text(""), id="c3|fc_3"),
        answer(Text("Done")),
        UserMessage([Text("and this"), Image(PIXEL, "image/png")], 0),
        answer(Text("broke"), stop_reason="error"),
        UserMessage("go on", 0),
        answer(Text("Here")),
        UserMessage("thanks", 0),
    ]


@pytest.mark.parametrize(
    ("api", "model_id", "build"),
    [
        ("openai-completions", "m1", lambda m, r, o: chat_body(m, r, o, ChatCompat.of(m))),
        ("openai-completions", "anthropic/m1", lambda m, r, o: chat_body(m, r, o, ChatCompat.of(m))),
        ("openai-responses", "m1", lambda m, r, o: responses_body(m, r, o, ResponsesCompat.of(m))),
        ("anthropic-messages", "m1", lambda m, r, o: messages_body(m, r, o, MessagesCompat.of(m))),
        ("google-generative-ai", "gemini-3-pro", google_body),
        ("google-generative-ai", "gemini-2.5-pro", google_body),
    ],
    ids=["chat", "chat with marks", "responses", "messages", "new gemini", "old gemini"],
)
def test_what_was_sent_is_sent_again(api: str, model_id: str, build: Any) -> None:
    compat = {"cacheControlFormat": "anthropic"} if "/" in model_id else None
    model = make_model(api=api, id=model_id, reasoning=True, compat=compat)
    messages = history(api, model_id)
    # The agent asks where a user or the results of all calls came last.
    turns = [1, 3, 6, 8, 10, 12]
    bodies = []
    for turn in turns:
        request = transform_request(Request("Be brief.", messages[:turn], TOOLS), model)
        bodies.append(decode(encode(build(model, request, StreamOptions(session_id="s1", reasoning="high")))))
    for earlier, later in itertools.pairwise(bodies):
        assert text_of_prefix(earlier) == text_of_prefix(later, count_of(earlier))
    assert {body.get("prompt_cache_key") for body in bodies} == ({"s1"} if api == "openai-responses" else {None})


@pytest.mark.parametrize("api", ["openai-completions", "anthropic-messages"])
def test_a_session_keeps_its_prefix_over_turns_and_restarts(tmp_path: Path, api: str) -> None:
    steps = [
        reply(think("hm"), "Looking", call("ls", {"path": "."}, id="c1"), call("ls", {}, id="c2")),
        reply("Nothing there", usage=(100, 5, 90)),
        reply("Still nothing", usage=(120, 5, 110)),
    ]
    with AgentProcess(steps, api=api, session=True, base=tmp_path) as agent:
        agent.run("look")
        agent.run("again")
        stats, path = agent.data("get_session_stats"), agent.data("get_state")["sessionFile"]
        requests = list(agent.mock.requests)
    assert stats["tokens"]["cacheRead"] == 202
    with AgentProcess([reply("ok")], api=api, session=True, base=tmp_path, args=["--session", path]) as agent:
        agent.run("and now")
        requests += agent.mock.requests
    bodies = [request.body for request in requests]
    assert len(bodies) == 4
    for earlier, later in itertools.pairwise(bodies):
        assert text_of_prefix(earlier) == text_of_prefix(later, count_of(earlier))
    marks = [json.dumps(body).count("cache_control") for body in bodies]
    assert marks == ([3] * 4 if api == "anthropic-messages" else [0] * 4)
