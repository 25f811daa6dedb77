"""The history as a model may see it: every role becomes one of the three that model APIs know."""

from collections.abc import Iterable

from spindle.types.content import Text
from spindle.types.messages import (
    AgentMessage,
    AssistantMessage,
    BashExecutionMessage,
    BranchSummaryMessage,
    CompactionSummaryMessage,
    CustomMessage,
    ToolResultMessage,
    UserMessage,
)

from .stream import ModelMessage

__all__ = ["bash_text", "to_model_messages"]

COMPACTION_INTRO = "Earlier parts of this conversation were condensed. This summary stands in for them:"
BRANCH_INTRO = "The conversation went down another branch and came back to this point. Summary of that branch:"


def to_model_messages(messages: Iterable[AgentMessage]) -> list[ModelMessage]:
    """Return what a model is sent of a history; messages that are not for it are left out."""
    return [converted for message in messages if (converted := _convert(message)) is not None]


def _convert(message: AgentMessage) -> ModelMessage | None:
    match message:
        case UserMessage() | AssistantMessage() | ToolResultMessage():
            return message
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
