"""The history as a model may see it: every role becomes one of the three that model APIs know."""

from collections.abc import Iterable

from msgspec.structs import replace

from spindle.llm.stream import ModelMessage
from spindle.llm.transform import name_images
from spindle.shapes.content import Image, Text
from spindle.shapes.messages import (
    AgentMessage,
    AssistantMessage,
    BashExecutionMessage,
    BranchSummaryMessage,
    CompactionSummaryMessage,
    CustomMessage,
    ToolResultMessage,
    UserMessage,
)

__all__ = ["bash_text", "to_model_messages", "without_images"]

COMPACTION_INTRO = "Earlier parts of this conversation were condensed. This summary stands in for them:"
BRANCH_INTRO = "The conversation went down another branch and came back to this point. Summary of that branch:"
IMAGES_OFF = "Image reading is disabled."
_MODEL_ROLES = (UserMessage, AssistantMessage, ToolResultMessage)


def to_model_messages(messages: Iterable[AgentMessage]) -> list[ModelMessage]:
    """Return what a model is sent of a history; messages that are not for it are left out."""
    # Most go as they are, and long histories are converted for every model call.
    converted = (message if isinstance(message, _MODEL_ROLES) else _convert(message) for message in messages)
    return [message for message in converted if message is not None]


def without_images(messages: Iterable[ModelMessage]) -> list[ModelMessage]:
    """Return a history in which a text stands in the place of every run of images."""
    return [_without_images(message) for message in messages]


def _without_images(message: ModelMessage) -> ModelMessage:
    if isinstance(message, AssistantMessage) or isinstance(message.content, str):
        return message
    if not any(isinstance(block, Image) for block in message.content):
        return message
    return replace(message, content=name_images(message.content, IMAGES_OFF))


def _convert(message: AgentMessage) -> ModelMessage | None:
    match message:
        case BashExecutionMessage(exclude_from_context=False):
            return _user(bash_text(message), message.timestamp)
        case CustomMessage(content=str(text)):
            return _user(text, message.timestamp)
        case CustomMessage(content=list(blocks)):
            return UserMessage(blocks, message.timestamp)
        case CompactionSummaryMessage():
            return _user(f"{COMPACTION_INTRO}\n\n<summary>\n{message.summary}\n</summary>", message.timestamp)
        case BranchSummaryMessage():
            return _user(f"{BRANCH_INTRO}\n\n<summary>\n{message.summary}</summary>", message.timestamp)
    return None


def _user(text: str, timestamp: float | None) -> UserMessage:
    return UserMessage([Text(text)], timestamp or 0)


def bash_text(message: BashExecutionMessage) -> str:
    """Return a shell command of the user and its outcome as text for the model."""
    text = f"Ran `{message.command}`\n"
    text += f"```\n{message.output}\n```" if message.output else "(no output)"
    if message.cancelled:
        text += "\n\n(command cancelled)"
    elif message.exit_code:
        text += f"\n\nCommand exited with code {message.exit_code}"
    if message.truncated and message.full_output_path:
        text += f"\n\n[Output truncated. Full output: {message.full_output_path}]"
    return text
