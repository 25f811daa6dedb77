"""Last answers that are no end of the work: calls that cannot be run, announcements, recited files, false claims.

Only runs without a person ask: what a client's user reads, the user decides about. Each rule is narrow, because a wrong
one costs a model call, and after that the run.
"""

import re
from collections.abc import Mapping, Sequence

from spindle.agent.features.text_calls import refusal
from spindle.shapes.builtin_tools import TASK_TOOL, kind_of, only_reads
from spindle.shapes.messages import AgentMessage, AssistantMessage, ToolResultMessage, UserMessage, text_of
from spindle.shapes.model import Model
from spindle.tools.base import Tool

_DEEDS = (
    "add|apply|build|change|check|continue|correct|create|delete|edit|examine|execute|explore|find|fix|implement|"
    "inspect|install|investigate|list|look|make|modify|move|open|proceed|read|refactor|remove|rename|replace|rewrite|"
    "run|search|start|test|try|update|use|verify|write"
)
_ANNOUNCED = re.compile(
    r"(?:^|(?<=[.!:;\n] ))(?:(?:now|next|first|then|so|okay|ok|great|alright)[,.!]? )*"
    r"(?:(?:I will|I'll|I am going to|I'm going to|I need to|let me|let's|let us|we will|we need to)) "
    rf"(?:(?:now|first|next|then|also|start by|begin by|go ahead and|try to|proceed to) )*(?:{_DEEDS})(?:ing)?\b",
    re.IGNORECASE,
)
_MOST_WORDS = 400
"""Letters of a last paragraph that may be an announcement."""
_RECITED = re.compile(r"```[^\n]*\n(?:[^\n]*\n){3,}?[ \t]*```")
_ANNOUNCEMENT = (
    "Your last answer says what you are going to do, and the work ended there: nobody answers. "
    "Do it now with a call of a tool. If the work is done, say what came of it."
)
_CLAIM = (
    "No file was changed: each edit and write failed, and the work ended there. Make the change now. If it cannot or "
    "need not be made, say so."
)
_ADMITTED = re.compile(r"n't\b|\b(?:not|no|none|nothing|never|cannot|unable|already|fail\w*|error\w*)\b", re.IGNORECASE)
"""A word with which an answer may say that nothing was changed, or why."""
_RECITATION = (
    "Your last edit changed nothing, and text in an answer changes no file. Make the change with a call of edit or "
    "write. If the work is done without it, say what came of it."
)


async def what_is_missing(
    answer: AssistantMessage, messages: Sequence[AgentMessage], model: Model, tools: Mapping[str, Tool], denied: bool
) -> str | None:
    """Return what to tell a model whose last answer is no end of its work; None if it may be one.

    `denied`: a call was not allowed, which the end of the run says.
    """
    if (told := await refusal(answer, model, tools)) is not None:
        return told
    if not tools:
        return None
    text = text_of(answer.content).strip()
    if _is_announcement(text):
        return _ANNOUNCEMENT
    if _RECITED.search(text) and _missed_its_edit(messages):
        return _RECITATION
    if denied or not _changed_nothing(messages) or _ADMITTED.search(text.replace("’", "'")):
        return None
    return _CLAIM


def _is_announcement(text: str) -> bool:
    """Say whether the last paragraph says what comes next. A question, or a list of what was done, is none."""
    last = re.split(r"\n\s*\n", text)[-1].strip().replace("’", "'")
    return len(last) <= _MOST_WORDS and not last.endswith("?") and _ANNOUNCED.search(last) is not None


def _missed_its_edit(messages: Sequence[AgentMessage]) -> bool:
    """Say whether the last edit since the user's message failed, and nothing after it can have changed a file."""
    for message in reversed(messages):
        if isinstance(message, UserMessage):
            return False
        if isinstance(message, ToolResultMessage):
            if kind_of(message.tool_name) == "edit":
                return message.is_error
            if _may_have_changed(message):
                return False
    return False


def _changed_nothing(messages: Sequence[AgentMessage]) -> bool:
    """Say whether changes were tried since the user's message, and none can have been made."""
    tried = False
    for message in reversed(messages):
        if isinstance(message, UserMessage):
            break
        if isinstance(message, ToolResultMessage):
            if _may_have_changed(message):
                return False
            tried = tried or kind_of(message.tool_name) == "edit"
    return tried


def _may_have_changed(message: ToolResultMessage) -> bool:
    """Say whether a call may have changed a file. A failed command may, and so may a subagent."""
    name = message.tool_name
    return kind_of(name) == "execute" or (not message.is_error and (name == TASK_TOOL or not only_reads(name)))
