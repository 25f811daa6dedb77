"""Lines of a session file, version 3. Field order is the key order on disk.

The store keeps the bytes of every line it read; these shapes are for writing lines and for reading
the types we know.
"""

from typing import Any

from spindle.shapes.content import Image, Text, Wire
from spindle.shapes.messages import KnownMessage, Usage

__all__ = [
    "SESSION_VERSION",
    "BranchSummaryEntry",
    "CompactionEntry",
    "CustomEntry",
    "CustomMessageEntry",
    "LabelEntry",
    "MessageEntry",
    "ModelChangeEntry",
    "SessionHeader",
    "SessionInfoEntry",
    "ThinkingLevelChangeEntry",
]

SESSION_VERSION = 3


class SessionHeader(Wire, tag_field="type", tag="session"):
    version: int
    id: str
    timestamp: str
    """ISO 8601 with milliseconds and Z, here and in every entry."""
    cwd: str
    parent_session: str | None = None


class _Entry(Wire):
    id: str
    parent_id: str | None
    timestamp: str


class MessageEntry(_Entry, tag_field="type", tag="message"):
    message: KnownMessage


class ModelChangeEntry(_Entry, tag_field="type", tag="model_change"):
    provider: str
    model_id: str


class ThinkingLevelChangeEntry(_Entry, tag_field="type", tag="thinking_level_change"):
    thinking_level: str


class CompactionEntry(_Entry, kw_only=True, tag_field="type", tag="compaction"):
    summary: str
    first_kept_entry_id: str | None = None
    tokens_before: int | float
    details: Any = None
    usage: Usage | None = None
    from_hook: bool | None = None


class BranchSummaryEntry(_Entry, kw_only=True, tag_field="type", tag="branch_summary"):
    from_id: str
    """The leaf of the branch that was left, or `root`."""
    summary: str
    details: Any = None
    usage: Usage | None = None
    from_hook: bool | None = None


class CustomEntry(Wire, kw_only=True, tag_field="type", tag="custom"):
    """State of an extension; never sent to a model."""

    custom_type: str
    data: Any = None
    id: str
    parent_id: str | None
    timestamp: str


class CustomMessageEntry(Wire, kw_only=True, tag_field="type", tag="custom_message"):
    custom_type: str
    content: str | list[Text | Image]
    display: bool
    details: Any = None
    id: str
    parent_id: str | None
    timestamp: str


class LabelEntry(_Entry, tag_field="type", tag="label"):
    target_id: str
    label: str | None = None
    """Missing or empty clears the label."""


class SessionInfoEntry(_Entry, tag_field="type", tag="session_info"):
    name: str
