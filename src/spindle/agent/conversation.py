"""The conversation in motion: the messages the model will see, kept in step with the session file."""

import os

from spindle.sessions.context import SessionContext
from spindle.sessions.entries import Entry
from spindle.sessions.manager import SessionManager
from spindle.types.content import text_of
from spindle.types.messages import (
    AgentMessage,
    AssistantMessage,
    BashExecutionMessage,
    CustomMessage,
    UserMessage,
)

from .stats import StatsCounter

__all__ = ["Conversation"]


class Conversation:
    def __init__(self, store: SessionManager) -> None:
        self.store = store
        self.messages: list[AgentMessage] = []
        """The current context, oldest first."""
        self._dropped: set[str] = set()
        """Entries of failed attempts: they stay in the file but not in the context."""
        self._held: list[BashExecutionMessage] = []
        """Results of the user's commands that wait for the run to end."""
        self._stats = StatsCounter()
        self._last_id: str | None = None
        self.reload()

    def use(self, store: SessionManager) -> None:
        """Go on with another session file; `arrive` takes it up."""
        self.store.close()
        self.store = store

    def arrive(self) -> SessionContext:
        """Take up the session that the store holds now."""
        self._dropped.clear()
        self._held.clear()
        self._stats = StatsCounter()
        return self.reload()

    def reload(self) -> SessionContext:
        """Build the context anew from the tree: after a switch, a jump or a compaction."""
        context = self.store.build_session_context()
        pairs = zip(context.entry_ids, context.messages, strict=True)
        self.messages = [message for entry_id, message in pairs if entry_id not in self._dropped]
        return context

    def append(self, message: AgentMessage) -> str:
        """Store a message and make it part of the context. Returns its entry id."""
        if isinstance(message, CustomMessage):
            entry_id = self.store.append_custom_message_entry(
                message.custom_type, message.content, message.display, message.details
            )
        else:
            entry_id = self.store.append_message(message)
        self.messages.append(message)
        self._last_id = entry_id
        return entry_id

    def drop_failed(self, message: AssistantMessage) -> None:
        """Take a failed answer out of the context; the file keeps it."""
        if self.messages and self.messages[-1] is message:
            self.messages.pop()
            if self._last_id is not None:
                self._dropped.add(self._last_id)

    def hold(self, message: BashExecutionMessage) -> None:
        self._held.append(message)

    def release_held(self) -> None:
        """Append what was held back, so that it never stands between a tool call and its result."""
        held, self._held = self._held, []
        for message in held:
            self.append(message)

    # -- questions -------------------------------------------------------------------------------

    def last_assistant(self) -> AssistantMessage | None:
        return next((m for m in reversed(self.messages) if isinstance(m, AssistantMessage)), None)

    def last_assistant_text(self) -> str | None:
        """Return the text of the last answer that has any content."""
        for message in reversed(self.messages):
            if isinstance(message, AssistantMessage):
                if message.stop_reason == "aborted" and not message.content:
                    continue
                return text_of(message.content).strip() or None
        return None

    def user_messages(self) -> list[tuple[str, str]]:
        """Return entry id and text of every user message of the session, on all branches."""
        found = []
        for entry in self.store.get_entries():
            if entry.type == "message" and isinstance(entry.message, UserMessage):
                text = text_of(entry.message.content)
                if text:
                    found.append((entry.id, text))
        return found

    def user_entry(self, entry_id: object) -> Entry | None:
        """Return the entry if it is a user message."""
        entry = self.store.get_entry(entry_id) if isinstance(entry_id, str) else None
        if entry is not None and entry.type == "message" and isinstance(entry.message, UserMessage):
            return entry
        return None

    def has_thinking_level(self) -> bool:
        """Say whether the session itself tells how hard to think."""
        return any(entry.type == "thinking_level_change" for entry in self.store.get_branch())

    def is_at(self, path: str) -> bool:
        """Say whether `path` is the file of the current session."""
        file = self.store.get_session_file()
        return file is not None and os.path.realpath(file) == os.path.realpath(path)

    def stats(self) -> StatsCounter:
        self._stats.catch_up(self.store.get_entries())
        return self._stats
