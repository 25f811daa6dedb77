"""Tool calls that a model wrote into its text instead of calling.

Many small models and proxies do that, as JSON, in a fence or bare, or in tags. Such a call is run if the answer has no
native call, the tool was offered, and the arguments fit its schema. JSON without a fence or tags counts only if the
answer says nothing else: an example in an explanation is no call. If the answer is nothing but a call that cannot be
run, `refusal` says why.
"""

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from spindle.llm.compat import Compat
from spindle.shapes.messages import AssistantMessage, Text, ToolCall, text_of
from spindle.shapes.model import Model
from spindle.tools.base import Tool, ToolError

_MARKED = re.compile(
    r"<tool_call>(?P<tagged>.*?)(?:</tool_call>|\Z)"
    r"|(?P<function><function=.*?)(?:</function>|\Z)"
    r"|```\w*[ \t]*\n(?P<fenced>.*?)\n[ \t]*```",
    re.DOTALL,
)
_UNOPENED = re.compile(r"\s*(?P<fenced>[\[{].*?)\n[ \t]*```", re.DOTALL)
"""A fence at the beginning of an answer, of which only the end is there."""
_FUNCTION = re.compile(r"<function=\s*(?P<name>[^>\s]+)\s*>(?P<body>.*?)(?=<function=|</function>|\Z)", re.DOTALL)
_PARAMETER = re.compile(r"<parameter=\s*([^>\s]+)\s*>\n?(.*?)\n?(?:</parameter>|(?=<parameter=)|\Z)", re.DOTALL)
_OPENED = re.compile(r"</?tool_call>")
"""Tags that stand between the calls of a fence, or were opened a second time."""
_CLOSED = re.compile(r"(?:\s*\}){1,2}")
"""The second of doubled braces, and one too many."""
_BACKSLASH = re.compile(r'\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})?')
_SHOWN = re.compile(r"\b(?:json|schema|payload|parameters|arguments|example)\b", re.IGNORECASE)
_MOST_TEXT = 1_000_000

Found = tuple[str, Any]
"""Name and arguments."""


async def with_calls(
    answer: AssistantMessage, model: Model, offered: Callable[[], Mapping[str, Tool]]
) -> AssistantMessage:
    """Return the answer with the calls in its text as calls, or the answer itself if there are none to run.

    `offered` returns the tools that the model was told of.
    """
    text = text_of(answer.content)
    if answer.stop_reason != "stop" or len(text) > _MOST_TEXT:
        return answer
    if any(isinstance(block, ToolCall) for block in answer.content):
        return answer
    calls, rest = _split(text)
    if not calls or not Compat.of(model).text_tool_calls or await _fault(calls, offered()) is not None:
        return answer
    kept = [block for block in answer.content if not isinstance(block, Text)]
    words = [Text(rest)] if rest else []
    made = [ToolCall(f"call_{os.urandom(8).hex()}", name, given, as_text=True) for name, given in calls]
    return replace(answer, content=[*kept, *words, *made], stop_reason="toolUse")


async def refusal(answer: AssistantMessage, model: Model, tools: Mapping[str, Tool], asked: str) -> str | None:
    """Return what to tell a model whose answer is nothing but calls that cannot be run; None if it is not that.

    Neither is it JSON with a name that the user's message, `asked`, has: a call that the user wants to see.
    """
    text = text_of(answer.content)
    if not Compat.of(model).text_tool_calls or not tools or len(text) > _MOST_TEXT:
        return None
    calls, rest = _split(text)
    wanted = _SHOWN.search(asked) and any(name not in tools and name in asked for name, _ in calls)
    fault = None if rest or wanted else await _fault(calls, tools)
    return None if fault is None else f"Your last answer was taken for a tool call, which was not run. {fault}"


async def _fault(calls: Sequence[Found], tools: Mapping[str, Tool]) -> str | None:
    """Return why one of the calls cannot be run; None if all can."""
    from spindle.tools.nearest import near_tools
    from spindle.tools.validate import checked_arguments

    for name, arguments in calls:
        if name not in tools:
            return f"Tool {name} not found{near_tools(name, tools)}"
        try:
            await checked_arguments(tools[name], arguments)
        except ToolError as error:
            return str(error)
    return None


def _split(text: str) -> tuple[list[Found], str]:
    """Return the calls in a text, and the words around them."""
    bare = list(_calls_in_json(text))
    if bare:
        return bare, ""
    calls: list[Found] = []
    rest: list[str] = []
    done = 0
    unopened = _UNOPENED.match(text)
    if unopened and (calls := list(_calls_in_json(unopened["fenced"]))):
        done = unopened.end()
    for match in _MARKED.finditer(text, done):
        found = list(_calls_in(match["tagged"] or match["function"] or match["fenced"] or ""))
        if found:
            calls += found
            rest.append(text[done : match.start()])
            done = match.end()
    return calls, "".join([*rest, text[done:]]).strip()


def _calls_in(text: str) -> Iterator[Found]:
    if "<function=" in text:
        for match in _FUNCTION.finditer(text):
            yield match["name"], _arguments(match["body"])
    else:
        yield from _calls_in_json(_OPENED.sub("", text))


def _arguments(body: str) -> Any:
    """Return what stands between the tags of a function: one JSON object, or parameters in tags."""
    whole = _value(body.strip())
    if isinstance(whole, str) and whole.startswith("{"):  # one brace too many
        whole = _value(whole.removesuffix("}"))
    return whole if isinstance(whole, dict) else {name: _value(value) for name, value in _PARAMETER.findall(body)}


def _value(text: str) -> Any:
    """Return the value of a parameter in tags: JSON if it is a list or an object, else the text."""
    if text[:1] in ("[", "{"):
        try:
            return json.loads(text, strict=False)
        except ValueError:
            pass
    return text


def _calls_in_json(text: str) -> Iterator[Found]:
    """Yield the calls of a text that holds objects or arrays of calls and nothing else; else nothing.

    A brace too many is passed over: the chat template of Qwen2.5 shows calls in doubled braces, and its models write
    them so, or half so.
    """
    text = text.strip()
    if not text.startswith(("[", "{")):
        return
    decoder, found, at = json.JSONDecoder(strict=False), [], 0
    text = _with_whole_escapes(text)
    while at < len(text):
        if text[at] not in "[{":
            return
        begin = at + text.startswith("{{", at)
        try:
            value, at = decoder.raw_decode(text, begin)
        except json.JSONDecodeError as error:
            if (text_without := _without_brace(text, error.pos)) is None:
                return
            try:
                value, at = decoder.raw_decode(text_without, begin)
            except (ValueError, RecursionError):
                return
            text = text_without
        except RecursionError:
            return
        closed = _CLOSED.match(text, at)
        at = closed.end() if closed else at
        for item in value if isinstance(value, list) else [value]:
            call = _call(item)
            if call is None:
                return
            found.append(call)
        while at < len(text) and text[at] in " \t\r\n,;":
            at += 1
    yield from found


def _without_brace(text: str, at: int) -> str | None:
    """Return the text without the closing brace that JSON cannot have at this place; None: it is something else."""
    return text[:at] + text[at + 1 :] if text.startswith("}", at) else None


def _with_whole_escapes(text: str) -> str:
    """Let a backslash that begins no escape of JSON stand for itself, as in the arguments of native calls."""
    return _BACKSLASH.sub(lambda match: match[0] if len(match[0]) > 1 else "\\\\", text)


def _call(item: Any) -> Found | None:
    """Return name and arguments if this is the JSON of a call, as one of the common programs writes it."""
    if not isinstance(item, dict):
        return None
    inner = item["function"] if isinstance(item.get("function"), dict) else item
    name = inner.get("name")
    arguments = next((inner[key] for key in ("arguments", "parameters", "input") if key in inner), None)
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except ValueError:
            return None
    return (name, arguments) if isinstance(name, str) and isinstance(arguments, dict) else None
