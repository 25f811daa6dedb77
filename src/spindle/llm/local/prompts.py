"""The prompt of a local model: the smaller the model, the shorter the prompt.

A prompt costs time here (one or two hundred tokens a second on a small machine), and a small model loses its way in a
long one. So, by the number of parameters:

- below `SMALL` the agent's system prompt gives way to a short one and each tool is described in one line;
- below `TINY`, if the model cannot call tools by itself, it learns from examples, may only look (shell commands that
  change nothing, tools that read, tools of the host), makes one call at a time, and then tells the outcome in one
  line;
- a model whose chat template knows tools uses that; any other gets a grammar (`grammar.py`).

A request without tools (a summary, for instance) is never reworded. If a request does not fit the context, its oldest
messages are left out.
"""

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from spindle.llm.local.grammar import ANSWER, ONE_LINE, call_head, reply_grammar
from spindle.llm.local.llama_server import Facts
from spindle.llm.stream import ModelMessage, Request, ToolSpec
from spindle.shapes.builtin_tools import of_kind
from spindle.shapes.codec import encode
from spindle.shapes.messages import AssistantMessage, Text, ToolCall, ToolResultMessage, Usage, UserMessage, text_of

TINY = 500_000_000
SMALL = 4_000_000_000
_MAX_CALLS = 8
"""Calls in a row; then a model that needs a grammar must answer."""
_TINY_TOKENS = 256
_TINY_CHARS = 1200
"""The longest question or result."""
_CHARS_PER_TOKEN = 3
"""A careful estimate."""
_LINE_CHARS = 100
"""The longest description of a tool."""
_TOO_HARD = of_kind("edit", "think")
_DONE_BY_BASH = of_kind("read", "search")

_SHORT_PROMPT = (
    "You are a coding assistant on the user's computer. Use the tools to look before you answer and to do what is "
    "asked. Answer briefly."
)
_TINY_PROMPT = "You are a coding assistant. Call a tool or answer."
_TINY_REPORT = "You are a coding assistant. Tell the user what the tool printed."
# Chosen by trying: from these the smallest models learn when to call and when to talk.
_TINY_EXAMPLES = (
    ("What is Python?", "", "Python is a programming language."),
    ("Show me todo.txt", "bash", {"command": "cat todo.txt"}),
    ("Write a poem about rain.", "", "Rain falls on the roof, soft and slow."),
    ("Which files are here?", "bash", {"command": "ls"}),
    ("Hello", "", "Hello! What shall we do?"),
    ("What time is it?", "bash", {"command": "date"}),
)
_TINY_REPORTS = (
    ("Which files are here?", "main.c\nMakefile", "There are two files here: main.c and Makefile."),
    ("What does todo.txt say?", "Buy milk.\nCall Ann.", "It says: Buy milk. Call Ann."),
)


class PromptPlan(msgspec.Struct, frozen=True):
    """How to ask this model."""

    request: Request
    max_tokens: int
    body: dict[str, Any] = {}
    """Keys to add to the request body."""
    constrained: bool = False
    """The reply is an answer or a call in the form of `grammar`, which the server does not parse."""
    calls: Sequence[str] = ()
    """Tools that a constrained reply may call."""


def make_plan(facts: Facts, request: Request, max_tokens: int) -> PromptPlan:
    """Return how to ask the model; the request's history must be clean (`transform_request`)."""
    small = facts.parameters < SMALL
    if not request.tools or facts.tools:
        if request.tools and small:
            request = Request(_SHORT_PROMPT, request.messages, [_brief(tool) for tool in request.tools])
        body = {"chat_template_kwargs": {"enable_thinking": False}} if facts.thinking else {}
        return PromptPlan(_fit(request, facts.context - max_tokens), max_tokens, body)
    if facts.parameters < TINY:
        return _tiny_plan(facts, request, min(max_tokens, _TINY_TOKENS))
    return _plain_plan(facts, request, _SHORT_PROMPT if small else request.system_prompt, max_tokens)


def _plain_plan(facts: Facts, request: Request, system_prompt: str, max_tokens: int) -> PromptPlan:
    """Plan for a model that has not learnt to call tools."""
    rules = [system_prompt, "", "Every reply has one of these forms:", f"{ANSWER}(what you tell the user)"]
    for tool in map(_brief, request.tools):
        arguments = ",".join(f'"{key}":…' for key in tool.parameters.get("properties") or ())
        rules.append(f"{call_head(tool.name)}{{{arguments}}} ({tool.description})")
    rules.append("After a call you are shown what the tool printed.")
    asked = _fit(Request("\n".join(rules), _as_talk(request.messages)), facts.context - max_tokens)
    calls = _calls_in_a_row(request.messages)
    stuck = len(calls) >= _MAX_CALLS or (len(calls) > 1 and calls[-1] == calls[-2])
    tools = [] if stuck else request.tools
    return PromptPlan(asked, max_tokens, {"grammar": reply_grammar(tools)}, True, [tool.name for tool in tools])


def _tiny_plan(facts: Facts, request: Request, max_tokens: int) -> PromptPlan:
    """Plan for a model that needs to be led by the hand."""
    room = facts.context - max_tokens
    # The most likely word each time, because random ones make no sense; no long passage twice, or the model loops.
    body: dict[str, Any] = {"temperature": 0, "dry_multiplier": 0.8, "dry_allowed_length": 8}
    if _calls_in_a_row(request.messages):
        led: list[ModelMessage] = []
        for question, printed, answer in _TINY_REPORTS:
            led += [_user(f"{question}\n\nbash printed:\n{printed}"), _spoken(answer)]
        report = Request(_TINY_REPORT, [*led, _user(_last_exchange(request.messages))])
        return PromptPlan(report, max_tokens, body | {"grammar": ONE_LINE})
    tools = [tool for tool in request.tools if tool.name not in _TOO_HARD]
    if any(tool.name == "bash" for tool in tools):
        tools = [tool for tool in tools if tool.name not in _DONE_BY_BASH]
    prompt = "\n".join([_TINY_PROMPT, *(f"{tool.name}: {_brief(tool).description}" for tool in tools)])
    asked = _fit(Request(prompt, _as_talk(request.messages, _TINY_CHARS)), room)
    asked = Request(asked.system_prompt, [*_examples(tools), *asked.messages])
    grammar = reply_grammar(tools, only_looking=True)
    return PromptPlan(asked, max_tokens, body | {"grammar": grammar}, True, [tool.name for tool in tools])


def _examples(tools: Sequence[ToolSpec]) -> list[ModelMessage]:
    known = {"", *(tool.name for tool in tools)}
    messages: list[ModelMessage] = []
    for question, tool, reply in _TINY_EXAMPLES:
        if tool in known:
            messages += [_user(question), _spoken(_call_text(tool, reply) if tool else f"{ANSWER}{reply}")]
    return messages


# -- a conversation in words ---------------------------------------------------------------------


def _user(text: str) -> UserMessage:
    return UserMessage(text, 0)


def _spoken(text: str) -> AssistantMessage:
    return AssistantMessage([Text(text)], "", "", "", Usage(), "stop", 0)


def _call_text(tool: str, arguments: Any) -> str:
    """Write a call as the grammar has it."""
    return call_head(tool) + encode(arguments).decode()


def _calls_text(message: AssistantMessage) -> str:
    calls = [block for block in message.content if isinstance(block, ToolCall)]
    return "\n".join(_call_text(call.name, call.arguments) for call in calls)


def _as_talk(messages: Sequence[ModelMessage], limit: int | None = None) -> list[ModelMessage]:
    """Return the history with calls and results in words, each message cut to `limit` characters."""
    talk: list[ModelMessage] = []
    for message in messages:
        if isinstance(message, UserMessage):
            talk.append(_user(_cut(text_of(message.content, "\n"), limit)))
        elif isinstance(message, AssistantMessage):
            talk.append(_spoken(_calls_text(message) or ANSWER + _cut(text_of(message.content), limit)))
        else:
            talk.append(_user(_printed(message, limit)))
    return talk


def _calls_in_a_row(messages: Sequence[ModelMessage]) -> list[str]:
    """Return the calls of the model since the last user message, one text for each answer."""
    rows: list[str] = []
    for message in reversed(messages):
        if isinstance(message, UserMessage):
            break
        if isinstance(message, AssistantMessage) and (calls := _calls_text(message)):
            rows.append(calls)
    return rows[::-1]


def _last_exchange(messages: Sequence[ModelMessage]) -> str:
    """Return the last question and the tool results for it, as one text."""
    parts: list[str] = []
    for message in reversed(messages):
        if isinstance(message, ToolResultMessage):
            parts.append(_printed(message, _TINY_CHARS))
        elif isinstance(message, UserMessage):
            parts.append(_cut(text_of(message.content, "\n"), _TINY_CHARS))
            break
    return "\n\n".join(reversed(parts))


def _fit(request: Request, tokens: int) -> Request:
    """Leave out the oldest exchanges of a request that would not fit; the last one always stays."""
    room = tokens * _CHARS_PER_TOKEN - len(request.system_prompt)
    room -= sum(len(tool.description) + len(encode(tool.parameters)) for tool in request.tools)
    starts = [index for index, message in enumerate(request.messages) if isinstance(message, UserMessage)]
    sizes = [len(encode(message.content)) for message in request.messages]
    keep = next((start for start in starts if sum(sizes[start:]) <= room), starts[-1] if starts else 0)
    return request if not keep else Request(request.system_prompt, request.messages[keep:], request.tools)


def _brief(tool: ToolSpec) -> ToolSpec:
    """Describe a tool by the first sentence of its description."""
    line = tool.description.strip().split("\n", 1)[0].split(". ", 1)[0].rstrip(".")
    return replace(tool, description=_cut(line, _LINE_CHARS))


def _printed(message: ToolResultMessage, limit: int | None) -> str:
    return f"{message.tool_name} printed:\n{_cut(text_of(message.content).strip(), limit) or '(nothing)'}"


def _cut(text: str, limit: int | None) -> str:
    return text if limit is None or len(text) <= limit else f"{text[:limit]}…"
