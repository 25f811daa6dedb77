"""Requests of a growing conversation are the same as if each were made from nothing."""

import random
from collections.abc import Sequence
from typing import Any

import pytest

from spindle.llm.anthropic import messages_body
from spindle.llm.bedrock import converse_body
from spindle.llm.compat import ChatCompat, MessagesCompat, ResponsesCompat
from spindle.llm.cost import estimate_request
from spindle.llm.google import google_body
from spindle.llm.history import to_model_messages, transform_request
from spindle.llm.memory import Memory
from spindle.llm.mistral import mistral_body
from spindle.llm.openai_chat import chat_body
from spindle.llm.openai_responses import responses_body
from spindle.llm.stream import Request, StreamOptions, ToolSpec
from spindle.shapes.codec import decode, encode
from spindle.shapes.messages import (
    AgentMessage,
    AssistantMessage,
    BashExecutionMessage,
    Image,
    Text,
    Thinking,
    ToolCall,
    ToolResultMessage,
    Usage,
    UserMessage,
)
from tests.llm.helpers import make_model

OPTIONS = StreamOptions()
MODELS = {
    "chat": make_model(),
    "chat with marks": make_model(compat={"cacheControlFormat": "anthropic"}),
    "chat of a picky server": make_model(compat={"requiresAssistantAfterToolResult": True}),
    "blind chat": make_model(input=["text"]),
    "anthropic": make_model(api="anthropic-messages"),
    "responses": make_model(api="openai-responses"),
    "google": make_model(api="google-generative-ai", id="gemini-3-pro"),
    "mistral": make_model(api="mistral-conversations"),
    "bedrock": make_model(api="bedrock-converse-stream", id="anthropic.claude-sonnet-4"),
}
BODIES = {
    "openai-completions": lambda m, r: chat_body(m, r, OPTIONS, ChatCompat.of(m)),
    "anthropic-messages": lambda m, r: messages_body(m, r, OPTIONS, MessagesCompat.of(m)),
    "openai-responses": lambda m, r: responses_body(m, r, OPTIONS, ResponsesCompat.of(m)),
    "google-generative-ai": lambda m, r: google_body(m, r, OPTIONS),
    "mistral-conversations": lambda m, r: mistral_body(m, r, OPTIONS),
    "bedrock-converse-stream": lambda m, r: converse_body(m, r, OPTIONS),
}
TEXTS = ["", "plain", "long " * 400, "a\u2028b", "gr\u00fc\u00dfe \U0001f600", "half \ud83d"]


def history(seed: int, model: Any, size: int) -> list[AgentMessage]:
    """Return a conversation with everything that may stand in one, faults included."""
    dice = random.Random(seed)
    messages: list[AgentMessage] = []

    def blocks() -> list[Text | Image]:
        return [Image("QUJD", "image/png") if dice.random() < 0.2 else Text(dice.choice(TEXTS)) for _ in range(2)]

    while len(messages) < size:
        messages.append(UserMessage(dice.choice(["hi", blocks()]), 1))
        if dice.random() < 0.2:
            details = {"cancelled": False, "truncated": False, "timestamp": 1}
            messages.append(BashExecutionMessage(command="ls", output="a", **details))
        for number in range(dice.randrange(4)):
            other = dice.random() < 0.3
            content: list[Text | Thinking | ToolCall] = []
            if dice.random() < 0.3:
                content.append(Thinking("hm", "reasoning_content" if dice.random() < 0.5 else None))
            if dice.random() < 0.6:
                content.append(Text(dice.choice(TEXTS)))
            ids = [f"call|{len(messages)}.{number}.{at}" for at in range(dice.randrange(3))]
            content += [ToolCall(id, "bash", {"command": dice.choice(TEXTS)}) for id in ids]
            reason = dice.choice(["error", "aborted"]) if dice.random() < 0.15 else "toolUse"
            maker = ("openai-responses", "else", "m9") if other else (model.api, model.provider, model.id)
            messages.append(AssistantMessage(content, *maker, Usage(), reason, 1))  # type: ignore[call-arg]
            if reason != "toolUse":
                break
            messages += [
                ToolResultMessage(tool_call_id=id, tool_name="bash", content=blocks(), is_error=False, timestamp=1)
                for id in ids
                if dice.random() < 0.9
            ]
    return messages


BASH = ToolSpec("bash", "runs", {"type": "object"})


def body(
    model: Any, messages: Sequence[AgentMessage], memory: Memory, tools: Sequence[ToolSpec] = (BASH,)
) -> tuple[Any, int]:
    known = memory.parts("model", messages, lambda part, _: to_model_messages(part))
    request = transform_request(Request("Be brief.", known, list(tools), memory), model)
    return decode(encode(BODIES[model.api](model, request))), estimate_request(request)


@pytest.mark.parametrize("name", MODELS)
def test_a_growing_conversation_is_sent_as_if_it_were_new(name: str):
    model = MODELS[name]
    for seed in range(12):
        messages, memory = history(seed, model, 30), Memory()
        for end in range(1, len(messages) + 1):
            assert body(model, messages[:end], memory) == body(model, messages[:end], Memory()), (seed, end)


@pytest.mark.parametrize("name", MODELS)
def test_another_branch_and_another_model(name: str):
    """What is remembered of one is not sent for the other."""
    model, memory = MODELS[name], Memory()
    other = MODELS["anthropic" if name != "anthropic" else "chat"]
    messages = history(5, model, 30)
    for _ in range(2):
        for choice, part in ((model, messages), (other, messages), (model, messages[:9] + messages[20:]), (model, [])):
            assert body(choice, part, memory) == body(choice, part, Memory())


@pytest.mark.parametrize("name", MODELS)
def test_tools_that_come_and_change(name: str):
    model, memory, messages = MODELS[name], Memory(), [UserMessage("hi", 1)]
    bash, other = (ToolSpec("bash", "Run", {"type": "object", "title": title}) for title in "ab")
    for tools in ([bash], [bash, other], [other], [], [bash]):
        assert body(model, messages, memory, tools) == body(model, messages, Memory(), tools)


def test_older_messages_are_worked_on_once():
    model, memory = MODELS["chat"], Memory()
    messages = history(1, model, 200)
    worked = 0

    def make(part: Sequence[Any], before: int) -> list[Any]:
        nonlocal worked
        worked += len(part)
        return list(part)

    for end in range(len(messages)):
        assert memory.parts("all", messages[:end], make) == messages[:end]
    assert worked < 8 * len(messages)
