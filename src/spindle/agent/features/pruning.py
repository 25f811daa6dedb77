"""Old results of tools are left out of requests before anything is summarised.

Most of a long conversation is output that the model has read and used. When the context is nearly full, results that
are older than the last few answers become one line each, which says how to get them again. Errors stay: they are short,
and keep the model from making the same mistake. The session keeps everything, and an entry in it says what was left
out, so that a resumed conversation looks the same to the model. Every change costs the provider's cache, so there are
few of them, and more only instead of a summary, which costs it too.
"""

import time
from collections.abc import Sequence
from functools import partial
from typing import ClassVar, Protocol

from msgspec.structs import replace

from spindle.agent.compaction import Compactor
from spindle.agent.conversation import Conversation
from spindle.agent.hooks import Hooks
from spindle.agent.hub import Hub
from spindle.llm.memory import Memory
from spindle.sessions.entries import Entry
from spindle.sessions.facts import Fact, facts, keep
from spindle.shapes.events import Notice
from spindle.shapes.messages import AgentMessage, AssistantMessage, Text, ToolCall, ToolResultMessage
from spindle.tools.base import format_size

_NEARLY_FULL = 0.8
"""Part of the room before a compaction."""
_WORTH_IT = 0.15
"""Part of that room that must become free, or nothing is left out."""
_KEPT_ANSWERS = 6
"""Results of the last answers stay."""
_SMALL = 300
"""Tokens; shorter results stay."""
_CACHE_SECONDS = 300.0
"""How long providers keep a prompt: so long no more is left out, unless the next thing would be a summary."""


class Pruned(Fact):
    """Results that are left out from now on."""

    entry_type: ClassVar[str] = "spindle-pruned"
    tool_call_ids: list[str]
    """The calls that they are of."""


class PruningPort(Protocol):
    """What pruning needs of the engine."""

    conversation: Conversation
    compactor: Compactor
    hub: Hub


class Pruning(Hooks):
    def __init__(self, port: PruningPort) -> None:
        self._port = port
        self._last: float | None = None
        """When something was left out last."""
        self._memory = Memory()
        self._read: tuple[int, Entry | None, set[str]] = 0, None, set()
        """How many entries of the branch were read, the last of them, and the ids found in them."""

    async def context(self, messages: list[AgentMessage], system_prompt: str) -> tuple[list[AgentMessage], str]:
        left_out = self._left_out()
        if self._due() and (more := self._choose(messages, left_out)):
            self._last = time.monotonic()
            keep(self._port.conversation.session, Pruned(list(more)))
            left_out = self._left_out()
            many = f"{len(more)} old result{'s' * (len(more) > 1)} of tools"
            await self._port.hub.emit(
                Notice(f"{many} left out to save room (about {sum(more.values()):,} tokens)", "info")
            )
        if not left_out:
            return messages, system_prompt
        ids = frozenset(left_out)
        return self._memory.parts("short", messages, partial(_shortened, ids), ids), system_prompt

    def _left_out(self) -> set[str]:
        """Return the ids of calls whose results are left out on this branch."""
        branch = self._port.conversation.session.branch()
        count, last, found = self._read
        if len(branch) < count or (count and branch[count - 1] is not last):
            count, found = 0, set()
        pruned = facts(branch[count:], Pruned)
        found |= {call_id for fact in pruned for call_id in fact.tool_call_ids}
        self._read = len(branch), branch[-1] if branch else None, found
        return found

    def _due(self) -> bool:
        room = self._port.compactor.limits.threshold
        if self._last is None or time.monotonic() - self._last >= _CACHE_SECONDS:
            room *= _NEARLY_FULL
        return self._port.conversation.tokens() > room

    def _choose(self, messages: Sequence[AgentMessage], left_out: set[str]) -> dict[str, int]:
        """Return the calls whose results can be left out, with their tokens; empty if that is not worth it."""
        from spindle.llm.history import estimate_tokens

        answers = [index for index, message in enumerate(messages) if isinstance(message, AssistantMessage)]
        if len(answers) <= _KEPT_ANSWERS:
            return {}
        chosen = {}
        for message in messages[: answers[-_KEPT_ANSWERS]]:
            if isinstance(message, ToolResultMessage) and not message.is_error and message.tool_call_id not in left_out:
                size = estimate_tokens(message)
                if size >= _SMALL:
                    chosen[message.tool_call_id] = size
        return chosen if sum(chosen.values()) >= _WORTH_IT * self._port.compactor.limits.threshold else {}


def _shortened(left_out: frozenset[str], messages: Sequence[AgentMessage], _: int) -> list[AgentMessage]:
    calls = {
        block.id: block
        for message in messages
        if isinstance(message, AssistantMessage)
        for block in message.content
        if isinstance(block, ToolCall)
    }
    return [
        replace(message, content=[Text(_line(message, calls.get(message.tool_call_id)))])
        if isinstance(message, ToolResultMessage) and message.tool_call_id in left_out
        else message
        for message in messages
    ]


def _line(message: ToolResultMessage, call: ToolCall | None) -> str:
    """Say what was left out, and how to get it again."""
    arguments = call.arguments if call is not None and isinstance(call.arguments, dict) else {}
    subject = next(
        (str(arguments[name]) for name in ("path", "file_path", "command", "pattern") if arguments.get(name)), ""
    )
    size = format_size(
        sum(len(block.text.encode("utf-8", "replace")) for block in message.content if isinstance(block, Text))
    )
    what = f"{message.tool_name} {subject[:200]}".strip()
    return f"[The result of `{what}` ({size}) was left out to save room. Call it again if you need it.]"
