"""Last answers that are no end of the work: calls that cannot be run, announcements, recited files, false claims.

Only runs without a person ask: what a client's user reads, the user decides about. Each rule is narrow, because a wrong
one costs a model call, and after that the run.
"""

import re
from collections.abc import Mapping, Sequence

from spindle.agent.features.announcements import is_announcement
from spindle.agent.features.text_calls import refusal
from spindle.shapes.builtin_tools import TASK_TOOL, kind_of, only_reads
from spindle.shapes.messages import AgentMessage, AssistantMessage, ToolResultMessage, UserMessage, text_of
from spindle.shapes.model import Model
from spindle.tools.base import Tool

_FENCE = re.compile(r"```.*?(?:```|\Z)", re.DOTALL)
_RECITED_LINES = 3
_ANNOUNCEMENT = (
    "Your last answer says what you are going to do, and the work ended there: nobody answers. "
    "Do it now with a call of a tool. If the work is done, say what came of it."
)
_CLAIM = (
    "No file was changed: each edit and write failed, and the work ended there. Make the change now. If it cannot or "
    "need not be made, say so."
)
_CLAIMED = re.compile(
    r"\b(?:done|fixed|changed|updated|added|corrected|removed|deleted|replaced|renamed|modified|applied|implemented|"
    r"created|edited|rewritten|written|inserted|completed?|finished|successful(?:ly)?|"
    r"now (?:returns?|says?|prints?|works?|reads?|has|is|uses?))\b",
    re.IGNORECASE,
)
_ADMITTED = re.compile(
    r"n't\b|\b(?:not|no|none|nothing|never|cannot|unable|already|fail\w*|error\w*|missing|absent|missed|refused|rejected|"
    r"without)\b",
    re.IGNORECASE,
)
"""A word with which an answer may say that nothing was changed, or why."""
_OFFERED = re.compile(r"\b(?:correct\w*|updated?|fixed|new|modified|changed|should|revised|final)\b", re.IGNORECASE)
"""A word that says of recited code that the file should have it."""
_LEAST_REPEATED = 40
"""Letters of an answer that is taken for the words of a result."""
_REPETITION = (
    "Your last answer repeats the result of your last call, which failed. Go on with the work, or say in words of your "
    "own what came of it."
)
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
    asked = next((text_of(one.content) for one in reversed(messages) if isinstance(one, UserMessage)), "")
    if (told := await refusal(answer, model, tools, asked)) is not None:
        return told
    if not tools:
        return None
    text = text_of(answer.content).strip().replace("’", "'")
    if is_announcement(text, asked):
        return _ANNOUNCEMENT
    if len(text) >= _LEAST_REPEATED and text in _last_missed(messages):
        return _REPETITION
    words = _FENCE.sub(" ", text)
    admitted = _ADMITTED.search(words) is not None
    recited = any(code.count("\n") > _RECITED_LINES for code in _FENCE.findall(text))
    if recited and (not admitted or _OFFERED.search(words)) and _missed_its_edit(messages):
        return _RECITATION
    if denied or admitted or not _CLAIMED.search(words) or not _changed_nothing(messages):
        return None
    return _CLAIM


def _last_missed(messages: Sequence[AgentMessage]) -> str:
    """Return what the last call since the user's message said if it is an edit or a write that failed. The error of a
    command may be what the user wants to read."""
    for message in reversed(messages):
        if isinstance(message, ToolResultMessage):
            told = message.is_error and kind_of(message.tool_name) == "edit"
            return text_of(message.content).replace("’", "'") if told else ""
        if isinstance(message, UserMessage):
            break
    return ""


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
