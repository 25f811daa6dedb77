"""What a local model is told: less, the smaller it is.

A prompt costs time here (one or two hundred tokens a second on a small machine), and a small model loses its way in a
long one. So, by the number of parameters:

- below `SMALL` the agent's system prompt gives way to a short one and each tool is described in one line;
- below `TINY`, if the model cannot call tools by itself, it learns from examples, may only look (shell commands that
  change nothing, tools that read, tools of the host), makes one call at a time, and then tells in one line what came
  of it;
- a model whose chat template knows tools uses that; any other gets a grammar (`grammar.py`).

A request without tools (a summary, for instance) is never reworded. The oldest messages are left out of what does not
fit the context.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from spindle.llm.local.grammar import ANSWER, ONE_LINE, call_head, reply_grammar
from spindle.llm.local.server import Facts
from spindle.llm.local.talk import (
    as_talk,
    brief,
    call_text,
    calls_in_a_row,
    fit,
    last_exchange,
    signature,
    spoken,
    user,
)
from spindle.llm.stream import ModelMessage, Request, ToolSpec

__all__ = ["SMALL", "TINY", "Plan", "make_plan"]

TINY = 500_000_000
SMALL = 4_000_000_000
_MAX_CALLS = 8
"""In a row; then a model that needs a grammar must answer."""
_TINY_TOKENS = 256
_TINY_CHARS = 1200
"""Of a question or a result."""
_CHANGING = frozenset({"write", "edit", "todo"})
_DONE_BY_BASH = frozenset({"read", "ls", "find", "grep"})

_SHORT_PROMPT = (
    "You are a coding assistant on the user's computer. Use the tools to look before you answer and to do what is "
    "asked. Answer briefly."
)
_TINY_PROMPT = "You are a coding assistant. Call a tool or answer."
_TINY_REPORT = "You are a coding assistant. Tell the user what the tool printed."
# Chosen by trying: of these the smallest models learn when to call and when to talk.
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


class Plan(msgspec.Struct, frozen=True):
    """How to ask this model."""

    request: Request
    max_tokens: int
    body: dict[str, Any] = {}
    """Keys to add to what the server is sent."""
    constrained: bool = False
    """The reply is an answer or a call in the form of `grammar`, instead of what the server makes of it."""
    calls: Sequence[str] = ()
    """Tools that a constrained reply may call."""


def make_plan(facts: Facts, request: Request, max_tokens: int) -> Plan:
    """Return how to ask the model; the request's history must be clean (`transform_request`)."""
    small = facts.parameters < SMALL
    if not request.tools or facts.tools:
        if request.tools and small:
            request = Request(_SHORT_PROMPT, request.messages, [brief(tool) for tool in request.tools])
        body = {"chat_template_kwargs": {"enable_thinking": False}} if facts.thinking else {}
        return Plan(fit(request, facts.context - max_tokens), max_tokens, body)
    if facts.parameters < TINY:
        return _tiny_plan(facts, request, min(max_tokens, _TINY_TOKENS))
    return _plain_plan(facts, request, _SHORT_PROMPT if small else request.system_prompt, max_tokens)


def _plain_plan(facts: Facts, request: Request, system_prompt: str, max_tokens: int) -> Plan:
    """Ask a model that has not learnt to call tools."""
    rules = [system_prompt, "", "Every reply has one of these forms:", f"{ANSWER}(what you tell the user)"]
    rules += [f"{call_head(tool.name)}{signature(tool)} ({tool.description})" for tool in map(brief, request.tools)]
    rules.append("After a call you are shown what the tool printed.")
    asked = fit(Request("\n".join(rules), as_talk(request.messages)), facts.context - max_tokens)
    calls = calls_in_a_row(request.messages)
    stuck = len(calls) >= _MAX_CALLS or (len(calls) > 1 and calls[-1] == calls[-2])
    tools = [] if stuck else request.tools
    return Plan(asked, max_tokens, {"grammar": reply_grammar(tools)}, True, [tool.name for tool in tools])


def _tiny_plan(facts: Facts, request: Request, max_tokens: int) -> Plan:
    """Ask a model that needs to be led by the hand."""
    room = facts.context - max_tokens
    # The most likely word each time, and no long passage twice: left to chance it says anything, and greedy it loops.
    body: dict[str, Any] = {"temperature": 0, "dry_multiplier": 0.8, "dry_allowed_length": 8}
    if calls_in_a_row(request.messages):
        report = Request(_TINY_REPORT, [*_reports(), user(last_exchange(request.messages, _TINY_CHARS))])
        return Plan(report, max_tokens, body | {"grammar": ONE_LINE})
    tools = [tool for tool in request.tools if tool.name not in _CHANGING]
    if any(tool.name == "bash" for tool in tools):
        tools = [tool for tool in tools if tool.name not in _DONE_BY_BASH]
    asked = fit(Request(_tiny_prompt(tools), as_talk(request.messages, _TINY_CHARS)), room)
    led = Request(asked.system_prompt, [*_examples(tools), *asked.messages])
    grammar = reply_grammar(tools, only_looking=True)
    return Plan(led, max_tokens, body | {"grammar": grammar}, True, [tool.name for tool in tools])


def _tiny_prompt(tools: Sequence[ToolSpec]) -> str:
    return "\n".join([_TINY_PROMPT, *(f"{tool.name}: {brief(tool).description}" for tool in tools)])


def _examples(tools: Sequence[ToolSpec]) -> list[ModelMessage]:
    known = {tool.name for tool in tools}
    messages: list[ModelMessage] = []
    for question, tool, reply in _TINY_EXAMPLES:
        if not tool:
            messages += [user(question), spoken(f"{ANSWER}{reply}")]
        elif tool in known:
            messages += [user(question), spoken(call_text(tool, reply))]
    return messages


def _reports() -> list[ModelMessage]:
    messages: list[ModelMessage] = []
    for question, printed, answer in _TINY_REPORTS:
        messages += [user(f"{question}\n\nbash printed:\n{printed}"), spoken(answer)]
    return messages
