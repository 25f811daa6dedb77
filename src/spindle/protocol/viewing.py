"""What a viewer gets: another user of the server, who has a link to a conversation and may do nothing in it.

Commands are those that say so in the registry. Events, keys of answers and entries are those that have a row here: what
is added elsewhere tomorrow does not reach viewers.
"""

from collections.abc import Mapping
from typing import Final

from spindle.protocol.dialect import Dialect, Shape, shape
from spindle.shapes.codec import decode, encode
from spindle.shapes.events import Event, MessageEnd, MessageStart
from spindle.shapes.messages import CustomMessage

SHARED: Final = "shared="
"""Stands before a link where others have the id of a session."""
_READABLE: Final = ("message", "custom_message", "compaction", "branch_summary", "label", "session_info")
_CHOICES: Final = ("model_change", "thinking_level_change")
_FRAME: Final = "id type command success error code"
_AS_IT_IS: Final = None
_MODEL: Final = shape("id name provider reasoning input contextWindow")
_STATE: Final = shape(
    "thinkingLevel isStreaming isCompacting isSettled sessionName messageCount approval permissionMode todoPhases "
    "contextUsage",
    model=_MODEL,
)
_STATS: Final = shape(
    "userMessages assistantMessages toolCalls toolResults totalMessages tokens cost costSource contextUsage"
)
_ROWS: Final[Mapping[str, Shape | None]] = {
    "agent_start": shape("type"),
    "turn_start": shape("type"),
    "message_start": _AS_IT_IS,
    "message_update": _AS_IT_IS,
    "message_update start done error": _AS_IT_IS,
    "message_end": _AS_IT_IS,
    "tool_execution_start": _AS_IT_IS,
    "tool_execution_update": _AS_IT_IS,
    "tool_execution_end": _AS_IT_IS,
    "turn_end": shape("type"),
    "agent_end": shape("type willRetry"),
    "agent_settled": _AS_IT_IS,
    "compaction_start": _AS_IT_IS,
    "compaction_end": shape("type reason aborted willRetry"),
    "session_info_changed": _AS_IT_IS,
    "thinking_level_changed": _AS_IT_IS,
    "session_changed": _AS_IT_IS,
    "response get_state": shape(_FRAME, data=_STATE),
    "response get_session_stats": shape(_FRAME, data=_STATS),
}


class ViewerDialect(Dialect, frozen=True):
    def entry(self, data: bytes) -> bytes:
        value = decode(data)
        kind, message = value.get("type"), value.get("message")
        hidden = (message if isinstance(message, dict) else value).get("display") is False
        if kind in _CHOICES or (kind in _READABLE and not hidden):
            return data
        # Others stay in their place in the tree, empty.
        return encode({key: value.get(key) for key in ("type", "id", "parentId", "timestamp", "customType")})


VIEWER: Final = ViewerDialect("viewer", rows=_ROWS, documented=True)


def viewer_commands() -> list[str]:
    """Return the commands that a viewer may use."""
    from spindle.protocol.commands import COMMANDS  # reads all of them

    return sorted(name for name, spec in COMMANDS.items() if spec.viewer)


def is_hidden(event: Event) -> bool:
    """Say whether an event is about a message that is meant for the model alone."""
    message = event.message if isinstance(event, MessageStart | MessageEnd) else None
    return isinstance(message, CustomMessage) and not message.display
